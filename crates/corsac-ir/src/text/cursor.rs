//! A place in a text that is being read.

use std::borrow::Cow;

use super::parse_error::ParseError;

/// A place in a text, and the end of the part to be read.
#[derive(Clone)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    end: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self::within(text, 0, text.len())
    }

    /// A cursor over the bytes `at..end` of `text`, which are whole characters.
    pub(super) fn within(text: &'t str, at: usize, end: usize) -> Self {
        Self { text, at, end }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn move_to(&mut self, at: usize) {
        self.at = at;
    }

    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.at..self.end]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    pub(super) fn bump(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Steps over `token` if it stands here.
    pub(super) fn eat(&mut self, token: &str) -> bool {
        let here = self.rest().starts_with(token);
        if here {
            self.at += token.len();
        }
        here
    }

    /// Steps over `token`, which must stand here.
    pub(super) fn expect(&mut self, token: &'static str) -> Result<(), ParseError> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(self.error(format!("`{token}`")))
        }
    }

    /// Steps over spaces and tabs.
    pub(super) fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    /// Steps over the characters that `wanted` holds for.
    pub(super) fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let len = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// A decimal number of at most `u32`.
    pub(super) fn number(&mut self, what: &'static str) -> Result<u32, ParseError> {
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| self.error_at(start, what))
    }

    /// The error that `expected` does not stand here.
    pub(super) fn error(&self, expected: impl Into<Cow<'static, str>>) -> ParseError {
        self.error_at(self.at, expected)
    }

    pub(super) fn error_at(&self, at: usize, expected: impl Into<Cow<'static, str>>) -> ParseError {
        ParseError::new(self.text, at, expected, None)
    }

    pub(super) fn error_found(
        &self,
        at: usize,
        expected: impl Into<Cow<'static, str>>,
        found: String,
    ) -> ParseError {
        ParseError::new(self.text, at, expected, Some(found))
    }
}

/// The lines of a text that are not empty: their first and last byte, without the spaces in front
/// and without the line break.
pub(super) fn lines(text: &str, from: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut next = from;
    std::iter::from_fn(move || {
        while next < text.len() {
            let end = text[next..].find('\n').map_or(text.len(), |i| next + i);
            let line = &text[next..end];
            let start = next + (line.len() - line.trim_start_matches([' ', '\t', '\r']).len());
            next = end + 1;
            if start < end {
                return Some((start, end));
            }
        }
        None
    })
}
