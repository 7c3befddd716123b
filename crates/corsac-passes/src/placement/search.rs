//! The search for parts.

use corsac_ir::NodeId;

use super::part::{Part, Relations};
use super::{Device, PlacementError, Program, devices};

/// Durations of calls and transfers.
#[derive(Clone, Debug)]
pub struct Times {
    /// Duration of each node of the program in seconds, in the order of the graph.
    seconds: Vec<f64>,
    /// Transfer rate between devices.
    bytes_per_second: f64,
}

impl Times {
    /// Durations, where `seconds` returns that of a call.
    #[must_use]
    pub fn of(
        program: &Program<'_>,
        bytes_per_second: f64,
        seconds: impl Fn(NodeId) -> f64,
    ) -> Self {
        let seconds = program.ids.iter().enumerate().map(|(at, &id)| {
            if program.is_call(at) {
                seconds(id)
            } else {
                0.0
            }
        });
        Self {
            seconds: seconds.collect(),
            bytes_per_second,
        }
    }

    /// The duration of the longest path through a part.
    fn of_part(&self, program: &Program<'_>, part: &Part) -> f64 {
        let mut up_to = vec![0.0_f64; self.seconds.len()];
        let mut longest = 0.0_f64;
        for node in part.nodes.ones().filter(|&node| !program.is_given(node)) {
            let inputs = program.inputs[node].iter();
            let before = inputs.map(|&input| up_to[input]).fold(0.0, f64::max);
            up_to[node] = before + self.seconds[node];
            longest = longest.max(up_to[node]);
        }
        longest
    }

    /// The duration of moving the values of one part that another uses; zero if both are on the
    /// same devices.
    fn between(&self, program: &Program<'_>, parent: &Part, child: &Part) -> f64 {
        if !parent.devices.is_empty() && parent.devices == child.devices {
            return 0.0;
        }
        let moved = parent.nodes.ones().filter(|&node| {
            let mut users = program.users[node].iter();
            users.any(|&user| child.nodes.contains(user))
        });
        let bytes: i64 = moved.map(|node| program.bytes[node].output).sum();
        bytes as f64 / self.bytes_per_second
    }

    /// The duration of the longest path through all parts, transfers included; infinite if there is
    /// a cycle of parts.
    pub(super) fn of_all(
        &self,
        program: &Program<'_>,
        parts: &[Part],
        relations: &Relations,
    ) -> f64 {
        let order = relations.order();
        if order.len() < parts.len() {
            return f64::INFINITY;
        }
        let mut up_to = vec![0.0_f64; parts.len()];
        for &at in &order {
            let before = relations.parents[at]
                .iter()
                .map(|&parent| up_to[parent] + self.between(program, &parts[parent], &parts[at]));
            up_to[at] = before.fold(0.0, f64::max) + self.of_part(program, &parts[at]);
        }
        up_to.into_iter().fold(0.0, f64::max)
    }

    /// The duration of all parts after a new assignment to devices; infinite if they do not fit.
    fn on_new_devices(
        &self,
        program: &Program<'_>,
        parts: &mut [Part],
        relations: &Relations,
        devices: &[Device],
    ) -> f64 {
        devices::clear(parts);
        if devices::assign(program, parts, devices) {
            self.of_all(program, parts, relations)
        } else {
            f64::INFINITY
        }
    }
}

pub(super) fn by_size(
    program: &Program<'_>,
    devices: &[Device],
) -> Result<Vec<Part>, PlacementError> {
    let mut free = devices.to_vec();
    let mut parts: Vec<Part> = Vec::new();
    // The part being filled, and the bytes left on its device.
    let mut filled: Option<(usize, i64)> = None;
    for call in program.calls() {
        if parts.len() > devices.len() {
            parts.push(Part::of(program, call));
            continue;
        }
        let needed = filled.map(|(at, left)| {
            let needed = program.extra_bytes(call, &parts[at].nodes);
            (at, left, needed)
        });
        let (at, left) = match needed {
            Some((at, left, needed)) if needed <= left => (at, left - needed),
            Some(_) if parts.len() == devices.len() => {
                parts.push(Part::of(program, call));
                continue;
            }
            _ => {
                let part = Part::empty(program);
                let needed = program.extra_bytes(call, &part.nodes);
                let found = free.iter().position(|device| device.bytes >= needed);
                let Some(found) = found else {
                    return Err(PlacementError::TooLarge {
                        node: program.graph.node(program.ids[call]).name().to_owned(),
                    });
                };
                let device = free.remove(found);
                parts.push(Part {
                    devices: vec![device.id],
                    ..part
                });
                (parts.len() - 1, device.bytes - needed)
            }
        };
        parts[at].add(program, call);
        filled = Some((at, left));
    }
    if !devices::assign(program, &mut parts, devices) {
        return Err(PlacementError::NoDevice);
    }
    Ok(parts)
}

