//! Products in plain Rust: the reference for all others.

use super::{COLUMNS, Product, QUAD, Sums};

/// Sets the sums of all rows.
///
/// # Safety
/// `rows` sums can be written at `sums`, and the first sums of each row read, `start_step` apart.
pub(super) unsafe fn multiply(product: &Product<'_>) {
    let operands = &product.operands;
    let (panels, _) = operands.weights.as_chunks::<{ QUAD * COLUMNS }>();
    for row in 0..product.rows {
        // SAFETY: by the contract.
        let mut sums: Sums = unsafe {
            product
                .start
                .add(row * product.start_step)
                .cast::<Sums>()
                .read()
        };
        let mut quads = panels.iter();
        for tap in 0..product.taps {
            let first = operands.offsets[tap * product.all_rows + product.first_row + row] as usize;
            let bytes = &operands.source[first..][..operands.depth];
            for (bytes, weights) in bytes.as_chunks::<QUAD>().0.iter().zip(&mut quads) {
                for (sum, weights) in sums.iter_mut().zip(weights.as_chunks::<QUAD>().0) {
                    for (&x, &weight) in bytes.iter().zip(weights) {
                        *sum = sum.wrapping_add(i32::from(x) * i32::from(weight));
                    }
                }
            }
        }
        // SAFETY: by the contract.
        unsafe { product.sums.add(row * COLUMNS).cast::<Sums>().write(sums) };
    }
}
