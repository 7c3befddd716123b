//! Effects of the nodes of a graph: a cache of the behaviour of each target, applied to arguments.

use std::rc::Rc;

use corsac_ir::{Arg, FunctionId, Graph, Node, NodeId, Op, SecondaryMap, Symbol, Target};
use smallvec::SmallVec;

use crate::behaviour::{Behaviour, Param, When};
use crate::effects::Effects;
use crate::host::{FunctionInfo, Host};
use crate::{OperatorId, functions, methods, modules};

/// Operators and effects of the nodes of one graph. Each function, method and module is looked up
/// once.
pub struct Catalogue<'h> {
    host: &'h dyn Host,
    functions: SecondaryMap<FunctionId, Option<Rc<Callee>>>,
    methods: SecondaryMap<Symbol, Option<Rc<Callee>>>,
    modules: SecondaryMap<Symbol, Option<Rc<Callee>>>,
}

/// The target of calls.
struct Callee {
    operator: Option<OperatorId>,
    behaviour: Behaviour,
}

impl<'h> Catalogue<'h> {
    /// An empty cache in front of `host`.
    #[must_use]
    pub fn new(host: &'h dyn Host) -> Self {
        Self {
            host,
            functions: SecondaryMap::new(),
            methods: SecondaryMap::new(),
            modules: SecondaryMap::new(),
        }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &'h dyn Host {
        self.host
    }

    /// The behaviour of the target of a call; `None` for nodes that call nothing.
    pub fn behaviour(&mut self, graph: &Graph, node: NodeId) -> Option<&Behaviour> {
        let node = graph.node(node);
        self.behaviour_of(graph, node.op(), node.target())
    }

    /// The operator that a node calls, by a module too; `None` where the table has no row for it.
    pub fn operator(&mut self, graph: &Graph, node: NodeId) -> Option<OperatorId> {
        let node = graph.node(node);
        self.callee(graph, node.op(), node.target())?.operator
    }

    fn callee(&mut self, graph: &Graph, op: Op, target: Target) -> Option<&Callee> {
        let slot = match (op, target) {
            (Op::CallFunction, Target::Function(function)) => {
                let slot = self.functions.get_mut(function);
                if slot.is_none() {
                    *slot = Some(Rc::new(Callee {
                        operator: OperatorId::of(op, graph.function_name(function)),
                        behaviour: of_function(self.host, graph, function),
                    }));
                }
                slot
            }
            (Op::CallMethod, Target::Name(name)) => {
                let slot = self.methods.get_mut(name);
                if slot.is_none() {
                    *slot = Some(Rc::new(Callee {
                        operator: OperatorId::of(op, graph.text(name)),
                        behaviour: methods::behaviour(graph.text(name)),
                    }));
                }
                slot
            }
            (Op::CallModule, Target::Name(path)) => {
                let slot = self.modules.get_mut(path);
                if slot.is_none() {
                    let info = self.host.module(graph.text(path));
                    let class = info.as_ref().and_then(|info| info.torch_class());
                    *slot = Some(Rc::new(Callee {
                        operator: class.and_then(OperatorId::of_module),
                        behaviour: info
                            .map_or_else(Behaviour::opaque, |info| modules::behaviour(&info)),
                    }));
                }
                slot
            }
            // Other opcodes call nothing; an opcode that does not fit its target cannot be made.
            _ => return None,
        };
        slot.as_deref()
    }

    /// The behaviour of `target`, also where no node calls it yet; `None` for opcodes that call
    /// nothing.
    pub fn behaviour_of(&mut self, graph: &Graph, op: Op, target: Target) -> Option<&Behaviour> {
        Some(&self.callee(graph, op, target)?.behaviour)
    }

    /// The effects of `node`.
    pub fn effects(&mut self, graph: &Graph, node: NodeId) -> Effects {
        self.effects_given(graph, node, &literal_truth)
    }

    /// The effects of `node`, where `truth` decides which of its arguments are true: `inplace`,
    /// `training`.
    pub fn effects_given(&mut self, graph: &Graph, node: NodeId, truth: Truth<'_>) -> Effects {
        let view = graph.node(node);
        let Some(behaviour) = self.behaviour(graph, node) else {
            return match view.op() {
                Op::Output => Effects {
                    side_effect: true,
                    ..Effects::default()
                },
                op => Effects {
                    outside: true,
                    single: op == Op::GetAttr && self.host.is_tensor(view.target_name()),
                    ..Effects::default()
                },
            };
        };
        if behaviour.is_pure() && view.kwarg("out").is_none() {
            return Effects {
                single: behaviour.single,
                ..Effects::default()
            };
        }
        apply(behaviour, view, truth)
    }
}

