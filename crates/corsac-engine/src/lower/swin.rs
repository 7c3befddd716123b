//! Functions of torchvision's Swin transformers, which tracing keeps as one call each.
//!
//! Source: `torchvision/models/swin_transformer.py` of 0.29.

use corsac_ops::shape::Value;

use super::call::Call;
use super::view::View;
use super::{Lowerer, Reason};
use crate::program::{
    Arithmetic, Binary, Comparison, Element, Op, Reduction, Scalar, Unary, ValueId,
};

/// Division of an image into windows.
struct Windows {
    batch: usize,
    /// Rows and columns of the image: multiples of those of a window.
    image: [usize; 2],
    window: [usize; 2],
}

impl Windows {
    /// The shape of an image divided into windows, and the shape with the pixels of a window
    /// together.
    fn shapes(&self, channels: usize) -> [Vec<usize>; 2] {
        let [h, w] = self.window;
        let [rows, columns] = [self.image[0] / h, self.image[1] / w];
        [
            vec![self.batch, rows, h, columns, w, channels],
            vec![self.batch, rows, columns, h, w, channels],
        ]
    }

    fn count(&self) -> usize {
        self.image[0] / self.window[0] * (self.image[1] / self.window[1])
    }

    fn len(&self) -> usize {
        self.window[0] * self.window[1]
    }
}

