//! Products of unsigned and signed bytes, with sums of 32 bits.
//!
//! A product has any number of rows and a panel of 32 columns. The rows of each tap lie anywhere in
//! the source, so that a convolution needs no copy of its image: a tap is an element of its kernel,
//! and has an offset for each row. Sums are exact, and the same bits come from all instructions:
//! tiles (AMX), products of matrices of two by eight bytes (Arm I8MM), dot products of four bytes
//! (AVX-512 VNNI, AVX-VNNI, Arm DotProd), multiplications of 16 bits (AVX2), and plain Rust.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod dots;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
#[cfg(target_arch = "aarch64")]
mod matrices;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tiles;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use multiversion::multiversion;

#[cfg(target_arch = "x86_64")]
pub(crate) use self::lanes::has_avx512_vnni;
#[cfg(target_arch = "x86_64")]
use crate::amx;

/// Columns of a panel.
pub const COLUMNS: usize = 32;
/// Bytes of a row that are multiplied at a time.
pub const QUAD: usize = 4;
/// Largest number of products in a sum of which no bytes can overflow: 255 · 128 · 65,793 is less
/// than 2^31. Sums of more wrap; callers divide them.
pub const MAX_PRODUCTS: usize = 65_793;
/// The sums of a row.
pub type Sums = [i32; COLUMNS];

/// Instructions of the processor that multiply bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Tiles,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Only if the sums of two products fit into 16 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2Pairs,
    #[cfg(target_arch = "aarch64")]
    Matrices,
    #[cfg(target_arch = "aarch64")]
    DotProduct,
    Portable,
}

/// Rows whose sums stay in the nearest cache, for which tiles are configured once.
pub(crate) const BLOCK: usize = 64;

/// Their sums.
#[repr(C, align(64))]
pub(crate) struct Block(pub(crate) [Sums; BLOCK]);

/// The right to use instructions that multiply bytes: the processor has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int8Unit(Kind);

/// Operands of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Bytes of all rows.
    pub source: &'a [u8],
    /// For each tap, the offset of each row in the source.
    pub offsets: &'a [u32],
    /// Bytes of a row of a tap, a multiple of [`QUAD`].
    pub depth: usize,
    /// [Packed](pack) weights of a panel, `depth * COLUMNS` for each tap.
    pub weights: &'a [i8],
    /// Weights that are needed next, to prefetch meanwhile; fastest if they follow `weights`.
    pub ahead: &'a [i8],
}

/// A product whose operands have been checked.
#[derive(Clone, Copy, Debug)]
struct Product<'a> {
    operands: Operands<'a>,
    /// Rows to multiply, of [`all_rows`](Self::all_rows).
    rows: usize,
    /// The first of them.
    first_row: usize,
    /// Rows that have offsets.
    all_rows: usize,
    taps: usize,
    /// The first sums of the first row.
    start: *const i32,
    /// Elements from the first sums of a row to those of the next: [`COLUMNS`], or none.
    start_step: usize,
    sums: *mut i32,
}

impl Product<'_> {
    /// The weights to prefetch while some of the rows to multiply are: their part of all rows.
    #[cfg(target_arch = "x86_64")]
    fn ahead(&self, rows: &Range<usize>) -> &[i8] {
        let ahead = self.operands.ahead;
        let place = |row: usize| (self.first_row + row) * ahead.len() / self.all_rows;
        &ahead[place(rows.start)..place(rows.end)]
    }
}

impl Int8Unit {
    /// Queries the processor and the system, once per process: the fastest instructions that there
    /// are.
    #[must_use]
    pub fn detect() -> Self {
        static KNOWN: std::sync::OnceLock<Int8Unit> = std::sync::OnceLock::new();
        *KNOWN.get_or_init(|| Self::all().next().unwrap_or(Self::portable()))
    }

