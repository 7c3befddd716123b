//! Conversions, compared with their definitions and with each other.

use super::epilogue::Vectors;
use super::rows::{RowScale, choose, quantise_row, range};
use super::{Epilogue, Quantisation, Residual, RowScales, dequantise, quantise};
use crate::int8_unit::{COLUMNS, Dense, Int8Unit, Operands, RowSums, Sums};

/// Pseudorandom bits.
struct Bits(u32);

impl Bits {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 ^ (self.0 >> 15)
    }

    /// A number between -1 and 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// The definition, step by step.
fn byte(x: f32, quantisation: &Quantisation) -> u8 {
    let [smallest, largest] = quantisation.bounds;
    let whole = (x * quantisation.inverse_scale).round_ties_even();
    let byte = whole + quantisation.zero_point as f32;
    match byte.is_nan() {
        true => 0,
        false => byte.clamp(smallest as f32, largest as f32) as i32 as u8,
    }
}

const QUANTISATIONS: [Quantisation; 5] = [
    Quantisation {
        inverse_scale: 1.0,
        zero_point: 0,
        bounds: [0, 255],
    },
    Quantisation {
        inverse_scale: 10.0,
        zero_point: 127,
        bounds: [0, 255],
    },
    Quantisation {
        inverse_scale: 0.3,
        zero_point: -5,
        bounds: [-128, 127],
    },
    Quantisation {
        inverse_scale: 3.0,
        zero_point: 300,
        bounds: [0, 127],
    },
    Quantisation {
        inverse_scale: f32::INFINITY,
        zero_point: 3,
        bounds: [1, 15],
    },
];

#[test]
fn numbers_of_all_sizes_become_the_bytes_of_the_definition() {
    let mut bits = Bits(1);
    let halves = (-600..600).map(|at| at as f32 * 0.5);
    let special = [0.0, -0.0, f32::NAN, -f32::NAN, f32::MAX, f32::MIN, 1e-45];
    let infinite = [f32::INFINITY, f32::NEG_INFINITY];
    let last_nan = [f32::from_bits(0x7fff_ffff), f32::from_bits(u32::MAX)];
    let special = special.into_iter().chain(last_nan);
    let any = (0..20_000).map(|_| f32::from_bits(bits.next()));
    let from: Vec<f32> = halves.chain(special).chain(infinite).chain(any).collect();
    for quantisation in QUANTISATIONS {
        let mut to = vec![7; from.len()];
        quantise(&from, &quantisation, &mut to);
        for (&x, got) in from.iter().zip(to) {
            assert_eq!(got, byte(x, &quantisation), "{x:e} by {quantisation:?}");
        }
    }
}

#[test]
fn bytes_become_numbers() {
    let from: Vec<u8> = (0..=255).collect();
    let mut to = vec![0.0; 256];
    dequantise(&from, 0.3, 128, &mut to);
    let expected = |byte: i32| (byte - 128) as f32 * 0.3;
    assert_eq!(to, (0..256).map(expected).collect::<Vec<_>>());
}

#[test]
#[should_panic(expected = "bounds 0 and 256 of bytes")]
fn bounds_are_those_of_bytes() {
    let quantisation = Quantisation {
        bounds: [0, 256],
        ..QUANTISATIONS[0]
    };
    quantise(&[], &quantisation, &mut []);
}

#[test]
fn ranges_include_zero_and_show_nan() {
    for len in [1, 5, 63, 64, 65, 200] {
        let numbers: Vec<f32> = (0..len).map(|at| at as f32 + 2.0).collect();
        assert_eq!(range(&numbers), [0.0, len as f32 + 1.0]);
        let negative: Vec<f32> = numbers.iter().map(|x| -x).collect();
        assert_eq!(range(&negative), [-1.0 - len as f32, 0.0]);
        for at in [0, len / 2, len - 1] {
            let mut numbers = numbers.clone();
            numbers[at] = f32::NEG_INFINITY;
            assert_eq!(range(&numbers)[0], f32::NEG_INFINITY);
            numbers[at] = -f32::NAN;
            assert!(range(&numbers).iter().all(|x| x.is_nan()), "{at} of {len}");
        }
    }
    assert_eq!(range(&[]), [0.0, 0.0]);
}

#[test]
fn rows_have_scales_of_their_own() {
    let row = |scale, zero_point| RowScale { scale, zero_point };
    assert_eq!(choose([-1.0, 1.55], [0, 255], 0.0), row(2.55 / 255.0, 100));
    assert_eq!(choose([-1.0, 1.55], [-128, 127], 0.0), row(0.01, -28));
    assert_eq!(choose([0.0, 255.0], [0, 255], 0.0), row(1.0, 0));
    assert_eq!(choose([-255.0, 0.0], [0, 255], 0.0), row(1.0, 255));
    assert_eq!(choose([0.0, 0.0], [0, 255], 0.0), row(1.0, 0));
    assert_eq!(choose([0.0, 1e-20], [0, 255], 1e-7), row(1e-7, 0));
    let mut bits = Bits(2);
    for (len, power) in [
        (1, 0),
        (7, 30),
        (64, -30),
        (100, 2),
        (70, -38),
        (70, -42),
        (5, -45),
    ] {
        let size = 10.0_f32.powi(power);
        let from: Vec<f32> = (0..len).map(|_| bits.number() * size).collect();
        let (mut bytes, mut back) = (vec![0; from.len()], vec![0.0; from.len()]);
        let RowScale { scale, zero_point } = quantise_row(&from, [0, 255], 0.0, &mut bytes);
        dequantise(&bytes, scale, zero_point, &mut back);
        for (x, back) in from.iter().zip(back) {
            assert!((x - back).abs() <= scale * 0.501, "{x:e} became {back:e}");
        }
    }
}

