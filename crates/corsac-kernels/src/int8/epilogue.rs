//! From sums of products to numbers or bytes.

use super::{Quantisation, ToBytes, clamp, number};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::int8_unit::{COLUMNS, RowSums, Sums};

/// The numbers that sums stand for: `sum * scale + bias`, plus a residual, clamped.
///
/// Every step is rounded to single precision.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// For each column, the product of the scales of rows and weights.
    pub scales: &'a [f32; COLUMNS],
    /// For each column, what is added.
    pub biases: &'a [f32; COLUMNS],
    /// Scales of rows of their own: `sum` is then `sum - zero_point * column_sum`, and `scale` is
    /// `scale * row_scale`.
    pub rows: Option<RowScales<'a>>,
    /// Numbers that are added, one to each.
    pub residual: Option<Residual<'a>>,
    /// The smallest and the largest number: zero and infinity for a rectifier. NaN stays NaN.
    pub bounds: [f32; 2],
}

/// Scales and zero points of rows, chosen as they came.
#[derive(Clone, Copy, Debug)]
pub struct RowScales<'a> {
    /// The scale of each row.
    pub scales: &'a [f32],
    /// The zero point of each row.
    pub zero_points: &'a [i32],
    /// The [sums of the weights](crate::int8_unit::column_sums) of each column.
    pub column_sums: &'a Sums,
}

/// Bytes that stand for numbers to add.
#[derive(Clone, Copy, Debug)]
pub struct Residual<'a> {
    /// The bytes, in rows as long as those of results.
    pub bytes: &'a [u8],
    /// Bytes from a row to the next.
    pub stride: usize,
    /// The number between neighbouring bytes.
    pub scale: f32,
    /// The byte that stands for zero.
    pub zero_point: i32,
}

/// Instructions that compute epilogues: the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vectors {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Plain Rust.
    Portable,
}

impl Vectors {
    /// All that this processor has, the fastest first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let kinds = [
            #[cfg(target_arch = "x86_64")]
            avx512::has().then_some(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            avx2::has().then_some(Self::Avx2),
            Some(Self::Portable),
        ];
        kinds.into_iter().flatten()
    }

    pub(super) fn detect() -> Self {
        Self::all().next().unwrap_or(Self::Portable)
    }
}

