//! Recurrent layers: in each direction a linear layer for the inputs of all time steps, and a step
//! for the rest.

use corsac_ir::Arg;
use corsac_ops::shape::Value;

use super::call::{Call, as_int};
use super::table::{Lowering, lowered};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Cell, Element, Op, Recurrent, Scalar, ValueId};

/// The layers of a call.
struct Layers {
    cell: Cell,
    /// Shape: time steps, rows and features; or rows of all time steps and features, for packed
    /// sequences.
    input: ValueId,
    /// Number of rows of each time step; of padded sequences, whose input has three dimensions,
    /// their lengths.
    batch_sizes: Option<ValueId>,
    /// First state, and first cell memory of an LSTM, by layer and direction.
    state: Vec<ValueId>,
    /// All weights, in PyTorch's order.
    weights: Vec<ValueId>,
    bias: bool,
    count: usize,
    both_ways: bool,
}

/// Results of a layer in one direction.
struct Outcome {
    out: ValueId,
    state: Vec<ValueId>,
}

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    lowered("lstm", |own, call| own.recurrent(call, Cell::Lstm)).of_any_type(),
    lowered("lstm_cell", |own, call| own.recurrent_cell(call, Cell::Lstm)),
    lowered("gru", |own, call| own.recurrent(call, Cell::Gru)).of_any_type(),
    lowered("gru_cell", |own, call| own.recurrent_cell(call, Cell::Gru)),
    lowered("rnn_tanh", |own, call| own.recurrent(call, Cell::Tanh)).of_any_type(),
    lowered("rnn_tanh_cell", |own, call| own.recurrent_cell(call, Cell::Tanh)),
    lowered("rnn_relu", |own, call| own.recurrent(call, Cell::Relu)).of_any_type(),
    lowered("rnn_relu_cell", |own, call| own.recurrent_cell(call, Cell::Relu)),
    lowered("LSTM", |own, call| own.recurrent_module(call)),
    lowered("GRU", |own, call| own.recurrent_module(call)),
    lowered("RNN", |own, call| own.recurrent_module(call)),
];

impl Lowerer<'_, '_> {
    /// `torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`.
    fn recurrent(&mut self, call: &Call, cell: Cell) -> Result<Lowered, Reason> {
        let of_tensor = call
            .get("fourth")
            .is_some_and(|own| matches!(own, Lowered::Known(Value::Bool(_))));
        let [state, weights, bias, count, dropout, trains] = match of_tensor {
            true => ["second", "third", "fourth", "fifth", "sixth", "seventh"],
            false => ["third", "fourth", "fifth", "sixth", "seventh", "eighth"],
        };
        let both_ways = if of_tensor { "eighth" } else { "ninth" };
        if call.flag(trains, false)? && call.number(dropout)?.unwrap_or(0.0) != 0.0 {
            return Err("dropout in training mode".to_owned());
        }
        let state = match call.get(state) {
            Some(Lowered::Tensor(value)) => vec![*value],
            _ => call.tensors(state)?,
        };
        let batch_first = of_tensor && call.flag("ninth", false)?;
        let count = call.int(count)?.unwrap_or(1);
        let layers = Layers {
            cell,
            input: call.tensor("input")?,
            batch_sizes: match of_tensor {
                true => None,
                false => Some(call.tensor("second")?),
            },
            state,
            weights: call.tensors(weights)?,
            bias: call.flag(bias, true)?,
            count: usize::try_from(count).map_err(|_| "a negative number of layers")?,
            both_ways: call.flag(both_ways, false)?,
        };
        let keeps = layers.cell == Cell::Lstm && self.is_read(2);
        let results = self.layers(layers, batch_first, keeps)?;
        Ok(Lowered::Items(
            results.into_iter().map(Lowered::Tensor).collect(),
        ))
    }

