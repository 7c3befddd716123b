//! Reads values written as Python's `repr` writes them.
//!
//! The lossless form and the insides of slices and results in the shown form are both written so;
//! they differ in how a node and a host value look ([`Dialect`]).

use num_bigint::{BigInt, Sign};
use thin_vec::ThinVec;

use super::cursor::Cursor;
use super::names::Names;
use super::parse_error::{ParseError, quoted};
use crate::arg::{Arg, Dict, MAX_DEPTH, Seq};
use crate::dtype::{DType, Device, DeviceKind, Layout, MemoryFormat};
use crate::graph::Graph;

/// Decimal digits that Python reads at most (`sys.get_int_max_str_digits`); reading more would take
/// time that grows faster than the text.
const MAX_DECIMAL_DIGITS: usize = 4300;

/// The notation of nodes and host values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Nodes as `%x`, host values as `@1`, named tuples as `@1(...)`.
    Lossless,
    /// Nodes as `x`; host values as whatever their own `repr` is.
    Repr,
}

/// Reads values from a cursor into a graph.
pub(super) struct Values<'a, 't> {
    pub(super) cursor: &'a mut Cursor<'t>,
    pub(super) graph: &'a mut Graph,
    pub(super) names: &'a mut Names<'t>,
    pub(super) dialect: Dialect,
}

