//! Model files whose sizes are symbols.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use std::sync::Barrier;

use corsac_engine::{
    DType, InputSpec, Limits, Model, ModelError, ModelErrorKind, ModelFile, Signature, SizeSymbol,
    Tensor, TensorSpec, dynamic_model_bytes, model_bytes, write_dynamic_model,
};
use corsac_ir::Graph;
use corsac_testkit::model_header::edited;

fn input(name: &str, shape: &[&str]) -> InputSpec {
    let size = |text: &&str| {
        let number = text.parse().map(corsac_engine::Size::Fixed);
        number.unwrap_or_else(|_| text.parse().unwrap())
    };
    InputSpec {
        name: name.to_owned(),
        dtype: DType::Float32,
        shape: shape.iter().map(size).collect(),
    }
}

fn symbol(name: &str, least: usize, most: impl Into<Option<usize>>) -> SizeSymbol {
    SizeSymbol {
        name: name.to_owned(),
        least,
        most: most.into(),
    }
}

fn weight(name: &str, shape: &[usize]) -> (TensorSpec, Vec<u8>) {
    let count: usize = shape.iter().product();
    let elements = (0..count).map(|i| (i as f32 / 8.0 - 0.5).to_le_bytes());
    let spec = TensorSpec {
        name: name.to_owned(),
        dtype: DType::Float32,
        shape: shape.to_vec(),
    };
    (spec, elements.flatten().collect())
}

fn signature(
    inputs: &[InputSpec],
    symbols: &[SizeSymbol],
    conditions: &[&str],
) -> Result<Signature, ModelError> {
    let conditions = conditions.iter().map(|&name| name.to_owned()).collect();
    Signature::new(inputs.to_vec(), symbols.to_vec(), conditions)
}

/// `x[batch, 4] @ w + y[2*batch + 1, 3][:batch]`, for rows and elements, where `batch` is even.
fn network() -> Vec<u8> {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %y = placeholder[target=y]
        %w = get_attr[target=w]
        %n = call_method[target=size](args = (%x, 0), kwargs = {})
        %half = call_function[target=operator.mod](args = (%n, 2), kwargs = {})
        %even = call_function[target=operator.eq](args = (%half, 0), kwargs = {})
        %p = call_function[target=torch.nn.functional.linear](args = (%x, %w), kwargs = {})
        %s = call_function[target=operator.getitem](args = (%y, slice(None, %n, None)), kwargs = {})
        %z = call_function[target=operator.add](args = (%p, %s), kwargs = {})
        %flat = call_method[target=reshape](args = (%z, -1), kwargs = {})
        %output = output[target=output](args = ({'rows': %z, 'all': %flat},), kwargs = {})",
    );
    let inputs = [
        input("x", &["batch", "4"]),
        input("y", &["2*batch + 1", "3"]),
    ];
    let signature = signature(&inputs, &[symbol("batch", 2, 64)], &["even"]).unwrap();
    let (spec, bytes) = weight("w", &[3, 4]);
    dynamic_model_bytes(&graph.unwrap(), &signature, &[(spec, &bytes)]).unwrap()
}

fn file(bytes: Vec<u8>) -> Result<ModelFile, ModelError> {
    ModelFile::from_bytes(bytes, &Limits::default())
}

fn load(bytes: Vec<u8>) -> Result<Model, ModelError> {
    file(bytes).and_then(Model::from_file)
}

fn numbers(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
    Tensor::new(shape, elements).unwrap()
}

fn call(model: &Model, batch: usize) -> Result<Vec<Tensor>, ModelError> {
    model.run(&[numbers(&[batch, 4]), numbers(&[2 * batch + 1, 3])])
}

fn refusal(model: &Model, x: &[usize], y: &[usize]) -> String {
    let error = model.run(&[numbers(x), numbers(y)]).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call, "{error}");
    error.to_string()
}

