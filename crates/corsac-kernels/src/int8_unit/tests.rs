//! Products of all instructions, compared bit by bit with plain sums.

use super::{
    COLUMNS, Dense, Int8Unit, MAX_PRODUCTS, Operands, QUAD, RowSums, Sums, column_sums, pack,
};

/// Pseudorandom numbers.
pub(super) struct Numbers(u32);

impl Numbers {
    pub(super) fn next(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % end
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next(256) as u8).collect()
    }
}

/// A product with all that it reads.
struct Case {
    source: Vec<u8>,
    offsets: Vec<u32>,
    depth: usize,
    rows: usize,
    /// Element `[tap][column][byte]`.
    plain: Vec<i8>,
    weights: Vec<i8>,
    initial: Sums,
}

impl Case {
    fn new(source: Vec<u8>, offsets: Vec<u32>, rows: usize, depth: usize, plain: Vec<i8>) -> Self {
        let mut weights = vec![0; plain.len()];
        let per_tap = depth * COLUMNS;
        for tap in 0..offsets.len() / rows {
            let plain = &plain[tap * per_tap..][..per_tap];
            let packed = &mut weights[tap * per_tap..][..per_tap];
            pack(packed, |column, row| plain[column * depth + row]);
        }
        Self {
            source,
            offsets,
            depth,
            rows,
            plain,
            weights,
            initial: std::array::from_fn(|column| column as i32 * 1000 - 7),
        }
    }

    fn random(numbers: &mut Numbers, rows: usize, taps: usize, depth: usize) -> Self {
        let len = depth + 1 + numbers.next(500);
        let source = numbers.bytes(len);
        let offsets = (0..rows * taps).map(|_| numbers.next(len - depth + 1) as u32);
        let offsets = offsets.collect();
        let plain = numbers.bytes(taps * depth * COLUMNS);
        let plain = plain.into_iter().map(u8::cast_signed).collect();
        Self::new(source, offsets, rows, depth, plain)
    }

    fn operands(&self) -> Operands<'_> {
        Operands {
            source: &self.source,
            offsets: &self.offsets,
            depth: self.depth,
            weights: &self.weights,
            ahead: &self.weights,
        }
    }

    /// The sums, from the definition.
    fn expected(&self) -> Vec<Sums> {
        let mut sums = vec![self.initial; self.rows];
        for (row, sums) in sums.iter_mut().enumerate() {
            for (tap, offsets) in self.offsets.chunks(self.rows).enumerate() {
                let bytes = &self.source[offsets[row] as usize..][..self.depth];
                for (column, sum) in sums.iter_mut().enumerate() {
                    let weights = &self.plain[(tap * COLUMNS + column) * self.depth..];
                    for (&x, &weight) in bytes.iter().zip(weights) {
                        *sum += i32::from(x) * i32::from(weight);
                    }
                }
            }
        }
        sums
    }

    fn check(&self, unit: Int8Unit, expected: &[Sums]) {
        let (name, rows, depth) = (unit.name(), self.rows, self.depth);
        let mut sums = vec![[-1; COLUMNS]; rows];
        unit.multiply(&self.operands(), &self.initial, &mut sums);
        assert!(sums == expected, "{name}: {rows} rows, depth {depth}");
        let mut sums = vec![self.initial; rows];
        unit.multiply_add(&self.operands(), &mut sums);
        assert!(
            sums == expected,
            "{name}: {rows} rows, depth {depth}, added"
        );
        let dense = Dense {
            unit,
            operands: self.operands(),
            rows,
        };
        let mut next = 0;
        dense.by_blocks(&self.initial, |first, sums| {
            let same = first == next && sums == &expected[first..][..sums.len()];
            assert!(same, "{name}: in blocks");
            next += sums.len();
        });
        assert_eq!(next, rows);
    }
}

#[test]
fn all_instructions_give_the_same_sums() {
    let mut numbers = Numbers(1);
    for rows in (1..=40).chain([57, 113, 130]) {
        for round in 0..6 {
            let taps = 1 + numbers.next(4);
            let depth = QUAD * [1, 2, 3, 16, 17, 1 + numbers.next(50)][round];
            let case = Case::random(&mut numbers, rows, taps, depth);
            let expected = case.expected();
            for unit in Int8Unit::all() {
                case.check(unit, &expected);
            }
        }
    }
}

#[test]
fn the_largest_products_do_not_saturate() {
    let depth = MAX_PRODUCTS / QUAD * QUAD;
    for (byte, weight) in [(255, -128), (255, 127), (128, -128)] {
        for (rows, depth) in [(1, depth), (5, depth), (19, 516)] {
            let source = vec![byte; depth];
            let plain = vec![weight; depth * COLUMNS];
            let mut case = Case::new(source, vec![0; rows], rows, depth, plain);
            case.initial = [0; COLUMNS];
            let sum = depth as i32 * i32::from(byte) * i32::from(weight);
            for unit in Int8Unit::all() {
                case.check(unit, &vec![[sum; COLUMNS]; rows]);
            }
        }
    }
}