#[test]
fn rows_without_a_finite_range_become_nan() {
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (mut bytes, mut back) = ([9; 3], [0.0; 3]);
        let row = quantise_row(&[1.0, x, 2.0], [0, 255], 0.0, &mut bytes);
        assert_eq!(bytes, [0; 3]);
        dequantise(&bytes, row.scale, row.zero_point, &mut back);
        assert!(back.iter().all(|x| x.is_nan()));
    }
}

/// All that an epilogue reads.
struct Case {
    sums: Vec<Sums>,
    scales: [f32; COLUMNS],
    biases: [f32; COLUMNS],
    row_scales: Vec<f32>,
    zero_points: Vec<i32>,
    column_sums: Sums,
    residual: Vec<u8>,
}

const STRIDE: usize = 45;

impl Case {
    fn new(bits: &mut Bits, rows: usize) -> Self {
        let mut sums = || std::array::from_fn(|_| bits.next().cast_signed() >> 12);
        let all = (0..rows).map(|_| sums()).collect();
        let column_sums = sums();
        Self {
            sums: all,
            column_sums,
            scales: std::array::from_fn(|_| bits.number() * 1e-3),
            biases: std::array::from_fn(|_| bits.number() * 10.0),
            row_scales: (0..rows).map(|_| bits.number().abs()).collect(),
            zero_points: (0..rows).map(|_| (bits.next() & 255) as i32).collect(),
            residual: (0..rows * STRIDE).map(|_| bits.next() as u8).collect(),
        }
    }

    /// The four epilogues: with and without scales of rows, with and without a residual.
    fn epilogues(&self) -> [Epilogue<'_>; 4] {
        let rows = Some(RowScales {
            scales: &self.row_scales,
            zero_points: &self.zero_points,
            column_sums: &self.column_sums,
        });
        let residual = Some(Residual {
            bytes: &self.residual,
            stride: STRIDE,
            scale: 0.7,
            zero_point: 90,
        });
        let epilogue = |rows, residual, bounds| Epilogue {
            scales: &self.scales,
            biases: &self.biases,
            rows,
            residual,
            bounds,
        };
        let all = [f32::NEG_INFINITY, f32::INFINITY];
        [
            epilogue(None, None, all),
            epilogue(None, residual, [0.0, f32::INFINITY]),
            epilogue(rows, None, [-1.0, 6.0]),
            epilogue(rows, residual, all),
        ]
    }

    /// A number, from the definition.
    fn number(&self, epilogue: &Epilogue<'_>, row: usize, column: usize) -> f32 {
        let (mut sum, mut scale) = (self.sums[row][column], self.scales[column]);
        if epilogue.rows.is_some() {
            sum -= self.zero_points[row] * self.column_sums[column];
            scale *= self.row_scales[row];
        }
        let mut x = sum as f32 * scale + self.biases[column];
        if let Some(residual) = &epilogue.residual {
            let byte = i32::from(self.residual[row * STRIDE + column]);
            x += (byte - residual.zero_point) as f32 * residual.scale;
        }
        x.clamp(epilogue.bounds[0], epilogue.bounds[1])
    }
}

