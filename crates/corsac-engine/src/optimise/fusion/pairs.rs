//! Groups of which one computes a number for each row, and that are the only readers of a tensor, become one group with
//! two results: the tensor is not stored.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::group::Group;
use super::groups::Groups;
use crate::optimise::flow::Flow;
use crate::program::fused::Width;
use crate::program::{Element, Layout, Program, ValueId};

/// The groups that pairs among `groups` become, by their last step.
///
/// A pair is computed where its later last step was, and nothing reads the result of the earlier one before: so each
/// group is computed no earlier than its members were, and each result before the steps that read it.
pub(super) fn find(program: &Program, flow: &Flow, groups: &Groups) -> FxHashMap<usize, Group> {
    let mut readers: FxHashMap<ValueId, SmallVec<[&Group; 2]>> = FxHashMap::default();
    for group in groups.iter() {
        for tensor in tensors(program, group) {
            let readers = readers.entry(tensor).or_default();
            if readers.last().is_none_or(|last| last.root != group.root) {
                readers.push(group);
            }
        }
    }
    let mut used: FxHashSet<usize> = FxHashSet::default();
    let mut pairs = FxHashMap::default();
    for own in groups.iter().filter(|own| own.width() == Some(Width::Row)) {
        if used.contains(&own.root) {
            continue;
        }
        let others = tensors(program, own).flat_map(|tensor| {
            let others = readers[&tensor].iter().copied();
            others.map(move |other| (tensor, other))
        });
        let pair = others.into_iter().find_map(|(tensor, other)| {
            let is_free = |root: usize| root != own.root && !used.contains(&root);
            if !is_free(other.root) || !fits(program, other, own) {
                return None;
            }
            let maker = absorbed(program, flow, tensor, [other, own]);
            let maker = maker.filter(|&maker| is_free(maker))?;
            if !can_wait(program, flow, [other, own]) {
                return None;
            }
            let group = other.with_rows(own, program, flow)?;
            group.member(maker).map(|_| (group, maker))
        });
        if let Some((group, maker)) = pair {
            used.extend([own.root, group.root, maker]);
            pairs.insert(group.at(), group);
        }
    }
    pairs
}

/// The step that computes `tensor`, if nothing but the two groups needs it.
fn absorbed(program: &Program, flow: &Flow, tensor: ValueId, pair: [&Group; 2]) -> Option<usize> {
    let maker = flow.maker(program, tensor)?;
    let outside = |own: &Group| own.member(maker).is_none();
    let mut readers = flow.readers(tensor).iter();
    let all = readers.all(|&(reader, _)| pair.iter().any(|own| own.member(reader).is_some()));
    (all && !flow.is_returned(tensor) && pair.into_iter().all(outside)).then_some(maker)
}

/// The tensors, as long as those of the group, that its members read.
fn tensors<'a>(program: &'a Program, group: &'a Group) -> impl Iterator<Item = ValueId> + 'a {
    let read = group.members().flat_map(|at| &program.steps[at].inputs);
    let read = read.map(|&value| program.root(value));
    read.filter(|&value| program.value(value).len() == group.len)
}

/// Whether the groups have tensors and rows of the same lengths.
fn fits(program: &Program, group: &Group, rows: &Group) -> bool {
    let is_simple = |group: &Group| {
        let output = program.value(program.root(program.steps[group.root].output));
        output.layout == Layout::Rows && output.element == Element::F32
    };
    group.len == rows.len
        && (group.row.is_none() || group.row == rows.row)
        && [group, rows]
            .into_iter()
            .all(|own| is_simple(own) && own.element() == Element::F32)
}

/// Whether the result of the earlier group is read behind the later group, or by it, only.
fn can_wait(program: &Program, flow: &Flow, [a, b]: [&Group; 2]) -> bool {
    let (first, second) = if a.root < b.root { (a, b) } else { (b, a) };
    let result = program.root(program.steps[first.root].output);
    let waits =
        |&(reader, _): &(usize, ValueId)| reader > second.root || second.member(reader).is_some();
    flow.readers(result).iter().all(waits)
}
