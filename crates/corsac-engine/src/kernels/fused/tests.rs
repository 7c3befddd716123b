use crate::data::{Data, DataMut};
use crate::program::Comparison;
use crate::program::fused::{
    Access, Arg, Function, Fused, Instruction, LevelFunction, Levels, Target, Width,
};
use crate::program::{Binary, Element, Reduction, Unary, ValueId};

/// All elements of a tensor of shape `shape` broadcast to `result`, one by one.
fn repeated(data: &[f32], shape: &[usize], result: &[usize]) -> Vec<f32> {
    let len = result.iter().product();
    let missing = result.len() - shape.len();
    (0..len)
        .map(|index: usize| {
            let (mut rest, mut at, mut step) = (index, 0, 1);
            for dim in (0..result.len()).rev() {
                let here = rest % result[dim];
                rest /= result[dim];
                if dim >= missing {
                    let own = shape[dim - missing];
                    at += if own == 1 { 0 } else { here * step };
                    step *= own;
                }
            }
            data[at]
        })
        .collect()
}

#[test]
fn repeated_elements_are_found_from_anywhere_on() {
    let result = [3, 4, 1, 5];
    for shape in [
        &[4, 1, 5][..],
        &[5],
        &[1, 4, 1, 1],
        &[3, 1, 1, 5],
        &[3, 4, 1, 1],
        &[3, 1, 1, 1],
    ] {
        let count = shape.iter().product::<usize>();
        let data: Vec<f32> = (0..count).map(|x| x as f32).collect();
        let expected = repeated(&data, shape, &result);
        let Access::Broadcast(broadcast) = Access::of(shape, &result) else {
            panic!("{shape:?} is repeated");
        };
        for start in 0..60 {
            for len in [1, 7, 60] {
                let mut out = vec![f32::NAN; len.min(60 - start)];
                broadcast.read(&data, start, &mut out, |x| x);
                assert_eq!(
                    out,
                    expected[start..][..out.len()],
                    "{shape:?} from {start}"
                );
            }
        }
    }
    assert_eq!(Access::of(&[1, 3, 4, 1, 5], &[3, 4, 1, 5]), Access::Whole);
    assert_eq!(Access::of(&[1, 1], &[3, 4, 1, 5]), Access::Number);
}

fn instruction(function: Function, args: &[Arg], width: Width, target: Target) -> Instruction {
    Instruction {
        function,
        args: args.into(),
        width,
        target,
    }
}

/// `relu(x - mean of the row) * y`, with more rows than a tile has.
fn centred(rows: usize, row: usize) -> Fused {
    let (tile, each) = (Width::Tile, Width::Row);
    Fused {
        element: Element::F32,
        len: rows * row,
        row: Some(row),
        inputs: vec![Access::Whole, Access::of(&[row], &[rows, row])],
        instructions: vec![
            instruction(
                Function::Reduce(Reduction::Mean),
                &[Arg::Input(0)],
                each,
                Target::Register(0),
            ),
            instruction(
                Function::Binary(Binary::Sub),
                &[Arg::Input(0), Arg::Register(0, each)],
                tile,
                Target::Register(1),
            ),
            instruction(
                Function::Unary(Unary::Relu),
                &[Arg::Register(1, tile)],
                tile,
                Target::Register(1),
            ),
            instruction(
                Function::Load {
                    input: 1,
                    levels: false,
                },
                &[],
                tile,
                Target::Register(0),
            ),
            instruction(
                Function::Binary(Binary::Mul),
                &[Arg::Register(1, tile), Arg::Register(0, tile)],
                tile,
                Target::Result,
            ),
        ],
        row_result: None,
        registers: 2,
    }
}

#[test]
fn rows_are_whole_in_tiles_and_results_may_overwrite_the_input() {
    for [rows, row] in [[1, 3], [3, 5000], [700, 7], [130, 64]] {
        let fused = centred(rows, row);
        let x: Vec<f32> = (0..rows * row).map(|i| (i % 13) as f32 - 4.0).collect();
        let y: Vec<f32> = (0..row).map(|i| (i % 5) as f32 + 1.0).collect();
        let mut expected = Vec::new();
        for own in x.chunks(row) {
            let sum: f64 = own.iter().map(|&x| f64::from(x)).sum();
            let mean = sum / row as f64;
            let of = |(&x, &y): (&f32, &f32)| (f64::from(x) - mean).max(0.0) * f64::from(y);
            expected.extend(own.iter().zip(&y).map(of));
        }
        let mut out = vec![f32::NAN; x.len()];
        fused.run(
            &[Data::F32(&x), Data::F32(&y)],
            false,
            DataMut::F32(&mut out),
            &mut [],
        );
        for (at, (&found, &expected)) in out.iter().zip(&expected).enumerate() {
            assert!(
                (f64::from(found) - expected).abs() < 1e-4,
                "{rows}x{row}: {at}"
            );
        }
        let mut over = x.clone();
        fused.run(
            &[Data::F32(&[]), Data::F32(&y)],
            true,
            DataMut::F32(&mut over),
            &mut [],
        );
        assert_eq!(over, out);
    }
}

