//! Reading results: values and new calls.

use super::super::rule::{Call, Callee, Function, Place, Value, Var};
use super::{Indices, Parsed, Parser, spelled};

impl<'t> Parser<'t> {
    pub(super) fn value(&mut self, known: usize) -> Parsed<Value> {
        self.nested(|parser| parser.value_with_indices(known))
    }

    pub(super) fn value_with_indices(&mut self, known: usize) -> Parsed<Value> {
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

    /// A new node; equal calls share one.
    pub(super) fn call(&mut self, call: Call) -> Value {
        let known = self.calls.iter().position(|other| *other == call);
        Value::New(known.unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        }))
    }

    pub(super) fn known_variable(&mut self, known: usize) -> Parsed<Var> {
        let at = self.at;
        let var = self.variable()?;
        if var.index() >= known {
            let name = &self.variables[var.index()];
            return self.error_at(at, format!("?{name} does not occur in the pattern"));
        }
        Ok(var)
    }

    pub(super) fn value_here(&mut self, known: usize) -> Parsed<Value> {
        if self.eat("?") {
            let at = self.at;
            let var = self.known_variable(known)?;
            if self.modules.contains(&var) {
                return self.of_module(var, at, known);
            }
            return Ok(Value::Variable(var));
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
            let expected = match function {
                Function::Items | Function::Shape => 1,
                _ => 2,
            };
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
                Some(name) if name.starts_with("self.") => {
                    let path = name["self.".len()..].to_owned();
                    let place = Place { of: None, path };
                    if self.peek() != Some('(') {
                        return Ok(self.attribute(place));
                    }
                    Callee::Module(place)
                }
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

    /// Reads `?m(…)` or `?m.weight`, where `?m` is a module.
    fn of_module(&mut self, var: Var, at: usize, known: usize) -> Parsed<Value> {
        let of = Some(var);
        if self.rest().starts_with('.') {
            self.at += 1;
            if let Some(path) = self.dotted() {
                let path = path.to_owned();
                return Ok(self.attribute(Place { of, path }));
            }
        }
        if !self.rest().starts_with('(') {
            let message = "this variable stands for a module: call it, or read an attribute of it";
            return self.error_at(at, message);
        }
        self.at += 1;
        let (args, kwargs) = self.values(known, ")")?;
        let path = String::new();
        Ok(self.call(Call {
            callee: Callee::Module(Place { of, path }),
            args,
            kwargs,
        }))
    }

    /// A new node that reads an attribute.
    fn attribute(&mut self, place: Place) -> Value {
        self.call(Call {
            callee: Callee::Attribute(place),
            args: Vec::new(),
            kwargs: Vec::new(),
        })
    }

    #[expect(clippy::type_complexity, reason = "positional and keyword arguments")]
    pub(super) fn values(
        &mut self,
        known: usize,
        close: &str,
    ) -> Parsed<(Vec<Value>, Vec<(String, Value)>)> {
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
}
