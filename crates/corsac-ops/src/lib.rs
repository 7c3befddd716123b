//! Semantics of operators: the arguments they write to, the values their results may share storage
//! with, the use of random numbers and other side effects.
//!
//! The facts come from three places: PyTorch's operator schemas (a generated table, [`schema`]),
//! hand-written tables for callables without a schema (Python functions, tensor methods,
//! `operator`, modules of `torch.nn`), and the host ([`Host`]), which has its modules, its custom
//! operators and the functions registered as having side effects. An unknown callable is opaque: it
//! may do anything.
//!
//! This crate depends on neither Python nor a tensor library: it matches qualified names.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_ops::{Catalogue, Unhosted};
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let view = graph.call_method("view", [x.into(), (-1).into()])?;
//! let add = graph.call_method("add_", [view.into(), 1.into()])?;
//!
//! let mut catalogue = Catalogue::new(&Unhosted);
//! assert_eq!(catalogue.effects(&graph, view).aliases.as_slice(), [x]);
//! assert_eq!(catalogue.effects(&graph, add).mutates.as_slice(), [view]);
//! # Ok::<(), corsac_ir::GraphError>(())
//! ```

#![forbid(unsafe_code)]

mod aliases;
pub mod autocast;
mod behaviour;
mod catalogue;
mod effects;
mod functional;
mod functions;
mod host;
mod methods;
mod modules;
mod operators;
pub mod schema;
pub mod shape;
pub mod signature;

pub use aliases::{AliasClasses, ClassId};
pub use behaviour::{Behaviour, Param, Role, When};
pub use catalogue::{Catalogue, Truth};
pub use effects::Effects;
pub use functions::{is_known_function, is_known_method, is_known_operator};
pub use host::{FunctionInfo, Host, ModuleInfo, Unhosted};
pub use operators::{
    BinaryInverse, Conversion, Family, InPlaceForm, Layout, ModuleCall, Numbers, Operator,
    OperatorId, Precision, Recompute, Requirement, Source, module_class_of, operator_name,
};
