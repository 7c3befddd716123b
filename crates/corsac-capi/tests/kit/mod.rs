//! Models for the C program, with results of the Rust interface, and compilers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use corsac_engine::{
    DTYPES, DType, Elements, Half, InputSpec, Limits, Model, ModelFile, ProgramSource, Signature,
    Size, SizeSymbol, Tensor, TensorSpec, dynamic_model_bytes, model_bytes, programs_bytes,
};
use corsac_ir::Graph;
use corsac_testkit::model_header::edited;
use corsac_testkit::text_model::text_model;

/// The folder of the crate.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A library that Cargo has built for this test, beside it.
pub(crate) fn library(name: &str) -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name(name);
    assert!(path.is_file(), "{} is missing", path.display());
    path
}

/// Runs a program to its end, which must be a good one, and returns what it prints.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{command:?}: {status}\n{text}\n{errors}");
    text
}

/// Whether this program is installed.
pub(crate) fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn spec(name: &str, dtype: DType, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    }
}

fn model(lines: &str, inputs: &[TensorSpec], weights: &[(TensorSpec, &[u8])]) -> Vec<u8> {
    let graph = Graph::parse(&format!("graph v1:\n{lines}")).unwrap();
    model_bytes(&graph, inputs, weights).unwrap()
}

/// The product of the rows of `x` with weights, and rows of `x` that `rows` chooses.
pub(crate) fn rows() -> Vec<u8> {
    let weight: Vec<u8> = [1.0_f32, 10.0, 100.0]
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect();
    model(
        "%x = placeholder[target=x]
        %rows = placeholder[target=rows]
        %w = get_attr[target=scale.weight]
        %y = call_function[target=operator.mul](args = (%x, %w), kwargs = {})
        %z = call_function[target=torch.nn.functional.embedding](args = (%rows, %x), kwargs = {})
        %output = output[target=output](args = ({'scaled': %y, 'picked': %z},), kwargs = {})",
        &[
            spec("x", DType::Float32, &[2, 3]),
            spec("rows", DType::Int64, &[2]),
        ],
        &[(spec("scale.weight", DType::Float32, &[3]), &weight)],
    )
}

/// `line`, which makes `%y` of `%x`, an input of this shape.
fn of_one(name: &str, line: &str, shape: &[usize]) -> Vec<u8> {
    let lines = format!(
        "%x = placeholder[target={name}]
        {line}
        %output = output[target=output](args = (%y,), kwargs = {{}})"
    );
    model(&lines, &[spec(name, DType::Float32, shape)], &[])
}

/// The double of one to eight rows of three numbers.
fn sized() -> Vec<u8> {
    let lines = format!(
        "graph v1:
        %x = placeholder[target=x]
        {DOUBLE}
        %output = output[target=output](args = (%y,), kwargs = {{}})"
    );
    let batch: Size = "batch".parse().unwrap();
    let input = InputSpec {
        name: "x".to_owned(),
        dtype: DType::Float32,
        shape: vec![batch, Size::Fixed(3)],
    };
    let symbol = SizeSymbol {
        name: "batch".to_owned(),
        least: 1,
        most: Some(8),
    };
    let signature = Signature::new(vec![input], vec![symbol], Vec::new()).unwrap();
    dynamic_model_bytes(&Graph::parse(&lines).unwrap(), &signature, &[]).unwrap()
}

/// The double of six numbers.
pub(crate) fn double() -> Vec<u8> {
    of_one("x", DOUBLE, &[2, 3])
}

const DOUBLE: &str = "%y = call_function[target=operator.add](args = (%x, %x), kwargs = {})";

/// One input of each type, and its sum with itself; the opposite of truth values.
pub(crate) fn types() -> Vec<u8> {
    let (mut lines, mut results, mut inputs) = (String::new(), Vec::new(), Vec::new());
    for &dtype in &ordered() {
        let name = dtype.name();
        lines += &format!("%{name} = placeholder[target={name}]\n");
        inputs.push(spec(name, dtype, &[5]));
    }
    for dtype in ordered() {
        let name = dtype.name();
        let (target, arguments) = match dtype {
            DType::Bool => ("torch.logical_not", format!("%{name},")),
            _ => ("operator.add", format!("%{name}, %{name}")),
        };
        let call = format!("call_function[target={target}](args = ({arguments}), kwargs = {{}})");
        lines += &format!("%y_{name} = {call}\n");
        results.push(format!("%y_{name}"));
    }
    let results = results.join(", ");
    lines += &format!("%output = output[target=output](args = (({results}),), kwargs = {{}})");
    model(&lines, &inputs, &[])
}

/// The types in the order of their numbers in C.
fn ordered() -> Vec<DType> {
    use DType::{BFloat16, Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8};
    let ordered = vec![
        Float32, Float64, BFloat16, Float16, Int64, Int32, Int16, Int8, UInt8, Bool,
    ];
    assert_eq!(ordered.len(), DTYPES.len());
    ordered
}

