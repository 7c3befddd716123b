//! Dropout, which is the identity in evaluation.

use super::Reason;
use super::call::Call;
use super::table::{Lowering, tensor};
use crate::program::ValueId;

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("alpha_dropout", |_, call| input_in_evaluation(call, false)),
    tensor("dropout", |_, call| input_in_evaluation(call, true)),
    tensor("dropout1d", |_, call| input_in_evaluation(call, true)),
    tensor("dropout2d", |_, call| input_in_evaluation(call, true)),
    tensor("dropout3d", |_, call| input_in_evaluation(call, true)),
    tensor("feature_alpha_dropout", |_, call| { input_in_evaluation(call, false) }),
    tensor("stochastic_depth", |_, call| { input_in_evaluation(call, true) }),
];

fn input_in_evaluation(call: &Call, training: bool) -> Result<ValueId, Reason> {
    match call.flag("training", training)? {
        true => Err("dropout in training mode".to_owned()),
        false => call.tensor("input"),
    }
}
