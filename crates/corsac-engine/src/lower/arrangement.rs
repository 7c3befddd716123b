//! Operators that rearrange elements: repeat, stack, windows, flips, and masks by position.

use smallvec::SmallVec;

use super::call::{Call, wrapped};
use super::views::View;
use super::{Lowerer, Reason};
use crate::program::{Comparison, Element, Op, Scalar, Strides, ValueId};

impl Lowerer<'_, '_> {
    /// The windows of images, one column for each.
    pub(super) fn windows(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let sizes = |param: &str, default| call.pair(param, default);
        let kernel = sizes("kernel_size", 1)?;
        let (dilation, stride) = (sizes("dilation", 1)?, sizes("stride", 1)?);
        let padding = sizes("padding", 0)?;
        let mut shape = self.shape(input);
        let result = self.result_shape()?;
        let whole = [kernel, dilation, stride]
            .iter()
            .all(|own| !own.contains(&0));
        if !matches!(shape.len(), 3 | 4) || !whole || shape.contains(&0) {
            return Err("windows of something else than images".to_owned());
        }
        let rank = shape.len();
        let mut image = input;
        if padding != [0, 0] {
            let mut widths = SmallVec::from_elem([0; 2], rank);
            for (at, width) in padding.into_iter().enumerate() {
                widths[rank - 2 + at] = [width; 2];
                shape[rank - 2 + at] += 2 * width;
            }
            let element = self.program.element(input);
            let value = element.zero();
            image = self.emit_typed(Op::Pad { widths, value }, [input], element, shape.clone());
        }
        let mut view = View::of(&shape);
        let mut counts = [0; 2];
        for at in 0..2 {
            let reach = dilation[at] * (kernel[at] - 1) + 1;
            let rest = shape[rank - 2 + at].checked_sub(reach);
            counts[at] = rest.ok_or("a window larger than the image")? / stride[at] + 1;
        }
        let (row, column) = (view.strides[rank - 2], view.strides[rank - 1]);
        view.shape.truncate(rank - 2);
        view.strides.truncate(rank - 2);
        let steps = [row, column];
        for at in 0..2 {
            view.shape.push(kernel[at]);
            view.strides.push(steps[at] * dilation[at] as isize);
        }
        for at in 0..2 {
            view.shape.push(counts[at]);
            view.strides.push(steps[at] * stride[at] as isize);
        }
        let value = self.copied(image, view);
        Ok(self.alias(value, result))
    }

