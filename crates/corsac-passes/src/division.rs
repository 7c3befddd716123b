//! Replaces division by a number by multiplication with its inverse.
//!
//! `x / 8.0` becomes `x * 0.125`, where the divisor is a literal in the program.
//!
//! Needs: nothing.
//!
//! Preserves: order, names and metadata. Results differ in rounding, unless the divisor is a power
//! of two. Quotients of numbers, such as sizes, stay unless the result is exact:
//! `int(49 * (1 / 49))` is 0. Each division is one change of the budget.
//!
//! ```text
//! truediv = matmul / 8.0   →   truediv = matmul * 0.125
//! ```
//!
//! Reference: optimum, `ChangeTrueDivToMulByInverse`, which changes divisions of sizes too and
//! raises where the divisor is zero.

use corsac_ir::{Arg, EntityId, Graph, Node, Op, Target};
use corsac_ops::OperatorId;

use crate::edits::Edits;
use crate::error::PassError;
use crate::pass::{Context, Pass, Plan};
use crate::report::{Refusal, Site};

/// The divisor is zero, not finite, or so large or small that float32 has no inverse of it.
const DIVISOR: Refusal = Refusal::because("the inverse of its divisor is no ordinary number");
/// The dividend may be a Python number, for which rounding may matter.
const NUMBER: Refusal =
    Refusal::because("what it divides may be a number, and the result would be rounded twice");

const MULTIPLY: &str = "operator.mul";

/// The pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct MultiplyByInverses;

impl Pass for MultiplyByInverses {
    fn name(&self) -> &'static str {
        "true division"
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let mut numbers = vec![false; graph.id_bound()];
        let (mut sites, mut changes) = (Vec::new(), Vec::new());
        for id in graph.nodes() {
            let node = graph.node(id);
            numbers[id.index()] = may_be_number(node, &numbers);
            let ([Arg::Node(dividend), divisor], []) = (node.args(), node.kwargs()) else {
                continue;
            };
            let Some(divisor) = number(divisor).filter(|_| node.calls("operator.truediv")) else {
                continue;
            };
            let granted = if !ORDINARY.contains(&divisor.abs()) {
                Err(DIVISOR)
            } else if numbers[dividend.index()] && !is_power_of_two(divisor) {
                Err(NUMBER)
            } else {
                context.budget.grant((id, *dividend, divisor))
            };
            let mut site = Site::new(graph, id, granted.clone().err());
            if let Ok(change) = granted {
                changes.push(change);
                site.target = MULTIPLY.to_owned();
            }
            sites.push(site);
        }
        let functions = vec![MULTIPLY.to_owned()];
        Ok(Plan::other(
            sites,
            functions,
            move |graph, function, _, _| {
                for (node, dividend, divisor) in changes {
                    let multiply = Target::Function(function(graph, MULTIPLY));
                    graph.set_target(node, multiply)?;
                    graph.set_args(node, [dividend.into(), Arg::Float(1.0 / divisor)])?;
                }
                Ok(Edits::default())
            },
        ))
    }
}

/// Divisors in this range and their inverses are normal numbers of float32 and bfloat16.
const ORDINARY: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

#[expect(
    clippy::cast_precision_loss,
    reason = "Python divides by the nearest float too"
)]
fn number(arg: &Arg) -> Option<f64> {
    match arg {
        Arg::Int(value) => Some(*value as f64),
        Arg::Float(value) => Some(*value),
        _ => None,
    }
}

/// Whether the fraction bits of `value` are zero, so that the inverse is exact.
fn is_power_of_two(value: f64) -> bool {
    const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    value.is_normal() && value.to_bits() & ((1 << FRACTION_BITS) - 1) == 0
}

/// Whether a node calls an operator that returns numbers.
fn reads_numbers(node: Node<'_>) -> bool {
    let operator = OperatorId::of(node.op(), node.target_name());
    operator.is_some_and(|operator| operator.row().numbers.is_some())
}

