//! Expressions of the text notation, which are Python's.

use num_bigint::BigInt;

use crate::error::{ConfigError, Position};
use crate::token::{Kind, Source, Token};

/// Maximum nesting depth of expressions; the parser and the code that walks its result recurse.
const MAX_DEPTH: usize = 200;

/// An expression, and the byte where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) at: usize,
    pub(crate) kind: ExprKind,
    /// Its nesting depth.
    height: usize,
}

/// The kind of an expression, with its parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprKind {
    /// A name with attributes.
    Path(String),
    Int(BigInt),
    Float(f64),
    Str(String),
    Bytes(Vec<u8>),
    Ellipsis,
    /// The function of `operator` for a prefix, and its operand.
    Prefix(&'static str, Box<Expr>),
    /// The function of `operator` for an infix, and its operands.
    Infix(&'static str, Box<Expr>, Box<Expr>),
    Call(Box<Call>),
    /// A value and a path of attributes.
    Attribute(Box<Expr>, String),
    /// A value and its index.
    Index(Box<Expr>, Box<Expr>),
    /// `start:stop:step`
    Slice(Box<[Option<Expr>; 3]>),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
}

/// Positional and keyword arguments.
pub(crate) type Arguments = (Vec<Expr>, Vec<(String, Expr)>);

impl ExprKind {
    /// Nesting depth of the deepest part.
    fn height(&self) -> usize {
        let of = |items: &[Expr]| items.iter().map(|item| item.height).max().unwrap_or(0);
        match self {
            Self::Path(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::Str(_)
            | Self::Bytes(_)
            | Self::Ellipsis => 0,
            Self::Prefix(_, operand) | Self::Attribute(operand, _) => operand.height,
            Self::Infix(_, left, right) | Self::Index(left, right) => left.height.max(right.height),
            Self::Call(call) => {
                let kwargs = call.kwargs.iter().map(|(_, value)| value.height);
                call.callee
                    .height
                    .max(of(&call.args))
                    .max(kwargs.max().unwrap_or(0))
            }
            Self::Slice(parts) => parts
                .iter()
                .flatten()
                .map(|part| part.height)
                .max()
                .unwrap_or(0),
            Self::Tuple(items) | Self::List(items) => of(items),
            Self::Dict(entries) => {
                let heights = entries
                    .iter()
                    .map(|(key, value)| key.height.max(value.height));
                heights.max().unwrap_or(0)
            }
        }
    }
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) callee: Expr,
    pub(crate) args: Vec<Expr>,
    pub(crate) kwargs: Vec<(String, Expr)>,
}

/// An infix operator: its function, and the binding powers of its left and right side. Comparisons
/// do not chain.
fn infix(symbol: &str) -> Option<(&'static str, u8, u8)> {
    Some(match symbol {
        "==" => ("eq", 1, 2),
        "!=" => ("ne", 1, 2),
        "<" => ("lt", 1, 2),
        ">" => ("gt", 1, 2),
        "<=" => ("le", 1, 2),
        ">=" => ("ge", 1, 2),
        "|" => ("or_", 3, 4),
        "^" => ("xor", 5, 6),
        "&" => ("and_", 7, 8),
        "<<" => ("lshift", 9, 10),
        ">>" => ("rshift", 9, 10),
        "+" => ("add", 11, 12),
        "-" => ("sub", 11, 12),
        "*" => ("mul", 13, 14),
        "/" => ("truediv", 13, 14),
        "//" => ("floordiv", 13, 14),
        "%" => ("mod", 13, 14),
        "@" => ("matmul", 13, 14),
        "**" => ("pow", 18, 17),
        _ => return None,
    })
}

/// Binding power of a prefix: more than a product, less than a power.
const PREFIX_POWER: u8 = 15;

/// Reads tokens one after the other.
pub(crate) struct Parser<'t> {
    source: &'t Source<'t>,
    tokens: &'t [Token],
    next: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    /// A parser of `tokens`, which belong to `source` and end in [`Kind::End`].
    pub(crate) fn new(source: &'t Source<'t>, tokens: &'t [Token]) -> Self {
        Self {
            source,
            tokens,
            next: 0,
            depth: 0,
        }
    }

    pub(crate) fn peek(&self) -> &'t Token {
        // The last token is `End`, which nothing steps over.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    pub(crate) fn peek_symbol(&self) -> Option<&'static str> {
        match self.peek().kind {
            Kind::Symbol(symbol) => Some(symbol),
            _ => None,
        }
    }

    pub(crate) fn bump(&mut self) -> &'t Token {
        let token = self.peek();
        if token.kind != Kind::End {
            self.next += 1;
        }
        token
    }

    pub(crate) fn eat(&mut self, symbol: &str) -> bool {
        let here = self.peek_symbol() == Some(symbol);
        if here {
            self.next += 1;
        }
        here
    }

    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        let here = matches!(&self.peek().kind, Kind::Path(path) if path == word);
        if here {
            self.next += 1;
        }
        here
    }

    pub(crate) fn expect(&mut self, symbol: &'static str) -> Result<(), ConfigError> {
        if self.eat(symbol) {
            Ok(())
        } else {
            Err(self.expected(&format!("`{symbol}`")))
        }
    }

    /// A path, and the byte where it begins.
    pub(crate) fn path(&mut self, what: &str) -> Result<(String, usize), ConfigError> {
        match &self.peek().kind {
            Kind::Path(path) => Ok((path.clone(), self.bump().start)),
            _ => Err(self.expected(what)),
        }
    }

    pub(crate) fn end_of_line(&mut self) -> Result<(), ConfigError> {
        match self.peek().kind {
            Kind::Newline | Kind::End => {
                self.bump();
                Ok(())
            }
            _ => Err(self.expected("the end of the line")),
        }
    }

    pub(crate) fn position(&self, at: usize) -> Position {
        self.source.position(at)
    }

    pub(crate) fn expected(&self, what: &str) -> ConfigError {
        let token = self.peek();
        ConfigError::expected(self.position(token.start), what, token.kind.describe())
    }

    fn too_deep(&self, at: usize) -> ConfigError {
        let message = format!("expressions nest more than {MAX_DEPTH} deep");
        ConfigError::new(self.position(at), message)
    }

    fn made(&self, at: usize, kind: ExprKind) -> Result<Expr, ConfigError> {
        let height = kind.height() + 1;
        if height > MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        Ok(Expr { at, kind, height })
    }

    /// One expression, or several with commas between them as a tuple.
    pub(crate) fn expressions(&mut self) -> Result<Expr, ConfigError> {
        let first = self.expression()?;
        if self.peek_symbol() != Some(",") {
            return Ok(first);
        }
        let at = first.at;
        let mut items = vec![first];
        while self.eat(",") {
            if matches!(self.peek().kind, Kind::Newline | Kind::End) {
                break;
            }
            items.push(self.expression()?);
        }
        self.made(at, ExprKind::Tuple(items))
    }

    /// One expression.
    pub(crate) fn expression(&mut self) -> Result<Expr, ConfigError> {
        self.binding(0)
    }

    /// An expression of operators that bind at least as tightly as `power`.
    fn binding(&mut self, power: u8) -> Result<Expr, ConfigError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.too_deep(self.peek().start));
        }
        let mut left = self.prefixed()?;
        let mut compared = false;
        while let Some((function, before, after)) = self.peek_symbol().and_then(infix) {
            if before < power {
                break;
            }
            if before == 1 && std::mem::replace(&mut compared, true) {
                return Err(self.expected("brackets around one of two comparisons"));
            }
            self.bump();
            let right = self.binding(after)?;
            let at = left.at;
            let kind = ExprKind::Infix(function, Box::new(left), Box::new(right));
            left = self.made(at, kind)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn prefixed(&mut self) -> Result<Expr, ConfigError> {
        let at = self.peek().start;
        let function = match self.peek_symbol() {
            Some("-") => "neg",
            Some("+") => "pos",
            Some("~") => "invert",
            _ => return self.followed(),
        };
        self.bump();
        let operand = self.binding(PREFIX_POWER)?;
        // A minus in front of a number is part of the number.
        let kind = match (function, operand.kind) {
            ("neg", ExprKind::Int(value)) => ExprKind::Int(-value),
            ("neg", ExprKind::Float(value)) => ExprKind::Float(-value),
            (_, kind) => {
                let operand = self.made(operand.at, kind)?;
                ExprKind::Prefix(function, Box::new(operand))
            }
        };
        self.made(at, kind)
    }

    /// A value with calls, indices and attributes behind it.
    fn followed(&mut self) -> Result<Expr, ConfigError> {
        let mut value = self.atom()?;
        loop {
            let at = value.at;
            let kind = match self.peek_symbol() {
                Some("(") => {
                    self.bump();
                    let (args, kwargs) = self.arguments()?;
                    ExprKind::Call(Box::new(Call {
                        callee: value,
                        args,
                        kwargs,
                    }))
                }
                Some("[") => {
                    self.bump();
                    let index = self.index()?;
                    self.expect("]")?;
                    ExprKind::Index(Box::new(value), Box::new(index))
                }
                Some(".") => {
                    self.bump();
                    let (path, _) = self.path("the name of an attribute")?;
                    ExprKind::Attribute(Box::new(value), path)
                }
                _ => return Ok(value),
            };
            value = self.made(at, kind)?;
        }
    }

    /// The arguments between the brackets of a call; the opening one has been read.
    pub(crate) fn arguments(&mut self) -> Result<Arguments, ConfigError> {
        let (mut args, mut kwargs) = (Vec::new(), Vec::<(String, Expr)>::new());
        while !self.eat(")") {
            let here = self.peek();
            let keyword = match (&here.kind, self.tokens.get(self.next + 1)) {
                (Kind::Path(name), Some(after)) if after.kind == Kind::Symbol("=") => Some(name),
                _ => None,
            };
            if let Some(name) = keyword {
                if name.contains('.') || kwargs.iter().any(|(known, _)| known == name) {
                    return Err(self.expected("a new keyword"));
                }
                self.next += 2;
                kwargs.push((name.clone(), self.expression()?));
            } else if !kwargs.is_empty() {
                return Err(self.expected("`keyword=` behind other keywords"));
            } else {
                args.push(self.expression()?);
            }
            if !self.eat(",") && self.peek_symbol() != Some(")") {
                return Err(self.expected("`,` or `)`"));
            }
        }
        Ok((args, kwargs))
    }

    /// The index between its brackets.
    fn index(&mut self) -> Result<Expr, ConfigError> {
        let at = self.peek().start;
        let first = self.index_item()?;
        if self.peek_symbol() != Some(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat(",") && self.peek_symbol() != Some("]") {
            items.push(self.index_item()?);
        }
        self.made(at, ExprKind::Tuple(items))
    }

    fn index_item(&mut self) -> Result<Expr, ConfigError> {
        let at = self.peek().start;
        let mut parts = [None, None, None];
        let mut part = 0;
        loop {
            match self.peek_symbol() {
                Some(":") if part < 2 => {
                    self.bump();
                    part += 1;
                }
                Some("]" | ",") if part > 0 => break,
                _ if parts[part].is_none() => parts[part] = Some(self.expression()?),
                _ => break,
            }
        }
        match parts {
            [Some(value), None, None] if part == 0 => Ok(value),
            parts => self.made(at, ExprKind::Slice(Box::new(parts))),
        }
    }

    fn atom(&mut self) -> Result<Expr, ConfigError> {
        let token = self.peek();
        let kind = match &token.kind {
            Kind::Path(path) => ExprKind::Path(path.clone()),
            Kind::Int(value) => ExprKind::Int(value.clone()),
            Kind::Float(value) => ExprKind::Float(*value),
            Kind::Str(value) => ExprKind::Str(value.clone()),
            Kind::Bytes(value) => ExprKind::Bytes(value.clone()),
            Kind::Symbol("...") => ExprKind::Ellipsis,
            Kind::Symbol("(") => return self.parenthesised(),
            Kind::Symbol("[") => {
                self.bump();
                let items = self.items("]")?.0;
                return self.made(token.start, ExprKind::List(items));
            }
            Kind::Symbol("{") => return self.dict(),
            Kind::Symbol(_) | Kind::Newline | Kind::End => return Err(self.expected("a value")),
        };
        self.bump();
        self.made(token.start, kind)
    }

    /// `(a)` is a, `(a,)` and `()` are tuples.
    fn parenthesised(&mut self) -> Result<Expr, ConfigError> {
        let at = self.bump().start;
        let (mut items, comma) = self.items(")")?;
        if items.len() == 1 && !comma {
            return Ok(items.swap_remove(0));
        }
        self.made(at, ExprKind::Tuple(items))
    }

    /// Values with commas between them, and whether the last has one behind it.
    fn items(&mut self, close: &'static str) -> Result<(Vec<Expr>, bool), ConfigError> {
        let (mut items, mut comma) = (Vec::new(), false);
        while !self.eat(close) {
            items.push(self.expression()?);
            comma = self.eat(",");
            if !comma && self.peek_symbol() != Some(close) {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
        Ok((items, comma))
    }

    fn dict(&mut self) -> Result<Expr, ConfigError> {
        let at = self.bump().start;
        let mut entries = Vec::new();
        while !self.eat("}") {
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.eat(",") && self.peek_symbol() != Some("}") {
                return Err(self.expected("`,` or `}`"));
            }
        }
        self.made(at, ExprKind::Dict(entries))
    }
}
