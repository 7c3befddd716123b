//! Depthwise products of unsigned and signed bytes: each column has a sum of its own numbers.
//!
//! As in [`int8_unit`](crate::int8_unit), the rows of each tap lie anywhere in the source. Sums are
//! exact, and the same bits come from all instructions.

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
use crate::int8_unit::has_avx512_vnni;
use crate::int8_unit::{BLOCK, Block, COLUMNS, RowSums, Sums, blocks, largest};

/// A product of 32 columns.
#[derive(Clone, Copy, Debug)]
pub struct Depthwise<'a> {
    /// Bytes of all rows.
    pub source: &'a [u8],
    /// For each tap, the offset of each row in the source. There are 32 bytes from each on, also if
    /// fewer columns have weights.
    pub offsets: &'a [u32],
    /// Number of rows.
    pub rows: usize,
    /// For each tap, the weights of 32 columns; zeros for those that are not there.
    pub weights: &'a [i8],
}

/// Instructions that multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Kind {
    /// All that this processor has, the fastest first.
    fn all() -> impl Iterator<Item = Self> {
        let kinds = [
            #[cfg(target_arch = "x86_64")]
            has_avx512_vnni().then_some(Self::Avx512Vnni),
            #[cfg(target_arch = "x86_64")]
            is_x86_feature_detected!("avx2").then_some(Self::Avx2),
            Some(Self::Portable),
        ];
        kinds.into_iter().flatten()
    }
}

impl Depthwise<'_> {
    /// Sets the sums of each row to `initial` plus the products of its bytes with the weights of all
    /// taps.
    ///
    /// # Panics
    /// If there are not as many sums as rows, no taps or not an offset for each row and tap, too few
    /// or too many weights, or if a row would be read past the end of the source.
    pub fn multiply(&self, initial: &Sums, sums: &mut [Sums]) {
        assert_eq!(sums.len(), self.rows, "sums for each row");
        let (kind, taps) = (Kind::all().next().unwrap_or(Kind::Portable), self.taps());
        self.run(kind, taps, 0, initial, sums);
    }

    /// Number of taps, once all conditions are checked on which unsafe code depends.
    fn taps(&self) -> usize {
        if self.rows == 0 {
            return 0;
        }
        let taps = self.offsets.len() / self.rows;
        assert!(
            taps > 0 && taps * self.rows == self.offsets.len(),
            "an offset for each of {} rows and each tap, not {}",
            self.rows,
            self.offsets.len()
        );
        assert_eq!(self.weights.len(), taps * COLUMNS, "weights for each tap");
        let end = (largest(self.offsets) as usize).checked_add(COLUMNS);
        assert!(
            end.is_some_and(|end| end <= self.source.len()),
            "rows lie in the source"
        );
        taps
    }

    /// Sets the sums of the rows from `first` on.
    fn run(&self, kind: Kind, taps: usize, first: usize, initial: &Sums, sums: &mut [Sums]) {
        assert!(first + sums.len() <= self.rows, "sums of rows");
        match kind {
            // SAFETY: only `all` makes this kind, after checking the processor; `taps` has checked
            // the operands.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => unsafe { x86_64::avx512_vnni(self, taps, first, initial, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86_64::avx2(self, taps, first, initial, sums) },
            Kind::Portable => self.run_portable(taps, first, initial, sums),
        }
    }

    fn run_portable(&self, taps: usize, first: usize, initial: &Sums, sums: &mut [Sums]) {
        for (row, sums) in (first..).zip(sums) {
            *sums = *initial;
            for (tap, weights) in self.weights.chunks(COLUMNS).enumerate().take(taps) {
                let bytes = &self.source[self.offsets[tap * self.rows + row] as usize..];
                for (sum, (&x, &weight)) in sums.iter_mut().zip(bytes.iter().zip(weights)) {
                    *sum = sum.wrapping_add(i32::from(x) * i32::from(weight));
                }
            }
        }
    }
}

impl RowSums for Depthwise<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn by_blocks(&self, initial: &Sums, mut pass: impl FnMut(usize, &[Sums])) {
        let (kind, taps) = (Kind::all().next().unwrap_or(Kind::Portable), self.taps());
        let mut sums = Block([[0; COLUMNS]; BLOCK]);
        for own in blocks(self.rows, BLOCK) {
            let sums = &mut sums.0[..own.len()];
            self.run(kind, taps, own.start, initial, sums);
            pass(own.start, sums);
        }
    }
}
