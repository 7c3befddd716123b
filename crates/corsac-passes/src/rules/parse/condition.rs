//! Reading conditions.

use super::super::rule::{Comparison, Condition, Operand, Predicate, Value};
use super::{Parsed, Parser};

impl<'t> Parser<'t> {
    pub(super) fn condition(&mut self, known: usize) -> Parsed<Condition> {
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

    pub(super) fn operand(&mut self, known: usize) -> Parsed<Operand> {
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
