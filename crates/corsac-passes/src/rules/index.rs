//! Finds the rules that may match at a node: a discrimination tree over the operator of the node
//! and the kinds of its first operands, shared by all rules.
//!
//! Looking a node up takes a few hash look-ups, however many rules there are; the rules found are
//! then tried one by one ([`super::search`]). Reference: J. Christian, "Flatterms, discrimination
//! nets, and fast term rewriting", J. Automated Reasoning 10 (1993), cut off below the operands of
//! the root.

use rustc_hash::FxHashMap;

use super::compiled::{Compiled, Matcher, OperatorId};
use super::rule::Key;

/// Number of operands that the tree distinguishes.
pub(crate) const OPERANDS: usize = 3;

/// The kind of an operand, as far as the tree distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// The value of a node that calls an operator which some rule mentions.
    Operator(OperatorId),
    /// The value of any other node.
    Node,
    /// Anything else.
    Literal,
}

#[derive(Clone, Debug, Default)]
struct Branch {
    by_operator: FxHashMap<OperatorId, u32>,
    literal: Option<u32>,
    any: Option<u32>,
    /// The rules that end here, at leaves.
    rules: Vec<u32>,
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    roots: FxHashMap<OperatorId, u32>,
    branches: Vec<Branch>,
}

/// The kinds of operand that a pattern accepts.
#[derive(Clone, Debug)]
enum Wanted {
    Operators(Vec<OperatorId>),
    Literal,
    Any,
}

impl Index {
    /// The tree of the first roots of `rules`.
    pub(crate) fn new(rules: &[Compiled]) -> Self {
        let mut index = Self::default();
        for (number, rule) in (0..).zip(rules) {
            if let Matcher::Call {
                operators,
                arguments,
                commutative,
            } = rule.roots[0].unnamed()
            {
                let mut wanted = vec![Wanted::Any; OPERANDS];
                for (key, operand) in arguments {
                    if let Key::Position(place) = key
                        && let Some(slot) = wanted.get_mut(*place)
                    {
                        *slot = Wanted::of(operand);
                    }
                }
                for &operator in operators {
                    index.insert(operator, &wanted, number);
                    if *commutative {
                        let mut swapped = wanted.clone();
                        swapped.swap(0, 1);
                        index.insert(operator, &swapped, number);
                    }
                }
            }
        }
        index
    }

    fn branch(&mut self) -> u32 {
        self.branches.push(Branch::default());
        (self.branches.len() - 1) as u32
    }

    fn insert(&mut self, root: OperatorId, wanted: &[Wanted], rule: u32) {
        let start = match self.roots.get(&root) {
            Some(&start) => start,
            None => {
                let start = self.branch();
                self.roots.insert(root, start);
                start
            }
        };
        self.insert_below(start, wanted, rule);
    }

    fn insert_below(&mut self, at: u32, wanted: &[Wanted], rule: u32) {
        let Some((first, rest)) = wanted.split_first() else {
            let rules = &mut self.branches[at as usize].rules;
            if !rules.contains(&rule) {
                rules.push(rule);
            }
            return;
        };
        match first {
            Wanted::Any => {
                let next = self.branches[at as usize].any;
                let next = next.unwrap_or_else(|| self.branch());
                self.branches[at as usize].any = Some(next);
                self.insert_below(next, rest, rule);
            }
            Wanted::Literal => {
                let next = self.branches[at as usize].literal;
                let next = next.unwrap_or_else(|| self.branch());
                self.branches[at as usize].literal = Some(next);
                self.insert_below(next, rest, rule);
            }
            Wanted::Operators(operators) => {
                for &operator in operators {
                    let next = self.branches[at as usize].by_operator.get(&operator);
                    let next = next.copied().unwrap_or_else(|| self.branch());
                    self.branches[at as usize]
                        .by_operator
                        .insert(operator, next);
                    self.insert_below(next, rest, rule);
                }
            }
        }
    }

    /// Whether some rule begins with this operator.
    pub(crate) fn has_root(&self, operator: OperatorId) -> bool {
        self.roots.contains_key(&operator)
    }

    /// The rules that may match at a call of `root` with these operands, in their order.
    pub(crate) fn candidates(
        &self,
        root: OperatorId,
        operands: &[Shape; OPERANDS],
        found: &mut Vec<u32>,
    ) {
        found.clear();
        if let Some(&start) = self.roots.get(&root) {
            self.collect(start, operands, found);
            found.sort_unstable();
            found.dedup();
        }
    }

    fn collect(&self, at: u32, operands: &[Shape], found: &mut Vec<u32>) {
        let branch = &self.branches[at as usize];
        let Some((first, rest)) = operands.split_first() else {
            found.extend_from_slice(&branch.rules);
            return;
        };
        let specific = match first {
            Shape::Operator(operator) => branch.by_operator.get(operator).copied(),
            Shape::Literal => branch.literal,
            Shape::Node => None,
        };
        for next in specific.into_iter().chain(branch.any) {
            self.collect(next, rest, found);
        }
    }
}

impl Wanted {
    fn of(operand: &Matcher) -> Self {
        match operand {
            Matcher::Variable(_) => Self::Any,
            Matcher::Literal(_) | Matcher::Sequence(_) | Matcher::Tuple(_) | Matcher::Slice(_) => {
                Self::Literal
            }
            Matcher::Call { operators, .. } => Self::Operators(operators.clone()),
            Matcher::Named(_, inner) | Matcher::OfModule(_, inner) => Self::of(inner),
        }
    }
}
