//! Pictures of graphs.
//!
//! A [`Scene`] is the content of a picture: nodes with facts about them, the module calls that they
//! were made in, and edges. It is made of a [`corsac_ir::Graph`] and optional [`Note`]s on its
//! nodes: shapes, source lines, FLOPs, bytes, time. Writers make an SVG ([`to_svg`]), DOT text
//! ([`to_dot`]), or one HTML file ([`to_html`]) that opens offline and in which modules open and
//! close.
//!
//! The layout is layered (Sugiyama, Tagawa, Toda 1981), one level of modules at a time: the inside
//! of a module is laid out on its own, and is one box outside. So the contents of a module are
//! found once, whether they are shown or not, and opening a module only moves boxes. Everything is
//! linear in the size of the graph up to a logarithm.
//!
//! This crate does not depend on Python. No text of a graph becomes markup or code in its output.
//!
//! ```
//! use corsac_draw::{Scene, SvgOptions, to_svg};
//! use corsac_ir::Graph;
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let relu = graph.function("torch.relu");
//! let y = graph.call_function(relu, [x.into()])?;
//! graph.output(y)?;
//! let svg = to_svg(&Scene::of(&graph), &SvgOptions::default());
//! assert!(svg.starts_with("<svg "));
//! # Ok::<(), corsac_ir::GraphError>(())
//! ```

#![forbid(unsafe_code)]

mod difference;
mod dot;
mod escape;
mod heat;
mod html;
mod kind;
pub mod layout;
mod palette;
mod records;
mod scene;
mod shape_arithmetic;
mod svg;
mod text_width;

pub use dot::to_dot;
pub use heat::{Metric, Overlay, Quantities};
pub use html::{HtmlOptions, to_html};
pub use kind::Kind;
pub use records::Record;
pub use scene::{Edge, EdgeChange, Group, ModuleCall, NodeChange, Note, Notes, Scene, SceneNode};
pub use svg::{SvgOptions, to_svg};
