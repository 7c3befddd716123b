//! Operators that move elements, or only change how they are viewed.

use corsac_kernels::gather::Places;
use corsac_ops::is_operator;
use corsac_ops::shape::Value;
use smallvec::SmallVec;

use super::call::{Call, as_int, wrapped};
use super::element::scalar;
use super::table::{Lowering, lowered, tensor};
use super::{Lowered, Lowerer, Reason, sizes, tensor_of};
use crate::program::{Comparison, Element, Op, Scalar, Strides, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("adjoint", |own, call| own.adjoint(call)),
    tensor("alias", |own, call| own.reshaped(call)),
    tensor("broadcast_to", |own, call| own.expanded(call)),
    tensor("channel_shuffle", |own, call| own.shuffled_channels(call)),
    lowered("chunk", |own, call| own.parts(call)),
    tensor("constant_pad_nd", |own, call| own.padded(call)),
    tensor("diagonal", |own, call| own.diagonal(call)),
    tensor("expand", |own, call| own.expanded(call)),
    tensor("expand_as", |own, call| own.expanded(call)),
    tensor("flatten", |own, call| own.reshaped(call)),
    tensor("flip", |own, call| own.flipped(call, None)).of_any_type(),
    tensor("fliplr", |own, call| own.flipped(call, Some(1))).of_any_type(),
    tensor("flipud", |own, call| own.flipped(call, Some(0))).of_any_type(),
    tensor("getattr", |own, call| own.attribute(call)),
    tensor("lift_fresh", |own, call| own.reshaped(call)),
    tensor("moveaxis", |own, call| own.moved_dimension(call)),
    tensor("movedim", |own, call| own.moved_dimension(call)),
    tensor("narrow", |own, call| own.narrowed_or_selected(call)),
    tensor("native_channel_shuffle", |own, call| own.shuffled_channels(call)),
    tensor("numpy_T", |own, call| own.transposed(call)),
    tensor("pad", |own, call| own.padded(call)),
    tensor("permute", |own, call| own.permute(call)),
    tensor("pos", |own, call| own.reshaped(call)),
    tensor("positive", |own, call| own.reshaped(call)),
    tensor("ravel", |own, call| own.reshaped(call)),
    tensor("repeat", |own, call| own.repeated(call, "repeats")),
    tensor("repeat_interleave", |own, call| own.interleaved(call)),
    tensor("reshape", |own, call| own.reshaped(call)),
    tensor("reshape_as", |own, call| own.reshaped(call)),
    tensor("roll", |own, call| own.rolled(call)),
    tensor("select", |own, call| own.narrowed_or_selected(call)),
    tensor("slice", |own, call| own.sliced(call)),
    lowered("split", |own, call| own.parts(call)),
    lowered("split_with_sizes", |own, call| own.parts(call)),
    tensor("squeeze", |own, call| own.reshaped(call)),
    tensor("t", |own, call| own.transposed(call)),
    lowered("tensor_split", |own, call| own.parts(call)),
    tensor("tile", |own, call| own.repeated(call, "dims")),
    tensor("transpose", |own, call| own.transposed(call)),
    tensor("tril", |own, call| own.triangle(call, Comparison::Le)).of_any_type(),
    tensor("triu", |own, call| own.triangle(call, Comparison::Ge)).of_any_type(),
    lowered("unbind", |own, call| own.parts(call)),
    tensor("unflatten", |own, call| own.reshaped(call)),
    tensor("unfold", |own, call| own.unfolded(call)),
    tensor("_unsafe_view", |own, call| own.reshaped(call)),
    tensor("unsqueeze", |own, call| own.reshaped(call)),
    tensor("view", |own, call| own.reshaped(call)),
    tensor("view_as", |own, call| own.reshaped(call)),
];

/// The index `:`.
pub(super) fn all() -> Value {
    Value::Slice([Value::None, Value::None, Value::None].into())
}

/// A view of a row-major tensor: shape, strides and offset.
#[derive(Clone)]
pub(super) struct View {
    pub(super) shape: Vec<usize>,
    pub(super) strides: Strides,
    pub(super) offset: usize,
}