impl<'t> Values<'_, 't> {
    /// One value. `depth` containers are open around it.
    pub(super) fn value(&mut self, depth: u16) -> Result<Arg, ParseError> {
        let start = self.cursor.at();
        let Some(first) = self.cursor.peek() else {
            return Err(self.cursor.error("a value"));
        };
        match first {
            '(' => match self.complex() {
                Some(complex) => Ok(complex),
                None => self.items("(", ")", depth, start).map(Arg::Tuple),
            },
            '[' => self.items("[", "]", depth, start).map(Arg::List),
            '{' => self.dict(depth, start),
            '\'' | '"' => {
                let text = self.string()?;
                Ok(Arg::Str(self.graph.intern(&text)))
            }
            '%' if self.dialect == Dialect::Lossless => {
                self.cursor.bump(1);
                let name = self.node_name()?;
                match self.names.node(&name) {
                    Some(id) => Ok(Arg::Node(id)),
                    None => Err(self.cursor.error_at(start, "the name of a node")),
                }
            }
            '@' if self.dialect == Dialect::Lossless => {
                let value = self.external()?;
                if self.cursor.peek() == Some('(') {
                    let items = self.items("(", ")", depth, start)?;
                    return Ok(Arg::NamedTuple(Box::new((value, items))));
                }
                Ok(Arg::Opaque(value))
            }
            '<' if self.dialect == Dialect::Repr => {
                let text = self.cursor.rest();
                let len = angle_len(text)
                    .ok_or_else(|| self.cursor.error_at(start, "a value that ends in `>`"))?;
                self.cursor.bump(len);
                let value = self
                    .names
                    .shown(self.graph, self.cursor, start, &text[..len])?;
                Ok(Arg::Opaque(value))
            }
            'b' if self.cursor.rest()[1..].starts_with(['\'', '"']) => {
                self.cursor.bump(1);
                self.bytes()
            }
            '-' | '.' | '0'..='9' => self.number(),
            c if c.is_alphabetic() || c == '_' => self.word(depth),
            _ => Err(self.cursor.error("a value")),
        }
    }

    /// Values between brackets, separated by commas, as the parts of a container.
    fn items(
        &mut self,
        open: &'static str,
        close: &'static str,
        depth: u16,
        start: usize,
    ) -> Result<Seq, ParseError> {
        self.check_depth(depth, start)?;
        let items = self.listed(open, close, depth + 1)?;
        Seq::new(items).map_err(|e| self.refused(start, &e))
    }

    /// Values between brackets, separated by commas; `depth` containers are open around each.
    pub(super) fn listed(
        &mut self,
        open: &'static str,
        close: &'static str,
        depth: u16,
    ) -> Result<ThinVec<Arg>, ParseError> {
        self.cursor.expect(open)?;
        let mut items = ThinVec::new();
        loop {
            self.cursor.skip_spaces();
            if self.cursor.eat(close) {
                return Ok(items);
            }
            items.push(self.value(depth)?);
            self.cursor.skip_spaces();
            if self.cursor.eat(",") {
                continue;
            }
            if !self.cursor.rest().starts_with(close) {
                return Err(self.cursor.error(format!("`,` or `{close}`")));
            }
            if open == "(" && items.len() == 1 {
                return Err(self.cursor.error("`,` in a tuple of one"));
            }
        }
    }

    fn dict(&mut self, depth: u16, start: usize) -> Result<Arg, ParseError> {
        self.check_depth(depth, start)?;
        self.cursor.expect("{")?;
        let mut entries = ThinVec::new();
        loop {
            self.cursor.skip_spaces();
            if self.cursor.eat("}") {
                break;
            }
            let key = self.value(depth + 1)?;
            self.cursor.skip_spaces();
            self.cursor.expect(":")?;
            self.cursor.skip_spaces();
            entries.push((key, self.value(depth + 1)?));
            self.cursor.skip_spaces();
            if !self.cursor.eat(",") {
                if self.cursor.eat("}") {
                    break;
                }
                return Err(self.cursor.error("`,` or `}`"));
            }
        }
        let dict = Dict::new(entries).map_err(|e| self.refused(start, &e))?;
        Ok(Arg::Dict(dict))
    }

    fn check_depth(&self, depth: u16, start: usize) -> Result<(), ParseError> {
        if depth < MAX_DEPTH {
            return Ok(());
        }
        let expected = format!("containers at most {MAX_DEPTH} deep");
        let found = "a deeper one".to_owned();
        Err(self.cursor.error_found(start, expected, found))
    }

    fn refused(&self, start: usize, error: &crate::error::GraphError) -> ParseError {
        let found = format!("a container of which the graph says: {error}");
        self.cursor.error_found(start, "an argument", found)
    }

    /// `None`, `torch.float32`, `slice(...)`, a node's name, ...
    fn word(&mut self, depth: u16) -> Result<Arg, ParseError> {
        let start = self.cursor.at();
        let word = self
            .cursor
            .take_while(|c| c.is_alphanumeric() || c == '_' || c == '.');
        if self.cursor.peek() == Some('(') {
            return self.call(word, depth, start);
        }
        if let Some(literal) = literal_word(word) {
            return Ok(literal);
        }
        if self.dialect == Dialect::Repr
            && let Some(id) = self.names.node(word)
        {
            return Ok(Arg::Node(id));
        }
        if word.ends_with('j')
            && let Some(value) = imaginary(word)
        {
            return Ok(value);
        }
        let expected = match self.dialect {
            Dialect::Lossless => "a value",
            Dialect::Repr => "a value or the name of a node",
        };
        Err(self.cursor.error_at(start, expected))
    }

    /// `slice(...)`, `range(...)`, `device(...)`, or the repr of a host value.
    fn call(&mut self, word: &'t str, depth: u16, start: usize) -> Result<Arg, ParseError> {
        match word {
            "slice" => {
                let items = self.arguments(depth, start)?;
                if items.len() == 3 {
                    return Ok(Arg::Slice(items));
                }
                let found = format!("{}", items.len());
                Err(self.cursor.error_found(start, "a slice of 3 items", found))
            }
            "range" => {
                let mut items: ThinVec<Arg> =
                    self.arguments(depth, start)?.iter().cloned().collect();
                if items.len() == 2 {
                    items.push(Arg::Int(1));
                }
                let integers = items
                    .iter()
                    .all(|item| matches!(item, Arg::Int(_) | Arg::BigInt(_)));
                if items.len() == 3 && integers {
                    let items = Seq::new(items).map_err(|e| self.refused(start, &e))?;
                    return Ok(Arg::Range(items));
                }
                let found = "something else".to_owned();
                let expected = "a range of 2 or 3 integers";
                Err(self.cursor.error_found(start, expected, found))
            }
            "device" => self.device(start),
            _ if self.dialect == Dialect::Repr => {
                let text = &self.cursor.text()[start..];
                let open = self.cursor.at() - start;
                let rest = open + self.cursor.rest().len();
                let len = balanced_len(&text[open..rest])
                    .ok_or_else(|| self.cursor.error("brackets that close"))?;
                self.cursor.bump(len);
                let text = &text[..open + len];
                let value = self.names.shown(self.graph, self.cursor, start, text)?;
                Ok(Arg::Opaque(value))
            }
            _ => Err(self.cursor.error_at(start, "a value")),
        }
    }

    /// Items in parentheses, of which there may be one without a comma.
    fn arguments(&mut self, depth: u16, start: usize) -> Result<Seq, ParseError> {
        self.check_depth(depth, start)?;
        self.cursor.expect("(")?;
        let mut items = ThinVec::new();
        loop {
            self.cursor.skip_spaces();
            items.push(self.value(depth + 1)?);
            self.cursor.skip_spaces();
            if !self.cursor.eat(",") {
                self.cursor.expect(")")?;
                break;
            }
        }
        Seq::new(items).map_err(|e| self.refused(start, &e))
    }

    fn device(&mut self, start: usize) -> Result<Arg, ParseError> {
        self.cursor.expect("(type=")?;
        let kind = self.string()?;
        let Ok(kind) = kind.parse::<DeviceKind>() else {
            let found = quoted(&kind);
            return Err(self.cursor.error_found(start, "a kind of device", found));
        };
        let index = if self.cursor.eat(", index=") {
            let at = self.cursor.at();
            let index = self.cursor.number("the number of a device")?;
            let index = u16::try_from(index);
            Some(index.map_err(|_| self.cursor.error_at(at, "the number of a device"))?)
        } else {
            None
        };
        self.cursor.expect(")")?;
        Ok(Arg::Device(Device { kind, index }))
    }

    /// A number: integer, floating-point or imaginary.
    fn number(&mut self) -> Result<Arg, ParseError> {
        let start = self.cursor.at();
        let rest = self.cursor.rest();
        let len = number_len(rest);
        let text = &rest[..len];
        self.cursor.bump(len);
        number(text).ok_or_else(|| {
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            if digits > MAX_DECIMAL_DIGITS {
                let expected =
                    format!("an integer of at most {MAX_DECIMAL_DIGITS} digits, or hexadecimal");
                self.cursor
                    .error_found(start, expected, format!("{digits} digits"))
            } else {
                self.cursor.error_found(start, "a number", quoted(text))
            }
        })
    }

    /// `(1-2j)`, if such a number stands here.
    fn complex(&mut self) -> Option<Arg> {
        let rest = self.cursor.rest();
        // No part is longer than this: `-1.7976931348623157e+308`.
        let end = rest.bytes().take(64).position(|b| b == b')')?;
        let value = complex(&rest[..=end])?;
        self.cursor.bump(end + 1);
        Some(value)
    }

    /// A node's name after the `%`: a word, or a string.
    pub(super) fn node_name(&mut self) -> Result<std::borrow::Cow<'t, str>, ParseError> {
        if let Some('\'' | '"') = self.cursor.peek() {
            return Ok(std::borrow::Cow::Owned(self.string()?));
        }
        let name = self.cursor.take_while(is_name_char);
        if name.is_empty() {
            return Err(self.cursor.error("a name"));
        }
        Ok(std::borrow::Cow::Borrowed(name))
    }

    /// A declared host value: `@3`.
    pub(super) fn external(&mut self) -> Result<crate::entity::ExternalId, ParseError> {
        let start = self.cursor.at();
        self.cursor.expect("@")?;
        let number = self.cursor.number("the number of an `extern`")?;
        self.names.external(number).ok_or_else(|| {
            self.cursor
                .error_at(start, "the number of a declared `extern`")
        })
    }

    /// A string between quotes.
    pub(super) fn string(&mut self) -> Result<String, ParseError> {
        let mut out = String::new();
        self.quoted(|c, _| {
            out.push(c);
            true
        })?;
        Ok(out)
    }

    /// A byte string after its `b`: ASCII, and `\x` escapes for all else.
    fn bytes(&mut self) -> Result<Arg, ParseError> {
        let mut out = Vec::new();
        self.quoted(|c, escape| match u8::try_from(u32::from(c)) {
            Ok(byte) if byte.is_ascii() || escape == Some('x') => {
                out.push(byte);
                escape != Some('u')
            }
            Ok(_) | Err(_) => false,
        })?;
        Ok(Arg::Bytes(Box::new(out)))
    }

    /// Calls `push` for each character, with the letter of the escape sequence it was written as,
    /// if it was (`u` also for `U`). `push` returns whether it can stand there.
    fn quoted(
        &mut self,
        mut push: impl FnMut(char, Option<char>) -> bool,
    ) -> Result<(), ParseError> {
        let quote = match self.cursor.peek() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return Err(self.cursor.error("a string between quotes")),
        };
        self.cursor.bump(1);
        loop {
            let at = self.cursor.at();
            let (c, escape) = match self.cursor.peek() {
                None | Some('\n') => {
                    let expected = format!("`{quote}` at the end of a string");
                    return Err(self.cursor.error_at(at, expected));
                }
                Some(c) => {
                    self.cursor.bump(c.len_utf8());
                    match c {
                        c if c == quote => return Ok(()),
                        '\\' => self.escape(at)?,
                        c => (c, None),
                    }
                }
            };
            if !push(c, escape) {
                return Err(self.cursor.error_at(at, "a byte"));
            }
        }
    }

    /// The rest of an escape sequence after the backslash.
    fn escape(&mut self, start: usize) -> Result<(char, Option<char>), ParseError> {
        let error = |cursor: &Cursor<'_>| cursor.error_at(start, "an escape sequence of Python");
        let Some(letter) = self.cursor.peek() else {
            return Err(error(self.cursor));
        };
        self.cursor.bump(letter.len_utf8());
        let (digits, kind) = match letter {
            '\\' | '\'' | '"' => return Ok((letter, Some(letter))),
            'n' => return Ok(('\n', Some(letter))),
            'r' => return Ok(('\r', Some(letter))),
            't' => return Ok(('\t', Some(letter))),
            'x' => (2, 'x'),
            'u' => (4, 'u'),
            'U' => (8, 'u'),
            _ => return Err(error(self.cursor)),
        };
        let value = self
            .cursor
            .rest()
            .get(..digits)
            .filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|code| u32::from_str_radix(code, 16).ok())
            .and_then(char::from_u32)
            .ok_or_else(|| error(self.cursor))?;
        self.cursor.bump(digits);
        Ok((value, Some(kind)))
    }
}

