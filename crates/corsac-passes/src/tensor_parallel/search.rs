//! The cheapest choice for each node, found in the order of the graph.

use corsac_ir::{Graph, Op};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::costs::Costs;
use super::options::{Choice, Choices, ValueFacts};
use super::{Placement, Plan, Planned, Problem, WIDTH};

/// How ranks hold the values that are needed later.
type State = SmallVec<[Held; 8]>;

/// How ranks hold a value, and what is paid for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Held {
    /// The number of its placement.
    own: u16,
    /// Whether the sum of its gradients is paid for.
    summed: bool,
    /// The placements that it was changed to, too, as a set of bits.
    made: u32,
}

impl Held {
    fn as_made(own: usize) -> Self {
        Self {
            own: own as u16,
            summed: false,
            made: 0,
        }
    }

    fn has(self, placement: usize) -> bool {
        usize::from(self.own) == placement || (placement < 32 && self.made & (1 << placement) != 0)
    }
}

/// How a partial plan came about: the one before, the choice of the last node, whether its result is
/// replicated.
#[derive(Clone, Copy)]
struct Step {
    before: u32,
    choice: u16,
    replicated: bool,
}

/// The cheapest plan of all choices.
pub(super) fn cheapest(
    graph: &Graph,
    problem: &Problem<'_>,
    choices: Choices,
) -> Result<Plan, String> {
    let costs = Costs::of(problem);
    let last = last_uses(graph, &choices);
    let mut live: Vec<usize> = Vec::new();
    let mut steps: Vec<Step> = vec![Step {
        before: 0,
        choice: 0,
        replicated: false,
    }];
    let mut states: Vec<(State, f64, u32)> = vec![(State::new(), 0.0, 0)];
    for (at, &value) in choices.order.iter().enumerate() {
        let facts = &choices.values[value];
        let mut place: FxHashMap<usize, usize> = FxHashMap::default();
        for (slot, &own) in live.iter().enumerate() {
            place.insert(own, slot);
        }
        let kept: Vec<usize> = (0..live.len())
            .filter(|&slot| last[live[slot]] > at)
            .collect();
        let is_live = last[value] > at && !facts.free;
        let mut found: FxHashMap<State, (f64, Step)> = FxHashMap::default();
        for (state, cost, before) in &states {
            for (number, choice) in choices.choices[value].iter().enumerate() {
                let Some((paid, after)) = used(&costs, &choices.values, choice, state, &place)
                else {
                    continue;
                };
                let mut rest: State = kept.iter().map(|&slot| after[slot]).collect();
                let mut add = |state: State, cost: f64, replicated: bool| {
                    let step = Step {
                        before: *before,
                        choice: number as u16,
                        replicated,
                    };
                    let known = found.entry(state).or_insert((f64::INFINITY, step));
                    if cost < known.0 {
                        *known = (cost, step);
                    }
                };
                let kept = if facts.is_view {
                    0.0
                } else {
                    costs.keep(facts, choice.output)
                };
                let cost = cost + paid + kept;
                if !is_live {
                    add(rest, cost, false);
                    continue;
                }
                if choice.output != 0 && !facts.is_tuple && !facts.is_weight {
                    let mut whole = rest.clone();
                    whole.push(Held::as_made(0));
                    // At once, if that costs the same as at its first use.
                    add(
                        whole,
                        cost + costs.used_as(facts, choice.output, 0) - 0.5,
                        true,
                    );
                }
                rest.push(Held::as_made(choice.output));
                add(rest, cost, false);
            }
        }
        let mut best: Vec<(State, f64, Step)> = found
            .into_iter()
            .map(|(state, (cost, step))| (state, cost, step))
            .collect();
        best.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
        best.truncate(WIDTH);
        if best.is_empty() {
            let name = graph.node(facts.node).name();
            return Err(format!(
                "{name} cannot be run with the placements that are asked for"
            ));
        }
        states = best
            .into_iter()
            .map(|(state, cost, step)| {
                steps.push(step);
                (state, cost, (steps.len() - 1) as u32)
            })
            .collect();
        live = kept.iter().map(|&slot| live[slot]).collect();
        if is_live {
            live.push(value);
        }
    }
    let (_, cost, end) = states.first().cloned().unwrap_or_default();
    Ok(Plan {
        nodes: planned(graph, &choices, &steps, end),
        cost,
        uneven: choices.uneven,
    })
}

/// The place in the order after which each value is not used.
fn last_uses(graph: &Graph, choices: &Choices) -> Vec<usize> {
    let mut last = vec![0; choices.values.len()];
    let mut place = vec![0; choices.values.len()];
    for (at, &value) in choices.order.iter().enumerate() {
        place[value] = at;
    }
    for node in graph.nodes() {
        if graph.node(node).op() == Op::GetAttr {
            continue;
        }
        for input in graph.inputs(node) {
            let own = &mut last[choices.number[input]];
            *own = (*own).max(place[choices.number[node]]);
        }
    }
    last
}

/// The cost of a choice in a state, and the state after it; `None` if it uses a value that is gone.
fn used(
    costs: &Costs,
    values: &[ValueFacts],
    choice: &Choice,
    state: &State,
    place: &FxHashMap<usize, usize>,
) -> Option<(f64, State)> {
    let mut after = state.clone();
    let mut cost = choice.cost;
    for &(input, wanted) in &choice.inputs {
        let facts = &values[input];
        let slot = *place.get(&input)?;
        let held = state[slot];
        let own = usize::from(held.own);
        if own != wanted && (facts.is_tuple || facts.is_fixed) {
            return None;
        }
        let is_whole = facts.placements[wanted].contains(&Placement::Replicate);
        // Its gradient is summed once, for all calls on parts that use it.
        let sums = choice.split && facts.gradient && costs.training && is_whole;
        let is_part =
            |number: usize| matches!(facts.placements[number][..], [Placement::Shard { .. }]);
        let gathers = sums && wanted == 0 && is_part(own) && costs.activations > 0.0;
        if !held.has(wanted) && !gathers {
            cost += costs.used_as(facts, own, wanted);
            if costs.activations > 0.0 && wanted < 32 {
                after[slot].made |= 1 << wanted;
            }
        }
        if sums && !held.summed {
            cost += match gathers {
                // Of the sum each rank needs its part.
                true => costs.used_as(facts, own, wanted) + costs.gather(facts.bytes),
                false => costs.reduce(facts.bytes),
            };
            after[slot].summed = true;
        }
    }
    Some((cost, after))
}

/// The choices that lead to the step `end`, for all nodes in graph order.
fn planned(graph: &Graph, choices: &Choices, steps: &[Step], end: u32) -> Vec<Planned> {
    let mut taken: Vec<Option<Step>> = vec![None; choices.values.len()];
    let mut at = end;
    for &value in choices.order.iter().rev() {
        let step = steps[at as usize];
        taken[value] = Some(step);
        at = step.before;
    }
    let nodes = graph.nodes().filter_map(|node| {
        let value = choices.number[node];
        let step = taken[value]?;
        let choice = &choices.choices[value][usize::from(step.choice)];
        let inputs = choice.inputs.iter().map(|&(input, number)| {
            let facts = &choices.values[input];
            (facts.node, facts.placements[number].clone())
        });
        Some(Planned {
            node,
            inputs: inputs.collect(),
            output: choices.values[value].placements[choice.output].clone(),
            replicated: step.replicated,
            split: choice.split,
            form: choice.form,
        })
    });
    nodes.collect()
}