impl View {
    pub(super) fn of(shape: &[usize]) -> Self {
        let mut strides: Strides = SmallVec::from_elem(1, shape.len());
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at].max(1) as isize;
        }
        Self {
            shape: shape.to_vec(),
            strides,
            offset: 0,
        }
    }

    /// Keeps `len` elements from `start` on, `step` apart.
    pub(super) fn slice(&mut self, dim: usize, start: usize, len: usize, step: usize) {
        self.offset += start * self.strides[dim].unsigned_abs();
        // A step over one element may be as large as it likes.
        let step = if len > 1 { step } else { 1 };
        self.strides[dim] *= step as isize;
        self.shape[dim] = len;
    }

    pub(super) fn remove(&mut self, dim: usize) {
        self.shape.remove(dim);
        self.strides.remove(dim);
    }

    pub(super) fn insert(&mut self, dim: usize) {
        self.shape.insert(dim, 1);
        self.strides.insert(dim, 0);
    }
}

impl View {
    /// Whether it is the whole of a tensor of these sizes.
    pub(super) fn is_whole(&self, sizes: &[usize]) -> bool {
        let whole = Self::of(sizes);
        let in_rows = |at: usize| sizes[at] == 1 || self.strides[at] == whole.strides[at];
        self.offset == 0 && self.shape == sizes && (0..sizes.len()).all(in_rows)
    }

    /// The view with its dimensions permuted.
    pub(super) fn permuted(&self, dims: &[usize]) -> Self {
        Self {
            shape: dims.iter().map(|&dim| self.shape[dim]).collect(),
            strides: dims.iter().map(|&dim| self.strides[dim]).collect(),
            offset: self.offset,
        }
    }

    /// Narrows the view as `narrow` or `select` does.
    pub(super) fn narrow(&mut self, call: &Call, dim: usize) -> Result<(), Reason> {
        let (param, kept) = match is_operator!(call.operator, "narrow") {
            true => ("start", call.int("length")?.unwrap_or(0)),
            false => ("index", 1),
        };
        let start = call.int(param)?;
        let start = start.ok_or_else(|| format!("there is no {param}"))?;
        let size = *self.shape.get(dim).ok_or("a part of a number")?;
        let start = wrapped_index(start, size)?;
        let kept = usize::try_from(kept).map_err(|_| "a negative length")?;
        if kept > size - start {
            return Err(format!("{kept} elements from {start} on of {size}"));
        }
        self.slice(dim, start, kept, 1);
        Ok(())
    }

    /// Applies integers, slices and new dimensions.
    pub(super) fn index(&mut self, indices: &[Value]) -> Result<(), Reason> {
        let rank = self.shape.len();
        let taken = indices
            .iter()
            .filter(|index| !matches!(index, Value::None | Value::Ellipsis))
            .count();
        let mut dim = 0;
        for index in indices {
            match index {
                Value::None => {
                    self.insert(dim);
                    dim += 1;
                }
                Value::Ellipsis => {
                    dim += rank.saturating_sub(taken);
                }
                Value::Slice(parts) => {
                    let size = *self.shape.get(dim).ok_or("too many indices")?;
                    let (start, len, step) = range(parts, size)?;
                    self.slice(dim, start, len, step);
                    dim += 1;
                }
                index => {
                    let at = as_int(index)
                        .ok_or_else(|| "an index that is no integer and no slice".to_owned())?;
                    let size = *self.shape.get(dim).ok_or("too many indices")?;
                    self.slice(dim, wrapped_index(at, size)?, 1, 1);
                    self.remove(dim);
                }
            }
        }
        Ok(())
    }
}

/// The slice of a call of `slice`.
pub(super) fn slice_of(call: &Call) -> Result<Value, Reason> {
    let part = |param: &str| Ok::<_, Reason>(call.known(param)?.cloned().unwrap_or(Value::None));
    let parts = [part("start")?, part("end")?, part("step")?];
    Ok(Value::Slice(parts.into()))
}

impl Lowerer<'_, '_> {
    fn reshaped(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let tensor = tensor_of(self.types.value(self.node))?;
        let shape = sizes(tensor)?;
        let same = shape.iter().product::<usize>() == self.program.value(input).len();
        if !same || tensor.dtype != self.dtype(input) {
            return Err("a view of another type".to_owned());
        }
        Ok(self.alias(input, shape))
    }

