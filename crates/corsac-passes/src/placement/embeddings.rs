//! Embeddings on devices of their own.

use super::part::{Part, Relations};
use super::{Device, PlacementError, Program, devices};

/// Parts, each either of embeddings or of other calls.
struct Sorted {
    parts: Vec<Part>,
    /// By the place of each part: whether it is of embeddings.
    sorts: Vec<bool>,
}

pub(super) fn place(
    program: &Program<'_>,
    devices: &[Device],
    bytes: i64,
    is_embedding: &dyn Fn(usize) -> bool,
) -> Result<Vec<Part>, PlacementError> {
    let mut sorted = sort(program, bytes, is_embedding)?;
    for sort in [false, true] {
        combine(program, &mut sorted, sort, bytes);
    }
    let Sorted { mut parts, sorts } = sorted;
    let (embeddings, others): (Vec<usize>, Vec<usize>) =
        (0..sorts.len()).partition(|&at| sorts[at]);
    let rest: i64 = others.iter().map(|&at| parts[at].bytes).sum();
    if embeddings.len() > devices.len() {
        return Err(PlacementError::TooFewDevices {
            needed: embeddings.len(),
            given: devices.len(),
        });
    }
    let mut occupied = Vec::new();
    for (&part, device) in embeddings.iter().zip(devices) {
        if rest + parts[part].bytes > bytes {
            return Err(PlacementError::TooLargeTogether { part });
        }
        parts[part].devices = vec![device.id];
        occupied.push(device.id);
    }
    for part in others {
        parts[part].devices.clone_from(&occupied);
    }
    if !devices::assign(program, &mut parts, devices) {
        return Err(PlacementError::NoDevice);
    }
    Ok(parts)
}

/// Puts calls into parts in the order of the graph: a new part begins where the kind of call
/// changes, and where a device is full.
fn sort(
    program: &Program<'_>,
    bytes: i64,
    is_embedding: &dyn Fn(usize) -> bool,
) -> Result<Sorted, PlacementError> {
    let mut sorted = Sorted {
        parts: vec![Part::empty(program)],
        sorts: vec![false],
    };
    for call in program.calls() {
        let sort = is_embedding(call);
        let last = sorted.parts.len() - 1;
        if sort != sorted.sorts[last] && sorted.parts[last].bytes == 0 {
            sorted.sorts[last] = sort;
        }
        let needed = program.extra_bytes(call, &sorted.parts[last].nodes);
        if sort != sorted.sorts[last] || needed + sorted.parts[last].bytes > bytes {
            let new = Part::empty(program);
            if program.extra_bytes(call, &new.nodes) > bytes {
                let target = program.graph.node(program.ids[call]).target_name();
                return Err(PlacementError::TooLargeForOne {
                    target: target.to_owned(),
                });
            }
            sorted.parts.push(new);
            sorted.sorts.push(sort);
        }
        if let Some(part) = sorted.parts.last_mut() {
            part.add(program, call);
        }
    }
    Ok(sorted)
}

/// Repeatedly combines the smallest part of a kind with the largest one that fits on a device with
/// it and whose level differs by at most one, unless that would make a cycle.
fn combine(program: &Program<'_>, sorted: &mut Sorted, sort: bool, bytes: i64) {
    loop {
        let Sorted { parts, sorts } = &*sorted;
        let relations = Relations::of(program, parts);
        let levels = relations.levels();
        let mut own: Vec<usize> = (0..parts.len()).filter(|&at| sorts[at] == sort).collect();
        own.sort_by_key(|&at| parts[at].bytes);
        let [smallest, others @ ..] = &own[..] else {
            return;
        };
        let found = others.iter().rev().find_map(|&other| {
            if levels[*smallest].abs_diff(levels[other]) > 1 {
                return None;
            }
            let combined = Part::combined(program, &parts[other], &parts[*smallest]);
            let fits = combined.bytes <= bytes && !relations.would_cycle(other, *smallest);
            fits.then_some((other, combined))
        });
        let Some((other, combined)) = found else {
            return;
        };
        let (first, second) = (other.min(*smallest), other.max(*smallest));
        for at in [second, first] {
            sorted.parts.remove(at);
            sorted.sorts.remove(at);
        }
        sorted.parts.push(combined);
        sorted.sorts.push(sort);
    }
}
