//! Reads the lossless form. `docs/text-form.md` has the grammar.

use std::borrow::Cow;

use rustc_hash::FxHashSet;
use thin_vec::ThinVec;

use super::allow::Allowed;
use super::build::{Builder, NodeLine, UsersClaim};
use super::cursor::{Cursor, lines};
use super::lossless::is_path_char;
use super::names::Names;
use super::parse_error::{ParseError, quoted};
use super::value::{Dialect, Values, is_name_char};
use crate::arg::Arg;
use crate::entity::{NodeId, ScopeId, Symbol};
use crate::graph::{Graph, Origin, Scope, Source};
use crate::op::{Op, Target};

/// Reads the lines after the header, which ends at `from`.
pub(super) fn read(text: &str, from: usize, allowed: Allowed<'_>) -> Result<Graph, ParseError> {
    let mut reader = Reader {
        cursor: Cursor::new(text),
        graph: Graph::new(),
        names: Names::for_text(text, allowed),
    };
    // Nodes may be used in lines before their own: first the names, then the rest.
    for (start, end) in lines(text, from) {
        reader.cursor = Cursor::within(text, start, end);
        if reader.cursor.peek() == Some('%') {
            let name = reader.name()?;
            reader.names.add_node(&reader.cursor, start, &name)?;
        }
    }
    reader.graph = reader.names.new_graph();
    let mut builder = Builder::default();
    for (start, end) in lines(text, from) {
        reader.cursor = Cursor::within(text, start, end);
        match reader.cursor.peek() {
            Some('#') => continue,
            Some('%') => {
                let name = reader.name()?;
                let line = reader.node()?;
                reader.end_of_line()?;
                builder.add(&mut reader.graph, &reader.cursor, start, &name, line)?;
            }
            _ if reader.cursor.eat("extern ") => reader.external()?,
            _ if reader.cursor.eat("scope ") => reader.scope()?,
            _ => return Err(reader.cursor.error("`%name`, `extern`, `scope` or `#`")),
        }
    }
    reader.cursor = Cursor::new(text);
    builder.finish(&mut reader.graph, &reader.cursor)?;
    Ok(reader.graph)
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    graph: Graph,
    names: Names<'t>,
}

impl<'t> Reader<'t> {
    fn values(&mut self) -> Values<'_, 't> {
        Values {
            cursor: &mut self.cursor,
            graph: &mut self.graph,
            names: &mut self.names,
            dialect: Dialect::Lossless,
        }
    }

