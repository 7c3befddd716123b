//! Products of bfloat16 matrices, with sums in single precision.
//!
//! A product has 32 rows and 32 columns. Where the processor has tiles (AMX), it is four tiles of
//! sums, which stay in registers while pairs of numbers are multiplied, two tiles of rows and two of
//! columns at a time; where it has dot products of pairs alone (AVX-512 BF16), sums of some rows at a
//! time do. Both read the same layout of weights. Products of bfloat16 numbers are exact in single
//! precision; sums are rounded to the nearest even, and denormal numbers count as zero.

#[cfg(target_arch = "x86_64")]
mod dots;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tiles;

#[cfg(target_arch = "x86_64")]
use crate::amx;
use crate::bf16::Bf16;

/// Rows of a product.
pub const ROWS: usize = 32;
/// Columns of a product.
pub const COLUMNS: usize = 32;
/// Length of a run: the numbers of a row that are multiplied at a time.
pub const RUN: usize = 32;
/// Elements of a block of rows: for each row, its run.
pub const BLOCK_LEN: usize = ROWS * RUN;
/// Elements of the weights of a run, for all columns.
pub const WEIGHTS_LEN: usize = RUN * COLUMNS;

/// The sums of a product, row by row.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Sums(pub [f32; ROWS * COLUMNS]);

/// Instructions of the processor that multiply bfloat16 numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Tiles, which the system lets this process use.
    Tiles,
    /// Dot products of pairs.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "of x86-64"))]
    Dots,
}

/// The right to use instructions that multiply bfloat16 numbers: the processor has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bf16Unit(Kind);

/// Operands of products.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Runs of consecutive rows, one after the other.
    pub source: &'a [Bf16],
    /// Offsets of the blocks to multiply, in elements from the first element of a product.
    pub taps: &'a [usize],
    /// [Packed](pack) weights, [`WEIGHTS_LEN`] for each tap.
    pub weights: &'a [Bf16],
    /// Weights that are needed next, to prefetch meanwhile.
    pub ahead: &'a [Bf16],
}

/// Elements of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 32;

impl<'a> Operands<'a> {
    /// The weights to prefetch, divided into whole cache lines for each of `count` products.
    #[cfg(target_arch = "x86_64")]
    fn shares_ahead(&self, count: usize) -> std::slice::Chunks<'a, Bf16> {
        let share = self.ahead.len().div_ceil(count).next_multiple_of(LINE);
        self.ahead.chunks(share.max(LINE))
    }
}

impl Bf16Unit {
    /// Queries the processor and the system, once per process: the fastest instructions that there
    /// are, if any.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            static KNOWN: std::sync::OnceLock<Option<Kind>> = std::sync::OnceLock::new();
            let kind = || match amx::has_tiles(amx::Products::Bf16) {
                true => Some(Kind::Tiles),
                false => dots::has_dots().then_some(Kind::Dots),
            };
            KNOWN.get_or_init(kind).map(Self)
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Whether it multiplies in tiles (AMX).
    #[must_use]
    pub fn has_tiles(self) -> bool {
        self.0 == Kind::Tiles
    }

    /// Adds a product to each of `sums`: its 32 rows begin at the element of the source whose index
    /// `firsts` has at the same place. Only the first `rows` rows of the last product are needed.
    ///
    /// # Panics
    /// If `firsts` and `sums` differ in length, if there are too few or too many weights, or if a
    /// product would read past the end of the source.
    pub fn multiply(
        self,
        operands: &Operands<'_>,
        firsts: &[usize],
        rows: usize,
        sums: &mut [Sums],
    ) {
        let Operands {
            source,
            taps,
            weights,
            ..
        } = *operands;
        assert_eq!(firsts.len(), sums.len(), "sums for each product");
        assert_eq!(
            weights.len(),
            taps.len() * WEIGHTS_LEN,
            "weights for each tap"
        );
        let last = |places: &[usize]| places.iter().copied().max();
        let (Some(tap), Some(first)) = (last(taps), last(firsts)) else {
            return;
        };
        let end = tap
            .checked_add(first)
            .and_then(|at| at.checked_add(BLOCK_LEN));
        assert!(
            end.is_some_and(|end| end <= source.len()),
            "rows lie in the source"
        );
        #[cfg(target_arch = "x86_64")]
        // SAFETY: only `detect` makes an `Bf16Unit`, after checking the processor and the system; the
        // assertions above check the other conditions of the functions.
        unsafe {
            match self.0 {
                Kind::Tiles => tiles::multiply(operands, firsts, sums),
                Kind::Dots => dots::multiply(operands, firsts, rows.min(ROWS), sums),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = rows;
    }
}

/// Packs weights of a run for up to 32 columns: element `row` of column `column` is
/// `weight(column, row)`.
///
/// The layout: two columns of tiles, one after the other; in each, pairs of rows, and in these the
/// pair of each column.
///
/// # Panics
/// If the length of `packed` is not [`WEIGHTS_LEN`].
pub fn pack(packed: &mut [Bf16], mut weight: impl FnMut(usize, usize) -> Bf16) {
    assert_eq!(packed.len(), WEIGHTS_LEN, "the weights of a run");
    for (tile, packed) in packed.chunks_exact_mut(WEIGHTS_LEN / 2).enumerate() {
        for (pair, packed) in packed.chunks_exact_mut(32).enumerate() {
            for (at, packed) in packed.iter_mut().enumerate() {
                *packed = weight(tile * 16 + at / 2, pair * 2 + at % 2);
            }
        }
    }
}
