//! Random programs with views, writes, random numbers and unknown calls have the same results,
//! writes and random numbers before and after the passes.

// Test code: a failure is a failure of the test.
#![allow(clippy::unwrap_used)]

mod interpreter;
mod observers;
mod saturation;

use std::collections::HashMap;

use corsac_ir::{Arg, Graph, NodeId, NodeSpec, Op, Target};
use corsac_passes::common_subexpressions::CommonSubexpressions;
use corsac_passes::dead_code::DeadCode;
use corsac_passes::{Budget, Context, Pass, Report, run as run_in_context};
use interpreter::{Tensor, Value, World, run};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

fn run_pass(pass: &dyn Pass, graph: &mut Graph) -> Report {
    let mut budget = Budget::unlimited();
    run_in_context(pass, graph, &mut Context::within(&mut budget)).unwrap()
}

/// Calls of a program, by their operands.
const UNARY: &[&str] = &[
    "clone",
    "neg",
    "zero_",
    "view",
    "detach",
    "contiguous",
    "chunk",
];
const BINARY: &[&str] = &["add_", "copy_", "mul"];
const FUNCTIONS: &[&str] = &["torch.add", "operator.add", "operator.iadd"];
const EFFECTS: &[&str] = &["torch.rand_like", "torch._assert", "mine.keep"];

/// One instruction: the call, and the earlier values that are its arguments.
type Step = (u8, usize, usize, usize);

fn build(steps: &[Step], returned: &[usize]) -> Graph {
    let mut graph = Graph::new();
    let mut values = vec![
        graph.placeholder("x").unwrap(),
        graph.placeholder("y").unwrap(),
        graph.get_attr("w").unwrap(),
    ];
    for &(kind, a, b, c) in steps {
        let pick = |i: usize| values[i % values.len()];
        let (first, second) = (pick(a), pick(b));
        let number = Arg::Int(i64::try_from(c % 3).unwrap());
        let operand = if c % 2 == 0 {
            second.into()
        } else {
            number.clone()
        };
        let node = match kind % 12 {
            0 | 1 => graph.call_method(UNARY[c % UNARY.len()], [first.into()]),
            2 => graph.call_method(BINARY[b % BINARY.len()], [first.into(), operand]),
            3 => graph.call_method("narrow", [first.into(), number]),
            4 => function(
                &mut graph,
                FUNCTIONS[b % FUNCTIONS.len()],
                [first.into(), operand],
            ),
            5 => function(&mut graph, "operator.getitem", [first.into(), number]),
            6 => {
                let value = operand;
                let args = [first.into(), number, value];
                function(&mut graph, "operator.setitem", args)
            }
            7 => {
                let function = graph.function("torch.add");
                let out = graph.intern("out");
                let spec = NodeSpec {
                    op: Op::CallFunction,
                    target: Target::Function(function),
                    args: [first.into(), number].into(),
                    kwargs: [(out, second.into())].into(),
                    ty: None,
                };
                graph.create(spec, None)
            }
            8 => {
                let list = Arg::list([first.into(), second.into()]).unwrap();
                function(&mut graph, "torch.cat", [list])
            }
            9 if c % 4 == 0 => function(&mut graph, EFFECTS[b % EFFECTS.len()], [first.into()]),
            9 => graph.get_attr(["v", "w"][c % 2]),
            10 => graph.call_method("clone", [first.into()]),
            _ => graph.call_method("neg", [first.into()]),
        };
        values.push(node.unwrap());
    }
    let items: Vec<Arg> = returned
        .iter()
        .map(|&i| values[i % values.len()].into())
        .collect();
    graph
        .output(Arg::tuple(items.into_iter().collect::<corsac_ir::ThinVec<_>>()).unwrap())
        .unwrap();
    graph
}

fn function<const N: usize>(
    graph: &mut Graph,
    name: &str,
    args: [Arg; N],
) -> Result<NodeId, corsac_ir::GraphError> {
    let function = graph.function(name);
    graph.call_function(function, args)
}

