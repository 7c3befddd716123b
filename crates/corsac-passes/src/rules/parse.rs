//! The text form of rules, one on a line.
//!
//! ```text
//! rules      = { [ rule ] [ "#" comment ] newline } ;  leading blanks continue the line before
//! rule       = [ name ":" ] pattern { ";" pattern } ( "=>" | "<=>" ) value { ";" value }
//!              [ "if" condition { "and" condition } ] ;  both sides of "<=>" are patterns and values
//! pattern    = "?" name [ ":" pattern ] | "_" | literal | call | "[" items "]" ;
//! call       = operator { "|" operator } "(" [ argument { "," argument } ] ")" ;
//!            | pattern "[" index { "," index } "]" ;   no blank before it
//! index      = pattern | "..." | [ pattern ] ":" [ pattern ] [ ":" [ pattern ] ] ;
//! argument   = [ keyword "=" ] pattern ;
//! value      = "?" name | literal | "$" function "(" values ")" | "[" values "]"
//!            | function "(" values ")" | "." method "(" values ")" | value "[" indices "]" ;
//! condition  = [ "not" ] predicate "(" operands ")" | value comparison value ;
//! ```

mod condition;
mod pattern;
mod result;

use thiserror::Error;

use super::rule::{Call, Condition, Pattern, Replacement, Rule, Value, Var};

/// Patterns and values nest no deeper than this.
const MAX_DEPTH: usize = 64;

/// A syntax error in the text of rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {message}")]
pub struct RuleError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Description of the error: the expected and the actual text.
    pub message: String,
}