/// Characters of names that need no quotes.
pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The value that a word stands for wherever it appears.
pub(super) fn literal_word(word: &str) -> Option<Arg> {
    Some(match word {
        "None" => Arg::None,
        "True" => Arg::Bool(true),
        "False" => Arg::Bool(false),
        "Ellipsis" => Arg::Ellipsis,
        "nan" => Arg::Float(f64::NAN),
        "inf" => Arg::Float(f64::INFINITY),
        "nanj" | "infj" => return imaginary(word),
        _ => {
            word.strip_prefix("torch.")?;
            if let Ok(dtype) = word.parse::<DType>() {
                Arg::DType(dtype)
            } else if let Ok(layout) = word.parse::<Layout>() {
                Arg::Layout(layout)
            } else {
                Arg::MemoryFormat(word.parse::<MemoryFormat>().ok()?)
            }
        }
    })
}

/// Number of bytes at the beginning of `text` that may belong to a number.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut len = 0;
    while let Some(&b) = bytes.get(len) {
        let after_exponent = len > 0 && matches!(bytes[len - 1], b'e' | b'E');
        let sign = matches!(b, b'-' | b'+') && (len == 0 || after_exponent);
        if !(b.is_ascii_alphanumeric() || b == b'.' || b == b'_' || sign) {
            break;
        }
        len += 1;
    }
    len
}

