//! No text of a graph becomes markup.

use std::collections::BTreeSet;

use corsac_draw::layout::Opening;
use corsac_draw::{
    HtmlOptions, ModuleCall, Note, Notes, Overlay, Quantities, Scene, SvgOptions, to_dot, to_html,
    to_svg,
};
use corsac_ir::{Graph, NoHost};

const HOSTILE: &[&str] = &[
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "]]><!--",
    "x\"]; evil [label=\"y",
    "back\\",
    "{{data}}{{script}}",
    "\u{2028}\u{0}\u{fffe}",
];

/// A scene in which every text is hostile.
fn hostile_scene(text: &str) -> Scene {
    const VALID: &str = "any text can be a target";
    let mut graph = Graph::new();
    let x = graph.placeholder("x").expect(VALID);
    let function = graph.function(text);
    let string = graph.intern(text);
    let y = graph
        .call_function(function, [x.into(), corsac_ir::Arg::Str(string)])
        .expect(VALID);
    let z = graph.call_method(text, [y.into()]).expect(VALID);
    graph.output(z).expect(VALID);
    let own = || Some(text.to_owned());
    let note = Note {
        class: own(),
        shape: own(),
        dtype: own(),
        source: own(),
        settings: own(),
        quantities: Quantities {
            time: Some(f64::NAN),
            bytes: Some(-1.0),
            flops: Some(f64::INFINITY),
        },
        part: Some(0),
        modules: Some(vec![ModuleCall {
            path: text.to_owned(),
            class: text.to_owned(),
            call: 1,
        }]),
        more: vec![(text.to_owned(), text.to_owned())],
    };
    let notes: Notes = [(y, note.clone()), (z, note)].into_iter().collect();
    let mut scene = Scene::with(&graph, &notes, &NoHost);
    scene.title = text.to_owned();
    scene
}

#[test]
fn no_text_becomes_markup() {
    for text in HOSTILE {
        let plain = hostile_scene("a plain text");
        let scene = hostile_scene(text);
        let count = |page: &str, what: &str| page.matches(what).count();
        let (page, usual) = (
            to_html(&scene, &HtmlOptions::default()),
            to_html(&plain, &HtmlOptions::default()),
        );
        for mark in ["<", "<script", "</script", "<!--", "<img"] {
            assert_eq!(
                count(&page, mark),
                count(&usual, mark),
                "{mark} for {text:?}"
            );
        }
        for overlay in [None].into_iter().chain(Overlay::ALL.map(Some)) {
            let options = SvgOptions {
                overlay,
                ..SvgOptions::default()
            };
            let (svg, usual) = (to_svg(&scene, &options), to_svg(&plain, &options));
            assert_eq!(tags(&svg), tags(&usual), "{text:?}");
            for mark in ["onload=\"", "\u{0}", "\u{fffe}"] {
                assert_eq!(count(&svg, mark), 0, "{mark:?} for {text:?}");
            }
        }
        check_dot(&to_dot(&scene));
    }
}

/// The names of the elements that begin or end in a text.
fn tags(text: &str) -> BTreeSet<&str> {
    let ends = |c: char| c.is_whitespace() || c == '>';
    text.split('<')
        .skip(1)
        .filter_map(|tag| tag.split(ends).next())
        .collect()
}

/// Checks that quotes in DOT text come in pairs, line by line, with nothing but attributes between.
fn check_dot(text: &str) {
    for line in text.lines() {
        let mut quoted = false;
        let mut outside = String::new();
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' if quoted => {
                    chars.next();
                }
                '"' => quoted = !quoted,
                c if !quoted => outside.push(c),
                _ => {}
            }
        }
        assert!(!quoted, "{line}");
        assert!(!outside.contains("evil"), "{line}");
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let page = to_html(&hostile_scene("plain"), &HtmlOptions::default());
    for outside in [
        "http://",
        "https://",
        "src=",
        "@import",
        "url(",
        "fetch(",
        "innerHTML",
        "eval(",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn parts_have_colours_and_a_legend() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let nodes: Vec<_> = (0..3)
        .map(|_| graph.call_method("neg", [x.into()]).unwrap())
        .collect();
    graph.output(nodes[2]).unwrap();
    let part = |part| Note {
        part: Some(part),
        modules: Some(vec![ModuleCall {
            path: format!("m{}", part / 2),
            ..ModuleCall::default()
        }]),
        ..Note::default()
    };
    let notes: Notes = [
        (nodes[0], part(0)),
        (nodes[1], part(1)),
        (nodes[2], part(9)),
    ]
    .into_iter()
    .collect();
    let scene = Scene::with(&graph, &notes, &NoHost);
    assert_eq!(scene.groups[0].parts, [(0, 1), (1, 1)]);
    let options = SvgOptions {
        overlay: Some(Overlay::Part),
        ..SvgOptions::default()
    };
    let svg = to_svg(&scene, &options);
    // Part 9 has the colour of part 1; the input is in none.
    for (class, count) in [("node part-0", 1), ("node part-1", 2), ("node unknown", 2)] {
        assert_eq!(
            svg.matches(&format!("\"{class}\"")).count(),
            count,
            "{class}"
        );
    }
    for label in ["part 0", "part 1", "part 9"] {
        assert!(svg.contains(&format!(">{label}<")), "{label}");
    }
    let closed = SvgOptions {
        opening: Opening::Depth(0),
        ..options
    };
    let svg = to_svg(&scene, &closed);
    assert!(svg.contains("fill=\"var(--part-0)\"") && svg.contains("fill=\"var(--part-1)\""));
    let page = to_html(
        &scene,
        &HtmlOptions {
            overlay: Some(Overlay::Part),
            depth: None,
        },
    );
    assert!(page.contains("\"overlay\":\"part\"") && page.contains("\"part\":9"));
}
