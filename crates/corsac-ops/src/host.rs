//! The host: modules, custom operators and registrations that a graph does not describe.

use corsac_ir::{FunctionId, Graph};

use crate::schema::Schema;
use crate::shape::Value;

/// Facts about a submodule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleInfo {
    /// Qualified name of its class: `torch.nn.modules.conv.Conv2d`.
    pub class: String,
    /// The identity of the object: two paths may lead to one module.
    pub identity: u64,
    /// Whether it is in training mode.
    pub training: bool,
    /// Whether it works in place (`inplace=True`).
    pub inplace: bool,
    /// Whether it has hooks, or hooks are set for all modules.
    pub hooks: bool,
    /// Its own declaration (`_is_impure`), if it has one.
    pub impure: Option<bool>,
    /// Its drop probability, where it has one.
    pub dropout: f64,
    /// Whether it keeps running statistics.
    pub tracks_statistics: bool,
    /// The number added to a variance before the root is taken, where it does that.
    pub eps: f64,
    /// Whether it renormalises its own weight when called (`max_norm`).
    pub renormalises: bool,
    /// Number of groups of its channels, where it is a convolution.
    pub groups: usize,
    /// Whether it puts zeros around its input.
    pub zero_padded: bool,
}

/// Facts about a function besides its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionInfo {
    /// Nothing: the name decides.
    ByName,
    /// It was registered as having side effects.
    SideEffect,
    /// It was registered as having none.
    Pure,
    /// It is an operator with this schema.
    Operator(Schema),
}

/// Source of facts about modules, custom operators and registered functions.
///
/// Methods are called once per module or function of a graph, not once per node.
pub trait Host {
    /// The submodule with this qualified name; `None` if there is none, or nothing is known of it.
    fn module(&self, path: &str) -> Option<ModuleInfo>;

    /// The numbers, strings and tuples among the attributes of a submodule, by name, with
    /// `training`; for rules that need them. Nothing by default.
    fn module_settings(&self, _path: &str) -> Vec<(String, Value)> {
        Vec::new()
    }

    /// Whether the attribute with this qualified name is known to be a tensor, and no container.
    /// False by default.
    fn is_tensor(&self, _path: &str) -> bool {
        false
    }

    /// Facts about a function of `graph` besides its name.
    fn function(&self, graph: &Graph, function: FunctionId) -> FunctionInfo;
}

/// No host: a graph on its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unhosted;

impl Host for Unhosted {
    fn module(&self, _path: &str) -> Option<ModuleInfo> {
        None
    }

    fn function(&self, _graph: &Graph, _function: FunctionId) -> FunctionInfo {
        FunctionInfo::ByName
    }
}
