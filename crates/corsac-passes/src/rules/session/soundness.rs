//! Planning of sound rewrites for matches.

use corsac_ir::rewrite::Patch;
use corsac_ir::{Arg, EntityId, Graph, NodeId, NodeSpec, Op, Symbol};
use smallvec::SmallVec;
use thin_vec::ThinVec;

use super::super::condition::Context;
use super::super::rule::{Condition, Value};
use super::super::search::Found;
use super::host::{Answer, MatchView, RuleHost};
use super::{NoPlan, Plan, Session, unused_after};

impl Session<'_> {
    /// The change that applies a rule to a match, if it is sound.
    pub(super) fn plan<'g>(
        &self,
        graph: &'g Graph,
        rule: usize,
        found: &Found<'g>,
        host: &mut dyn RuleHost,
    ) -> Result<Plan, NoPlan> {
        let context = Context {
            graph,
            facts: &self.facts,
            rule: &self.set.rules()[rule],
            found,
        };
        if !context.has_kinds() {
            return Err(NoPlan::NoMatch);
        }
        context.check()?;
        let rule_of = context.rule;
        let name = |node: NodeId| graph.node(node).name();

        let order = |node: &&NodeId| graph.node(**node).order();
        let (Some(&first), Some(&last)) = (
            found.covered.iter().min_by_key(order),
            found.covered.iter().max_by_key(order),
        ) else {
            return Err(NoPlan::Because("nothing is matched".to_owned()));
        };
        let Some(&at) = found.roots.iter().min_by_key(order) else {
            return Err(NoPlan::Because("nothing is matched".to_owned()));
        };

        let mut patch = Patch::new(graph, at);
        let base = graph.id_bound();
        let built = self.built.as_ref();
        let built = built.filter(|built| built.rule == rule && built.node == found.roots[0]);
        let (replacement, views) = match built {
            Some(built) => (&built.replacement, &built.views),
            None => (&rule_of.replacement, &self.views[rule]),
        };
        let obstacle = match built {
            Some(built) => &built.obstacle,
            None => &self.obstacles[rule],
        };
        if let Some(obstacle) = obstacle {
            return Err(NoPlan::Because(obstacle.clone()));
        }
        // For each new node, whether its value may share storage with an attribute.
        let mut attributes: Vec<bool> = Vec::with_capacity(replacement.calls.len());
        let mut shares = Vec::with_capacity(replacement.calls.len());
        let origin = graph.origin(found.roots[0]);
        let mut used: SmallVec<[NodeId; 8]> = SmallVec::new();
        for call in &replacement.calls {
            let new = |index: usize| Some(NodeId::from_index(base + index));
            let value = |value: &Value| context.value_with(value, &new);
            let args: ThinVec<Arg> = call.args.iter().map(value).collect::<Result<_, _>>()?;
            let kwargs = call.kwargs.iter();
            let kwargs: ThinVec<(Symbol, Arg)> = kwargs
                .map(|(key, v)| Ok((self.vocabulary.symbol(key), value(v)?)))
                .collect::<Result<_, String>>()?;
            let view = views[shares.len()];
            let (op, target, view) = self.target(graph, found, &call.callee, view)?;
            let mut attribute = op == Op::GetAttr;
            let mut operand = None;
            for arg in args.iter().chain(kwargs.iter().map(|(_, arg)| arg)) {
                arg.for_each_node(&mut |node| match node.index().checked_sub(base) {
                    None => {
                        operand = operand.or(Some(node));
                        used.push(node);
                    }
                    Some(index) => attribute |= view && attributes[index],
                });
            }
            attributes.push(attribute);
            shares.push((view, operand));
            let spec = NodeSpec {
                op,
                target,
                args,
                kwargs,
                ty: None,
            };
            patch.add(spec, None, origin);
        }
        let new = |index: usize| Some(NodeId::from_index(base + index));
        let values = replacement.values.iter();
        let values: Vec<Arg> = values
            .map(|value| context.value_with(value, &new))
            .collect::<Result<_, _>>()?;
        for value in &values {
            value.for_each_node(&mut |node| {
                if node.index() < base {
                    used.push(node);
                }
            });
        }

        for &node in &used {
            if found.roots.contains(&node) {
                let node = name(node);
                return Err(format!("the result uses {node}, which it replaces").into());
            }
            if !graph.is_before(node, at) {
                let (node, at) = (name(node), name(at));
                return Err(format!("the result uses {node}, which comes after {at}").into());
            }
        }
        self.check_reads(graph, found, first, last, replacement.uses_state())?;
        for (&root, value) in found.roots.iter().zip(&values) {
            let mut of_attribute = false;
            value.for_each_node(&mut |node| {
                let index = node.index().checked_sub(base);
                of_attribute |= index.is_some_and(|index| attributes[index]);
            });
            if of_attribute && (self.hazards.is_returned(root) || self.hazards.is_written(root)) {
                let root = name(root);
                return Err(format!("{root} would share storage with an attribute").into());
            }
            self.check_sharing(graph, root, value, base, &shares, &used)?;
        }
        for condition in &rule_of.conditions {
            if let Condition::Host(number) = condition {
                let view = MatchView {
                    context: Context { ..context },
                    number: rule,
                };
                match host.holds(*number, &view) {
                    Answer::Yes => {}
                    Answer::No(reason) => return Err(NoPlan::Because(reason)),
                    Answer::Stop => return Err(NoPlan::Stop),
                }
            }
        }

        for (&root, value) in found.roots.iter().zip(&values) {
            patch.redirect(root, value.clone());
        }
        let dropped = unused_after(graph, found, &used);
        dropped.iter().for_each(|&node| patch.drop_node(node));
        let released = if self.counts_uses {
            dropped
                .iter()
                .flat_map(|&node| graph.inputs(node))
                .collect()
        } else {
            Vec::new()
        };
        Ok(Plan {
            rule,
            patch,
            roots: found.roots.clone(),
            values,
            shares,
            dropped,
            released,
        })
    }

    /// Checks that the new nodes read the same values as the old ones.
    pub(super) fn check_reads(
        &self,
        graph: &Graph,
        found: &Found<'_>,
        first: NodeId,
        last: NodeId,
        reads_state: bool,
    ) -> Result<(), String> {
        let name = |node: NodeId| graph.node(node).name();
        for &node in &found.covered {
            if !self.hazards.is_pure(node) {
                let node = name(node);
                return Err(format!("{node} does more than compute a value"));
            }
        }
        if first == last {
            return Ok(());
        }
        let inputs = found.covered.iter().flat_map(|&node| graph.inputs(node));
        let read = inputs.chain(found.covered.iter().copied());
        if let Some(node) = self.hazards.written_between(read, first, last) {
            let (node, first, last) = (name(node), name(first), name(last));
            return Err(format!("{node} is written to between {first} and {last}"));
        }
        let mut covered = found.covered.iter();
        let reads_state = reads_state || covered.any(|&node| self.hazards.reads_state(node));
        if reads_state && self.hazards.state_written_between(first, last) {
            let (first, last) = (name(first), name(last));
            return Err(format!(
                "a parameter, buffer or input is written to between {first} and {last}"
            ));
        }
        if self.hazards.barrier_between(first, last) {
            let (first, last) = (name(first), name(last));
            return Err(format!(
                "a call between {first} and {last} may change what is computed"
            ));
        }
        Ok(())
    }

    /// Checks that it is not observable whether the result is another tensor or shares storage with
    /// one.
    pub(super) fn check_sharing(
        &self,
        graph: &Graph,
        root: NodeId,
        value: &Arg,
        base: usize,
        shares: &[(bool, Option<NodeId>)],
        used: &[NodeId],
    ) -> Result<(), String> {
        let name = |node: NodeId| graph.node(node).name();
        let mut existing: SmallVec<[NodeId; 2]> = SmallVec::new();
        let mut shares_now = false;
        value.for_each_node(&mut |node| match node.index().checked_sub(base) {
            Some(index) => shares_now |= shares[index].0,
            None => existing.push(node),
        });
        let shared_before = self.hazards.shares(root);
        if !(shared_before || shares_now || !existing.is_empty()) {
            return Ok(());
        }
        let others = if shares_now { used } else { &existing[..] };
        for &node in others.iter().chain([&root]) {
            if self.hazards.written_after(node, root) {
                let (node, root) = (name(node), name(root));
                return Err(format!(
                    "{node} is written to later, and {root} would then share other storage"
                ));
            }
        }
        if shared_before || !self.hazards.is_returned(root) {
            return Ok(());
        }
        for &node in others {
            let known = self.hazards.is_outside(node) || self.hazards.is_returned(node);
            if known {
                let (node, root) = (name(node), name(root));
                return Err(format!(
                    "the caller gets {root}, which would share storage with {node}, and may write \
                     to it"
                ));
            }
        }
        Ok(())
    }
}
