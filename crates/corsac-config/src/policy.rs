//! Functions, methods and classes that a configuration may call.

use corsac_ops::{is_known_function, is_known_method};
use rustc_hash::FxHashSet;

/// Operators that reach outside of the program.
const REFUSED: &[&str] = &["from_file", "_from_file"];

/// Methods that call Python code, or expose memory.
const REFUSED_METHODS: &[&str] = &[
    "apply_",
    "data_ptr",
    "map2_",
    "map_",
    "numpy",
    "register_hook",
    "share_memory_",
    "storage",
    "untyped_storage",
];

/// Attributes of tensors and shapes that may be read.
const ATTRIBUTES: &[&str] = &[
    "H",
    "T",
    "data",
    "device",
    "dtype",
    "grad",
    "imag",
    "is_complex",
    "is_contiguous",
    "is_cuda",
    "is_floating_point",
    "is_sparse",
    "itemsize",
    "layout",
    "mH",
    "mT",
    "nbytes",
    "ndim",
    "real",
    "requires_grad",
    "shape",
];

/// The calls that a configuration may make: operators of PyTorch that do not reach outside of the
/// program, and functions and classes that the caller names; and the maximum number of nodes.
#[derive(Clone, Debug)]
pub struct Policy {
    allowed: FxHashSet<String>,
    max_nodes: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            allowed: FxHashSet::default(),
            max_nodes: usize::MAX,
        }
    }
}

impl Policy {
    /// Allows these names, of functions or classes, besides.
    pub fn allowing(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            allowed: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Refuses graphs with more nodes.
    #[must_use]
    pub fn with_max_nodes(self, max_nodes: usize) -> Self {
        Self { max_nodes, ..self }
    }

    pub(crate) fn max_nodes(&self) -> usize {
        self.max_nodes
    }

    /// Whether the caller has allowed `name`.
    #[must_use]
    pub fn is_allowed(&self, name: &str) -> bool {
        self.allowed.contains(name)
    }

    /// Whether a module's class may be constructed: a name of `torch.nn`, or an allowed one.
    pub(crate) fn constructs(&self, class: &str) -> bool {
        let own = class.strip_prefix("torch.nn.").unwrap_or(class);
        self.is_allowed(class) || (!own.contains('.') && !own.starts_with('_'))
    }

    /// Whether a function may be called.
    pub(crate) fn calls_function(&self, name: &str) -> bool {
        let own = name.rsplit('.').next().unwrap_or(name);
        if self.is_allowed(name) {
            return true;
        }
        if REFUSED.contains(&own) || name.contains(".from_file") {
            return false;
        }
        // Its argument is checked by `reads_attribute`.
        name == "builtins.getattr" || (name.contains('.') && is_known_function(name))
    }

    /// Whether a method of a value may be called.
    pub(crate) fn calls_method(&self, name: &str) -> bool {
        self.is_allowed(name)
            || (!name.starts_with('_') && !REFUSED_METHODS.contains(&name) && is_known_method(name))
    }

    /// Whether an attribute of a value may be read.
    pub(crate) fn reads_attribute(&self, name: &str) -> bool {
        self.is_allowed(name) || ATTRIBUTES.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_may_be_called_and_nothing_else() {
        let policy = Policy::default();
        for name in [
            "torch.relu",
            "torch.nn.functional.conv2d",
            "operator.add",
            "operator.getitem",
            "torch.ops.aten.add.Tensor",
        ] {
            assert!(policy.calls_function(name), "{name}");
        }
        for name in [
            "torch.load",
            "torch.save",
            "torch.from_file",
            "torch.ops.aten.from_file",
            "torch.hub.load",
            "torch.ops.load_library",
            "os.system",
            "builtins.eval",
            "builtins.__import__",
            "operator.methodcaller",
            "operator.attrgetter",
            "operator.call",
            "subprocess.run",
            "relu",
        ] {
            assert!(!policy.calls_function(name), "{name}");
        }
        assert!(policy.calls_method("view") && policy.calls_method("add_"));
        for name in ["__reduce__", "map_", "apply_", "numpy", "__class__"] {
            assert!(!policy.calls_method(name), "{name}");
        }
        assert!(policy.reads_attribute("shape") && !policy.reads_attribute("__class__"));
        assert!(Policy::allowing(["os.system"]).calls_function("os.system"));
    }

    #[test]
    fn classes_are_of_torch_nn() {
        let policy = Policy::default();
        assert!(policy.constructs("Linear") && policy.constructs("torch.nn.Linear"));
        assert!(!policy.constructs("os.system") && !policy.constructs("torch.nn.utils.prune"));
        assert!(!policy.constructs("__import__"));
        assert!(Policy::allowing(["my.Block"]).constructs("my.Block"));
    }
}
