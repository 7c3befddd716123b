//! Properties of random graphs and random changes of them.

use corsac_ir::{Graph, SecondaryMap, Translation};
use corsac_testkit::edit::Editor;
use corsac_testkit::fuzz::assert_round_trip;
use corsac_testkit::strategy::{edits, graphs};
use corsac_testkit::{assert_sound, chain};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use rustc_hash::FxHashSet;

fn names(graph: &Graph) -> Vec<String> {
    let nodes = graph.nodes();
    nodes.map(|id| graph.node(id).name().to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_what_was_printed_gives_the_same_graph(recipe in graphs(12)) {
        let graph = recipe.build();
        prop_assert_eq!(graph.lint(), Ok(()));
        assert_sound(&graph);
        let again = Graph::parse(&graph.to_lossless()).unwrap();
        prop_assert!(again.same_as(&graph));
        assert_round_trip(&graph);
    }

    #[test]
    fn changes_keep_the_books(recipe in graphs(10), edits in vec(edits(), 0..24)) {
        let mut editor = Editor::new(recipe.build());
        for edit in &edits {
            editor.apply(edit);
            // Kept users against recomputed ones, the index, the list: see the verifier.
            assert_sound(&editor.graph);
        }
        assert_round_trip(&editor.graph);
    }

    #[test]
    fn order_comparisons_follow_the_list(recipe in graphs(10), edits in vec(edits(), 0..24)) {
        let mut editor = Editor::new(recipe.build());
        edits.iter().for_each(|edit| editor.apply(edit));
        let nodes: Vec<_> = editor.graph.nodes().collect();
        prop_assert_eq!(nodes.len(), editor.graph.len());
        for (i, &a) in nodes.iter().enumerate() {
            for (j, &b) in nodes.iter().enumerate() {
                prop_assert_eq!(editor.graph.is_before(a, b), i < j);
            }
        }
        let backwards: Vec<_> = editor.graph.nodes().rev().collect();
        prop_assert!(backwards.iter().rev().eq(&nodes));
    }

    #[test]
    fn names_given_out_are_new(recipe in graphs(12), wanted in vec(any::<String>(), 0..12)) {
        let mut graph = recipe.build();
        let given = names(&graph);
        let mut seen: FxHashSet<String> = given.iter().cloned().collect();
        prop_assert_eq!(seen.len(), given.len());
        for wish in wanted {
            let name = graph.fresh_name(&wish);
            let name = graph.text(name).to_owned();
            prop_assert!(name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()), "{name:?}");
            prop_assert!(!corsac_ir::namespace::is_reserved(&name));
            prop_assert!(seen.insert(name));
        }
    }

    #[test]
    fn a_copy_is_equal(recipe in graphs(12)) {
        let graph = recipe.build();
        let copy = graph.compact_copy(&mut SecondaryMap::new(), &mut Translation::new()).unwrap();
        prop_assert_eq!(copy.to_lossless(), graph.to_lossless());
        prop_assert!(copy.same_as(&graph));
        assert_sound(&copy);
    }

    #[test]
    fn a_sorted_graph_is_in_order(recipe in graphs(12), edits in vec(edits(), 0..16)) {
        let mut editor = Editor::new(recipe.build());
        edits.iter().for_each(|edit| editor.apply(edit));
        let mut graph = editor.graph;
        let before = graph.to_lossless();
        match graph.topological_sort() {
            Ok(0) => prop_assert_eq!(graph.to_lossless(), before),
            Ok(_) => {
                prop_assert_eq!(graph.topological_sort(), Ok(0));
            }
            Err(error) => {
                prop_assert!(error.to_string().contains("cycle"), "{error}");
                prop_assert_eq!(graph.to_lossless(), before);
                return Ok(());
            }
        }
        assert_sound(&graph);
        let faults = graph.lint_report().to_string();
        prop_assert!(!faults.contains("before it has been defined"), "{faults}");
    }

    #[test]
    fn a_diff_accounts_for_all_nodes(a in graphs(8), b in graphs(8), edits in vec(edits(), 0..6)) {
        let before = a.build();
        let mut editor = Editor::new(a.build());
        edits.iter().for_each(|edit| editor.apply(edit));
        for after in [&before, &editor.graph, &b.build()] {
            let diff = before.diff(after);
            let old: Vec<_> = diff
                .entries
                .iter()
                .filter(|e| !matches!(e.change, corsac_ir::Change::MovedTo(_)))
                .filter_map(|e| e.before)
                .collect();
            let new: Vec<_> = diff.entries.iter().filter_map(|e| e.after).collect();
            prop_assert!(before.nodes().eq(old));
            prop_assert!(after.nodes().eq(new));
            prop_assert_eq!(diff.is_empty(), diff.to_string().is_empty());
        }
        prop_assert!(before.diff(&before).is_empty());
    }
}

#[test]
fn long_programs_read_back() {
    let graph = chain(20_000);
    assert_round_trip(&graph);
    assert_eq!(Graph::parse(&graph.to_string()).unwrap().len(), 20_002);
}
