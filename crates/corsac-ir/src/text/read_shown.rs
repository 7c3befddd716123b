//! Reads the text of [`Graph::to_text`], as far as it is unambiguous.
//!
//! The shown form leaves things out (strings stand without quotes, an output has no name, host
//! values are whatever their `str` is), so that a text may have several readings. Any reading that
//! prints the same text again is right, and the simplest is taken: `1` is a number, `torch.float32`
//! a dtype, `relu` a string. Text that looks like the `repr` of an object (`<...>`, `name(...)`, a
//! set) becomes a host value of that name, never a string.

use std::borrow::Cow;

use rustc_hash::FxHashSet;
use thin_vec::ThinVec;

use super::allow::Allowed;
use super::build::{Builder, NodeLine, UsersClaim};
use super::cursor::{Cursor, lines};
use super::host::NoHost;
use super::names::Names;
use super::parse_error::{ParseError, quoted};
use super::print::Printer;
use super::read_lossless::operation;
use super::value::{Dialect, Values, complex, is_name_char, literal_word, number};
use crate::arg::{Arg, Dict, MAX_DEPTH, Seq};
use crate::dtype::Device;
use crate::entity::ExternalId;
use crate::graph::{Graph, Origin};
use crate::literal;
use crate::op::{Op, Target};

/// Reads the lines after the header, which ends at `from`.
pub(super) fn read(text: &str, from: usize, allowed: Allowed<'_>) -> Result<Graph, ParseError> {
    let mut reader = Reader {
        cursor: Cursor::new(text),
        graph: Graph::new(),
        names: Names::for_text(text, allowed),
        brackets: Vec::new(),
        brackets_from: 0,
        to_print_back: Vec::new(),
    };
    // Nodes may be used in lines before their own: first the names, then the rest.
    let mut starts = Vec::new();
    let mut outputs = Vec::new();
    for (start, end) in lines(text, from) {
        reader.cursor = Cursor::within(text, start, end);
        match reader.cursor.peek() {
            Some('#') => {}
            Some('%') => {
                let name = reader.name()?;
                reader.names.add_node(&reader.cursor, start, name)?;
                starts.push((start, end));
            }
            _ if reader.is_output() => {
                // No node can be called that: a line break ends a name.
                let stand_in = format!("\n{}", outputs.len());
                reader.names.add_node(&reader.cursor, start, &stand_in)?;
                outputs.push(start);
                starts.push((start, end));
            }
            _ => return Err(reader.cursor.error("`%name : ` or `return `")),
        }
    }
    reader.graph = reader.names.new_graph();
    let mut builder = Builder::default();
    let mut output_number = 0;
    for (start, end) in starts {
        reader.cursor = Cursor::within(text, start, end);
        let (name, line) = if reader.cursor.peek() == Some('%') {
            let name = reader.name()?;
            (Cow::Borrowed(name), reader.node(name, end)?)
        } else {
            let name = reader.free_output_name(&mut output_number);
            (Cow::Owned(name), reader.output(end)?)
        };
        builder.add(&mut reader.graph, &reader.cursor, start, &name, line)?;
    }
    reader.cursor = Cursor::new(text);
    builder.finish(&mut reader.graph, &reader.cursor)?;
    for (value, start, end) in &reader.to_print_back {
        let mut printer = Printer::new(&reader.graph, &NoHost, end - start);
        printer.repr(value);
        if printer.finish() != text[*start..*end] {
            let found = quoted(&text[*start..*end]);
            let expected = "a value just as Python's repr writes it";
            return Err(reader.cursor.error_found(*start, expected, found));
        }
    }
    Ok(reader.graph)
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    graph: Graph,
    names: Names<'t>,
    /// For each byte from `brackets_from` on: the distance to the bracket that closes the one here.
    brackets: Vec<u32>,
    brackets_from: usize,
    /// Values read by `repr`, with their place. The nodes that they mention have names when all
    /// nodes are there.
    to_print_back: Vec<(Arg, usize, usize)>,
}

