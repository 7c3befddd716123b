//! Products of single-precision rows with weights of 4 or 8 bits.
//!
//! Of few rows, as when a language model decodes a token, a product takes as long as its weights are
//! read from memory, which fewer bits make shorter. A weight is `(bits - zero_point) * scale`, with a
//! scale for each group of consecutive weights of a column. Weights lie in panels of 32 columns, so
//! that a vector holds the same places of sixteen columns, and no sum goes across a vector. A processor
//! that multiplies bytes in vectors of 512 bits multiplies weights with [levels] of the rows. Others
//! widen weights as they multiply; many rows [widen](Weights::widen) them once. Sums are in single
//! precision, in an order that depends on the processor.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
mod levels;
mod portable;
#[cfg(target_arch = "x86_64")]
mod quantise;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vectors;
#[cfg(target_arch = "x86_64")]
mod vnni;
mod widen;

use std::borrow::Cow;
use std::ops::Range;

use levels::Levels;

/// Columns of a panel.
pub const PANEL: usize = 32;
/// Places of a column that are multiplied at a time; columns are padded with zeros to whole chunks.
pub const CHUNK: usize = 8;
/// Rows that are multiplied with a panel at a time: whole blocks of eight.
const ROWS: usize = 16;
/// Bytes of consecutive weights of a column.
const WORD: usize = 4;

/// Size of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// From -8 to 7.
    Four,
    /// From -128 to 127.
    Eight,
}

impl Bits {
    /// Bytes of a packed panel whose columns have `depth` weights.
    #[must_use]
    pub fn panel_len(self, depth: usize) -> usize {
        depth.div_ceil(CHUNK) * self.chunk_len()
    }

    fn chunk_len(self) -> usize {
        CHUNK / self.in_word() * PANEL * WORD
    }

    /// Weights in a word.
    const fn in_word(self) -> usize {
        match self {
            Self::Four => 8,
            Self::Eight => 4,
        }
    }

    /// What is added to a weight so that its bits are those of an unsigned number.
    const fn excess(self) -> i32 {
        match self {
            Self::Four => 8,
            Self::Eight => 128,
        }
    }

    /// A weight of the word that holds it, which is the `at`-th one of a column in a chunk.
    #[inline(always)]
    fn weight(self, word: u32, at: usize) -> i32 {
        let size = 32 / self.in_word();
        let bits = word >> (size * (at % self.in_word())) & ((1 << size) - 1);
        bits.cast_signed() - self.excess()
    }
}

/// Scales of groups: for each panel and group, that of each column.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// In single precision.
    Single(&'a [f32]),
    /// In half precision, as bits.
    Half(&'a [u16]),
}

/// Packed weights of some panels.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Size of a weight.
    pub bits: Bits,
    /// [Packed](pack) panels, one after the other.
    pub packed: &'a [u8],
    /// Weights of a column.
    pub depth: usize,
    /// Weights of a group, a multiple of [`CHUNK`]; or at least the depth, for a scale per column. The
    /// last group may be shorter.
    pub group: usize,
    /// The scales: [`PANEL`] for each panel and group.
    pub scales: Scales<'a>,
    /// The weights that stand for zero, laid out as scales are; none if all are zero.
    pub zero_points: Option<&'a [i8]>,
}

/// Instructions that multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// AVX-512 with products of bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

impl Kind {
    /// All that this processor has, the fastest first.
    fn all() -> impl Iterator<Item = Self> {
        let kinds = [
            #[cfg(target_arch = "x86_64")]
            (vnni::has() && quantise::has()).then_some(Self::Vnni),
            #[cfg(target_arch = "x86_64")]
            lanes::has_avx512().then_some(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            lanes::has_avx2().then_some(Self::Avx2),
            #[cfg(target_arch = "aarch64")]
            Some(Self::Neon),
            Some(Self::Portable),
        ];
        kinds.into_iter().flatten()
    }

    fn detect() -> Self {
        Self::all().next().unwrap_or(Self::Portable)
    }
}

/// Rows of numbers, prepared for products with [weights](Weights::rows) of some groups.
#[derive(Debug)]
pub struct Rows<'a> {
    kind: Kind,
    /// Numbers of a row, whole chunks.
    depth: usize,
    /// Numbers of a group, whole chunks.
    group: usize,
    numbers: Cow<'a, [f32]>,
    /// The sums of each row's numbers in each group, if there are zero points and no levels.
    sums: Vec<f32>,
    /// Integers in the place of the numbers, where products are of bytes.
    levels: Option<Levels>,
}

/// A panel, and what it is multiplied with.
struct Product<'a> {
    bits: Bits,
    packed: &'a [u8],
    /// Chunks of a whole group.
    group: usize,
    scales: Scales<'a>,
    zero_points: Option<&'a [i8]>,
    /// Rows of whole chunks, one after the other.
    rows: &'a [f32],
    /// The sums of each row's numbers in each group, if there are zero points and no levels.
    sums: &'a [f32],
    /// Integers in the place of the rows, and the first of the rows among them.
    levels: Option<(&'a Levels, usize)>,
}

