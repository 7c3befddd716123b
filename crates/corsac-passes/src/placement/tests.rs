//! Placements, compared with results worked out by hand, and with all possible ones.

use corsac_ir::{Arg, Graph, NodeId};
use corsac_testkit::{chain, parse};

use super::*;

fn names(graph: &Graph, part: &PlacedPart) -> String {
    let names = part.nodes.iter().map(|&node| graph.node(node).name());
    format!(
        "{} on {:?}",
        names.collect::<Vec<_>>().join(" "),
        part.devices
    )
}

fn shown(graph: &Graph, parts: &[PlacedPart]) -> Vec<String> {
    parts.iter().map(|part| names(graph, part)).collect()
}

fn devices(bytes: &[i64]) -> Vec<Device> {
    let devices = bytes.iter().zip(0..);
    devices.map(|(&bytes, id)| Device { bytes, id }).collect()
}

const TEN: Bytes = Bytes {
    output: 10,
    total: 10,
};

/// Two branches of one input that meet again.
const DIAMOND: &str = "graph v1:
    %x = placeholder[target=x]
    %a = call_method[target=neg](args = (%x,), kwargs = {})
    %b = call_method[target=exp](args = (%a,), kwargs = {})
    %c = call_method[target=sin](args = (%x,), kwargs = {})
    %d = call_function[target=operator.add](args = (%b, %c), kwargs = {})
    %o = output[target=output](args = (%d,), kwargs = {})";

#[test]
fn devices_are_filled_in_order() {
    let graph = parse(DIAMOND);
    let program = Program::of(&graph, |_| TEN);
    // `a` needs 20 bytes, its own and those of `x`; `c` needs 20 where there is no `x`.
    let parts = by_size(&program, &devices(&[35, 100])).expect("there is room");
    assert_eq!(shown(&graph, &parts), ["x a b on [0]", "x c d on [1]"]);
    // Calls left when all devices have a part go where there is room.
    let parts = by_size(&program, &devices(&[25, 35])).expect_err("too little");
    assert_eq!(parts, PlacementError::NoDevice);
    let parts = by_size(&program, &devices(&[25, 90])).expect("there is room");
    assert_eq!(shown(&graph, &parts), ["x a on [0]", "x b c d on [1]"]);
    let error = by_size(&program, &devices(&[15, 15])).expect_err("too little");
    assert_eq!(error.to_string(), "a is too large to fit any device");
}

#[test]
fn parts_are_combined_as_long_as_that_saves_time() {
    let graph = parse(DIAMOND);
    let program = Program::of(&graph, |_| TEN);
    let times = Times::of(&program, 1.0, |_| 1.0);
    // Moving a value takes ten seconds: everything that fits goes together.
    let parts = by_cost(&program, &devices(&[1000, 1000]), &times);
    assert_eq!(shown(&graph, &parts), ["x a b c d on [0]"]);
    // Three values fit on a device, and one has to be moved.
    let parts = by_cost(&program, &devices(&[60, 60]), &times);
    for part in &parts {
        assert_eq!(part.devices.len(), 1, "{}", names(&graph, part));
    }
}

/// For small programs, the time found equals that of the best assignment of calls to two parts.
#[test]
fn exchange_finds_what_is_best_on_small_programs() {
    let graph = parse(DIAMOND);
    let program = Program::of(&graph, |_| TEN);
    let times = Times::of(&program, 1.0, |_| 1.0);
    let devices = devices(&[70, 70]);
    let begun = search::by_size(&program, &devices).expect("there is room");
    let time = |parts: &[Part]| {
        let relations = part::Relations::of(&program, parts);
        times.of_all(&program, parts, &relations)
    };
    let found = search::by_exchange(&program, &devices, &times).expect("there is room");
    assert!(time(&found) <= time(&begun));
    let calls: Vec<usize> = program.calls().collect();
    let mut best = f64::INFINITY;
    for choice in 0..1_u32 << calls.len() {
        let mut parts = vec![Part::empty(&program), Part::empty(&program)];
        for (at, &call) in calls.iter().enumerate() {
            parts[(choice >> at & 1) as usize].add(&program, call);
        }
        parts.retain(|part| !part.nodes.is_empty());
        let relations = part::Relations::of(&program, &parts);
        if (0..parts.len()).any(|part| relations.is_in_cycle(part)) {
            continue;
        }
        if super::devices::assign(&program, &mut parts, &devices) {
            best = best.min(time(&parts));
        }
    }
    assert!(best.is_finite());
    assert!(
        (time(&found) - best).abs() < 1e-9,
        "{} {best}",
        time(&found)
    );
}

