//! Errors of reading a graph from text.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// Characters shown before and after the place of an error; lines may be as long as the text.
const CONTEXT: usize = 60;

/// Characters shown of the text found.
const FOUND: usize = 40;

/// The reason why a text is no graph: the place, the text expected and the text found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", self.render())]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// The text expected there.
    pub expected: Cow<'static, str>,
    /// The text found there, shortened.
    pub found: String,
    /// The line, shortened around the place; control characters are replaced.
    pub excerpt: String,
    /// The position of the place in `excerpt`, in characters.
    pub caret: usize,
}

impl ParseError {
    /// An error at the byte `at` of `text`.
    pub(super) fn new(
        text: &str,
        at: usize,
        expected: impl Into<Cow<'static, str>>,
        found: Option<String>,
    ) -> Self {
        let at = floor_char_boundary(text, at);
        let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        let end = text[at..].find('\n').map_or(text.len(), |i| at + i);
        let before = text[start..at].chars().count();
        let shown_before: String = {
            let tail: Vec<char> = text[start..at].chars().rev().take(CONTEXT).collect();
            tail.into_iter().rev().collect()
        };
        let cut = before > CONTEXT;
        let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let mut excerpt = String::new();
        if cut {
            excerpt.push('…');
        }
        excerpt.extend(shown_before.chars().map(visible));
        let caret = excerpt.chars().count();
        excerpt.extend(text[at..end].chars().take(CONTEXT).map(visible));
        if text[at..end].chars().nth(CONTEXT).is_some() {
            excerpt.push('…');
        }
        Self {
            line: text[..at].bytes().filter(|&b| b == b'\n').count() + 1,
            column: before + 1,
            expected: expected.into(),
            found: found.unwrap_or_else(|| found_at(text, at, end)),
            excerpt,
            caret,
        }
    }

    fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a `String` cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let Self {
            line,
            column,
            expected,
            found,
            excerpt,
            caret,
        } = self;
        write!(
            out,
            "line {line}, column {column}: expected {expected}, found {found}\n  | {excerpt}\n  | {:caret$}^",
            ""
        )
    }
}

/// The text at `at`: a word, or one character.
fn found_at(text: &str, at: usize, end_of_line: usize) -> String {
    if at >= text.len() {
        return "the end of the text".into();
    }
    if at == end_of_line {
        return "the end of the line".into();
    }
    let rest = &text[at..end_of_line];
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let first = rest.chars().next().unwrap_or(' ');
    let len = if is_word(first) || first == '%' {
        let tail = &rest[first.len_utf8()..];
        first.len_utf8() + tail.find(|c| !is_word(c)).unwrap_or(tail.len())
    } else {
        first.len_utf8()
    };
    quoted(&rest[..len])
}

/// `text` between backquotes, shortened, without control characters.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("`");
    for c in text.chars().take(FOUND) {
        out.extend(c.escape_debug().filter(|_| c.is_control()));
        if !c.is_control() {
            out.push(c);
        }
    }
    if text.chars().nth(FOUND).is_some() {
        out.push('…');
    }
    out.push('`');
    out
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
