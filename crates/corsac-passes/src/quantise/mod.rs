//! Quantisation of float graphs: layers that are fused, observers, and their conversion.
//!
//! [`fuse`] finds the sequences of layers that a backend runs as one, [`qconfigs`] the configuration
//! of each node, [`observe`] puts observers on the values that a backend quantises, and
//! [`convert`] makes quantise and dequantise nodes of them. The modules themselves are made by the
//! host.
//!
//! ```text
//! conv = self.conv(x)             fuse       observe                      convert
//! bn = self.bn(conv)          →   conv   →   conv              →   quantize, dequantize
//! relu = self.relu(bn)                       activation_post_process_0    conv
//!                                                                  quantize, dequantize
//! ```
//!
//! Needs: a host with the classes of modules.
//!
//! Preserves: names and metadata of the nodes that stay; and the order of nodes, but for fused layers,
//! which are at the place of the last of them.
//!
//! Reference: `torch.ao.quantization.quantize_fx`, whose graphs are the same where they are right.

pub mod convert;
pub mod fuse;
pub mod observe;
pub mod pattern;
pub mod qconfigs;

mod dtypes;
mod numbers;
