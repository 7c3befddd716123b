//! Places that passes consider, and the reasons for those that stay.

use std::borrow::Cow;
use std::fmt;

use corsac_ir::{Graph, NodeId};

/// Why a pass leaves a place alone: half a sentence for a report, such as "it has hooks".
///
/// A reason that is always the same is a constant beside the code that gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(Cow<'static, str>);

impl Refusal {
    /// A change could be made, but no more may be.
    pub const BUDGET: Self = Self::because("the budget of changes is used up");

    /// A refusal with this reason.
    #[must_use]
    pub const fn because(reason: &'static str) -> Self {
        Self(Cow::Borrowed(reason))
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self(Cow::Owned(reason))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A place where a pass makes a change, or could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The node, which the pass may erase.
    pub node: NodeId,
    /// The name of the node.
    pub name: String,
    /// The target of the node before the change.
    pub target: String,
    /// The node, module or function that takes its place, or would.
    pub other: Option<String>,
    /// Why no change is made; `None` where one is.
    pub refusal: Option<Refusal>,
}

impl Site {
    /// The site of `node`, where a change is made unless there is a refusal.
    #[must_use]
    pub fn new(graph: &Graph, node: NodeId, refusal: Option<Refusal>) -> Self {
        let view = graph.node(node);
        Self {
            node,
            name: view.name().to_owned(),
            target: view.target_name().to_owned(),
            other: None,
            refusal,
        }
    }

    /// The site with what takes the place of the node, or would.
    #[must_use]
    pub fn with_other(self, other: Option<String>) -> Self {
        Self { other, ..self }
    }

    /// Whether a change is made.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.refusal.is_none()
    }
}
