//! Observers on random graphs: the graph stays sound, and is the same again without them.

use corsac_ir::{Graph, Op, Target};
use corsac_ops::Unhosted;
use corsac_passes::quantise::convert::{self, Conversion, Operators};
use corsac_passes::quantise::observe::{
    self, Backend, DTypeConfig, Observation, Observer, QConfig, Quantisable,
};
use corsac_passes::quantise::pattern::{Call, Pattern};
use corsac_testkit::{assert_sound, strategy};
use proptest::prelude::*;

/// A backend that quantises all functions and methods of a graph, in turn with an observer of their
/// own and with that of the input.
fn backend(graph: &Graph) -> Backend {
    let calls = graph.nodes().filter_map(|node| {
        let view = graph.node(node);
        match (view.op(), view.target()) {
            (Op::CallFunction, Target::Function(function)) => Some(Call::Function(function)),
            (Op::CallMethod, _) => Some(Call::Method(view.target_name().to_owned())),
            _ => None,
        }
    });
    let kinds = [Observation::Own, Observation::Shared];
    let entry = |(call, &observation): (Call, &Observation)| Quantisable {
        pattern: Pattern::from(call),
        root: 0,
        observation,
        by_tensors: rustc_hash::FxHashMap::default(),
        dtypes: vec![0],
        weight: None,
        bias: None,
    };
    Backend {
        patterns: calls.zip(kinds.iter().cycle()).map(entry).collect(),
        dtypes: vec![DTypeConfig::default()],
        ..Backend::default()
    }
}

/// The text of a graph without the order of users, which changes of arguments renew.
fn text(graph: &Graph) -> String {
    let lossless = graph.to_lossless();
    let line = |line: &str| match line.split_once(" : ") {
        Some((name, rest)) => match rest.split_once("] = ") {
            Some((ty, call)) => {
                let (ty, _) = ty.split_once('[').unwrap_or((ty, ""));
                format!("{name} : {ty} = {call}")
            }
            None => line.to_owned(),
        },
        None => line.to_owned(),
    };
    lossless.lines().map(line).collect::<Vec<_>>().join("\n")
}

proptest! {
    #[test]
    fn graphs_are_sound_with_observers_and_the_same_without(recipe in strategy::graphs(24)) {
        let mut graph = recipe.build();
        prop_assume!(graph.verify().is_ok());
        let before = text(&graph);
        let observer = Observer { dtype: "quint8".to_owned(), ..Observer::default() };
        let qconfig = QConfig { activation: Some(observer), ..QConfig::default() };
        let request = observe::Request {
            qconfigs: vec![qconfig],
            choices: graph.nodes().map(|node| (node, Some(0))).collect(),
            ..observe::Request::default()
        };
        let backend = backend(&graph);
        let observed = observe::observe(&mut graph, &Unhosted, &backend, &request).unwrap();
        assert_sound(&graph);
        for placed in &observed.placed {
            prop_assert_eq!(observed.placed[placed.module].qconfig, 0);
            prop_assert!(placed.node.is_none_or(|node| graph.contains(node)));
        }
        let dropped = observed.placed.iter().map(|placed| (placed.name.clone(), Conversion::Dropped));
        let request = convert::Request {
            observers: dropped.collect(),
            left_alone: rustc_hash::FxHashSet::default(),
            quantised_inputs: Vec::new(),
            quantised_outputs: Vec::new(),
        floats: None,
        };
        let none = graph.function("none");
        let operators = Operators {
            quantise: none,
            dequantise: none,
            quantise_channels: none,
            dequantise_channels: none,
            choose: none,
            quantise_rows: none,
            dequantise_rows: none,
            getitem: none,
        };
        convert::convert(&mut graph, &request, &operators).unwrap();
        assert_sound(&graph);
        prop_assert_eq!(text(&graph), before);
    }
}
