//! The language of the e-graph: calls whose literals belong to the operator and whose nodes are
//! operands, with facts about the tensors that they compute.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use corsac_ir::{Arg, EntityId, Graph, GraphError, NodeId, Op, Symbol, Target, ThinVec};
use corsac_ops::operator_name;
use corsac_ops::shape::{
    DetachedCall, Dim, Failure, NodeCost, Settings, Storage, Tensor, TensorType, Value,
};
use corsac_ops::signature::Signature;
use egg::{DidMerge, EGraph, Id, Language};
use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use crate::common_subexpressions::Replacements;
use crate::tensors::{TensorFact, TensorFacts};

/// An operator of the e-graph: an index into [`Heads`].
pub(super) type HeadId = u32;

/// A call without its operands: the target, the literals, and the places of operands.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) op: Op,
    pub(super) target: Target,
    /// `NodeId` number k stands for operand number k.
    pub(super) args: ThinVec<Arg>,
    pub(super) kwargs: ThinVec<(Symbol, Arg)>,
}

/// The head of an e-node.
#[derive(Clone, Debug)]
pub(super) enum Head {
    /// The value of a node of which only the type is used.
    Leaf(NodeId),
    /// A call.
    Call(Call),
}

/// The operators of an e-graph, each once.
#[derive(Debug, Default)]
pub(super) struct Heads {
    heads: Vec<Head>,
    calls: HashTable<HeadId>,
}

impl Heads {
    pub(super) fn get(&self, head: HeadId) -> &Head {
        &self.heads[head as usize]
    }

    pub(super) fn leaf(&mut self, node: NodeId) -> HeadId {
        self.heads.push(Head::Leaf(node));
        (self.heads.len() - 1) as HeadId
    }

    /// The number of a call.
    fn call(&mut self, call: Call) -> HeadId {
        let same = Replacements::default();
        let hash = |call: &Call| {
            let mut state = FxBuildHasher.build_hasher();
            (call.op, call.target).hash(&mut state);
            for arg in &call.args {
                same.hash_arg(arg, &mut state);
            }
            for (key, arg) in &call.kwargs {
                key.hash(&mut state);
                same.hash_arg(arg, &mut state);
            }
            std::hash::Hasher::finish(&state)
        };
        let hash_of = |heads: &[Head], id: HeadId| match &heads[id as usize] {
            Head::Call(call) => hash(call),
            Head::Leaf(_) => 0,
        };
        let equal = |other: &Call| {
            (call.op, call.target) == (other.op, other.target)
                && same.equal_all(&call.args, &other.args)
                && call.kwargs.len() == other.kwargs.len()
                && call
                    .kwargs
                    .iter()
                    .zip(&other.kwargs)
                    .all(|((k, a), (l, b))| k == l && same.equal_arg(a, b))
        };
        let own = hash(&call);
        let known = self.calls.find(own, |&id| match &self.heads[id as usize] {
            Head::Call(other) => equal(other),
            Head::Leaf(_) => false,
        });
        if let Some(&known) = known {
            return known;
        }
        let id = self.heads.len() as HeadId;
        self.heads.push(Head::Call(call));
        let heads = &self.heads;
        self.calls.insert_unique(own, id, |&id| hash_of(heads, id));
        id
    }

    /// The e-node of a call, where `class_of` returns the class of each node in the arguments.
    ///
    /// # Errors
    /// If containers nest too deeply.
    fn e_node(
        &mut self,
        op: Op,
        target: Target,
        args: &[Arg],
        kwargs: &[(Symbol, Arg)],
        class_of: &dyn Fn(NodeId) -> Id,
    ) -> Result<ENode, GraphError> {
        let mut children: SmallVec<[Id; 3]> = SmallVec::new();
        let mut hole = |arg: &Arg| -> Result<Arg, GraphError> {
            Ok(match arg {
                Arg::Node(node) => {
                    children.push(class_of(*node));
                    Arg::Node(NodeId::from_index(children.len() - 1))
                }
                other => other.clone(),
            })
        };
        let args = args.iter().map(|arg| arg.map_leaves(&mut hole));
        let args = args.collect::<Result<ThinVec<_>, _>>()?;
        let kwargs = kwargs.iter();
        let kwargs = kwargs.map(|(key, arg)| Ok((*key, arg.map_leaves(&mut hole)?)));
        let kwargs = kwargs.collect::<Result<ThinVec<_>, GraphError>>()?;
        let head = self.call(Call {
            op,
            target,
            args,
            kwargs,
        });
        Ok(ENode { head, children })
    }
}

