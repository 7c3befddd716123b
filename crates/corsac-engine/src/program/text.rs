//! Programs as text.

use std::fmt;

use super::{Binary, Element, Epilogue, Layout, Op, Program, Source, Step, Ternary, ValueId};

impl Program {
    /// Number of steps, with those of micro-batches.
    #[must_use]
    pub fn step_count(&self) -> usize {
        self.steps.iter().map(Step::count).sum()
    }

    /// All steps in order, a line of text each, with those of micro-batches.
    #[must_use]
    pub fn all_steps(&self) -> Vec<String> {
        let mut lines = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            match &step.op {
                Op::BatchTiling(tiling) => {
                    let inner = tiling.body.all_steps().into_iter();
                    let count = tiling.count;
                    lines.extend(inner.map(|line| format!("{line}, {count} times")));
                }
                _ => lines.push(self.line(step)),
            }
        }
        lines
    }

    fn name(&self, value: ValueId) -> String {
        match self.value(self.root(value)).source {
            Source::Input(number) => format!("in{number}"),
            Source::Weight(number) => format!("w{number}"),
            Source::Transformed(number) => format!("d{number}"),
            Source::Step | Source::Alias(_) => format!("%{}", self.root(value).index()),
        }
    }

    /// A step as a line of text.
    #[must_use]
    pub fn line(&self, step: &Step) -> String {
        let inputs: Vec<String> = step.inputs.iter().map(|&v| self.name(v)).collect();
        let results = step.results().map(|value| {
            let layout = match (self.value(value).layout, self.element(value)) {
                (Layout::Rows, Element::F64) => " in float64",
                (Layout::Rows, _) => "",
                (Layout::Blocks, _) => " in blocks",
                (Layout::Pixels, _) => " by pixel",
            };
            format!("{}{:?}{layout}", self.name(value), self.shape(value))
        });
        let results: Vec<String> = results.collect();
        let mut line = format!(
            "{} = {}({})",
            results.join(", "),
            step.op.name(),
            inputs.join(", ")
        );
        if let Op::Fused(fused) = &step.op {
            line += &format!(": {fused}");
        }
        for epilogue in &step.epilogues {
            line += &match epilogue {
                Epilogue::Add(value) => format!(" + {}", self.name(*value)),
                Epilogue::Unary(unary) => format!(" -> {unary:?}"),
            };
        }
        line
    }
}

impl fmt::Display for Program {
    /// One line for a step: `%5[1, 64, 112, 112] = conv(%0, w0) + %3 -> relu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            match &step.op {
                Op::BatchTiling(tiling) => {
                    for line in tiling.body.all_steps() {
                        writeln!(f, "{line}, {} times", tiling.count)?;
                    }
                }
                op => {
                    writeln!(f, "{}", self.line(step))?;
                    if let Op::Control(control) = op {
                        control.write_bodies(f)?;
                    }
                }
            }
        }
        let name = |value: ValueId| self.name(value);
        for &(input, value) in &self.written {
            writeln!(f, "in{input} := {}", name(value))?;
        }
        let outputs: Vec<String> = self.outputs().into_iter().map(name).collect();
        writeln!(f, "return {}", outputs.join(", "))
    }
}

impl Op {
    /// Name of the operator in listings.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Conv(_) | Self::ConvNd(_) => "conv",
            Self::ChannelScaledConv(_) => "channel_scaled_conv",
            Self::Linear => "linear",
            Self::QuantisedLinear(_) => "quantised_linear",
            Self::QuantisedConv(..) => "quantised_conv",
            Self::ToLevels(_) => "quantise",
            Self::FromLevels(..) => "dequantise",
            Self::MapLevels(_) => "map_levels",
            Self::AddLevels(_) => "add_levels",
            Self::MatMul { .. } => "matmul",
            Self::BatchNorm { .. } => "batch_norm",
            Self::ChannelAffine => "channel_affine",
            Self::LayerNorm { .. } => "layer_norm",
            Self::Unary(_) => "unary",
            Self::Binary(Binary::Add) => "add",
            Self::Binary(Binary::Sub) => "sub",
            Self::Binary(Binary::Mul) => "mul",
            Self::Binary(Binary::Div) => "div",
            Self::Binary(Binary::Maximum) => "maximum",
            Self::Binary(Binary::Minimum) => "minimum",
            Self::Binary(Binary::Prelu) => "prelu",
            Self::Fused(_) => "fused",
            Self::MaxPool(_) => "max_pool",
            Self::AvgPool { .. } => "avg_pool",
            Self::AdaptiveAvgPool => "adaptive_avg_pool",
            Self::Reduce { .. } => "reduce",
            Self::Softmax { log: false, .. } | Self::SafeSoftmax => "softmax",
            Self::Softmax { log: true, .. } => "log_softmax",
            Self::Attention(_) => "attention",
            Self::Copy { .. } => "copy",
            Self::Recurrent(_) => "recurrent",
            Self::Concat { .. } => "concat",
            Self::ToBlocks(_) => "to_blocks",
            Self::FromBlocks(_) => "from_blocks",
            Self::Pad { .. } => "pad",
            Self::BatchTiling(_) => "batch_tiling",
            Self::Cast => "cast",
            Self::Compare(_) => "compare",
            Self::Arithmetic(_) => "arithmetic",
            Self::Not => "not",
            Self::Where => "where",
            Self::Fill(_) => "fill",
            Self::Range { .. } => "range",
            Self::IndexSelect { .. } => "index_select",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::IndexPut(_) => "index_put",
            Self::Wrap { .. } => "wrap",
            Self::Scan { .. } => "scan",
            Self::Sort { .. } => "sort",
            Self::ArgReduce { .. } => "arg_reduce",
            Self::ArgMaxPool(_) => "arg_max_pool",
            Self::Ternary(Ternary::Lerp) => "lerp",
            Self::Ternary(Ternary::AddProduct(_)) => "addcmul",
            Self::Ternary(Ternary::AddQuotient(_)) => "addcdiv",
            Self::Arrange { .. } => "arrange",
            Self::Resample { .. } => "resample",
            Self::Control(control) => control.name(),
            Self::LabelMargins => "margins",
            Self::RoundRows(_) => "round_rows",
            Self::Causal => "causal",
        }
    }
}
