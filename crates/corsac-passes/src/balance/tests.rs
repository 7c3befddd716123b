use std::collections::BTreeSet;

use corsac_ir::{Graph, NodeId, SecondaryMap};
use corsac_ops::Unhosted;
use corsac_ops::shape::Value;
use proptest::prelude::*;

use super::*;

/// Bytes of a part by the definition.
fn memory_of(chain: &Chain, request: &Request, part: usize, calls: Range<usize>) -> u64 {
    let used: BTreeSet<u32> = chain.weights[calls.clone()]
        .iter()
        .flatten()
        .copied()
        .collect();
    let weights = used.iter().map(|&weight| &chain.sizes[weight as usize]);
    let live = |first: usize, end: usize| {
        let live = chain
            .buffers
            .iter()
            .filter(|b| b.first < end && b.last >= first);
        live.map(|buffer| buffer.bytes).sum::<u64>()
    };
    match request.training {
        None => {
            let most = calls.map(|call| live(call, call + 1)).max().unwrap();
            weights.map(|weight| weight.bytes).sum::<u64>() + most
        }
        Some(Training {
            states,
            microbatches,
        }) => {
            let in_flight = microbatches.min((request.parts - part) as u64);
            let weights = weights.map(|own| own.bytes + (1 + states) * own.trained);
            weights.sum::<u64>() + in_flight * live(calls.start, calls.end)
        }
    }
}

fn seconds_of(chain: &Chain, request: &Request, calls: Range<usize>) -> f64 {
    let sent = chain.crossing[calls.start] + chain.crossing[calls.end];
    let sent = request
        .bandwidth
        .map_or(0.0, |bandwidth| sent as f64 / bandwidth);
    chain.work[calls].iter().sum::<f64>() + sent
}

/// All cuts, as lists of borders with both ends.
fn all_cuts(chain: &Chain, parts: usize) -> Vec<Vec<usize>> {
    let borders = chain.borders();
    let mut cuts = vec![vec![0]];
    for part in 1..=parts {
        cuts = (cuts.iter())
            .flat_map(|cut| {
                let later = borders.iter().filter(|&&border| border > cut[part - 1]);
                later.map(|&border| [cut.as_slice(), &[border]].concat())
            })
            .collect();
    }
    cuts.retain(|cut| cut[parts] == chain.work.len());
    cuts
}

/// Of each cut, the memory that its largest part needs, the time of its slowest part, and its traffic.
fn judged(chain: &Chain, request: &Request) -> Vec<(u64, f64, u64)> {
    let judge = |cut: &Vec<usize>| {
        let parts = || cut.windows(2).map(|ends| ends[0]..ends[1]).enumerate();
        let memory = parts().map(|(part, calls)| memory_of(chain, request, part, calls));
        let seconds = parts().map(|(_, calls)| seconds_of(chain, request, calls));
        let traffic = cut.iter().map(|&border| chain.crossing[border]);
        (
            memory.max().unwrap(),
            seconds.fold(0.0, f64::max),
            traffic.sum(),
        )
    };
    all_cuts(chain, request.parts).iter().map(judge).collect()
}

fn chains() -> impl Strategy<Value = Chain> {
    let call = (
        0_u32..20,
        0_u64..16,
        prop::bool::weighted(0.8),
        prop::collection::vec(0_u32..5, 0..3),
    );
    let sizes = prop::collection::vec((0_u64..30, any::<bool>()), 5);
    let buffers = prop::collection::vec((0_u64..20, 0_usize..10, 0_usize..10), 0..8);
    (prop::collection::vec(call, 1..10), sizes, buffers).prop_map(|(calls, sizes, buffers)| {
        let len = calls.len();
        let mut chain = Chain::of_work(&[]);
        for (work, crossing, may_end, weights) in calls {
            chain.work.push(f64::from(work));
            chain.crossing.push(crossing);
            chain.may_end.push(may_end);
            chain.weights.push(weights);
        }
        (chain.crossing[len], chain.may_end[len]) = (0, true);
        let trained = |(bytes, trains)| WeightBytes {
            bytes,
            trained: if trains { bytes } else { 0 },
        };
        chain.sizes = sizes.into_iter().map(trained).collect();
        let buffer = |(bytes, a, b): (u64, usize, usize)| Buffer {
            bytes,
            first: (a % len).min(b % (len + 1)),
            last: (a % len).max(b % (len + 1)),
        };
        chain.buffers = buffers.into_iter().map(buffer).collect();
        chain
    })
}

