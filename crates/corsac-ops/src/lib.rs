//! What operators mean: mutation, aliasing, randomness.