#[test]
fn a_model_runs_for_all_sizes_in_its_range() {
    let model = load(network()).unwrap();
    for batch in [2, 64, 14, 8, 14, 2] {
        let results = call(&model, batch).unwrap();
        assert_eq!(results[0].shape(), [batch, 3]);
        assert_eq!(results[1].shape(), [3 * batch]);
        let (x, y) = (numbers(&[batch, 4]), numbers(&[2 * batch + 1, 3]));
        let (x, y) = (x.as_f32().unwrap(), y.as_f32().unwrap());
        let got = results[0].as_f32().unwrap();
        for (at, got) in got.iter().enumerate() {
            let (row, column) = (at / 3, at % 3);
            let product = |i: usize| x[row * 4 + i] * ((column * 4 + i) as f32 / 8.0 - 0.5);
            let expected = (0..4).map(product).sum::<f32>() + y[at];
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
        assert_eq!(results[1].as_f32().unwrap(), got);
    }
}

#[test]
fn inputs_and_outputs_are_described_by_symbols() {
    let model = load(network()).unwrap();
    let inputs: Vec<String> = model
        .signature()
        .inputs()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        inputs,
        ["x: float32[batch, 4]", "y: float32[2*batch + 1, 3]"]
    );
    assert_eq!(model.signature().symbols()[0].to_string(), "batch=2..64");
    let outputs: Vec<String> = model
        .dynamic_outputs()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        outputs,
        ["rows: float32[batch, 3]", "all: float32[3*batch]"]
    );
    assert_eq!(model.inputs()[1].shape, [5, 3]);
    assert_eq!(model.outputs()[0].shape, [2, 3]);
}

#[test]
fn sizes_that_do_not_fit_are_errors_that_name_the_dimension() {
    let model = load(network()).unwrap();
    assert_eq!(
        refusal(&model, &[66, 4], &[133, 3]),
        "input x, dimension 0: batch: 66 is more than 64"
    );
    assert_eq!(
        refusal(&model, &[1, 4], &[3, 3]),
        "input x, dimension 0: batch: 1 is less than 2"
    );
    assert_eq!(
        refusal(&model, &[4, 4], &[7, 3]),
        "input y, dimension 0: batch is 3 here, and 4 in input x, dimension 0"
    );
    assert_eq!(
        refusal(&model, &[4, 4], &[8, 3]),
        "input y, dimension 0: 8, which 2*batch + 1 never is"
    );
    assert_eq!(
        refusal(&model, &[4, 5], &[9, 3]),
        "input x, dimension 1: 5, and 4 is needed"
    );
    assert_eq!(
        refusal(&model, &[4], &[9, 3]),
        "the input is x: float32[batch, 4], not float32[4]"
    );
    assert_eq!(
        refusal(&model, &[5, 4], &[11, 3]),
        "batch=5 (input x, dimension 0): the model needs (x.shape[0] % 2) == 0"
    );
    assert_eq!(call(&model, 6).unwrap()[0].shape(), [6, 3]);
}

#[test]
fn sizes_are_prepared_by_name() {
    let model = load(network()).unwrap();
    let ready = model.specialise(&[("batch", 8)]).unwrap();
    assert_eq!(ready.inputs()[1].shape, [17, 3]);
    assert_eq!(ready.outputs()[1].shape, [24]);
    let again = model.specialise_for(&[numbers(&[8, 4]), numbers(&[17, 3])]);
    assert!(std::sync::Arc::ptr_eq(&ready, &again.unwrap()));
    let refused = |sizes: &[(&str, usize)]| model.specialise(sizes).unwrap_err().to_string();
    assert_eq!(refused(&[]), "size batch: a value is missing (batch=2..64)");
    assert_eq!(refused(&[("batch", 65)]), "size batch: 65 is more than 64");
    assert_eq!(
        refused(&[("batch", 8), ("batch", 9)]),
        "size batch: it has two values, 8 and 9"
    );
    assert_eq!(
        refused(&[("batch", 4), ("length", 1)]),
        "size length: it is no size of the model; the sizes of the model are batch"
    );
}

