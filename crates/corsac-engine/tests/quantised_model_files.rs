//! Model files with weights of 4 and 8 bits: their version, results by hand, and hostile ones.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use corsac_engine::{
    DType, Limits, Model, ModelErrorKind, ModelFile, Tensor, TensorSpec, model_bytes,
};
use corsac_ir::Graph;
use corsac_testkit::model_header::edited;
use proptest::prelude::*;

fn spec(name: &str, dtype: DType, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    }
}

fn floats(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn ints(elements: &[i32]) -> Vec<u8> {
    elements.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A linear layer of quantised numbers and a weight with a scale for each row, then one of a packed
/// weight with a scale for each two numbers.
fn network() -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %q = call_function[target=torch.ops.corsac.quantize_per_tensor.default](args = (%x, 0.5, 3, 0, 255, torch.uint8), kwargs = {})
        %d = call_function[target=torch.ops.corsac.dequantize_per_tensor.default](args = (%q, 0.5, 3, 0, 255, torch.uint8), kwargs = {})
        %w = get_attr[target=fc.weight]
        %s = get_attr[target=fc.scale]
        %z = get_attr[target=fc.zero_point]
        %f = call_function[target=torch.ops.corsac.dequantize_per_channel.default](args = (%w, %s, %z, 0, -128, 127, torch.int8), kwargs = {})
        %y = call_function[target=torch.nn.functional.linear](args = (%d, %f), kwargs = {})
        %p = get_attr[target=out.weight]
        %t = get_attr[target=out.scale]
        %u = call_function[target=torch.ops.corsac.unpack_int4.default](args = (%p,), kwargs = {})
        %g = call_function[target=torch.ops.corsac.dequantize_per_channel_group.default](args = (%u, %t, None, -8, 7, torch.int8, 2), kwargs = {})
        %r = call_function[target=torch.nn.functional.linear](args = (%y, %g), kwargs = {})
        %output = output[target=output](args = (%r,), kwargs = {})",
    )
    .unwrap();
    let weights = [
        (
            spec("fc.weight", DType::Int8, &[4, 3]),
            vec![1, 2, 3, 253, 0, 4, 127, 128, 5, 6, 7, 248],
        ),
        (
            spec("fc.scale", DType::Float32, &[4]),
            floats(&[0.5, 0.25, 1.0, 2.0]),
        ),
        (
            spec("fc.zero_point", DType::Int32, &[4]),
            ints(&[0, 1, -2, 0]),
        ),
        (
            spec("out.weight", DType::UInt8, &[2, 2]),
            vec![0x71, 0x8f, 0x20, 0x13],
        ),
        (
            spec("out.scale", DType::Float32, &[2, 2]),
            floats(&[1.0, 0.5, 0.25, 2.0]),
        ),
    ];
    let weights: Vec<_> = weights.iter().map(|(s, b)| (s.clone(), &b[..])).collect();
    model_bytes(&graph, &[spec("x", DType::Float32, &[2, 3])], &weights).unwrap()
}

/// A linear layer in bfloat16, and one of floats behind it.
fn rounded_network() -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %h = call_method[target=to](args = (%x, torch.bfloat16), kwargs = {})
        %w = get_attr[target=half.weight]
        %b = get_attr[target=half.bias]
        %l = call_function[target=torch.nn.functional.linear](args = (%h, %w, %b), kwargs = {})
        %f = call_method[target=to](args = (%l, torch.float32), kwargs = {})
        %v = get_attr[target=out.weight]
        %y = call_function[target=torch.nn.functional.linear](args = (%f, %v), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})",
    )
    .unwrap();
    let halves = |numbers: &[f32]| -> Vec<u8> {
        let bits = numbers.iter().map(|own| (own.to_bits() >> 16) as u16);
        bits.flat_map(u16::to_le_bytes).collect()
    };
    let weights = [
        (
            spec("half.weight", DType::BFloat16, &[2, 3]),
            halves(&[1.0, -2.0, 0.5, 4.0, 0.25, -1.0]),
        ),
        (
            spec("half.bias", DType::BFloat16, &[2]),
            halves(&[0.5, -8.0]),
        ),
        (
            spec("out.weight", DType::Float32, &[1, 2]),
            floats(&[1.0, 0.125]),
        ),
    ];
    let weights: Vec<_> = weights.iter().map(|(s, b)| (s.clone(), &b[..])).collect();
    model_bytes(&graph, &[spec("x", DType::Float32, &[2, 3])], &weights).unwrap()
}