impl Epilogue<'_> {
    /// Writes the first `columns` numbers of each row of a product, whose sums begin with `initial`; rows
    /// of `to` begin `stride` elements apart. A few rows are multiplied at a time, so that their sums stay
    /// in the nearest cache.
    ///
    /// # Panics
    /// As the product does; if there are more than 32 columns, if a row is not within `to` or within the
    /// residual, or if rows lack scales or zero points.
    pub fn multiply_to_floats(
        &self,
        product: &impl RowSums,
        initial: &Sums,
        columns: usize,
        to: &mut [f32],
        stride: usize,
    ) {
        let write = self.floats(Vectors::detect(), product.rows(), columns, to, stride);
        product.by_blocks(initial, write);
    }

    /// As [`multiply_to_floats`](Self::multiply_to_floats), the bytes that stand for numbers, as
    /// [`quantise`](super::quantise) converts them.
    ///
    /// # Panics
    /// As `multiply_to_floats` and [`quantise`](super::quantise) do.
    pub fn multiply_to_bytes(
        &self,
        product: &impl RowSums,
        initial: &Sums,
        columns: usize,
        quantisation: &Quantisation,
        to: &mut [u8],
        stride: usize,
    ) {
        let rows = product.rows();
        let write = self.bytes(Vectors::detect(), rows, columns, quantisation, to, stride);
        product.by_blocks(initial, write);
    }

    /// A function that writes numbers of some of `rows` rows, given the first and their sums.
    pub(super) fn floats(
        &self,
        vectors: Vectors,
        rows: usize,
        columns: usize,
        to: &mut [f32],
        stride: usize,
    ) -> impl FnMut(usize, &[Sums]) {
        self.check(rows, columns, to.len(), stride);
        move |first, sums| {
            assert!(first <= rows && sums.len() <= rows - first, "sums of rows");
            match vectors {
                // SAFETY: only `Vectors::all` makes this one, after checking the processor, and `check`
                // has passed for these rows.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx512 => unsafe {
                    avx512::floats(self, first, sums, columns, to, stride);
                },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2 => unsafe { avx2::floats(self, first, sums, columns, to, stride) },
                Vectors::Portable => floats(self, first, sums, columns, to, stride),
            }
        }
    }

    /// The same for bytes.
    pub(super) fn bytes(
        &self,
        vectors: Vectors,
        rows: usize,
        columns: usize,
        quantisation: &Quantisation,
        to: &mut [u8],
        stride: usize,
    ) -> impl FnMut(usize, &[Sums]) {
        self.check(rows, columns, to.len(), stride);
        let conversion = quantisation.to_bytes();
        let clamped = conversion.of_clamped(self.bounds);
        let (bounds, conversion) = match clamped {
            Some(conversion) => ([f32::NEG_INFINITY, f32::INFINITY], conversion),
            None => (self.bounds, conversion),
        };
        let own = Epilogue { bounds, ..*self };
        #[cfg(target_arch = "x86_64")]
        let is_plain = clamped.is_some() && self.is_finite();
        move |first, sums| {
            assert!(first <= rows && sums.len() <= rows - first, "sums of rows");
            match vectors {
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx512 => {
                    let write = match is_plain {
                        true => avx512::bytes::<false>,
                        false => avx512::bytes::<true>,
                    };
                    // SAFETY: as for `floats`.
                    unsafe { write(&own, first, sums, columns, conversion, to, stride) };
                }
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2 => {
                    let write = match is_plain {
                        true => avx2::bytes::<false>,
                        false => avx2::bytes::<true>,
                    };
                    // SAFETY: as for `floats`.
                    unsafe { write(&own, first, sums, columns, conversion, to, stride) };
                }
                Vectors::Portable => bytes(&own, first, sums, columns, conversion, to, stride),
            }
        }
    }

    /// Whether all numbers are finite, whatever the sums; false if that is not known.
    #[cfg(target_arch = "x86_64")]
    fn is_finite(&self) -> bool {
        /// Times a sum or a byte, and added, such numbers are finite: 2^80.
        const LARGEST: f32 = 1.208_925_8e24;
        let are_small = |all: &[f32]| all.iter().fold(true, |are, x| are & (x.abs() <= LARGEST));
        let added = self.residual.map_or(0.0, |residual| residual.scale);
        self.rows.is_none()
            && are_small(self.scales)
            && are_small(self.biases)
            && are_small(&[added])
    }

    fn check(&self, rows: usize, columns: usize, len: usize, stride: usize) {
        assert!(columns <= COLUMNS, "{columns} columns of a panel");
        let are_inside = |stride: usize, len: usize| {
            let last = rows.saturating_sub(1).checked_mul(stride);
            let end = last.and_then(|last| last.checked_add(columns));
            rows == 0 || end.is_some_and(|end| end <= len)
        };
        assert!(are_inside(stride, len), "rows lie in the result");
        if let Some(residual) = &self.residual {
            let inside = are_inside(residual.stride, residual.bytes.len());
            assert!(inside, "rows lie in the residual");
        }
        if let Some(own) = &self.rows {
            assert_eq!(own.scales.len(), rows, "a scale for each row");
            assert_eq!(own.zero_points.len(), rows, "a zero point for each row");
        }
    }

    /// The first numbers of a row, as many as there are in `numbers`.
    #[inline(always)]
    fn numbers(&self, row: usize, sums: &Sums, numbers: &mut [f32]) {
        let len = numbers.len();
        let (scales, biases, sums) = (&self.scales[..len], &self.biases[..len], &sums[..len]);
        match &self.rows {
            None => {
                for at in 0..len {
                    numbers[at] = sums[at] as f32 * scales[at] + biases[at];
                }
            }
            Some(own) => {
                let (scale, zero_point) = (own.scales[row], own.zero_points[row]);
                let column_sums = &own.column_sums[..len];
                for at in 0..len {
                    let added = zero_point.wrapping_mul(column_sums[at]);
                    let sum = sums[at].wrapping_sub(added) as f32;
                    numbers[at] = sum * (scales[at] * scale) + biases[at];
                }
            }
        }
        if let Some(residual) = &self.residual {
            let bytes = &residual.bytes[row * residual.stride..][..len];
            for (x, &byte) in numbers.iter_mut().zip(bytes) {
                *x += number(byte.into(), residual.scale, residual.zero_point);
            }
        }
        for x in numbers {
            *x = clamp(*x, self.bounds);
        }
    }
}

fn floats(
    epilogue: &Epilogue<'_>,
    first: usize,
    sums: &[Sums],
    columns: usize,
    to: &mut [f32],
    stride: usize,
) {
    for (row, sums) in (first..).zip(sums) {
        epilogue.numbers(row, sums, &mut to[row * stride..][..columns]);
    }
}

fn bytes(
    epilogue: &Epilogue<'_>,
    first: usize,
    sums: &[Sums],
    columns: usize,
    conversion: ToBytes,
    to: &mut [u8],
    stride: usize,
) {
    let mut numbers = [0.0; COLUMNS];
    let numbers = &mut numbers[..columns];
    for (row, sums) in (first..).zip(sums) {
        epilogue.numbers(row, sums, numbers);
        let to = &mut to[row * stride..][..columns];
        for (byte, &x) in to.iter_mut().zip(&*numbers) {
            *byte = conversion.byte(x);
        }
    }
}
