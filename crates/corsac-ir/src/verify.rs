//! The verifier.
//!
//! A graph that breaks one of these is in *error*; torch.fx's `lint` refuses it too:
//!
//! 1. every node that an argument mentions is in the graph, not erased
//!    ([`FaultKind::ErasedArgument`]);
//! 2. and comes before the node that mentions it ([`FaultKind::UsedBeforeDefinition`]);
//! 3. no two nodes have one name ([`FaultKind::DuplicateName`]).
//!
//! A graph that breaks one of these is *suspect*: torch.fx accepts it, but it makes no program, or
//! not the one intended ([`Fault::is_error`] is false):
//!
//! 4. there is at most one output ([`FaultKind::SecondOutput`]), nothing comes after it
//!    ([`FaultKind::AfterOutput`]), it has a value ([`FaultKind::OutputWithoutValue`]) and no node
//!    uses it ([`FaultKind::OutputUsed`]);
//! 5. the target of a placeholder is a parameter's name, after `*` or `**` or not
//!    ([`FaultKind::NoParameterName`]), and no two have the same
//!    ([`FaultKind::DuplicateParameter`]).
//!
//! These hold after any change to a graph; breaking one is an error, and a bug of this crate. Only
//! [`Graph::verify`] checks the last four:
//!
//! 6. sequence numbers grow along the list ([`FaultKind::OrderNumber`]);
//! 7. call_function has a function as its target, every other opcode a name
//!    ([`FaultKind::WrongTarget`]);
//! 8. a node's inputs are the nodes that its arguments mention, in order
//!    ([`FaultKind::InputsOutOfStep`]);
//! 9. a node's users are the nodes that mention it, each once ([`FaultKind::UsersOutOfStep`]);
//! 10. the index has each node once, under its opcode and target ([`FaultKind::IndexOutOfStep`]);
//! 11. walking the list from the root leads back to the root in as many steps as there are nodes
//!     ([`FaultKind::ListLength`]).
//!
//! Every fault is reported, not only the first; [`Graph::lint_listing`] shows them in place.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::arg::Arg;
use crate::entity::{EntityId, NodeId, SecondaryMap, Symbol};
use crate::graph::Graph;
use crate::namespace::is_keyword;
use crate::op::{Op, Target};
use crate::text::HostText;

/// A fault of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The node it was found at; the root for the graph as a whole.
    pub node: NodeId,
    /// The node's name.
    pub name: String,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// Kinds of faults of a graph. Other nodes are given by name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An argument mentions a node that was erased.
    ErasedArgument {
        /// That node.
        argument: String,
    },
    /// An argument mentions a node that comes later, or the node itself.
    UsedBeforeDefinition {
        /// That node.
        argument: String,
    },
    /// An earlier node has the same name.
    DuplicateName,
    /// There is an output before this one.
    SecondOutput {
        /// The first output.
        first: String,
    },
    /// The node comes after the output.
    AfterOutput {
        /// The first output.
        output: String,
    },
    /// An output without an argument.
    OutputWithoutValue,
    /// An output is used like a value.
    OutputUsed {
        /// The first user.
        user: String,
    },
    /// The target of a placeholder cannot be the name of a parameter.
    NoParameterName {
        /// The target.
        target: String,
    },
    /// An earlier placeholder has the same target.
    DuplicateParameter {
        /// That placeholder.
        first: String,
        /// The target of both.
        target: String,
    },
    /// The sequence number is not larger than that of the node before.
    OrderNumber,
    /// The target does not fit the opcode.
    WrongTarget {
        /// The kind of target that the opcode takes.
        expected: &'static str,
    },
    /// The inputs kept are not those that the arguments mention.
    InputsOutOfStep,
    /// The users kept are not the nodes that mention this one.
    UsersOutOfStep,
    /// The index does not have the node once, under its opcode and target.
    IndexOutOfStep,
    /// The list does not have as many nodes as the graph.
    ListLength {
        /// Number of nodes that the graph records.
        expected: usize,
        /// Number of nodes in the list, counted no further than one more.
        found: usize,
    },
}