#[test]
fn programs_are_dropped_when_there_are_too_many() {
    let model = load(network()).unwrap().with_most_sizes(2);
    let at = |batch| model.specialise(&[("batch", batch)]).unwrap();
    let (first, second) = (at(4), at(6));
    assert!(std::sync::Arc::ptr_eq(&first, &at(4)));
    at(8);
    assert!(std::sync::Arc::ptr_eq(&first, &at(4)));
    assert!(!std::sync::Arc::ptr_eq(&second, &at(6)));
    for batch in [2, 4, 10, 12, 2] {
        assert_eq!(call(&model, batch).unwrap()[0].shape(), [batch, 3]);
    }
}

#[test]
fn threads_may_call_a_model_with_any_sizes() {
    let model = load(network()).unwrap().with_most_sizes(3).with_threads(1);
    let alone: Vec<_> = (1..9).map(|half| call(&model, 2 * half).unwrap()).collect();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (model, alone, barrier) = (&model, &alone, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..40 {
                    let half = 1 + (round * 3 + thread * round) % 8;
                    assert_eq!(call(model, 2 * half).unwrap(), alone[half - 1]);
                }
            });
        }
    });
}

#[test]
fn weights_are_read_and_packed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layers.safetensors");
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %w = get_attr[target=w]
        %t = get_attr[target=t]
        %i = call_method[target=long](args = (%x,), kwargs = {})
        %y = call_function[target=torch.nn.functional.linear](args = (%x, %w), kwargs = {})
        %e = call_function[target=torch.nn.functional.embedding](args = (%i, %t), kwargs = {})
        %m = call_method[target=mean](args = (%e, 2), kwargs = {})
        %z = call_function[target=operator.add](args = (%y, %m), kwargs = {})
        %output = output[target=output](args = (%z,), kwargs = {})",
    );
    let signature = signature(&[input("x", &["n", "16"])], &[symbol("n", 1, None)], &[]).unwrap();
    let weights = [weight("w", &[16, 16]), weight("t", &[9, 5])];
    let weights: Vec<_> = weights
        .iter()
        .map(|(spec, own)| (spec.clone(), &own[..]))
        .collect();
    write_dynamic_model(&path, &graph.unwrap(), &signature, &weights).unwrap();
    let model = Model::load(&path).unwrap().with_most_sizes(1);
    // Nothing is read any more: a file that was written to is refused.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(8)
        .unwrap();
    for rows in [2, 7, 100, 3, 1000, 1] {
        let x = Tensor::new([rows, 16], vec![1.0_f32; 16 * rows]).unwrap();
        assert_eq!(model.run(&[x]).unwrap()[0].shape(), [rows, 16]);
    }
}

#[test]
fn a_file_that_was_written_to_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network.safetensors");
    std::fs::write(&path, network()).unwrap();
    let file = ModelFile::open(&path).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let mut other = network();
    other.iter_mut().rev().take(48).for_each(|byte| *byte = 0);
    std::fs::write(&path, other).unwrap();
    let error = Model::from_file(file).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Io);
    assert!(
        error
            .to_string()
            .ends_with("it was written to after it was opened"),
        "{error}"
    );
}