#[test]
fn numbers_for_rows_are_computed_beside_the_result() {
    for [rows, row] in [[1, 3], [3, 5000], [700, 7], [130, 64]] {
        let mut fused = centred(rows, row);
        fused.row_result = Some(ValueId::new(0));
        let sum = instruction(
            Function::Reduce(Reduction::Sum),
            &[Arg::Register(1, Width::Tile)],
            Width::Row,
            Target::RowResult,
        );
        fused.instructions.insert(4, sum);
        let x: Vec<f32> = (0..rows * row).map(|i| (i % 13) as f32 - 4.0).collect();
        let y: Vec<f32> = (0..row).map(|i| (i % 5) as f32 + 1.0).collect();
        let mut alone = vec![f32::NAN; x.len()];
        centred(rows, row).run(
            &[Data::F32(&x), Data::F32(&y)],
            false,
            DataMut::F32(&mut alone),
            &mut [],
        );
        let (mut out, mut sums) = (x.clone(), vec![f32::NAN; rows]);
        fused.run(
            &[Data::F32(&[]), Data::F32(&y)],
            true,
            DataMut::F32(&mut out),
            &mut sums,
        );
        assert_eq!(out, alone);
        for (at, (&found, own)) in sums.iter().zip(out.chunks(row)).enumerate() {
            let sum: f64 = own.iter().zip(&y).map(|(&x, &y)| f64::from(x / y)).sum();
            assert!(
                (f64::from(found) - sum).abs() <= 1e-5 * sum,
                "{rows}x{row}: {at}"
            );
        }
    }
}

#[test]
fn truth_values_are_bytes() {
    let fused = Fused {
        element: Element::F32,
        len: 9000,
        row: None,
        inputs: vec![Access::Whole, Access::Number],
        instructions: vec![
            instruction(
                Function::Load {
                    input: 1,
                    levels: false,
                },
                &[],
                Width::Tile,
                Target::Register(0),
            ),
            instruction(
                Function::Compare(Comparison::Lt),
                &[Arg::Input(0), Arg::Register(0, Width::Tile)],
                Width::Tile,
                Target::Result,
            ),
        ],
        row_result: None,
        registers: 1,
    };
    let x: Vec<f32> = (0..9000).map(|i| (i * 7 % 100) as f32).collect();
    let mut out = vec![9; x.len()];
    fused.run(
        &[Data::F32(&x), Data::I64(&[40])],
        false,
        DataMut::Bool(&mut out),
        &mut [],
    );
    let expected: Vec<u8> = x.iter().map(|&x| u8::from(x < 40.0)).collect();
    assert_eq!(out, expected);
    assert_eq!(fused.to_string(), "Lt");
}

/// Runs one instruction on operands that are broadcast to `[rows, row]`: loaded into registers, or, `in_rows`, read as
/// numbers for rows.
fn run_one(
    function: Function,
    operands: &[&[f32]],
    [rows, row]: [usize; 2],
    in_rows: bool,
) -> Vec<f32> {
    let access = |data: &[f32]| match data.len() {
        1 => Access::Number,
        len if len == rows && in_rows => Access::Rows,
        len if len == rows => Access::of(&[rows, 1], &[rows, row]),
        _ => Access::Whole,
    };
    let inputs: Vec<Access> = operands.iter().map(|data| access(data)).collect();
    let mut instructions = Vec::new();
    let args: Vec<Arg> = inputs
        .iter()
        .enumerate()
        .map(|(input, access)| match access {
            Access::Broadcast(_) => {
                let register = instructions.len();
                let load = Function::Load {
                    input,
                    levels: false,
                };
                let target = Target::Register(register);
                instructions.push(instruction(load, &[], Width::Tile, target));
                Arg::Register(register, Width::Tile)
            }
            _ => Arg::Input(input),
        })
        .collect();
    let registers = instructions.len();
    instructions.push(instruction(function, &args, Width::Tile, Target::Result));
    let fused = Fused {
        element: Element::F32,
        len: rows * row,
        row: in_rows.then_some(row),
        inputs,
        instructions,
        row_result: None,
        registers,
    };
    let mut out = vec![f32::NAN; rows * row];
    let inputs: Vec<Data<'_>> = operands.iter().map(|own| Data::F32(own)).collect();
    fused.run(&inputs, false, DataMut::F32(&mut out), &mut []);
    out
}

/// As many numbers as one, the rows or the elements of `[rows, row]`, of those in `cycle`.
fn repeating(cycle: &[f32], shape: [usize; 2]) -> [Vec<f32>; 3] {
    [1, shape[0], shape[0] * shape[1]]
        .map(|count| cycle.iter().copied().cycle().take(count).collect())
}

