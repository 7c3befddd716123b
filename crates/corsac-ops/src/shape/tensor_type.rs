//! Types of tensors: all that is known without their elements.

use corsac_ir::{DType, Device, DeviceKind, MemoryFormat};
use smallvec::SmallVec;
use std::fmt;

use super::dim::Dim;
use super::promotion::element_bytes;

/// Sizes, outermost dimension first.
pub type Shape = SmallVec<[Dim; 5]>;

/// Strides: steps in elements per dimension.
///
/// Kept in one form: contiguous and channels-last strides are always given as such, and
/// [`Strides::Explicit`] is neither.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Strides {
    /// Row-major.
    Contiguous,
    /// Channels innermost: NHWC for four dimensions, NDHWC for five.
    ChannelsLast,
    /// As listed, in elements.
    Explicit(Shape),
    /// Not known.
    Unknown,
}

/// The type of a tensor: all that is known without its elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The type of its elements.
    pub dtype: DType,
    /// Its sizes.
    pub shape: Shape,
    /// Its strides.
    pub strides: Strides,
    /// Its device.
    pub device: Device,
    /// Whether autograd records operations on it.
    pub requires_grad: bool,
}

/// The processor.
pub const CPU: Device = Device {
    kind: DeviceKind::Cpu,
    index: None,
};

/// Row-major strides. Source: `torch.empty(shape).stride()`; a size of zero counts as one.
#[must_use]
pub(super) fn contiguous_strides(shape: &[Dim]) -> Shape {
    let mut strides = Shape::from_elem(Dim::ONE, shape.len());
    let mut step = Dim::ONE;
    for (stride, size) in strides.iter_mut().zip(shape).rev() {
        *stride = step.clone();
        step = step * at_least_one(size);
    }
    strides
}

fn at_least_one(size: &Dim) -> Dim {
    if size.is(0) { Dim::ONE } else { size.clone() }
}

/// Strides with channels innermost, for four or five dimensions.
#[must_use]
pub(super) fn channels_last_strides(shape: &[Dim]) -> Option<Shape> {
    let order: &[usize] = match shape.len() {
        4 => &[1, 3, 2, 0],
        5 => &[1, 4, 3, 2, 0],
        _ => return None,
    };
    let mut strides = Shape::from_elem(Dim::ONE, shape.len());
    let mut step = Dim::ONE;
    for &at in order {
        strides[at] = step.clone();
        step = step * at_least_one(&shape[at]);
    }
    Some(strides)
}

impl Strides {
    /// `strides` of a tensor of this shape, in their one form.
    #[must_use]
    pub fn of(shape: &[Dim], strides: Shape) -> Self {
        if strides == contiguous_strides(shape) {
            Self::Contiguous
        } else if channels_last_strides(shape).as_ref() == Some(&strides) {
            Self::ChannelsLast
        } else {
            Self::Explicit(strides)
        }
    }

    /// Strides of a tensor of this shape in `format`.
    #[must_use]
    pub fn in_format(shape: &[Dim], format: MemoryFormat) -> Self {
        match format {
            MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => {
                channels_last_strides(shape).map_or(Self::Contiguous, |s| Self::of(shape, s))
            }
            _ => Self::Contiguous,
        }
    }
}

