//! Splits a graph into parts, each a graph of its own, and a graph that calls them.
//!
//! All splitters share this engine. It has three stages, which can be used one by one:
//!
//! 1. *The parts* ([`Parts`]): given by the caller ([`Parts::by_key`]), or found from the nodes
//!    that may go together ([`Parts::coloured`], [`Parts::along_uses`], [`alternate`]). Parts that
//!    are found never have a cycle: two nodes go together only where no path leads out of the part
//!    and back into it. Parts that are given may have one, which [`Parts::order`] names.
//! 2. *Their interfaces* ([`Interface`]): the values that a part takes, and those that it returns,
//!    in the order of their first use.
//! 3. *The graphs* ([`split`]): each part with inputs, body and output, and the calling graph.
//!    Origins and type annotations are carried along; names as the [`Style`] asks for.
//!
//! [`inline`] is the inverse.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_ir::split::{Options, Parts, split};
//!
//! let graph = Graph::parse(
//!     "graph v1:
//!     %x = placeholder[target=x]
//!     %a = call_method[target=sin](args = (%x,), kwargs = {})
//!     %b = call_method[target=cos](args = (%a,), kwargs = {})
//!     %output = output[target=output](args = (%b,), kwargs = {})",
//! )?;
//! let parts = Parts::by_key(&graph, |id| match graph.node(id).target_name() {
//!     "sin" => Some(0),
//!     "cos" => Some(1),
//!     _ => None,
//! });
//! let names = ["first".to_owned(), "second".to_owned()];
//! let split = split(&graph, &parts, &Options::new(&names))?;
//! assert_eq!(split.parts.len(), 2);
//! assert_eq!(
//!     split.parent.graph.to_string().lines().nth(2).map(str::trim),
//!     Some("%first : [num_users=1] = call_module[target=first](args = (%x,), kwargs = {})")
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything here takes time in proportion to nodes and uses, except [`Parts::along_uses`], whose
//! searches are bounded by topological ranks.

mod alternate;
mod error;
mod extract;
mod inline;
mod interface;
mod items;
mod levels;
mod merge;
mod parts;

#[cfg(test)]
mod tests;

pub use alternate::{Alternation, Kind, alternate};
pub use error::SplitError;
pub use extract::{
    AttributePlace, InputNames, Inputs, Options, ParentStyle, Part, Region, Returns, Sequence,
    Split, Style, ValueNames, extract, split,
};
pub use inline::inline;
pub use interface::Interface;
pub use parts::{Grown, Order, Parts, Waits};
