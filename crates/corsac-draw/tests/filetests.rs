//! Small graphs and differences of graphs as DOT text and as SVG.
//!
//! A case of `filetests/draw` is a graph; one of `filetests/draw-difference` two, with a line of
//! `~` between them.

use std::fmt::Write;

use corsac_draw::{Scene, SvgOptions, to_dot, to_svg};
use corsac_testkit::filetest::run;
use corsac_testkit::parse;

/// Both texts; SVG with an element on a line, and without its style.
fn pictures(scene: &Scene) -> String {
    let mut text = to_dot(scene);
    let svg = to_svg(scene, &SvgOptions::default());
    let (start, end) = (svg.find("<style>"), svg.find("</style>"));
    let style = start.zip(end).map_or("", |(start, end)| &svg[start..end]);
    let svg = svg.replacen(style, "", 1).replace("><", ">\n<");
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "\n{svg}");
    text
}

#[test]
fn graphs() {
    run("draw", |input| pictures(&Scene::of(&parse(input))));
}

#[test]
fn differences() {
    run("draw-difference", |input| {
        let (before, after) = input
            .split_once("\n~~~~~\n")
            .unwrap_or_else(|| panic!("two graphs, with a line of `~` between: {input}"));
        to_dot(&Scene::of_difference(&parse(before), &parse(after)))
    });
}