impl Fault {
    /// Whether torch.fx's `lint` would refuse the graph as well; otherwise it is only suspect.
    #[must_use]
    pub fn is_error(&self) -> bool {
        match self.kind {
            FaultKind::SecondOutput { .. }
            | FaultKind::AfterOutput { .. }
            | FaultKind::OutputWithoutValue
            | FaultKind::OutputUsed { .. }
            | FaultKind::NoParameterName { .. }
            | FaultKind::DuplicateParameter { .. } => false,
            FaultKind::ErasedArgument { .. }
            | FaultKind::UsedBeforeDefinition { .. }
            | FaultKind::DuplicateName
            | FaultKind::OrderNumber
            | FaultKind::WrongTarget { .. }
            | FaultKind::InputsOutOfStep
            | FaultKind::UsersOutOfStep
            | FaultKind::IndexOutOfStep
            | FaultKind::ListLength { .. } => true,
        }
    }
}

impl Fault {
    /// Whether only a bug of this crate can cause it.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        match self.kind {
            FaultKind::OrderNumber
            | FaultKind::WrongTarget { .. }
            | FaultKind::InputsOutOfStep
            | FaultKind::UsersOutOfStep
            | FaultKind::IndexOutOfStep
            | FaultKind::ListLength { .. } => true,
            FaultKind::ErasedArgument { .. }
            | FaultKind::UsedBeforeDefinition { .. }
            | FaultKind::DuplicateName
            | FaultKind::SecondOutput { .. }
            | FaultKind::AfterOutput { .. }
            | FaultKind::OutputWithoutValue
            | FaultKind::OutputUsed { .. }
            | FaultKind::NoParameterName { .. }
            | FaultKind::DuplicateParameter { .. } => false,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ErasedArgument { argument } => {
                write!(f, "argument {argument} has been erased from the graph")
            }
            Self::UsedBeforeDefinition { argument } => write!(
                f,
                "argument {argument} is used before it has been defined; \
                 topological_sort() can put the nodes in order"
            ),
            Self::DuplicateName => f.write_str("an earlier node has the same name"),
            Self::SecondOutput { first } => write!(f, "a second output, after {first}"),
            Self::AfterOutput { output } => write!(f, "never runs: it comes after {output}"),
            Self::OutputWithoutValue => f.write_str("an output without a value"),
            Self::OutputUsed { user } => {
                write!(f, "an output is no value, but {user} uses it")
            }
            Self::NoParameterName { target } => {
                write!(f, "the target {target:?} cannot be the name of a parameter")
            }
            Self::DuplicateParameter { first, target } => {
                write!(f, "{first} is already the parameter called {target}")
            }
            Self::OrderNumber => f.write_str("its order number does not follow the one before"),
            Self::WrongTarget { expected } => write!(f, "expected {expected} as its target"),
            Self::InputsOutOfStep => f.write_str("its inputs are not what its arguments mention"),
            Self::UsersOutOfStep => f.write_str("its users are not the nodes that mention it"),
            Self::IndexOutOfStep => f.write_str("the index does not have it in its place"),
            Self::ListLength { expected, found } => {
                write!(f, "expected {expected} nodes in the list, found {found}")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.node.is_root() {
            write!(f, "graph: {}", self.kind)
        } else {
            write!(f, "node {}: {}", self.name, self.kind)
        }
    }
}

/// All faults of a graph, in the order of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LintReport {
    /// The faults.
    pub faults: Vec<Fault>,
}

impl LintReport {
    /// Whether there is an error among the faults, and not only suspect nodes.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.faults.iter().any(Fault::is_error)
    }
}

