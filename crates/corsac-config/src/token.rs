//! Tokens of the text notation.

use num_bigint::BigInt;

use crate::error::{ConfigError, Position};

/// A text, and its place in a file.
#[derive(Clone, Debug)]
pub(crate) struct Source<'t> {
    pub(crate) text: &'t str,
    /// The place of its first character in the file. Its later lines are whole lines of the file.
    pub(crate) start: Position,
    /// The byte where each line begins.
    lines: Vec<usize>,
}

impl<'t> Source<'t> {
    /// A text whose first character stands at `start` of its file.
    pub(crate) fn new(text: &'t str, start: Position) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            start,
            lines: std::iter::once(0).chain(breaks).collect(),
        }
    }

    /// A text that is a file.
    pub(crate) fn file(text: &'t str) -> Self {
        Self::new(text, Position { line: 1, column: 1 })
    }

    /// The place of the byte `at` in the file.
    pub(crate) fn position(&self, at: usize) -> Position {
        let at = at.min(self.text.len());
        let line = self.lines.partition_point(|&begin| begin <= at) - 1;
        let column = self.text[self.lines[line]..at].chars().count();
        let before = if line == 0 { self.start.column } else { 1 };
        Position {
            line: self.start.line + line,
            column: before + column,
        }
    }
}

/// A token, and the bytes where it begins and ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The kind of a token, with its content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A name with its attributes: `x`, `torch.relu`, `layer1.0.conv`, `*args`.
    Path(String),
    /// An integer.
    Int(BigInt),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Str(String),
    /// A byte string.
    Bytes(Vec<u8>),
    /// An operator or bracket.
    Symbol(&'static str),
    /// The end of a line that is not inside of brackets.
    Newline,
    /// The end of the text.
    End,
}

impl Kind {
    /// Its description in errors.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Path(path) => format!("`{path}`"),
            Self::Int(value) => format!("`{value}`"),
            Self::Float(value) => format!("`{value}`"),
            Self::Str(_) | Self::Bytes(_) => "a string".to_owned(),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::Newline => "the end of the line".to_owned(),
            Self::End => "the end of the text".to_owned(),
        }
    }
}

/// Operators and brackets, longer ones first.
const SYMBOLS: &[&str] = &[
    "...", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "(", ")", "[", "]", "{", "}", ",", ":",
    ".", "=", "+", "-", "*", "/", "%", "@", "<", ">", "&", "|", "^", "~",
];

/// Decimal digits that Python reads at most.
const MAX_DIGITS: usize = 4300;

/// The tokens from the byte `start` on, the last of which is [`Kind::End`].
pub(crate) fn tokens(source: &Source<'_>, start: usize) -> Result<Vec<Token>, ConfigError> {
    let mut lexer = Lexer {
        source,
        text: source.text,
        at: start,
        open: 0,
    };
    let mut found = Vec::new();
    loop {
        let token = lexer.next()?;
        let end = token.kind == Kind::End;
        let blank = token.kind == Kind::Newline
            && found.last().is_none_or(|t: &Token| t.kind == Kind::Newline);
        if !blank {
            found.push(token);
        }
        if end {
            return Ok(found);
        }
    }
}

