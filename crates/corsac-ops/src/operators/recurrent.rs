//! Recurrent layers.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("gru").modules("GRU").composed(),
    operator("GRU"),
    operator("gru_cell").composed(),
    operator("lstm").modules("LSTM").composed(),
    operator("LSTM"),
    operator("lstm_cell").composed(),
    operator("RNN"),
    operator("rnn_relu").composed(),
    operator("rnn_relu_cell").composed(),
    operator("rnn_tanh").modules("RNN").composed(),
    operator("rnn_tanh_cell").composed(),
];