/// Whether a value is, or holds, Python numbers: sizes and results computed only from them.
fn may_be_number(node: Node<'_>, numbers: &[bool]) -> bool {
    let from_numbers = || {
        let mut inputs = node.inputs().peekable();
        inputs.peek().is_some() && inputs.all(|input| numbers[input.index()])
    };
    match node.op() {
        Op::CallMethod | Op::CallFunction if reads_numbers(node) => true,
        Op::CallMethod => from_numbers(),
        Op::CallFunction => match (node.target_name(), node.args()) {
            ("builtins.len" | "builtins.int" | "builtins.float", _) => true,
            ("builtins.getattr", [_, Arg::Str(name), ..]) => {
                ["shape", "ndim", "itemsize", "nbytes"].contains(&node.graph().text(*name))
            }
            (name, _) if name.starts_with("math.") => true,
            _ => from_numbers(),
        },
        Op::Placeholder | Op::GetAttr | Op::CallModule | Op::Output => false,
    }
}

#[cfg(test)]
mod tests {
    use corsac_ops::Unhosted;

    use super::*;
    use crate::pass::testing::{run_on, run_within};

    /// Divides `x`, or its size, by `divisor`; returns why the division stays and the new operand.
    fn divided(of_size: bool, divisor: Arg) -> (Option<Refusal>, Arg) {
        let mut graph = Graph::new();
        let mut x = graph.placeholder("x").unwrap();
        if of_size {
            let size = graph.call_method("size", [x.into(), 0.into()]).unwrap();
            let add = graph.function("operator.add");
            x = graph.call_function(add, [size.into(), 1.into()]).unwrap();
        }
        let truediv = graph.function("operator.truediv");
        let quotient = graph.call_function(truediv, [x.into(), divisor]).unwrap();
        graph.output(quotient).unwrap();
        let report = run_on(&MultiplyByInverses, &mut graph, &Unhosted);
        let refusal = report.refusals().remove(0);
        let node = graph.node(quotient);
        assert_eq!(node.calls("operator.mul"), refusal.is_none());
        (refusal, node.args()[1].clone())
    }

    #[test]
    fn tensors_are_multiplied_by_the_inverse() {
        assert_eq!(divided(false, Arg::Float(8.0)), (None, Arg::Float(0.125)));
        assert_eq!(divided(false, Arg::Int(3)), (None, Arg::Float(1.0 / 3.0)));
        assert_eq!(divided(false, Arg::Float(-0.5)), (None, Arg::Float(-2.0)));
    }

    #[test]
    fn a_budget_is_used_in_order() {
        let mut graph = Graph::new();
        let truediv = graph.function("operator.truediv");
        let mut x = graph.placeholder("x").unwrap();
        for divisor in 2..5 {
            x = graph
                .call_function(truediv, [x.into(), Arg::Int(divisor)])
                .unwrap();
        }
        let report = run_within(2, &MultiplyByInverses, &mut graph, &Unhosted);
        assert_eq!(report.refusals(), [None, None, Some(Refusal::BUDGET)]);
        assert!(graph.node(x).calls("operator.truediv"));
    }

    #[test]
    fn numbers_are_where_that_is_exact() {
        assert_eq!(divided(true, Arg::Int(4)), (None, Arg::Float(0.25)));
        assert_eq!(divided(true, Arg::Int(49)), (Some(NUMBER), Arg::Int(49)));
    }

    #[test]
    fn divisors_without_an_ordinary_inverse_stay() {
        for divisor in [0.0, -0.0, f64::INFINITY, f64::NAN, 1e-300, 1e39] {
            assert_eq!(divided(false, Arg::Float(divisor)).0, Some(DIVISOR));
        }
        assert_eq!(divided(false, Arg::Int(0)).0, Some(DIVISOR));
    }

    #[test]
    fn divisions_by_values_of_the_program_are_none_of_these() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let truediv = graph.function("operator.truediv");
        graph.call_function(truediv, [x.into(), x.into()]).unwrap();
        graph
            .call_function(truediv, [Arg::Float(2.0), x.into()])
            .unwrap();
        let floordiv = graph.function("operator.floordiv");
        graph
            .call_function(floordiv, [x.into(), Arg::Int(2)])
            .unwrap();
        let report = run_on(&MultiplyByInverses, &mut graph, &Unhosted);
        assert_eq!(report.sites, []);
    }
}
