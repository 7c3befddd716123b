//! The plan of the printer: the result of the analysis.

use corsac_ir::{Arg, EntityId, ExternalId, FunctionId, Graph, Node, NodeId};
use rustc_hash::FxHashMap;

use crate::attribute::is_plain_identifier;
use crate::names::Names;
use crate::operator::Operator;

/// The plan of the printer.
pub(crate) struct Plan<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) names: Names,
    pub(crate) functions: Vec<Option<FunctionText>>,
    pub(crate) values: FxHashMap<ExternalId, Box<str>>,
    pub(crate) annotations: FxHashMap<ExternalId, Box<str>>,
    pub(crate) classes: FxHashMap<ExternalId, Box<str>>,
    /// Placeholders, in order.
    pub(crate) inputs: Vec<Input>,
    /// Output nodes, in order.
    pub(crate) outputs: Vec<NodeId>,
    /// By index of a value: the node that uses it last.
    pub(crate) last_use: Vec<Option<NodeId>>,
    /// Placeholders whose parameter has another name than the target.
    pub(crate) parameters: FxHashMap<NodeId, Box<str>>,
    /// Names of the arguments that the called function empties itself, with their positions.
    pub(crate) boxed: FxHashMap<NodeId, Vec<(usize, Box<str>)>>,
    /// Names of the functions marked with `wrap`.
    pub(crate) wrapped: Vec<Box<str>>,
    /// The text of `wrap`.
    pub(crate) wrap: Box<str>,
}

/// A placeholder.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    pub(crate) node: NodeId,
    /// Whether other nodes come before it.
    pub(crate) is_late: bool,
}

/// The text of a function.
pub(crate) struct FunctionText {
    pub(crate) operator: Option<Operator>,
    /// Its name, once a call needs it.
    pub(crate) name: Option<Box<str>>,
}

/// The form of a call_function node in the code.
pub(crate) enum CallForm<'g> {
    Operator(Operator),
    /// `x.name`
    Attribute(&'g str),
    Call,
}

impl<'g> Plan<'g> {
    /// A plan without any results of the analysis yet.
    pub(crate) fn new(graph: &'g Graph) -> Self {
        let mut functions = Vec::new();
        functions.resize_with(graph.functions().len(), || None);
        Self {
            graph,
            names: Names {
                renamed: FxHashMap::default(),
                globals: Vec::new(),
            },
            functions,
            values: FxHashMap::default(),
            annotations: FxHashMap::default(),
            classes: FxHashMap::default(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            last_use: vec![None; graph.id_bound()],
            parameters: FxHashMap::default(),
            boxed: FxHashMap::default(),
            wrapped: Vec::new(),
            wrap: "".into(),
        }
    }

    /// The name of a value.
    #[inline]
    pub(crate) fn name(&self, id: NodeId) -> &str {
        if !self.names.renamed.is_empty()
            && let Some(name) = self.names.renamed.get(&id)
        {
            return name;
        }
        self.graph.node(id).name()
    }

    /// The name of the parameter of a placeholder, without stars.
    pub(crate) fn parameter<'a>(&'a self, node: Node<'a>) -> &'a str {
        match self.parameters.get(&node.id()) {
            Some(name) => name,
            None => raw_parameter(node.target_name()).1,
        }
    }

    #[inline]
    pub(crate) fn is_last_use(&self, value: NodeId, user: NodeId) -> bool {
        self.last_use[value.index()] == Some(user)
    }

    pub(crate) fn function(&self, id: FunctionId) -> &str {
        let text = self.functions[id.index()].as_ref();
        text.and_then(|text| text.name.as_deref())
            .expect("analysis named every function that is called")
    }

    /// Texts of host values and named tuple classes.
    pub(crate) fn host_texts(&self) -> Vec<(ExternalId, String)> {
        let all = self.values.iter().chain(&self.classes);
        let mut texts: Vec<_> = all.map(|(id, text)| (*id, text.to_string())).collect();
        texts.sort_unstable();
        texts
    }

    pub(crate) fn value(&self, id: ExternalId) -> &str {
        &self.values[&id]
    }

    pub(crate) fn annotation(&self, id: ExternalId) -> &str {
        &self.annotations[&id]
    }

    pub(crate) fn class(&self, id: ExternalId) -> &str {
        &self.classes[&id]
    }

    pub(crate) fn boxed(&self, id: NodeId) -> &[(usize, Box<str>)] {
        if self.boxed.is_empty() {
            return &[];
        }
        self.boxed.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The form of a call_function node.
    #[inline]
    pub(crate) fn call_form(&self, node: Node<'g>, function: FunctionId) -> CallForm<'g> {
        let Some(text) = &self.functions[function.index()] else {
            return CallForm::Call;
        };
        let args = node.args();
        if let Some(operator) = text.operator
            && args.len() == operator.arity()
            && node.kwargs().is_empty()
            && (!operator.assigns() || args[0].as_node().is_some())
        {
            return CallForm::Operator(operator);
        }
        if text.name.as_deref() == Some("getattr")
            && let [_, Arg::Str(name)] = args
            && is_plain_identifier(self.graph.text(*name))
        {
            return CallForm::Attribute(self.graph.text(*name));
        }
        CallForm::Call
    }
}

/// Stars and name of a placeholder's target.
pub(crate) fn raw_parameter(target: &str) -> (&str, &str) {
    let name = target.trim_start_matches('*');
    match target.len() - name.len() {
        stars @ (0..=2) => (&target[..stars], name),
        _ => ("", target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_of_a_parameter() {
        assert_eq!(raw_parameter("*args"), ("*", "args"));
        assert_eq!(raw_parameter("**kwargs"), ("**", "kwargs"));
        assert_eq!(raw_parameter("x"), ("", "x"));
        assert_eq!(raw_parameter("***x"), ("", "***x"));
    }
}