#[test]
fn pairs_that_fit_16_bits_are_added_up_in_them() {
    let mut numbers = Numbers(5);
    for rows in (1..=12).chain([57, 113]) {
        for largest in [1, 100, 127, 128, 255] {
            let mut case = Case::random(&mut numbers, rows, 3, QUAD * 7);
            case.source
                .iter_mut()
                .for_each(|byte| *byte = (*byte).min(largest));
            if largest > 127 {
                // The largest sums that fit.
                for pair in case.plain.chunks_mut(2) {
                    let most = i16::MAX / i16::from(largest);
                    let share = numbers.next(most as usize - 1) as i16;
                    let sign = if numbers.next(2) == 0 { 1 } else { -1 };
                    pair[0] = (share * sign).clamp(-128, 127) as i8;
                    pair[1] = ((most - share) * sign).clamp(-128, 127) as i8;
                }
                let plain = std::mem::take(&mut case.plain);
                let Case {
                    source,
                    offsets,
                    depth,
                    ..
                } = case;
                case = Case::new(source, offsets, rows, depth, plain);
            }
            let unit = Int8Unit::detect_for(largest, &case.weights);
            case.check(unit, &case.expected());
            if Int8Unit::detect().name() == "avx2" {
                assert_eq!(unit.name(), "avx2, sums of 16 bits", "{largest}");
            }
        }
    }
}

#[test]
fn pairs_that_overflow_16_bits_are_not_added_up_in_them() {
    let unit = |largest, pair: [i8; 2]| {
        let mut weights = vec![0; QUAD * COLUMNS];
        weights[6..8].copy_from_slice(&pair);
        Int8Unit::detect_for(largest, &weights)
    };
    for (largest, pair) in [
        (255, [127, 2]),
        (255, [-128, -1]),
        (255, [65, 64]),
        (130, [127, 127]),
        (129, [-128, -128]),
    ] {
        assert_eq!(
            unit(largest, pair),
            Int8Unit::detect(),
            "{largest}, {pair:?}"
        );
    }
}

#[test]
fn column_sums_times_a_zero_point_are_what_it_adds() {
    let mut case = Case::random(&mut Numbers(5), 3, 4, 24);
    case.source.fill(9);
    case.initial = [0; COLUMNS];
    let expected = column_sums(&case.weights).map(|sum| 9 * sum);
    assert_eq!(case.expected(), [expected; 3]);
}

#[test]
fn blocks_are_all_rows_in_order() {
    let kinds = [
        Int8Unit::portable(),
        #[cfg(target_arch = "x86_64")]
        Int8Unit(super::Kind::Tiles),
    ];
    for unit in kinds {
        for rows in 0..300 {
            let mut next = 0;
            for block in unit.blocks(rows) {
                assert!(block.start == next && (1..=super::BLOCK).contains(&block.len()));
                next = block.end;
            }
            assert_eq!(next, rows);
        }
    }
}

#[test]
fn blocks_of_more_rows_than_half_of_all_numbers_do_not_overflow() {
    let rows = usize::MAX / 2 + 3;
    for most in [56, rows / 2 + 1, rows - 1] {
        let count = rows.div_ceil(most);
        let last = super::block(rows, count, count - 1);
        assert!(
            last.end == rows && (1..=most).contains(&last.len()),
            "{last:?}"
        );
    }
}

#[test]
fn rows_without_bytes_have_the_first_sums() {
    let offsets = [3, 0, 2, 3, 1, 0];
    let case = Case::new(vec![9; 3], offsets.to_vec(), 3, 0, Vec::new());
    for unit in Int8Unit::all() {
        case.check(unit, &[case.initial; 3]);
    }
}

#[test]
fn the_portable_unit_is_the_last_of_all() {
    assert_eq!(Int8Unit::all().last(), Some(Int8Unit::portable()));
    assert_eq!(Int8Unit::all().next(), Some(Int8Unit::detect()));
    let none: &mut [Sums] = &mut [];
    let operands = Operands {
        source: &[],
        offsets: &[],
        depth: 4,
        weights: &[],
        ahead: &[],
    };
    for unit in Int8Unit::all() {
        unit.multiply(&operands, &[0; COLUMNS], none);
    }
}

#[test]
#[should_panic(expected = "rows lie in the source")]
fn nothing_is_read_past_the_end() {
    let mut case = Case::random(&mut Numbers(2), 3, 2, 8);
    case.offsets[4] = (case.source.len() - 7) as u32;
    Int8Unit::detect().multiply(&case.operands(), &case.initial, &mut [[0; COLUMNS]; 3]);
}

#[test]
#[should_panic(expected = "an offset for each of 4 rows")]
fn offsets_are_needed_for_all_rows() {
    let case = Case::random(&mut Numbers(3), 3, 1, 8);
    Int8Unit::detect().multiply(&case.operands(), &case.initial, &mut [[0; COLUMNS]; 4]);
}

