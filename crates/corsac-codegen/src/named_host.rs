//! The host of graphs in which everything has a name.

use corsac_ir::{EntityId, ExternalId, FunctionId, Graph};

use crate::host::{Callee, Expr, Global, GlobalValue, Host};
use crate::operator::Operator;

/// A host that writes functions and host values by their qualified names, for graphs made in Rust
/// or read from text.
#[derive(Clone, Debug)]
pub struct NamedHost {
    callees: Vec<Callee>,
    externals: Vec<Option<Expr>>,
    builtins: Vec<Global>,
    wrap: Expr,
}

/// The globals of all generated code: name, qualified name.
static BUILTINS: &[(&str, &str)] = &[
    ("inf", "math.inf"),
    ("nan", "math.nan"),
    ("NoneType", "types.NoneType"),
    ("torch", "torch"),
    ("device", "torch.device"),
    ("fx_pytree", "torch.fx._pytree"),
    ("pytree", "torch.utils._pytree"),
];

impl NamedHost {
    /// The host for `graph` as it is now.
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        let builtins = BUILTINS.iter().map(|&(name, qualified)| Global {
            hint: name.into(),
            value: GlobalValue::Named(qualified.into()),
            is_builtin: true,
        });
        Self {
            callees: graph
                .functions()
                .map(|(_, function)| callee_named(graph.text(function.name)))
                .collect(),
            externals: (0..graph.external_count())
                .map(|index| graph.external_name(ExternalId::from_index(index)))
                .map(|name| name.map(named))
                .collect(),
            builtins: builtins.collect(),
            wrap: Expr::text("torch.fx._symbolic_trace.wrap"),
        }
    }
}

/// The function with the qualified name `name`.
fn callee_named(name: &str) -> Callee {
    let operator = name
        .strip_prefix("operator.")
        .or_else(|| name.strip_prefix("_operator."));
    match operator {
        Some(own) => Callee {
            expr: named(&format!("_operator.{own}")),
            operator: Operator::of_function(own),
        },
        None => Callee {
            expr: named(name),
            operator: None,
        },
    }
}

/// The expression for the qualified name `name`. Names in torch are written as they are, since all
/// generated code has `torch`; everything else is a global, named after the qualified name.
fn named(name: &str) -> Expr {
    let is_path = name.split('.').all(crate::attribute::is_plain_identifier);
    if is_path && name.starts_with("torch.") {
        return Expr::text(name);
    }
    let builtin = name.strip_prefix("builtins.");
    Expr::global(Global {
        hint: builtin.unwrap_or(name).into(),
        value: GlobalValue::Named(name.into()),
        is_builtin: builtin.is_some(),
    })
}

impl Host for NamedHost {
    fn callee(&self, function: FunctionId) -> Option<&Callee> {
        self.callees.get(function.index())
    }

    fn value(&self, external: ExternalId) -> Option<&Expr> {
        self.externals.get(external.index())?.as_ref()
    }

    fn annotation(&self, external: ExternalId) -> Option<&Expr> {
        self.value(external)
    }

    fn class(&self, external: ExternalId) -> Option<&Expr> {
        self.value(external)
    }

    fn builtins(&self) -> &[Global] {
        &self.builtins
    }

    fn wrap(&self) -> &Expr {
        &self.wrap
    }
}
