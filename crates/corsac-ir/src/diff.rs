//! Differences between two graphs.
//!
//! Nodes are matched first, so that a renamed node does not make everything that uses it differ:
//! those that compute the same from the same inputs, then those of one name, opcode and target,
//! then those of one name and opcode, then those of one opcode and target, in order. The rest
//! was added or removed.

mod matching;

use std::borrow::Cow;
use std::fmt;

use crate::entity::{NodeId, SecondaryMap};
use crate::equal::Pairing;
use crate::graph::Graph;
use crate::text::{HostText, NoHost};

use matching::{longest_increasing, match_nodes};

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

/// The difference between two graphs: all nodes of both, in an order that fits both.
///
/// Its text is like a unified diff of the printed graphs, with numbers of users left out; it is
/// empty if nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphDiff {
    /// The nodes of both graphs. One that moved comes twice: [`Change::MovedFrom`] where it was,
    /// [`Change::MovedTo`] where it is.
    pub entries: Vec<DiffEntry>,
}

/// A node before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffEntry {
    /// Its change.
    pub change: Change,
    /// The node in the first graph.
    pub before: Option<NodeId>,
    /// The node in the second graph.
    pub after: Option<NodeId>,
    /// Its line in the first graph.
    pub before_line: Option<String>,
    /// Its line in the second graph.
    pub after_line: Option<String>,
}

/// The change of a node between two graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is the same. Nodes that it uses may have other names.
    Kept,
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is in its place, but not the same.
    Changed(Vec<Aspect>),
    /// It was here, and is elsewhere.
    MovedFrom,
    /// It is here, and was elsewhere; it may have changed as well.
    MovedTo(Vec<Aspect>),
}

/// A property in which a node differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aspect {
    /// Its name.
    Name,
    /// Its target.
    Target,
    /// Its positional arguments.
    Args,
    /// Its keyword arguments.
    Kwargs,
    /// Its type annotation.
    Annotation,
}

impl Graph {
    /// The changes that turn this graph into `other`.
    #[must_use]
    pub fn diff(&self, other: &Self) -> GraphDiff {
        self.diff_with(other, &NoHost, &NoHost)
    }

    /// The changes that turn this graph into `other`, printed with the texts of the two graphs'
    /// hosts.
    #[must_use]
    pub fn diff_with(
        &self,
        other: &Self,
        host: &dyn HostText,
        other_host: &dyn HostText,
    ) -> GraphDiff {
        let matches = match_nodes(self, other);
        let mut pairing = Pairing::new(self, other, (host, other_host));
        let mut before_of: SecondaryMap<NodeId, Option<NodeId>> = SecondaryMap::new();
        for &(before, after) in &matches {
            pairing.nodes.set(before, Some(after));
            before_of.set(after, Some(before));
        }
        // Matched nodes in the order of this graph; those in the same order in the other stay.
        let paired: Vec<NodeId> = self.nodes().filter_map(|id| pairing.nodes[id]).collect();
        let in_place = longest_increasing(&paired, other);

        let mut merge = Merge {
            graphs: (self, other),
            hosts: (host, other_host),
            pairing,
            in_place,
            diff: GraphDiff::default(),
        };
        let mut old = self.nodes().peekable();
        for new in other.nodes() {
            while let Some(gone) = old.next_if(|&id| !merge.is_in_place(id)) {
                merge.old(gone);
            }
            match before_of[new] {
                Some(before) if merge.in_place[new] => {
                    old.next();
                    merge.kept(before, new);
                }
                Some(before) => merge.moved(before, new),
                None => merge.added(new),
            }
        }
        for gone in old {
            merge.old(gone);
        }
        merge.diff
    }
}

/// Puts the entries together.
struct Merge<'g> {
    graphs: (&'g Graph, &'g Graph),
    hosts: (&'g dyn HostText, &'g dyn HostText),
    pairing: Pairing<'g>,
    in_place: SecondaryMap<NodeId, bool>,
    diff: GraphDiff,
}

