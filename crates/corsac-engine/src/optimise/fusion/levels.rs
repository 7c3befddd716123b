//! Chains that round numbers to levels become one instruction each: those of a fake quantiser and of its gradient.

use smallvec::{SmallVec, smallvec};

use crate::program::fused::{Arg, Function, Instruction, LevelFunction, Levels};
use crate::program::{Binary, Comparison, Unary};

/// `clamp(round(x * inverse) + zero, bounds)`
struct Chain {
    /// `x` and `inverse`, in any order, and `zero`.
    args: [Arg; 3],
    bounds: [f64; 2],
    /// The sum before it is clamped.
    sum: Arg,
}

/// Replaces the last instruction of each chain, whose other instructions may then be unread. Each instruction writes
/// to a register with its own number.
pub(super) fn combine(instructions: &mut [Instruction]) {
    for at in 0..instructions.len() {
        let Some((function, args)) = combined(instructions, at) else {
            continue;
        };
        let own = &mut instructions[at];
        (own.function, own.args) = (Function::Levels(function), args);
    }
}

fn combined(
    instructions: &[Instruction],
    at: usize,
) -> Option<(LevelFunction, SmallVec<[Arg; 4]>)> {
    let own = &instructions[at];
    let [a, b] = own.args[..] else { return None };
    match own.function {
        Function::Compare(Comparison::Eq) => either(a, b, |sum, levels| {
            let chain = chain_at(instructions, levels)?;
            let function = LevelFunction {
                gives: Levels::AreInside,
                bounds: chain.bounds,
            };
            let [x, inverse, zero] = chain.args;
            (chain.sum == sum).then(|| (function, smallvec![x, inverse, zero, Arg::Number(1.0)]))
        }),
        Function::Binary(Binary::Mul) => either(a, b, |distance, scale| {
            let distance = made(instructions, distance, Function::Binary(Binary::Sub))?;
            let [levels, zero] = distance.args[..] else {
                return None;
            };
            let chain = chain_at(instructions, levels)?;
            let [x, inverse, own_zero] = chain.args;
            let function = LevelFunction {
                gives: Levels::AsNumbers,
                bounds: chain.bounds,
            };
            (own_zero == zero).then(|| (function, smallvec![x, inverse, zero, scale]))
        }),
        _ => None,
    }
}

/// The chain whose clamp gives `levels`.
fn chain_at(instructions: &[Instruction], levels: Arg) -> Option<Chain> {
    let clamp = instruction(instructions, levels)?;
    let Function::Unary(Unary::Clamp(low, high)) = clamp.function else {
        return None;
    };
    if low > high {
        return None;
    }
    let sum = *clamp.args.first()?;
    let [a, b] = made(instructions, sum, Function::Binary(Binary::Add))?.args[..] else {
        return None;
    };
    either(a, b, |rounded, zero| {
        let round = made(instructions, rounded, Function::Unary(Unary::Round))?;
        let product = *round.args.first()?;
        let product = made(instructions, product, Function::Binary(Binary::Mul))?;
        let [x, inverse] = product.args[..] else {
            return None;
        };
        Some(Chain {
            args: [x, inverse, zero],
            bounds: [low, high],
            sum,
        })
    })
}

fn instruction(instructions: &[Instruction], value: Arg) -> Option<&Instruction> {
    match value {
        Arg::Register(number, _) => instructions.get(number),
        Arg::Input(_) | Arg::Number(_) => None,
    }
}

/// The instruction that computes `value`, if it has this function.
fn made(instructions: &[Instruction], value: Arg, function: Function) -> Option<&Instruction> {
    instruction(instructions, value).filter(|own| own.function == function)
}

/// What is found for the operands of a commutative function in either order.
fn either<R>(a: Arg, b: Arg, find: impl Fn(Arg, Arg) -> Option<R>) -> Option<R> {
    find(a, b).or_else(|| find(b, a))
}