/// A number as `repr` writes it.
pub(super) fn number(text: &str) -> Option<Arg> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let sign = if digits.len() < text.len() {
        Sign::Minus
    } else {
        Sign::Plus
    };
    if let Some(hex) = digits.strip_prefix("0x") {
        let hex: Vec<u8> = hex
            .chars()
            .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect::<Option<_>>()?;
        let value = BigInt::from_radix_be(sign, &hex, 16).filter(|_| !hex.is_empty())?;
        return Some(integer(value));
    }
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        if let Ok(small) = text.parse() {
            return Some(Arg::Int(small));
        }
        if digits.len() > MAX_DECIMAL_DIGITS {
            return None;
        }
        return Some(integer(text.parse().ok()?));
    }
    if text.ends_with('j') {
        return imaginary(text);
    }
    real(text).map(Arg::Float)
}

fn integer(value: BigInt) -> Arg {
    match i64::try_from(&value) {
        Ok(small) => Arg::Int(small),
        Err(_) => Arg::BigInt(Box::new(value)),
    }
}

/// A floating-point number; unlike Rust's own reading, `infinity` is none.
fn real(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits == "nan" {
        return Some(f64::NAN);
    }
    if digits == "inf" || digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return text.parse().ok();
    }
    None
}

fn imaginary(text: &str) -> Option<Arg> {
    let imag = real(text.strip_suffix('j')?)?;
    Some(Arg::Complex(Box::new((0.0, imag))))
}

/// `(1-2j)`.
pub(super) fn complex(text: &str) -> Option<Arg> {
    let inner = text.strip_prefix('(')?.strip_suffix("j)")?;
    let bytes = inner.as_bytes();
    let split = (1..bytes.len())
        .rev()
        .find(|&i| matches!(bytes[i], b'+' | b'-') && !matches!(bytes[i - 1], b'e' | b'E'))?;
    let (re, im) = (real(&inner[..split])?, real(&inner[split..])?);
    Some(Arg::Complex(Box::new((re, im))))
}

/// The length of `(...)` at the beginning of `text`, brackets inside strings left aside.
fn balanced_len(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, b) in text.bytes().enumerate() {
        match (quote, b) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(open), b) if b == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(b),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            (None, b'\n') => return None,
            (None, _) => {}
        }
    }
    None
}

/// The length of `<...>` at the beginning of `text`.
fn angle_len(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'<' => depth += 1,
            b'>' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b'\n' => return None,
            _ => {}
        }
    }
    None
}
