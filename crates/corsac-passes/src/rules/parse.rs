//! The text form of rules, one on a line.
//!
//! ```text
//! rules      = { [ rule ] [ "#" comment ] newline } ;   a line that begins with blanks goes on
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

use corsac_ops::signature::Signature;
use thiserror::Error;

use super::rule::{
    Call, Callee, Comparison, Condition, Function, Item, Key, Literal, Operand, Pattern, Predicate,
    Replacement, Rule, Value, Var,
};

/// Patterns and values nest no deeper than this.
const MAX_DEPTH: usize = 64;

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {message}")]
pub struct RuleError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What was expected, and what came.
    pub message: String,
}

/// Reads rules, one on a line. A line that begins with blanks goes on with the rule before it;
/// `#` begins a comment. Rules without a name are called after their line.
///
/// # Errors
/// [`RuleError`] with the place and what was expected there.
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
    calls: Vec<Call>,
    depth: usize,
    /// Whether the next pattern is part of an index.
    in_index: bool,
}

/// What stands between brackets behind a value: `x[0]` or `x[0,]`.
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

    /// Skips blanks and comments, and the end of a line where the next one goes on.
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

    /// The other direction of `left <=> right if conditions`: what was read as a result is read
    /// as a pattern, and the other way round.
    fn reversed(&mut self, name: String, left: usize, right: usize) -> Parsed<Rule> {
        (self.variables, self.calls) = (Vec::new(), Vec::new());
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

    fn variable(&mut self) -> Parsed<Var> {
        let name = self.name("the name of a variable")?;
        let known = self.variables.iter().position(|v| v == name);
        let index = known.unwrap_or_else(|| {
            self.variables.push(name.to_owned());
            self.variables.len() - 1
        });
        match u16::try_from(index) {
            Ok(index) => Ok(Var(index)),
            Err(_) => self.error("too many variables"),
        }
    }

    fn pattern(&mut self) -> Parsed<Pattern> {
        let is_index = std::mem::replace(&mut self.in_index, false);
        let parsed = self.nested(|parser| parser.pattern_with_indices(is_index));
        self.in_index = is_index;
        parsed
    }

    /// A pattern and the indices behind it. In an index a colon does not name a value.
    fn pattern_with_indices(&mut self, in_index: bool) -> Parsed<Pattern> {
        let mut pattern = self.pattern_here(in_index)?;
        while self.peek() == Some('[') {
            self.at += 1;
            let indices = self.indices(
                &mut |parser| {
                    parser.in_index = true;
                    let parsed = parser.pattern();
                    parser.in_index = false;
                    parsed
                },
                Pattern::Literal,
                |parts| Pattern::Slice(Box::new(parts)),
            )?;
            let index = match indices {
                Indices::One(index) => index,
                Indices::Many(items) => Pattern::Tuple(items.into_iter().map(Item::One).collect()),
            };
            pattern = Pattern::Call {
                operators: vec!["getitem".to_owned()],
                arguments: vec![(Key::Position(0), pattern), (Key::Position(1), index)],
            };
        }
        Ok(pattern)
    }

    /// What stands between brackets behind a value, whose end is read too.
    fn indices<T>(
        &mut self,
        item: &mut dyn FnMut(&mut Self) -> Parsed<T>,
        literal: fn(Literal) -> T,
        slice: fn([T; 3]) -> T,
    ) -> Parsed<Indices<T>> {
        let mut items = Vec::new();
        let mut trailing = false;
        while !self.eat("]") {
            if !items.is_empty() && !trailing {
                self.expect(",")?;
                trailing = true;
                continue;
            }
            trailing = false;
            if self.eat("...") {
                items.push(literal(Literal::Ellipsis));
                continue;
            }
            let none = || literal(Literal::None);
            let part = |parser: &mut Self, item: &mut dyn FnMut(&mut Self) -> Parsed<T>| {
                parser.skip();
                match parser.peek() {
                    Some(':' | ',' | ']') => Ok(None),
                    _ => item(parser).map(Some),
                }
            };
            let start = part(self, item)?;
            if self.eat(":") {
                let stop = part(self, item)?;
                let step = if self.eat(":") {
                    part(self, item)?
                } else {
                    None
                };
                items.push(slice([start, stop, step].map(|p| p.unwrap_or_else(none))));
            } else if let Some(start) = start {
                items.push(start);
            } else {
                return self.error(format!("expected an index, got {}", self.found()));
            }
        }
        if trailing || items.len() != 1 {
            return match items.len() {
                0 => self.error("an index is missing"),
                _ => Ok(Indices::Many(items)),
            };
        }
        match items.pop() {
            Some(only) => Ok(Indices::One(only)),
            None => self.error("an index is missing"),
        }
    }

    fn pattern_here(&mut self, in_index: bool) -> Parsed<Pattern> {
        if self.eat("?") {
            let var = self.variable()?;
            return Ok(if !in_index && self.eat(":") {
                Pattern::Named(var, Box::new(self.pattern()?))
            } else {
                Pattern::Variable(var)
            });
        }
        if self.eat_word("_") {
            // A variable that nothing else can name.
            self.variables.push(format!("_{}", self.variables.len()));
            return match u16::try_from(self.variables.len() - 1) {
                Ok(index) => Ok(Pattern::Variable(Var(index))),
                Err(_) => self.error("too many variables"),
            };
        }
        if self.eat("[") {
            let mut items = Vec::new();
            while !self.eat("]") {
                if !items.is_empty() {
                    self.expect(",")?;
                }
                items.push(if self.eat("*") {
                    self.expect("?")?;
                    Item::Many(self.variable()?)
                } else {
                    Item::One(self.pattern()?)
                });
            }
            return Ok(Pattern::Sequence(items));
        }
        if let Some(literal) = self.literal()? {
            return Ok(Pattern::Literal(literal));
        }
        self.skip();
        let at = self.at;
        let Some(first) = self.dotted() else {
            return self.error(format!("expected a pattern, got {}", self.found()));
        };
        let mut operators = vec![operator(first)];
        while self.eat("|") {
            match self.dotted() {
                Some(name) => operators.push(operator(name)),
                None => {
                    return self.error(format!("expected an operator, got {}", self.found()));
                }
            }
        }
        self.expect("(")?;
        let mut arguments: Vec<(Key, Pattern)> = Vec::new();
        while !self.eat(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            self.skip();
            let here = self.at;
            let keyword = self.keyword();
            let pattern = self.pattern()?;
            let key = match keyword {
                None => Key::Position(arguments.len()),
                Some(name) => match Signature::of(&operators[0]) {
                    None => Key::Keyword(name.to_owned()),
                    Some(signature) => match signature.position(name) {
                        Some(position) => Key::Position(position),
                        None => {
                            let message = format!("{} has no parameter {name}", operators[0]);
                            return self.error_at(here, message);
                        }
                    },
                },
            };
            if arguments.iter().any(|(other, _)| *other == key) {
                return self.error_at(here, "this parameter is given twice");
            }
            arguments.push((key, pattern));
        }
        for name in &operators {
            let places = arguments.iter().filter_map(|(key, _)| match key {
                Key::Position(position) => Some(position + 1),
                Key::Keyword(_) => None,
            });
            let (places, signature) = (places.max().unwrap_or(0), Signature::of(name));
            if let Some(most) = signature.map(|s| s.parameters.len())
                && places > most
            {
                return self.error_at(at, format!("{name} takes no more than {most} arguments"));
            }
        }
        Ok(Pattern::Call {
            operators,
            arguments,
        })
    }

    /// `name=`, if an argument begins like that.
    fn keyword(&mut self) -> Option<&'t str> {
        let start = self.at;
        if let Some(name) = self.dotted()
            && !name.contains('.')
        {
            self.skip();
            let rest = self.rest();
            if rest.starts_with('=') && !rest.starts_with("==") && !rest.starts_with("=>") {
                self.at += 1;
                return Some(name);
            }
        }
        self.at = start;
        None
    }

    fn literal(&mut self) -> Parsed<Option<Literal>> {
        self.skip();
        let (start, rest) = (self.at, self.rest());
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let unsigned = rest.strip_prefix('-').unwrap_or(rest);
        if unsigned.starts_with(number) || unsigned.starts_with("inf") && rest != unsigned {
            let mut end = rest.len() - unsigned.len();
            let mut previous = ' ';
            for c in unsigned.chars() {
                let sign = matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
                if !(c.is_ascii_alphanumeric() || c == '.' || sign) {
                    break;
                }
                (end, previous) = (end + c.len_utf8(), c);
            }
            let text = &rest[..end];
            let literal = match (text.parse(), text.parse()) {
                (Ok(int), _) => Literal::Int(int),
                (_, Ok(float)) => Literal::Float(float),
                _ => return self.error(format!("{text} is no number")),
            };
            self.at += end;
            return Ok(Some(literal));
        }
        if let Some(quote @ ('\'' | '"')) = self.peek() {
            let Some(end) = rest[1..].find([quote, '\n', '\\']) else {
                return self.error("the string has no end");
            };
            if !rest[1 + end..].starts_with(quote) {
                return self.error("strings have no escapes and end on their line");
            }
            self.at += end + 2;
            return Ok(Some(Literal::Str(rest[1..=end].to_owned())));
        }
        let literal = match self.dotted() {
            Some("None") => Some(Literal::None),
            Some("True") => Some(Literal::Bool(true)),
            Some("False") => Some(Literal::Bool(false)),
            Some("inf") => Some(Literal::Float(f64::INFINITY)),
            Some(name) if name.starts_with("torch.") => name.parse().ok().map(Literal::DType),
            Some(_) | None => None,
        };
        if literal.is_none() {
            self.at = start;
        }
        Ok(literal)
    }

    // ---- results ----

    fn value(&mut self, known: usize) -> Parsed<Value> {
        self.nested(|parser| parser.value_with_indices(known))
    }

    fn value_with_indices(&mut self, known: usize) -> Parsed<Value> {
        let mut value = self.value_here(known)?;
        while self.peek() == Some('[') {
            self.at += 1;
            let indices =
                self.indices(&mut |parser| parser.value(known), Value::Literal, |parts| {
                    Value::Slice(Box::new(parts))
                })?;
            let index = match indices {
                Indices::One(index) => index,
                Indices::Many(items) => Value::Tuple(items),
            };
            value = self.call(Call {
                callee: Callee::Function("operator.getitem".to_owned()),
                args: vec![value, index],
                kwargs: Vec::new(),
            });
        }
        Ok(value)
    }

    /// A new node; what is written twice is computed once.
    fn call(&mut self, call: Call) -> Value {
        let known = self.calls.iter().position(|other| *other == call);
        Value::New(known.unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        }))
    }

    fn known_variable(&mut self, known: usize) -> Parsed<Var> {
        let at = self.at;
        let var = self.variable()?;
        if var.index() >= known {
            let name = &self.variables[var.index()];
            return self.error_at(at, format!("?{name} does not occur in the pattern"));
        }
        Ok(var)
    }

    fn value_here(&mut self, known: usize) -> Parsed<Value> {
        if self.eat("?") {
            return Ok(Value::Variable(self.known_variable(known)?));
        }
        if self.eat("$") {
            let at = self.at;
            let name = self.name("a function")?;
            let Some(&(_, function)) = Function::ALL.iter().find(|(known, _)| *known == name)
            else {
                return self.error_at(at, format!("there is no function ${name}"));
            };
            self.expect("(")?;
            let (args, _) = self.values(known, ")")?;
            let expected = if function == Function::Items { 1 } else { 2 };
            if args.len() != expected {
                let message = format!("${name} takes {expected} values, got {}", args.len());
                return self.error_at(at, message);
            }
            return Ok(Value::Computed(function, args));
        }
        if self.eat("[") {
            let (items, _) = self.values(known, "]")?;
            return Ok(Value::List(items));
        }
        if let Some(literal) = self.literal()? {
            return Ok(Value::Literal(literal));
        }
        let callee = if self.eat(".") {
            Callee::Method(self.name("a method")?.to_owned())
        } else {
            match self.dotted() {
                Some(name) => Callee::Function(spelled(name)),
                None => return self.error(format!("expected a value, got {}", self.found())),
            }
        };
        self.expect("(")?;
        let (args, kwargs) = self.values(known, ")")?;
        Ok(self.call(Call {
            callee,
            args,
            kwargs,
        }))
    }

    #[expect(clippy::type_complexity, reason = "positional and keyword arguments")]
    fn values(&mut self, known: usize, close: &str) -> Parsed<(Vec<Value>, Vec<(String, Value)>)> {
        let (mut args, mut kwargs) = (Vec::new(), Vec::new());
        while !self.eat(close) {
            if !(args.is_empty() && kwargs.is_empty()) {
                self.expect(",")?;
            }
            self.skip();
            let at = self.at;
            if close == "]" && self.eat("*") {
                self.expect("?")?;
                args.push(Value::Splice(self.known_variable(known)?));
                continue;
            }
            match self.keyword() {
                Some(_) if close == "]" => {
                    return self.error_at(at, "a list has no keywords");
                }
                Some(name) => kwargs.push((name.to_owned(), self.value(known)?)),
                None if kwargs.is_empty() => args.push(self.value(known)?),
                None => {
                    return self.error_at(at, "a positional argument after a keyword argument");
                }
            }
        }
        Ok((args, kwargs))
    }

    // ---- conditions ----

    fn condition(&mut self, known: usize) -> Parsed<Condition> {
        let expected = !self.eat_word("not");
        self.skip();
        let at = self.at;
        if let Some(name) = self.dotted() {
            let Some(&(_, predicate, least, most)) =
                Predicate::ALL.iter().find(|(known, ..)| *known == name)
            else {
                return self.error_at(at, format!("there is no condition {name}"));
            };
            self.expect("(")?;
            let mut operands = Vec::new();
            while !self.eat(")") {
                if !operands.is_empty() {
                    self.expect(",")?;
                }
                operands.push(self.operand(known)?);
            }
            if !(least..=most).contains(&operands.len()) {
                let message = format!("{name} takes {least} operands, got {}", operands.len());
                return self.error_at(at, message);
            }
            return Ok(Condition::Holds {
                predicate,
                operands,
                expected,
            });
        }
        if !expected {
            return self.error("expected a condition after `not`");
        }
        let left = self.operand(known)?;
        let comparison = if self.eat("==") {
            Comparison::Equal
        } else if self.eat("!=") {
            Comparison::NotEqual
        } else if self.eat("<=") {
            Comparison::LessOrEqual
        } else if self.eat(">=") {
            Comparison::GreaterOrEqual
        } else if self.eat("<") {
            Comparison::Less
        } else if self.eat(">") {
            Comparison::Greater
        } else {
            return self.error(format!("expected a comparison, got {}", self.found()));
        };
        Ok(Condition::Compare(left, comparison, self.operand(known)?))
    }

    fn operand(&mut self, known: usize) -> Parsed<Operand> {
        if self.eat_word("result") {
            return Ok(Operand::Result);
        }
        if let Some(literal) = self.literal()? {
            return Ok(Operand::Value(Value::Literal(literal)));
        }
        if let Some(word) = self.dotted() {
            return Ok(Operand::Word(word.to_owned()));
        }
        let calls = self.calls.len();
        let value = self.value(known)?;
        if self.calls.len() > calls {
            return self.error("a condition cannot call operators");
        }
        Ok(Operand::Value(value))
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_call(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Call { .. } => true,
        Pattern::Named(_, inner) => is_call(inner),
        Pattern::Variable(_)
        | Pattern::Literal(_)
        | Pattern::Sequence(_)
        | Pattern::Tuple(_)
        | Pattern::Slice(_) => false,
    }
}

/// The operator that a name in a pattern stands for: any spelling of it will do.
fn operator(name: &str) -> String {
    let by_spelling = corsac_ops::operator_name(corsac_ir::Op::CallFunction, name);
    let by_name = || {
        let own = corsac_ops::operator_name(corsac_ir::Op::CallMethod, name)?;
        (!name.contains('.')).then_some(own)
    };
    by_spelling.or_else(by_name).unwrap_or(name).to_owned()
}

/// The function that a name in a result stands for: one without a dot is an operator of torch.
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