    fn name(&mut self) -> Result<Cow<'t, str>, ParseError> {
        self.cursor.expect("%")?;
        self.values().node_name()
    }

    fn node_mention(&mut self) -> Result<NodeId, ParseError> {
        let start = self.cursor.at();
        let name = self.name()?;
        let expected = "the name of a node";
        let found = self.names.node(&name);
        found.ok_or_else(|| self.cursor.error_at(start, expected))
    }

    /// `@0 = "torch.Tensor"`
    fn external(&mut self) -> Result<(), ParseError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at();
        self.cursor.expect("@")?;
        let number = self.cursor.number("a number")?;
        self.cursor.skip_spaces();
        let name = if self.cursor.eat("=") {
            self.cursor.skip_spaces();
            let at = self.cursor.at();
            let name = self.values().string()?;
            self.names.check_allowed(&self.cursor, at, &name)?;
            Some(name)
        } else {
            None
        };
        let value = self.graph.add_external(name.as_deref());
        if !self.names.declare_external(number, value) {
            return Err(self.cursor.error_at(start, "a new number"));
        }
        self.end_of_line()
    }

    /// `$1 = "layer1.0" class @4 call 0 in $0`
    fn scope(&mut self) -> Result<(), ParseError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at();
        self.cursor.expect("$")?;
        let number = self.cursor.number("a number")?;
        self.token("=")?;
        self.cursor.skip_spaces();
        let path = self.values().string()?;
        self.token("class")?;
        self.cursor.skip_spaces();
        let class = self.values().external()?;
        self.token("call")?;
        self.cursor.skip_spaces();
        let call = self.cursor.number("how many calls came before")?;
        self.cursor.skip_spaces();
        let parent = if self.cursor.eat("in") {
            Some(self.scope_mention()?)
        } else {
            None
        };
        let path = self.graph.intern(&path);
        let scope = self.graph.add_scope(Scope {
            parent,
            path,
            class,
            call,
        });
        if !self.names.declare_scope(number, scope) {
            return Err(self.cursor.error_at(start, "a new number"));
        }
        self.end_of_line()
    }

    fn scope_mention(&mut self) -> Result<ScopeId, ParseError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at();
        self.cursor.expect("$")?;
        let number = self.cursor.number("the number of a `scope`")?;
        self.names.scope(number).ok_or_else(|| {
            self.cursor
                .error_at(start, "the number of a `scope` declared before")
        })
    }

    /// The rest of a node's line after the name.
    fn node(&mut self) -> Result<NodeLine, ParseError> {
        let (mut ty, mut users) = (None, None);
        self.cursor.skip_spaces();
        if self.cursor.eat(":") {
            self.cursor.skip_spaces();
            if self.cursor.peek() == Some('@') {
                ty = Some(self.values().external()?);
                self.cursor.skip_spaces();
            }
            users = self.users()?;
        }
        self.token("=")?;
        self.cursor.skip_spaces();
        let op = operation(&mut self.cursor)?;
        self.cursor.expect("[target=")?;
        let target = self.target(op)?;
        self.cursor.expect("]")?;
        let (mut args, mut kwargs) = (ThinVec::new(), ThinVec::new());
        if self.cursor.eat("(args = ") {
            args = self.values().listed("(", ")", 0)?;
            self.cursor.expect(", kwargs = {")?;
            if !self.cursor.eat("}") {
                kwargs = self.keyword_arguments()?;
            }
            self.cursor.expect(")")?;
        }
        Ok(NodeLine {
            op,
            target,
            args,
            kwargs,
            ty,
            origin: self.origin()?,
            users,
        })
    }

    fn keyword_arguments(&mut self) -> Result<ThinVec<(Symbol, Arg)>, ParseError> {
        let mut kwargs = ThinVec::new();
        let mut seen = FxHashSet::default();
        loop {
            let start = self.cursor.at();
            let key = match self.cursor.peek() {
                Some('\'' | '"') => self.values().string()?,
                _ => self.cursor.take_while(is_name_char).to_owned(),
            };
            if self.cursor.at() == start {
                return Err(self.cursor.error("a keyword"));
            }
            self.cursor.expect(": ")?;
            let key = self.graph.intern(&key);
            if !seen.insert(key) {
                return Err(self.cursor.error_at(start, "a new keyword"));
            }
            kwargs.push((key, self.values().value(0)?));
            if self.cursor.eat("}") {
                return Ok(kwargs);
            }
            self.cursor.expect(", ")?;
        }
    }

    /// `[num_users=2]` or `[users=(%b, %a)]`, both optional.
    fn users(&mut self) -> Result<Option<UsersClaim>, ParseError> {
        if self.cursor.eat("[num_users=") {
            let at = self.cursor.at();
            let count = self.cursor.number("a number of users")?;
            self.cursor.expect("]")?;
            return Ok(Some(UsersClaim::Count(count, at)));
        }
        if !self.cursor.eat("[users=(") {
            return Ok(None);
        }
        let at = self.cursor.at();
        let mut users = Vec::new();
        loop {
            users.push(self.node_mention()?);
            if self.cursor.eat(")]") {
                return Ok(Some(UsersClaim::Order(users, at)));
            }
            self.cursor.expect(", ")?;
        }
    }

    fn target(&mut self, op: Op) -> Result<Target, ParseError> {
        let start = self.cursor.at();
        let name = match self.cursor.peek() {
            Some('\'' | '"') => Cow::Owned(self.values().string()?),
            _ => Cow::Borrowed(self.cursor.take_while(|c| is_path_char(c) || c == '*')),
        };
        if self.cursor.at() == start {
            return Err(self.cursor.error("a target"));
        }
        if op != Op::CallFunction {
            return Ok(Target::Name(self.graph.intern(&name)));
        }
        self.names.check_allowed(&self.cursor, start, &name)?;
        let external = if self.cursor.peek() == Some('@') {
            Some(self.values().external()?)
        } else {
            None
        };
        let base = if self.cursor.eat(" as ") {
            Some(self.values().string()?)
        } else {
            None
        };
        let base = base.as_deref();
        let function = self.names.function(&mut self.graph, &name, base, external);
        Ok(Target::Function(function))
    }

    /// `at "model.py":12 in "forward" scope $3`, all of it optional.
    fn origin(&mut self) -> Result<Origin, ParseError> {
        let mut origin = Origin::default();
        self.cursor.skip_spaces();
        if self.cursor.eat("at ") {
            self.cursor.skip_spaces();
            let source = if self.cursor.peek() == Some('@') {
                let code = self.values().external()?;
                self.cursor.expect(":")?;
                let at = self.cursor.at();
                let text = self.cursor.take_while(|c| c == '-' || c.is_ascii_digit());
                let offset = text
                    .parse()
                    .map_err(|_| self.cursor.error_at(at, "a position"))?;
                Source::Host { code, offset }
            } else {
                let file = self.values().string()?;
                self.cursor.expect(":")?;
                let line = self.cursor.number("the number of a line")?;
                self.token("in")?;
                self.cursor.skip_spaces();
                let function = self.values().string()?;
                Source::Line {
                    file: self.graph.intern(&file),
                    line,
                    function: self.graph.intern(&function),
                }
            };
            origin.source = Some(self.graph.add_source(source));
            self.cursor.skip_spaces();
        }
        if self.cursor.eat("scope ") {
            origin.scope = Some(self.scope_mention()?);
        }
        Ok(origin)
    }

    /// Spaces, and `token`.
    fn token(&mut self, token: &'static str) -> Result<(), ParseError> {
        self.cursor.skip_spaces();
        self.cursor.expect(token)
    }

    fn end_of_line(&mut self) -> Result<(), ParseError> {
        self.cursor.skip_spaces();
        self.cursor.eat("\r");
        if self.cursor.is_at_end() {
            Ok(())
        } else {
            Err(self.cursor.error("the end of the line"))
        }
    }
}

/// An opcode's name.
pub(super) fn operation(cursor: &mut Cursor<'_>) -> Result<Op, ParseError> {
    let start = cursor.at();
    let word = cursor.take_while(is_name_char);
    word.parse().map_err(|()| {
        let names: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
        let expected = format!("one of {}", names.join(", "));
        if word.is_empty() {
            cursor.error_at(start, expected)
        } else {
            cursor.error_found(start, expected, quoted(word))
        }
    })
}