impl Call {
    /// The arguments, where `operand` returns each operand by number.
    ///
    /// # Errors
    /// If containers nest too deeply.
    #[expect(clippy::type_complexity, reason = "positional and keyword arguments")]
    pub(super) fn arguments(
        &self,
        operand: &dyn Fn(usize) -> NodeId,
    ) -> Result<(ThinVec<Arg>, ThinVec<(Symbol, Arg)>), GraphError> {
        let mut fill = |arg: &Arg| -> Result<Arg, GraphError> {
            Ok(match arg {
                Arg::Node(hole) => Arg::Node(operand(hole.index())),
                other => other.clone(),
            })
        };
        let args = self.args.iter().map(|arg| arg.map_leaves(&mut fill));
        let args = args.collect::<Result<ThinVec<_>, _>>()?;
        let kwargs = self.kwargs.iter();
        let kwargs = kwargs.map(|(key, arg)| Ok((*key, arg.map_leaves(&mut fill)?)));
        Ok((args, kwargs.collect::<Result<_, GraphError>>()?))
    }

    /// The name of the target, as a graph prints it.
    pub(super) fn target_name<'g>(&self, graph: &'g Graph) -> &'g str {
        match self.target {
            Target::Function(function) => graph.function_name(function),
            Target::Name(name) => graph.text(name),
        }
    }
}

/// An e-node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ENode {
    pub(super) head: HeadId,
    pub(super) children: SmallVec<[Id; 3]>,
}

impl Language for ENode {
    type Discriminant = HeadId;

    fn discriminant(&self) -> HeadId {
        self.head
    }

    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

/// Facts about the values of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Shape and element type.
    pub(super) fact: TensorFact,
    /// Whether the call would fail: then no value is equal to it.
    pub(super) fails: bool,
}

impl Known {
    /// Whether the facts allow two values to be the same.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        fn both<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
            a.is_none() || b.is_none() || a == b
        }
        let (a, b) = (&self.fact, &other.fact);
        !self.fails
            && !other.fails
            && both(a.shape.as_ref(), b.shape.as_ref())
            && both(a.dtype.as_ref(), b.dtype.as_ref())
    }
}

/// Infers facts about the values of a class when an e-node enters the e-graph.
pub(super) struct Types<'a> {
    pub(super) graph: &'a Graph,
    pub(super) heads: Heads,
    /// Facts about the nodes of the graph.
    pub(super) facts: &'a TensorFacts,
    pub(super) settings: Settings,
    /// The spelling of calls of an operator, where it makes no difference.
    spelling: FxHashMap<String, (Op, Target)>,
}

impl<'a> Types<'a> {
    pub(super) fn new(graph: &'a Graph, facts: &'a TensorFacts, settings: Settings) -> Self {
        Self {
            graph,
            heads: Heads::default(),
            facts,
            settings,
            spelling: FxHashMap::default(),
        }
    }

    /// One spelling for all calls that pass an operator's arguments by position, in the order of
    /// its signature: the first one met. Operators of `torch.ops`, which have overloads, keep
    /// theirs.
    fn spelled(&mut self, op: Op, target: Target, arguments: usize) -> (Op, Target) {
        let name = match target {
            Target::Function(function) => self.graph.function_name(function),
            Target::Name(name) => self.graph.text(name),
        };
        let Some(operator) = operator_name(op, name) else {
            return (op, target);
        };
        let by_position = Signature::of(operator).is_some_and(|signature| {
            let parameters = &signature.parameters;
            arguments <= parameters.len() && !parameters.iter().any(|p| p.variadic)
        });
        if !by_position || Signature::of_spelling(name).is_some() || name.starts_with("torch.ops.")
        {
            return (op, target);
        }
        if let Some(&known) = self.spelling.get(operator) {
            return known;
        }
        self.spelling.insert(operator.to_owned(), (op, target));
        (op, target)
    }
}