    /// The fastest instructions for rows of bytes up to `largest` and these packed weights. With other
    /// rows or weights, sums may be wrong.
    #[must_use]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "of x86-64")
    )]
    pub fn detect_for(largest: u8, weights: &[i8]) -> Self {
        match Self::detect().0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 if pairs_fit(largest, weights) => Self(Kind::Avx2Pairs),
            kind => Self(kind),
        }
    }

    /// All that this processor has, the fastest first.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let has_tiles = has_avx512_vnni() && amx::has_tiles(amx::Products::Int8);
        let kinds = [
            #[cfg(target_arch = "x86_64")]
            has_tiles.then_some(Kind::Tiles),
            #[cfg(target_arch = "x86_64")]
            has_avx512_vnni().then_some(Kind::Avx512Vnni),
            #[cfg(target_arch = "x86_64")]
            lanes::has_avx_vnni().then_some(Kind::AvxVnni),
            #[cfg(target_arch = "x86_64")]
            is_x86_feature_detected!("avx2").then_some(Kind::Avx2),
            #[cfg(target_arch = "aarch64")]
            matrices::has_matrix_products().then_some(Kind::Matrices),
            #[cfg(target_arch = "aarch64")]
            lanes::has_dot_product().then_some(Kind::DotProduct),
            Some(Kind::Portable),
        ];
        kinds.into_iter().flatten().map(Self)
    }

    /// Plain Rust, which every processor runs.
    #[must_use]
    pub const fn portable() -> Self {
        Self(Kind::Portable)
    }

    /// Name of the instructions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Tiles => "amx-int8",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => "avx512-vnni",
            #[cfg(target_arch = "x86_64")]
            Kind::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2Pairs => "avx2, sums of 16 bits",
            #[cfg(target_arch = "aarch64")]
            Kind::Matrices => "i8mm",
            #[cfg(target_arch = "aarch64")]
            Kind::DotProduct => "dotprod",
            Kind::Portable => "portable",
        }
    }

    /// Sets the sums of each row to `initial` plus its products with the weights: those of all taps
    /// and of all bytes of the row. More than [`MAX_PRODUCTS`] may wrap.
    ///
    /// # Panics
    /// If there are no taps or not an offset for each row and tap, if the depth is not a multiple of
    /// [`QUAD`], if there are too few or too many weights, or if a row would be read past the end
    /// of the source.
    pub fn multiply(self, operands: &Operands<'_>, initial: &Sums, sums: &mut [Sums]) {
        self.run(Product {
            operands: *operands,
            rows: sums.len(),
            first_row: 0,
            all_rows: sums.len(),
            taps: operands.taps(sums.len()),
            start: initial.as_ptr(),
            start_step: 0,
            sums: sums.as_mut_ptr().cast(),
        });
    }

    /// Adds the products of each row to its sums, as [`multiply`](Self::multiply) sets them.
    ///
    /// # Panics
    /// As `multiply` does.
    pub fn multiply_add(self, operands: &Operands<'_>, sums: &mut [Sums]) {
        let own: *mut i32 = sums.as_mut_ptr().cast();
        self.run(Product {
            operands: *operands,
            rows: sums.len(),
            first_row: 0,
            all_rows: sums.len(),
            taps: operands.taps(sums.len()),
            start: own,
            start_step: COLUMNS,
            sums: own,
        });
    }

    /// Divides rows into blocks of at most [`BLOCK`].
    fn blocks(self, rows: usize) -> impl Iterator<Item = Range<usize>> {
        // A block in tiles is as expensive if it lacks some of the rows of a tile.
        let are_whole = match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Tiles => true,
            _ => false,
        };
        let count = rows.div_ceil(BLOCK);
        (0..count).map(move |index| match are_whole {
            true => index * BLOCK..rows.min((index + 1) * BLOCK),
            false => block(rows, count, index),
        })
    }

    fn run(self, product: Product<'_>) {
        if product.rows == 0 {
            return;
        }
        // SAFETY: only `all` makes an `Int8Unit`, after checking the processor and the system;
        // `Operands::taps` has checked the operands. There are as many sums as rows, and as many
        // first sums as `start_step` needs.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Kind::Tiles => tiles::multiply(&product),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512Vnni => dots::avx512_vnni(&product),
                #[cfg(target_arch = "x86_64")]
                Kind::AvxVnni => dots::avx_vnni(&product),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => dots::avx2(&product),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2Pairs => dots::avx2_pairs(&product),
                #[cfg(target_arch = "aarch64")]
                Kind::Matrices => matrices::multiply(&product),
                #[cfg(target_arch = "aarch64")]
                Kind::DotProduct => dots::dot_product(&product),
                Kind::Portable => portable::multiply(&product),
            }
        }
    }
}

/// Sums of products that are computed for a few rows at a time.
pub trait RowSums {
    /// Number of rows.
    fn rows(&self) -> usize;

    /// Sets the sums of some rows at a time to `initial` plus their products, and passes the first of
    /// the rows and their sums on; rows are in order.
    fn by_blocks(&self, initial: &Sums, pass: impl FnMut(usize, &[Sums]));
}

/// A product of some rows and a panel.
#[derive(Clone, Copy, Debug)]
pub struct Dense<'a> {
    /// The instructions to use.
    pub unit: Int8Unit,
    /// The operands.
    pub operands: Operands<'a>,
    /// Number of rows.
    pub rows: usize,
}