/// Five numbers of a type.
fn numbers(dtype: DType) -> Tensor {
    let elements: Elements = match dtype {
        DType::Float64 => [1e-300, -2.5, 0.1, 1e300, -0.0].into(),
        DType::Int64 => [1 << 61, -3, 0, i64::from(i32::MAX), 7].into(),
        DType::Int32 => [1_i64 << 29, -(1 << 30), 5, -1, 0].into(),
        // The sums of some are out of range.
        DType::Int16 => [20_000_i64, -30_000, 1, -1, 0].into(),
        DType::Int8 => [100_i64, -100, 1, -128, 127].into(),
        DType::UInt8 => [200_i64, 100, 1, 0, 255].into(),
        DType::Bool => [true, false, true, true, false].into(),
        _ => [1.5_f32, -2.25, 0.1, 1e-3, -0.0].into(),
    };
    Tensor::new([5], elements)
        .unwrap()
        .with_dtype(dtype)
        .unwrap()
}

/// The elements of a tensor as C stores them.
fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let dtype = tensor.dtype();
    match tensor.elements() {
        Elements::F32(own) => match Half::of(dtype) {
            Some(half) => {
                let mut bits = vec![0; own.len()];
                half.round(own, &mut bits);
                bits.into_iter().flat_map(u16::to_ne_bytes).collect()
            }
            None => own.iter().flat_map(|own| own.to_ne_bytes()).collect(),
        },
        Elements::F64(own) => own.iter().flat_map(|own| own.to_ne_bytes()).collect(),
        Elements::I64(own) => {
            let bytes = match dtype {
                DType::Int64 => 8,
                DType::Int32 => 4,
                DType::Int16 => 2,
                _ => 1,
            };
            let little = |own: &i64| own.to_le_bytes().into_iter().take(bytes);
            own.iter().flat_map(little).collect()
        }
        Elements::Bool(own) => own.clone(),
    }
}

/// A program that adds `x` to the rows of a sum, counts, and returns the sum; and one that returns its first row.
fn sessions() -> Vec<u8> {
    let add = "%x = placeholder[target=x]
        %sum = placeholder[target=sum]
        %count = placeholder[target=count]
        %s = call_method[target=add_](args = (%sum, %x), kwargs = {})
        %c = call_method[target=add_](args = (%count, 1), kwargs = {})
        %output = output[target=output](args = (%s,), kwargs = {})";
    let first = "%sum = placeholder[target=sum]
        %s = call_function[target=operator.getitem](args = (%sum, slice(None, 1, None)), kwargs = {})
        %output = output[target=output](args = (%s,), kwargs = {})";
    let graph = |lines: &str| Graph::parse(&format!("graph v1:\n{lines}")).unwrap();
    let rows: Size = "rows".parse().unwrap();
    let sum = InputSpec {
        name: "stats.sum".to_owned(),
        dtype: DType::Float32,
        shape: vec![rows, Size::Fixed(2)],
    };
    let count = InputSpec::from(&spec("count", DType::Int32, &[]));
    let symbols = vec![SizeSymbol {
        name: "rows".to_owned(),
        least: 1,
        most: Some(8),
    }];
    let x = vec![InputSpec::from(&spec("x", DType::Float32, &[2]))];
    let state = vec![sum.clone(), count];
    let of_add = Signature::with_state(x, state, symbols.clone(), vec![]).unwrap();
    let of_first = Signature::with_state(vec![], vec![sum], symbols, vec![]).unwrap();
    let (add, first) = (graph(add), graph(first));
    let program = |name, graph, signature| ProgramSource {
        name,
        graph,
        signature,
    };
    let programs = [
        program("add", &add, &of_add),
        program("first", &first, &of_first),
    ];
    let begin = [0.5_f32.to_le_bytes(), 0.0_f32.to_le_bytes()].concat();
    let begin = (spec("stats.sum", DType::Float32, &[1, 2]), begin.as_slice());
    programs_bytes(&programs, &[], &[begin], &BTreeMap::new()).unwrap()
}

/// Writes all that the C program reads into `folder`.
pub(crate) fn write_models(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    write("rows.safetensors", &rows());
    write("sized.safetensors", &sized());
    write("sessions.safetensors", &sessions());
    write("text.safetensors", &text_model(r#"{"stop": [3]}"#, |_| ()));
    write("empty.safetensors", &of_one("x", DOUBLE, &[0, 3]));
    let svd = "%y = call_function[target=torch.linalg.svd](args = (%x,), kwargs = {})";
    write("operator.safetensors", &of_one("x", svd, &[2, 2]));
    let version = String::from_utf8_lossy(&rows()).into_owned();
    assert!(version.contains(r#""corsac.format":"1""#));
    write(
        "version.safetensors",
        &edited(
            &rows(),
            r#""corsac.format":"1""#,
            r#""corsac.format":"999""#,
        ),
    );
    let zero = of_one("x", DOUBLE, &[1]);
    let zero = edited(&zero, r#"\"name\":\"x\""#, r#"\"name\":\"x\\u0000\""#);
    write(
        "zero.safetensors",
        &edited(&zero, "[target=x]", r"[target='x\\x00']"),
    );
    let bytes = types();
    write("types.safetensors", &bytes);
    let file = ModelFile::from_bytes(bytes, &Limits::default()).unwrap();
    let inputs: Vec<Tensor> = ordered().into_iter().map(numbers).collect();
    let outputs = Model::from_file(file).unwrap().run(&inputs).unwrap();
    for (at, (input, output)) in inputs.iter().zip(&outputs).enumerate() {
        write(&format!("types.in{at}"), &bytes_of(input));
        write(&format!("types.out{at}"), &bytes_of(output));
    }
}
