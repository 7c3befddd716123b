use crate::data::{Data, DataMut};
use crate::program::Comparison;
use crate::program::fused::{
    Access, Arg, Function, Fused, Instruction, LevelFunction, Levels, Target, Width,
};
use crate::program::{Binary, Element, Reduction, Unary};

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
        );
        assert_eq!(over, out);
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
        registers: 1,
    };
    let x: Vec<f32> = (0..9000).map(|i| (i * 7 % 100) as f32).collect();
    let mut out = vec![9; x.len()];
    fused.run(
        &[Data::F32(&x), Data::I64(&[40])],
        false,
        DataMut::Bool(&mut out),
    );
    let expected: Vec<u8> = x.iter().map(|&x| u8::from(x < 40.0)).collect();
    assert_eq!(out, expected);
    assert_eq!(fused.to_string(), "Lt");
}

/// Levels in one pass are those of the single operators, of numbers, rows and elements as parameters.
#[test]
fn levels_are_those_of_single_operators() {
    let (rows, row) = (3, 100);
    let len = rows * row;
    let mut x: Vec<f32> = (0..len).map(|at| (at as f32 - 150.0) * 0.37).collect();
    (x[5], x[6], x[7], x[8]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0);
    let parameters = |count: usize, from: f32| -> Vec<f32> {
        (0..count).map(|at| from + 0.25 * (at % 7) as f32).collect()
    };
    let bounds = [-20.0, 25.0];
    for shape in [&[1][..], &[rows, 1], &[rows, row]] {
        let count = shape.iter().product();
        let [inverse, zero, scale] = [1.5, -2.0, 0.5].map(|from| parameters(count, from));
        let expected = |at: usize| {
            let own = |data: &[f32]| data[at * count / len];
            let level = (x[at] * own(&inverse)).round_ties_even() + own(&zero);
            let inside = f32::from(u8::from((-20.0..=25.0).contains(&level)));
            let level = if level.is_nan() {
                level
            } else {
                level.clamp(-20.0, 25.0)
            };
            [inside, (level - own(&zero)) * own(&scale)]
        };
        for (number, gives) in [Levels::AreInside, Levels::AsNumbers]
            .into_iter()
            .enumerate()
        {
            for swapped in [false, true] {
                let function = Function::Levels(LevelFunction { gives, bounds });
                let access = Access::of(shape, &[rows, row]);
                // Broadcast operands are loaded into registers.
                let load = |input| Function::Load {
                    input,
                    levels: false,
                };
                let tile = Width::Tile;
                let mut instructions: Vec<Instruction> = (0..3)
                    .map(|at| instruction(load(at + 1), &[], tile, Target::Register(at)))
                    .collect();
                let mut args = vec![
                    Arg::Input(0),
                    Arg::Register(0, tile),
                    Arg::Register(1, tile),
                    Arg::Register(2, tile),
                ];
                if swapped {
                    args.swap(0, 1);
                }
                instructions.push(instruction(function, &args, tile, Target::Result));
                let fused = Fused {
                    element: Element::F32,
                    len,
                    row: None,
                    inputs: vec![Access::Whole, access.clone(), access.clone(), access],
                    instructions,
                    registers: 3,
                };
                let mut out = vec![f32::NAN; len];
                let inputs = [&x, &inverse, &zero, &scale].map(|own| Data::F32(own));
                fused.run(&inputs, false, DataMut::F32(&mut out));
                for (at, found) in out.iter().enumerate() {
                    let expected = expected(at)[number];
                    assert_eq!(
                        found.to_bits(),
                        expected.to_bits(),
                        "{shape:?} {gives:?} {at}"
                    );
                }
            }
        }
    }
}
