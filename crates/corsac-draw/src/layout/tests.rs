//! Properties of every layout.

use std::time::Instant;

use corsac_ir::{Arg, Graph};
use corsac_testkit::{chain, parse};

use super::*;
use crate::scene::{ModuleCall, Note, Notes};

/// A graph of `len` calls, each of one to three of the nodes before it, in modules of modules.
fn random_scene(len: usize, reach: usize, nested: bool) -> Scene {
    let mut graph = Graph::new();
    let cat = graph.function("torch.cat");
    let mut nodes = vec![graph.placeholder("x").expect("no arguments")];
    let mut notes = Notes::default();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        // Knuth's MMIX generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for at in 0..len {
        let inputs = 1 + random(3);
        let args: Vec<Arg> = (0..inputs)
            .map(|_| nodes[nodes.len() - 1 - random(reach.min(nodes.len()))].into())
            .collect();
        let id = graph.call_function(cat, args).expect("nodes of this graph");
        if nested {
            let call = |path: String| ModuleCall {
                path,
                ..ModuleCall::default()
            };
            let (outer, inner) = (at / 40, at / 8);
            let modules = vec![call(format!("m{outer}")), call(format!("m{outer}.{inner}"))];
            let note = Note {
                modules: Some(modules),
                ..Note::default()
            };
            notes.insert(id, note);
        }
        nodes.push(id);
    }
    graph.output(nodes[len]).expect("a node of this graph");
    Scene::with(&graph, &notes, &corsac_ir::NoHost)
}

/// Checks a picture: everything is there, nothing overlaps, lines go down.
fn check(scene: &Scene, opening: &Opening) {
    let levels = levels(scene);
    for level in &levels {
        let items = level.layers.iter().flatten();
        let placed = items.filter(|slot| matches!(slot, Slot::Item(_))).count();
        assert_eq!(placed, level.items.len(), "every item is in a layer, once");
        check_order(level);
    }
    let picture = Picture::of(scene, &levels, opening);
    let mut nodes: Vec<u32> = Vec::new();
    for shape in &picture.boxes {
        if let Content::Node(node) = shape.content {
            nodes.push(node);
        }
        assert!(
            shape.x >= -0.5 && shape.x + shape.width <= picture.width + 0.5,
            "{shape:?}"
        );
        assert!(
            shape.y >= -0.5 && shape.y + shape.height <= picture.height + 0.5,
            "{shape:?}"
        );
    }
    if *opening == Opening::All {
        nodes.sort_unstable();
        let all: Vec<u32> = (0..scene.nodes.len() as u32).collect();
        assert_eq!(nodes, all, "every node is in the picture, once");
    }
    check_overlaps(&picture);
    for wire in picture.wires.iter().filter(|wire| !wire.straight) {
        for pair in wire.points.windows(2) {
            assert!(pair[0].1 <= pair[1].1 + 1e-9, "lines go down: {wire:?}");
        }
    }
}

/// Lines that do not go straight go from a layer to lower ones.
fn check_order(level: &Level) {
    let routes = place::Routes::of(level);
    for net in level.nets.iter().filter(|net| !net.straight) {
        for sink in &net.sinks {
            let (from, to) = (
                routes.item_at[net.source as usize],
                routes.item_at[sink.item as usize],
            );
            assert!(from.0 < to.0, "{net:?}");
        }
    }
}

fn check_overlaps(picture: &Picture) {
    let solid: Vec<&BoxShape> = picture
        .boxes
        .iter()
        .filter(|shape| !matches!(shape.content, Content::Open(_)))
        .collect();
    let mut by_top = solid.clone();
    by_top.sort_by(|a, b| a.y.total_cmp(&b.y));
    for (at, a) in by_top.iter().enumerate() {
        for b in by_top[at + 1..].iter().take_while(|b| b.y < a.y + a.height) {
            let apart = a.x + a.width <= b.x + 1e-6 || b.x + b.width <= a.x + 1e-6;
            assert!(apart, "{a:?} and {b:?}");
        }
    }
}

#[test]
fn random_graphs_are_laid_out() {
    for (len, reach, nested) in [
        (1, 1, false),
        (60, 8, false),
        (300, 300, false),
        (300, 20, true),
    ] {
        let scene = random_scene(len, reach, nested);
        for opening in [Opening::All, Opening::Depth(0), Opening::Depth(1)] {
            check(&scene, &opening);
        }
    }
}