impl<'t> Reader<'t> {
    /// The name at the beginning of a line.
    fn name(&mut self) -> Result<&'t str, ParseError> {
        self.cursor.expect("%")?;
        let rest = self.cursor.rest();
        let len = match (rest.find(" : "), rest.find(" = ")) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => {
                self.cursor.take_while(is_name_char);
                return Err(self.cursor.error("` : ` after the name"));
            }
        };
        self.cursor.bump(len);
        Ok(&rest[..len])
    }

    fn is_output(&self) -> bool {
        let rest = self.cursor.rest();
        rest.starts_with("return ") || rest == "return"
    }

    fn free_output_name(&self, number: &mut u32) -> String {
        loop {
            let name = match *number {
                0 => "output".to_owned(),
                n => format!("output_{n}"),
            };
            *number += 1;
            if self.names.node(&name).is_none() {
                return name;
            }
        }
    }

    /// `return VALUE`
    fn output(&mut self, end: usize) -> Result<NodeLine, ParseError> {
        self.cursor.expect("return")?;
        self.cursor.eat(" ");
        let text = self.cursor.rest();
        let value = match self.names.node(text) {
            Some(id) => Arg::Node(id),
            None => self.whole_value(end)?,
        };
        let target = Target::Name(self.graph.intern("output"));
        Ok(NodeLine {
            op: Op::Output,
            target,
            args: [value].into(),
            kwargs: ThinVec::new(),
            ty: None,
            origin: Origin::default(),
            users: None,
        })
    }

    /// The rest of a node's line after the name.
    fn node(&mut self, name: &str, end: usize) -> Result<NodeLine, ParseError> {
        let (mut ty, mut users) = (None, None);
        if self.cursor.eat(" : ") {
            const COUNT: &str = "[num_users=";
            let rest = self.cursor.rest();
            if let Some(len) = rest.find(COUNT) {
                if let Some(annotation) = rest[..len].strip_suffix(' ') {
                    ty = Some(self.shown_value(annotation)?);
                } else if len > 0 {
                    self.cursor.bump(len);
                    return Err(self.cursor.error("a space after the type"));
                }
                self.cursor.bump(len + COUNT.len());
                let at = self.cursor.at();
                let count = self.cursor.number("a number of users")?;
                users = Some(UsersClaim::Count(count, at));
                self.cursor.expect("]")?;
            } else if let Some(len) = rest.find(" = ") {
                ty = Some(self.shown_value(&rest[..len])?);
                self.cursor.bump(len);
            } else {
                return Err(self.cursor.error(format!("`{COUNT}`")));
            }
        }
        self.cursor.expect(" = ")?;
        let op = operation(&mut self.cursor)?;
        self.cursor.expect("[target=")?;
        let mut line = NodeLine {
            op,
            target: Target::Name(self.graph.intern(name)),
            args: ThinVec::new(),
            kwargs: ThinVec::new(),
            ty,
            origin: Origin::default(),
            users,
        };
        match op {
            Op::Placeholder => self.placeholder(&mut line, end)?,
            Op::GetAttr => {
                let rest = self.cursor.rest().trim_end_matches('\r');
                let Some(target) = rest.strip_suffix(']') else {
                    self.cursor.bump(rest.len());
                    return Err(self.cursor.error("`]` at the end of the line"));
                };
                line.target = Target::Name(self.graph.intern(target));
            }
            Op::CallFunction | Op::CallMethod | Op::CallModule | Op::Output => {
                self.call(&mut line, end)?;
            }
        }
        Ok(line)
    }

    /// The host value that `text`, which stands here, was printed for.
    fn shown_value(&mut self, text: &'t str) -> Result<ExternalId, ParseError> {
        let at = self.cursor.at();
        self.names.shown(&mut self.graph, &self.cursor, at, text)
    }

    /// `x]` or `x](default=1)`
    fn placeholder(&mut self, line: &mut NodeLine, end: usize) -> Result<(), ParseError> {
        const DEFAULT: &str = "](default=";
        let rest = self.cursor.rest().trim_end_matches('\r');
        if let Some(len) = rest.find(DEFAULT) {
            line.target = Target::Name(self.graph.intern(&rest[..len]));
            let Some(value) = rest[len + DEFAULT.len()..].strip_suffix(')') else {
                self.cursor.bump(rest.len());
                return Err(self.cursor.error("`)` at the end of the line"));
            };
            self.cursor.bump(len + DEFAULT.len());
            let value_end = self.cursor.at() + value.len();
            debug_assert!(value_end <= end);
            line.args.push(self.whole_value(value_end)?);
        } else if let Some(target) = rest.strip_suffix(']') {
            line.target = Target::Name(self.graph.intern(target));
        } else {
            self.cursor.bump(rest.len());
            return Err(self.cursor.error("`]` at the end of the line"));
        }
        Ok(())
    }

    /// `torch.add](args = (%x, 1), kwargs = {})`
    fn call(&mut self, line: &mut NodeLine, end: usize) -> Result<(), ParseError> {
        let rest = self.cursor.rest();
        let Some(len) = rest.find("](args = (") else {
            let target = self.cursor.take_while(|c| c != ']');
            self.cursor.bump(usize::from(target.len() < rest.len()));
            return Err(self.cursor.error("`(args = (` after the target"));
        };
        line.target = if line.op == Op::CallFunction {
            let at = self.cursor.at();
            self.names.check_allowed(&self.cursor, at, &rest[..len])?;
            Target::Function(self.graph.function(&rest[..len]))
        } else {
            Target::Name(self.graph.intern(&rest[..len]))
        };
        self.cursor.bump(len + "](args = ".len());
        let open = self.cursor.at();
        self.match_brackets(open, end);
        let close = self.closing(open)?;
        line.args = self.tuple_items(open + 1, close, 0)?;
        self.cursor.move_to(close + 1);
        self.cursor.expect(", kwargs = ")?;
        let open = self.cursor.at();
        if self.cursor.peek() != Some('{') {
            return Err(self.cursor.error("`{`"));
        }
        let close = self.closing(open)?;
        let mut seen = FxHashSet::default();
        for (start, item_end) in self.split(open + 1, close) {
            let Some(colon) = self.find_colon(start, item_end) else {
                return Err(self.cursor.error_at(start, "`keyword: value`"));
            };
            let key = self.graph.intern(&self.cursor.text()[start..colon]);
            if !seen.insert(key) {
                return Err(self.cursor.error_at(start, "a new keyword"));
            }
            let value = self.shown(colon + 2, item_end, 0)?;
            line.kwargs.push((key, value));
        }
        self.cursor.move_to(close + 1);
        self.cursor.expect(")")?;
        self.cursor.eat("\r");
        if self.cursor.is_at_end() {
            Ok(())
        } else {
            Err(self.cursor.error("the end of the line"))
        }
    }

    // ---- values that stand by themselves: default values and results ----

    /// The value from here to `end`, written as Python's `str` writes it.
    fn whole_value(&mut self, end: usize) -> Result<Arg, ParseError> {
        let start = self.cursor.at();
        let text = &self.cursor.text()[start..end];
        if let Some(scalar) = self.scalar(text) {
            return Ok(scalar);
        }
        let first = text.chars().next();
        let call = text.ends_with(')') && starts_as_call(text);
        if matches!(first, Some('(' | '[' | '{' | '<')) || call {
            return self.repr(start, end);
        }
        Ok(Arg::Str(self.graph.intern(text)))
    }

    /// The bytes `start..end` as one value exactly as `repr` writes it: a value that prints
    /// differently, for its spaces or its digits, would not give the text again.
    fn repr(&mut self, start: usize, end: usize) -> Result<Arg, ParseError> {
        let mut cursor = Cursor::within(self.cursor.text(), start, end);
        let mut values = Values {
            cursor: &mut cursor,
            graph: &mut self.graph,
            names: &mut self.names,
            dialect: Dialect::Repr,
        };
        let value = values.value(0)?;
        if !cursor.is_at_end() {
            return Err(cursor.error("the end of the value"));
        }
        self.to_print_back.push((value.clone(), start, end));
        Ok(value)
    }

    // ---- values among arguments ----

    /// The items of a tuple between `start` and `end`.
    fn tuple_items(
        &mut self,
        start: usize,
        end: usize,
        depth: u16,
    ) -> Result<ThinVec<Arg>, ParseError> {
        let mut items = self.split(start, end);
        if let [(_, item_end)] = &mut items[..] {
            if !self.cursor.text()[start..end].ends_with(',') {
                return Err(self.cursor.error_at(end, "`,` in a tuple of one"));
            }
            *item_end -= 1;
        }
        items
            .into_iter()
            .map(|(start, end)| self.shown(start, end, depth))
            .collect()
    }

    /// One value between `start` and `end`, inside of `depth` containers.
    fn shown(&mut self, start: usize, end: usize, depth: u16) -> Result<Arg, ParseError> {
        let text = &self.cursor.text()[start..end];
        if let Some(name) = text.strip_prefix('%') {
            if let Some(id) = self.names.node(name) {
                return Ok(Arg::Node(id));
            }
            if !name.is_empty() && name.chars().all(is_name_char) {
                return Err(self.cursor.error_at(start, "the name of a node"));
            }
        }
        if let Some(scalar) = self.scalar(text) {
            return Ok(scalar);
        }
        let bracket = text.bytes().next();
        let whole = matches!(bracket, Some(b'(' | b'[' | b'{'))
            && self.closed_at(start).is_some_and(|close| close + 1 == end);
        if whole && depth >= MAX_DEPTH {
            let expected = format!("containers at most {MAX_DEPTH} deep");
            let found = "a deeper one".to_owned();
            return Err(self.cursor.error_found(start, expected, found));
        }
        if whole {
            let container = match bracket {
                Some(b'(') => self.shown_tuple(start, end, depth)?,
                Some(b'[') => self.shown_list(start, end, depth)?,
                _ => self.shown_dict(start, end, depth)?,
            };
            if let Some(container) = container {
                return Ok(container);
            }
        }
        let call = starts_as_call(text)
            && text.find('(').is_some_and(|open| {
                self.closed_at(start + open)
                    .is_some_and(|close| close + 1 == end)
            });
        if call && (text.starts_with("slice(") || text.starts_with("range(")) {
            return self.repr(start, end);
        }
        if call || (text.starts_with('<') && text.ends_with('>')) || whole {
            let names = &mut self.names;
            let value = names.shown(&mut self.graph, &self.cursor, start, text)?;
            return Ok(Arg::Opaque(value));
        }
        Ok(Arg::Str(self.graph.intern(text)))
    }

    /// A tuple; `None` for `(a)`, which is none.
    fn shown_tuple(
        &mut self,
        start: usize,
        end: usize,
        depth: u16,
    ) -> Result<Option<Arg>, ParseError> {
        let inner = &self.cursor.text()[start + 1..end - 1];
        if !inner.is_empty() && !inner.ends_with(',') && self.split(start + 1, end - 1).len() == 1 {
            return Ok(None);
        }
        let items = self.tuple_items(start + 1, end - 1, depth + 1)?;
        self.sequence(start, items).map(|seq| Some(Arg::Tuple(seq)))
    }

    fn shown_list(
        &mut self,
        start: usize,
        end: usize,
        depth: u16,
    ) -> Result<Option<Arg>, ParseError> {
        let items = self
            .split(start + 1, end - 1)
            .into_iter()
            .map(|(start, end)| self.shown(start, end, depth + 1))
            .collect::<Result<ThinVec<_>, _>>()?;
        self.sequence(start, items).map(|seq| Some(Arg::List(seq)))
    }

    /// A dictionary; `None` if an entry has no colon, as in a set.
    fn shown_dict(
        &mut self,
        start: usize,
        end: usize,
        depth: u16,
    ) -> Result<Option<Arg>, ParseError> {
        let mut entries = ThinVec::new();
        for (item, item_end) in self.split(start + 1, end - 1) {
            let Some(colon) = self.find_colon(item, item_end) else {
                return Ok(None);
            };
            let key = self.key(item, colon)?;
            entries.push((key, self.shown(colon + 2, item_end, depth + 1)?));
        }
        let dict = Dict::new(entries).map_err(|error| self.refused(start, &error))?;
        Ok(Some(Arg::Dict(dict)))
    }

    fn sequence(&self, start: usize, items: ThinVec<Arg>) -> Result<Seq, ParseError> {
        Seq::new(items).map_err(|error| self.refused(start, &error))
    }

    fn refused(&self, start: usize, error: &crate::error::GraphError) -> ParseError {
        let found = format!("one of which the graph says: {error}");
        self.cursor.error_found(start, "an argument", found)
    }

    /// The key of a dictionary: `str` of it.
    fn key(&mut self, start: usize, end: usize) -> Result<Arg, ParseError> {
        let text = &self.cursor.text()[start..end];
        if let Some(scalar) = self.scalar(text) {
            return Ok(scalar);
        }
        if text.starts_with('(') && text.ends_with(')') {
            return self.repr(start, end);
        }
        Ok(Arg::Str(self.graph.intern(text)))
    }

    /// A value without parts that prints as `text`, strings aside.
    fn scalar(&mut self, text: &str) -> Option<Arg> {
        if let Some(word) = literal_word(text) {
            return Some(word);
        }
        // The longest is `privateuseone:65535`.
        if text.len() < 32
            && let Ok(device) = text.parse::<Device>()
        {
            return (device.to_string() == text).then_some(Arg::Device(device));
        }
        let value = match text.as_bytes() {
            [b'-' | b'.' | b'0'..=b'9', ..] => number(text)?,
            [b'(', .., b')'] if text.len() < 64 => complex(text)?,
            [b'b', quote @ (b'\'' | b'"'), .., last] if quote == last => {
                let mut cursor = Cursor::new(text);
                let mut values = Values {
                    cursor: &mut cursor,
                    graph: &mut self.graph,
                    names: &mut Names::default(),
                    dialect: Dialect::Repr,
                };
                let bytes = values.value(0).ok()?;
                cursor.is_at_end().then_some(bytes)?
            }
            _ => return None,
        };
        prints_as(&value, text).then_some(value)
    }

    // ---- brackets ----

    /// Pairs the brackets between `start` and `end`, whatever stands between them.
    fn match_brackets(&mut self, start: usize, end: usize) {
        self.brackets.clear();
        self.brackets.resize(end - start, 0);
        self.brackets_from = start;
        let mut open: Vec<(u8, usize)> = Vec::new();
        // Number of open brackets of each kind, by the byte that opens them.
        let mut waiting = [0_usize; 128];
        for (at, b) in self.cursor.text()[start..end].bytes().enumerate() {
            let opening = match b {
                b'(' | b'[' | b'{' => {
                    open.push((b, at));
                    waiting[usize::from(b)] += 1;
                    continue;
                }
                b')' => b'(',
                b']' => b'[',
                b'}' => b'{',
                _ => continue,
            };
            // A bracket without its other half is text.
            if waiting[usize::from(opening)] == 0 {
                continue;
            }
            while let Some((bracket, from)) = open.pop() {
                waiting[usize::from(bracket)] -= 1;
                if bracket == opening {
                    // A pair four gigabytes apart counts as text too.
                    self.brackets[from] = u32::try_from(at - from).unwrap_or(0);
                    break;
                }
            }
        }
    }

    /// The end of the bracket opened at `open`; `None` for one that is text.
    fn closed_at(&self, open: usize) -> Option<usize> {
        match self.brackets.get(open.wrapping_sub(self.brackets_from)) {
            Some(&distance) if distance > 0 => Some(open + distance as usize),
            _ => None,
        }
    }

    /// The end of the bracket opened at `open`, which must be closed.
    fn closing(&self, open: usize) -> Result<usize, ParseError> {
        let closed = self.closed_at(open);
        closed.ok_or_else(|| self.cursor.error_at(open, "a bracket that is closed"))
    }

    /// The parts of `start..end` between `, `, brackets left whole.
    fn split(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let bytes = self.cursor.text().as_bytes();
        let mut items = Vec::new();
        if start >= end {
            return items;
        }
        let (mut item, mut at) = (start, start);
        while at < end {
            match bytes[at] {
                b'(' | b'[' | b'{' => {
                    at = self.closed_at(at).map_or(at, |close| close.min(end)) + 1
                }
                b',' if at + 1 < end && bytes[at + 1] == b' ' => {
                    items.push((item, at));
                    at += 2;
                    item = at;
                }
                _ => at += 1,
            }
        }
        items.push((item, end));
        items
    }

    /// The place of the first `: ` between `start` and `end`, brackets left whole.
    fn find_colon(&self, start: usize, end: usize) -> Option<usize> {
        let bytes = self.cursor.text().as_bytes();
        let mut at = start;
        while at + 1 < end {
            match bytes[at] {
                b'(' | b'[' | b'{' => at = self.closed_at(at).unwrap_or(at) + 1,
                b':' if bytes[at + 1] == b' ' => return Some(at),
                _ => at += 1,
            }
        }
        None
    }
}

/// Whether `text` begins like a call: a qualified name and a bracket.
fn starts_as_call(text: &str) -> bool {
    let name = text.split('(').next().unwrap_or(text);
    name.len() < text.len()
        && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '.')
}

/// Whether a number or a byte string prints as `text`.
fn prints_as(value: &Arg, text: &str) -> bool {
    let mut out = String::with_capacity(text.len());
    let written = match value {
        Arg::Int(value) => literal::write_big_int(&mut out, &(*value).into()),
        Arg::BigInt(value) => literal::write_big_int(&mut out, value),
        Arg::Float(value) => literal::write_float(&mut out, *value),
        Arg::Complex(value) => literal::write_complex(&mut out, value.0, value.1),
        Arg::Bytes(value) => literal::write_bytes(&mut out, value),
        _ => return false,
    };
    written.is_ok() && out == text
}
