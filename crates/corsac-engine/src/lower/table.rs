//! The table of lowerings: the function that lowers calls of an operator, by its id. Families have
//! files of their own, beside those of the operator table.

use std::sync::LazyLock;

use corsac_ops::OperatorId;

use super::call::Call;
use super::{
    Lowered, Lowerer, Reason, activation, arithmetic, attention, comparison, control, conversion,
    convolution, dropout, indexing, joining, linear_algebra, loss, normalisation, pooling,
    quantisation, recurrent, reduction, view,
};
use crate::program::{Unary, ValueId};

/// Lowers a call whose result is one tensor.
type ToTensor = fn(&mut Lowerer<'_, '_>, &mut Call) -> Result<ValueId, Reason>;

/// Lowers a call with any results.
type ToAny = fn(&mut Lowerer<'_, '_>, &mut Call) -> Result<Lowered, Reason>;

#[derive(Clone, Copy)]
enum Lower {
    /// A function of each element of the input.
    Unary(fn(&Call) -> Result<Unary, Reason>),
    Tensor(ToTensor),
    Any(ToAny),
}

/// The lowering of an operator.
#[derive(Clone, Copy)]
pub(super) struct Lowering {
    operator: OperatorId,
    lower: Lower,
    /// Whether operands may be of any element type. Those of other operators are floating-point
    /// numbers, or are converted where the operator table allows it.
    takes_any_type: bool,
}

/// The lowering of an operator to a function of each element.
pub(super) const fn unary(name: &str, function: fn(&Call) -> Result<Unary, Reason>) -> Lowering {
    Lowering {
        operator: OperatorId::constant(name),
        lower: Lower::Unary(function),
        takes_any_type: false,
    }
}

/// The lowering of an operator over floating-point numbers that returns a tensor.
pub(super) const fn tensor(name: &str, lower: ToTensor) -> Lowering {
    Lowering {
        operator: OperatorId::constant(name),
        lower: Lower::Tensor(lower),
        takes_any_type: false,
    }
}

/// The lowering of an operator over floating-point numbers.
pub(super) const fn lowered(name: &str, lower: ToAny) -> Lowering {
    Lowering {
        operator: OperatorId::constant(name),
        lower: Lower::Any(lower),
        takes_any_type: false,
    }
}

impl Lowering {
    /// The same, for operands of any element type.
    pub(super) const fn of_any_type(mut self) -> Self {
        self.takes_any_type = true;
        self
    }
}

const FAMILIES: &[&[Lowering]] = &[
    activation::LOWERINGS,
    arithmetic::LOWERINGS,
    attention::LOWERINGS,
    comparison::LOWERINGS,
    control::LOWERINGS,
    conversion::LOWERINGS,
    convolution::LOWERINGS,
    dropout::LOWERINGS,
    indexing::LOWERINGS,
    joining::LOWERINGS,
    linear_algebra::LOWERINGS,
    loss::LOWERINGS,
    normalisation::LOWERINGS,
    pooling::LOWERINGS,
    quantisation::LOWERINGS,
    recurrent::LOWERINGS,
    reduction::LOWERINGS,
    view::LOWERINGS,
];

/// The lowerings, by the index of the operator.
static TABLE: LazyLock<Vec<Option<Lowering>>> = LazyLock::new(|| {
    let mut table = vec![None; OperatorId::COUNT];
    for lowering in FAMILIES.iter().copied().flatten() {
        let before = table[lowering.operator.index()].replace(*lowering);
        debug_assert!(
            before.is_none(),
            "one lowering of {}",
            lowering.operator.name()
        );
    }
    table
});

/// The operators that the engine lowers calls of. Some arguments may be refused.
pub fn lowered_operators() -> impl Iterator<Item = OperatorId> {
    TABLE.iter().flatten().map(|lowering| lowering.operator)
}

impl Lowerer<'_, '_> {
    /// The result of a call, in element types of the engine.
    pub(super) fn computed(&mut self, call: &mut Call) -> Result<Lowered, Reason> {
        self.check_numbers(call)?;
        let lowering = TABLE[call.operator.index()];
        if !lowering.is_some_and(|lowering| lowering.takes_any_type) {
            self.check_elements(call)?;
        }
        self.round_operands(call);
        let Some(lowering) = lowering else {
            let name = call.operator.name();
            return Err(format!("{name} is no operator that this engine knows"));
        };
        let value = match lowering.lower {
            Lower::Unary(function) => {
                let function = function(call)?;
                self.single(function, call.tensor("input")?)
            }
            Lower::Tensor(lower) => lower(self, call)?,
            Lower::Any(lower) => return lower(self, call),
        };
        Ok(Lowered::Tensor(value))
    }
}
