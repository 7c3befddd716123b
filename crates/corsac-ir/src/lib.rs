//! The graph: ids, nodes, order, uses, arguments, names.
//!
//! A [`Graph`] is a straight-line program of six opcodes ([`Op`]), as torch.fx defines them: each
//! node names its target ([`Target`]) and its arguments ([`Arg`]), and its value is identified by
//! the node itself. Nodes live in an arena and are named by a 32-bit [`NodeId`]; their
//! order is a list threaded through the arena and their uses are lists threaded through an arena
//! of edges, so that inserting, erasing, moving and replacing cost the same in a graph of a
//! million nodes as in a graph of ten.
//!
//! This crate depends on neither Python nor a tensor library, and must never do so. A value that
//! only the host understands is an [`ExternalId`] here: it identifies the value, never describes
//! it.
//!
//! ```
//! use corsac_ir::{Arg, Graph};
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let relu = graph.function("torch.nn.functional.relu");
//! let y = graph.call_function(relu, [x.into()])?;
//! graph.output(y)?;
//! assert_eq!(graph.node(y).name(), "relu");
//! assert_eq!(graph.users(x).collect::<Vec<_>>(), [y]);
//! # Ok::<(), corsac_ir::GraphError>(())
//! ```

#![forbid(unsafe_code)]

mod arg;
pub mod canonical;
mod diff;
mod dtype;
mod entity;
mod equal;
mod error;
mod graph;
mod interner;
pub mod literal;
pub mod matching;
pub mod namespace;
mod op;
pub mod proxy;
pub mod rewrite;
pub mod split;
mod text;
mod topo;
mod verify;

pub use arg::{Arg, Dict, MAX_DEPTH, Seq};
pub use diff::{Aspect, Change, DiffEntry, GraphDiff};
pub use dtype::{DType, Device, DeviceKind, Layout, MemoryFormat};
pub use entity::{
    EntityId, ExternalId, FunctionId, NodeId, PartId, ScopeId, SecondaryMap, SourceId, Symbol,
};
pub use error::GraphError;
pub use graph::{Graph, InsertPoint, Node, NodeSpec, Nodes, Origin, Scope, Source, Translation};
pub use interner::Interner;
pub use op::{Function, Op, Target, own_name};
pub use text::{HostText, NamedTupleClass, NoHost, ParseError, SourceLine, is_name_within};
pub use thin_vec::{ThinVec, thin_vec};
pub use verify::{Fault, FaultKind, LintReport};