impl Rows<'_> {
    /// Whether products are of bytes: of many rows, they take less time than those of
    /// [widened](Weights::widen) weights.
    #[must_use]
    pub fn are_bytes(&self) -> bool {
        self.levels.is_some()
    }
}

impl<'a> Weights<'a> {
    /// Number of panels.
    #[must_use]
    pub fn panels(&self) -> usize {
        match self.bits.panel_len(self.depth) {
            0 => 0,
            len => self.packed.len() / len,
        }
    }

    /// Some of the panels.
    ///
    /// # Panics
    /// If they are not there.
    #[must_use]
    pub fn range(&self, panels: Range<usize>) -> Self {
        let part = |len: usize| panels.start * len..panels.end * len;
        let scales = self.groups() * PANEL;
        Self {
            packed: &self.packed[part(self.bits.panel_len(self.depth))],
            scales: match self.scales {
                Scales::Single(all) => Scales::Single(&all[part(scales)]),
                Scales::Half(all) => Scales::Half(&all[part(scales)]),
            },
            zero_points: self.zero_points.map(|all| &all[part(scales)]),
            ..*self
        }
    }

    /// Number of groups of a column.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.depth.div_ceil(self.group)
    }

    /// Prepares rows of `depth` numbers for products with these weights, or a range of them.
    ///
    /// # Panics
    /// If they are not whole rows, or a group is not a multiple of [`CHUNK`].
    #[must_use]
    pub fn rows<'r>(&self, numbers: &'r [f32]) -> Rows<'r> {
        self.rows_for(Kind::detect(), numbers)
    }

    fn rows_for<'r>(&self, kind: Kind, numbers: &'r [f32]) -> Rows<'r> {
        self.check_groups();
        let count = numbers.len() / self.depth;
        assert_eq!(count * self.depth, numbers.len(), "rows of {}", self.depth);
        let depth = self.depth.next_multiple_of(CHUNK);
        let numbers = match depth == self.depth {
            true => Cow::Borrowed(numbers),
            false => {
                let mut padded = vec![0.0; count * depth];
                let own = numbers.chunks(self.depth).zip(padded.chunks_mut(depth));
                own.for_each(|(from, to)| to[..self.depth].copy_from_slice(from));
                Cow::Owned(padded)
            }
        };
        let group = self.group_len();
        let levels = match kind {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `all` makes this kind, after checking the processor.
            Kind::Vnni => unsafe { Levels::new(self.bits, &numbers, [depth, group]) },
            _ => None,
        };
        let sums = match self.zero_points {
            Some(_) if levels.is_none() => {
                let groups = numbers.chunks(depth).flat_map(|row| row.chunks(group));
                groups.map(|group| group.iter().sum()).collect()
            }
            _ => Vec::new(),
        };
        Rows {
            kind,
            depth,
            group,
            numbers,
            sums,
            levels,
        }
    }

    /// Numbers of a group, whole chunks.
    fn group_len(&self) -> usize {
        let depth = self.depth.next_multiple_of(CHUNK);
        self.group.min(depth).next_multiple_of(CHUNK)
    }

    /// Multiplies [rows](Self::rows). Calls `write(row, column, sums)` with some sums of a row at a
    /// time, of the products of its numbers and those of columns from `column` on; of the first
    /// `columns` columns.
    ///
    /// # Panics
    /// If the rows were prepared for other groups, if there are not as many panels as `columns` need,
    /// or if there are too few or too many weights, scales or zero points.
    pub fn multiply(
        &self,
        rows: &Rows<'_>,
        columns: usize,
        mut write: impl FnMut(usize, usize, &[f32]),
    ) {
        self.check(columns);
        let (depth, groups) = (rows.depth, self.groups());
        let count = rows.numbers.len() / depth;
        assert_eq!(
            depth,
            self.depth.next_multiple_of(CHUNK),
            "numbers of a row"
        );
        assert_eq!(rows.group, self.group_len(), "numbers of a group");
        if let Some(levels) = &rows.levels {
            assert_eq!(levels.bits, self.bits, "rows for weights of these bits");
        } else if self.zero_points.is_some() {
            assert_eq!(rows.sums.len(), count * groups, "a sum for each group");
        }
        for (panel, first) in (0..columns).step_by(PANEL).enumerate() {
            let own = self.range(panel..panel + 1);
            let width = PANEL.min(columns - first);
            for (block, numbers) in rows.numbers.chunks(ROWS * depth).enumerate() {
                let at = block * ROWS;
                let product = Product {
                    bits: self.bits,
                    packed: own.packed,
                    group: self.group_len() / CHUNK,
                    scales: own.scales,
                    zero_points: own.zero_points,
                    rows: numbers,
                    sums: rows.sums.get(at * groups..).unwrap_or(&[]),
                    levels: rows.levels.as_ref().map(|levels| (levels, at)),
                };
                let mut results = [[0.0; PANEL]; ROWS];
                let results = &mut results[..numbers.len() / depth];
                product.run(rows.kind, results);
                for (row, result) in results.iter().enumerate() {
                    write(at + row, first, &result[..width]);
                }
            }
        }
    }

    /// Writes some weights in single precision: for each of `rows`, those of `columns`. Rows past the
    /// depth are zeros, as are columns past the last in the last panel.
    ///
    /// # Panics
    /// If there are not as many panels as `columns` need, if there are too few or too many weights,
    /// scales or zero points, or if `to` has not a number for each row and column.
    pub fn widen(&self, columns: Range<usize>, rows: Range<usize>, to: &mut [f32]) {
        let width = columns.len();
        assert_eq!(
            Some(to.len()),
            rows.len().checked_mul(width),
            "a number for each"
        );
        for panel in columns.start / PANEL..columns.end.div_ceil(PANEL) {
            let first = panel * PANEL;
            let start = columns.start.max(first);
            let own = start - first..columns.end.min(first + PANEL) - first;
            let weights = self.range(panel..panel + 1);
            weights.check(PANEL);
            widen::panel(
                &weights,
                own,
                rows.clone(),
                &mut to[start - columns.start..],
                width,
            );
        }
    }

    fn check_groups(&self) {
        let Self { depth, group, .. } = *self;
        assert!(
            depth > 0 && group > 0 && (group.is_multiple_of(CHUNK) || group >= depth),
            "groups of {group} of {depth} weights"
        );
    }

    fn check(&self, columns: usize) {
        self.check_groups();
        let depth = self.depth;
        let panels = columns.div_ceil(PANEL);
        let len = panels * self.bits.panel_len(depth);
        assert_eq!(self.packed.len(), len, "weights of {columns} columns");
        let expected = panels * self.groups() * PANEL;
        let scales = match self.scales {
            Scales::Single(all) => all.len(),
            Scales::Half(all) => all.len(),
        };
        assert_eq!(scales, expected, "a scale for each group and column");
        if let Some(all) = self.zero_points {
            assert_eq!(all.len(), expected, "a zero point for each scale");
        }
    }
}

