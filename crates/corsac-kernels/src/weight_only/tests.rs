//! Products of all instructions, compared with double precision.

use half::f16;

use super::{Bits, Kind, PANEL, Rows, Scales, Weights, pack};

/// Pseudorandom numbers.
struct Numbers(u32);

impl Numbers {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    fn next(&mut self) -> f32 {
        self.bits() as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Writes products to rows that begin `stride` elements apart.
fn multiply(
    weights: &Weights<'_>,
    rows: &Rows<'_>,
    columns: usize,
    (to, stride): (&mut [f32], usize),
) {
    weights.multiply(rows, columns, |row, column, sums| {
        to[row * stride + column..][..sums.len()].copy_from_slice(sums);
    });
}

/// Weights with what they were packed from.
struct Case {
    bits: Bits,
    depth: usize,
    group: usize,
    columns: usize,
    /// Weights of each column.
    plain: Vec<i8>,
    packed: Vec<u8>,
    scales: Vec<f32>,
    halves: Option<Vec<u16>>,
    zero_points: Option<Vec<i8>>,
}

impl Case {
    fn new(numbers: &mut Numbers, bits: Bits, [depth, group, columns]: [usize; 3]) -> Self {
        let shift = if bits == Bits::Four { 20 } else { 16 };
        let mut weight = || ((numbers.bits() << 8).cast_signed() >> (shift + 8)) as i8;
        let plain: Vec<i8> = (0..depth * columns)
            .map(|_| match bits {
                Bits::Four => weight() >> 4,
                Bits::Eight => weight(),
            })
            .collect();
        let len = bits.panel_len(depth);
        let mut packed = vec![0; columns.div_ceil(PANEL) * len];
        for (panel, packed) in packed.chunks_mut(len).enumerate() {
            pack(bits, packed, depth, |column, row| {
                let column = panel * PANEL + column;
                if column < columns {
                    plain[column * depth + row]
                } else {
                    0
                }
            });
        }
        let count = columns.div_ceil(PANEL) * depth.div_ceil(group) * PANEL;
        let scales = (0..count).map(|_| f16::from_f32(numbers.next()).to_f32());
        Self {
            bits,
            depth,
            group,
            columns,
            plain,
            packed,
            scales: scales.collect(),
            halves: None,
            zero_points: None,
        }
    }

    fn with_halves(mut self) -> Self {
        let halves = self.scales.iter().map(|&x| f16::from_f32(x).to_bits());
        self.halves = Some(halves.collect());
        self
    }

    fn with_zero_points(mut self, numbers: &mut Numbers) -> Self {
        let own = (0..self.scales.len()).map(|_| (numbers.bits() % 16) as i8 - 8);
        self.zero_points = Some(own.collect());
        self
    }

    fn weights(&self) -> Weights<'_> {
        Weights {
            bits: self.bits,
            packed: &self.packed,
            depth: self.depth,
            group: self.group,
            scales: match &self.halves {
                Some(halves) => Scales::Half(halves),
                None => Scales::Single(&self.scales),
            },
            zero_points: self.zero_points.as_deref(),
        }
    }

    /// A weight, from the definition.
    fn weight(&self, column: usize, row: usize) -> f64 {
        let groups = self.depth.div_ceil(self.group);
        let at = (column / PANEL * groups + row / self.group) * PANEL + column % PANEL;
        let zero_point = self.zero_points.as_ref().map_or(0, |all| all[at]);
        let steps = i32::from(self.plain[column * self.depth + row]) - i32::from(zero_point);
        f64::from(steps) * f64::from(self.scales[at])
    }

