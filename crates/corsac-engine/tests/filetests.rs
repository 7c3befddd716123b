//! The filetests of lowering: a graph in; the steps that it is lowered to out, or the reason why it
//! is not. Those of optimisations: a graph in; the steps that it is lowered to, and the optimised
//! ones out. Those of plans: a graph in; the optimised steps, and the memory of a run out.
//!
//! The types of inputs and weights are in comments of the graph:
//!
//! ```text
//! # x: float32[1, 16, 8, 8]
//! ```

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use std::cell::RefCell;

use corsac_engine::{LowerError, Plan, Program, lower, lowered_operators, optimise};
use corsac_ir::{DType, ExternalId, Graph, Op};
use corsac_ops::OperatorId;
use corsac_ops::shape::{
    CalledGraph, Dim, ModuleFacts, Propagator, Settings, Storage, Tensor, TensorType, TypeHost,
    Value,
};
use corsac_testkit::filetest::run;

/// The types that an input declares, by name, and the graphs behind its first one.
struct Declared(Vec<(String, TensorType)>, Vec<(String, Graph)>);

impl Declared {
    fn in_comments_of(input: &str) -> Self {
        let lines = input.lines().filter_map(|line| line.strip_prefix("# "));
        let types = lines.filter_map(|line| {
            let (name, ty) = line.split_once(": ")?;
            let (dtype, sizes) = ty.strip_suffix(']')?.split_once('[')?;
            let dtype: DType = dtype
                .parse()
                .unwrap_or_else(|()| panic!("an element type, not {dtype}"));
            let sizes = sizes.split(", ").filter(|size| !size.is_empty());
            let sizes = sizes.map(|size| Dim::Known(size.parse().unwrap()));
            Some((name.to_owned(), TensorType::new(dtype, sizes)))
        });
        // `# graph NAME` is the line before a graph that others call.
        let graphs = input.split("\n# graph ").skip(1).map(|part| {
            let (name, text) = part.split_once('\n').unwrap();
            (name.to_owned(), Graph::parse(text).unwrap())
        });
        Self(types.collect(), graphs.collect())
    }

    fn number(&self, name: &str) -> usize {
        let number = self.0.iter().position(|(own, _)| own == name);
        number.unwrap_or_else(|| panic!("no comment `# {name}: TYPE[SIZES]`"))
    }
}

impl TypeHost for Declared {
    fn module(&self, _path: &str) -> Option<&ModuleFacts> {
        None
    }

    fn attribute(&self, path: &str) -> Option<Value> {
        if self.1.iter().any(|(name, _)| name == path) {
            return Some(Value::Graph(path.into()));
        }
        let number = self.number(path);
        Some(Value::Tensor(Tensor {
            storage: Storage::from_index(number),
            ..Tensor::new(self.0[number].1.clone())
        }))
    }

    fn constant(&self, _id: ExternalId) -> Option<Value> {
        None
    }

    fn graph<'s>(&'s self, name: &str, inputs: &[Value], settings: Settings) -> CalledGraph<'s> {
        let (_, graph) = self.1.iter().find(|(own, _)| own == name)?;
        let mut types = Propagator::new(self, settings);
        types.run(graph, inputs).unwrap();
        Some(Ok((graph, types)))
    }

    fn weight_count(&self) -> usize {
        self.0.len()
    }
}

fn lowered(input: &str) -> Program {
    lower_input(input, &mut Vec::new()).unwrap()
}

/// Lowers a graph, and adds the operators that it calls to `called`.
fn lower_input(input: &str, called: &mut Vec<OperatorId>) -> Result<Program, LowerError> {
    let first = input.split("\n# graph ").next().unwrap();
    let graph = Graph::parse(first).unwrap();
    let declared = Declared::in_comments_of(input);
    let mut types = Propagator::new(&declared, Settings::default());
    let nodes = graph.nodes().map(|id| graph.node(id));
    let placeholders = nodes.filter(|node| node.op() == Op::Placeholder);
    let inputs = placeholders.map(|node| &declared.0[declared.number(node.name())].1);
    let inputs: Vec<Value> = inputs.cloned().map(Value::tensor).collect();
    types.run(&graph, &inputs).unwrap();
    let bindings = graph
        .nodes()
        .map(|id| types.binding(&graph, graph.node(id)));
    called.extend(bindings.flatten().map(|binding| binding.operator));
    lower(&graph, &types)
}

#[test]
fn lowerings() {
    let called = RefCell::default();
    run("lower", |input| {
        match lower_input(input, &mut called.borrow_mut()) {
            Ok(program) => program.to_string(),
            Err(refusal) => format!("{refusal}\n"),
        }
    });
    let called = called.into_inner();
    let missing = lowered_operators().filter(|operator| !called.contains(operator));
    let mut missing: Vec<&str> = missing.map(OperatorId::name).collect();
    missing.sort_unstable();
    // Modules, of which graphs in text have none.
    let modules = ["GRU", "Identity", "LSTM", "MultiheadAttention", "RNN"];
    assert_eq!(missing, modules, "lowerings without a filetest");
}

#[test]
fn optimisations() {
    run("optimise", |input| {
        let mut program = lowered(input);
        let before = program.to_string();
        optimise(&mut program);
        let after = program.to_string();
        match before == after {
            true => format!("{before}# optimised: the same\n"),
            false => format!("{before}# optimised\n{after}"),
        }
    });
}

#[test]
fn plans() {
    run("plan", |input| {
        let mut program = lowered(input);
        optimise(&mut program);
        let size_bytes = Plan::of(&program).size_bytes();
        format!("{program}# memory: {size_bytes} bytes\n")
    });
}
