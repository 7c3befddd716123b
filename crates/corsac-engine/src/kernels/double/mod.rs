//! Kernels of layers in double precision.

pub(crate) mod conv;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod panel;
