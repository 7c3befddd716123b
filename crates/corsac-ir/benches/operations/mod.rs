//! Measured operations on graphs, each repeated in proportion to the number of nodes.

use std::any::Any;
use std::error::Error;
use std::hint::black_box;

use corsac_ir::{Graph, InsertPoint, NoHost, NodeId, Op, SecondaryMap, Target, Translation};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A graph and the ids that an operation works on.
pub(crate) struct Subject {
    graph: Graph,
    ids: Vec<NodeId>,
}

/// One operation: `run` is timed on the graph that `prepare` made.
pub(crate) struct Operation {
    /// Name in the report.
    pub name: &'static str,
    /// Makes a graph of the given number of nodes; not timed.
    pub prepare: fn(usize) -> Fallible<Subject>,
    /// The operation, about once per node. It returns what it makes, which is dropped after the
    /// clock has stopped, so that no operation finds the memory of the one before in the cache.
    pub run: fn(&mut Subject) -> Fallible<Box<dyn Any>>,
}

/// The result of operations that make nothing.
fn done() -> Fallible<Box<dyn Any>> {
    Ok(Box::new(()))
}

/// Everything that is measured.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "build",
        prepare: nothing,
        run: |subject| {
            let nodes = subject.ids.capacity();
            Ok(Box::new(chain(nodes)?.graph))
        },
    },
    Operation {
        name: "copy",
        prepare: chain,
        run: |subject| {
            let (mut map, mut translation) = (SecondaryMap::new(), Translation::new());
            let copy = subject.graph.compact_copy(&mut map, &mut translation)?;
            Ok(Box::new(copy))
        },
    },
    Operation {
        name: "iterate",
        prepare: chain,
        run: |subject| {
            let names: usize = subject
                .graph
                .nodes()
                .map(|id| subject.graph.node(id).name().len())
                .sum();
            black_box(names);
            done()
        },
    },
    Operation {
        name: "read inputs and users",
        prepare: chain,
        run: |subject| {
            let graph = &subject.graph;
            let edges: usize = graph
                .nodes()
                .map(|id| graph.inputs(id).count() + graph.users(id).count())
                .sum();
            black_box(edges);
            done()
        },
    },
    Operation {
        name: "find nodes",
        prepare: chain,
        run: |subject| {
            let add = subject.graph.function("operator.add");
            let found = subject
                .graph
                .find_nodes(Op::CallFunction, Some(Target::Function(add)));
            Ok(Box::new(found))
        },
    },
    Operation {
        name: "print",
        prepare: chain,
        run: |subject| Ok(Box::new(subject.graph.to_text(&NoHost))),
    },
    Operation {
        name: "lint",
        prepare: chain,
        run: |subject| {
            subject.graph.lint()?;
            done()
        },
    },
    Operation {
        name: "verify",
        prepare: chain,
        run: |subject| {
            subject.graph.verify()?;
            done()
        },
    },
    Operation {
        name: "print and parse",
        prepare: chain,
        run: |subject| {
            let text = subject.graph.to_lossless();
            let graph = Graph::parse(&text)?;
            Ok(Box::new((text, graph)))
        },
    },
    Operation {
        name: "insert in the middle",
        prepare: chain,
        run: |subject| {
            let middle = subject.ids[subject.ids.len() / 2];
            let input = subject.ids[0];
            subject
                .graph
                .set_insert_point(InsertPoint::Before(middle))?;
            let neg = subject.graph.function("torch.neg");
            for _ in 0..subject.ids.len() {
                subject.graph.call_function(neg, [input.into()])?;
            }
            done()
        },
    },
    Operation {
        name: "move to the front",
        prepare: fan,
        run: |subject| {
            let first = subject.ids[0];
            for &id in &subject.ids[1..] {
                subject.graph.move_after(id, first)?;
            }
            done()
        },
    },
    Operation {
        name: "replace each input",
        prepare: chain,
        run: |subject| {
            let input = subject.ids[0];
            for pair in subject.ids[1..].windows(2) {
                subject.graph.replace_input(pair[1], pair[0], input)?;
            }
            done()
        },
    },
    Operation {
        name: "replace all uses of one",
        prepare: fan,
        run: |subject| {
            let input = subject.ids[0];
            subject.graph.set_insert_point(InsertPoint::After(input))?;
            let other = subject.graph.placeholder("other")?;
            Ok(Box::new(subject.graph.replace_all_uses(input, other)?))
        },
    },
    Operation {
        name: "erase all, last first",
        prepare: chain,
        run: |subject| {
            for &id in subject.ids.iter().rev() {
                subject.graph.erase(id)?;
            }
            done()
        },
    },
];

fn nothing(nodes: usize) -> Fallible<Subject> {
    Ok(Subject {
        graph: Graph::new(),
        ids: Vec::with_capacity(nodes),
    })
}

/// A placeholder, then relu and add in turn, each using the value before and the add the one
/// before that as well; then the output.
fn chain(nodes: usize) -> Fallible<Subject> {
    let mut graph = Graph::new();
    let relu = graph.function("torch.relu");
    let add = graph.function("operator.add");
    let mut ids = Vec::with_capacity(nodes);
    let mut value = graph.placeholder("x")?;
    ids.push(value);
    while ids.len() + 3 <= nodes {
        let positive = graph.call_function(relu, [value.into()])?;
        value = graph.call_function(add, [positive.into(), value.into()])?;
        ids.extend([positive, value]);
    }
    ids.push(graph.output(value)?);
    Ok(Subject { graph, ids })
}

/// A placeholder that every other node uses.
fn fan(nodes: usize) -> Fallible<Subject> {
    let mut graph = Graph::new();
    let relu = graph.function("torch.relu");
    let input = graph.placeholder("x")?;
    let mut ids = vec![input];
    while ids.len() < nodes {
        ids.push(graph.call_function(relu, [input.into()])?);
    }
    Ok(Subject { graph, ids })
}