    /// Modules of `torch.nn`, called with an input and optionally a state.
    fn recurrent_module(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let facts = self.types.module(self.graph.node(self.node));
        let facts = facts.ok_or("the module is not known")?;
        let text = |name: &str| match facts.attribute(name) {
            Some(Value::Str(text)) => Some(text.to_string()),
            _ => None,
        };
        let flag = |name: &str| matches!(facts.attribute(name), Some(Value::Bool(true)));
        let int = |name: &str| facts.attribute(name).and_then(as_int);
        let mode = text("mode").ok_or("the kind of layer is not known")?;
        if facts.training && int("num_layers") != Some(1) {
            return Err("layers in training mode".to_owned());
        }
        let size = |name: &str| int(name).and_then(|own| usize::try_from(own).ok());
        let (count, hidden) = (size("num_layers"), size("hidden_size"));
        let (count, hidden) = (count.ok_or("no layers")?, hidden.ok_or("no hidden size")?);
        let (both_ways, bias) = (flag("bidirectional"), flag("bias"));
        let width = size("proj_size").filter(|&own| own > 0);
        let mut weights = Vec::new();
        for layer in 0..count {
            for suffix in ["", "_reverse"]
                .into_iter()
                .take(1 + usize::from(both_ways))
            {
                let kinds = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"];
                for (at, kind) in kinds.into_iter().enumerate() {
                    if (at == 2 || at == 3) && !bias || at == 4 && width.is_none() {
                        continue;
                    }
                    let value = facts.attribute(&format!("{kind}_l{layer}{suffix}"));
                    let value = value.ok_or_else(|| format!("there is no {kind}_l{layer}"))?;
                    match self.known(value)? {
                        Lowered::Tensor(value) => weights.push(value),
                        _ => return Err(format!("{kind}_l{layer} is no tensor")),
                    }
                }
            }
        }
        let cell = match mode.as_str() {
            "LSTM" => Cell::Lstm,
            "GRU" => Cell::Gru,
            "RNN_RELU" => Cell::Relu,
            _ => Cell::Tanh,
        };
        let mut input = call.tensor("input")?;
        let mut shape = self.shape(input);
        let unbatched = shape.len() == 2;
        let batch_first = flag("batch_first") && !unbatched;
        if unbatched {
            shape.insert(1, 1);
            input = self.alias(input, shape.clone());
        }
        let batch = *shape.get(usize::from(!batch_first)).ok_or("a vector")?;
        let lines = count * (1 + usize::from(both_ways));
        let width = width.unwrap_or(hidden);
        let mut sizes = vec![vec![lines, batch, width]];
        if cell == Cell::Lstm {
            sizes.push(vec![lines, batch, hidden]);
        }
        let given = match call.get("hx") {
            None => None,
            Some(Lowered::Tensor(value)) => Some(vec![*value]),
            Some(_) => Some(call.tensors("hx")?),
        };
        let mut state = Vec::new();
        for (at, sizes) in sizes.into_iter().enumerate() {
            state.push(match given.as_ref().map(|given| given.get(at)) {
                None => {
                    let zero = Op::Fill(Scalar::Float(0.0));
                    self.emit(zero, [], sizes)
                }
                Some(Some(&value)) if unbatched && self.shape(value).len() == 2 => {
                    self.alias(value, sizes)
                }
                Some(Some(&value)) => value,
                Some(None) => return Err("a state of fewer tensors".to_owned()),
            });
        }
        let layers = Layers {
            cell,
            input,
            batch_sizes: None,
            state,
            weights,
            bias,
            count,
            both_ways,
        };
        let keeps = cell == Cell::Lstm && self.is_read(1);
        let mut results = self.layers(layers, batch_first, keeps)?;
        if unbatched {
            for value in &mut results {
                let mut shape = self.shape(*value);
                shape.remove(1);
                *value = self.alias(*value, shape);
            }
        }
        let mut results = results.into_iter().map(Lowered::Tensor);
        let out = results.next().ok_or("there is no result")?;
        let mut state: Vec<Lowered> = results.collect();
        let state = match (state.len(), state.pop()) {
            (1, Some(only)) => only,
            (_, Some(last)) => {
                state.push(last);
                Lowered::Items(state)
            }
            (_, None) => return Err("there is no state".to_owned()),
        };
        Ok(Lowered::Items(vec![out, state]))
    }