    fn check(&self, numbers: &mut Numbers, rows: usize) {
        let (depth, columns) = (self.depth, self.columns);
        let x: Vec<f32> = (0..rows * depth).map(|_| numbers.next()).collect();
        let stride = columns + 3;
        for kind in Kind::all() {
            let mut to = vec![9.0; rows * stride - 3];
            let weights = self.weights();
            multiply(
                &weights,
                &weights.rows_for(kind, &x),
                columns,
                (&mut to, stride),
            );
            for (row, to) in to.chunks(stride).enumerate() {
                let x = &x[row * depth..][..depth];
                for (column, &got) in to[..columns].iter().enumerate() {
                    let products = x.iter().enumerate();
                    let products = products.map(|(at, &x)| f64::from(x) * self.weight(column, at));
                    let [sum, size] =
                        products.fold([0.0, 0.0], |[sum, size], x| [sum + x, size + x.abs()]);
                    // Zero points are subtracted after summing.
                    let error = (f64::from(got) - sum).abs();
                    assert!(
                        error <= 1e-5 * size.max(1.0),
                        "{kind:?}: {got} is not {sum}, row {row}, column {column}"
                    );
                }
                assert!(to[columns..].iter().all(|&x| x == 9.0));
            }
        }
    }
}

const SHAPES: [[usize; 3]; 11] = [
    [64, 32, 32],
    [64, 64, 33],
    [256, 128, 70],
    [96, 64, 31],
    [77, 32, 40],
    [20, 20, 64],
    [5, 5, 1],
    [300, 300, 33],
    [561, 256, 40],
    [120, 40, 33],
    [64, 8, 40],
];

#[test]
fn products_are_those_of_the_definition() {
    let mut numbers = Numbers(1);
    for shape in SHAPES {
        for bits in [Bits::Four, Bits::Eight] {
            for rows in [1, 2, 3, 4, 5, 7, 8, 9, 17] {
                Case::new(&mut numbers, bits, shape).check(&mut numbers, rows);
            }
        }
    }
}

#[test]
fn scales_in_half_precision_and_zero_points_are_used() {
    let mut numbers = Numbers(2);
    for shape in SHAPES {
        for bits in [Bits::Four, Bits::Eight] {
            for rows in [1, 3, 11] {
                let case = Case::new(&mut numbers, bits, shape).with_halves();
                case.check(&mut numbers, rows);
                let case = case.with_zero_points(&mut numbers);
                case.check(&mut numbers, rows);
            }
        }
    }
}

#[test]
fn widened_weights_are_those_that_were_packed() {
    let mut numbers = Numbers(3);
    for shape @ [depth, _, columns] in SHAPES {
        for bits in [Bits::Four, Bits::Eight] {
            let case = Case::new(&mut numbers, bits, shape).with_zero_points(&mut numbers);
            for first in [0, 16, 33].into_iter().filter(|&first| first < columns) {
                for (start, count) in [(0, depth + 5), (8, 1), (3, depth)] {
                    let width = columns - first;
                    let mut to = vec![7.0; count * width];
                    let rows = start..start + count;
                    case.weights().widen(first..columns, rows, &mut to);
                    for (at, got) in to.into_iter().enumerate() {
                        let (column, row) = (first + at % width, start + at / width);
                        let expected = match row < depth {
                            true => case.weight(column, row) as f32,
                            false => 0.0,
                        };
                        assert_eq!(got, expected, "column {column}, row {row}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_group_may_be_longer_than_a_column() {
    let mut numbers = Numbers(7);
    for bits in [Bits::Four, Bits::Eight] {
        for group in [23, usize::MAX] {
            let case =
                Case::new(&mut numbers, bits, [20, group, 33]).with_zero_points(&mut numbers);
            case.check(&mut numbers, 3);
            let mut to = vec![7.0; 33 * 20];
            case.weights().widen(0..33, 0..20, &mut to);
            assert_eq!(to[5 * 33 + 1], case.weight(1, 5) as f32);
        }
    }
}

#[test]
fn panels_may_be_multiplied_one_by_one() {
    let mut numbers = Numbers(4);
    let case = Case::new(&mut numbers, Bits::Four, [64, 32, 96]).with_zero_points(&mut numbers);
    let x: Vec<f32> = (0..128).map(|_| numbers.next()).collect();
    let (mut whole, mut parts) = (vec![0.0; 192], vec![0.0; 192]);
    let rows = case.weights().rows(&x);
    multiply(&case.weights(), &rows, 96, (&mut whole, 96));
    assert_eq!(case.weights().panels(), 3);
    for panel in 0..3 {
        let own = case.weights().range(panel..panel + 1);
        multiply(&own, &rows, 32, (&mut parts[panel * 32..], 96));
    }
    assert_eq!(whole, parts);
}

#[test]
#[should_panic(expected = "weight 8 of 4 bits")]
fn weights_fit_into_their_bits() {
    pack(Bits::Four, &mut [0; 128], 8, |_, _| 8);
}

#[test]
#[should_panic(expected = "a scale for each group and column")]
fn scales_are_needed_for_all_groups() {
    let mut case = Case::new(&mut Numbers(5), Bits::Eight, [64, 32, 32]);
    case.scales.pop();
    let weights = case.weights();
    weights.multiply(&weights.rows(&[0.0; 64]), 32, |_, _, _| {});
}

#[test]
fn rows_that_have_no_levels_are_multiplied_as_they_are() {
    let mut numbers = Numbers(8);
    for bits in [Bits::Four, Bits::Eight] {
        let case = Case::new(&mut numbers, bits, [64, 32, 33]);
        for special in [f32::NAN, f32::INFINITY, 1e-38] {
            let mut x: Vec<f32> = (0..2 * 64).map(|_| numbers.next()).collect();
            x[32..64].fill(0.0);
            x[40] = special;
            for kind in Kind::all() {
                let weights = case.weights();
                let rows = weights.rows_for(kind, &x);
                assert!(!rows.are_bytes());
                let mut to = [7.0; 2 * 33];
                multiply(&weights, &rows, 33, (&mut to, 33));
                for (column, got) in to[..33].iter().enumerate() {
                    let products = (0..64).map(|at| f64::from(x[at]) * case.weight(column, at));
                    let sum: f64 = products.sum();
                    let error = (f64::from(*got) - sum).abs();
                    let equal = f64::from(*got) == sum || error <= 1e-5 * 64.0 * 128.0;
                    assert!(
                        equal || (got.is_nan() && sum.is_nan()),
                        "{kind:?}: {got} is not {sum}"
                    );
                }
                assert!(to[33..].iter().all(|x| x.is_finite()), "{kind:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "numbers of a group")]
fn rows_belong_to_weights_of_their_groups() {
    let mut numbers = Numbers(9);
    let [own, other] = [32, 64].map(|group| {
        Case::new(&mut numbers, Bits::Four, [64, group, 32]).with_zero_points(&mut numbers)
    });
    let x = [1.0; 64];
    let rows = other.weights().rows(&x);
    own.weights().multiply(&rows, 32, |_, _, _| {});
}

#[test]
fn large_numbers_with_weights_of_zero_leave_the_others_as_they_are() {
    let mut numbers = Numbers(10);
    for bits in [Bits::Four, Bits::Eight] {
        let mut case = Case::new(&mut numbers, bits, [64, 32, 32]);
        for column in 0..32 {
            case.plain[column * 64] = 0;
        }
        let plain = case.plain.clone();
        pack(bits, &mut case.packed, 64, |column, row| {
            plain[column * 64 + row]
        });
        for large in [50.0, 1e3, 1e6, 1.7e9] {
            let mut x: Vec<f32> = (0..64).map(|_| numbers.next()).collect();
            x[0] = large;
            for kind in Kind::all() {
                let weights = case.weights();
                let mut to = [7.0; 32];
                multiply(&weights, &weights.rows_for(kind, &x), 32, (&mut to, 32));
                for (column, got) in to.iter().enumerate() {
                    let products = (0..64).map(|at| f64::from(x[at]) * case.weight(column, at));
                    let [sum, size] = products.fold([0.0, 0.0], |[sum, size]: [f64; 2], x| {
                        [sum + x, size + x.abs()]
                    });
                    let error = (f64::from(*got) - sum).abs();
                    assert!(
                        error <= 1e-5 * size,
                        "{kind:?}, {bits:?}: {got} is not {sum} of {size}"
                    );
                }
            }
        }
    }
}