struct Lexer<'t> {
    source: &'t Source<'t>,
    text: &'t str,
    at: usize,
    /// Number of open brackets: inside of them, lines continue.
    open: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn error(&self, at: usize, message: impl Into<std::borrow::Cow<'static, str>>) -> ConfigError {
        ConfigError::new(self.source.position(at), message)
    }

    fn next(&mut self) -> Result<Token, ConfigError> {
        self.skip();
        let start = self.at;
        let kind = self.kind()?;
        Ok(Token {
            kind,
            start,
            end: self.at,
        })
    }

    /// Steps over spaces and comments, and over line breaks in brackets.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            match rest.as_bytes().first() {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\n') if self.open > 0 => self.at += 1,
                Some(b'#') => self.at += rest.find('\n').unwrap_or(rest.len()),
                _ => return,
            }
        }
    }

    fn kind(&mut self) -> Result<Kind, ConfigError> {
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(Kind::End);
        };
        let second = self.rest()[first.len_utf8()..].chars().next();
        match first {
            '\n' => {
                self.at += 1;
                Ok(Kind::Newline)
            }
            '"' | '\'' => self.string().map(Kind::Str),
            'b' if matches!(second, Some('"' | '\'')) => {
                self.at += 1;
                let text = self.string()?;
                let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
                bytes
                    .map(Kind::Bytes)
                    .ok_or_else(|| self.error(start, "expected bytes, found a character above 255"))
            }
            c if c.is_alphabetic() || c == '_' => Ok(Kind::Path(self.path())),
            c if c.is_ascii_digit() => self.number(),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number(),
            _ => self.symbol(),
        }
    }

    fn symbol(&mut self) -> Result<Kind, ConfigError> {
        let Some(symbol) = SYMBOLS.iter().find(|s| self.rest().starts_with(**s)) else {
            let found = self.rest().chars().next().unwrap_or(' ');
            let found = found.escape_debug();
            return Err(self.error(self.at, format!("unexpected character `{found}`")));
        };
        self.at += symbol.len();
        match *symbol {
            "(" | "[" | "{" => self.open += 1,
            ")" | "]" | "}" => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        Ok(Kind::Symbol(symbol))
    }

    /// `torch.relu` or `layer1.0.conv`.
    fn path(&mut self) -> String {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let rest = self.rest();
        let mut len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        while let Some(tail) = rest[len..].strip_prefix('.') {
            let part = tail.find(|c| !is_name(c)).unwrap_or(tail.len());
            if part == 0 {
                break;
            }
            len += 1 + part;
        }
        let path = rest[..len].to_owned();
        self.at += len;
        path
    }

    fn number(&mut self) -> Result<Kind, ConfigError> {
        let start = self.at;
        let bytes = self.rest().as_bytes();
        let mut len = 0;
        let mut float = false;
        while let Some(&b) = bytes.get(len) {
            match b {
                b'0'..=b'9' | b'_' => {}
                b'.' => float = true,
                b'e' | b'E' => {
                    float = true;
                    if matches!(bytes.get(len + 1), Some(b'+' | b'-')) {
                        len += 1;
                    }
                }
                _ => break,
            }
            len += 1;
        }
        let digits = self.rest()[..len].replace('_', "");
        self.at += len;
        if digits.len() > MAX_DIGITS {
            return Err(self.error(start, "a number of more than 4300 digits"));
        }
        let value = if float {
            digits.parse().ok().map(Kind::Float)
        } else {
            digits.parse().ok().map(Kind::Int)
        };
        let next_is_name = self.rest().starts_with(|c: char| c.is_alphanumeric());
        value
            .filter(|_| !next_is_name)
            .ok_or_else(|| self.error(start, "expected a number"))
    }

    fn string(&mut self) -> Result<String, ConfigError> {
        let start = self.at;
        let text = self.text;
        let mut chars = text[start..].char_indices();
        let quote = chars.next().map(|(_, c)| c);
        let mut value = String::new();
        while let Some((offset, c)) = chars.next() {
            match c {
                _ if Some(c) == quote => {
                    self.at = start + offset + 1;
                    return Ok(value);
                }
                '\n' => break,
                '\\' => {
                    let Some(c) = escape(&mut chars) else {
                        return Err(self.error(start + offset, "an escape that is not known"));
                    };
                    value.push(c);
                }
                _ => value.push(c),
            }
        }
        Err(self.error(start, "expected a string that ends on its line"))
    }
}

/// The character of an escape sequence, from behind the backslash.
fn escape(chars: &mut std::str::CharIndices<'_>) -> Option<char> {
    let digits = match chars.next()?.1 {
        'n' => return Some('\n'),
        't' => return Some('\t'),
        'r' => return Some('\r'),
        '\\' => return Some('\\'),
        '\'' => return Some('\''),
        '"' => return Some('"'),
        '0' => return Some('\0'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let mut code = 0;
    for _ in 0..digits {
        code = code * 16 + chars.next()?.1.to_digit(16)?;
    }
    char::from_u32(code)
}