impl fmt::Display for LintReport {
    /// One fault a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            let line_break = if i > 0 { "\n" } else { "" };
            write!(f, "{line_break}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LintReport {}

impl Graph {
    /// Checks that the graph is a program: the checks of torch.fx's `lint` that need no host, in
    /// one pass.
    ///
    /// # Errors
    /// Every fault, suspect nodes included, if one of them is an error.
    pub fn lint(&self) -> Result<(), LintReport> {
        if self.passes_quick_check() {
            return Ok(());
        }
        let report = self.lint_report();
        if report.has_errors() {
            Err(report)
        } else {
            Ok(())
        }
    }

    /// Checks all invariants, also those that only a bug of this crate can break. For tests and
    /// debug builds: some times slower than [`Graph::lint`].
    ///
    /// # Errors
    /// Every fault, suspect nodes included, if one of them is an error.
    pub fn verify(&self) -> Result<(), LintReport> {
        let mut report = self.lint_report();
        self.check_bookkeeping(&mut report);
        if report.has_errors() {
            Err(report)
        } else {
            Ok(())
        }
    }

    /// Every fault that [`Graph::lint`] looks for, errors and suspect nodes.
    #[must_use]
    pub fn lint_report(&self) -> LintReport {
        let mut faults = Faults::new(self);
        let mut named: SecondaryMap<Symbol, bool> = SecondaryMap::new();
        let mut last_user: SecondaryMap<NodeId, Option<NodeId>> =
            SecondaryMap::with_capacity(self.id_bound());
        let mut parameters: FxHashMap<Symbol, NodeId> = FxHashMap::default();
        let mut output: Option<NodeId> = None;
        let mut previous = 0;
        for id in self.nodes() {
            let data = self.data(id);
            let order = self.order(id);
            if order <= previous {
                faults.add(id, FaultKind::OrderNumber);
            }
            previous = order;
            match (data.op, data.target) {
                (Op::CallFunction, Target::Name(_)) => {
                    let expected = "a function";
                    faults.add(id, FaultKind::WrongTarget { expected });
                }
                (Op::CallFunction, Target::Function(_)) => {}
                (_, Target::Function(_)) => {
                    let expected = "a name";
                    faults.add(id, FaultKind::WrongTarget { expected });
                }
                (_, Target::Name(_)) => {}
            }
            if std::mem::replace(named.get_mut(data.name), true) {
                faults.add(id, FaultKind::DuplicateName);
            }
            self.for_each_mention(id, &mut |argument| {
                // Once for each argument, however often it is mentioned.
                if last_user.get_mut(argument).replace(id) == Some(id) {
                    return;
                }
                let name = || self.node(argument).name().to_owned();
                if self.node(argument).is_erased() {
                    faults.add(id, FaultKind::ErasedArgument { argument: name() });
                } else if !self.is_before(argument, id) {
                    faults.add(id, FaultKind::UsedBeforeDefinition { argument: name() });
                }
            });
            if let Some(first) = output {
                let first = self.node(first).name().to_owned();
                faults.add(
                    id,
                    if data.op == Op::Output {
                        FaultKind::SecondOutput { first }
                    } else {
                        FaultKind::AfterOutput { output: first }
                    },
                );
            }
            match data.op {
                Op::Output => {
                    output = output.or(Some(id));
                    if data.args.is_empty() {
                        faults.add(id, FaultKind::OutputWithoutValue);
                    }
                    if let Some(user) = self.users(id).next() {
                        let user = self.node(user).name().to_owned();
                        faults.add(id, FaultKind::OutputUsed { user });
                    }
                }
                Op::Placeholder => {
                    let target = self.node(id).target_name();
                    if !is_parameter(target) {
                        let target = target.to_owned();
                        faults.add(id, FaultKind::NoParameterName { target });
                    }
                    if let Target::Name(symbol) = data.target {
                        let first = *parameters.entry(symbol).or_insert(id);
                        if first != id {
                            let first = self.node(first).name().to_owned();
                            let target = target.to_owned();
                            faults.add(id, FaultKind::DuplicateParameter { first, target });
                        }
                    }
                }
                Op::GetAttr | Op::CallFunction | Op::CallMethod | Op::CallModule => {}
            }
        }
        faults.report
    }

    /// The graph as printed, with each fault of `report` under the node it was found at.
    #[must_use]
    pub fn lint_listing(&self, report: &LintReport, host: &dyn HostText) -> String {
        let mut by_node: SecondaryMap<NodeId, Vec<&Fault>> = SecondaryMap::new();
        for fault in &report.faults {
            by_node.get_mut(fault.node).push(fault);
        }
        let mut out = String::from("graph():");
        let mut push = |line: &str, faults: &[&Fault]| {
            out.push_str(line);
            for fault in faults {
                let level = if fault.is_error() { "error" } else { "warning" };
                out.push_str(&format!("\n#   ^ {level}: {}", fault.kind));
            }
        };
        push("", &by_node[NodeId::ROOT]);
        for id in self.nodes() {
            push(
                &format!("\n    {}", self.format_node(id, host)),
                &by_node[id],
            );
        }
        out
    }

    /// Whether invariants 1 to 3, 6 and 7 hold, in one pass, the only one for a good graph.
    fn passes_quick_check(&self) -> bool {
        let mut names = vec![0_u64; self.symbol_count() / 64 + 1];
        let mut previous = 0;
        for id in self.nodes() {
            let data = self.data(id);
            let order = self.order(id);
            let is_call = matches!(data.op, Op::CallFunction);
            let has_function = matches!(data.target, Target::Function(_));
            let (word, bit) = (data.name.index() / 64, 1 << (data.name.index() % 64));
            if order <= previous || is_call != has_function || names[word] & bit != 0 {
                return false;
            }
            previous = order;
            names[word] |= bit;
            if !data.args.iter().all(|arg| self.is_defined(arg, order))
                || !data.kwargs.iter().all(|(_, a)| self.is_defined(a, order))
            {
                return false;
            }
        }
        true
    }

    /// Whether all nodes in `arg` are in the graph and come before the place `order`.
    #[inline]
    fn is_defined(&self, arg: &Arg, order: u64) -> bool {
        match arg {
            Arg::Node(id) => !self.is_erased(*id) && self.order(*id) < order,
            scalar if scalar.depth() == 0 => true,
            container => {
                let mut defined = true;
                container.for_each_node(&mut |id| {
                    defined &= !self.is_erased(id) && self.order(id) < order;
                });
                defined
            }
        }
    }

    /// Calls `visit` for each node that the arguments of `id` mention, as often as they do.
    fn for_each_mention(&self, id: NodeId, visit: &mut impl FnMut(NodeId)) {
        let data = self.data(id);
        data.args.iter().for_each(|arg| arg.for_each_node(visit));
        data.kwargs
            .iter()
            .for_each(|(_, arg)| arg.for_each_node(visit));
    }

    /// Invariants 8 to 11.
    fn check_bookkeeping(&self, report: &mut LintReport) {
        let mut faults = Faults::new(self);
        let found = self.list_length();
        if found != self.len() {
            let expected = self.len();
            faults.add(NodeId::ROOT, FaultKind::ListLength { expected, found });
        }

        // Erased nodes too: a host may give them arguments again. Users are compared by the sums of
        // their fingerprints: lists of them would take more memory than the graph's own.
        let all = || (1..self.id_bound()).map(NodeId::from_index);
        let mut mentions: SecondaryMap<NodeId, u64> = SecondaryMap::with_capacity(self.id_bound());
        let mut last_user: SecondaryMap<NodeId, Option<NodeId>> =
            SecondaryMap::with_capacity(self.id_bound());
        let mut inputs: Vec<NodeId> = Vec::new();
        for id in all() {
            inputs.clear();
            self.for_each_mention(id, &mut |node| {
                if last_user.get_mut(node).replace(id) != Some(id) {
                    let sum = mentions.get_mut(node);
                    *sum = sum.wrapping_add(fingerprint(id));
                    inputs.push(node);
                }
            });
            let limit = inputs.len() + 1;
            if !self.inputs(id).take(limit).eq(inputs.iter().copied()) {
                faults.add(id, FaultKind::InputsOutOfStep);
            }
        }
        for id in all() {
            // A list that goes round is longer than its count.
            let count = self.node(id).num_users();
            let (mut sum, mut found) = (0u64, 0);
            for user in self.users(id).take(count + 1) {
                sum = sum.wrapping_add(fingerprint(user));
                found += 1;
            }
            if sum != mentions[id] || count != found || !self.use_list_is_sound(id) {
                faults.add(id, FaultKind::UsersOutOfStep);
            }
        }
        for id in self.nodes_out_of_index() {
            faults.add(id, FaultKind::IndexOutOfStep);
        }
        report.faults.append(&mut faults.report.faults);
    }
}

/// A number for a node, such that equal sums of them mean the same nodes but for a chance of 2⁻⁶⁴:
/// the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn fingerprint(id: NodeId) -> u64 {
    let mut bits = (id.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Faults found so far.
struct Faults<'g> {
    graph: &'g Graph,
    report: LintReport,
}

impl<'g> Faults<'g> {
    fn new(graph: &'g Graph) -> Self {
        Self {
            graph,
            report: LintReport::default(),
        }
    }

    fn add(&mut self, node: NodeId, kind: FaultKind) {
        self.report.faults.push(Fault {
            node,
            name: self.graph.node(node).name().to_owned(),
            kind,
        });
    }
}

/// Whether `def f(TARGET):` is Python.
fn is_parameter(target: &str) -> bool {
    let name = target.strip_prefix('*').unwrap_or(target);
    let name = name.strip_prefix('*').unwrap_or(name);
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
        && chars.all(|c| c == '_' || c.is_alphanumeric())
        && !is_keyword(name)
}

#[cfg(test)]
mod tests;
