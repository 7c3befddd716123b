//! Places of the elements of a tensor in memory.

use corsac_engine::DType;

use crate::dtype::size_bytes;
use crate::error::Fault;

/// Type, sizes and strides of a tensor whose elements lie within the address space.
#[derive(Debug)]
pub(crate) struct Layout {
    dtype: DType,
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
    len: usize,
    size_bytes: usize,
}

impl Layout {
    /// The layout with these sizes, and strides in elements; row by row without strides.
    pub(crate) fn new(dtype: DType, shape: &[i64], strides: Option<&[i64]>) -> Result<Self, Fault> {
        let size = |(dim, &size): (usize, &i64)| {
            usize::try_from(size).map_err(|_| Fault::Size { dim, size })
        };
        let shape: Vec<usize> = shape
            .iter()
            .enumerate()
            .map(size)
            .collect::<Result<_, _>>()?;
        let stride = |(dim, &stride): (usize, &i64)| {
            usize::try_from(stride).map_err(|_| Fault::Stride { dim, stride })
        };
        let strides: Vec<usize> = match strides {
            Some(own) => own
                .iter()
                .enumerate()
                .map(stride)
                .collect::<Result<_, _>>()?,
            None => row_strides(&shape),
        };
        if shape.contains(&0) {
            return Ok(Self {
                dtype,
                shape,
                strides,
                len: 0,
                size_bytes: 0,
            });
        }
        let mut dims = shape.iter().zip(&strides);
        let last = dims.try_fold(0_usize, |last, (size, stride)| {
            last.checked_add((size - 1).checked_mul(*stride)?)
        });
        let end = last.and_then(|last| last.checked_add(1)?.checked_mul(size_bytes(dtype)));
        let len = shape
            .iter()
            .try_fold(1_usize, |len, &size| len.checked_mul(size));
        match (len, end.filter(|&end| isize::try_from(end).is_ok())) {
            (Some(len), Some(size_bytes)) => Ok(Self {
                dtype,
                shape,
                strides,
                len,
                size_bytes,
            }),
            _ => Err(Fault::Extent),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Distances in elements.
    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes from the first element to the end of the last one.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Whether the elements lie row by row without gaps.
    pub(crate) fn is_in_rows(&self) -> bool {
        let rows = row_strides(&self.shape);
        let dims = self.shape.iter().zip(self.strides.iter().zip(rows));
        let mut dims = dims.filter(|(size, _)| **size != 1);
        self.len == 0 || dims.all(|(_, (own, row))| *own == row)
    }

    /// Whether two elements may have the same place: whether a dimension has a smaller stride than
    /// those inside it reach.
    pub(crate) fn overlaps_itself(&self) -> bool {
        let dims = self.strides.iter().zip(&self.shape);
        let mut dims: Vec<_> = dims.filter(|(_, size)| **size > 1).collect();
        dims.sort_unstable();
        let mut reach = 0;
        self.len > 0
            && dims.iter().any(|&(stride, size)| {
                let overlaps = *stride <= reach;
                reach += (size - 1) * stride;
                overlaps
            })
    }

    /// Calls `visit` with the place in elements of each element, row by row.
    pub(crate) fn for_each_place(&self, mut visit: impl FnMut(usize)) {
        if self.len > 0 {
            places(&self.shape, &self.strides, 0, &mut visit);
        }
    }
}

fn places(shape: &[usize], strides: &[usize], start: usize, visit: &mut impl FnMut(usize)) {
    match (shape, strides) {
        ([size], [stride]) => (0..*size).for_each(|at| visit(start + at * stride)),
        ([size, shape @ ..], [stride, strides @ ..]) => {
            (0..*size).for_each(|at| places(shape, strides, start + at * stride, visit));
        }
        _ => visit(start),
    }
}

/// The strides of a tensor whose elements lie row by row.
fn row_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim].max(1));
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[i64], strides: Option<&[i64]>) -> Result<Layout, Fault> {
        Layout::new(DType::Int32, shape, strides)
    }

    #[test]
    fn places_are_sums_of_strides() {
        struct Case {
            shape: &'static [i64],
            strides: Option<&'static [i64]>,
            places: &'static [usize],
            size_bytes: usize,
            in_rows: bool,
            overlaps: bool,
        }
        let case = |shape, strides, places, size_bytes, in_rows, overlaps| Case {
            shape,
            strides,
            places,
            size_bytes,
            in_rows,
            overlaps,
        };
        let cases = [
            case(&[], None, &[0], 4, true, false),
            case(&[2, 3], None, &[0, 1, 2, 3, 4, 5], 24, true, false),
            case(
                &[2, 3],
                Some(&[1, 2]),
                &[0, 2, 4, 1, 3, 5],
                24,
                false,
                false,
            ),
            case(&[2, 1], Some(&[1, 99]), &[0, 1], 8, true, false),
            case(&[2, 2], Some(&[5, 2]), &[0, 2, 5, 7], 32, false, false),
            case(&[2, 2], Some(&[0, 1]), &[0, 1, 0, 1], 8, false, true),
            case(&[3, 2], Some(&[1, 1]), &[0, 1, 1, 2, 2, 3], 16, false, true),
            case(&[1 << 40, 0], Some(&[0, 0]), &[], 0, true, false),
            case(&[0, i64::MAX, i64::MAX], None, &[], 0, true, false),
        ];
        for case in cases {
            let own = layout(case.shape, case.strides).unwrap();
            let mut places = Vec::new();
            own.for_each_place(|place| places.push(place));
            assert_eq!(places, case.places, "{own:?}");
            assert_eq!(own.len(), places.len());
            assert_eq!(own.size_bytes(), case.size_bytes);
            assert_eq!(own.is_in_rows(), case.in_rows, "{own:?}");
            assert_eq!(own.overlaps_itself(), case.overlaps, "{own:?}");
        }
    }

    #[test]
    fn tensors_beyond_the_address_space_are_faults() {
        let text = |shape: &[i64], strides| layout(shape, strides).unwrap_err().to_string();
        let beyond = "its sizes and strides exceed the address space";
        assert_eq!(text(&[i64::MAX, i64::MAX], None), beyond);
        assert_eq!(text(&[i64::MAX, 4], Some(&[0, 0])), beyond);
        assert_eq!(text(&[3, 1], Some(&[i64::MAX, 0])), beyond);
        assert_eq!(text(&[1 << 61], None), beyond);
        assert_eq!(text(&[2, -3], None), "dimension 1 has size -3");
        assert_eq!(
            text(&[2], Some(&[-1])),
            "dimension 0 has stride -1, and strides are not negative"
        );
    }
}
