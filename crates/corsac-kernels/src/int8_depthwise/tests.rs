//! Products of all instructions, compared bit by bit with plain sums.

use super::{Depthwise, Kind};
use crate::int8_unit::{COLUMNS, RowSums, Sums};

/// Pseudorandom numbers below `end`.
fn next(state: &mut u32, end: usize) -> usize {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) as usize % end
}

/// Checks products of `rows` rows, of bytes and weights that are all the largest or random.
fn check(state: &mut u32, rows: usize, taps: usize, extreme: bool) {
    let mut byte = |largest: u8| match extreme {
        true => largest,
        false => next(state, 256) as u8,
    };
    let source: Vec<u8> = (0..200).map(|_| byte(255)).collect();
    let plain: Vec<i8> = (0..taps * COLUMNS)
        .map(|_| byte(128).cast_signed())
        .collect();
    let offsets: Vec<u32> = (0..taps * rows).map(|_| next(state, 169) as u32).collect();
    let initial: Sums = std::array::from_fn(|column| column as i32 * 77 - 900);
    let product = Depthwise {
        source: &source,
        offsets: &offsets,
        rows,
        weights: &plain,
    };
    let expected: Vec<Sums> = (0..rows)
        .map(|row| {
            std::array::from_fn(|column| {
                let products = (0..taps).map(|tap| {
                    let at = offsets[tap * rows + row] as usize + column;
                    i32::from(source[at]) * i32::from(plain[tap * COLUMNS + column])
                });
                initial[column] + products.sum::<i32>()
            })
        })
        .collect();
    for kind in Kind::all() {
        let mut sums = vec![[-1; COLUMNS]; rows];
        product.run(kind, product.taps(), 0, &initial, &mut sums);
        assert!(sums == expected, "{kind:?}: {rows} rows, {taps} taps");
    }
    let mut sums = vec![[-1; COLUMNS]; rows];
    product.multiply(&initial, &mut sums);
    assert!(sums == expected);
    let mut count = 0;
    product.by_blocks(&initial, |first, sums| {
        assert!(first == count && sums == &expected[first..][..sums.len()]);
        count += sums.len();
    });
    assert_eq!(count, rows);
}

#[test]
fn all_instructions_give_the_same_sums() {
    let mut state = 1;
    for rows in [1, 2, 3, 14, 56, 57, 150] {
        for taps in [1, 2, 3, 9, 25, 49] {
            for extreme in [false, true] {
                check(&mut state, rows, taps, extreme);
            }
        }
    }
}

#[test]
#[should_panic(expected = "rows lie in the source")]
fn nothing_is_read_past_the_end() {
    let product = Depthwise {
        source: &[0; 40],
        offsets: &[0, 9],
        rows: 2,
        weights: &[0; COLUMNS],
    };
    product.multiply(&[0; COLUMNS], &mut [[0; COLUMNS]; 2]);
}

#[test]
#[should_panic(expected = "weights for each tap")]
fn weights_are_needed_for_all_taps() {
    let product = Depthwise {
        source: &[0; 40],
        offsets: &[0, 1, 2],
        rows: 1,
        weights: &[0; COLUMNS],
    };
    product.multiply(&[0; COLUMNS], &mut [[0; COLUMNS]; 1]);
}