    fn permute(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let dims = call
            .ints("dims")?
            .ok_or_else(|| "permute without dims".to_owned())?;
        let dims: Result<Vec<usize>, _> = dims.into_iter().map(|dim| wrapped(dim, rank)).collect();
        let dims = dims?;
        Ok(self.permuted(input, &dims))
    }

    fn transposed(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let mut dims: Vec<usize> = (0..rank).collect();
        if is_operator!(call.operator, "transpose") && rank > 0 {
            dims.swap(call.dim("dim0", rank, 0)?, call.dim("dim1", rank, 1)?);
        } else {
            dims.reverse();
        }
        Ok(self.permuted(input, &dims))
    }

    fn expanded(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.result_shape()?;
        let mut view = View::of(&self.shape(input));
        while view.shape.len() < shape.len() {
            view.insert(0);
        }
        for (at, &size) in shape.iter().enumerate() {
            if view.shape[at] != size {
                view.strides[at] = 0;
                view.shape[at] = size;
            }
        }
        Ok(self.copied(input, view))
    }

    fn attribute(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let mut dims: Vec<usize> = (0..rank).collect();
        match call.text("other")? {
            Some("T") => dims.reverse(),
            Some("mT" | "mH" | "H") => dims.swap(rank - 1, rank - 2),
            Some("data") => return Ok(input),
            _ => return Err("an attribute of a tensor".to_owned()),
        }
        Ok(self.permuted(input, &dims))
    }

    fn sliced(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let dim = call.dim("dim", rank, 0)?;
        let mut indices = vec![all(); dim];
        indices.push(slice_of(call)?);
        self.basic_index(input, &indices)
    }

    fn narrowed_or_selected(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let mut view = View::of(&self.shape(input));
        let dim = call.dim("dim", view.shape.len(), 0)?;
        view.narrow(call, dim)?;
        if is_operator!(call.operator, "select") {
            view.remove(dim);
        }
        Ok(self.copied(input, view))
    }

    fn padded(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        if let Some(mode) = call.text("mode")?
            && mode != "constant"
        {
            return self.padded_by_own(call, mode);
        }
        let given = call.ints("pad")?.unwrap_or_default();
        let rank = self.shape(input).len();
        let mut widths: SmallVec<[[usize; 2]; 6]> = SmallVec::from_elem([0; 2], rank);
        for (at, pair) in given.chunks(2).enumerate() {
            let [before, after] = pair else {
                return Err("pad takes pairs of widths".to_owned());
            };
            let size = |width: i64| {
                usize::try_from(width).map_err(|_| "pad with a negative width".to_owned())
            };
            widths[rank - 1 - at] = [size(*before)?, size(*after)?];
        }
        let shape = self.result_shape()?;
        let element = self.program.element(input);
        let value = match element {
            Element::F32 | Element::F64 => call.number("value")?.map(Scalar::Float),
            Element::I64 | Element::Bool => call.known("value")?.and_then(scalar),
        };
        let value = value.unwrap_or(element.zero());
        Ok(self.emit_typed(Op::Pad { widths, value }, [input], element, shape))
    }

    fn moved_dimension(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let wrap = |dims: Option<Vec<i64>>| -> Result<Vec<usize>, Reason> {
            let dims = dims.unwrap_or_default().into_iter();
            dims.map(|dim| wrapped(dim, rank)).collect()
        };
        let (from, to) = (
            wrap(call.ints("source")?)?,
            wrap(call.ints("destination")?)?,
        );
        let mut order = vec![usize::MAX; rank];
        for (&from, &to) in from.iter().zip(&to) {
            // A tensor without dimensions has none to move, though the call takes 0 and -1.
            if let Some(slot) = order.get_mut(to) {
                *slot = from;
            }
        }
        let mut rest = (0..rank).filter(|dim| !from.contains(dim));
        for slot in &mut order {
            if *slot == usize::MAX {
                *slot = rest.next().ok_or("a dimension that is moved twice")?;
            }
        }
        Ok(self.permuted(input, &order))
    }

    fn adjoint(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let mut dims: Vec<usize> = (0..rank).collect();
        let last_but_one = rank.checked_sub(2).ok_or("a transposed vector")?;
        dims.swap(rank - 1, last_but_one);
        Ok(self.permuted(input, &dims))
    }