/// Parses rules, one on a line. A line that begins with blanks continues the rule before it; `#`
/// begins a comment. Rules without a name are named after their line.
///
/// # Errors
/// [`RuleError`] with the place and the expected text.
pub fn parse(text: &str) -> Result<Vec<Rule>, RuleError> {
    let mut rules = Vec::new();
    let mut parser = Parser::new(text);
    loop {
        parser.skip_blank_lines();
        if parser.at_end() {
            return Ok(rules);
        }
        rules.push(parser.rule()?);
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    variables: Vec<String>,
    /// Variables that name modules.
    modules: Vec<Var>,
    calls: Vec<Call>,
    depth: usize,
    /// Whether the next pattern is part of an index.
    in_index: bool,
}

/// The indices in brackets behind a value: `x[0]` or `x[0,]`.
enum Indices<T> {
    One(T),
    Many(Vec<T>),
}

type Parsed<T> = Result<T, RuleError>;

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            variables: Vec::new(),
            modules: Vec::new(),
            calls: Vec::new(),
            depth: 0,
            in_index: false,
        }
    }

    // ---- characters ----

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn at_end(&self) -> bool {
        self.rest().is_empty()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_comment(&mut self) {
        if self.peek() == Some('#') {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn skip_blank_lines(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            if self.peek() != Some('#') {
                return;
            }
            self.skip_comment();
        }
    }

    /// Skips blanks and comments, and the end of a line that the next one continues.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
            self.at += blanks;
            self.skip_comment();
            // Blank and comment lines in between do not end a rule.
            let mut after = self.at;
            while let Some(next) = self.text[after..].strip_prefix('\n') {
                let trimmed = next.trim_start_matches([' ', '\t', '\r']);
                let indented = trimmed.len() < next.len();
                after = self.text.len() - trimmed.len();
                if trimmed.starts_with('#') {
                    after += trimmed.find('\n').unwrap_or(trimmed.len());
                } else if !trimmed.starts_with('\n') {
                    if indented && !trimmed.is_empty() {
                        self.at = after;
                    }
                    break;
                }
            }
            if self.peek() != Some('#') {
                return;
            }
        }
    }

    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        self.error_at(self.at, message)
    }

    fn error_at<T>(&self, at: usize, message: impl Into<String>) -> Parsed<T> {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Err(RuleError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        })
    }

    fn found(&self) -> String {
        match self.peek() {
            None => "the end of the text".to_owned(),
            Some('\n') => "the end of the line".to_owned(),
            Some(c) => format!("`{c}`"),
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) {
            return Ok(());
        }
        self.error(format!("expected `{token}`, got {}", self.found()))
    }

    fn eat_word(&mut self, word: &str) -> bool {
        self.skip();
        let found = self.rest().strip_prefix(word);
        let found = found.is_some_and(|rest| !rest.starts_with(is_name));
        if found {
            self.at += word.len();
        }
        found
    }

    /// A name with dots in it, if there is one.
    fn dotted(&mut self) -> Option<&'t str> {
        self.skip();
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return None;
        }
        let end = rest.find(|c| !(is_name(c) || c == '.'));
        let name = &rest[..end.unwrap_or(rest.len())];
        let name = name.trim_end_matches('.');
        self.at += name.len();
        Some(name)
    }

    fn name(&mut self, what: &str) -> Parsed<&'t str> {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return self.error(format!("expected {what}, got {}", self.found()));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return self.error(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    // ---- rules ----

    fn rule(&mut self) -> Parsed<Rule> {
        (self.variables, self.calls) = (Vec::new(), Vec::new());
        self.modules.clear();
        let start = self.at;
        let line = self.text[..start].matches('\n').count() + 1;
        let name = match self.dotted() {
            Some(name) if self.eat(":") => name.to_owned(),
            _ => {
                self.at = start;
                format!("line {line}")
            }
        };
        self.skip();
        let left = self.at;
        let roots = self.roots()?;
        let both_ways = self.eat("<=>");
        if !both_ways && !self.eat("=>") {
            let found = self.found();
            return self.error(format!("expected `=>` or `<=>`, got {found}"));
        }
        self.skip();
        let right = self.at;
        let mut rule = self.rest_of_rule(name.clone(), roots)?;
        self.skip();
        if !self.at_end() && self.peek() != Some('\n') {
            return self.error(format!(
                "expected the end of the rule, got {}",
                self.found()
            ));
        }
        if both_ways {
            let end = self.at;
            rule.reverse = Some(Box::new(self.reversed(name, left, right)?));
            self.at = end;
        }
        Ok(rule)
    }

    /// The patterns of a rule.
    fn roots(&mut self) -> Parsed<Vec<Pattern>> {
        let mut roots = Vec::new();
        loop {
            self.skip();
            let at = self.at;
            let root = self.pattern()?;
            if !is_call(&root) {
                return self.error_at(at, "a pattern must be a call of an operator");
            }
            roots.push(root);
            if !self.eat(";") {
                return Ok(roots);
            }
        }
    }

    /// The values and conditions of a rule whose patterns were read.
    fn rest_of_rule(&mut self, name: String, roots: Vec<Pattern>) -> Parsed<Rule> {
        self.skip();
        let at = self.at;
        let known = self.variables.len();
        let values = self.results(known)?;
        if values.len() != roots.len() {
            let message = format!(
                "the pattern has {} roots, the result {} values",
                roots.len(),
                values.len()
            );
            return self.error_at(at, message);
        }
        let calls = std::mem::take(&mut self.calls);
        let conditions = self.conditions(known)?;
        Ok(Rule {
            name,
            variables: std::mem::take(&mut self.variables),
            roots,
            conditions,
            replacement: Replacement { calls, values },
            reverse: None,
        })
    }

    fn results(&mut self, known: usize) -> Parsed<Vec<Value>> {
        let mut values = vec![self.value(known)?];
        while self.eat(";") {
            values.push(self.value(known)?);
        }
        Ok(values)
    }

    fn conditions(&mut self, known: usize) -> Parsed<Vec<Condition>> {
        let mut conditions = Vec::new();
        if self.eat_word("if") {
            conditions.push(self.condition(known)?);
            while self.eat_word("and") {
                conditions.push(self.condition(known)?);
            }
        }
        Ok(conditions)
    }

    /// Reads the other direction of `left <=> right if conditions`: the right side as a pattern,
    /// and the left side as a result.
    fn reversed(&mut self, name: String, left: usize, right: usize) -> Parsed<Rule> {
        (self.variables, self.calls) = (Vec::new(), Vec::new());
        self.modules.clear();
        self.at = right;
        let roots = self.roots()?;
        let after = self.at;
        let known = self.variables.len();
        self.at = left;
        let values = self.results(known)?;
        let calls = std::mem::take(&mut self.calls);
        self.at = after;
        let conditions = self.conditions(known)?;
        Ok(Rule {
            name,
            variables: std::mem::take(&mut self.variables),
            roots,
            conditions,
            replacement: Replacement { calls, values },
            reverse: None,
        })
    }

    // ---- results ----
    // ---- conditions ----
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_call(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Call { .. } => true,
        Pattern::Named(_, inner) | Pattern::OfModule(_, inner) => is_call(inner),
        Pattern::Variable(_)
        | Pattern::Literal(_)
        | Pattern::Sequence(_)
        | Pattern::Tuple(_)
        | Pattern::Slice(_) => false,
    }
}

/// The operator that a name in a pattern stands for, in any of its spellings.
fn operator(name: &str) -> String {
    let by_spelling = corsac_ops::operator_name(corsac_ir::Op::CallFunction, name);
    let by_name = || {
        let own = corsac_ops::operator_name(corsac_ir::Op::CallMethod, name)?;
        (!name.contains('.')).then_some(own)
    };
    by_spelling.or_else(by_name).unwrap_or(name).to_owned()
}

/// The function that a name in a result stands for: a name without a dot is an operator of torch.
fn spelled(name: &str) -> String {
    if name.contains('.') {
        return name.to_owned();
    }
    match name {
        "linear"
        | "gelu"
        | "silu"
        | "mish"
        | "hardswish"
        | "hardsigmoid"
        | "relu6"
        | "hardtanh"
        | "softplus"
        | "layer_norm"
        | "rms_norm"
        | "scaled_dot_product_attention" => format!("torch.nn.functional.{name}"),
        "getitem" => "operator.getitem".to_owned(),
        _ => format!("torch.{name}"),
    }
}