impl TensorType {
    /// A contiguous tensor on the processor.
    #[must_use]
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = Dim>) -> Self {
        Self {
            dtype,
            shape: shape.into_iter().collect(),
            strides: Strides::Contiguous,
            device: CPU,
            requires_grad: false,
        }
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    #[must_use]
    pub fn numel(&self) -> Dim {
        Dim::product(&self.shape)
    }

    /// Bytes of its elements.
    #[must_use]
    pub fn size_bytes(&self) -> Dim {
        self.numel() * Dim::Known(element_bytes(self.dtype))
    }

    /// Its strides in elements, where they are known.
    #[must_use]
    pub fn stride_list(&self) -> Option<Shape> {
        match &self.strides {
            Strides::Contiguous => Some(contiguous_strides(&self.shape)),
            Strides::ChannelsLast => channels_last_strides(&self.shape),
            Strides::Explicit(strides) => Some(strides.clone()),
            Strides::Unknown => None,
        }
    }

    fn lies_in(&self, order: impl Iterator<Item = usize>) -> Option<bool> {
        let strides = self.stride_list()?;
        if self.shape.iter().any(|size| size.is(0)) {
            return Some(true);
        }
        let mut step = Dim::ONE;
        for at in order {
            let size = &self.shape[at];
            if size.is(1) {
                continue;
            }
            if !strides[at].equals(&step)? {
                return Some(false);
            }
            step = step * size.clone();
        }
        Some(true)
    }

    /// Whether its elements lie in row-major order, the strides of dimensions of size 1 aside;
    /// `None` if that is not known. Source: `Tensor.is_contiguous`.
    #[must_use]
    pub fn is_contiguous(&self) -> Option<bool> {
        if self.strides == Strides::Contiguous {
            return Some(true);
        }
        self.lies_in((0..self.rank()).rev())
    }

    /// Whether its elements lie with channels innermost. Source: as for
    /// [`TensorType::is_contiguous`].
    #[must_use]
    pub fn is_channels_last(&self) -> Option<bool> {
        match self.rank() {
            4 => self.lies_in([1, 3, 2, 0].into_iter()),
            5 => self.lies_in([1, 4, 3, 2, 0].into_iter()),
            _ => Some(false),
        }
    }

    /// Contiguous, or else channels-last, if it has that format, as `ShapeProp` reports it.
    #[must_use]
    pub fn memory_format(&self) -> Option<MemoryFormat> {
        if self.is_contiguous()? {
            return Some(MemoryFormat::Contiguous);
        }
        self.is_channels_last()?.then(|| match self.rank() {
            4 => MemoryFormat::ChannelsLast,
            _ => MemoryFormat::ChannelsLast3d,
        })
    }

    /// The format that PyTorch derives from its strides, where sizes of 1 leave a choice:
    /// channels-last if the strides are such, contiguous otherwise. `None` if they are not known.
    /// Source: `TensorBase::suggest_memory_format`.
    #[must_use]
    pub fn suggested_format(&self) -> Option<MemoryFormat> {
        let (order, format): (&[usize], _) = match self.rank() {
            4 => (&[1, 3, 2, 0], MemoryFormat::ChannelsLast),
            5 => (&[1, 4, 3, 2, 0], MemoryFormat::ChannelsLast3d),
            _ => return Some(MemoryFormat::Contiguous),
        };
        match self.strides {
            Strides::Contiguous if self.shape[1].less_than(&Dim::Known(2)) == Some(false) => {
                // The channel stride is the product of the inner sizes; only if that is one can
                // the strides be those of channels-last, and then the others are too small.
                return Some(MemoryFormat::Contiguous);
            }
            _ => {}
        }
        let strides = self.stride_list()?;
        if strides[1].is(0) {
            return Some(MemoryFormat::Contiguous);
        }
        let mut least = Dim::ZERO;
        for &at in order {
            let size = &self.shape[at];
            if size.is(0) || strides[at].less_than(&least)? {
                return Some(MemoryFormat::Contiguous);
            }
            // N111, or N11W sliced along W: ambiguous, so contiguous.
            if at == 0 && least.equals(&strides[1])? {
                return Some(MemoryFormat::Contiguous);
            }
            least = strides[at].clone();
            if !size.is(1) {
                least = least * size.clone();
            }
        }
        Some(format)
    }

    /// Whether no two indices lead to one element and the elements have no gaps.
    /// Source: `torch.ops.aten.is_non_overlapping_and_dense`.
    #[must_use]
    pub fn is_dense(&self) -> Option<bool> {
        if !matches!(self.strides, Strides::Explicit(_)) {
            return (self.strides != Strides::Unknown).then_some(true);
        }
        let strides = self.stride_list()?;
        let mut order: Vec<usize> = (0..self.rank()).filter(|&d| !self.shape[d].is(1)).collect();
        // An insertion sort, since symbolic strides may not be comparable.
        for i in 1..order.len() {
            let mut j = i;
            while j > 0 && strides[order[j]].less_than(&strides[order[j - 1]])? {
                order.swap(j, j - 1);
                j -= 1;
            }
        }
        self.lies_in(order.into_iter())
    }
}

impl fmt::Display for TensorType {
    /// `float32[2, 3, n]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dtype.name())?;
        write_shape(f, &self.shape)
    }
}

/// Writes `[2, 3, n]`.
pub(super) fn write_shape(f: &mut impl fmt::Write, shape: &[Dim]) -> fmt::Result {
    f.write_str("[")?;
    for (i, dim) in shape.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(f, "{comma}{dim}")?;
    }
    f.write_str("]")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A tensor of float32.
    pub(in crate::shape) fn tensor(shape: &[i64], strides: &[i64]) -> TensorType {
        let dims = |values: &[i64]| values.iter().map(|&v| Dim::Known(v)).collect::<Shape>();
        let mut tensor = TensorType::new(DType::Float32, dims(shape));
        tensor.strides = Strides::of(&tensor.shape, dims(strides));
        tensor
    }

    #[test]
    fn strides_have_one_form() {
        assert_eq!(tensor(&[2, 3], &[3, 1]).strides, Strides::Contiguous);
        let nhwc = tensor(&[2, 3, 4, 5], &[60, 1, 15, 3]);
        assert_eq!(nhwc.strides, Strides::ChannelsLast);
        assert_eq!(nhwc.memory_format(), Some(MemoryFormat::ChannelsLast));
        assert_eq!(nhwc.suggested_format(), Some(MemoryFormat::ChannelsLast));
        assert!(matches!(
            tensor(&[2, 3], &[1, 2]).strides,
            Strides::Explicit(_)
        ));
    }

    #[test]
    fn ambiguous_strides_count_as_contiguous() {
        let cases = [
            (
                tensor(&[2, 1, 1, 1], &[1, 1, 1, 1]),
                MemoryFormat::Contiguous,
            ),
            (
                tensor(&[2, 8, 1, 1], &[8, 1, 1, 1]),
                MemoryFormat::Contiguous,
            ),
            (
                tensor(&[2, 8, 1, 1], &[8, 1, 8, 8]),
                MemoryFormat::ChannelsLast,
            ),
            (
                tensor(&[2, 1, 4, 4], &[16, 16, 4, 1]),
                MemoryFormat::Contiguous,
            ),
            (
                tensor(&[2, 1, 4, 4], &[16, 1, 4, 1]),
                MemoryFormat::ChannelsLast,
            ),
        ];
        for (tensor, format) in cases {
            assert_eq!(tensor.suggested_format(), Some(format), "{tensor:?}");
        }
    }

    #[test]
    fn dense_is_without_gaps_and_overlaps() {
        assert_eq!(tensor(&[2, 3], &[1, 2]).is_dense(), Some(true));
        assert_eq!(tensor(&[2, 3], &[6, 2]).is_dense(), Some(false));
        assert_eq!(tensor(&[2, 3], &[0, 1]).is_dense(), Some(false));
    }
}