pub(super) fn by_cost(program: &Program<'_>, devices: &[Device], times: &Times) -> Vec<Part> {
    let mut parts: Vec<Part> = program
        .calls()
        .map(|call| Part::of(program, call))
        .collect();
    while parts.len() > 1 {
        let relations = Relations::of(program, &parts);
        let levels = relations.levels();
        let mut best = times.of_all(program, &parts, &relations);
        let mut chosen = None;
        for i in 0..parts.len() - 1 {
            for j in i + 1..parts.len() {
                let near = levels[i].abs_diff(levels[j]) <= 1
                    || relations.parents[j].contains(&i)
                    || relations.children[j].contains(&i);
                if !near || relations.would_cycle(i, j) {
                    continue;
                }
                let mut tried = combined(program, &parts, i, j);
                let relations = Relations::of(program, &tried);
                let cost = times.on_new_devices(program, &mut tried, &relations, devices);
                if cost <= best {
                    (best, chosen) = (cost, Some((i, j)));
                }
            }
        }
        if let Some((i, j)) = chosen {
            parts = combined(program, &parts, i, j);
        }
        devices::clear(&mut parts);
        // Parts that fit nowhere stay on no device; the next round may combine them.
        devices::assign(program, &mut parts, devices);
        if chosen.is_none() {
            break;
        }
    }
    parts
}

/// The parts with two of them combined into one, which comes last.
fn combined(program: &Program<'_>, parts: &[Part], i: usize, j: usize) -> Vec<Part> {
    let others = parts.iter().enumerate();
    let others = others.filter(|&(at, _)| at != i && at != j);
    let mut combined: Vec<Part> = others.map(|(_, part)| part.clone()).collect();
    combined.push(Part::combined(program, &parts[i], &parts[j]));
    combined
}

pub(super) fn by_exchange(
    program: &Program<'_>,
    devices: &[Device],
    times: &Times,
) -> Result<Vec<Part>, PlacementError> {
    let mut parts = by_size(program, devices)?;
    let mut best = times.of_all(program, &parts, &Relations::of(program, &parts));
    for call in program.calls() {
        let Some(home) = parts.iter().position(|part| part.nodes.contains(call)) else {
            continue;
        };
        let mut chosen = None;
        for other in (0..parts.len()).filter(|&other| other != home) {
            let partners = parts[other].nodes.ones();
            let partners = partners.filter(|&node| program.is_call(node)).map(Some);
            for partner in partners.chain([None]) {
                let mut tried = parts.clone();
                exchange(program, &mut tried, (call, home), (partner, other));
                let relations = Relations::of(program, &tried);
                if relations.is_in_cycle(home) || relations.is_in_cycle(other) {
                    continue;
                }
                let cost = times.on_new_devices(program, &mut tried, &relations, devices);
                if cost < best {
                    (best, chosen) = (cost, Some((partner, other)));
                }
            }
        }
        if let Some(partner) = chosen {
            exchange(program, &mut parts, (call, home), partner);
            devices::clear(&mut parts);
            devices::assign(program, &mut parts, devices);
        }
    }
    parts.retain(|part| !part.nodes.is_clear());
    devices::assign(program, &mut parts, devices);
    Ok(parts)
}

/// Moves a call to another part, and its partner there, if there is one, the other way.
fn exchange(
    program: &Program<'_>,
    parts: &mut [Part],
    (call, home): (usize, usize),
    (partner, other): (Option<usize>, usize),
) {
    parts[home].remove(program, call);
    parts[other].add(program, call);
    if let Some(partner) = partner {
        parts[home].add(program, partner);
        parts[other].remove(program, partner);
    }
}