/// The course of a wire as it is drawn, at `steps` points of each of its parts.
fn course(wire: &Wire, steps: usize) -> Vec<(f64, f64)> {
    let parts = wire.points.windows(2);
    let points = parts.flat_map(|pair| {
        let ((from, top), (to, bottom)) = (pair[0], pair[1]);
        (0..=steps).map(move |step| {
            let t = step as f64 / steps as f64;
            // Bézier's, with both middle points half way down.
            let (near, far) = ((1.0 - t).powi(2), t * t);
            let (a, b) = (3.0 * near * t, 3.0 * (1.0 - t) * far);
            let middle = (top + bottom) / 2.0;
            let x = (near * (1.0 - t) + a) * from + (b + far * t) * to;
            let y = near * (1.0 - t) * top + (a + b) * middle + far * t * bottom;
            (x, y)
        })
    });
    points.collect()
}

#[test]
fn no_line_and_no_box_crosses_the_shape_of_a_value() {
    for (len, reach, nested) in [(80, 6, false), (300, 20, true), (200, 200, false)] {
        let mut scene = random_scene(len, reach, nested);
        for (at, node) in scene.nodes.iter_mut().enumerate() {
            let shapes = [
                None,
                Some("1×768"),
                Some("1×3×224×224"),
                Some("1×12×197×197×64"),
            ];
            node.shape = shapes[at % shapes.len()].map(str::to_owned);
        }
        let mut checked = 0;
        for opening in [Opening::All, Opening::Depth(1)] {
            check(&scene, &opening);
            let picture = Picture::of(&scene, &levels(&scene), &opening);
            for &(value, x, y) in &picture.labels {
                let reach = label_reach(&scene.nodes[value as usize]);
                if reach == 0.0 {
                    continue;
                }
                let (left, right) = (x + LABEL_MARGIN - 1.0, x + reach - LABEL_MARGIN);
                let (top, bottom) = (y + 4.0, y + 14.0);
                let inside = |&(x, y): &(f64, f64)| left < x && x < right && top < y && y < bottom;
                for wire in picture.wires.iter().filter(|wire| !wire.straight) {
                    let crossing = course(wire, 64).into_iter().find(inside);
                    assert_eq!(crossing, None, "value {value}: {wire:?}");
                }
                let mut solid = picture.boxes.iter();
                let covering = solid.find(|shape| {
                    !matches!(shape.content, Content::Open(_))
                        && shape.x < right
                        && shape.x + shape.width > left
                        && shape.y < bottom
                        && shape.y + shape.height > top
                });
                assert_eq!(covering, None, "value {value}");
                assert!(right <= picture.width, "value {value}");
                checked += 1;
            }
        }
        assert!(checked > len / 4, "{checked}");
    }
}

#[test]
fn no_line_that_comes_in_crosses_the_title_of_a_module() {
    let mut checked = 0;
    for (len, reach, nested) in [(80, 6, true), (300, 20, true), (200, 200, true)] {
        let mut scene = random_scene(len, reach, nested);
        let titles = [
            "downsample",
            "0",
            "a module with a name that is rather long",
        ];
        for (at, group) in scene.groups.iter_mut().enumerate() {
            titles[at % titles.len()].clone_into(&mut group.title);
        }
        let picture = Picture::of(&scene, &levels(&scene), &Opening::All);
        for shape in &picture.boxes {
            let Content::Open(group) = shape.content else {
                continue;
            };
            let (left, room) = shape.title;
            let title = title_width(&scene.groups[group as usize]);
            assert!(room > title - 0.5, "{room} for {title}");
            assert!(left >= shape.x + 11.9 && left + room <= shape.x + shape.width - 7.9);
            let (left, right) = (left - 4.0, left + title + 4.0);
            let (top, bottom) = (shape.y + 8.0, shape.y + 24.0);
            for wire in picture.wires.iter().filter(|wire| !wire.straight) {
                let passes = |pair: &[(f64, f64)]| pair[0].1 < bottom && pair[1].1 > top;
                checked += usize::from(wire.points.windows(2).any(passes));
                let inside = |&(x, y): &(f64, f64)| left < x && x < right && top < y && y < bottom;
                let crossing = course(wire, 64).into_iter().find(inside);
                assert_eq!(crossing, None, "{group}: {wire:?} {shape:?}");
            }
        }
    }
    assert!(checked > 50, "{checked}");
}