fn requests() -> impl Strategy<Value = Request> {
    let training = prop::option::of((0_u64..3, 1_u64..5));
    let bandwidth = prop::option::of(prop::sample::select(vec![0.5, 1.0, 4.0]));
    let memory = prop::option::of(0_u64..250);
    (1_usize..5, memory, bandwidth, training).prop_map(|(parts, memory, bandwidth, training)| {
        Request {
            parts,
            memory,
            bandwidth,
            training: training.map(|(states, microbatches)| Training {
                states,
                microbatches,
            }),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// No cut has a faster slowest part, and of those with an equally fast one none has less traffic; where none
    /// fits into memory, the least bound is the least with which one does.
    #[test]
    fn no_cut_is_better(chain in chains(), request in requests()) {
        let all = judged(&chain, &request);
        let bound = request.memory.unwrap_or(u64::MAX);
        let best = all
            .iter()
            .filter(|(memory, ..)| *memory <= bound)
            .map(|(_, seconds, traffic)| (*seconds, *traffic))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        match (balance(&chain, &request), best) {
            (Ok(cut), Some(best)) => {
                let ends = [&[0], cut.borders.as_slice(), &[chain.work.len()]].concat();
                prop_assert!(ends.iter().all(|&end| chain.may_end[end]));
                let traffic: u64 = cut.borders.iter().map(|&border| chain.crossing[border]).sum();
                prop_assert_eq!((cut.seconds.iter().copied().fold(0.0, f64::max), traffic), best);
                for (part, ends) in ends.windows(2).enumerate() {
                    prop_assert!(ends[0] < ends[1]);
                    let memory = memory_of(&chain, &request, part, ends[0]..ends[1]);
                    prop_assert_eq!(cut.memory[part], memory);
                    prop_assert!(memory <= bound);
                    prop_assert_eq!(cut.seconds[part], seconds_of(&chain, &request, ends[0]..ends[1]));
                }
            }
            (Err(BalanceError::TooManyParts { possible, .. }), None) => {
                prop_assert_eq!(possible, chain.borders().len() - 1);
                prop_assert!(possible < request.parts);
            }
            (Err(BalanceError::CallTooLarge { calls, needed, memory, least }), None) => {
                prop_assert_eq!(memory, bound);
                prop_assert_eq!(Some(least), all.iter().map(|(memory, ..)| *memory).min());
                prop_assert_eq!(memory_of(&chain, &request, request.parts - 1, calls), needed);
                prop_assert!(needed > bound);
            }
            (Err(BalanceError::TooLittleMemory { parts, memory, least }), None) => {
                prop_assert_eq!((parts, memory), (request.parts, bound));
                prop_assert_eq!(Some(least), all.iter().map(|(memory, ..)| *memory).min());
                let borders = chain.borders();
                for calls in borders.windows(2).map(|ends| ends[0]..ends[1]) {
                    prop_assert!(memory_of(&chain, &request, request.parts - 1, calls) <= bound);
                }
            }
            (found, best) => prop_assert!(false, "{found:?} where the best is {best:?}"),
        }
    }
}

#[test]
fn times_are_exact_to_the_last_bit() {
    // Sums that differ in the last bits only.
    let tiny = f64::EPSILON;
    let chain = Chain::of_work(&[1.0, 1.0 + tiny, 1.0, 1.0 + 2.0 * tiny, 1.0]);
    let cut = balance(&chain, &Request::parts(4)).unwrap();
    assert_eq!(cut.borders, [1, 3, 4]);
    let chain = Chain::of_work(&[1.0, 1.0 + 4.0 * tiny, 1.0 + tiny, 1.0]);
    assert_eq!(balance(&chain, &Request::parts(3)).unwrap().borders, [1, 2]);
}

#[test]
fn extreme_times_are_no_problem() {
    for seconds in [0.0, f64::MIN_POSITIVE / 4.0, 1e-300, 1e300] {
        let cut = balance(&Chain::of_work(&[seconds; 6]), &Request::parts(3)).unwrap();
        assert_eq!(cut.borders.len(), 2, "{seconds}");
        if seconds > 0.0 {
            assert_eq!(cut.borders, [2, 4], "{seconds}");
        }
    }
}

#[test]
fn what_is_no_number_is_refused() {
    let parts = Request::parts(1);
    for seconds in [f64::NAN, f64::INFINITY, -1.0] {
        let refused = balance(&Chain::of_work(&[1.0, seconds]), &parts);
        assert!(matches!(refused, Err(BalanceError::Time { call: 1, .. })));
    }
    for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let request = Request {
            bandwidth: Some(bandwidth),
            ..parts.clone()
        };
        let refused = balance(&Chain::of_work(&[1.0]), &request);
        assert!(matches!(refused, Err(BalanceError::Bandwidth(_))));
    }
    for parts in [0, 2] {
        let refused = balance(&Chain::of_work(&[1.0]), &Request::parts(parts));
        assert_eq!(
            refused,
            Err(BalanceError::TooManyParts { possible: 1, parts })
        );
    }
    assert!(balance(&Chain::of_work(&[]), &parts).is_err());
}

#[test]
fn a_weight_of_two_parts_counts_in_both_and_once_in_each() {
    let mut chain = Chain::of_work(&[1.0; 4]);
    chain.weights = vec![vec![0], vec![0], vec![1], vec![0]];
    chain.sizes = [10, 3]
        .map(|bytes| WeightBytes {
            bytes,
            trained: bytes,
        })
        .to_vec();
    let mut request = Request::parts(2);
    assert_eq!(balance(&chain, &request).unwrap().memory, [10, 13]);
    // Weight, gradient, two copies of Adam; of each of two buffers two copies, and then one.
    chain.buffers = vec![
        Buffer {
            bytes: 1,
            first: 0,
            last: 0,
        },
        Buffer {
            bytes: 2,
            first: 1,
            last: 2,
        },
    ];
    request.training = Some(Training {
        states: 2,
        microbatches: 8,
    });
    assert_eq!(
        balance(&chain, &request).unwrap().memory,
        [40 + 2 * 3, 52 + 2]
    );
}

/// The chain of a graph whose values have no types, and where parts may end.
fn may_end(text: &str) -> Vec<bool> {
    let graph = Graph::parse(text).unwrap();
    let unknown = Value::Object;
    let none: SecondaryMap<NodeId, Vec<u32>> = SecondaryMap::new();
    let facts = Facts {
        value: &|_| &unknown,
        weights: &|node| none.get(node),
        sizes: &[],
    };
    let (chain, calls) = Chain::of_graph(&graph, &Unhosted, &facts, Crossing::Anything).unwrap();
    assert_eq!(chain.may_end.len(), calls.len() + 1);
    chain.may_end
}

#[test]
fn no_border_parts_two_names_of_what_is_written_later() {
    let ends = may_end(
        "graph v1:
        %x = placeholder[target=x]
        %a = call_method[target=neg](args = (%x,), kwargs = {})
        %v = call_method[target=view](args = (%a, -1), kwargs = {})
        %b = call_method[target=cos](args = (%x,), kwargs = {})
        %w = call_method[target=zero_](args = (%v,), kwargs = {})
        %c = call_method[target=mul](args = (%a, %b), kwargs = {})
        %output = output[target=output](args = (%c,), kwargs = {})",
    );
    // Between `a` and `v` one name crosses; `a` and `v` cross together until the write is done.
    assert_eq!(ends, [true, true, false, false, true, true]);
}

#[test]
fn one_name_may_cross_before_it_is_written() {
    let ends = may_end(
        "graph v1:
        %x = placeholder[target=x]
        %a = call_method[target=neg](args = (%x,), kwargs = {})
        %b = call_method[target=cos](args = (%a,), kwargs = {})
        %w = call_method[target=add_](args = (%a, %b), kwargs = {})
        %c = call_method[target=exp](args = (%w,), kwargs = {})
        %output = output[target=output](args = (%c,), kwargs = {})",
    );
    assert_eq!(ends, [true; 5]);
}

#[test]
fn uses_of_a_written_input_stay_together() {
    let ends = may_end(
        "graph v1:
        %x = placeholder[target=x]
        %y = placeholder[target=y]
        %a = call_method[target=neg](args = (%y,), kwargs = {})
        %b = call_method[target=cos](args = (%x,), kwargs = {})
        %c = call_method[target=add](args = (%a, %b), kwargs = {})
        %w = call_method[target=add_](args = (%x, %c), kwargs = {})
        %d = call_method[target=exp](args = (%c,), kwargs = {})
        %output = output[target=output](args = (%d,), kwargs = {})",
    );
    assert_eq!(ends, [true, true, false, false, true, true]);
}
