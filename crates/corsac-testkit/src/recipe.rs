//! Graphs as plain data, generated at random and shrunk when a test fails.
//!
//! A recipe refers to nodes by position, modulo the number of nodes, so that every recipe gives a
//! valid graph, also after parts of it were removed.

use corsac_ir::{
    Arg, DType, Device, DeviceKind, Dict, ExternalId, Graph, Layout, MemoryFormat, NodeId,
    NodeSpec, Op, Origin, Scope, ScopeId, Seq, Source, Target, ThinVec,
};
use num_bigint::{BigInt, Sign};

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRecipe {
    /// Opcode, by position among all but output.
    pub op: u8,
    /// Target, by position among those of the opcode.
    pub target: u8,
    /// Positional arguments.
    pub args: Vec<ArgRecipe>,
    /// Keyword arguments; of those with one keyword the first counts.
    pub kwargs: Vec<(u8, ArgRecipe)>,
    /// Type annotation, by position, if there is one.
    pub ty: Option<u8>,
    /// Source: a line of a file (`true`), or a position in a code object.
    pub source: Option<(bool, u8)>,
    /// Scope, the module call that reached it, by position.
    pub scope: Option<u8>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgRecipe {
    /// An earlier node; None where there is none.
    Node(u16),
    /// Something without parts.
    Leaf(Leaf),
    /// A tuple.
    Tuple(Vec<ArgRecipe>),
    /// A list.
    List(Vec<ArgRecipe>),
    /// A dictionary.
    Dict(Vec<(KeyRecipe, ArgRecipe)>),
    /// A slice.
    Slice(Box<[ArgRecipe; 3]>),
    /// An instance of one of the classes.
    NamedTuple(u8, Vec<ArgRecipe>),
}

/// The key of a dictionary.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyRecipe {
    /// Something without parts.
    Leaf(Leaf),
    /// A tuple.
    Tuple(Vec<Leaf>),
}

/// An argument without parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// `None`
    None,
    /// `...`
    Ellipsis,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer of any size: sign, and bytes of the magnitude.
    Big(bool, Vec<u8>),
    /// A number.
    Float(f64),
    /// A complex number.
    Complex(f64, f64),
    /// A string.
    Str(String),
    /// A byte string.
    Bytes(Vec<u8>),
    /// A dtype, layout or memory format, by position.
    Torch(u8),
    /// A device: kind, number.
    Device(u8, Option<u16>),
    /// A range.
    Range(i64, i64, i64),
    /// A host value.
    Opaque(u8),
}

/// A whole program.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphRecipe {
    /// Its nodes.
    pub nodes: Vec<NodeRecipe>,
    /// Its result, if it has an output node.
    pub output: Option<ArgRecipe>,
}

/// Number of host values and of scopes to choose from.
const CHOICES: u8 = 4;

/// Names of functions; those at odd places have a host object.
const FUNCTIONS: [&str; 6] = [
    "torch.relu",
    "operator.add",
    "torch.ops.aten.add.Tensor",
    "builtins.getattr",
    "pkg.<lambda>",
    "operator.add",
];
const NAMES: [&str; 6] = ["x", "layer1.0", "*args", "view", "for", "weight.a_1"];
const KEYWORDS: [&str; 4] = ["dim", "alpha", "a b", ""];

impl GraphRecipe {
    /// The graph.
    ///
    /// # Panics
    /// If the graph refuses a node, which it has no reason to.
    #[must_use]
    pub fn build(&self) -> Graph {
        let mut graph = Graph::new();
        let host = HostValues::new(&mut graph);
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for recipe in &self.nodes {
            nodes.push(recipe.create(&mut graph, &host, &nodes));
        }
        if let Some(output) = &self.output {
            let value = output.build(&mut graph, &host, &nodes);
            graph.output(value).expect("an earlier node");
        }
        graph
    }
}

/// Host values that the nodes of one graph share.
#[derive(Clone, Debug)]
pub struct HostValues {
    externals: Vec<ExternalId>,
    functions: Vec<corsac_ir::FunctionId>,
    scopes: Vec<ScopeId>,
}

impl HostValues {
    /// Adds the values to a graph.
    #[must_use]
    pub fn new(graph: &mut Graph) -> Self {
        let externals: Vec<_> = (0..CHOICES)
            .map(|i| {
                let name = format!("pkg.Class{i}");
                graph.add_external((i % 2 == 0).then_some(name.as_str()))
            })
            .collect();
        let functions = FUNCTIONS
            .iter()
            .enumerate()
            .map(|(i, name)| {
                if i % 2 == 0 {
                    return graph.function(name);
                }
                let object = graph.add_external(None);
                graph.external_function(name, if i == 1 { "plus" } else { "add" }, object)
            })
            .collect();
        let mut scopes: Vec<ScopeId> = Vec::new();
        for i in 0..CHOICES {
            let scope = Scope {
                parent: scopes.last().copied().filter(|_| i != 2),
                path: graph.intern(NAMES[usize::from(i)]),
                class: externals[usize::from(i)],
                call: u32::from(i),
            };
            scopes.push(graph.add_scope(scope));
        }
        Self {
            externals,
            functions,
            scopes,
        }
    }

    fn external(&self, choice: u8) -> ExternalId {
        self.externals[usize::from(choice) % self.externals.len()]
    }
}

