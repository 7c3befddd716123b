//! Evaluation of the conditions and computed values of a rule at a match.

use corsac_ir::{Arg, Graph, NodeId};
use thin_vec::ThinVec;

use super::call::Given;
use super::dtypes::{is_complex, is_floating, is_integral};
use super::rule::{Comparison, Condition, Function, Literal, Operand, Predicate, Rule, Value};
use super::search::Found;
use super::sizes::Sizes;
use crate::tensors::TensorFacts;

/// A match with its graph, facts and rule.
pub(crate) struct Context<'a, 'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) facts: &'a TensorFacts,
    pub(crate) rule: &'a Rule,
    pub(crate) found: &'a Found<'g>,
}

/// Why a rule is not applied.
type Why = String;

impl Context<'_, '_> {
    /// Whether the arguments are of the kinds that the rule is about: where a rule asks for a
    /// number and the argument is a tensor, its pattern does not match.
    pub(crate) fn has_kinds(&self) -> bool {
        self.rule
            .conditions
            .iter()
            .all(|condition| match condition {
                Condition::Holds {
                    predicate:
                        predicate @ (Predicate::Number
                        | Predicate::Int
                        | Predicate::Node
                        | Predicate::Sizes
                        | Predicate::Near),
                    operands,
                    expected,
                } => self.holds(*predicate, operands) == Ok(*expected),
                Condition::Holds { .. } | Condition::Compare(..) | Condition::Host(_) => true,
            })
    }

    /// Checks all conditions but those that the host decides.
    ///
    /// # Errors
    /// The condition that does not hold, in words.
    pub(crate) fn check(&self) -> Result<(), Why> {
        for condition in &self.rule.conditions {
            match condition {
                Condition::Host(_) => {}
                Condition::Compare(left, comparison, right) => {
                    self.compare(left, *comparison, right)?;
                }
                Condition::Holds {
                    predicate,
                    operands,
                    expected,
                } => {
                    let holds = self.holds(*predicate, operands)?;
                    if holds != *expected {
                        return Err(self.failure(*predicate, operands, *expected));
                    }
                }
            }
        }
        Ok(())
    }

    fn compare(&self, left: &Operand, by: Comparison, right: &Operand) -> Result<(), Why> {
        let number = |operand: &Operand| {
            let value = self.operand(operand)?;
            number(&value).ok_or_else(|| format!("{} is no number", self.show(operand)))
        };
        let (a, b) = (number(left)?, number(right)?);
        let (holds, sign) = match by {
            Comparison::Equal => (a == b, "=="),
            Comparison::NotEqual => (a != b, "!="),
            Comparison::Less => (a < b, "<"),
            Comparison::LessOrEqual => (a <= b, "<="),
            Comparison::Greater => (a > b, ">"),
            Comparison::GreaterOrEqual => (a >= b, ">="),
        };
        if holds {
            return Ok(());
        }
        let (left, right) = (self.show(left), self.show(right));
        Err(format!("{left} {sign} {right} does not hold: {a} and {b}"))
    }

