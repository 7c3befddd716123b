//! Attention against its definition, computed naively in double precision.

mod kit;

use corsac_engine::kernels::blocked::attention::{Attention, Head, Operands, Pitch};
use kit::numbers;

struct Case {
    rows: usize,
    keys: usize,
    width: usize,
    outputs: usize,
    /// Heads that lie beside each other in a row, as a linear layer computes them.
    heads: usize,
    causal: bool,
    masked: bool,
    /// Factor of the queries, for scores that are far apart.
    size: f32,
}

const CASE: Case = Case {
    rows: 5,
    keys: 7,
    width: 16,
    outputs: 16,
    heads: 2,
    causal: false,
    masked: false,
    size: 1.0,
};

impl Case {
    fn check(&self) {
        let &Self {
            rows,
            keys,
            width,
            outputs,
            heads,
            causal,
            masked,
            size,
        } = self;
        let mut query = numbers(rows * heads * width, 1);
        query.iter_mut().for_each(|x| *x *= size);
        let key = numbers(keys * heads * width, 2);
        let value = numbers(keys * heads * outputs, 3);
        let mut mask = numbers(if masked { rows * keys } else { 0 }, 4);
        // Some keys that are masked, and a row whose keys all are.
        for (at, x) in mask.iter_mut().enumerate() {
            if at % 3 == 0 || at / keys == 1 {
                *x = f32::NEG_INFINITY;
            }
        }
        let pitch = |columns: usize| Pitch {
            row: heads * columns,
            column: 1,
        };
        let attention = Attention {
            heads: (0..heads)
                .map(|head| Head {
                    query: head * width,
                    key: head * width,
                    value: head * outputs,
                    mask: 0,
                    result: head * outputs,
                })
                .collect(),
            rows,
            keys,
            width,
            outputs,
            query: pitch(width),
            key: pitch(width),
            value: pitch(outputs),
            mask: masked.then_some(Pitch {
                row: keys,
                column: 1,
            }),
            result: heads * outputs,
            scale: 0.25,
            causal,
            safe: true,
        };
        let mut got = vec![f32::NAN; rows * heads * outputs];
        let operands = Operands {
            query: &query,
            key: &key,
            value: &value,
            mask: &mask,
        };
        attention.run(&operands, &mut got);
        for head in 0..heads {
            for row in 0..rows {
                let scores: Vec<f64> = (0..keys)
                    .map(|at| {
                        let product = (0..width).map(|w| {
                            let q = query[(row * heads + head) * width + w];
                            f64::from(q) * f64::from(key[(at * heads + head) * width + w])
                        });
                        match causal && at > row {
                            true => f64::NEG_INFINITY,
                            false => {
                                let added = if masked { mask[row * keys + at] } else { 0.0 };
                                product.sum::<f64>() * 0.25 + f64::from(added)
                            }
                        }
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = match largest == f64::NEG_INFINITY {
                    true => vec![0.0; keys],
                    false => scores.iter().map(|score| (score - largest).exp()).collect(),
                };
                let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
                for output in 0..outputs {
                    let expected = (0..keys)
                        .map(|at| {
                            let own = value[(at * heads + head) * outputs + output];
                            weights[at] / sum * f64::from(own)
                        })
                        .sum::<f64>();
                    let got = f64::from(got[(row * heads + head) * outputs + output]);
                    assert!(
                        (got - expected).abs() < 2e-6 * f64::from(size.max(1.0)),
                        "{got} is not {expected}: row {row}, head {head} of {rows} x {keys} x {width} x \
                         {outputs}, causal {causal}, masked {masked}, size {size}"
                    );
                }
            }
        }
    }
}

#[test]
fn sizes_that_fill_no_block() {
    for (rows, keys) in [
        (1, 1),
        (1, 300),
        (3, 17),
        (6, 40),
        (29, 31),
        (60, 257),
        (300, 33),
        (57, 600),
    ] {
        for (width, outputs) in [(1, 1), (8, 24), (64, 64), (17, 40)] {
            for causal in [false, true] {
                Case {
                    rows,
                    keys,
                    width,
                    outputs,
                    causal,
                    ..CASE
                }
                .check();
            }
        }
    }
}

#[test]
fn masks_are_added() {
    for (rows, keys) in [(2, 2), (3, 70), (40, 50), (31, 700)] {
        Case {
            rows,
            keys,
            masked: true,
            ..CASE
        }
        .check();
        Case {
            rows,
            keys,
            masked: true,
            causal: true,
            heads: 3,
            ..CASE
        }
        .check();
    }
}

#[test]
fn scores_that_are_far_apart() {
    for size in [1e-6, 30.0, 1000.0] {
        for rows in [2, 33] {
            Case {
                rows,
                keys: 900,
                size,
                ..CASE
            }
            .check();
        }
    }
}

/// Attention of one head over row-major matrices, with a scale of 1.
fn one_head(rows: usize, keys: usize, width: usize, outputs: usize) -> Attention {
    let in_rows = |row| Pitch { row, column: 1 };
    Attention {
        heads: vec![Head {
            query: 0,
            key: 0,
            value: 0,
            mask: 0,
            result: 0,
        }],
        rows,
        keys,
        width,
        outputs,
        query: in_rows(width),
        key: in_rows(width),
        value: in_rows(outputs),
        mask: None,
        result: outputs,
        scale: 1.0,
        causal: false,
        safe: false,
    }
}

#[test]
fn matrices_that_are_transposed() {
    // Keys and values stored transposed.
    let (rows, keys, width, outputs) = (9, 40, 5, 7);
    let (query, key) = (numbers(rows * width, 1), numbers(keys * width, 2));
    let value = numbers(keys * outputs, 3);
    let transposed = |from: &[f32], columns: usize| -> Vec<f32> {
        let rows = from.len() / columns;
        (0..from.len())
            .map(|at| from[at % rows * columns + at / rows])
            .collect()
    };
    let plain = one_head(rows, keys, width, outputs);
    let mut expected = vec![0.0; rows * outputs];
    let operands = Operands {
        query: &query,
        key: &key,
        value: &value,
        mask: &[],
    };
    plain.run(&operands, &mut expected);
    let turned = Attention {
        query: Pitch {
            row: 1,
            column: rows,
        },
        key: Pitch {
            row: 1,
            column: keys,
        },
        value: Pitch {
            row: 1,
            column: keys,
        },
        ..plain
    };
    let (query, key) = (transposed(&query, width), transposed(&key, width));
    let value = transposed(&value, outputs);
    let mut got = vec![0.0; rows * outputs];
    let operands = Operands {
        query: &query,
        key: &key,
        value: &value,
        mask: &[],
    };
    turned.run(&operands, &mut got);
    assert_eq!(got, expected);
}

#[test]
fn a_mask_may_be_one_for_all_keys_or_all_queries() {
    for rows in [2, 9] {
        let (keys, width) = (20, 8);
        let (query, key) = (numbers(rows * width, 1), numbers(keys * width, 2));
        let value = numbers(keys * width, 3);
        let run = |pitch: Option<Pitch>, mask: &[f32]| {
            let attention = Attention {
                mask: pitch,
                ..one_head(rows, keys, width, width)
            };
            let mut got = vec![0.0; rows * width];
            let operands = Operands {
                query: &query,
                key: &key,
                value: &value,
                mask,
            };
            attention.run(&operands, &mut got);
            got
        };
        let of_rows: Vec<f32> = (0..rows).map(|row| row as f32 / 4.0).collect();
        let whole: Vec<f32> = (0..rows * keys).map(|at| of_rows[at / keys]).collect();
        let in_rows = Pitch {
            row: keys,
            column: 1,
        };
        let expected = run(Some(in_rows), &whole);
        assert_eq!(run(Some(Pitch { row: 1, column: 0 }), &of_rows), expected);
        let of_keys: Vec<f32> = (0..keys).map(|key| key as f32 / 8.0).collect();
        let whole = of_keys.repeat(rows);
        let expected = run(Some(in_rows), &whole);
        assert_eq!(run(Some(Pitch { row: 0, column: 1 }), &of_keys), expected);
    }
}

#[test]
fn what_is_no_number_stays_in_its_row() {
    let (rows, keys, width) = (4, 20, 8);
    let mut query = numbers(rows * width, 1);
    query[width] = f32::NAN;
    let key = numbers(keys * width, 2);
    let attention = one_head(rows, keys, width, width);
    let mut got = vec![0.0; rows * width];
    let operands = Operands {
        query: &query,
        key: &key,
        value: &key,
        mask: &[],
    };
    attention.run(&operands, &mut got);
    for (row, values) in got.chunks_exact(width).enumerate() {
        assert!(
            values.iter().all(|x| x.is_nan() == (row == 1)),
            "row {row}: {values:?}"
        );
    }
}
