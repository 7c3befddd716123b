//! Properties that hold for every graph.

use corsac_ir::{Arg, Graph, NodeId};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof};

use crate::analyse::{Analysis, analyse};
use crate::names::Namer;
use crate::{Host, NamedHost, Options, assemble, draft, python_code};

/// One node: its kind, the earlier values it uses, a text, and a name.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    inputs: Vec<prop::sample::Index>,
    text: String,
    name: Option<String>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = prop_oneof![
        Just("relu".to_owned()),
        Just("torch".to_owned()),
        Just("self".to_owned()),
        Just("a.0.b".to_owned()),
        "[a-c]{1,2}(_[0-9])?",
        any::<String>(),
    ];
    let name = prop::option::weighted(0.2, text.clone());
    let inputs = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    let step = (0..8u8, inputs, text, name).prop_map(|(kind, inputs, text, name)| Step {
        kind,
        inputs,
        text,
        name,
    });
    prop::collection::vec(step, 0..12)
}

fn build(steps: &[Step]) -> Graph {
    let mut graph = Graph::new();
    let mut values: Vec<NodeId> = vec![graph.placeholder("x").unwrap()];
    for step in steps {
        let mut args: Vec<Arg> = step
            .inputs
            .iter()
            .map(|index| Arg::Node(*index.get(&values)))
            .collect();
        args.insert(0, values[values.len() - 1].into());
        let text = &step.text;
        let value = match step.kind {
            0 => graph.placeholder(text),
            1 => graph.get_attr(text),
            2 => graph.call_module(text, args),
            3 => graph.call_method(text, args),
            4 => {
                let function = graph.function("operator.add");
                graph.call_function(function, args)
            }
            5 => {
                let function = graph.function("operator.iadd");
                graph.call_function(function, args)
            }
            6 => {
                let function = graph.function("torch.relu");
                let list = Arg::list(args).unwrap();
                graph.call_function(function, [list, Arg::Float(f64::NAN)])
            }
            _ => {
                let function = graph.function(text);
                graph.call_function(function, args)
            }
        };
        let value = value.unwrap();
        if let Some(name) = &step.name {
            graph.set_name(value, name).unwrap();
        }
        values.push(value);
    }
    graph.output(values[values.len() - 1]).unwrap();
    graph
}

proptest::proptest! {
    /// Names that can all be kept are those that are given out one after the other.
    #[test]
    fn keeping_names_is_giving_them_out(steps in steps()) {
        let graph = build(&steps);
        let (options, host) = (Options::default(), NamedHost::new(&graph));
        let own = ["self"];
        let kept = Analysis::new(&graph, &options, &host, Namer::keeping(&graph)).run(&own);
        let ordered = Analysis::new(&graph, &options, &host, Namer::in_order(&graph, &own));
        let Ok(ordered) = ordered.run(&own) else {
            panic!("names given out one after the other do not clash");
        };
        if let Ok(kept) = kept {
            prop_assert!(ordered.names.renamed.is_empty());
            prop_assert_eq!(kept.names.globals, ordered.names.globals);
        }
        prop_assert!(analyse(&graph, &options, &host).is_ok());
    }

    /// Every value and every global has a name of its own.
    #[test]
    fn names_are_told_apart(steps in steps()) {
        let graph = build(&steps);
        let host = NamedHost::new(&graph);
        let plan = analyse(&graph, &Options::default(), &host).unwrap();
        let values = graph.nodes().filter(|&id| graph.node(id).op() != corsac_ir::Op::Output);
        let mut names: Vec<_> = values.map(|id| plan.name(id).to_owned()).collect();
        names.extend(plan.names.globals.iter().map(|(name, _)| name.clone()));
        let all = names.len();
        prop_assert!(names.iter().all(|name| crate::attribute::is_plain_identifier(name)));
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), all);
        prop_assert!(plan.names.globals.len() >= host.builtins().len());
    }

    /// The parts of the code, put together, are the code.
    #[test]
    fn a_draft_is_the_code_in_parts(steps in steps(), record_func: bool) {
        let graph = build(&steps);
        let host = NamedHost::new(&graph);
        let options = Options { record_func, ..Options::default() };
        let code = python_code(&graph, &options, &host).unwrap();
        let parts = draft(&graph, &options, &host, false).unwrap();
        prop_assert_eq!(parts.pieces().collect::<String>(), &*parts.text);
        let parameters: Vec<_> = parts.parameters.iter().map(ToString::to_string).collect();
        let prologue = format!("def forward(self, {}):", parameters.join(", "));
        let (src, lines, start) = assemble(&parts.wraps, &prologue, &parts.text);
        prop_assert_eq!(src, code.src);
        prop_assert_eq!(lines, code.lines);
        prop_assert_eq!(start, code.prologue_start);
    }
}
