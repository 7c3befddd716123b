//! Products in tiles (AMX): of 32 rows and 32 columns, 64 bytes of a row at a time.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::{COLUMNS, Product, QUAD, dots};
use crate::amx::{Configuration, FULL};

/// Rows of a tile.
const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile.
const TILE_BYTES: usize = 64;
/// Rows of a product.
const ROWS: usize = 2 * TILE_ROWS;
/// Bytes from a quad of weights, and from the sums of a row, to the next.
const STEP: usize = COLUMNS * QUAD;
/// Fewer rows than this are faster as dot products.
const FEW: usize = 5;

/// Tiles that are configured, loaded, multiplied and stored.
///
/// # Safety
/// All functions are `unsafe`: the processor must have tiles if they are its own, they must be
/// configured first, tiles that are multiplied must have fitting shapes, and memory must be there for
/// all rows of a tile that is loaded or stored.
pub(super) trait Tiles {
    unsafe fn configure(&mut self, configuration: &Configuration);
    unsafe fn load<const TILE: usize>(&mut self, from: *const u8, step: usize);
    unsafe fn store<const TILE: usize>(&mut self, to: *mut u8, step: usize);
    /// Adds the products of bytes of `A` and `B` to the sums in `C`.
    unsafe fn multiply<const C: usize, const A: usize, const B: usize>(&mut self);
    unsafe fn release(&mut self);
}

/// The tiles of the processor. No other code uses them in between.
struct Amx;

impl Tiles for Amx {
    #[inline(always)]
    unsafe fn configure(&mut self, configuration: &Configuration) {
        // SAFETY: the processor has tiles, and allows the configuration, which is aligned.
        unsafe { asm!("ldtilecfg [{}]", in(reg) configuration, options(nostack, readonly)) };
    }
    #[inline(always)]
    unsafe fn load<const TILE: usize>(&mut self, from: *const u8, step: usize) {
        // SAFETY: tiles are configured, and memory for all rows of this one can be read.
        unsafe {
            asm!(
                "tileloadd tmm{tile}, [{from} + {step}*1]",
                tile = const TILE,
                from = in(reg) from,
                step = in(reg) step,
                options(nostack, readonly),
            );
        }
    }
    #[inline(always)]
    unsafe fn store<const TILE: usize>(&mut self, to: *mut u8, step: usize) {
        // SAFETY: tiles are configured, and memory for all rows of this one can be written.
        unsafe {
            asm!(
                "tilestored [{to} + {step}*1], tmm{tile}",
                tile = const TILE,
                to = in(reg) to,
                step = in(reg) step,
                options(nostack),
            );
        }
    }
    #[inline(always)]
    unsafe fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: tiles are configured, and the shapes of these fit.
        unsafe {
            asm!(
                "tdpbusd tmm{c}, tmm{a}, tmm{b}",
                a = const A,
                b = const B,
                c = const C,
                options(nostack, nomem),
            );
        }
    }
    #[inline(always)]
    unsafe fn release(&mut self) {
        // SAFETY: the processor has tiles.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Sets the sums of all rows; few rows with AVX-512 VNNI.
///
/// # Safety
/// The processor has tiles that multiply bytes, the process may use them, and the processor has
/// AVX-512 VNNI. The product is one that `Operands::taps` has checked, `rows` sums can be written,
/// and the first sums of each row read.
pub(super) unsafe fn multiply(product: &Product<'_>) {
    // SAFETY: by the contract.
    unsafe {
        match product.rows < FEW {
            true => dots::avx512_vnni(product),
            false => multiply_in(&mut Amx, product),
        }
    }
}

/// Rows of 64 bytes, copied for a tile.
#[repr(C, align(64))]
struct Copied([[u8; TILE_BYTES]; TILE_ROWS]);

/// First sums of a product, and then its sums.
#[repr(C, align(64))]
struct Block([[i32; COLUMNS]; ROWS]);

/// The same in any tiles: sums are tiles 0 to 3, two of rows by two of columns.
///
/// # Safety
/// The tiles work; else as [`multiply`].
pub(super) unsafe fn multiply_in(tiles: &mut impl Tiles, product: &Product<'_>) {
    let depth = product.operands.depth;
    let rest = depth % TILE_BYTES;
    let mut configuration = FULL.clone();
    if rest > 0 {
        // Tile 6 is the end of rows, tile 7 that of their weights.
        configuration.bytes[6] = rest as u16;
        configuration.rows[7] = (rest / QUAD) as u8;
    }
    let count = product.rows.div_ceil(ROWS);
    // SAFETY: rows of a tile are copied unless all sixteen are in the source at one distance, and so
    // are sums unless there are 32 rows of them; weights have 64 bytes for each quad of a step,
    // twice; the tiles of sums and of whole steps are full, and those of rests fit each other.
    unsafe {
        tiles.configure(&configuration);
        for index in 0..count {
            let first = index * ROWS;
            let rows = (product.rows - first).min(ROWS);
            for line in product.ahead(&(first..first + rows)).chunks(TILE_BYTES) {
                _mm_prefetch(line.as_ptr().cast(), _MM_HINT_T1);
            }
            let mut block = Block([[0; COLUMNS]; ROWS]);
            for (row, sums) in block.0.iter_mut().enumerate() {
                let row = first + row.min(rows - 1);
                let start = product.start.add(row * product.start_step);
                *sums = start.cast::<[i32; COLUMNS]>().read();
            }
            let sums: *mut u8 = block.0.as_mut_ptr().cast();
            let lower = sums.add(TILE_ROWS * STEP);
            let both = rows > TILE_ROWS;
            tiles.load::<0>(sums, STEP);
            tiles.load::<1>(sums.add(TILE_BYTES), STEP);
            if both {
                tiles.load::<2>(lower, STEP);
                tiles.load::<3>(lower.add(TILE_BYTES), STEP);
            }
            let mut weights: *const u8 = product.operands.weights.as_ptr().cast();
            for tap in 0..product.taps {
                let offsets = tap * product.all_rows + product.first_row + first;
                let offsets = &product.operands.offsets[offsets..][..rows];
                let (upper, lower) = offsets.split_at(rows.min(TILE_ROWS));
                let mut halves = [Half::new(product, upper), Half::new(product, lower)];
                for at in (0..depth - rest).step_by(TILE_BYTES) {
                    match rest > 0 {
                        true => step::<4, 4, 5, 5>(tiles, &mut halves, at, TILE_BYTES, weights),
                        false => step::<4, 6, 5, 7>(tiles, &mut halves, at, TILE_BYTES, weights),
                    }
                    weights = weights.add(TILE_BYTES * COLUMNS);
                }
                if rest > 0 {
                    step::<6, 6, 7, 7>(tiles, &mut halves, depth - rest, rest, weights);
                    weights = weights.add(rest * COLUMNS);
                }
            }
            tiles.store::<0>(sums, STEP);
            tiles.store::<1>(sums.add(TILE_BYTES), STEP);
            if both {
                tiles.store::<2>(lower, STEP);
                tiles.store::<3>(lower.add(TILE_BYTES), STEP);
            }
            let to = product.sums.add(first * COLUMNS).cast::<[i32; COLUMNS]>();
            to.copy_from_nonoverlapping(block.0.as_ptr(), rows);
        }
        tiles.release();
    }
}

/// Up to sixteen rows of a tap.
struct Half<'a> {
    source: &'a [u8],
    offsets: &'a [u32],
    /// Distance from each row to the next, if it is one and all sixteen are there.
    step: Option<usize>,
    copied: Copied,
}

