//! Models as configuration files.
//!
//! A configuration lists the modules of a model with the arguments of their construction, its own
//! parameters, its inputs, and its computation. It is data: reading one runs nothing and imports
//! nothing, and it may call only operators known to [`corsac_ops`], or functions and classes that
//! the caller allows by name.
//!
//! There are three equivalent notations ([`Format`]): a text of its own, TOML and JSON.
//!
//! ```
//! use corsac_config::{Config, Format};
//!
//! let text = "
//!     module conv = Conv2d(3, 16, 3, padding=1)
//!     parameter scale = float32[16, 1, 1] ones
//!     input x = float32[1, 3, 32, 32]
//!     graph:
//!         h = torch.relu(conv(x)) * scale
//!         return h.mean((2, 3))
//! ";
//! let config = Config::read(text, Format::Graph)?;
//! assert_eq!(config.modules[0].class, "Conv2d");
//! assert_eq!(config.graph.len(), 7);
//! let toml = config.write(Format::Toml).expect("it can be written");
//! assert!(Config::read(&toml, Format::Toml)?.graph.same_as(&config.graph));
//! # Ok::<(), corsac_config::ConfigError>(())
//! ```
//!
//! From text to a model: tokens, expressions, then statements that record nodes (`token`,
//! `expression`, `program`); TOML and JSON become one tree with positions first (`document`). The
//! crate does not depend on Python: a host constructs the modules.

#![forbid(unsafe_code)]

mod config;
mod document;
mod error;
mod expression;
mod literal;
mod policy;
mod program;
mod read_document;
mod read_graph;
mod token;
mod write;
mod write_program;

pub use config::{Config, Format, Initial, Input, ModuleSpec, TensorSpec};
pub use error::{ConfigError, Position, WriteError};
pub use literal::Literal;
pub use policy::Policy;

#[cfg(test)]
mod tests;
