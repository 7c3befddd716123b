//! Groups that read the same tensor, one of which computes a number for each row, become one group with two results:
//! the tensor is read once.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::group::Group;
use super::groups::Groups;
use crate::optimise::flow::Flow;
use crate::program::fused::Width;
use crate::program::{Element, Layout, Program, ValueId};

/// Two groups that become one.
pub(super) struct Pair {
    /// Their last steps.
    group: Group,
}

impl Pair {
    /// Position of the later one of the last steps.
    pub(super) fn last(&self) -> usize {
        self.group.root.max(self.group.row_root.unwrap_or(0))
    }

    /// The group that grows from the last steps.
    pub(super) fn group(&self, program: &Program, flow: &Flow) -> Group {
        self.group.clone().grown(program, flow)
    }
}

/// Pairs among `groups`.
pub(super) fn find(program: &Program, flow: &Flow, groups: &Groups) -> Vec<Pair> {
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
    let mut pairs = Vec::new();
    // First where the tensor need not be stored then.
    for stored in [false, true] {
        for own in groups.iter().filter(|own| own.width() == Some(Width::Row)) {
            if used.contains(&own.root) {
                continue;
            }
            let others = tensors(program, own).flat_map(|tensor| {
                let others = readers[&tensor].iter().copied();
                others.map(move |other| (tensor, other))
            });
            let pair = others.into_iter().find_map(|(tensor, other)| {
                let maker = absorbed(program, flow, tensor, [other, own]);
                let is_free = |root: &usize| *root != own.root && !used.contains(root);
                let free = is_free(&other.root) && maker.iter().all(is_free);
                if !free || stored == maker.is_some() || !fits(program, other, own) {
                    return None;
                }
                let group = other.with_rows(own, place(program, flow, other, own)?)?;
                Some((group, maker))
            });
            if let Some((group, maker)) = pair {
                used.extend([own.root, group.root]);
                used.extend(maker);
                pairs.push(Pair { group });
            }
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

/// The tensors, as long as those of the group, that its members read, and its result.
fn tensors<'a>(program: &'a Program, group: &'a Group) -> impl Iterator<Item = ValueId> + 'a {
    let read = group.members().flat_map(|at| &program.steps[at].inputs);
    let result = &program.steps[group.root].output;
    let all = read.chain([result]).map(|&value| program.root(value));
    all.filter(|&value| program.value(value).len() == group.len)
}

/// Whether the groups have tensors of the same shape and rows of the same length.
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

/// Position at which both groups can be computed: that of the later one if nothing reads the result of the earlier one
/// before, or that of the earlier one if all that the later one reads has been computed there.
fn place(program: &Program, flow: &Flow, a: &Group, b: &Group) -> Option<usize> {
    let (first, second) = if a.root < b.root { (a, b) } else { (b, a) };
    let result = program.root(program.steps[first.root].output);
    let mut readers = flow.readers(result).iter();
    if readers.all(|&(reader, _)| reader > second.root || second.member(reader).is_some()) {
        return Some(second.root);
    }
    let mut read = second.members().flat_map(|at| program.steps[at].reads());
    let is_there = |value: ValueId| {
        let maker = flow.maker(program, value);
        maker.is_none_or(|maker| maker < first.root || second.member(maker).is_some())
    };
    read.all(is_there).then_some(first.root)
}