#[test]
#[should_panic(expected = "weights for each tap")]
fn weights_are_needed_for_all_taps() {
    let mut case = Case::random(&mut Numbers(4), 3, 2, 8);
    case.weights.pop();
    Int8Unit::detect().multiply(&case.operands(), &case.initial, &mut [[0; COLUMNS]; 3]);
}

/// Tiles in plain Rust, as the processor's manual describes them, so that the loops over them are
/// tested where the processor has none.
#[cfg(target_arch = "x86_64")]
mod model {
    use super::super::tiles::{Tiles, multiply_in};
    use super::super::{COLUMNS, Product};
    use super::{Case, Numbers};
    use crate::amx::Configuration;

    struct Model {
        /// Rows and bytes of a row of each tile; none before the tiles are configured.
        shapes: Option<[[usize; 2]; 8]>,
        tiles: [[[u8; 64]; 16]; 8],
    }

    impl Model {
        fn shape(&self, tile: usize) -> [usize; 2] {
            self.shapes.expect("configured tiles")[tile]
        }

        fn quad(&self, tile: usize, row: usize, quad: usize) -> &[u8] {
            &self.tiles[tile][row][quad * 4..][..4]
        }
    }

    impl Tiles for Model {
        unsafe fn configure(&mut self, configuration: &Configuration) {
            let Configuration { bytes, rows, .. } = configuration;
            let shape = |tile: usize| [rows[tile].into(), bytes[tile].into()];
            self.shapes = Some(std::array::from_fn(shape));
        }

        unsafe fn load<const TILE: usize>(&mut self, from: *const u8, step: usize) {
            let [rows, bytes] = self.shape(TILE);
            self.tiles[TILE] = [[0; 64]; 16];
            for (at, row) in self.tiles[TILE][..rows].iter_mut().enumerate() {
                // SAFETY: memory for all rows of a tile that is loaded is there.
                let from = unsafe { std::slice::from_raw_parts(from.add(at * step), bytes) };
                row[..bytes].copy_from_slice(from);
            }
        }

        unsafe fn store<const TILE: usize>(&mut self, to: *mut u8, step: usize) {
            let [rows, bytes] = self.shape(TILE);
            for (at, row) in self.tiles[TILE][..rows].iter().enumerate() {
                // SAFETY: memory for all rows of a tile that is stored is there.
                let to = unsafe { std::slice::from_raw_parts_mut(to.add(at * step), bytes) };
                to.copy_from_slice(&row[..bytes]);
            }
        }

        unsafe fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
            let ([rows, bytes], [quads, _]) = (self.shape(A), self.shape(B));
            assert_eq!(bytes, quads * 4, "tiles fit");
            assert_eq!(self.shape(C), [rows, self.shape(B)[1]], "tiles fit");
            for row in 0..rows {
                for column in 0..16 {
                    let mut sum = i32::from_le_bytes(self.quad(C, row, column).try_into().unwrap());
                    for quad in 0..quads {
                        let weights = self.quad(B, quad, column).iter();
                        for (&x, &weight) in self.quad(A, row, quad).iter().zip(weights) {
                            sum += i32::from(x) * i32::from(weight.cast_signed());
                        }
                    }
                    self.tiles[C][row][column * 4..][..4].copy_from_slice(&sum.to_le_bytes());
                }
            }
        }

        unsafe fn release(&mut self) {
            self.shapes = None;
        }
    }

    #[test]
    fn tiles_give_the_same_sums() {
        let mut numbers = Numbers(6);
        for rows in 1..=70 {
            for depth in [4, 12, 64, 76, 128, 252] {
                let taps = 1 + numbers.next(3);
                let mut case = Case::random(&mut numbers, rows, taps, depth);
                if rows % 2 == 0 {
                    // Rows at one distance, which are not copied.
                    let step = numbers.next(9);
                    case.source = (0..rows * step + taps + depth)
                        .map(|_| numbers.next(256) as u8)
                        .collect();
                    let offset = |at: usize| (at % rows * step + at / rows) as u32;
                    case.offsets = (0..rows * taps).map(offset).collect();
                }
                let mut sums = vec![[3; COLUMNS]; rows];
                let operands = case.operands();
                let product = Product {
                    operands,
                    rows,
                    first_row: 0,
                    all_rows: rows,
                    taps: operands.taps(rows),
                    start: case.initial.as_ptr(),
                    start_step: 0,
                    sums: sums.as_mut_ptr().cast(),
                };
                let mut model = Model {
                    shapes: None,
                    tiles: [[[1; 64]; 16]; 8],
                };
                // SAFETY: the model needs no instructions, and `taps` has checked the operands.
                unsafe { multiply_in(&mut model, &product) };
                assert!(
                    sums == case.expected(),
                    "{rows} rows, {taps} taps, depth {depth}"
                );
            }
        }
    }
}