    fn unfolded(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        if call.get("dimension").is_none() {
            return self.windows(call);
        }
        let dim = call.dim("dimension", shape.len(), 0)?;
        let step = call.int("step")?.unwrap_or(1) as isize;
        let view = View::of(&shape);
        let mut strides = view.strides.clone();
        // A tensor without dimensions has one window.
        strides.push(strides.get(dim).copied().unwrap_or(1));
        strides[dim] *= step;
        let view = View {
            shape: self.result_shape()?,
            strides,
            offset: 0,
        };
        Ok(self.copied(input, view))
    }

    fn diagonal(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let rank = shape.len();
        let (a, b) = (call.dim("dim1", rank, 0)?, call.dim("dim2", rank, 1)?);
        let offset = call.int("offset")?.unwrap_or(0) as isize;
        let mut view = View::of(&shape);
        let from = if offset >= 0 {
            offset * view.strides[b]
        } else {
            -offset * view.strides[a]
        };
        let step = view.strides[a] + view.strides[b];
        for dim in [a.max(b), a.min(b)] {
            view.strides.remove(dim);
        }
        view.strides.push(step);
        let result = self.result_shape()?;
        view.offset = if result.contains(&0) {
            0
        } else {
            from.unsigned_abs()
        };
        view.shape = result;
        Ok(self.copied(input, view))
    }

    fn shuffled_channels(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let groups = call.int("groups")?.unwrap_or(1);
        let groups = usize::try_from(groups).map_err(|_| "groups is negative")?;
        let [batch, channels, ..] = shape[..] else {
            return Err("channels of a vector".to_owned());
        };
        if groups == 0 || channels % groups != 0 {
            return Err(format!("{channels} channels in {groups} groups"));
        }
        let rest: usize = shape[2..].iter().product();
        let split = self.alias(input, vec![batch, groups, channels / groups, rest]);
        let swapped = self.permuted(split, &[0, 2, 1, 3]);
        Ok(self.alias(swapped, shape))
    }