/// Adds a call, where `class_of` returns the class of each node in the arguments.
///
/// # Errors
/// If containers nest too deeply.
pub(super) fn add_call(
    classes: &mut Classes<'_>,
    (op, target): (Op, Target),
    args: &[Arg],
    kwargs: &[(Symbol, Arg)],
    class_of: &dyn Fn(NodeId) -> Id,
) -> Result<(Id, ENode), GraphError> {
    let is_tensor = |arg: &Arg| {
        let class = arg.as_node().map(class_of);
        class.is_some_and(|class| classes[class].data.fact.dtype.is_some())
    };
    // In other spellings, flags have another position or do not exist: `relu(x, inplace)`.
    let has_flags = args.iter().any(|arg| matches!(arg, Arg::Bool(_)));
    let plain = kwargs.is_empty() && !has_flags && args.first().is_some_and(is_tensor);
    let types = &mut classes.analysis;
    let (op, target) = if plain {
        types.spelled(op, target, args.len())
    } else {
        (op, target)
    };
    let e_node = types.heads.e_node(op, target, args, kwargs, class_of)?;
    Ok((classes.add(e_node.clone()), e_node))
}

/// The e-graph.
pub(super) type Classes<'a> = EGraph<ENode, Types<'a>>;

impl<'a> egg::Analysis<ENode> for Types<'a> {
    type Data = Known;

    fn make(classes: &mut Classes<'a>, node: &ENode, _id: Id) -> Known {
        let types = &classes.analysis;
        match types.heads.get(node.head) {
            Head::Leaf(leaf) => Known {
                fact: TensorFact {
                    strides: None,
                    ..types.facts.get(*leaf).cloned().unwrap_or_default()
                },
                fails: false,
            },
            Head::Call(_) => match infer(classes, node) {
                Ok((value, _)) => Known {
                    fact: fact_of(&value),
                    fails: false,
                },
                Err(failure) => Known {
                    fact: TensorFact::default(),
                    fails: matches!(failure, Failure::Invalid { .. }),
                },
            },
        }
    }

    fn merge(&mut self, a: &mut Known, b: Known) -> DidMerge {
        let before = a.clone();
        let other = b.clone();
        a.fact.shape = a.fact.shape.take().or(b.fact.shape);
        a.fact.dtype = a.fact.dtype.take().or(b.fact.dtype);
        // A call that equals one that does not fail does not fail either.
        a.fails &= b.fails;
        DidMerge(*a != before, *a != other)
    }
}

/// The type and cost of a call.
pub(super) fn infer(classes: &Classes<'_>, node: &ENode) -> Result<(Value, NodeCost), Failure> {
    let types = &classes.analysis;
    let Head::Call(call) = types.heads.get(node.head) else {
        return Err(Failure::unknown("not a call"));
    };
    // The operands are numbered: their classes are looked up.
    let value_of = |hole: NodeId| {
        let class = classes.find(node.children[hole.index()]);
        value_of(&classes[class].data.fact, usize::from(class))
    };
    DetachedCall {
        op: call.op,
        target: call.target,
        args: &call.args,
        kwargs: &call.kwargs,
    }
    .infer(types.graph, &value_of, types.settings)
}

/// A value with these facts, in storage number `storage`.
fn value_of(fact: &TensorFact, storage: usize) -> Value {
    let (Some(dtype), Some(shape)) = (fact.dtype, &fact.shape) else {
        return Value::unknown("its type is not known");
    };
    let shape = shape.iter().map(|&size| Dim::Known(size));
    Value::Tensor(Tensor {
        ty: Arc::new(TensorType::new(dtype, shape)),
        storage: Storage::from_index(storage),
    })
}

fn fact_of(value: &Value) -> TensorFact {
    let Some(tensor) = value.as_tensor() else {
        return TensorFact::default();
    };
    TensorFact {
        shape: tensor.shape.iter().map(Dim::known).collect(),
        dtype: Some(tensor.dtype),
        // Equal values may have different strides.
        strides: None,
    }
}
