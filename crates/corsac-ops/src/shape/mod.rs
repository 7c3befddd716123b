//! Types of values without running the program: shapes, element types, strides, and the numbers
//! that are computed from shapes on the way.
//!
//! A [`Value`] is the knowledge of a value: a tensor's [`TensorType`], whose sizes are numbers or
//! expressions over symbols ([`Dim`]), a number, a container. A rule makes the type of a result
//! from the types of the arguments. There is one rule for an operator under all its names: the
//! function, the tensor method, the function of `torch.nn.functional`, the overloads of
//! `torch.ops.aten`, the module of `torch.nn`. A [`Propagator`] applies rules to the nodes of a
//! graph in order.
//!
//! A call without a rule has an unknown value, with the reason; nothing is guessed. Calls that fail
//! when they run are errors with the arguments expected and given.
//!
//! ```
//! use corsac_ir::{DType, Graph};
//! use corsac_ops::shape::{Dim, NoModules, Propagator, Settings, TensorType, Value};
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let flat = graph.call_method("flatten", [x.into(), 1.into()])?;
//! let n = Dim::symbol("n");
//! let shape = [n.clone(), Dim::Known(3), n * Dim::Known(2)];
//!
//! let mut types = Propagator::new(&NoModules, Settings::default());
//! let input = Value::tensor(TensorType::new(DType::Float32, shape));
//! types.run(&graph, &[input]).unwrap();
//! assert_eq!(types.value(flat).to_string(), "float32[n, 6*n]");
//! # Ok::<(), corsac_ir::GraphError>(())
//! ```

mod attention;
mod binding;
mod broadcast;
mod call;
mod control;
mod convolution;
mod cost;
mod creation;
mod detached;
mod dim;
mod elementwise;
mod embedding;
mod error;
mod index;
mod join;
mod libraries;
mod loss;
mod matmul;
mod module;
mod normalisation;
mod pooling;
mod promotion;
mod propagate;
mod quantisation;
mod recurrent;
mod reduction;
mod resample;
mod rule;
mod scalar;
mod sharded_call;
mod sharded_moves;
mod sharded_products;
mod sharded_reductions;
mod sharding;
mod softmax;
mod sorting;
mod spectral;
mod tensor_type;
mod value;
mod view;

pub use binding::{Binding, Given, Named, named_arguments};
pub use call::{Call, Settings};
pub use cost::{Counted, Lifetime, NodeCost, Peak, node_cost, peak};
pub use detached::DetachedCall;
pub use dim::{Dim, LEAST_SYMBOL};
pub use error::{Failure, ShapeError};
pub use promotion::{Kind, element_bytes, kind, promote};
pub use propagate::{
    CalledGraph, ModuleFacts, NoModules, Propagator, TypeHost, infer_function, infer_method,
    symbols,
};
pub use rule::{Cost, RuleInfo, Work, has_rule, rules};
pub use sharded_call::{Place, ShardedCall};
pub use sharding::{Form, Relation, Run, Side, Sides};
pub use tensor_type::{CPU, Shape, Strides, TensorType};
pub use value::{Storage, Tensor, Value};
