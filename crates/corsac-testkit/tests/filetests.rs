//! The filetests of transforms in `corsac-ir`. Other crates run their own passes.

use std::collections::BTreeMap;
use std::fmt::Write;

use corsac_ir::split::{Options, Parts, split};
use corsac_ir::{Graph, NoHost, PartId};
use corsac_testkit::filetest::{on_graph, run};

#[test]
fn print() {
    run("print", |input| {
        corsac_testkit::parse(input).to_text(&NoHost)
    });
}

#[test]
fn table() {
    run("table", |input| {
        corsac_testkit::parse(input).to_table(&NoHost)
    });
}

#[test]
fn lossless() {
    run("lossless", on_graph(|_| String::new()));
}

#[test]
fn parse_error() {
    run("parse-error", |input| match Graph::parse(input) {
        Ok(graph) => format!("no error\n{}", graph.to_lossless()),
        Err(error) => error.to_string(),
    });
}

#[test]
fn lint() {
    run("lint", |input| {
        let graph = corsac_testkit::parse(input);
        graph.lint_listing(&graph.lint_report(), &NoHost)
    });
}

#[test]
fn topo() {
    run(
        "topo",
        on_graph(|graph| match graph.topological_sort() {
            Ok(moved) => format!("moved {moved}"),
            Err(error) => error.to_string(),
        }),
    );
}

#[test]
fn diff() {
    run("diff", |input| {
        let (before, after) = input
            .split_once("\n\n")
            .expect("two graphs, a line between");
        let diff = corsac_testkit::parse(before).diff(&corsac_testkit::parse(after));
        format!("{}\n{diff}", diff.summary())
    });
}

/// After the comment comes a line `parts node=number …`, or `tags …` for splitting by tags.
#[test]
fn splitting() {
    run("split", |input| {
        let rest = input
            .split_inclusive('\n')
            .skip_while(|line| line.starts_with('#'));
        let rest: String = rest.collect();
        let (head, text) = rest.split_once('\n').expect("a line of parts");
        let graph = corsac_testkit::parse(text);
        let mut words = head.split(' ');
        let tagged = words.next() == Some("tags");
        let numbers: BTreeMap<&str, usize> = words
            .filter_map(|word| word.split_once('='))
            .map(|(node, number)| (node, number.parse().expect("a number")))
            .collect();
        let len = numbers.values().max().map_or(0, |most| most + 1);
        let mut parts = Parts::new(len);
        let ids: Vec<PartId> = parts.ids().collect();
        for node in graph.nodes() {
            if let Some(&number) = numbers.get(graph.node(node).name()) {
                parts.assign(node, ids[number]);
            }
        }
        let names: Vec<String> = (0..len).map(|n| format!("part_{n}")).collect();
        let options = if tagged {
            Options::tagged(&names)
        } else {
            Options::new(&names)
        };
        match split(&graph, &parts, &options) {
            Ok(split) => {
                let mut out = split.parent.graph.to_string();
                for (name, part) in names.iter().zip(&split.parts) {
                    // Writing to a `String` cannot fail.
                    let _ = write!(out, "\n{name}:\n{}", part.graph);
                }
                out
            }
            Err(error) => error.to_string(),
        }
    });
}