impl<'a> Half<'a> {
    fn new(product: &Product<'a>, offsets: &'a [u32]) -> Self {
        let step = match *offsets {
            [first, second, ..] if offsets.len() == TILE_ROWS => second.checked_sub(first),
            _ => None,
        };
        let step = step.filter(|&step| {
            let mut pairs = offsets.iter().zip(&offsets[1..]);
            pairs.all(|(&a, &b)| b.checked_sub(a) == Some(step))
        });
        Self {
            source: product.operands.source,
            offsets,
            step: step.map(|step| step as usize),
            copied: Copied([[0; TILE_BYTES]; TILE_ROWS]),
        }
    }

    /// Loads `len` bytes of each row from byte `at` on; rows that are not there have any.
    ///
    /// # Safety
    /// As for [`Tiles`]; rows of the tile have `len` bytes.
    #[inline(always)]
    unsafe fn load<const TILE: usize>(&mut self, tiles: &mut impl Tiles, at: usize, len: usize) {
        if let Some(step) = self.step {
            let first = self.offsets[0] as usize + at;
            debug_assert!(first + (TILE_ROWS - 1) * step + len <= self.source.len());
            // SAFETY: the sixteen rows are in the source, each `step` after the one before.
            return unsafe { tiles.load::<TILE>(self.source.as_ptr().add(first), step) };
        }
        for (to, &offset) in self.copied.0.iter_mut().zip(self.offsets) {
            to[..len].copy_from_slice(&self.source[offset as usize + at..][..len]);
        }
        // SAFETY: sixteen rows of 64 bytes are there.
        unsafe { tiles.load::<TILE>(self.copied.0.as_ptr().cast(), TILE_BYTES) };
    }
}

/// Adds the products of `len` bytes of each row from byte `at` on, with the tiles `A0` and `A1` for
/// rows, `B0` and `B1` for weights.
///
/// # Safety
/// As for [`Tiles`]; there are weights for `len` bytes.
#[inline(always)]
unsafe fn step<const A0: usize, const A1: usize, const B0: usize, const B1: usize>(
    tiles: &mut impl Tiles,
    [upper, lower]: &mut [Half<'_>; 2],
    at: usize,
    len: usize,
    weights: *const u8,
) {
    // SAFETY: by the contract.
    unsafe {
        upper.load::<A0>(tiles, at, len);
        tiles.load::<B0>(weights, STEP);
        tiles.multiply::<0, A0, B0>();
        tiles.load::<B1>(weights.add(TILE_BYTES), STEP);
        tiles.multiply::<1, A0, B1>();
        if !lower.offsets.is_empty() {
            lower.load::<A1>(tiles, at, len);
            tiles.multiply::<3, A1, B1>();
            if B0 == B1 {
                tiles.load::<B0>(weights, STEP);
            }
            tiles.multiply::<2, A1, B0>();
        }
    }
}