#[test]
fn epilogues_are_those_of_the_definition_whatever_computes_them() {
    let mut bits = Bits(3);
    for rows in [1, 2, 9] {
        let case = Case::new(&mut bits, rows);
        for epilogue in case.epilogues() {
            for columns in 0..=COLUMNS {
                let quantisation = QUANTISATIONS[columns % QUANTISATIONS.len()];
                let len = (rows - 1) * STRIDE + columns;
                for vectors in Vectors::all() {
                    let mut to = vec![5.0; len];
                    epilogue.floats(vectors, rows, columns, &mut to, STRIDE)(0, &case.sums);
                    let mut own = vec![5; len];
                    let levels = &quantisation;
                    epilogue.bytes(vectors, rows, columns, levels, &mut own, STRIDE)(0, &case.sums);
                    for at in 0..len {
                        let (row, column) = (at / STRIDE, at % STRIDE);
                        let (x, own_byte) = match column < columns {
                            true => {
                                let x = case.number(&epilogue, row, column);
                                (x, byte(x, &quantisation))
                            }
                            false => (5.0, 5),
                        };
                        let bits = to[at].to_bits();
                        assert_eq!(
                            bits,
                            x.to_bits(),
                            "{vectors:?}: {row}, {column} of {columns}"
                        );
                        assert_eq!(
                            own[at], own_byte,
                            "{vectors:?}: {row}, {column} of {columns}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn products_are_converted_a_few_rows_at_a_time() {
    let (rows, depth, columns) = (131, 8, 27);
    let mut bits = Bits(7);
    let mut case = Case::new(&mut bits, rows);
    let source: Vec<u8> = (0..300).map(|_| bits.next() as u8).collect();
    let offsets: Vec<u32> = (0..2 * rows).map(|_| bits.next() % 292).collect();
    let weights: Vec<i8> = (0..2 * depth * COLUMNS)
        .map(|_| bits.next() as i8)
        .collect();
    let operands = Operands {
        source: &source,
        offsets: &offsets,
        depth,
        weights: &weights,
        ahead: &weights,
    };
    let initial = case.sums[0];
    let unit = Int8Unit::detect();
    let mut sums = vec![[0; COLUMNS]; rows];
    unit.multiply(&operands, &initial, &mut sums);
    case.sums.clone_from(&sums);
    let len = (rows - 1) * STRIDE + columns;
    for epilogue in case.epilogues() {
        let product = &Dense {
            unit,
            operands,
            rows,
        };
        let (mut to, mut expected) = (vec![0.0; len], vec![0.0; len]);
        epilogue.floats(Vectors::detect(), rows, columns, &mut expected, STRIDE)(0, &sums);
        epilogue.multiply_to_floats(product, &initial, columns, &mut to, STRIDE);
        assert!(to == expected);
        let (mut to, mut expected) = (vec![0; len], vec![0; len]);
        let own = &QUANTISATIONS[1];
        epilogue.bytes(Vectors::detect(), rows, columns, own, &mut expected, STRIDE)(0, &sums);
        epilogue.multiply_to_bytes(product, &initial, columns, own, &mut to, STRIDE);
        assert!(to == expected && to.iter().any(|&byte| byte != to[0]));
    }
}

#[test]
fn scales_and_biases_that_are_not_finite_become_the_bytes_of_the_definition() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e30];
    for (at, special) in special.into_iter().enumerate() {
        for place in 0..3 {
            let mut case = Case::new(&mut Bits(8), 3);
            case.sums[1] = [0; COLUMNS];
            match place {
                0 => case.scales[at * 7] = special,
                1 => case.biases[at * 7] = special,
                _ => {}
            }
            let mut epilogues = case.epilogues();
            if let Some(residual) = &mut epilogues[1].residual
                && place == 2
            {
                residual.scale = special;
            }
            for epilogue in &epilogues[..2] {
                let conversion = &QUANTISATIONS[1];
                for vectors in Vectors::all() {
                    let mut own = [9; 96];
                    epilogue.bytes(vectors, 3, 32, conversion, &mut own, 32)(0, &case.sums);
                    for (at, got) in own.into_iter().enumerate() {
                        let x = case.number(epilogue, at / 32, at % 32);
                        let expected = byte(x, conversion);
                        assert_eq!(got, expected, "{vectors:?}: {x} of {special}, {place}");
                    }
                }
            }
        }
    }
}

#[test]
fn results_that_are_no_numbers_become_the_byte_zero() {
    let mut case = Case::new(&mut Bits(4), 2);
    case.row_scales[1] = f32::NAN;
    let epilogue = case.epilogues()[2];
    for vectors in Vectors::all() {
        let mut own = [9; 64];
        epilogue.bytes(vectors, 2, 32, &QUANTISATIONS[1], &mut own, 32)(0, &case.sums);
        assert_eq!(own[32..], [0; 32]);
        assert!(own[..32].iter().any(|&byte| byte != 0));
    }
}

#[test]
#[should_panic(expected = "rows lie in the residual")]
fn no_residual_is_read_past_its_end() {
    let mut case = Case::new(&mut Bits(5), 3);
    case.residual.truncate(2 * STRIDE + 31);
    let epilogue = case.epilogues()[1];
    epilogue.floats(Vectors::detect(), 3, 32, &mut [0.0; 96], 32)(0, &case.sums);
}

#[test]
#[should_panic(expected = "rows lie in the result")]
fn nothing_is_written_past_the_end() {
    let case = Case::new(&mut Bits(6), 3);
    case.epilogues()[0].floats(Vectors::detect(), 3, 32, &mut [0.0; 95], 32)(0, &case.sums);
}

#[test]
#[should_panic(expected = "sums of rows")]
fn products_have_as_many_sums_as_rows() {
    struct Wrong;
    impl RowSums for Wrong {
        fn rows(&self) -> usize {
            1
        }

        fn by_blocks(&self, initial: &Sums, mut pass: impl FnMut(usize, &[Sums])) {
            pass(0, &[*initial; 2]);
        }
    }
    let case = Case::new(&mut Bits(8), 1);
    case.epilogues()[0].multiply_to_floats(&Wrong, &[0; COLUMNS], 32, &mut [0.0; 32], 32);
}