/// Checks an instruction for all ways in which its operands may be given, `whole` of them for each element at least
/// once: its result is `expected` of the numbers at each place.
fn check(function: Function, cycles: &[&[f32]], expected: impl Fn(&[f32]) -> f32) {
    let [rows, row] = [3, 100];
    let len = rows * row;
    let all: Vec<[Vec<f32>; 3]> = cycles
        .iter()
        .map(|own| repeating(own, [rows, row]))
        .collect();
    for way in 0..3_usize.pow(cycles.len() as u32) {
        let operands: Vec<&[f32]> = all
            .iter()
            .enumerate()
            .map(|(at, own)| &own[way / 3_usize.pow(at as u32) % 3][..])
            .collect();
        for in_rows in [false, true] {
            let found = run_one(function, &operands, [rows, row], in_rows);
            for (at, found) in found.iter().enumerate() {
                let numbers: Vec<f32> = operands
                    .iter()
                    .map(|own| own[at * own.len() / len])
                    .collect();
                let expected = expected(&numbers);
                let alike =
                    found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(
                    alike,
                    "{function:?} of {numbers:?} at {at}, way {way}, {in_rows}: {found}, not {expected}"
                );
            }
        }
    }
}

const NUMBERS: [f32; 9] = [
    0.75,
    f32::NAN,
    -13.3,
    f32::INFINITY,
    17.2,
    f32::NEG_INFINITY,
    -0.0,
    300.0,
    -12.9,
];

#[test]
fn levels_are_those_of_single_operators() {
    let bounds = [-20.0, 25.0];
    let inside = |level: f32| (-20.0..=25.0).contains(&level);
    let (inverse, zero, scale) = (&[1.5, -1.75, 0.0, 2.5], &[-2.0, 3.0], &[0.5, 0.25, 0.125]);
    for ordered in [false, true] {
        let level = |x: f32, inverse: f32, zero: f32| {
            let x = if ordered && x.is_nan() {
                f32::NEG_INFINITY
            } else {
                x
            };
            (x * inverse).round_ties_even() + zero
        };
        let levels = |gives| {
            Function::Levels(LevelFunction {
                gives,
                bounds,
                ordered,
            })
        };
        check(
            levels(Levels::AreInside),
            &[&NUMBERS, inverse, zero],
            |own| f32::from(u8::from(inside(level(own[0], own[1], own[2])))),
        );
        let (always, kept): (&[f32], &[f32]) = (&[0.0, 0.0, 1.0], &[7.0, -0.0, 9.0]);
        check(
            levels(Levels::KeepInside),
            &[&NUMBERS, inverse, zero, always, kept, &[0.0, 5.0]],
            |own| match inside(level(own[0], own[1], own[2])) || own[3] != 0.0 {
                true => own[4],
                false => own[5],
            },
        );
        check(
            levels(Levels::AsNumbers),
            &[&NUMBERS, inverse, zero, scale, &[1.0, 0.0], &[3.0, -0.0]],
            |own| {
                let level = level(own[0], own[1], own[2]);
                let level = if level.is_nan() {
                    level
                } else {
                    level.clamp(-20.0, 25.0)
                };
                match own[4] != 0.0 {
                    true => (level - own[2]) * own[3],
                    false => own[5],
                }
            },
        );
    }
}

/// The number that is rounded may be the second operand.
#[test]
fn operands_of_levels_may_be_exchanged() {
    let [rows, row] = [3, 100];
    let [_, _, x] = repeating(&NUMBERS, [rows, row]);
    let function = Function::Levels(LevelFunction {
        gives: Levels::AreInside,
        bounds: [-20.0, 25.0],
        ordered: false,
    });
    let (inverse, zero) = ([1.5, 2.0, 0.5], [1.0]);
    let found = [[&x[..], &inverse], [&inverse, &x]]
        .map(|[a, b]| run_one(function, &[a, b, &zero], [rows, row], true));
    let expected: Vec<f32> = x
        .iter()
        .enumerate()
        .map(|(at, x)| (x * inverse[at / row]).round_ties_even() + 1.0)
        .map(|level| f32::from(u8::from((-20.0..=25.0).contains(&level))))
        .collect();
    assert_eq!(found, [expected.clone(), expected]);
}

#[test]
fn choices_are_those_of_comparisons() {
    let others: &[f32] = &[-13.3, 0.75, f32::NAN, 17.2];
    type Compare = fn(&f32, &f32) -> bool;
    let comparisons: [(Comparison, Compare); 6] = [
        (Comparison::Eq, |a, b| a == b),
        (Comparison::Ne, |a, b| a != b),
        (Comparison::Lt, |a, b| a < b),
        (Comparison::Le, |a, b| a <= b),
        (Comparison::Gt, |a, b| a > b),
        (Comparison::Ge, |a, b| a >= b),
    ];
    let chosen = |is_first: bool, [x, y]: [f32; 2]| if is_first { x } else { y };
    let (x, y): (&[f32], &[f32]) = (&[-0.0, f32::NAN, 3.0], &[0.0, 9.0]);
    for (comparison, holds) in comparisons {
        check(Function::Compare(comparison), &[&NUMBERS, others], |own| {
            f32::from(u8::from(holds(&own[0], &own[1])))
        });
        check(
            Function::Select(comparison),
            &[&NUMBERS, others, x, y],
            |own| chosen(holds(&own[0], &own[1]), [own[2], own[3]]),
        );
    }
    check(
        Function::Where,
        &[&[0.0, 1.0, -0.0, f32::NAN], x, y],
        |own| chosen(own[0] != 0.0, [own[1], own[2]]),
    );
}
