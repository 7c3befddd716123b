//! Times conversions of bytes: `cargo run --release -p corsac-kernels --example int8_conversions`.
//!
//! Prints nanoseconds per 32 elements, the best of rounds, of rows that stay in the cache; and the
//! time of a product with its epilogue as a multiple of that of the product alone.

use std::hint::black_box;
use std::time::Instant;

use corsac_kernels::int8::{Epilogue, Quantisation, Residual, RowScales, rows};
use corsac_kernels::int8::{dequantise, quantise};
use corsac_kernels::int8_depthwise::Depthwise;
use corsac_kernels::int8_unit::{COLUMNS, Dense, Int8Unit, Operands, RowSums, Sums};

const ROWS: usize = 128;

/// Sums that are there.
struct Ready<'a>(&'a [Sums]);

impl RowSums for Ready<'_> {
    fn rows(&self) -> usize {
        self.0.len()
    }

    fn by_blocks(&self, _initial: &Sums, mut pass: impl FnMut(usize, &[Sums])) {
        pass(0, self.0);
    }
}

fn main() {
    let numbers: Vec<f32> = (0..ROWS * COLUMNS)
        .map(|at| (at % 997) as f32 - 500.0)
        .collect();
    let mut bytes = vec![0_u8; numbers.len()];
    let mut floats = vec![0.0_f32; numbers.len()];
    let quantisation = Quantisation {
        inverse_scale: 0.1,
        zero_point: 128,
        bounds: [0, 255],
    };
    let blocks = ROWS as f64;
    let print = |name: &str, seconds: f64| println!("{name:24} {:6.2} ns", seconds * 1e9 / blocks);
    print(
        "quantise",
        best(|| quantise(black_box(&numbers), &quantisation, &mut bytes)),
    );
    print(
        "quantise_row",
        best(|| {
            rows::quantise_row(black_box(&numbers), [0, 255], 0.0, &mut bytes);
        }),
    );
    print(
        "dequantise",
        best(|| dequantise(black_box(&bytes), 0.5, 3, &mut floats)),
    );
    let sums: Vec<Sums> = vec![[1234; COLUMNS]; ROWS];
    let source = bytes.clone();
    let residual = Residual {
        bytes: &source,
        stride: COLUMNS,
        scale: 0.5,
        zero_point: 3,
    };
    let own = RowScales {
        scales: &[0.5; ROWS],
        zero_points: &[3; ROWS],
        column_sums: &[9; COLUMNS],
    };
    let plain = Epilogue {
        scales: &[0.5; COLUMNS],
        biases: &[0.25; COLUMNS],
        rows: None,
        residual: None,
        bounds: [0.0, f32::INFINITY],
    };
    let epilogues = [
        ("", plain),
        (
            ", residual",
            Epilogue {
                residual: Some(residual),
                ..plain
            },
        ),
        (
            ", rows",
            Epilogue {
                rows: Some(own),
                ..plain
            },
        ),
    ];
    for (name, epilogue) in epilogues {
        for columns in [32, 24] {
            print(
                &format!("{columns} to_floats{name}"),
                best(|| {
                    let sums = &Ready(black_box(&sums));
                    epilogue.multiply_to_floats(sums, &[0; COLUMNS], columns, &mut floats, COLUMNS);
                }),
            );
            print(
                &format!("{columns} to_bytes{name}"),
                best(|| {
                    epilogue.multiply_to_bytes(
                        &Ready(black_box(&sums)),
                        &[0; COLUMNS],
                        columns,
                        &quantisation,
                        &mut bytes,
                        COLUMNS,
                    );
                }),
            );
        }
    }
    let unit = Int8Unit::detect();
    for depth in [16, 32, 64, 128, 256] {
        let rows = 784;
        let source = vec![3_u8; rows * depth];
        let weights = vec![5_i8; depth * COLUMNS];
        let offsets: Vec<u32> = (0..rows).map(|row| (row * depth) as u32).collect();
        let operands = Operands {
            source: &source,
            offsets: &offsets,
            depth,
            weights: &weights,
            ahead: &[],
        };
        let (mut sums, zero) = (vec![[0; COLUMNS]; rows], [0; COLUMNS]);
        let mut to = vec![0_u8; rows * COLUMNS];
        let alone = best(|| unit.multiply(&operands, &zero, &mut sums));
        let apart = best(|| {
            unit.multiply(&operands, &zero, &mut sums);
            plain.multiply_to_bytes(
                &Ready(&sums),
                &[0; COLUMNS],
                COLUMNS,
                &quantisation,
                &mut to,
                COLUMNS,
            );
        });
        let with = best(|| {
            let product = Dense {
                unit,
                operands,
                rows,
            };
            let to = &mut to;
            plain.multiply_to_bytes(&product, &zero, COLUMNS, &quantisation, to, COLUMNS);
        });
        let [alone, apart, with] = [alone, apart, with].map(|time| time * 1e9 / rows as f64);
        println!(
            "depth {depth:4}: {alone:5.2} ns a row, {apart:5.2} then to bytes, {with:5.2} in blocks"
        );
    }
    for taps in [9_usize, 25] {
        let rows = 784;
        let source = vec![3_u8; 40_000];
        let weights = vec![5; taps * COLUMNS];
        let offsets: Vec<u32> = (0..taps * rows)
            .map(|at| (at % rows + at / rows) as u32 * 32)
            .collect();
        let product = Depthwise {
            source: &source,
            offsets: &offsets,
            rows,
            weights: &weights,
        };
        let (mut sums, zero) = (vec![[0; COLUMNS]; rows], [0; COLUMNS]);
        let mut to = vec![0_u8; rows * COLUMNS];
        let alone = best(|| product.multiply(&zero, &mut sums));
        let with = best(|| {
            let to = &mut to;
            plain.multiply_to_bytes(&product, &zero, COLUMNS, &quantisation, to, COLUMNS);
        });
        let [alone, with] = [alone, with].map(|time| time * 1e9 / rows as f64);
        println!("depthwise, {taps:2} taps: {alone:5.2} ns a row, {with:5.2} to bytes in blocks");
    }
}

fn best(mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..200 {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() / 200.0);
    }
    best
}