/// Blocks as in a transformer, whose input goes through a chain and past it and whose outlet is not
/// below the inlet, stand below each other.
#[test]
fn blocks_in_a_row_are_below_each_other() {
    let mut graph = Graph::new();
    let add = graph.function("operator.add");
    let mut notes = Notes::default();
    let mut x = graph.placeholder("x").expect("no arguments");
    for block in 0..6 {
        let inside = |method: &str, graph: &mut Graph, arg| {
            let id = graph.call_method(method, [Arg::from(arg)]);
            id.expect("a node of this graph")
        };
        let size = inside("size", &mut graph, x);
        let check = inside("check", &mut graph, size);
        let neg = inside("neg", &mut graph, x);
        let exp = inside("exp", &mut graph, neg);
        let sum = graph
            .call_function(add, [exp.into(), x.into()])
            .expect("nodes of this graph");
        for id in [size, check, neg, exp, sum] {
            let call = ModuleCall {
                path: format!("block{block}"),
                ..ModuleCall::default()
            };
            let modules = Some(vec![call]);
            notes.insert(
                id,
                Note {
                    modules,
                    ..Note::default()
                },
            );
        }
        x = sum;
    }
    graph.output(x).expect("a node of this graph");
    let scene = Scene::with(&graph, &notes, &corsac_ir::NoHost);
    let picture = Picture::of(&scene, &levels(&scene), &Opening::All);
    let frames: Vec<&BoxShape> = picture
        .boxes
        .iter()
        .filter(|shape| matches!(shape.content, Content::Open(_)))
        .collect();
    assert_eq!(frames.len(), 6);
    for frame in &frames {
        assert!((frame.x - frames[0].x).abs() < 0.1, "{frame:?}");
        assert!((frame.width - frames[0].width).abs() < 0.1, "{frame:?}");
    }
    // Between two blocks the line is upright.
    for wire in &picture.wires {
        let between = frames.windows(2).any(|pair| {
            let (above, below) = (pair[0].y + pair[0].height, pair[1].y);
            wire.points[0].1 >= above - 1.0 && wire.points.iter().all(|&(_, y)| y <= below + 1.0)
        });
        if between {
            let x = wire.points[0].0;
            assert!(wire.points.iter().all(|point| (point.0 - x).abs() < 0.1));
        }
    }
}

#[test]
fn no_graph_is_laid_out() {
    let picture = Picture::of(&Scene::default(), &levels(&Scene::default()), &Opening::All);
    assert_eq!((picture.width, picture.height), (0.0, 0.0));
}

#[test]
fn a_chain_is_a_straight_line() {
    let scene = Scene::of(&chain(20));
    let picture = Picture::of(&scene, &levels(&scene), &Opening::All);
    let middle = |shape: &BoxShape| shape.x + shape.width / 2.0;
    let first = middle(&picture.boxes[0]);
    assert!(
        picture
            .boxes
            .iter()
            .all(|shape| (middle(shape) - first).abs() < 1e-6)
    );
}

#[test]
fn a_line_past_nodes_goes_around_them() {
    let scene = Scene::of(&parse(
        "graph v1:
    %x = placeholder[target=x]
    %a = call_method[target=neg](args = (%x,), kwargs = {})
    %b = call_method[target=neg](args = (%a,), kwargs = {})
    %c = call_function[target=operator.add](args = (%b, %x), kwargs = {})
    %o = output[target=output](args = (%c,), kwargs = {})",
    ));
    let picture = Picture::of(&scene, &levels(&scene), &Opening::All);
    let shape = |node| {
        let mut boxes = picture.boxes.iter();
        boxes
            .find(|shape| shape.content == Content::Node(node))
            .copied()
            .unwrap()
    };
    let (a, b) = (shape(1), shape(2));
    let bypass = picture
        .wires
        .iter()
        .find(|wire| wire.points.len() > 5)
        .unwrap();
    for &(x, y) in &bypass.points {
        for node in [a, b] {
            let inside =
                node.x < x && x < node.x + node.width && node.y < y && y < node.y + node.height;
            assert!(!inside, "{x} {y} is in {node:?}");
        }
    }
}

