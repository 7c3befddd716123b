//! Operators that use random numbers.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("bernoulli"),
    operator("bernoulli_"),
    operator("cauchy_"),
    operator("exponential_"),
    operator("geometric_"),
    operator("log_normal_"),
    operator("normal_"),
    operator("rand"),
    operator("rand_like"),
    operator("randint"),
    operator("randint_like"),
    operator("randn"),
    operator("randn_like"),
    operator("random_"),
    operator("randperm"),
    operator("uniform_"),
];