fn of_function(host: &dyn Host, graph: &Graph, function: FunctionId) -> Behaviour {
    let name = graph.function_name(function);
    let behaviour = match host.function(graph, function) {
        FunctionInfo::Pure => return Behaviour::view_of_any(),
        FunctionInfo::Operator(schema) => {
            let name = schema.name.split('.').next().unwrap_or_default();
            let known = Behaviour::of_schema(&schema);
            let seeded_operator = schema.random;
            return Behaviour {
                seeded_operator,
                ..functions::amended(name, known, true)
            };
        }
        FunctionInfo::ByName => return functions::behaviour(name),
        FunctionInfo::SideEffect => functions::behaviour(name),
    };
    // torch.fx keeps every `x[i] = v`; the argument it writes to is known here.
    if matches!(name, "operator.setitem" | "_operator.setitem") {
        return behaviour;
    }
    Behaviour {
        side_effect: true,
        ..behaviour
    }
}

fn apply(behaviour: &Behaviour, node: Node<'_>, truth: Truth<'_>) -> Effects {
    let holds = |when: &When| holds(when, node, truth);
    let mut effects = Effects {
        by_layout: behaviour.by_layout,
        // A result given by name is resized to fit.
        reshapes: behaviour.reshapes || node.kwarg("out").is_some(),
        random: holds(&behaviour.random),
        seeded_operator: behaviour.seeded_operator,
        side_effect: behaviour.side_effect,
        barrier: behaviour.barrier,
        unrepeatable: behaviour.unrepeatable,
        reads_state: behaviour.reads_state,
        writes_state: behaviour.writes_state,
        opaque: behaviour.opaque,
        concatenates: behaviour.concatenates,
        single: behaviour.single,
        ..Effects::default()
    };
    for role in &behaviour.roles {
        let (written, aliased) = (holds(&role.written), holds(&role.aliased));
        if !(written || aliased) {
            continue;
        }
        let mut visit = |id| {
            if written {
                push_new(&mut effects.mutates, id);
            }
            if aliased {
                push_new(&mut effects.aliases, id);
            }
        };
        match find(&role.param, node) {
            Found::Given(arg) => arg.for_each_node(&mut visit),
            Found::Missing => {}
            // Given by a name that is not in the schema: it may be any of the keywords.
            Found::Unclear => node
                .kwargs()
                .iter()
                .for_each(|(_, arg)| arg.for_each_node(&mut visit)),
        }
    }
    if behaviour.opaque {
        effects.mutates = node.inputs().collect();
    }
    if behaviour.aliases_all {
        effects.aliases = node.inputs().collect();
    }
    // Functions of PyTorch that are written in Python take it, too, and no table says so. It is what they give.
    let mut out: SmallVec<[NodeId; 2]> = SmallVec::new();
    if let Some(given) = node.kwarg("out") {
        given.for_each_node(&mut |id| push_new(&mut out, id));
    }
    for &id in &out {
        push_new(&mut effects.mutates, id);
    }
    if !out.is_empty() && !behaviour.opaque {
        effects.aliases = out;
    }
    effects
}

fn push_new(list: &mut SmallVec<[NodeId; 2]>, id: NodeId) {
    if !list.contains(&id) {
        list.push(id);
    }
}

enum Found<'g> {
    Given(&'g Arg),
    Missing,
    Unclear,
}

fn find<'g>(param: &Param, node: Node<'g>) -> Found<'g> {
    let positional = param.position.map(usize::from);
    if let Some(arg) = positional.and_then(|position| node.args().get(position)) {
        return Found::Given(arg);
    }
    if let Some(arg) = node.kwarg(&param.name) {
        return Found::Given(arg);
    }
    // PyTorch's schemas say `self` where its Python functions say `input`.
    if param.name == "self"
        && let Some(arg) = node.kwarg("input")
    {
        return Found::Given(arg);
    }
    if positional == Some(0) && !node.kwargs().is_empty() {
        return Found::Unclear;
    }
    Found::Missing
}

fn holds(when: &When, node: Node<'_>, truth: Truth<'_>) -> bool {
    let given = |param: &Param| match find(param, node) {
        Found::Given(arg) => Some(arg),
        Found::Missing | Found::Unclear => None,
    };
    match when {
        When::Never => false,
        When::Always => true,
        When::If(param, default) => given(param).map_or(*default, |arg| truth(arg) != Some(false)),
    }
}

/// Whether an argument is true; `None` if that is not known.
pub type Truth<'a> = &'a dyn Fn(&Arg) -> Option<bool>;

fn literal_truth(arg: &Arg) -> Option<bool> {
    match arg {
        Arg::None => Some(false),
        Arg::Bool(value) => Some(*value),
        Arg::Int(value) => Some(*value != 0),
        Arg::Float(value) => Some(*value != 0.0),
        _ => None,
    }
}
