//! Products in tiles, compared with plain sums.

use super::{BLOCK_LEN, Bf16Unit, COLUMNS, Operands, ROWS, RUN, Sums, WEIGHTS_LEN, pack};
use crate::bf16::{Bf16, rounded, widened};

fn numbers(count: usize, seed: u32) -> Vec<Bf16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        rounded((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn products_are_sums_of_products() {
    let Some(unit) = Bf16Unit::detect() else {
        return;
    };
    let source = numbers(5 * BLOCK_LEN + 3 * RUN, 1);
    let taps = [0, 2 * RUN, BLOCK_LEN, 3 * BLOCK_LEN];
    let firsts = [0, RUN, BLOCK_LEN, BLOCK_LEN + 3 * RUN];
    let plain = numbers(taps.len() * WEIGHTS_LEN, 2);
    let weight =
        |tap: usize, column: usize, row: usize| plain[tap * WEIGHTS_LEN + column * RUN + row];
    let mut weights = vec![0; plain.len()];
    for (tap, packed) in weights.chunks_exact_mut(WEIGHTS_LEN).enumerate() {
        pack(packed, |column, row| weight(tap, column, row));
    }
    let mut sums = vec![Sums([0.5; ROWS * COLUMNS]); firsts.len()];
    let operands = Operands {
        source: &source,
        taps: &taps,
        weights: &weights,
        ahead: &weights,
    };
    unit.multiply(&operands, &firsts, ROWS, &mut sums);
    for (first, sums) in firsts.iter().zip(&sums) {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let mut expected = 0.5;
                for (number, tap) in taps.iter().enumerate() {
                    for at in 0..RUN {
                        let x = source[first + tap + row * RUN + at];
                        expected +=
                            f64::from(widened(x)) * f64::from(widened(weight(number, column, at)));
                    }
                }
                let got = f64::from(sums.0[row * COLUMNS + column]);
                assert!((got - expected).abs() < 1e-4, "{got} is not {expected}");
            }
        }
    }
}

#[test]
fn some_rows_of_the_last_product_are_enough() {
    let Some(unit) = Bf16Unit::detect() else {
        return;
    };
    let source = numbers(2 * BLOCK_LEN, 3);
    let mut weights = vec![0; WEIGHTS_LEN];
    let plain = numbers(WEIGHTS_LEN, 4);
    pack(&mut weights, |column, row| plain[column * RUN + row]);
    let operands = Operands {
        source: &source,
        taps: &[0],
        weights: &weights,
        ahead: &[],
    };
    let firsts = [0, BLOCK_LEN];
    let mut whole = vec![Sums([1.0; ROWS * COLUMNS]); 2];
    unit.multiply(&operands, &firsts, ROWS, &mut whole);
    for rows in 1..=ROWS {
        let mut sums = vec![Sums([1.0; ROWS * COLUMNS]); 2];
        unit.multiply(&operands, &firsts, rows, &mut sums);
        assert_eq!(sums[0], whole[0], "all rows of the first product");
        let own = sums[1].0[..rows * COLUMNS].iter().zip(&whole[1].0);
        for (got, expected) in own {
            assert!((got - expected).abs() < 1e-5, "{rows}: {got}, {expected}");
        }
    }
}

#[test]
fn few_rows_have_the_sums_of_many() {
    let Some(unit) = Bf16Unit::detect() else {
        return;
    };
    let taps = [0, BLOCK_LEN, 2 * BLOCK_LEN];
    let source = numbers(3 * BLOCK_LEN, 5);
    let weights = numbers(taps.len() * WEIGHTS_LEN, 6);
    let operands = Operands {
        source: &source,
        taps: &taps,
        weights: &weights,
        ahead: &weights[..WEIGHTS_LEN],
    };
    let sums = |rows| {
        let mut sums = vec![Sums([0.25; ROWS * COLUMNS])];
        unit.multiply(&operands, &[0], rows, &mut sums);
        sums[0].0
    };
    let whole = sums(ROWS);
    for rows in 1..ROWS {
        let own = sums(rows);
        for (got, expected) in own[..rows * COLUMNS].iter().zip(&whole) {
            assert!((got - expected).abs() < 1e-4, "{rows}: {got}, {expected}");
        }
    }
}

#[test]
#[should_panic(expected = "rows lie in the source")]
fn nothing_is_read_past_the_end() {
    let Some(unit) = Bf16Unit::detect() else {
        panic!("rows lie in the source (no tiles here)")
    };
    let source = vec![0; 2 * BLOCK_LEN - 1];
    let weights = vec![0; WEIGHTS_LEN];
    let operands = Operands {
        source: &source,
        taps: &[BLOCK_LEN],
        weights: &weights,
        ahead: &[],
    };
    unit.multiply(&operands, &[0], ROWS, &mut [Sums([0.0; ROWS * COLUMNS])]);
}

#[test]
fn threads_have_tiles_of_their_own() {
    let Some(unit) = Bf16Unit::detect() else {
        return;
    };
    let threads: Vec<_> = (0..4_u8)
        .map(|number| {
            std::thread::spawn(move || {
                let x = f32::from(number);
                let source = vec![rounded(x); BLOCK_LEN];
                let weights = vec![rounded(1.0); WEIGHTS_LEN];
                for _ in 0..2_000 {
                    let mut sums = vec![Sums([1.0; ROWS * COLUMNS])];
                    let operands = Operands {
                        source: &source,
                        taps: &[0],
                        weights: &weights,
                        ahead: &[],
                    };
                    unit.multiply(&operands, &[0], ROWS, &mut sums);
                    assert!(sums[0].0.iter().all(|&sum| sum == 32.0 * x + 1.0));
                }
            })
        })
        .collect();
    for thread in threads {
        assert!(thread.join().is_ok());
    }
}