    /// The windows of images, one column for each.
    fn windows(&mut self, call: &Call) -> Result<ValueId, Reason> {
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

    fn repeated(&mut self, call: &Call, param: &str) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
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

    fn interleaved(&mut self, call: &Call) -> Result<ValueId, Reason> {
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

    /// The elements on one side of a diagonal; zeros on the other.
    fn triangle(&mut self, call: &Call, comparison: Comparison) -> Result<ValueId, Reason> {
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
        let op = Op::Compare(comparison);
        let inside = self.emit_typed(op, [column, row], Element::Bool, vec![rows, columns]);
        let zero = self.constant(element.zero(), element);
        self.choose(inside, input, zero)
    }

    fn flipped(&mut self, call: &Call, dim: Option<i64>) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let dims = match dim {
            Some(dim) => vec![dim],
            None => call.ints("dims")?.unwrap_or_default(),
        };
        let View { mut strides, .. } = View::of(&shape);
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

    /// `len` elements from `start` on along a dimension.
    pub(super) fn narrowed(
        &mut self,
        input: ValueId,
        dim: usize,
        start: usize,
        len: usize,
    ) -> ValueId {
        let mut view = View::of(&self.shape(input));
        view.slice(dim, start, len, 1);
        self.copied(input, view)
    }

    pub(super) fn permuted(&mut self, input: ValueId, dims: &[usize]) -> ValueId {
        let view = View::of(&self.shape(input)).permuted(dims);
        self.copied(input, view)
    }

    /// The elements of a view, row by row: an alias of the input if they lie so already.
    pub(super) fn copied(&mut self, input: ValueId, view: View) -> ValueId {
        let whole = View::of(&view.shape);
        let same = |at: usize| view.shape[at] == 1 || view.strides[at] == whole.strides[at];
        let len: usize = view.shape.iter().product();
        if len == self.program.value(input).len() && (0..view.shape.len()).all(same) {
            return self.alias(input, view.shape);
        }
        let (offset, strides) = (view.offset, view.strides);
        let element = self.program.element(input);
        self.emit_typed(Op::Copy { offset, strides }, [input], element, view.shape)
    }

    fn parts(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let own = self.shape(input);
        let unbind = is_operator!(call.operator, "unbind");
        let dim = call.dim("dim", own.len(), 0)?;
        let items = match self.types.value(self.node).as_items() {
            Some(items) => items,
            None => return Err("the parts are not known".to_owned()),
        };
        let mut start = 0;
        let mut parts = Vec::with_capacity(items.len());
        for item in items {
            let shape = sizes(tensor_of(item)?)?;
            let len = if unbind { 1 } else { shape[dim] };
            let mut view = View::of(&own);
            view.slice(dim, start, len, 1);
            start += len;
            if unbind {
                view.remove(dim);
            }
            parts.push(Lowered::Tensor(self.copied(input, view)));
        }
        Ok(Lowered::Items(parts))
    }

    pub(super) fn item(&mut self, call: &Call) -> Result<Lowered, Reason> {
        // `x[None]`: a new dimension.
        let index = call.known("other")?.unwrap_or(&Value::None);
        let input = match call.get("input") {
            Some(Lowered::Items(items)) => {
                let at = as_int(index).ok_or_else(|| "a slice of a tuple".to_owned())?;
                return Ok(items[wrapped_index(at, items.len())?].clone());
            }
            _ => call.tensor("input")?,
        };
        let indices: Vec<Value> = match index {
            Value::Tuple(items) => items.to_vec(),
            other => vec![other.clone()],
        };
        self.basic_index(input, &indices).map(Lowered::Tensor)
    }

    /// A view by integers, slices and new dimensions.
    pub(super) fn basic_index(
        &mut self,
        input: ValueId,
        indices: &[Value],
    ) -> Result<ValueId, Reason> {
        let mut view = View::of(&self.shape(input));
        view.index(indices)?;
        Ok(self.copied(input, view))
    }

    /// Rearranges the last two dimensions of floating-point numbers by row and column indices.
    pub(super) fn arranged(
        &mut self,
        value: ValueId,
        rows: &[usize],
        columns: &[usize],
    ) -> ValueId {
        let mut shape = self.shape(value);
        let rank = shape.len();
        let short = |places: &[usize]| places.iter().map(|&at| at as u32).collect::<Vec<u32>>();
        let op = Op::Arrange {
            rows: short(rows),
            columns: Places::new(shape[rank - 1], short(columns)),
        };
        shape[rank - 2..].copy_from_slice(&[rows.len(), columns.len()]);
        self.emit_typed(op, [value], Element::F32, shape)
    }

    /// The indices of the last two dimensions of floating-point numbers, in order; `None` if there
    /// are no such dimensions, or no elements.
    fn places(&self, value: ValueId) -> Option<[Vec<usize>; 2]> {
        let shape = self.shape(value);
        let [.., rows, columns] = shape[..] else {
            return None;
        };
        let fits = self.program.element(value) == Element::F32
            && !shape.contains(&0)
            && rows.max(columns) <= u32::MAX as usize;
        fits.then(|| [(0..rows).collect(), (0..columns).collect()])
    }

    /// Padding with elements of the input: mirrored, those at the edge, or those of the other end.
    fn padded_by_own(&mut self, call: &Call, mode: &str) -> Result<ValueId, Reason> {
        let mut value = call.tensor("input")?;
        let given = call.ints("pad")?.unwrap_or_default();
        let rank = self.shape(value).len();
        let dims = given.len() / 2;
        if given.len() % 2 != 0 || dims == 0 || !(1..=2).contains(&rank.saturating_sub(dims)) {
            return Err("widths for another number of dimensions".to_owned());
        }
        if self.shape(value).contains(&0) {
            return Err("no elements to surround with".to_owned());
        }
        // Along the last two dimensions at once.
        let mut places = self.places(value);
        for (at, pair) in given.chunks(2).enumerate() {
            let dim = rank - 1 - at;
            let shape = self.shape(value);
            let size = shape[dim];
            let most = match mode {
                "reflect" => size - 1,
                "replicate" => usize::MAX,
                "circular" => size,
                other => return Err(format!("pad with mode {other}")),
            };
            let width = |width: i64| {
                let width = usize::try_from(width).ok().filter(|&own| own <= most);
                width.ok_or_else(|| format!("{mode} by such a width of {size}"))
            };
            let (before, after) = (width(pair[0])?, width(pair[1])?);
            // Source index of the first padded element on each side, and the step.
            let (first, last, step) = match mode {
                "reflect" => (before, (size - 1).saturating_sub(1), -1),
                "replicate" => (0, size - 1, 0),
                _ => (size - before, 0, 1),
            };
            if let (0 | 1, Some(places)) = (at, &mut places) {
                let moved = |from: usize, by: usize| match step {
                    0 => from,
                    1 => from + by,
                    _ => from - by,
                };
                let left = (0..before).map(|by| moved(first, by));
                let right = (0..after).map(|by| moved(last, by));
                places[1 - at] = left.chain(0..size).chain(right).collect();
                continue;
            }
            let element = self.program.element(value);
            let mut piece = |start: usize, len: usize| {
                let mut view = View::of(&shape);
                view.offset = start * view.strides[dim].unsigned_abs();
                view.strides[dim] *= step;
                view.shape[dim] = len;
                let op = Op::Copy {
                    offset: view.offset,
                    strides: view.strides,
                };
                (len > 0).then(|| self.emit_typed(op, [value], element, view.shape))
            };
            let (left, right) = (piece(first, before), piece(last, after));
            let parts: Vec<ValueId> = left.into_iter().chain([value]).chain(right).collect();
            if parts.len() > 1 {
                let mut shape = shape.clone();
                shape[dim] += before + after;
                value = self.emit_typed(Op::Concat { dim }, parts, element, shape);
            }
        }
        if let Some([rows, columns]) = places {
            let shape = self.shape(value);
            if [rows.len(), columns.len()] != shape[rank - 2..] {
                value = self.arranged(value, &rows, &columns);
            }
        }
        Ok(value)
    }

    /// Rolls dimensions: two pieces, exchanged, for each.
    fn rolled(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let mut value = call.tensor("input")?;
        let shape = self.shape(value);
        let shifts = call.ints("shifts")?.unwrap_or_default();
        let dims = call
            .ints("dims")?
            .ok_or_else(|| "roll without dims".to_owned())?;
        if shifts.len() != dims.len() {
            return Err("roll with as many shifts as dims".to_owned());
        }
        // Along the last two dimensions at once.
        let mut places = self.places(value);
        let mut is_arranged = false;
        for (shift, dim) in shifts.into_iter().zip(dims) {
            let dim = wrapped(dim, shape.len())?;
            let size = *shape.get(dim).ok_or("a number that is rolled")?;
            if size == 0 {
                continue;
            }
            let shift = shift.rem_euclid(size as i64) as usize;
            if shift == 0 {
                continue;
            }
            let from_end = shape.len() - 1 - dim;
            if let (0 | 1, Some(places)) = (from_end, &mut places) {
                places[1 - from_end].rotate_right(shift);
                is_arranged = true;
                continue;
            }
            let last = self.narrowed(value, dim, size - shift, shift);
            let first = self.narrowed(value, dim, 0, size - shift);
            let element = self.program.element(value);
            let op = Op::Concat { dim };
            value = self.emit_typed(op, [last, first], element, shape.clone());
        }
        if let (true, Some([rows, columns])) = (is_arranged, places) {
            value = self.arranged(value, &rows, &columns);
        }
        Ok(value)
    }
}

fn wrapped_index(index: i64, size: usize) -> Result<usize, Reason> {
    let at = if index < 0 {
        index + size as i64
    } else {
        index
    };
    usize::try_from(at)
        .ok()
        .filter(|&at| at < size)
        .ok_or_else(|| format!("index {index} of {size}"))
}

/// Start, length and step of a slice of `size` elements.
fn range(parts: &[Value; 3], size: usize) -> Result<(usize, usize, usize), Reason> {
    let bound = |value: &Value, default: i64| match value {
        Value::None => Ok(default),
        value => as_int(value).ok_or_else(|| "a slice whose bounds are no integers".to_owned()),
    };
    let len = size as i64;
    let step = bound(&parts[2], 1)?;
    if step < 1 {
        return Err(format!("a slice with step {step}"));
    }
    let clamp = |at: i64| (if at < 0 { at + len } else { at }).clamp(0, len);
    let (start, stop) = (clamp(bound(&parts[0], 0)?), clamp(bound(&parts[1], len)?));
    let count = (stop - start)
        .max(0)
        .unsigned_abs()
        .div_ceil(step.unsigned_abs());
    Ok((
        start.unsigned_abs() as usize,
        count as usize,
        step.unsigned_abs() as usize,
    ))
}