    /// `torch.lstm_cell` and the like: one time step.
    fn recurrent_cell(&mut self, call: &Call, cell: Cell) -> Result<Lowered, Reason> {
        let mut input = call.tensor("input")?;
        let mut shape = self.shape(input);
        shape.insert(0, 1);
        input = self.alias(input, shape);
        let state = match call.get("hx") {
            Some(Lowered::Tensor(value)) => vec![*value],
            _ => call.tensors("hx")?,
        };
        let mut batched = Vec::with_capacity(state.len());
        for value in state {
            let mut shape = self.shape(value);
            shape.insert(0, 1);
            batched.push(self.alias(value, shape));
        }
        let mut weights = vec![call.tensor("w_ih")?, call.tensor("w_hh")?];
        let biases = (call.optional("b_ih")?, call.optional("b_hh")?);
        match biases {
            (Some(first), Some(second)) => weights.extend([first, second]),
            (None, None) => {}
            _ => return Err("one bias of two".to_owned()),
        }
        let layers = Layers {
            cell,
            input,
            batch_sizes: None,
            state: batched,
            weights,
            bias: biases.0.is_some(),
            count: 1,
            both_ways: false,
        };
        let keeps = layers.cell == Cell::Lstm;
        let results = self.layers(layers, false, keeps)?;
        let mut items = Vec::new();
        for &value in &results[1..] {
            let mut shape = self.shape(value);
            shape.remove(0);
            items.push(Lowered::Tensor(self.alias(value, shape)));
        }
        Ok(match (items.len(), items.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                items.extend(last);
                Lowered::Items(items)
            }
        })
    }

    /// Whether result `number` may be read.
    fn is_read(&self, number: i64) -> bool {
        let graph = self.graph;
        graph.node(self.node).users().any(|user| {
            let view = graph.node(user);
            match view.args() {
                [_, Arg::Int(at)] if view.target_name().ends_with("getitem") => {
                    *at == number && view.users().next().is_some()
                }
                _ => true,
            }
        })
    }

    /// Outputs, last states, and last cell memory, which is valid only if `keeps` is set.
    fn layers(
        &mut self,
        layers: Layers,
        batch_first: bool,
        keeps: bool,
    ) -> Result<Vec<ValueId>, Reason> {
        let directions = 1 + usize::from(layers.both_ways);
        let each = 2 + 2 * usize::from(layers.bias);
        let lines = layers.count * directions;
        let is_projected = layers.weights.len() == lines * (each + 1);
        let each = each + usize::from(is_projected);
        let tensors = 1 + usize::from(layers.cell == Cell::Lstm);
        if lines == 0 || layers.weights.len() != lines * each || layers.state.len() != tensors {
            return Err("weights or a state of another number".to_owned());
        }
        if is_projected && layers.cell != Cell::Lstm {
            return Err("a projection of another layer than an LSTM".to_owned());
        }
        let values = layers.weights.iter().chain(&layers.state);
        let mut elements = values
            .chain([&layers.input])
            .map(|&own| self.program.element(own));
        if let Some(other) = elements.find(|&own| own != Element::F32) {
            return Err(format!("recurrent layers of {}", other.name()));
        }
        let mut input = layers.input;
        if batch_first {
            if self.shape(input).len() != 3 {
                return Err("an input of other than three dimensions".to_owned());
            }
            input = self.permuted(input, &[1, 0, 2]);
        }
        let own = self.shape(input);
        let [_, batch, width] = self.shape(layers.state[0])[..] else {
            return Err("a state of other than three dimensions".to_owned());
        };
        match (layers.batch_sizes, &own[..]) {
            (None, &[steps, rows, _]) if steps > 0 && rows == batch && rows > 0 => {}
            (Some(sizes), &[_, _]) if batch > 0 && self.shape(sizes).len() == 1 => {
                self.expect_indices(sizes, &[])?;
            }
            (Some(lengths), &[steps, rows, _])
                if steps > 0 && rows > 0 && rows == batch && self.shape(lengths) == [rows] =>
            {
                self.expect_indices(lengths, &[])?;
            }
            _ => return Err("an input that is not as long as the state".to_owned()),
        }
        let rows = own.iter().rev().skip(1).product();
        let mut states: Vec<Vec<ValueId>> = vec![Vec::new(); tensors];
        for layer in 0..layers.count {
            let mut outs = Vec::with_capacity(directions);
            for direction in 0..directions {
                let line = layer * directions + direction;
                let weights = &layers.weights[line * each..][..each];
                let recurrent = Recurrent {
                    cell: layers.cell,
                    batch,
                    hidden: 0,
                    width,
                    reverse: direction == 1,
                    bias: layers.bias,
                    varies: layers.batch_sizes.is_some() && own.len() == 2,
                    padded: layers.batch_sizes.is_some() && own.len() == 3,
                    keeps: keeps || layers.batch_sizes.is_some(),
                };
                let mut begin = Vec::with_capacity(tensors);
                for &state in &layers.state {
                    let sizes = self.shape(state);
                    if sizes.len() != 3 || sizes[..2] != [lines, batch] {
                        return Err(format!("a state of shape {sizes:?}"));
                    }
                    let part = self.narrowed(state, 0, line, 1);
                    begin.push(self.alias(part, sizes[1..].to_vec()));
                }
                let outcome = self.one_way(
                    recurrent,
                    (input, rows),
                    weights,
                    &begin,
                    layers.batch_sizes,
                )?;
                for (all, own) in states.iter_mut().zip(outcome.state) {
                    let mut shape = self.shape(own);
                    shape.insert(0, 1);
                    all.push(self.alias(own, shape));
                }
                outs.push(outcome.out);
            }
            input = self.joined(outs, 1);
        }
        let mut shape = own;
        *shape.last_mut().ok_or("a number")? = width * directions;
        let mut out = self.alias(input, shape);
        if batch_first {
            out = self.permuted(out, &[1, 0, 2]);
        }
        let mut results = vec![out];
        for own in states {
            results.push(self.joined(own, 0));
        }
        Ok(results)
    }

    /// One layer in one direction, over `rows` rows of the input.
    fn one_way(
        &mut self,
        mut recurrent: Recurrent,
        (input, rows): (ValueId, usize),
        weights: &[ValueId],
        state: &[ValueId],
        batch_sizes: Option<ValueId>,
    ) -> Result<Outcome, Reason> {
        let Recurrent {
            cell,
            batch,
            width,
            bias,
            ..
        } = recurrent;
        let [outputs, features] = self.shape(weights[0])[..] else {
            return Err("a weight that is no matrix".to_owned());
        };
        let hidden = outputs / cell.gates();
        recurrent.hidden = hidden;
        let is_projected = weights.len() > 2 + 2 * usize::from(bias);
        if hidden == 0 || width == 0 || outputs != hidden * cell.gates() {
            return Err("gates of another size".to_owned());
        }
        if is_projected != (hidden != width) {
            return Err("a state of another width".to_owned());
        }
        self.expect_shape(weights[1], &[outputs, width])?;
        if bias {
            self.expect_shape(weights[2], &[outputs])?;
            self.expect_shape(weights[3], &[outputs])?;
        }
        if is_projected {
            self.expect_shape(weights[weights.len() - 1], &[width, hidden])?;
        }
        self.expect_shape(state[0], &[batch, width])?;
        if let Some(&cells) = state.get(1) {
            self.expect_shape(cells, &[batch, hidden])?;
        }
        if self.program.value(input).len() != rows * features {
            return Err("an input of another width".to_owned());
        }
        let input = self.alias(input, vec![rows, features]);
        let inputs = [input, weights[0]].into_iter();
        let inputs = inputs.chain(bias.then(|| weights[2]));
        let gates = self.emit(Op::Linear, inputs, vec![rows, outputs]);
        let mut inputs = vec![gates, weights[1]];
        inputs.extend(bias.then(|| weights[3]));
        inputs.extend(state);
        inputs.extend(is_projected.then(|| weights[weights.len() - 1]));
        inputs.extend(batch_sizes);
        let (keeps, reverse) = (recurrent.keeps, recurrent.reverse);
        let cells = if state.len() > 1 { batch * hidden } else { 0 };
        let lens = match keeps {
            true => [rows * width, batch * width, cells],
            false => [rows * width, 0, 0],
        };
        let all = self.emit(Op::Recurrent(recurrent), inputs, vec![lens.iter().sum()]);
        let part = |me: &mut Self, start: usize, len: usize, shape: [usize; 2]| {
            let own = me.narrowed(all, 0, start, len);
            me.alias(own, shape.to_vec())
        };
        let out = part(self, 0, lens[0], [rows, width]);
        // The rows of the last time step are the last state, if all time steps have as many.
        let start = match (keeps, reverse) {
            (true, _) => lens[0],
            (false, true) => 0,
            (false, false) => (rows - batch) * width,
        };
        let mut last = vec![part(self, start, batch * width, [batch, width])];
        if cells > 0 {
            last.push(match keeps {
                true => part(self, lens[0] + lens[1], cells, [batch, hidden]),
                // It is not read.
                false => state[1],
            });
        }
        Ok(Outcome { out, state: last })
    }

    /// Concatenates values along a dimension.
    fn joined(&mut self, parts: Vec<ValueId>, dim: usize) -> ValueId {
        match parts[..] {
            [only] => only,
            _ => {
                let mut shape = self.shape(parts[0]);
                shape[dim] = parts.iter().map(|&own| self.program.shape(own)[dim]).sum();
                self.emit(Op::Concat { dim }, parts, shape)
            }
        }
    }
}