impl Scales<'_> {
    #[inline(always)]
    fn get(&self, at: usize) -> f32 {
        match self {
            Self::Single(all) => all[at],
            Self::Half(all) => half::f16::from_bits(all[at]).to_f32(),
        }
    }
}

impl Product<'_> {
    /// Sets the sums of each row, at most [`ROWS`].
    fn run(&self, kind: Kind, results: &mut [[f32; PANEL]]) {
        match (kind, self.levels) {
            // SAFETY: only `all` makes this kind, after checking the processor; `Weights` has checked
            // all lengths.
            #[cfg(target_arch = "x86_64")]
            (Kind::Vnni, Some((levels, first))) => unsafe {
                vnni::multiply(self, levels, first, results);
            },
            // SAFETY: as above; a processor with products of bytes has the other instructions.
            #[cfg(target_arch = "x86_64")]
            (Kind::Vnni | Kind::Avx512, _) => unsafe { vectors::avx512(self, results) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, _) => unsafe { vectors::avx2(self, results) },
            // SAFETY: `Weights` has checked all lengths, and all processors of this architecture have
            // NEON.
            #[cfg(target_arch = "aarch64")]
            (Kind::Neon, _) => unsafe { vectors::neon(self, results) },
            (Kind::Portable, _) => portable::multiply(self, results),
        }
    }
}

/// Packs a panel of up to 32 columns: element `row` of column `column` is `weight(column, row)`.
///
/// The layout: words of 32 bits, those of all columns one after the other. A word has four consecutive
/// weights of a column, with four bits eight, the first one in its lowest bits; each with 128 or 8 added.
///
/// # Panics
/// If `packed` is not as long as a panel, or a weight does not fit.
pub fn pack(
    bits: Bits,
    packed: &mut [u8],
    depth: usize,
    mut weight: impl FnMut(usize, usize) -> i8,
) {
    assert_eq!(packed.len(), bits.panel_len(depth), "bytes of a panel");
    let (in_word, excess) = (bits.in_word(), bits.excess());
    for (at, word) in packed.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
        let (column, first) = (at % PANEL, at / PANEL * in_word);
        let mut all = 0;
        for row in (first..first + in_word).rev() {
            let own = if row < depth { weight(column, row) } else { 0 };
            let own = i32::from(own) + excess;
            assert!(
                (0..2 * excess).contains(&own),
                "weight {} of {} bits",
                own - excess,
                32 / in_word
            );
            all = all << (32 / in_word) | own.cast_unsigned();
        }
        *word = all.to_le_bytes();
    }
}