    pub(super) fn repeated(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let param = if call.name == "tile" {
            "dims"
        } else {
            "repeats"
        };
        let repeats = call.ints(param)?.unwrap_or_default();
        let mut own = self.shape(input);
        while own.len() < repeats.len() {
            own.insert(0, 1);
        }
        let mut counts = vec![1; own.len() - repeats.len()];
        for count in repeats {
            counts.push(usize::try_from(count).map_err(|_| "a negative number of copies")?);
        }
        let whole = View::of(&own);
        let mut view = View {
            shape: Vec::new(),
            strides: SmallVec::new(),
            offset: 0,
        };
        for at in 0..own.len() {
            view.shape.extend([counts[at], own[at]]);
            view.strides.extend([0, whole.strides[at]]);
        }
        let value = self.copied(input, view);
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    pub(super) fn interleaved(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let mut input = call.tensor("input")?;
        let count = call.int("repeats")?.ok_or("there is no repeats")?;
        let count = usize::try_from(count).map_err(|_| "a negative number of copies")?;
        if call.get("dim").is_none() {
            let len = self.program.value(input).len();
            input = self.alias(input, vec![len]);
        }
        let own = self.shape(input);
        let dim = call.dim("dim", own.len(), 0)?;
        let mut view = View::of(&own);
        view.shape.insert(dim + 1, count);
        view.strides.insert(dim + 1, 0);
        let value = self.copied(input, view);
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    pub(super) fn stacked(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let parts = call.tensors("tensors")?;
        let shape = self.result_shape()?;
        let element = self.result_element()?;
        let mut own = Vec::with_capacity(parts.len());
        let mut dim = 0;
        for part in parts {
            let mut sizes = self.shape(part);
            match call.name {
                "hstack" => {
                    if sizes.is_empty() {
                        sizes.push(1);
                    }
                    dim = usize::from(sizes.len() > 1);
                }
                "vstack" | "row_stack" => {
                    while sizes.len() < 2 {
                        sizes.insert(0, 1);
                    }
                }
                "column_stack" => {
                    while sizes.len() < 2 {
                        sizes.push(1);
                    }
                    dim = 1;
                }
                _ => {
                    if sizes.is_empty() {
                        sizes.push(1);
                    }
                    if sizes.len() == 1 {
                        sizes.insert(0, 1);
                    }
                    if sizes.len() == 2 {
                        sizes.push(1);
                    }
                    dim = 2;
                }
            }
            let part = self.cast(part, element);
            own.push(self.alias(part, sizes));
        }
        Ok(self.emit_typed(Op::Concat { dim }, own, element, shape))
    }

    pub(super) fn pixels(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let (param, up) = match call.name {
            "pixel_shuffle" => ("upscale_factor", true),
            _ => ("downscale_factor", false),
        };
        let factor = call.int(param)?.unwrap_or(1);
        let r = usize::try_from(factor).map_err(|_| "a negative factor")?;
        let [.., channels, rows, columns] = shape[..] else {
            return Err("pixels of a vector".to_owned());
        };
        let batch: usize = shape[..shape.len() - 3].iter().product();
        let result = self.result_shape()?;
        if r == 0 {
            return Err("a factor of 0".to_owned());
        }
        let value = if up {
            let split = self.alias(input, vec![batch, channels / (r * r), r, r, rows, columns]);
            self.permuted(split, &[0, 1, 4, 2, 5, 3])
        } else {
            let split = self.alias(input, vec![batch, channels, rows / r, r, columns / r, r]);
            self.permuted(split, &[0, 1, 3, 5, 2, 4])
        };
        Ok(self.alias(value, result))
    }

    /// The elements on one side of a diagonal; zeros on the other.
    pub(super) fn triangle(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let [.., rows, columns] = shape[..] else {
            return Err("a triangle of a vector".to_owned());
        };
        let diagonal = call.int("diagonal")?.unwrap_or(0);
        let element = self.program.element(input);
        let mut range = |size: usize, start: i64, shape: Vec<usize>| {
            let range = Op::Range {
                start: Scalar::Int(start),
                step: Scalar::Int(1),
            };
            let range = self.emit_typed(range, [], Element::I64, vec![size]);
            self.alias(range, shape)
        };
        let row = range(rows, diagonal, vec![rows, 1]);
        let column = range(columns, 0, vec![1, columns]);
        let comparison = match call.name {
            "tril" => Comparison::Le,
            _ => Comparison::Ge,
        };
        let op = Op::Compare(comparison);
        let inside = self.emit_typed(op, [column, row], Element::Bool, vec![rows, columns]);
        let zero = self.constant(element.zero(), element);
        self.choose(inside, input, zero)
    }

    pub(super) fn flipped(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let dims = match call.name {
            "fliplr" => vec![1],
            "flipud" => vec![0],
            _ => call.ints("dims")?.unwrap_or_default(),
        };
        let mut strides: Strides = SmallVec::from_elem(1, shape.len());
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at].max(1) as isize;
        }
        let mut offset = 0;
        for dim in dims {
            let dim = wrapped(dim, shape.len())?;
            if dim < shape.len() && shape[dim] > 0 {
                offset += (shape[dim] - 1) * strides[dim].unsigned_abs();
                strides[dim] = -strides[dim];
            }
        }
        let element = self.program.element(input);
        Ok(self.emit_typed(Op::Copy { offset, strides }, [input], element, shape))
    }
}
