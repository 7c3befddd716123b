//! Reports of passes, as text for any caller to show.

use std::fmt;

use corsac_ir::{Graph, NodeId};

/// A place where a pass made a change, or could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The name of the node.
    pub node: String,
    /// The target of the node.
    pub target: String,
    /// The node or module that replaced it, or would have.
    pub other: Option<String>,
    /// The reason why no change was made; `None` where one was.
    pub reason: Option<String>,
}

impl Site {
    /// The site of `node`, which may have been erased since.
    #[must_use]
    pub fn new(graph: &Graph, node: NodeId, other: Option<String>, reason: Option<String>) -> Self {
        let node = graph.node(node);
        Self {
            node: node.name().to_owned(),
            target: node.target_name().to_owned(),
            other,
            reason,
        }
    }

    /// Whether a change was made.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.reason.is_none()
    }
}

/// The changes of a pass, and the places where it made none, with reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The pass.
    pub pass: String,
    /// Every place that the pass considered.
    pub sites: Vec<Site>,
    /// Number of nodes before the pass.
    pub nodes_before: usize,
    /// Number of nodes after it.
    pub nodes_after: usize,
}

impl Report {
    /// Whether the graph has changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.sites.iter().any(Site::is_applied)
    }

    /// The sites where a change was made.
    pub fn applied(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|site| site.is_applied())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {} sites, {} -> {} nodes",
            self.pass,
            self.applied().count(),
            self.sites.len(),
            self.nodes_before,
            self.nodes_after
        )?;
        let width = self.sites.iter().map(|s| s.node.len()).max().unwrap_or(0);
        for site in &self.sites {
            write!(f, "\n  {:<width$}  ", site.node)?;
            match (&site.reason, &site.other) {
                (Some(reason), _) => write!(f, "kept: {reason}")?,
                (None, Some(other)) => write!(f, "done, {other} takes its place")?,
                (None, None) => f.write_str("done")?,
            }
        }
        Ok(())
    }
}
