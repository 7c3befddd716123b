//! Effects of tensor methods, by name.

use crate::behaviour::{Behaviour, Param, When};
use crate::functions::amended;
use crate::operators::{Conversion, OperatorId};
use crate::schema::Schema;

/// Effects of the method; opaque if it is not known.
pub(crate) fn behaviour(method: &str) -> Behaviour {
    if let Some(known) = without_schema(method) {
        return amended(method, known, false);
    }
    if let Some(operator) = Behaviour::of_operator(Schema::overloads(method)) {
        let operator = operator.role(Param::keyword("out"), When::Always, When::Always);
        return amended(method, operator, false);
    }
    if let Some(operator) = magic(method) {
        return operator;
    }
    // PyTorch's convention: a trailing underscore writes to the tensor and returns it.
    if method.ends_with('_') && !method.starts_with('_') {
        return Behaviour {
            aliases_all: true,
            ..Behaviour::in_place("self")
        };
    }
    Behaviour::opaque()
}

/// Methods that are no operators, or that differ from the operator with their name.
fn without_schema(method: &str) -> Option<Behaviour> {
    let conversion = OperatorId::named(method).and_then(|own| own.row().conversion);
    if let Some(Conversion::To(_)) = conversion {
        return Some(Behaviour::view_of_any());
    }
    Some(match method {
        "size" | "dim" | "ndimension" | "numel" | "nelement" | "stride" | "element_size"
        | "storage_offset" | "data_ptr" | "const_data_ptr" | "is_contiguous" | "is_complex"
        | "is_floating_point" | "is_signed" | "is_inference" | "is_conj" | "is_neg" | "is_set_to"
        | "is_same_size" | "is_shared" | "is_pinned" | "is_coalesced" | "is_distributed"
        | "dim_order" | "get_device" | "has_names" | "item" | "tolist"
        | "new_tensor" | "allclose" | "equal" | "__len__" | "__bool__" | "__float__"
        | "__int__" | "__index__" | "__contains__" | "__hash__" | "__repr__" | "__str__"
        | "__format__" => Behaviour::value(),
        // The tensor itself where it already has the wanted type or place.
        "cfloat" | "cdouble" | "chalf" | "cpu" | "cuda" | "xpu" | "mtia" | "ipu"
        | "type" | "to" | "resize" | "resize_as" | "numpy" | "as_subclass" | "data" | "unique" | "lu" | "storage"
        | "untyped_storage" | "to_sparse_coo" | "__getitem__" | "__iter__" | "__reversed__"
        | "__array__" | "__pos__"
        // Containers, and their items.
        | "keys" | "values" | "items" | "get" | "copy" | "index" | "count" | "split" => {
            Behaviour::view_of_any()
        }
        "append" | "extend" | "insert" | "pop" | "popitem" | "remove" | "clear" | "update"
        | "setdefault" | "discard" | "__setitem__" => Behaviour {
            aliases_all: true,
            ..Behaviour::in_place("self")
        },
        "__delitem__" => Behaviour::in_place("self"),
        // Gradients go to parameters, which are outside the program.
        "backward" => Behaviour {
            side_effect: true,
            ..Behaviour::opaque()
        },
        "register_hook" | "register_post_accumulate_grad_hook" | "retain_grad"
        | "share_memory_" => Behaviour {
            side_effect: true,
            ..Behaviour::in_place("self")
        },
        _ => return None,
    })
}

/// `__add__` and the like, which `operator` has functions for.
fn magic(method: &str) -> Option<Behaviour> {
    let own = method.strip_prefix("__")?.strip_suffix("__")?;
    Some(match own {
        "add" | "mul" | "radd" | "rmul" => Behaviour {
            concatenates: true,
            ..Behaviour::pure()
        },
        "sub" | "truediv" | "div" | "floordiv" | "mod" | "pow" | "matmul" | "rsub" | "rtruediv"
        | "rdiv" | "rfloordiv" | "rmod" | "rpow" | "rmatmul" | "neg" | "abs" | "invert" | "lt"
        | "le" | "eq" | "ne" | "ge" | "gt" | "rand" | "ror" | "rxor" | "rlshift" | "rrshift" => {
            Behaviour::value()
        }
        "iadd" => Behaviour {
            concatenates: true,
            ..Behaviour::in_place("self")
        },
        "isub" | "imul" | "itruediv" | "idiv" | "ifloordiv" | "imod" | "ipow" => {
            Behaviour::in_place("self")
        }
        _ => return None,
    })
}