impl RowSums for Dense<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    /// # Panics
    /// As [`Int8Unit::multiply`] does.
    fn by_blocks(&self, initial: &Sums, mut pass: impl FnMut(usize, &[Sums])) {
        let taps = self.operands.taps(self.rows);
        let mut block = MaybeUninit::<Block>::uninit();
        let sums: *mut Sums = block.as_mut_ptr().cast();
        for own in self.unit.blocks(self.rows) {
            assert!(own.len() <= BLOCK, "rows of a block");
            self.unit.run(Product {
                operands: self.operands,
                rows: own.len(),
                first_row: own.start,
                all_rows: self.rows,
                taps,
                start: initial.as_ptr(),
                start_step: 0,
                sums: sums.cast(),
            });
            // SAFETY: the sums of these rows have just been set, and nothing else points to them.
            pass(own.start, unsafe { slice::from_raw_parts(sums, own.len()) });
        }
    }
}

impl Operands<'_> {
    /// Number of taps, once all conditions are checked on which unsafe code depends.
    fn taps(&self, rows: usize) -> usize {
        let Self {
            source,
            offsets,
            depth,
            weights,
            ..
        } = *self;
        if rows == 0 {
            return 0;
        }
        let taps = offsets.len() / rows;
        assert!(
            taps > 0 && taps * rows == offsets.len(),
            "an offset for each of {rows} rows and each tap, not {}",
            offsets.len()
        );
        assert!(depth.is_multiple_of(QUAD), "depth {depth} in quads");
        let expected = depth.checked_mul(COLUMNS * taps);
        assert_eq!(Some(weights.len()), expected, "weights for each tap");
        let end = (largest(offsets) as usize).checked_add(depth);
        assert!(
            end.is_some_and(|end| end <= source.len()),
            "rows lie in the source"
        );
        taps
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn largest(offsets: &[u32]) -> u32 {
    offsets.iter().copied().max().unwrap_or(0)
}

/// Whether all sums of two products fit into 16 bits, of bytes up to `largest` and packed weights.
#[cfg(target_arch = "x86_64")]
#[multiversion(targets("x86_64+avx2"))]
fn pairs_fit(largest: u8, weights: &[i8]) -> bool {
    let largest = i16::from(largest).max(1);
    let (smallest_sum, largest_sum) = (i16::MIN / largest, i16::MAX / largest);
    let (pairs, _) = weights.as_chunks::<2>();
    pairs.iter().fold(true, |fit, &[a, b]| {
        let (a, b) = (i16::from(a), i16::from(b));
        fit & (a.min(0) + b.min(0) >= smallest_sum) & (a.max(0) + b.max(0) <= largest_sum)
    })
}

/// Packs the weights of a tap for up to 32 columns: element `row` of column `column` is
/// `weight(column, row)`.
///
/// The layout: for each quad of rows, two halves of sixteen columns, and in these the quad of each
/// column.
///
/// # Panics
/// If `packed` has not 32 weights for each of a number of rows that is a multiple of [`QUAD`].
pub fn pack(packed: &mut [i8], mut weight: impl FnMut(usize, usize) -> i8) {
    let (quads, rest) = packed.as_chunks_mut::<{ QUAD * COLUMNS }>();
    assert!(rest.is_empty(), "weights of quads, not {} more", rest.len());
    for (quad, packed) in quads.iter_mut().enumerate() {
        for (at, packed) in packed.iter_mut().enumerate() {
            *packed = weight(at / QUAD, quad * QUAD + at % QUAD);
        }
    }
}

/// The sum of the packed weights of each column, of all taps: what a zero point of the rows adds to
/// a sum, divided by that zero point.
///
/// # Panics
/// If `packed` has not 32 weights for each of a number of rows that is a multiple of [`QUAD`].
#[must_use]
pub fn column_sums(packed: &[i8]) -> Sums {
    let (quads, rest) = packed.as_chunks::<{ QUAD * COLUMNS }>();
    assert!(rest.is_empty(), "weights of quads, not {} more", rest.len());
    let mut sums = [0_i32; COLUMNS];
    for quad in quads {
        for (sum, weights) in sums.iter_mut().zip(quad.as_chunks::<QUAD>().0) {
            *sum += weights.iter().map(|&weight| i32::from(weight)).sum::<i32>();
        }
    }
    sums
}

/// Splits `rows` into blocks of nearly equal size, none of more than `most` rows.
pub(crate) fn blocks(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(most);
    (0..count).map(move |index| block(rows, count, index))
}

/// One of `count` blocks of nearly equal size: the first ones have a row more if they must.
fn block(rows: usize, count: usize, index: usize) -> Range<usize> {
    let (len, longer) = (rows / count, rows % count);
    let place = |index: usize| index * len + index.min(longer);
    place(index)..place(index + 1)
}