impl Lowerer<'_, '_> {
    /// Attention within windows of an image of shape `[batch, rows, columns, channels]`.
    pub(super) fn shifted_window_attention(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let training = call.flag("training", true)?;
        for param in ["attention_dropout", "dropout"] {
            if training && call.number(param)?.unwrap_or(0.0) != 0.0 {
                return Err("dropout in training mode".to_owned());
            }
        }
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let [batch, rows, columns, channels] = shape[..] else {
            return Err("an image of another rank than 4".to_owned());
        };
        let sizes = |param: &str| -> Result<[usize; 2], Reason> {
            let wrong = || format!("{param} is no pair of sizes");
            match call.ints(param)?.as_deref() {
                Some(&[a, b]) => Ok([
                    usize::try_from(a).map_err(|_| wrong())?,
                    usize::try_from(b).map_err(|_| wrong())?,
                ]),
                _ => Err(wrong()),
            }
        };
        let (window, mut shift) = (sizes("window_size")?, sizes("shift_size")?);
        let heads = call.int("num_heads")?.unwrap_or(0);
        let heads = usize::try_from(heads).map_err(|_| "num_heads is negative")?;
        if window.contains(&0) || heads == 0 || channels % heads != 0 || shape.contains(&0) {
            return Err(format!("{channels} features for {heads} heads"));
        }
        let image = [
            rows.next_multiple_of(window[0]),
            columns.next_multiple_of(window[1]),
        ];
        let mut x = input;
        if image != [rows, columns] {
            let widths = [
                [0, 0],
                [0, image[0] - rows],
                [0, image[1] - columns],
                [0, 0],
            ];
            let op = Op::Pad {
                widths: widths.into_iter().collect(),
                value: Scalar::Float(0.0),
            };
            x = self.emit(op, [x], vec![batch, image[0], image[1], channels]);
        }
        for at in 0..2 {
            if window[at] >= image[at] {
                shift[at] = 0;
            }
        }
        let windows = Windows {
            batch,
            image,
            window,
        };
        for at in 0..2 {
            x = self.rolled_by(x, at + 1, image[at] - shift[at]);
        }
        let (count, len, own) = (windows.count(), windows.len(), channels / heads);
        let all = batch * count;
        let is_shifted = shift != [0, 0];
        // The mask depends on the window, and is the same for all images.
        let stack = match is_shifted {
            true => vec![batch, count, heads],
            false => vec![all, heads],
        };
        let matrices = |size: [usize; 2]| [&stack[..], &size].concat();
        let [apart, _] = windows.shapes(channels);
        let pieces = self.alias(x, apart);
        let pieces = self.permuted(pieces, &[0, 1, 3, 2, 4, 5]);
        let pieces = self.alias(pieces, vec![all, len, channels]);
        let weight = call.tensor("qkv_weight")?;
        let scale = call.optional("logit_scale")?;
        let mut bias = call.optional("qkv_bias")?;
        if let (Some(_), Some(given)) = (scale, bias) {
            // Keys have no bias.
            let length = self.program.value(given).len() / 3;
            let first = self.narrowed(given, 0, 0, length);
            let last = self.narrowed(given, 0, 2 * length, length);
            let none = Op::Fill(Scalar::Float(0.0));
            let none = self.emit(none, [], vec![length]);
            let op = Op::Concat { dim: 0 };
            bias = Some(self.emit(op, [first, none, last], vec![3 * length]));
        }
        let inputs = [pieces, weight].into_iter().chain(bias);
        let qkv = self.emit(Op::Linear, inputs, vec![all, len, 3 * channels]);
        let windows_of = stack.len() - 1;
        let qkv = self.alias(qkv, [&stack[..windows_of], &[len, 3, heads, own]].concat());
        let order: Vec<usize> = [windows_of + 1]
            .into_iter()
            .chain(0..windows_of)
            .chain([windows_of + 2, windows_of, windows_of + 3])
            .collect();
        let qkv = self.permuted(qkv, &order);
        let mut parts = (0..3).map(|part| {
            let mut view = View::of(&self.shape(qkv));
            view.slice(0, part, 1, 1);
            view.remove(0);
            self.copied(qkv, view)
        });
        let (query, key, value) = (parts.next(), parts.next(), parts.next());
        drop(parts);
        let (Some(mut query), Some(mut key), Some(value)) = (query, key, value) else {
            return Err("a linear layer without queries, keys and values".to_owned());
        };
        let scores = matrices([len, len]);
        if scale.is_some() {
            query = self.unit_rows(query)?;
            key = self.unit_rows(key)?;
        }
        let product = Op::MatMul {
            first_transposed: false,
            transposed: true,
            scale: match scale {
                Some(_) => 1.0,
                None => (own as f64).powf(-0.5),
            },
        };
        let mut weights = self.emit(product, [query, key], scores.clone());
        if let Some(scale) = scale {
            let bounded = Unary::Clamp(f64::NEG_INFINITY, 100.0_f64.ln());
            let bounded = self.single(bounded, scale);
            let factor = self.single(Unary::Exp, bounded);
            weights = self.pairwise(Binary::Mul, weights, factor)?;
        }
        // Both are added in one mask, so that this is fused to one attention.
        let mut bias = call.tensor("relative_position_bias")?;
        if is_shifted {
            let mask = self.window_mask(&windows, shift)?;
            bias = self.pairwise(Binary::Add, bias, mask)?;
        }
        weights = self.pairwise(Binary::Add, weights, bias)?;
        let softmax = Op::Softmax {
            dim: scores.len() - 1,
            log: false,
        };
        let weights = self.emit(softmax, [weights], scores);
        let mixed = self.matmul(weights, value)?;
        let mut order: Vec<usize> = (0..stack.len() + 2).collect();
        order.swap(stack.len() - 1, stack.len());
        let merged = self.permuted(mixed, &order);
        let merged = self.alias(merged, vec![all, len, channels]);
        let inputs = [merged, call.tensor("proj_weight")?].into_iter();
        let inputs = inputs.chain(call.optional("proj_bias")?);
        let projected = self.emit(Op::Linear, inputs, vec![all, len, channels]);
        let [_, beside] = windows.shapes(channels);
        let back = self.alias(projected, beside);
        let back = self.permuted(back, &[0, 1, 3, 2, 4, 5]);
        let mut x = self.alias(back, vec![batch, image[0], image[1], channels]);
        for (at, shift) in shift.into_iter().enumerate() {
            x = self.rolled_by(x, at + 1, shift);
        }
        for (at, size) in [rows, columns].into_iter().enumerate() {
            x = self.narrowed(x, at + 1, 0, size);
        }
        Ok(x)
    }

    /// Rows divided by their norms.
    fn unit_rows(&mut self, value: ValueId) -> Result<ValueId, Reason> {
        let mut shape = self.shape(value);
        let last = shape.len() - 1;
        shape[last] = 1;
        let squares = self.single(Unary::Power(2.0), value);
        let op = Op::Reduce {
            reduction: Reduction::Sum,
            dims: [last].into_iter().collect(),
        };
        let sum = self.emit(op, [squares], shape);
        let length = self.single(Unary::Sqrt, sum);
        let length = self.single(Unary::Clamp(1e-12, f64::INFINITY), length);
        self.pairwise(Binary::Div, value, length)
    }

