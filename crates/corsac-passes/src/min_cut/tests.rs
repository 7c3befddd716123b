use proptest::prelude::*;

use super::*;

/// A network of `vertices` vertices besides source (0) and sink (1), with these arcs.
fn network(vertices: u32, arcs: &[(u32, u32, Option<u128>)]) -> Network {
    let mut network = Network::new();
    (0..vertices).for_each(|_| {
        network.vertex();
    });
    for &(from, to, amount) in arcs {
        let capacity = amount.map_or(Capacity::UNLIMITED, Capacity::of);
        network.arc(Vertex(from), Vertex(to), capacity);
    }
    network
}

/// The cheapest cut and the vertices that are with the sink in all cheapest cuts, by trying all.
fn tried(vertices: u32, arcs: &[(u32, u32, Option<u128>)]) -> Option<(u128, u32)> {
    let mut best: Option<(u128, u32)> = None;
    for with_sink in 0..1_u32 << vertices {
        let with_sink = with_sink << 2 | 0b10;
        let mut crossing = arcs
            .iter()
            .filter(|&&(from, to, _)| with_sink >> from & 1 == 0 && with_sink >> to & 1 == 1);
        let Some(cost) = crossing.try_fold(0, |sum, arc| Some(sum + arc.2?)) else {
            continue;
        };
        best = match best {
            Some((least, common)) if least == cost => Some((least, common & with_sink)),
            Some((least, common)) if least < cost => Some((least, common)),
            _ => Some((cost, with_sink)),
        };
    }
    best
}

#[test]
fn nothing_between_source_and_sink_costs_nothing() {
    let cut = Network::new().min_cut().unwrap();
    assert_eq!(cut.cost(), 0);
    assert!(cut.is_with_sink(Network::SINK) && !cut.is_with_sink(Network::SOURCE));
}

#[test]
fn what_may_not_be_cut_is_not() {
    assert!(
        network(1, &[(0, 2, None), (2, 1, None)])
            .min_cut()
            .is_none()
    );
    assert!(network(0, &[(0, 1, None)]).min_cut().is_none());
    let cut = network(2, &[(0, 2, None), (2, 3, Some(7)), (3, 1, None)]);
    assert_eq!(cut.min_cut().unwrap().cost(), 7);
}

#[test]
fn parallel_arcs_add_up() {
    let cut = network(
        1,
        &[
            (0, 2, Some(3)),
            (0, 2, Some(4)),
            (2, 1, Some(6)),
            (0, 1, Some(5)),
        ],
    );
    let cut = cut.min_cut().unwrap();
    assert_eq!(cut.cost(), 11);
    assert!(!cut.is_with_sink(Vertex(2)));
}

/// The maximum flow of this grid needs flow to be taken back.
#[test]
fn flows_are_taken_back() {
    let arcs = [
        (0, 2, Some(1)),
        (0, 3, Some(1)),
        (2, 4, Some(1)),
        (2, 5, Some(1)),
        (3, 4, Some(1)),
        (4, 1, Some(1)),
        (5, 1, Some(1)),
    ];
    assert_eq!(network(4, &arcs).min_cut().unwrap().cost(), 2);
}

/// On these chains, algorithms that find one shortest path after the other take quadratic time.
#[test]
fn chains_take_time_in_proportion() {
    let count = 200_000;
    let mut arcs = Vec::new();
    for at in 0..count {
        let vertex = 2 + at;
        arcs.push((0, vertex, Some(1)));
        let next = if at + 1 == count { 1 } else { vertex + 1 };
        arcs.push((vertex, next, Some(u128::from(at / 2 + 1))));
    }
    let cut = network(count, &arcs).min_cut().unwrap();
    assert_eq!(cut.cost(), u128::from((count - 1) / 2 + 1));
}

/// Arcs between up to seven vertices, one in six of them unlimited.
fn any_arcs() -> impl Strategy<Value = (u32, Vec<(u32, u32, Option<u128>)>)> {
    (1..7_u32).prop_flat_map(|vertices| {
        let end = 0..vertices + 2;
        let amount = prop_oneof![5 => (0..9_u128).prop_map(Some), 1 => Just(None)];
        let arcs = prop::collection::vec((end.clone(), end, amount), 0..24);
        (Just(vertices), arcs)
    })
}

proptest! {
    #[test]
    fn cuts_are_those_that_trying_all_finds((vertices, arcs) in any_arcs()) {
        let cut = network(vertices, &arcs).min_cut();
        let tried = tried(vertices, &arcs);
        prop_assert_eq!(cut.is_some(), tried.is_some());
        if let (Some(cut), Some((cost, with_sink))) = (cut, tried) {
            prop_assert_eq!(cut.cost(), cost);
            for vertex in 0..vertices + 2 {
                let expected = with_sink >> vertex & 1 == 1;
                prop_assert_eq!(cut.is_with_sink(Vertex(vertex)), expected, "vertex {}", vertex);
            }
        }
    }
}