impl Merge<'_> {
    fn push(&mut self, change: Change, before: Option<NodeId>, after: Option<NodeId>) {
        let line = |graph: &Graph, host, id| graph.format_definition(id, host);
        let (left, right) = (self.graphs, self.hosts);
        self.diff.entries.push(DiffEntry {
            change,
            before,
            after,
            before_line: before.map(|id| line(left.0, right.0, id)),
            after_line: after.map(|id| line(left.1, right.1, id)),
        });
    }

    /// Whether a node of the first graph is in the second, in the same order as its neighbours.
    fn is_in_place(&self, id: NodeId) -> bool {
        self.pairing.nodes[id].is_some_and(|after| self.in_place[after])
    }

    /// A node of the first graph that is not in its place in the second.
    fn old(&mut self, id: NodeId) {
        match self.pairing.nodes[id] {
            Some(_) => self.push(Change::MovedFrom, Some(id), None),
            None => self.push(Change::Removed, Some(id), None),
        }
    }

    fn added(&mut self, id: NodeId) {
        self.push(Change::Added, None, Some(id));
    }

    fn kept(&mut self, before: NodeId, after: NodeId) {
        let aspects = self.aspects(before, after);
        let change = if aspects.is_empty() {
            Change::Kept
        } else {
            Change::Changed(aspects)
        };
        self.push(change, Some(before), Some(after));
    }

    fn moved(&mut self, before: NodeId, after: NodeId) {
        let aspects = self.aspects(before, after);
        self.push(Change::MovedTo(aspects), Some(before), Some(after));
    }

    fn aspects(&mut self, before: NodeId, after: NodeId) -> Vec<Aspect> {
        let (old, new) = (self.graphs.0.node(before), self.graphs.1.node(after));
        let pairing = &mut self.pairing;
        let mut aspects = Vec::new();
        let mut note = |same: bool, aspect| {
            if !same {
                aspects.push(aspect);
            }
        };
        note(old.name() == new.name(), Aspect::Name);
        note(
            pairing.targets_match(old.target(), new.target()),
            Aspect::Target,
        );
        note(pairing.all_args_match(old.args(), new.args()), Aspect::Args);
        note(pairing.kwargs_match(before, after), Aspect::Kwargs);
        note(
            pairing.annotations_match(old.ty(), new.ty()),
            Aspect::Annotation,
        );
        aspects
    }
}

impl GraphDiff {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries
            .iter()
            .all(|entry| entry.change == Change::Kept)
    }

    /// The entries of nodes that are new.
    pub fn added(&self) -> impl Iterator<Item = &DiffEntry> {
        self.entries.iter().filter(|e| e.change == Change::Added)
    }

    /// The entries of nodes that are gone.
    pub fn removed(&self) -> impl Iterator<Item = &DiffEntry> {
        self.entries.iter().filter(|e| e.change == Change::Removed)
    }

    /// The entries of nodes that are in both graphs and differ.
    pub fn changed(&self) -> impl Iterator<Item = &DiffEntry> {
        self.entries.iter().filter(|e| match &e.change {
            Change::Changed(_) => true,
            Change::MovedTo(aspects) => !aspects.is_empty(),
            Change::Kept | Change::Added | Change::Removed | Change::MovedFrom => false,
        })
    }

    /// The entries of nodes that are elsewhere now.
    pub fn moved(&self) -> impl Iterator<Item = &DiffEntry> {
        self.entries
            .iter()
            .filter(|e| matches!(e.change, Change::MovedTo(_)))
    }

    /// `1 added, 2 changed`; `no changes` if there are none.
    #[must_use]
    pub fn summary(&self) -> String {
        let counts = [
            (self.added().count(), "added"),
            (self.removed().count(), "removed"),
            (self.changed().count(), "changed"),
            (self.moved().count(), "moved"),
        ];
        let parts: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if parts.is_empty() {
            "no changes".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// One line of a diff's text.
struct Line<'d> {
    /// Space, minus or plus.
    sign: char,
    text: Cow<'d, str>,
}

impl<'d> Line<'d> {
    fn new(sign: char, text: &'d Option<String>) -> Option<Self> {
        let text = Cow::Borrowed(text.as_deref()?);
        Some(Self { sign, text })
    }
}

impl DiffEntry {
    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let (first, second) = match &self.change {
            Change::Kept => (Line::new(' ', &self.after_line), None),
            Change::Added | Change::MovedTo(_) => (None, Line::new('+', &self.after_line)),
            Change::Removed | Change::MovedFrom => (Line::new('-', &self.before_line), None),
            Change::Changed(_) => (
                Line::new('-', &self.before_line),
                Line::new('+', &self.after_line),
            ),
        };
        first.into_iter().chain(second)
    }
}

impl fmt::Display for GraphDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        writeln!(f, "--- before")?;
        write!(f, "+++ after")?;
        let header = Line {
            sign: ' ',
            text: Cow::Borrowed("graph():"),
        };
        let nodes = self
            .entries
            .iter()
            .flat_map(DiffEntry::lines)
            .map(|line| Line {
                sign: line.sign,
                text: Cow::Owned(format!("    {}", line.text)),
            });
        let lines: Vec<Line<'_>> = std::iter::once(header).chain(nodes).collect();
        let (mut old, mut new) = (1, 1);
        let mut at = 0;
        while let Some(first) = (at..lines.len()).find(|&i| lines[i].sign != ' ') {
            let start = first.saturating_sub(CONTEXT).max(at);
            old += start - at;
            new += start - at;
            // The hunk goes on while changes are no further apart than their contexts reach.
            let mut end = first;
            while let Some(next) =
                (end..lines.len().min(end + 2 * CONTEXT + 1)).find(|&i| lines[i].sign != ' ')
            {
                end = next + 1;
            }
            let end = lines.len().min(end + CONTEXT);
            let hunk = &lines[start..end];
            let in_old = hunk.iter().filter(|line| line.sign != '+').count();
            let in_new = hunk.iter().filter(|line| line.sign != '-').count();
            write!(f, "\n@@ -{old},{in_old} +{new},{in_new} @@")?;
            for line in hunk {
                write!(f, "\n{}{}", line.sign, line.text)?;
            }
            old += in_old;
            new += in_new;
            at = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