#[test]
fn modules_that_use_each_other_are_drawn() {
    // Calls of `a` and `b` are interleaved: as boxes, each uses the other.
    let scene = Scene::of(&parse(
        "graph v1:
    %x = placeholder[target=x]
    %p = call_module[target=a.p](args = (%x,), kwargs = {})
    %q = call_module[target=b.q](args = (%p,), kwargs = {})
    %r = call_module[target=a.r](args = (%q,), kwargs = {})
    %s = call_module[target=b.s](args = (%r,), kwargs = {})
    %o = output[target=output](args = (%s,), kwargs = {})",
    ));
    check(&scene, &Opening::All);
    check(&scene, &Opening::Depth(0));
    assert!(levels(&scene)[0].nets.iter().any(|net| net.straight));
}

#[test]
fn parameters_are_above_their_users() {
    let scene = Scene::of(&parse(
        "graph v1:
    %x = placeholder[target=x]
    %w = get_attr[target=w]
    %a = call_method[target=neg](args = (%x,), kwargs = {})
    %b = call_method[target=neg](args = (%a,), kwargs = {})
    %c = call_function[target=operator.add](args = (%b, %w), kwargs = {})
    %o = output[target=output](args = (%c,), kwargs = {})",
    ));
    let routes = place::Routes::of(&levels(&scene)[0]);
    assert_eq!(routes.item_at[1].0, 2);
    assert_eq!(routes.item_at[4].0, 3);
}

#[test]
fn residual_lines_do_not_cross() {
    let scene = random_residual(30);
    let level = &levels(&scene)[0];
    let widest = level.layers.iter().map(Vec::len).max();
    assert_eq!(widest, Some(2));
}

/// `x = x + neg(neg(x))`, again and again.
fn random_residual(blocks: usize) -> Scene {
    let mut graph = Graph::new();
    let add = graph.function("operator.add");
    let mut x = graph.placeholder("x").expect("no arguments");
    for _ in 0..blocks {
        let a = graph
            .call_method("neg", [x.into()])
            .expect("a node of this graph");
        let b = graph
            .call_method("neg", [a.into()])
            .expect("a node of this graph");
        x = graph
            .call_function(add, [b.into(), x.into()])
            .expect("nodes of this graph");
    }
    graph.output(x).expect("a node of this graph");
    Scene::of(&graph)
}

/// Layouts stay linear in the graph whatever its lines: a graph of long ones has a bounded number
/// of bends, and so of slots, which are all that there is to sort and to place.
#[test]
fn slots_are_linear_in_the_graph() {
    // A chain in which every node also uses the one half way back: lines as long as the graph.
    let mut graph = Graph::new();
    let add = graph.function("operator.add");
    let mut nodes = vec![graph.placeholder("x").expect("no arguments")];
    for at in 0..3_000 {
        let args = [nodes[at].into(), nodes[at / 2].into()];
        nodes.push(graph.call_function(add, args).expect("nodes of this graph"));
    }
    let scene = Scene::of(&graph);
    let level = &levels(&scene)[0];
    let slots: usize = level.layers.iter().map(Vec::len).sum();
    assert!(
        level.nets.iter().any(|net| net.straight),
        "too few long lines to be a test"
    );
    assert!(
        slots <= (BENDS_PER_ITEM + 1) * level.items.len() + 1000,
        "{slots}"
    );
}

/// The limit is far above the measured time (0.03 to 0.2 s for 10,000 nodes in a release build),
/// and far below the time of a quadratic layout.
#[test]
fn ten_thousand_nodes_are_laid_out_quickly() {
    for (reach, nested) in [(50, false), (1_000_000, false), (50, true)] {
        let scene = random_scene(10_000, reach, nested);
        let start = Instant::now();
        let picture = Picture::of(&scene, &levels(&scene), &Opening::All);
        let took = start.elapsed().as_secs_f64();
        println!("reach {reach}, nested {nested}: {took:.3} s");
        assert_eq!(picture.boxes.len(), 10_002 + scene.groups.len());
        assert!(took < 20.0, "{took} s");
    }
}
