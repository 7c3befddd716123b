//! What a pass did, in words that any caller can show.

use std::fmt;

use corsac_ir::{Graph, NodeId};

/// A place where a pass did something, or could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The name of the node.
    pub node: String,
    /// What it calls.
    pub target: String,
    /// The node or module that took its place, or would have.
    pub other: Option<String>,
    /// Why nothing was done; `None` where something was.
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

    /// Whether something was done.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.reason.is_none()
    }
}

/// What a pass did, and where it did nothing, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The pass.
    pub pass: String,
    /// Every place that it looked at more closely.
    pub sites: Vec<Site>,
    /// How many nodes the graph had.
    pub nodes_before: usize,
    /// How many it has.
    pub nodes_after: usize,
}

impl Report {
    /// Whether the graph is another one now.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.sites.iter().any(Site::is_applied)
    }

    /// The sites where something was done.
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
