//! Chains of instructions become one instruction each: those that round numbers to levels, of a fake quantiser and of
//! its gradient, and selections by a comparison.

use smallvec::smallvec;

use crate::program::fused::{Arg, Args, Function, Instruction, LevelFunction, Levels};
use crate::program::{Binary, Comparison, Unary};

/// `clamp(round(x * inverse) + zero, bounds)`
struct Chain {
    /// `x` and `inverse`, in any order unless it is `ordered`, and `zero`.
    args: [Arg; 3],
    /// Whether negative infinity is rounded in place of NaN.
    ordered: bool,
    bounds: [f64; 2],
    /// The sum before it is clamped.
    sum: Arg,
}

/// Replaces the last instruction of each chain, whose other instructions may then be unread. Each instruction writes
/// to a register with its own number.
pub(super) fn all(instructions: &mut [Instruction]) {
    for at in 0..instructions.len() {
        let own = &instructions[at];
        let found = match own.function {
            Function::Compare(Comparison::Eq) => are_inside(instructions, own),
            Function::Binary(Binary::Mul) => as_numbers(instructions, own),
            Function::Where => keep_inside(instructions, own)
                .or_else(|| numbers_or_other(instructions, own))
                .or_else(|| selection(instructions, own)),
            _ => None,
        };
        if let Some((function, args)) = found {
            let own = &mut instructions[at];
            (own.function, own.args) = (function, args);
        }
    }
}

/// `level == clamped level`
fn are_inside(instructions: &[Instruction], own: &Instruction) -> Option<(Function, Args)> {
    let [a, b] = own.args[..] else { return None };
    either(a, b, |sum, levels| {
        let chain = chain_at(instructions, levels)?;
        let function = Function::Levels(LevelFunction {
            gives: Levels::AreInside,
            bounds: chain.bounds,
            ordered: chain.ordered,
        });
        (chain.sum == sum).then(|| (function, chain.args.into_iter().collect()))
    })
}

/// `(clamped level - zero) * scale`
fn as_numbers(instructions: &[Instruction], own: &Instruction) -> Option<(Function, Args)> {
    let [a, b] = own.args[..] else { return None };
    either(a, b, |distance, scale| {
        let distance = made(instructions, distance, Function::Binary(Binary::Sub))?;
        let [levels, zero] = distance.args[..] else {
            return None;
        };
        let chain = chain_at(instructions, levels)?;
        let function = Function::Levels(LevelFunction {
            gives: Levels::AsNumbers,
            bounds: chain.bounds,
            ordered: chain.ordered,
        });
        let [x, inverse, own_zero] = chain.args;
        let [always, other] = [1.0, 0.0].map(Arg::Number);
        (own_zero == zero).then(|| (function, smallvec![x, inverse, zero, scale, always, other]))
    })
}

/// The numbers of levels where a condition holds, elsewhere other numbers.
fn numbers_or_other(instructions: &[Instruction], own: &Instruction) -> Option<(Function, Args)> {
    let [condition, numbers, other] = own.args[..] else {
        return None;
    };
    let numbers = read_once(instructions, numbers, own)?;
    let Function::Levels(function) = numbers.function else {
        return None;
    };
    let [x, inverse, zero, scale, Arg::Number(1.0), _] = numbers.args[..] else {
        return None;
    };
    (function.gives == Levels::AsNumbers).then(|| {
        (
            numbers.function,
            smallvec![x, inverse, zero, scale, condition, other],
        )
    })
}

/// What is kept where levels are inside the bounds or a condition holds, elsewhere other numbers.
fn keep_inside(instructions: &[Instruction], own: &Instruction) -> Option<(Function, Args)> {
    let [condition, value, other] = own.args[..] else {
        return None;
    };
    let either_holds = read_once(instructions, condition, own)?;
    let (inside, always) = match (either_holds.function, &either_holds.args[..]) {
        (Function::Binary(Binary::Maximum), &[a, b]) => either(a, b, |inside, always| {
            let inside = read_once(instructions, inside, own)?;
            is_inside(inside.function).then_some((inside, always))
        })?,
        _ => (either_holds, Arg::Number(0.0)),
    };
    let Function::Levels(function) = inside.function else {
        return None;
    };
    let [x, inverse, zero] = inside.args[..] else {
        return None;
    };
    let function = LevelFunction {
        gives: Levels::KeepInside,
        ..function
    };
    let args = smallvec![x, inverse, zero, always, value, other];
    Some((Function::Levels(function), args))
}

fn is_inside(function: Function) -> bool {
    matches!(function, Function::Levels(own) if own.gives == Levels::AreInside)
}

/// The choice between two numbers by a comparison.
fn selection(instructions: &[Instruction], own: &Instruction) -> Option<(Function, Args)> {
    let [condition, x, y] = own.args[..] else {
        return None;
    };
    let compared = read_once(instructions, condition, own)?;
    let (Function::Compare(comparison), &[a, b]) = (compared.function, &compared.args[..]) else {
        return None;
    };
    Some((Function::Select(comparison), smallvec![a, b, x, y]))
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
        let [a, b] = product.args[..] else {
            return None;
        };
        let ordered = |x, inverse| Some((made_ordered(instructions, x)?, inverse));
        let found = ordered(a, b).or_else(|| ordered(b, a));
        let (x, inverse) = found.unwrap_or((a, b));
        Some(Chain {
            args: [x, inverse, zero],
            ordered: found.is_some(),
            bounds: [low, high],
            sum,
        })
    })
}

/// What `value` is but for NaN, in place of which it is negative infinity.
fn made_ordered(instructions: &[Instruction], value: Arg) -> Option<Arg> {
    let choice = made(instructions, value, Function::Select(Comparison::Eq))?;
    match choice.args[..] {
        [a, b, x, Arg::Number(f64::NEG_INFINITY)] if a == x && b == x => Some(x),
        _ => None,
    }
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

/// The instruction that computes `value`, as many numbers as `reader` does, if nothing else reads it.
fn read_once<'a>(
    instructions: &'a [Instruction],
    value: Arg,
    reader: &Instruction,
) -> Option<&'a Instruction> {
    let reads = instructions.iter().flat_map(|own| &own.args);
    let once = reads.filter(|own| **own == value).count() == 1;
    instruction(instructions, value).filter(|own| once && own.width == reader.width)
}

/// What is found for the operands of a commutative function in either order.
fn either<R>(a: Arg, b: Arg, find: impl Fn(Arg, Arg) -> Option<R>) -> Option<R> {
    find(a, b).or_else(|| find(b, a))
}