    fn holds(&self, predicate: Predicate, operands: &[Operand]) -> Result<bool, Why> {
        let first = &operands[0];
        Ok(match predicate {
            Predicate::SameDType => self.dtype(first)? == self.dtype(&operands[1])?,
            Predicate::SameShape => {
                let (a, b) = (self.shape(first)?, self.shape(&operands[1])?);
                a == b
            }
            Predicate::DType => {
                let unknown =
                    |operand: &Operand| matches!(operand, Operand::Word(word) if word == "unknown");
                let dtype = match self.dtype(first) {
                    Ok(dtype) => dtype,
                    Err(_) if operands[1..].iter().any(unknown) => return Ok(true),
                    Err(why) => return Err(why),
                };
                operands[1..].iter().any(|operand| match operand {
                    Operand::Word(word) => match word.as_str() {
                        "floating" => is_floating(dtype),
                        "complex" => is_complex(dtype),
                        "integral" => is_integral(dtype),
                        name => name.parse() == Ok(dtype),
                    },
                    Operand::Value(Value::Literal(Literal::DType(known))) => *known == dtype,
                    Operand::Value(_) | Operand::Result => false,
                })
            }
            Predicate::Rank => {
                let rank = self.shape(first)?.len();
                number(&self.operand(&operands[1])?) == Some(rank as f64)
            }
            Predicate::Shape => {
                let sizes = self.operand(&operands[1])?;
                let sizes = integers(&sizes).ok_or("the sizes are not known")?;
                self.shape(first)? == sizes
            }
            Predicate::Number => {
                matches!(self.operand(first)?, Arg::Int(_) | Arg::Float(_))
            }
            Predicate::Int => matches!(self.operand(first)?, Arg::Int(_)),
            Predicate::Sizes => match self.operand(first)? {
                Arg::Int(_) => true,
                Arg::Node(node) => Sizes::of_node(self.graph, node).is_some(),
                // `x.view(n)`: one argument is a list of one item, which may be all sizes, or a
                // type.
                Arg::List(items) | Arg::Tuple(items) => match &items[..] {
                    [Arg::Node(node)] => Sizes::of_node(self.graph, *node).is_some(),
                    items => items
                        .iter()
                        .all(|i| matches!(i, Arg::Int(_) | Arg::Node(_))),
                },
                _ => false,
            },
            Predicate::Node => self.node(first).is_some(),
            Predicate::SingleUse => self
                .node(first)
                .is_some_and(|node| self.graph.node(node).num_users() == 1),
            Predicate::Identity => {
                let permutation = self.operand(first)?;
                let dims = integers(&permutation).ok_or("the permutation is not known")?;
                dims.iter().zip(0..).all(|(&dim, place)| dim == place)
            }
            Predicate::Last => {
                let dim = match self.operand(first)? {
                    Arg::Int(dim) => Some(dim),
                    Arg::List(dims) | Arg::Tuple(dims) => match &dims[..] {
                        [Arg::Int(dim)] => Some(*dim),
                        _ => None,
                    },
                    _ => None,
                };
                match dim {
                    Some(-1) => true,
                    Some(dim) if dim >= 0 => dim + 1 == self.shape(&operands[1])?.len() as i64,
                    Some(_) | None => false,
                }
            }
            Predicate::LastTwo => {
                let (a, b) = (self.operand(first)?, self.operand(&operands[1])?);
                match (a, b) {
                    (Arg::Int(-1), Arg::Int(-2)) | (Arg::Int(-2), Arg::Int(-1)) => true,
                    (Arg::Int(a), Arg::Int(b)) => {
                        let rank = self.shape(&operands[2])?.len() as i64;
                        let from_end = |dim: i64| if dim < 0 { dim } else { dim - rank };
                        let (a, b) = (from_end(a), from_end(b));
                        (a.min(b), a.max(b)) == (-2, -1)
                    }
                    _ => false,
                }
            }
            Predicate::Near => {
                let pair = (
                    number(&self.operand(first)?),
                    number(&self.operand(&operands[1])?),
                );
                matches!(pair, (Some(a), Some(b)) if (a - b).abs() <= b.abs() * 1e-6)
            }
            Predicate::PowerOfTwo => {
                let value = number(&self.operand(first)?);
                value.is_some_and(|value| {
                    // The reciprocal must be a normal number in half precision.
                    let exact = value.abs().log2();
                    value.is_finite() && value != 0.0 && exact.fract() == 0.0 && exact.abs() <= 14.0
                })
            }
        })
    }

    fn failure(&self, predicate: Predicate, operands: &[Operand], expected: bool) -> Why {
        let name = Predicate::ALL
            .iter()
            .find(|(_, known, ..)| *known == predicate);
        let name = name.map_or("", |(name, ..)| name);
        let shown: Vec<_> = operands.iter().map(|o| self.show(o)).collect();
        let shown = shown.join(", ");
        if expected {
            format!("{name}({shown}) does not hold")
        } else {
            format!("{name}({shown}) holds")
        }
    }

    fn node(&self, operand: &Operand) -> Option<NodeId> {
        match operand {
            Operand::Result => self.found.roots.first().copied(),
            Operand::Value(Value::Variable(var)) => self.found.bindings[var.index()]?.node(),
            Operand::Value(_) | Operand::Word(_) => None,
        }
    }

    fn dtype(&self, operand: &Operand) -> Result<corsac_ir::DType, Why> {
        let known = self.node(operand).and_then(|node| self.facts.dtype(node));
        known.ok_or_else(|| format!("the dtype of {} is not known", self.show(operand)))
    }

    fn shape(&self, operand: &Operand) -> Result<&[i64], Why> {
        let known = self.node(operand).and_then(|node| self.facts.shape(node));
        known.ok_or_else(|| format!("the shape of {} is not known", self.show(operand)))
    }

    /// An operand as text, for messages.
    fn show(&self, operand: &Operand) -> String {
        if let Some(node) = self.node(operand)
            && self.graph.contains(node)
        {
            return self.graph.node(node).name().to_owned();
        }
        match operand {
            Operand::Word(word) => word.clone(),
            Operand::Result => "the result".to_owned(),
            Operand::Value(value) => match self.value(value).ok().as_ref().map(|v| (v, literal(v)))
            {
                Some((_, Some(literal))) => literal.to_string(),
                Some((value, None)) => match integers(value) {
                    Some(items) => format!("{items:?}"),
                    None => self.name_of(value_var(operand)),
                },
                None => self.name_of(value_var(operand)),
            },
        }
    }