    /// Rolls elements along a dimension by `shift`; those at the end move to the front.
    fn rolled_by(&mut self, value: ValueId, dim: usize, shift: usize) -> ValueId {
        let shape = self.shape(value);
        let size = shape[dim];
        if size == 0 || shift.is_multiple_of(size) {
            return value;
        }
        let last = self.narrowed(value, dim, size - shift, shift);
        let first = self.narrowed(value, dim, 0, size - shift);
        self.emit(Op::Concat { dim }, [last, first], shape)
    }

    /// Mask of -100 for pairs in a window that were not adjacent before the image was rolled.
    fn window_mask(&mut self, windows: &Windows, shift: [usize; 2]) -> Result<ValueId, Reason> {
        let [rows, columns] = windows.image;
        let mut moved = |size: usize, shift: usize, shape: Vec<usize>| {
            let range = Op::Range {
                start: Scalar::Int(0),
                step: Scalar::Int(1),
            };
            let range = self.emit_typed(range, [], Element::I64, vec![size]);
            let border = Scalar::Int((size - shift) as i64);
            let border = self.constant(border, Element::I64);
            let op = Op::Compare(Comparison::Ge);
            let moved = self.emit_typed(op, [range, border], Element::Bool, vec![size]);
            let moved = self.cast(moved, Element::I64);
            self.alias(moved, shape)
        };
        let row = moved(rows, shift[0], vec![rows, 1]);
        let column = moved(columns, shift[1], vec![1, columns]);
        let two = self.constant(Scalar::Int(2), Element::I64);
        let op = Op::Arithmetic(Arithmetic::Mul);
        let row = self.emit_typed(op, [row, two], Element::I64, vec![rows, 1]);
        let op = Op::Arithmetic(Arithmetic::Add);
        let region = self.emit_typed(op, [row, column], Element::I64, vec![rows, columns]);
        let [h, w] = windows.window;
        let region = self.alias(region, vec![rows / h, h, columns / w, w]);
        let region = self.permuted(region, &[0, 2, 1, 3]);
        let (count, len) = (windows.count(), windows.len());
        let a = self.alias(region, vec![count, len, 1]);
        let b = self.alias(region, vec![count, 1, len]);
        let op = Op::Compare(Comparison::Ne);
        let apart = self.emit_typed(op, [a, b], Element::Bool, vec![count, len, len]);
        let never = self.constant(Scalar::Float(-100.0), self.float);
        let zero = self.constant(Scalar::Float(0.0), self.float);
        let mask = self.choose(apart, never, zero)?;
        Ok(self.alias(mask, vec![1, count, 1, len, len]))
    }

    /// Relative position bias of the scores, from a table.
    pub(super) fn position_bias(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let table = call.tensor("relative_position_bias_table")?;
        let index = call.tensor("relative_position_index")?;
        let shape = self.result_shape()?;
        let [_, heads, len, _] = shape[..] else {
            return Err("a bias of another rank than 4".to_owned());
        };
        let rows = self.rows(table, 0, index, true)?;
        let rows = self.alias(rows, vec![len, len, heads]);
        let bias = self.permuted(rows, &[2, 0, 1]);
        Ok(self.alias(bias, shape))
    }

    /// Stacks four neighbours of an image of shape `[..., rows, columns, channels]` as channels.
    pub(super) fn patch_merging(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let mut shape = self.shape(input);
        let rank = shape.len();
        if rank < 3 {
            return Err("an image of a lower rank than 3".to_owned());
        }
        let mut x = input;
        if !shape[rank - 3].is_multiple_of(2) || !shape[rank - 2].is_multiple_of(2) {
            let mut widths = smallvec::SmallVec::from_elem([0; 2], rank);
            for dim in [rank - 3, rank - 2] {
                widths[dim] = [0, shape[dim] % 2];
                shape[dim] += shape[dim] % 2;
            }
            let value = Scalar::Float(0.0);
            x = self.emit(Op::Pad { widths, value }, [x], shape.clone());
        }
        let every =
            |start: i64| Value::Slice([Value::int(start), Value::None, Value::int(2)].into());
        let mut parts = Vec::with_capacity(4);
        for (row, column) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let whole = Value::Slice([Value::None, Value::None, Value::None].into());
            let indices = [Value::Ellipsis, every(row), every(column), whole];
            parts.push(self.basic_index(x, &indices)?);
        }
        let result = self.result_shape()?;
        Ok(self.emit(Op::Concat { dim: rank - 1 }, parts, result))
    }
}