impl NodeRecipe {
    /// Creates the node at the insertion point; its arguments are among `nodes`.
    ///
    /// # Panics
    /// If the graph refuses it, which it has no reason to.
    pub fn create(&self, graph: &mut Graph, host: &HostValues, nodes: &[NodeId]) -> NodeId {
        let (op, target) = self.call(graph, host);
        let args = self
            .args
            .iter()
            .map(|arg| arg.build(graph, host, nodes))
            .collect();
        let mut kwargs = ThinVec::new();
        for (key, value) in &self.kwargs {
            let key = graph.intern(KEYWORDS[usize::from(*key) % KEYWORDS.len()]);
            if kwargs.iter().all(|(other, _)| *other != key) {
                kwargs.push((key, value.build(graph, host, nodes)));
            }
        }
        let ty = self.ty.map(|ty| host.external(ty));
        let spec = NodeSpec {
            op,
            target,
            args,
            kwargs,
            ty,
        };
        let id = graph.create(spec, None).expect("nodes of this graph");
        let source = self.source.map(|(is_line, at)| {
            if is_line {
                let file = graph.intern("a 'b'.py");
                let function = graph.intern("forward");
                graph.add_source(Source::Line {
                    file,
                    line: u32::from(at),
                    function,
                })
            } else {
                graph.add_source(Source::Host {
                    code: host.external(at),
                    offset: i32::from(at) - 100,
                })
            }
        });
        let scope = self
            .scope
            .map(|scope| host.scopes[usize::from(scope) % host.scopes.len()]);
        graph.set_origin(id, Origin { source, scope });
        id
    }

    /// Opcode and target.
    pub fn call(&self, graph: &mut Graph, host: &HostValues) -> (Op, Target) {
        let op = Op::ALL[usize::from(self.op) % (Op::ALL.len() - 1)];
        let choice = usize::from(self.target);
        let target = if op == Op::CallFunction {
            Target::Function(host.functions[choice % host.functions.len()])
        } else {
            Target::Name(graph.intern(NAMES[choice % NAMES.len()]))
        };
        (op, target)
    }
}

impl ArgRecipe {
    /// The argument; nodes in it are among `nodes`.
    ///
    /// # Panics
    /// If it nests too deep.
    pub fn build(&self, graph: &mut Graph, host: &HostValues, nodes: &[NodeId]) -> Arg {
        let items = |items: &[Self], graph: &mut Graph| {
            let items: Vec<Arg> = items
                .iter()
                .map(|item| item.build(graph, host, nodes))
                .collect();
            Seq::new(items).expect("not that deep")
        };
        match self {
            Self::Node(at) if nodes.is_empty() => Arg::Int((*at).into()),
            Self::Node(at) => Arg::Node(nodes[usize::from(*at) % nodes.len()]),
            Self::Leaf(leaf) => leaf.build(graph, host),
            Self::Tuple(parts) => Arg::Tuple(items(parts, graph)),
            Self::List(parts) => Arg::List(items(parts, graph)),
            Self::Slice(parts) => Arg::Slice(items(&parts[..], graph)),
            Self::NamedTuple(class, parts) => {
                Arg::NamedTuple(Box::new((host.external(*class), items(parts, graph))))
            }
            Self::Dict(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(key, value)| {
                        let key = match key {
                            KeyRecipe::Leaf(leaf) => leaf.build(graph, host),
                            KeyRecipe::Tuple(leaves) => {
                                let leaves: Vec<_> =
                                    leaves.iter().map(|l| l.build(graph, host)).collect();
                                Arg::tuple(leaves).expect("not that deep")
                            }
                        };
                        (key, value.build(graph, host, nodes))
                    })
                    .collect();
                Arg::Dict(Dict::new(entries).expect("no nodes in keys"))
            }
        }
    }
}

impl Leaf {
    fn build(&self, graph: &mut Graph, host: &HostValues) -> Arg {
        match self {
            Self::None => Arg::None,
            Self::Ellipsis => Arg::Ellipsis,
            Self::Bool(value) => Arg::Bool(*value),
            Self::Int(value) => Arg::Int(*value),
            Self::Big(negative, bytes) => {
                let sign = if *negative { Sign::Minus } else { Sign::Plus };
                let value = BigInt::from_bytes_be(sign, bytes);
                // An integer that fits 64 bits is no big one.
                match i64::try_from(&value) {
                    Ok(small) => Arg::Int(small),
                    Err(_) => Arg::BigInt(Box::new(value)),
                }
            }
            Self::Float(value) => Arg::Float(*value),
            Self::Complex(real, imag) => Arg::Complex(Box::new((*real, *imag))),
            Self::Str(text) => Arg::Str(graph.intern(text)),
            Self::Bytes(bytes) => Arg::Bytes(Box::new(bytes.clone())),
            Self::Torch(choice) => {
                let choice = usize::from(*choice);
                match choice % 3 {
                    0 => Arg::DType(DType::ALL[choice % DType::ALL.len()]),
                    1 => Arg::Layout(Layout::ALL[choice % Layout::ALL.len()]),
                    _ => Arg::MemoryFormat(MemoryFormat::ALL[choice % MemoryFormat::ALL.len()]),
                }
            }
            Self::Device(kind, index) => Arg::Device(Device {
                kind: DeviceKind::ALL[usize::from(*kind) % DeviceKind::ALL.len()],
                index: *index,
            }),
            Self::Range(start, stop, step) => {
                let items = [*start, *stop, *step].map(Arg::Int);
                Arg::Range(Seq::new(items).expect("flat"))
            }
            Self::Opaque(choice) => Arg::Opaque(host.external(*choice)),
        }
    }
}