    fn name_of(&self, var: Option<usize>) -> String {
        match var {
            Some(var) => format!("?{}", self.rule.variables[var]),
            None => "a value".to_owned(),
        }
    }

    fn operand(&self, operand: &Operand) -> Result<Arg, Why> {
        match operand {
            Operand::Value(value) => self.value(value),
            Operand::Result => Ok(Arg::Node(self.found.roots[0])),
            Operand::Word(word) => Err(format!("{word} is no value")),
        }
    }

    /// The value at this match, as an argument in the graph.
    ///
    /// # Errors
    /// If it cannot be computed, or is a new node.
    pub(crate) fn value(&self, value: &Value) -> Result<Arg, Why> {
        self.value_with(value, &|_| None)
    }

    /// The same where the new nodes are known.
    pub(crate) fn value_with(
        &self,
        value: &Value,
        new: &dyn Fn(usize) -> Option<NodeId>,
    ) -> Result<Arg, Why> {
        match value {
            Value::Variable(var) => {
                let bound = self.found.bindings[var.index()];
                let unbound = || format!("?{} is not bound", self.rule.variables[var.index()]);
                given(self.graph, bound.ok_or_else(unbound)?)
            }
            Value::Literal(literal) => of_literal(self.graph, literal),
            Value::New(index) => match new(*index) {
                Some(node) => Ok(Arg::Node(node)),
                None => Err("a new node is used where none can be".to_owned()),
            },
            Value::Splice(_) => Err("a splice outside a list".to_owned()),
            Value::List(items) => {
                let mut list = ThinVec::with_capacity(items.len());
                for item in items {
                    match item {
                        Value::Splice(var) => {
                            let bound = self.found.bindings[var.index()];
                            let items = bound.and_then(Given::items);
                            list.extend_from_slice(items.ok_or("what is spliced is no list")?);
                        }
                        item => list.push(self.value_with(item, new)?),
                    }
                }
                Arg::list(list).map_err(|error| error.to_string())
            }
            Value::Tuple(items) => {
                let items = items.iter().map(|item| self.value_with(item, new));
                let items = items.collect::<Result<ThinVec<Arg>, Why>>()?;
                Arg::tuple(items).map_err(|error| error.to_string())
            }
            Value::Slice(parts) => {
                let [start, stop, step] = &**parts;
                let part = |part: &Value| self.value_with(part, new);
                Arg::slice(part(start)?, part(stop)?, part(step)?)
                    .map_err(|error| error.to_string())
            }
            Value::Computed(function, operands) => self.compute(*function, operands),
        }
    }

    fn compute(&self, function: Function, operands: &[Value]) -> Result<Arg, Why> {
        let first = self.value(&operands[0])?;
        match function {
            Function::Add | Function::Sub | Function::Mul | Function::Div => {
                let second = self.value(&operands[1])?;
                arithmetic(function, &first, &second)
            }
            Function::Compose => {
                let second = self.value(&operands[1])?;
                compose(&first, &second).ok_or_else(|| "the permutations are not known".to_owned())
            }
            Function::Sizes => {
                let dim = self.value(&operands[1])?;
                let shape = self.shape(&Operand::Value(operands[0].clone()))?;
                let dim = match &dim {
                    Arg::Int(dim) => Some(*dim),
                    Arg::List(dims) | Arg::Tuple(dims) => match dims.first() {
                        Some(Arg::Int(dim)) => Some(*dim),
                        _ => None,
                    },
                    _ => None,
                };
                let rank = shape.len() as i64;
                let start = dim.map(|dim| if dim < 0 { dim + rank } else { dim });
                let start = start.filter(|start| (0..rank).contains(start));
                let start = start.ok_or("the dimension is not known")? as usize;
                let sizes: ThinVec<Arg> = shape[start..].iter().map(|&n| Arg::Int(n)).collect();
                Arg::list(sizes).map_err(|error| error.to_string())
            }
            Function::Item => {
                let place = self.value(&operands[1])?;
                let place = integers(&place).and_then(|at| usize::try_from(at[0]).ok());
                let item = place.and_then(|at| first.as_items()?.get(at));
                item.cloned()
                    .ok_or_else(|| "there is no such item".to_owned())
            }
            Function::Shape => {
                let alone = match &first {
                    Arg::Int(_) | Arg::Node(_) => Some(&first),
                    items => match items.as_items() {
                        Some([one]) => Some(one),
                        _ => None,
                    },
                };
                match alone {
                    Some(Arg::Node(all))
                        if Sizes::of_node(self.graph, *all) == Some(Sizes::All) =>
                    {
                        Ok(Arg::Node(*all))
                    }
                    Some(one) => {
                        Arg::list(ThinVec::from([one.clone()])).map_err(|error| error.to_string())
                    }
                    None => Ok(first),
                }
            }
            Function::Items => {
                let items = first.as_items().ok_or("not a list")?;
                Arg::list(ThinVec::from(items)).map_err(|error| error.to_string())
            }
        }
    }
}

