//! The cost of recomputing a value.

use corsac_ir::{FunctionId, Node, Op, SecondaryMap, Target};
use corsac_ops::schema::Schema;
use corsac_ops::{OperatorId, Recompute, is_operator};

use super::Kind;

/// The cost of recomputing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It is not recomputed.
    Never,
    /// None: it has to be computed anyway.
    Anyway,
    /// The saved state of the generator whose random numbers it uses.
    Redrawn,
    /// Hundreds of bytes that are read and written, times a factor for slow functions.
    Work(u64),
}

/// Cost classes of computing the elements of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Expensive, such as matrix products, or unknown.
    Long,
    /// Free: a view, or a number.
    None,
    /// Dominated by reading and writing.
    Copied,
    /// Slower: a function such as an exponential.
    Function,
}

/// Whether a function of Python returns numbers, or an item of several values.
fn of_numbers(name: &str) -> bool {
    let (module, own) = name.rsplit_once('.').unwrap_or(("builtins", name));
    match module {
        "operator" | "_operator" | "math" => true,
        "builtins" => matches!(
            own,
            "pow" | "round" | "max" | "min" | "abs" | "int" | "float" | "bool"
        ),
        "torch" | "torch.sym" => own.starts_with("sym_") || own.starts_with("_sym_"),
        _ => name.starts_with("torch._sym_") || name.starts_with("torch.utils._sympy.functions."),
    }
}

/// Cost class of the function `name`: `torch.ops.aten.add.Tensor`, or a function of Python.
#[must_use]
pub fn class_of(name: &str) -> Class {
    let Some(operator) = name.strip_prefix("torch.ops.") else {
        return if of_numbers(name) {
            Class::None
        } else {
            Class::Long
        };
    };
    let mut parts = operator.splitn(3, '.');
    let (Some(namespace), Some(packet)) = (parts.next(), parts.next()) else {
        return Class::Long;
    };
    let packet = match namespace {
        "aten" => packet.to_owned(),
        "prims" => format!("prims::{packet}"),
        _ => return Class::Long,
    };
    let own = packet.as_str();
    if own.starts_with("sym_") {
        return Class::None;
    }
    match OperatorId::of(Op::CallFunction, name).and_then(|operator| operator.row().recompute) {
        Some(Recompute::Free) => return Class::None,
        Some(Recompute::Copied) => return Class::Copied,
        None => {}
    }
    // All overloads of an operator are in one class: `pow.Scalar` as `pow.Tensor_Tensor`.
    let pointwise = Schema::overloads(own).any(|schema| schema.pointwise);
    if pointwise {
        Class::Function
    } else {
        Class::Long
    }
}

/// Whether PyTorch's partitioner treats a node as a view.
pub(super) fn is_plain_view(node: Node<'_>) -> bool {
    let operator = OperatorId::of(node.op(), node.target_name());
    operator.is_some_and(|operator| operator.row().is_partitioner_view)
}

/// Whether PyTorch's partitioner takes a call for one that is fused with its neighbours, although
/// it is not recomputed: one that uses random numbers.
pub(super) fn is_fused_at_times(node: Node<'_>) -> bool {
    let operator = OperatorId::of(node.op(), node.target_name());
    operator.is_some_and(|it| is_operator!(it, "native_dropout" | "rand_like" | "randn_like"))
}

/// Cost classes of the functions of one graph, each looked up once.
#[derive(Default)]
pub(super) struct Classes {
    functions: SecondaryMap<FunctionId, Option<Class>>,
}

impl Classes {
    pub(super) fn of(&mut self, node: Node<'_>, kind: Kind) -> Class {
        let Target::Function(function) = node.target() else {
            return Class::Long;
        };
        let class = *self
            .functions
            .get_mut(function)
            .get_or_insert_with(|| class_of(node.target_name()));
        match (kind, class) {
            // A number is free whatever computes it, unless it is read from a tensor.
            (Kind::Size | Kind::Number, Class::Function | Class::Copied) => Class::None,
            _ => class,
        }
    }
}

/// Cost of recomputing a value of `bytes` bytes from `read` bytes, of which `direct` are direct
/// arguments.
pub(super) fn bounded(class: Class, bytes: u64, read: u64, direct: u64) -> Again {
    let work = (bytes + read) / 100 + 2;
    match class {
        Class::Long => Again::Never,
        Class::None => Again::Work(0),
        // Saving the result of a reduction costs little, and recomputing it needs all its inputs.
        Class::Copied | Class::Function if bytes.saturating_mul(4) < direct => Again::Never,
        Class::Copied => Again::Work(work),
        Class::Function => Again::Work(work * 3),
    }
}
