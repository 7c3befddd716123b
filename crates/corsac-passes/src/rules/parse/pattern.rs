//! Reading patterns: variables, calls, sequences, indices, literals.

use corsac_ops::signature::Signature;

use super::super::rule::{Item, Key, Literal, Pattern, Var};
use super::{Indices, Parsed, Parser, operator};

impl<'t> Parser<'t> {
    pub(super) fn variable(&mut self) -> Parsed<Var> {
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

    pub(super) fn pattern(&mut self) -> Parsed<Pattern> {
        let is_index = std::mem::replace(&mut self.in_index, false);
        let parsed = self.nested(|parser| parser.pattern_with_indices(is_index));
        self.in_index = is_index;
        parsed
    }

    /// Reads a pattern and the indices behind it. In an index a colon does not name a value.
    pub(super) fn pattern_with_indices(&mut self, in_index: bool) -> Parsed<Pattern> {
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

    /// Reads the indices behind a value, with the closing bracket.
    pub(super) fn indices<T>(
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

    pub(super) fn pattern_here(&mut self, in_index: bool) -> Parsed<Pattern> {
        if self.eat("?") {
            let at = self.at;
            let known = self.variables.len();
            let var = self.variable()?;
            let is_module = self.modules.contains(&var);
            if self.rest().starts_with('@') {
                self.at += 1;
                if var.index() < known && !is_module {
                    return self.error_at(at, "this variable stands for a value, not for a module");
                }
                if !is_module {
                    self.modules.push(var);
                }
                return self.call_of_module(var, in_index);
            }
            if is_module {
                return self.error_at(at, "this variable stands for a module, not for a value");
            }
            return Ok(if !in_index && self.eat(":") {
                Pattern::Named(var, Box::new(self.pattern()?))
            } else {
                Pattern::Variable(var)
            });
        }
        if self.eat_word("_") {
            // An anonymous variable.
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

    /// Reads the call of a module that a variable stands for.
    fn call_of_module(&mut self, var: Var, in_index: bool) -> Parsed<Pattern> {
        self.skip();
        let at = self.at;
        let call = self.pattern_here(in_index)?;
        let is_class = |name: &String| {
            let class = name
                .strip_prefix("torch.")
                .unwrap_or(name)
                .strip_prefix("nn.");
            class.is_some_and(|class| class.starts_with(|c: char| c.is_ascii_uppercase()))
        };
        match &call {
            Pattern::Call { operators, .. } if operators.iter().all(is_class) => {
                Ok(Pattern::OfModule(var, Box::new(call)))
            }
            _ => self.error_at(at, "expected a call of a module, such as nn.Linear(?x)"),
        }
    }

    /// Reads `name=`, if an argument begins with it.
    pub(super) fn keyword(&mut self) -> Option<&'t str> {
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

    pub(super) fn literal(&mut self) -> Parsed<Option<Literal>> {
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
}