#[test]
fn files_with_symbols_have_a_version_of_their_own() {
    let bytes = network();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains(r#""corsac.format":"3""#), "{text}");
    assert!(text.contains(r#"\"shape\":[\"batch\",4]"#), "{text}");
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %output = output[target=output](args = (%x,), kwargs = {})",
    );
    let spec = TensorSpec {
        name: "x".to_owned(),
        dtype: DType::Float32,
        shape: vec![2, 3],
    };
    let old = model_bytes(&graph.unwrap(), &[spec], &[]).unwrap();
    let text = String::from_utf8(old[8..].to_vec()).unwrap();
    assert!(text.contains(r#""corsac.format":"1""#), "{text}");
    assert!(text.contains(r#"\"shape\":[2,3]"#), "{text}");
    assert!(!text.contains("corsac.sizes"), "{text}");
}

#[test]
fn hostile_metadata_is_refused() {
    let bytes = network();
    let cases = [
        (
            r#"\"shape\":[\"batch\",4]"#,
            r#"\"shape\":[\"n\",4]"#,
            "size n: it is not declared",
        ),
        (
            r#"\"shape\":[\"batch\",4]"#,
            r#"\"shape\":[\"batch*batch\",4]"#,
            "the size",
        ),
        (
            r#"\"shape\":[\"batch\",4]"#,
            r#"\"shape\":[null,4]"#,
            "a size is a number or a text",
        ),
        (
            r#"\"least\":2"#,
            r#"\"least\":65"#,
            "its largest value is below its least one",
        ),
        (r#"\"least\":2"#, r#"\"least\":3"#, "the model needs"),
        (r#"\"least\":2"#, r#"\"least\":-2"#, "invalid value"),
        (
            r#"\"least\":2,\"most\":64"#,
            r#"\"least\":9000000000000000000,\"most\":null"#,
            "no size",
        ),
        (
            r#"\"least\":2,\"most\":64"#,
            r#"\"least\":9000000000,\"most\":null"#,
            "more than the limit",
        ),
        (
            r#"[\"even\"]"#,
            r#"[\"odd\"]"#,
            "node odd of the graph: it is a condition",
        ),
        (
            r#"[\"even\"]"#,
            r#"[\"half\"]"#,
            "it is a condition, and is 0",
        ),
        (r#"[\"even\"]"#, r#"[\"x\"]"#, "it is a condition"),
        (r#"[\"even\"]"#, r#"[7]"#, "invalid type"),
        (
            r#"\"symbols\":["#,
            r#"\"symbols\":[{\"name\":\"m\",\"least\":1,\"most\":2},"#,
            "size m: it is the size of no input",
        ),
        (
            r#"\"symbols\":["#,
            r#"\"symbols\":[{\"name\":\"batch\",\"least\":1,\"most\":2},"#,
            "size batch: it is declared twice",
        ),
        (r#""corsac.format":"3""#, r#""corsac.format":"2""#, "no key"),
        (
            r#""corsac.format":"3""#,
            r#""corsac.format":"7""#,
            "version 7",
        ),
        (
            "corsac.sizes",
            "corsac.other",
            "corsac.sizes in the metadata: it is missing",
        ),
    ];
    for (from, to, reason) in cases {
        let error = load(edited(&bytes, from, to)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(reason), "{to}: {text}");
        assert!(!text.contains('\n'), "{text}");
        assert_ne!(error.kind(), ModelErrorKind::Internal, "{text}");
        assert_ne!(error.kind(), ModelErrorKind::Call, "{text}");
    }
}

#[test]
fn sizes_are_within_the_limits_in_each_call() {
    let limits = Limits {
        value_bytes: 1 << 10,
        ..Limits::default()
    };
    let file = ModelFile::from_bytes(network(), &limits).unwrap();
    let model = Model::from_file(file).unwrap();
    assert_eq!(call(&model, 4).unwrap()[0].shape(), [4, 3]);
    let error = call(&model, 64).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::TooLarge, "{error}");
}

#[test]
fn a_graph_that_fails_for_some_sizes_is_an_error_of_the_call() {
    let graph = Graph::parse(
        "graph v1:
        %x = placeholder[target=x]
        %y = call_method[target=view](args = (%x, 3, -1), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})",
    );
    let signature = signature(&[input("x", &["n"])], &[symbol("n", 3, None)], &[]).unwrap();
    let model = load(dynamic_model_bytes(&graph.unwrap(), &signature, &[]).unwrap()).unwrap();
    assert_eq!(model.run(&[numbers(&[9])]).unwrap()[0].shape(), [3, 3]);
    let error = model.run(&[numbers(&[10])]).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call);
    let text = error.to_string();
    assert!(
        text.starts_with("n=10 (input x, dimension 0): node y of the graph"),
        "{text}"
    );
}
