//! Pictures of graphs described by boxes of lines of text.

use std::str::FromStr;

use corsac_ir::Op;

use crate::heat::Quantities;
use crate::kind::Kind;
use crate::scene::{Edge, EdgeChange, NodeChange, Scene, SceneNode};

/// A box of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The first line, in bold.
    pub title: String,
    /// The other lines.
    pub lines: Vec<String>,
    /// The opcode of the node that it describes, as torch.fx calls it.
    pub op: String,
    /// The callee of the node: the class of a module, or the name of a function or method.
    pub operator: String,
    /// Whether it stands out.
    pub marked: bool,
}

impl Scene {
    /// A scene of `records`, joined by `edges` from the first to the second of each pair. Edges to
    /// records that do not exist are left out.
    #[must_use]
    pub fn of_records(records: Vec<Record>, edges: &[(u32, u32)]) -> Self {
        let mut scene = Self::default();
        if records.iter().any(|record| record.marked) {
            scene.summary = Some(String::new());
        }
        let count = records.len();
        for record in records {
            let op = Op::from_str(&record.op);
            scene.nodes.push(SceneNode {
                name: record.title.clone(),
                op: op.map_or("", Op::name),
                kind: op.map_or(Kind::Parameter, |op| Kind::of(op, &record.operator)),
                title: record.title,
                subtitle: String::new(),
                lines: record.lines,
                target: record.operator,
                class: None,
                settings: None,
                arguments: Vec::new(),
                shape: None,
                dtype: None,
                source: None,
                quantities: Quantities::default(),
                part: None,
                more: Vec::new(),
                group: None,
                shape_arithmetic: false,
                change: record.marked.then(|| NodeChange::Changed {
                    before: String::new(),
                    after: String::new(),
                }),
            });
        }
        let known = |node: u32| (node as usize) < count;
        for &(from, to) in edges.iter().filter(|(from, to)| known(*from) && known(*to)) {
            scene.edges.push(Edge {
                from,
                to,
                change: EdgeChange::Kept,
            });
        }
        scene
    }
}