/// Everything that is observable of a run from outside. The caller writes to each result and reads
/// the others again.
fn observe(graph: &Graph, shared_inputs: bool) -> Vec<Vec<i64>> {
    let ([x, y, w, v], mut world) = start(shared_inputs);
    let inputs = [Value::Tensor(x.clone()), Value::Tensor(y.clone())];
    let result = run(graph, &inputs, &mut world);
    let mut tensors = Vec::new();
    result.tensors(&mut tensors);
    let mut all = tensors.clone();
    all.extend([x, y, w, v]);
    all.extend(world.kept.iter().cloned());
    let mut seen: Vec<_> = all.iter().map(Tensor::items).collect();
    for (i, tensor) in tensors.iter().enumerate() {
        let delta = 1000 * (i64::try_from(i).unwrap() + 1);
        tensor.write(|_, x| x.wrapping_add(delta));
        seen.extend(all.iter().map(Tensor::items));
    }
    seen.push(vec![world.seed]);
    seen.extend(world.log);
    seen
}

/// Two inputs and two attributes, and the state around them.
fn start(shared_inputs: bool) -> ([Tensor; 4], World) {
    let x = Tensor::new(vec![1, 2, 3, 4]);
    let y = if shared_inputs {
        x.clone()
    } else {
        Tensor::new(vec![10, 20, 30, 40])
    };
    let w = Tensor::new(vec![5, 6, 7, 8]);
    let v = Tensor::new(vec![-1, -2, -3, -4]);
    let world = World {
        attributes: HashMap::from([("w".to_owned(), w.clone()), ("v".to_owned(), v.clone())]),
        ..World::default()
    };
    ([x, y, w, v], world)
}

/// The program, a node per line.
fn listing(graph: &Graph) -> String {
    let line = |id| {
        let node = graph.node(id);
        let (args, kwargs) = (node.args(), node.kwargs());
        format!("{id} = {} {args:?} {kwargs:?}\n", node.target_name())
    };
    graph.nodes().map(line).collect()
}

fn steps() -> impl Strategy<Value = (Vec<Step>, Vec<usize>)> {
    let step = (any::<u8>(), 0..40_usize, 0..40_usize, 0..24_usize);
    (
        prop::collection::vec(step, 1..40),
        prop::collection::vec(0..44_usize, 1..4),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn dead_code_elimination_keeps_what_is_seen((steps, returned) in steps()) {
        let before = build(&steps, &returned);
        let mut after = before.clone();
        run_pass(&DeadCode::default(), &mut after);
        for shared in [false, true] {
            prop_assert_eq!(
                observe(&before, shared),
                observe(&after, shared),
                "{}\nbecame\n{}",
                listing(&before),
                listing(&after)
            );
        }
    }

    #[test]
    fn common_subexpression_elimination_keeps_what_is_seen((steps, returned) in steps()) {
        let before = build(&steps, &returned);
        let mut after = before.clone();
        run_pass(&CommonSubexpressions::default(), &mut after);
        for shared in [false, true] {
            prop_assert_eq!(
                observe(&before, shared),
                observe(&after, shared),
                "{}\nbecame\n{}",
                listing(&before),
                listing(&after)
            );
        }
    }

    #[test]
    fn what_stays_is_in_order((steps, returned) in steps()) {
        let mut graph = build(&steps, &returned);
        run_pass(&CommonSubexpressions::default(), &mut graph);
        run_pass(&DeadCode::default(), &mut graph);
        for node in graph.nodes() {
            for input in graph.inputs(node) {
                prop_assert!(graph.contains(input) && graph.is_before(input, node));
            }
        }
    }
}

/// The random programs are useful: the passes find changes to make in them.
#[test]
fn random_programs_have_dead_code_and_common_subexpressions() {
    let (mut removed, mut merged, mut kept) = (0, 0, 0);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..300 {
        let (steps, returned) = steps().new_tree(&mut runner).unwrap().current();
        let mut graph = build(&steps, &returned);
        let report = run_pass(&CommonSubexpressions::default(), &mut graph);
        merged += report.edits.erased.len();
        kept += report.sites.len() - report.edits.erased.len();
        removed += run_pass(&DeadCode::default(), &mut graph)
            .edits
            .erased
            .len();
    }
    assert!(removed > 300, "{removed} nodes removed");
    assert!(merged > 50, "{merged} nodes merged");
    assert!(kept > 50, "{kept} nodes kept");
}
