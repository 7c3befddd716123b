//! Assignment of parts to devices.

use fixedbitset::FixedBitSet;

use super::part::Part;
use super::{Device, Program};

/// Puts each part that is on no device on the one with the least memory left that still has room
/// for it. Returns whether all parts have devices; if not, some may.
pub(super) fn assign(program: &Program<'_>, parts: &mut [Part], devices: &[Device]) -> bool {
    let mut nodes: Vec<FixedBitSet> =
        vec![FixedBitSet::with_capacity(program.ids.len()); devices.len()];
    let mut left: Vec<i64> = devices.iter().map(|device| device.bytes).collect();
    for part in &*parts {
        for (at, device) in devices.iter().enumerate() {
            if part.devices.contains(&device.id) {
                nodes[at].union_with(&part.nodes);
                left[at] -= part.bytes;
            }
        }
    }
    for part in parts.iter_mut().filter(|part| part.devices.is_empty()) {
        let mut fullest: Vec<usize> = (0..devices.len()).collect();
        fullest.sort_by_key(|&at| left[at]);
        let needed = |at: &usize| extra_bytes(program, part, &nodes[*at]);
        let Some((at, needed)) = fullest
            .iter()
            .map(|at| (*at, needed(at)))
            .find(|&(at, needed)| needed < left[at])
        else {
            return false;
        };
        part.devices.push(devices[at].id);
        nodes[at].union_with(&part.nodes);
        left[at] -= needed;
    }
    true
}

/// Takes all parts off their devices.
pub(super) fn clear(parts: &mut [Part]) {
    parts.iter_mut().for_each(|part| part.devices.clear());
}

/// The additional bytes that a device with these nodes needs for `part`.
fn extra_bytes(program: &Program<'_>, part: &Part, nodes: &FixedBitSet) -> i64 {
    if nodes.is_clear() {
        return part.bytes;
    }
    let mut all = nodes.clone();
    all.union_with(&part.nodes);
    let nodes = part.nodes.ones();
    nodes.map(|node| program.extra_bytes(node, &all)).sum()
}