#[test]
fn embeddings_have_devices_of_their_own() {
    let graph = parse(
        "graph v1:
    %i = placeholder[target=i]
    %x = placeholder[target=x]
    %first = call_module[target=first](args = (%i,), kwargs = {})
    %linear = call_module[target=linear](args = (%x,), kwargs = {})
    %add = call_function[target=operator.add](args = (%first, %linear), kwargs = {})
    %second = call_module[target=second](args = (%i,), kwargs = {})
    %sum = call_function[target=operator.add](args = (%add, %second), kwargs = {})
    %o = output[target=output](args = (%sum,), kwargs = {})",
    );
    let is_embedding = |node: NodeId| ["first", "second"].contains(&graph.node(node).name());
    let bytes = |node| match is_embedding(node) {
        true => Bytes {
            output: 10,
            total: 100,
        },
        false => TEN,
    };
    let program = Program::of(&graph, bytes);
    let place = |count: usize, bytes| {
        let devices = devices(&vec![bytes; count]);
        with_embeddings(&program, &devices, bytes, is_embedding)
    };
    let parts = place(2, 190).expect("there is room");
    let mut embeddings = 0;
    for part in &parts {
        if part.nodes.iter().any(|&node| is_embedding(node)) {
            assert_eq!(part.devices.len(), 1, "{}", names(&graph, part));
            embeddings += 1;
        } else {
            assert_eq!(part.devices, [0, 1], "{}", names(&graph, part));
        }
    }
    assert_eq!(embeddings, 2);
    assert_eq!(
        place(1, 190),
        Err(PlacementError::TooFewDevices {
            needed: 2,
            given: 1
        })
    );
    assert_eq!(
        place(2, 90),
        Err(PlacementError::TooLargeForOne {
            target: "first".to_owned()
        })
    );
}

/// Every call of a random program is in one part, parts fit on their devices, and there are no
/// cycles of parts.
#[test]
fn placements_of_random_programs_hold() {
    let mut state = 7_u64;
    let mut random = |below: usize| {
        // Knuth's MMIX generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..40 {
        let mut graph = Graph::new();
        let cat = graph.function("torch.cat");
        let mut nodes = vec![graph.placeholder("x").expect("no arguments")];
        for _ in 0..12 {
            let args: Vec<Arg> = (0..1 + random(2))
                .map(|_| nodes[random(nodes.len())].into())
                .collect();
            nodes.push(graph.call_function(cat, args).expect("nodes of this graph"));
        }
        graph.output(nodes[12]).expect("a node of this graph");
        let sizes: Vec<i64> = (0..graph.id_bound())
            .map(|_| 1 + random(20) as i64)
            .collect();
        let bytes = |node: NodeId| {
            let output = sizes[corsac_ir::EntityId::index(node)];
            Bytes {
                output,
                total: output,
            }
        };
        let program = Program::of(&graph, bytes);
        let times = Times::of(&program, 3.0, |node| bytes(node).output as f64);
        let devices = devices(&[400, 300, 300]);
        let all = [
            search::by_size(&program, &devices).expect("there is room"),
            search::by_exchange(&program, &devices, &times).expect("there is room"),
            search::by_cost(&program, &devices, &times),
        ];
        for parts in &all {
            let relations = part::Relations::of(&program, parts);
            assert_eq!(relations.order().len(), parts.len(), "round {round}");
            for call in program.calls() {
                let homes = parts.iter().filter(|part| part.nodes.contains(call));
                assert_eq!(homes.count(), 1, "round {round}");
            }
            for part in parts {
                let [device] = part.devices[..] else {
                    panic!("round {round}: on {:?}", part.devices);
                };
                assert!(
                    part.bytes <= devices[device as usize].bytes,
                    "round {round}"
                );
            }
        }
        let time =
            |parts: &[Part]| times.of_all(&program, parts, &part::Relations::of(&program, parts));
        assert!(time(&all[1]) <= time(&all[0]) + 1e-9, "round {round}");
    }
}

/// The time limit is far above the time it takes, and far below that of an unbounded search.
#[test]
fn a_hundred_calls_are_placed_by_cost() {
    let graph = chain(100);
    let program = Program::of(&graph, |_| TEN);
    let times = Times::of(&program, 1.0, |_| 1.0);
    let start = std::time::Instant::now();
    let parts = by_cost(&program, &devices(&[600, 600]), &times);
    assert!(start.elapsed().as_secs() < 60);
    let calls: usize = parts.iter().map(|part| part.nodes.len()).sum();
    assert!(calls >= 100);
}