#[test]
fn weights_of_bfloat16_come_from_files() {
    let bytes = rounded_network();
    assert!(String::from_utf8_lossy(&bytes).contains(r#""corsac.format":"2""#));
    let model = load(bytes).unwrap();
    // 1 + 2^-9 is rounded to 1.
    let input = Tensor::new([2, 3], vec![1.001_953_1_f32, 2.0, 4.0, -1.0, 0.0, 8.0]).unwrap();
    let found = model.run(&[input]).unwrap();
    // (1 - 4 + 2 + 0.5) + (4 + 0.5 - 4 - 8) / 8, (-1 + 4 + 0.5) + (-4 - 8 - 8) / 8.
    assert_eq!(found[0].as_f32().unwrap(), [-1.4375, 1.0]);
}

fn load(bytes: Vec<u8>) -> Result<Model, corsac_engine::ModelError> {
    ModelFile::from_bytes(bytes, &Limits::default()).and_then(Model::from_file)
}

#[test]
fn integers_run_from_a_file() {
    let file = ModelFile::from_bytes(network(), &Limits::default()).unwrap();
    let dtypes: Vec<DType> = file.weights().map(|own| own.dtype).collect();
    use DType::{Float32, Int8, Int32, UInt8};
    assert_eq!(dtypes, [Int8, Float32, Int32, UInt8, Float32]);
    let model = Model::from_file(file).unwrap().with_threads(1);
    let x = Tensor::new([2, 3], [1.0_f32, -0.6, 0.25, 200.0, -9.0, 2.0]).unwrap();
    let got = model.run(&[x]).unwrap();
    // Levels [5, 2, 3] (0.25 is halfway between 0 and 0.5: to even) and [255, 0, 7].
    let numbers = [[1.0, -0.5, 0.0], [126.0, -1.5, 2.0]];
    let weight: [[f32; 3]; 4] = [
        [0.5, 1.0, 1.5],
        [-1.0, -0.25, 0.75],
        [129.0, -126.0, 7.0],
        [12.0, 14.0, -16.0],
    ];
    let packed: [[f32; 4]; 2] = [[1.0, 7.0, -0.5, -4.0], [0.0, 0.5, 6.0, 2.0]];
    let mut expected = Vec::new();
    for row in numbers {
        let hidden = weight.map(|own| own.iter().zip(row).map(|(a, b)| a * b).sum::<f32>());
        expected.extend(packed.map(|own| own.iter().zip(hidden).map(|(a, b)| a * b).sum::<f32>()));
    }
    assert_eq!(got[0].as_f32(), Some(&expected[..]));
}

#[test]
fn only_narrow_integers_need_the_second_version() {
    let bytes = network();
    let header = String::from_utf8_lossy(&bytes);
    assert!(header.contains("\"corsac.format\":\"2\""), "{header}");
    // Files of before the second version had the same contents.
    let before = edited(&bytes, "\"corsac.format\":\"2\"", "\"corsac.format\":\"1\"");
    assert!(load(before).is_ok());
    let graph = Graph::parse(
        "graph v1:
        %i = placeholder[target=i]
        %w = get_attr[target=w]
        %s = call_function[target=operator.add](args = (%i, %w), kwargs = {})
        %output = output[target=output](args = (%s,), kwargs = {})",
    )
    .unwrap();
    let inputs = [spec("i", DType::Int64, &[2])];
    let weights = [(spec("w", DType::Int64, &[2]), &[0_u8; 16][..])];
    let wide = model_bytes(&graph, &inputs, &weights).unwrap();
    assert!(String::from_utf8_lossy(&wide).contains("\"corsac.format\":\"1\""));
}

#[test]
fn files_of_integers_that_were_edited_are_errors() {
    use ModelErrorKind::{Damaged, Unsupported, Version};
    let cases: &[(&str, &str, ModelErrorKind, &str)] = &[
        (
            "\"corsac.format\":\"2\"",
            "\"corsac.format\":\"7\"",
            Version,
            "reads versions 1 to 6",
        ),
        (
            "\"corsac.graph\"",
            "\"corsac.more\":\"\",\"corsac.graph\"",
            Damaged,
            "version 2 has no key",
        ),
        // Weights of other types and shapes.
        (
            "\"I8\"",
            "\"U8\"",
            Damaged,
            "expected integers of torch.int8, got torch.uint8",
        ),
        ("\"U8\"", "\"I8\"", Damaged, "node u of the graph"),
        (
            "\"I8\"",
            "\"F8_E4M3\"",
            Damaged,
            "expected integers of torch.int8",
        ),
        (
            "\"I8\"",
            "\"BOOL\"",
            Damaged,
            "expected integers of torch.int8",
        ),
        (
            "\"shape\":[4,3]",
            "\"shape\":[3,4]",
            Damaged,
            "node y of the graph",
        ),
        (
            "\"shape\":[4,3]",
            "\"shape\":[12]",
            Damaged,
            "node y of the graph",
        ),
        // Parameters of another number or type.
        (
            "(%w, %s, %z, 0",
            "(%w, %t, %z, 0",
            Damaged,
            "the number of nodes",
        ),
        (
            "(%w, %s, %z, 0",
            "(%w, %s, %z, 1",
            Unsupported,
            "4 scales or zero points for 3 channels",
        ),
        (
            "(%w, %s, %z, 0",
            "(%w, %s, %z, 7",
            Unsupported,
            "f (torch.ops.corsac.dequantize_per_channel",
        ),
        (
            "(%w, %s, %z, 0",
            "(%w, %s, None, 0",
            Damaged,
            "the number of nodes",
        ),
        (
            "(%x, 0.5, 3, 0, 255",
            "(%x, 0.5, 3, 255, 0",
            Unsupported,
            "quant_min 255 above quant_max 0",
        ),
        (
            "(%x, 0.5, 3, 0, 255",
            "(%x, 0.5, 3, -300, 255",
            Unsupported,
            "levels from -300 to 255 in torch.uint8",
        ),
        (
            "(%x, 0.5, 3, 0, 255",
            "(%x, 0.5, 3, 0, 256",
            Unsupported,
            "levels from 0 to 256 in torch.uint8",
        ),
        (
            "(%x, 0.5, 3, 0, 255",
            "(%x, 0.5, 3, nan, 255",
            Unsupported,
            "quant_min",
        ),
        (
            "(%x, 0.5, 3, 0, 255",
            "(%x, 0.5, 9223372036854775807, 0, 255",
            Unsupported,
            "zero_point",
        ),
        (
            "(%x, 0.5, 3, 0, 255, torch.uint8",
            "(%x, 0.5, 3, 0, 255, torch.float32",
            Damaged,
            "node d of the graph",
        ),
        // Groups that do not divide, or have other numbers of scales.
        (
            "torch.int8, 2)",
            "torch.int8, 3)",
            Unsupported,
            "groups of 3 that do not divide rows of 4",
        ),
        (
            "torch.int8, 2)",
            "torch.int8, 4)",
            Unsupported,
            "4 scales or zero points for 2",
        ),
        (
            "torch.int8, 2)",
            "torch.int8, 0)",
            Unsupported,
            "groups of 0",
        ),
        (
            "torch.int8, 2)",
            "torch.int8, -2)",
            Unsupported,
            "group_size is negative",
        ),
        (
            "torch.int8, 2)",
            "torch.int8, 9223372036854775807)",
            Unsupported,
            "do not divide rows",
        ),
    ];
    let whole = network();
    let mut faults = Vec::new();
    for (from, to, kind, message) in cases {
        match load(edited(&whole, from, to)) {
            Ok(_) => faults.push(format!("{from} -> {to}: accepted")),
            Err(error) => {
                let text = error.to_string();
                if error.kind() != *kind || !text.contains(message) {
                    faults.push(format!("{from} -> {to}: {:?} {text}", error.kind()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Zero points may be numbers, and parameters of any shape.
    for (from, to) in [("\"I32\"", "\"F32\""), ("\"shape\":[4]", "\"shape\":[2,2]")] {
        assert!(load(edited(&whole, from, to)).is_ok(), "{from} -> {to}");
    }
    for len in 0..whole.len() {
        let error = load(whole[..len].to_vec()).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Damaged, "{len}: {error}");
    }
}

/// A model of the weight `w` of this type and shape, its scales `s` and zero points `z`.
fn dequantised(w: (DType, &[usize]), s: (DType, usize), z: (DType, usize), call: &str) -> Vec<u8> {
    let graph = Graph::parse(&format!(
        "graph v1:
        %x = placeholder[target=x]
        %w = get_attr[target=w]
        %s = get_attr[target=s]
        %z = get_attr[target=z]
        %f = call_function[target=torch.ops.corsac.{call}
        %y = call_function[target=torch.nn.functional.linear](args = (%x, %f), kwargs = {{}})
        %output = output[target=output](args = (%y,), kwargs = {{}})"
    ))
    .unwrap();
    let bytes = |dtype, len| {
        let size = match dtype {
            DType::Float64 | DType::Int64 => 8,
            DType::Float32 | DType::Int32 => 4,
            DType::Float16 | DType::Int16 => 2,
            _ => 1,
        };
        vec![1_u8; size * len]
    };
    let len = w.1.iter().product();
    let data = [bytes(w.0, len), bytes(s.0, s.1), bytes(z.0, z.1)];
    let specs = [
        spec("w", w.0, w.1),
        spec("s", s.0, &[s.1]),
        spec("z", z.0, &[z.1]),
    ];
    let weights: Vec<_> = specs
        .into_iter()
        .zip(data.iter().map(|own| &own[..]))
        .collect();
    model_bytes(&graph, &[spec("x", DType::Float32, &[1, 4])], &weights).unwrap()
}

#[test]
fn parameters_that_do_not_fit_are_errors() {
    use DType::{Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64};
    let channels =
        "dequantize_per_channel](args = (%w, %s, %z, 0, -128, 127, torch.int8), kwargs = {})";
    let groups =
        "dequantize_per_channel_group](args = (%w, %s, %z, -128, 127, torch.int8, 2), kwargs = {})";
    let matrix = (Int8, &[3, 4][..]);
    for zeros in [Int8, Int16, Int32, Int64, Float32] {
        assert!(load(dequantised(matrix, (Float32, 3), (zeros, 3), channels)).is_ok());
        assert!(load(dequantised(matrix, (Float32, 6), (zeros, 6), groups)).is_ok());
    }
    assert!(load(dequantised(matrix, (Float16, 3), (Int32, 3), channels)).is_ok());
    let refused = [
        (matrix, (Float32, 2), (Int32, 3), channels, "2 scales"),
        (
            matrix,
            (Float32, 3),
            (Int32, 2),
            channels,
            "2 scales or zero points",
        ),
        (
            matrix,
            (Float32, 3),
            (Int32, 0),
            channels,
            "0 scales or zero points",
        ),
        (matrix, (Float32, 3), (Bool, 3), channels, "of bool"),
        (matrix, (Bool, 3), (Int32, 3), channels, "of bool"),
        (
            matrix,
            (Float64, 3),
            (Int32, 3),
            channels,
            "scales or zero points of float64",
        ),
        (
            matrix,
            (Float32, 6),
            (Int32, 5),
            groups,
            "5 scales or zero points",
        ),
        (matrix, (Float32, 5), (Int32, 6), groups, "5 scales"),
        (
            (Int8, &[3, 2, 2]),
            (Float32, 6),
            (Int32, 6),
            groups,
            "node y of the graph",
        ),
        (
            (Int8, &[]),
            (Float32, 1),
            (Int32, 1),
            channels,
            "node y of the graph",
        ),
    ];
    let mut faults = Vec::new();
    for (w, s, z, call, message) in refused {
        match load(dequantised(w, s, z, call)) {
            Ok(_) => faults.push(format!("{message}: accepted")),
            Err(error) => {
                let text = error.to_string();
                if error.kind() == ModelErrorKind::Internal || !text.contains(message) {
                    faults.push(format!("{message}: {:?} {text}", error.kind()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Words for a graph of integers.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "255",
    "-128",
    "9223372036854775807",
    "1e308",
    "1e-46",
    "nan",
    "-inf",
    "None",
    "True",
    "(1, 2)",
    "%x",
    "%w",
    "%y",
    "%s",
    "%z",
    "%p",
    "%t",
    "torch.int8",
    "torch.uint8",
    "torch.int32",
    "torch.uint16",
    "torch.float16",
    "quantize_per_channel",
    "unpack_int4",
    "dequantize_per_token",
    "choose_qparams_per_token",
    "quantize_per_token",
    "default",
    "dequantize_per_tensor",
    "I8",
    "U8",
    "I16",
    "F32",
    "BOOL",
];

/// Loads `bytes` with small limits, and runs the model if it loads.
fn survives(bytes: Vec<u8>) {
    let limits = Limits {
        value_bytes: 1 << 22,
        ..Limits::default()
    };
    let model = match ModelFile::from_bytes(bytes, &limits).and_then(Model::from_file) {
        Ok(model) => model.with_threads(1),
        Err(error) => return assert_ne!(error.kind(), ModelErrorKind::Internal, "{error}"),
    };
    let inputs = model.inputs().iter().map(|own| own.zeros().unwrap());
    let inputs: Vec<Tensor> = inputs.collect();
    if let Err(error) = model.run(&inputs) {
        assert_eq!(error.kind(), ModelErrorKind::Call, "{error}");
    }
}

proptest! {
    #[test]
    fn words_of_a_graph_of_integers_that_change_do_no_harm(
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), proptest::sample::select(WORDS)), 1..4
        ),
    ) {
        let bytes = network();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = std::str::from_utf8(&bytes[8..8 + len]).unwrap();
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '%' | '-');
        let mut words: Vec<String> = header.split_inclusive(|c| !is_word(c)).map(str::to_owned).collect();
        for (at, word) in changes {
            let at = at.index(words.len());
            let end = words[at].chars().last().filter(|c| !is_word(*c));
            words[at] = word.chars().chain(end).collect();
        }
        let header = words.concat();
        let mut changed = (header.len() as u64).to_le_bytes().to_vec();
        changed.extend_from_slice(header.as_bytes());
        changed.extend_from_slice(&bytes[8 + len..]);
        survives(changed);
    }

    #[test]
    fn bytes_of_a_file_of_integers_that_change_do_no_harm(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = network();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        survives(bytes);
    }
}