fn value_var(operand: &Operand) -> Option<usize> {
    match operand {
        Operand::Value(Value::Variable(var)) => Some(var.index()),
        Operand::Value(_) | Operand::Result | Operand::Word(_) => None,
    }
}

fn literal(arg: &Arg) -> Option<Literal> {
    Some(match arg {
        Arg::None => Literal::None,
        Arg::Ellipsis => Literal::Ellipsis,
        Arg::Bool(value) => Literal::Bool(*value),
        Arg::Int(value) => Literal::Int(*value),
        Arg::Float(value) => Literal::Float(*value),
        Arg::DType(value) => Literal::DType(*value),
        _ => return None,
    })
}

fn number(arg: &Arg) -> Option<f64> {
    match arg {
        Arg::Int(value) => Some(*value as f64),
        Arg::Float(value) => Some(*value),
        _ => None,
    }
}

/// A list of literal integers.
fn integers(arg: &Arg) -> Option<Vec<i64>> {
    let int = |item: &Arg| match item {
        Arg::Int(value) => Some(*value),
        _ => None,
    };
    match arg {
        Arg::Int(value) => Some(vec![*value]),
        arg => arg.as_items()?.iter().map(int).collect(),
    }
}

fn given(graph: &Graph, given: Given<'_>) -> Result<Arg, Why> {
    match given {
        Given::One(arg) => Ok(arg.clone()),
        Given::Node(node) => Ok(Arg::Node(node)),
        Given::Many(args) => Arg::list(ThinVec::from(args)).map_err(|error| error.to_string()),
        Given::Default(value) => of_literal(graph, &value.into()),
        Given::Module(_) => Err("a module is no value".to_owned()),
    }
}

/// A literal as an argument. Strings must have been interned before.
fn of_literal(graph: &Graph, literal: &Literal) -> Result<Arg, Why> {
    Ok(match literal {
        Literal::None => Arg::None,
        Literal::Ellipsis => Arg::Ellipsis,
        Literal::Bool(value) => Arg::Bool(*value),
        Literal::Int(value) => Arg::Int(*value),
        Literal::Float(value) => Arg::Float(*value),
        Literal::DType(value) => Arg::DType(*value),
        Literal::Str(text) => match graph.lookup(text) {
            Some(symbol) => Arg::Str(symbol),
            None => return Err(format!("the graph has no string {text:?}")),
        },
    })
}

fn arithmetic(function: Function, a: &Arg, b: &Arg) -> Result<Arg, Why> {
    if let (Arg::Int(a), Arg::Int(b)) = (a, b) {
        let exact = match function {
            Function::Add => a.checked_add(*b),
            Function::Sub => a.checked_sub(*b),
            Function::Mul => a.checked_mul(*b),
            _ => None,
        };
        if function != Function::Div {
            return exact
                .map(Arg::Int)
                .ok_or_else(|| "the integers overflow".to_owned());
        }
    }
    let (Some(a), Some(b)) = (number(a), number(b)) else {
        return Err("what is computed with is no number".to_owned());
    };
    Ok(Arg::Float(match function {
        Function::Add => a + b,
        Function::Sub => a - b,
        Function::Mul => a * b,
        _ => a / b,
    }))
}

/// The permutation that does `p` and then `q`: `out[i] = p[q[i]]`.
fn compose(p: &Arg, q: &Arg) -> Option<Arg> {
    let (p, q) = (integers(p)?, integers(q)?);
    let rank = p.len() as i64;
    let positive = |dim: i64| if dim < 0 { dim + rank } else { dim };
    let composed = q.iter().map(|&dim| {
        let from = usize::try_from(positive(dim)).ok()?;
        Some(Arg::Int(positive(*p.get(from)?)))
    });
    let composed: Option<ThinVec<Arg>> = composed.collect();
    (p.len() == q.len()).then_some(())?;
    Arg::list(composed?).ok()
}
