//! The filetests of what `corsac-ir` does to graphs. Other crates run their own passes.

use corsac_ir::{Graph, NoHost};
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
