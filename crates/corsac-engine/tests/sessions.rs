//! State of model files: programs that read and write it in sessions.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corsac_engine::{
    DType, Elements, Half, InputSpec, Limits, Model, ModelError, ModelErrorKind, ModelFile,
    ProgramSource, Session, Signature, Size, SizeSymbol, Tensor, TensorSpec, VERSION,
    programs_bytes,
};
use corsac_ir::Graph;
use corsac_testkit::model_header::edited;

fn spec(name: &str, dtype: DType, shape: &[&str]) -> InputSpec {
    let size = |text: &&str| {
        let number = text.parse().map(Size::Fixed);
        number.unwrap_or_else(|_| text.parse().unwrap())
    };
    InputSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.iter().map(size).collect(),
    }
}

fn float(name: &str, shape: &[&str]) -> InputSpec {
    spec(name, DType::Float32, shape)
}

fn symbol(name: &str, least: usize, most: impl Into<Option<usize>>) -> SizeSymbol {
    SizeSymbol {
        name: name.to_owned(),
        least,
        most: most.into(),
    }
}

/// A program: its name, the lines of its graph without `graph v1:`, its inputs, state and symbols.
struct Source(&'static str, Graph, Signature);

impl Source {
    fn new(
        name: &'static str,
        lines: &str,
        inputs: &[InputSpec],
        state: &[InputSpec],
        symbols: &[SizeSymbol],
    ) -> Self {
        let graph = Graph::parse(&format!("graph v1:\n{lines}")).unwrap();
        let signature =
            Signature::with_state(inputs.to_vec(), state.to_vec(), symbols.to_vec(), vec![]);
        Self(name, graph, signature.unwrap())
    }
}

fn bytes(programs: &[Source], weights: &[(TensorSpec, Vec<u8>)]) -> Result<Vec<u8>, ModelError> {
    let programs = programs.iter();
    let programs = programs.map(|Source(name, graph, signature)| ProgramSource {
        name,
        graph,
        signature,
    });
    let weights = weights.iter();
    let weights: Vec<(TensorSpec, &[u8])> = weights
        .map(|(spec, own)| (spec.clone(), own.as_slice()))
        .collect();
    programs_bytes(
        &programs.collect::<Vec<_>>(),
        &[],
        &weights,
        &BTreeMap::new(),
    )
}

fn open(bytes: Vec<u8>) -> Result<Arc<Model>, ModelError> {
    let file = ModelFile::from_bytes(bytes, &Limits::default())?;
    Model::from_file(file).map(Arc::new)
}

fn model(programs: &[Source], weights: &[(TensorSpec, Vec<u8>)]) -> Arc<Model> {
    open(bytes(programs, weights).unwrap()).unwrap()
}

fn weight(name: &str, shape: &[usize], elements: &[f32]) -> (TensorSpec, Vec<u8>) {
    let spec = TensorSpec {
        name: name.to_owned(),
        dtype: DType::Float32,
        shape: shape.to_vec(),
    };
    let elements = elements.iter().flat_map(|own| own.to_le_bytes());
    (spec, elements.collect())
}

fn tensor<const N: usize>(shape: &[usize], elements: [f32; N]) -> Tensor {
    Tensor::new(shape, elements).unwrap()
}

fn integers<const N: usize>(shape: &[usize], elements: [i64; N]) -> Tensor {
    Tensor::new(shape, elements).unwrap()
}

fn floats(session: &Session, name: &str) -> Vec<f32> {
    session.state(name).unwrap().as_f32().unwrap().to_vec()
}

/// Adds `x` to a sum and 1 to a counter; returns the mean of all calls. `peek` returns the sum.
fn mean() -> Arc<Model> {
    let state = [
        float("stats.sum", &["2"]),
        spec("stats.count", DType::Int64, &[]),
    ];
    let update = "%x = placeholder[target=x]
        %sum = placeholder[target=stats_sum]
        %count = placeholder[target=stats_count]
        %a = call_method[target=add_](args = (%sum, %x), kwargs = {})
        %n = call_method[target=add_](args = (%count, 1), kwargs = {})
        %mean = call_function[target=torch.div](args = (%a, %n), kwargs = {})
        %output = output[target=output](args = (%mean,), kwargs = {})";
    let peek = "%sum = placeholder[target=s]
        %output = output[target=output](args = (%sum,), kwargs = {})";
    model(
        &[
            Source::new("update", update, &[float("x", &["2"])], &state, &[]),
            Source::new("peek", peek, &[], &state[..1], &[]),
        ],
        &[weight("stats.sum", &[2], &[0.5, 0.0])],
    )
}

#[test]
fn state_is_kept_between_calls_of_all_programs() {
    let model = mean();
    assert_eq!(
        model.programs()[0].written().collect::<Vec<_>>(),
        ["stats.sum", "stats.count"]
    );
    assert_eq!(model.programs()[1].written().count(), 0);
    let mut session = model.session(&[]).unwrap();
    let x = tensor(&[2], [1.0, 4.0]);
    assert_eq!(
        session.run(None, std::slice::from_ref(&x)).unwrap()[0],
        tensor(&[2], [1.5, 4.0])
    );
    assert_eq!(
        session.run("update", &[x]).unwrap()[0],
        tensor(&[2], [1.25, 4.0])
    );
    assert_eq!(
        session.run("peek", &[]).unwrap()[0],
        tensor(&[2], [2.5, 8.0])
    );
    assert_eq!(session.state("stats.count").unwrap(), &integers(&[], [2]));
    session
        .set_state("stats.count", integers(&[], [9]))
        .unwrap();
    let mean = session.run(None, &[tensor(&[2], [7.5, 2.0])]).unwrap();
    assert_eq!(mean[0], tensor(&[2], [1.0, 1.0]));
    session.reset().unwrap();
    assert_eq!(floats(&session, "stats.sum"), [0.5, 0.0]);
    assert_eq!(session.state("stats.count").unwrap(), &integers(&[], [0]));
}

#[test]
fn a_program_with_state_runs_in_a_session_only() {
    let model = mean();
    let error = model.run(&[tensor(&[2], [1.0, 4.0])]).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call);
    assert!(
        error.to_string().contains("stats.sum, stats.count"),
        "{error}"
    );
}

#[test]
fn errors_of_calls_leave_the_state_unchanged() {
    let mut session = mean().session(&[]).unwrap();
    session.run(None, &[tensor(&[2], [1.0, 4.0])]).unwrap();
    let two = [tensor(&[2], [1.0; 2]), tensor(&[2], [1.0; 2])];
    let cases: [(Option<&str>, &[Tensor], &str); 5] = [
        (None, &[], "takes 1 inputs, not 0"),
        (None, &two, "takes 1 inputs, not 2"),
        (
            None,
            &[tensor(&[3], [1.0; 3])],
            "x: float32[2], not float32[3]",
        ),
        (
            None,
            &[integers(&[2], [1; 2])],
            "x: float32[2], not int64[2]",
        ),
        (
            Some("token"),
            &two[..1],
            "no program \"token\", but update, peek",
        ),
    ];
    for (program, inputs, expected) in cases {
        let error = session.run(program, inputs).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Call, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = session
        .set_state("stats.sum", integers(&[2], [1, 2]))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "state stats.sum: stats.sum: float32[2] is needed, not int64[2]"
    );
    let error = session.state("sum").unwrap_err().to_string();
    assert_eq!(
        error,
        "state sum: the state of the model is stats.sum, stats.count"
    );
    assert_eq!(floats(&session, "stats.sum"), [1.5, 4.0]);
    assert_eq!(session.state("stats.count").unwrap(), &integers(&[], [1]));
}

/// Width of the decoder.
const WIDTH: usize = 4;

fn matrix(name: &str, seed: u32) -> (TensorSpec, Vec<u8>) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let elements: Vec<f32> = (0..WIDTH * WIDTH).map(|_| next()).collect();
    weight(name, &[WIDTH, WIDTH], &elements)
}

/// Attention over a cache: `x[batch, tokens, 4]` at `positions[tokens]`, where those that come later are masked.
fn decoder(dtype: DType) -> Arc<Model> {
    let lines = "%x = placeholder[target=x]
        %positions = placeholder[target=positions]
        %keys = placeholder[target=cache_keys]
        %values = placeholder[target=cache_values]
        %wq = get_attr[target=q]
        %wk = get_attr[target=k]
        %wv = get_attr[target=v]
        %q = call_function[target=torch.nn.functional.linear](args = (%x, %wq), kwargs = {})
        %k = call_function[target=torch.nn.functional.linear](args = (%x, %wk), kwargs = {})
        %v = call_function[target=torch.nn.functional.linear](args = (%x, %wv), kwargs = {})
        %k2 = call_method[target=to](args = (%k, DTYPE), kwargs = {})
        %v2 = call_method[target=to](args = (%v, DTYPE), kwargs = {})
        %k3 = call_method[target=index_copy_](args = (%keys, 1, %positions, %k2), kwargs = {})
        %v3 = call_method[target=index_copy_](args = (%values, 1, %positions, %v2), kwargs = {})
        %k4 = call_method[target=to](args = (%k3, torch.float32), kwargs = {})
        %v4 = call_method[target=to](args = (%v3, torch.float32), kwargs = {})
        %n = call_method[target=size](args = (%k3, 1), kwargs = {})
        %all = call_function[target=torch.arange](args = (%n,), kwargs = {})
        %own = call_method[target=unsqueeze](args = (%positions, 1), kwargs = {})
        %mask = call_function[target=torch.le](args = (%all, %own), kwargs = {})
        %y = call_function[target=torch.nn.functional.scaled_dot_product_attention](args = (%q, %k4, %v4, %mask), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})"
        .replace("DTYPE", &format!("torch.{}", dtype.name()));
    let state = [
        spec("cache.keys", dtype, &["batch", "capacity", "4"]),
        spec("cache.values", dtype, &["batch", "capacity", "4"]),
    ];
    let inputs = [
        float("x", &["batch", "tokens", "4"]),
        spec("positions", DType::Int64, &["tokens"]),
    ];
    let symbols = [
        symbol("batch", 1, 8),
        symbol("capacity", 1, 4096),
        symbol("tokens", 1, 64),
    ];
    let token_inputs = [
        float("x", &["batch", "1", "4"]),
        spec("positions", DType::Int64, &["1"]),
    ];
    model(
        &[
            Source::new("prompt", &lines, &inputs, &state, &symbols),
            Source::new("token", &lines, &token_inputs, &state, &symbols[..2]),
        ],
        &[matrix("q", 1), matrix("k", 2), matrix("v", 3)],
    )
}

fn embedded(batch: usize, tokens: std::ops::Range<usize>) -> Tensor {
    let number = |token: usize, at: usize| ((token * 7 + at * 3) % 11) as f32 / 5.0 - 1.0;
    let rows = (0..batch).flat_map(|row| tokens.clone().map(move |token| token + 5 * row));
    let elements: Vec<f32> = rows
        .flat_map(|token| (0..WIDTH).map(move |at| number(token, at)))
        .collect();
    Tensor::new([batch, tokens.len(), WIDTH], elements).unwrap()
}

fn positions(tokens: std::ops::Range<usize>) -> Tensor {
    let elements: Vec<i64> = tokens
        .clone()
        .map(|at| i64::try_from(at).unwrap())
        .collect();
    Tensor::new([tokens.len()], elements).unwrap()
}

fn token(session: &mut Session, batch: usize, at: usize) -> Result<Tensor, ModelError> {
    let inputs = [embedded(batch, at..at + 1), positions(at..at + 1)];
    session
        .run("token", &inputs)
        .map(|mut own| own.swap_remove(0))
}

fn near(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-5, "{got} {expected}");
    }
}

#[test]
fn tokens_one_by_one_are_the_whole_sequence_at_once() {
    for dtype in [DType::Float32, DType::BFloat16, DType::Float16] {
        let model = decoder(dtype);
        for batch in [1, 3] {
            let sizes = [("batch", batch), ("capacity", 12)];
            let mut at_once = model.session(&sizes).unwrap();
            let whole = at_once.run("prompt", &[embedded(batch, 0..12), positions(0..12)]);
            let whole = whole.unwrap().swap_remove(0);
            let mut session = model.session(&sizes).unwrap();
            let prompt = [embedded(batch, 0..5), positions(0..5)];
            let begin = session.run(None, &prompt).unwrap().swap_remove(0);
            for row in 0..batch {
                let rows = |tensor: &Tensor, at: usize, len: usize| {
                    let start = (row * tensor.shape()[1] + at) * WIDTH;
                    tensor.as_f32().unwrap()[start..start + len * WIDTH].to_vec()
                };
                near(&rows(&begin, 0, 5), &rows(&whole, 0, 5));
            }
            for at in 5..12 {
                let own = token(&mut session, batch, at).unwrap();
                for row in 0..batch {
                    let start = (row * 12 + at) * WIDTH;
                    let expected = &whole.as_f32().unwrap()[start..start + WIDTH];
                    near(
                        &own.as_f32().unwrap()[row * WIDTH..(row + 1) * WIDTH],
                        expected,
                    );
                }
            }
            near(
                &floats(&session, "cache.keys"),
                &floats(&at_once, "cache.keys"),
            );
            if let Some(half) = Half::of(dtype) {
                let kept = floats(&session, "cache.keys");
                assert!(kept.iter().all(|&own| half.nearest(own) == own));
            }
        }
    }
}

#[test]
fn sizes_of_the_state_are_sizes_of_the_call() {
    let model = decoder(DType::Float32);
    let sizes = [("batch", 2), ("capacity", 6)];
    let mut session = model.session(&sizes).unwrap();
    assert_eq!(
        session.specs()[0].to_string(),
        "cache.keys: float32[2, 6, 4]"
    );
    token(&mut session, 2, 0).unwrap();
    let before = floats(&session, "cache.keys");
    let error = token(&mut session, 3, 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "input cache.keys, dimension 0: batch is 2 here, and 3 in input x, dimension 0"
    );
    // Beyond the capacity.
    let error = token(&mut session, 2, 6).unwrap_err().to_string();
    assert!(
        error.contains("index 6 is out of range for a dimension of size 6"),
        "{error}"
    );
    assert_eq!(floats(&session, "cache.keys"), before);
    token(&mut session, 2, 1).unwrap();
    for (sizes, expected) in [
        (
            &[("batch", 2)][..],
            "size capacity: a value is missing (capacity=1..4096)",
        ),
        (
            &[("batch", 9), ("capacity", 3)],
            "size batch: 9 is more than 8",
        ),
        (
            &[("batch", 1), ("capacity", 3), ("length", 1)],
            "size length: it is no size of",
        ),
    ] {
        let error = model.session(sizes).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(error.kind(), ModelErrorKind::Call);
    }
}

#[test]
fn a_resized_session_goes_on_where_it_was() {
    let model = decoder(DType::Float32);
    let mut session = model.session(&[("batch", 1), ("capacity", 3)]).unwrap();
    let mut large = model.session(&[("batch", 1), ("capacity", 8)]).unwrap();
    for at in 0..3 {
        token(&mut session, 1, at).unwrap();
        token(&mut large, 1, at).unwrap();
    }
    session.resize(&[("capacity", 8)]).unwrap();
    assert_eq!(floats(&session, "cache.keys"), floats(&large, "cache.keys"));
    for at in 3..8 {
        let (own, other) = (token(&mut session, 1, at), token(&mut large, 1, at));
        near(
            own.unwrap().as_f32().unwrap(),
            other.unwrap().as_f32().unwrap(),
        );
    }
    let before = floats(&session, "cache.keys");
    let error = session.resize(&[("capacity", 4)]).unwrap_err().to_string();
    assert_eq!(
        error,
        "size capacity: 4 is less than 8: state can grow only"
    );
    let error = session
        .resize(&[("capacity", 5000)])
        .unwrap_err()
        .to_string();
    assert_eq!(error, "size capacity: 5000 is more than 4096");
    session.resize(&[("batch", 2)]).unwrap();
    let after = floats(&session, "cache.keys");
    assert_eq!(after[..before.len()], before);
    assert!(after[before.len()..].iter().all(|&own| own == 0.0));
    assert_eq!(
        session.sizes().collect::<Vec<_>>(),
        [("batch", 2), ("capacity", 8)]
    );
}

#[test]
fn a_fork_has_a_state_of_its_own() {
    let model = decoder(DType::Float32);
    let mut session = model.session(&[("batch", 1), ("capacity", 8)]).unwrap();
    token(&mut session, 1, 0).unwrap();
    let kept = floats(&session, "cache.keys");
    let mut fork = session.fork();
    token(&mut fork, 1, 1).unwrap();
    assert_eq!(floats(&session, "cache.keys"), kept);
    let (own, other) = (
        token(&mut session, 1, 1).unwrap(),
        token(&mut fork, 1, 1).unwrap(),
    );
    assert_eq!(own, other);
}

#[test]
fn sessions_of_one_model_run_at_once() {
    let model = decoder(DType::Float32);
    let sizes = [("batch", 1), ("capacity", 32)];
    let mut alone = model.session(&sizes).unwrap();
    let expected: Vec<Tensor> = (0..32)
        .map(|at| token(&mut alone, 1, at).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut session = model.session(&sizes).unwrap();
            let expected = &expected;
            scope.spawn(move || {
                for round in 0..8 {
                    for (at, expected) in expected.iter().enumerate() {
                        assert_eq!(token(&mut session, 1, at).unwrap(), *expected, "{round}");
                    }
                    session.reset().unwrap();
                }
            });
        }
    });
}

/// Writes one row of a cache `[1, 12, capacity, 64]`, in place, and returns the sum of that row.
fn rows(write: &str) -> Arc<Model> {
    let lines = format!(
        "%row = placeholder[target=row]
        %position = placeholder[target=position]
        %cache = placeholder[target=cache]
        {write}
        %sum = call_function[target=torch.sum](args = (%row,), kwargs = {{}})
        %output = output[target=output](args = (%sum,), kwargs = {{}})"
    );
    let inputs = [
        float("row", &["1", "12", "1", "64"]),
        spec("position", DType::Int64, &["1"]),
    ];
    let state = [float("cache", &["1", "12", "capacity", "64"])];
    let symbols = [symbol("capacity", 1, None)];
    model(&[Source::new("", &lines, &inputs, &state, &symbols)], &[])
}

/// Shortest time of a call.
fn time(session: &mut Session) -> Duration {
    let inputs = [tensor(&[1, 12, 1, 64], [1.0; 768]), integers(&[1], [5])];
    let mut best = Duration::MAX;
    for _ in 0..200 {
        let start = Instant::now();
        session.run(None, &inputs).unwrap();
        best = best.min(start.elapsed());
    }
    best
}

#[test]
fn a_row_is_written_in_place_whatever_the_size_of_the_state() {
    let by_index =
        "%w = call_method[target=index_copy_](args = (%cache, 2, %position, %row), kwargs = {})";
    let by_slice = "%part = call_function[target=operator.getitem](args = (%cache, (slice(None, None, None), slice(None, None, None), slice(5, 6, None))), kwargs = {})
        %w = call_method[target=copy_](args = (%part, %row), kwargs = {})";
    let by_item = "%w = call_function[target=operator.setitem](args = (%cache, (slice(None, None, None), slice(None, None, None), %position), %row), kwargs = {})";
    for write in [by_index, by_slice, by_item] {
        let model = rows(write);
        let mut small = model.session(&[("capacity", 16)]).unwrap();
        let mut large = model.session(&[("capacity", 16 * 1024)]).unwrap();
        let (small, large_time) = (time(&mut small), time(&mut large));
        // The state is 1024 times as large.
        assert!(
            large_time < 20 * small + Duration::from_micros(100),
            "{small:?} {large_time:?}"
        );
        let cache = floats(&large, "cache");
        let ones = cache.iter().filter(|&&own| own == 1.0).count();
        assert_eq!(ones, 768);
        assert_eq!(cache[5 * 64], 1.0);
    }
}

#[test]
fn narrow_state_holds_numbers_of_its_type() {
    let lines = "%x = placeholder[target=x]
        %count = placeholder[target=count]
        %total = placeholder[target=total]
        %flags = placeholder[target=flags]
        %a = call_method[target=add_](args = (%count, 100), kwargs = {})
        %b = call_method[target=add_](args = (%total, %x), kwargs = {})
        %f = call_method[target=logical_not_](args = (%flags,), kwargs = {})
        %output = output[target=output](args = ((%a, %b),), kwargs = {})";
    let state = [
        spec("count", DType::Int8, &[]),
        spec("total", DType::BFloat16, &["1"]),
        spec("flags", DType::Bool, &["2"]),
    ];
    let inputs = [spec("x", DType::BFloat16, &["1"])];
    let model = model(&[Source::new("", lines, &inputs, &state, &[])], &[]);
    let mut session = model.session(&[]).unwrap();
    let half = Half::of(DType::BFloat16).unwrap();
    let x = half.nearest(1.0 / 3.0);
    let mut total = 0.0;
    for count in [100, -56, 44] {
        let input = tensor(&[1], [x]).with_dtype(DType::BFloat16).unwrap();
        let results = session.run(None, &[input]).unwrap();
        total = half.nearest(total + x);
        let expected = integers(&[], [count]).with_dtype(DType::Int8).unwrap();
        assert_eq!(results[0], expected);
        assert_eq!(session.state("count").unwrap(), &expected);
        assert_eq!(floats(&session, "total"), [total]);
        assert_eq!(results[1].as_f32(), Some(&[total][..]));
    }
    assert_eq!(
        session.state("flags").unwrap().elements(),
        &Elements::Bool(vec![1, 1])
    );
}

#[test]
fn state_with_symbols_begins_with_a_repeated_tensor() {
    let lines = "%x = placeholder[target=x]
        %best = placeholder[target=best]
        %m = call_function[target=torch.maximum](args = (%best, %x), kwargs = {})
        %w = call_method[target=copy_](args = (%best, %m), kwargs = {})
        %output = output[target=output](args = (%best,), kwargs = {})";
    let model = model(
        &[Source::new(
            "",
            lines,
            &[float("x", &["n", "2"])],
            &[float("best", &["n", "2"])],
            &[symbol("n", 1, None)],
        )],
        &[weight("best", &[1, 2], &[-1.0, -2.0])],
    );
    let mut session = model.session(&[("n", 2)]).unwrap();
    assert_eq!(floats(&session, "best"), [-1.0, -2.0, -1.0, -2.0]);
    let best = session
        .run(None, &[tensor(&[2, 2], [-9.0, 0.0, 3.0, -9.0])])
        .unwrap();
    assert_eq!(best[0].as_f32(), Some(&[-1.0, 0.0, 3.0, -2.0][..]));
    session.resize(&[("n", 3)]).unwrap();
    assert_eq!(floats(&session, "best"), [-1.0, 0.0, 3.0, -2.0, -1.0, -2.0]);
}

#[test]
fn a_call_that_fails_halfway_is_seen() {
    let lines = "%index = placeholder[target=index]
        %count = placeholder[target=count]
        %table = placeholder[target=table]
        %a = call_method[target=add_](args = (%count, 1), kwargs = {})
        %row = call_function[target=torch.index_select](args = (%table, 0, %index), kwargs = {})
        %sum = call_function[target=torch.add](args = (%row, %a), kwargs = {})
        %output = output[target=output](args = (%sum,), kwargs = {})";
    let state = [float("count", &[]), float("table", &["3"])];
    let inputs = [spec("index", DType::Int64, &["1"])];
    let model = model(&[Source::new("", lines, &inputs, &state, &[])], &[]);
    let mut session = model.session(&[]).unwrap();
    session.run(None, &[integers(&[1], [2])]).unwrap();
    assert!(session.run(None, &[integers(&[1], [3])]).is_err());
    let after = session.run(None, &[integers(&[1], [2])]);
    match after {
        // Nothing had been written.
        Ok(sum) => assert_eq!(sum[0], tensor(&[1], [2.0])),
        Err(error) => {
            assert_eq!(error.kind(), ModelErrorKind::Call);
            assert!(error.to_string().contains("reset"), "{error}");
            session.reset().unwrap();
            let sum = session.run(None, &[integers(&[1], [0])]).unwrap();
            assert_eq!(sum[0], tensor(&[1], [1.0]));
        }
    }
}

#[test]
fn inputs_may_not_be_written_beside_state() {
    let lines = "%x = placeholder[target=x]
        %count = placeholder[target=count]
        %a = call_method[target=add_](args = (%x, %count), kwargs = {})
        %output = output[target=output](args = (%a,), kwargs = {})";
    let inputs = [float("x", &["2"])];
    let state = [float("count", &[])];
    let error = open(bytes(&[Source::new("", lines, &inputs, &state, &[])], &[]).unwrap());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Unsupported);
    assert!(
        error.to_string().contains("it writes to the input x"),
        "{error}"
    );
}

fn counter() -> Vec<u8> {
    let lines = "%n = placeholder[target=n]
        %w = get_attr[target=w]
        %a = call_method[target=add_](args = (%n, %w), kwargs = {})
        %output = output[target=output](args = (%a,), kwargs = {})";
    let state = [float("count", &["size"])];
    let program = |name| Source::new(name, lines, &[], &state, &[symbol("size", 1, 9)]);
    let weights = [weight("w", &[1], &[1.0]), weight("count", &[1], &[7.0])];
    bytes(&[program("a"), program("b")], &weights).unwrap()
}

#[test]
fn planted_faults_are_found() {
    assert!(open(counter()).is_ok());
    for (from, to, expected) in [
        (
            "\\\"name\\\":\\\"b\\\"",
            "\\\"name\\\":\\\"a\\\"",
            "program \"a\": the name stands twice",
        ),
        (
            "\\\"name\\\":\\\"b\\\"",
            "\\\"name\\\":\\\"\\\"",
            "of several, each has a name",
        ),
        (
            "\\\"state\\\":[\\\"count\\\"]",
            "\\\"state\\\":[\\\"counts\\\"]",
            "has no state \"counts\"",
        ),
        (
            "\\\"state\\\":[\\\"count\\\"]",
            "\\\"state\\\":[]",
            "size size: it is the size of no input",
        ),
        (
            "\\\"state\\\":[\\\"count\\\"]",
            "\\\"state\\\":[\\\"count\\\",\\\"count\\\"]",
            "no such input",
        ),
        (
            "\\\"shape\\\":[\\\"size\\\"]",
            "\\\"shape\\\":[\\\"other\\\"]",
            "size size: it is the size of no input",
        ),
        (
            "\\\"shape\\\":[\\\"size\\\"]",
            "\\\"shape\\\":[\\\"size\\\",2]",
            "count: float32[size, 2] begins as count: float32[1]",
        ),
        ("\\\"most\\\":9", "\\\"most\\\":0", "below its least"),
        (
            "[target=w]",
            "[target=count]",
            "the weight count is not in the file",
        ),
        (
            "\"corsac.format\":\"4\"",
            "\"corsac.format\":\"7\"",
            "version 7",
        ),
        (
            "\"corsac.format\":\"4\"",
            "\"corsac.format\":\"3\"",
            "corsac.graph",
        ),
        (
            "\"corsac.state\":",
            "\"corsac.stat\":",
            "corsac.state in the metadata: it is missing",
        ),
    ] {
        let error = open(edited(&counter(), from, to)).unwrap_err().to_string();
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
    assert_eq!(VERSION, 6);
}

#[test]
fn state_of_more_memory_than_allowed_is_refused_before_it_is_allocated() {
    let model = rows(
        "%w = call_method[target=index_copy_](args = (%cache, 2, %position, %row), kwargs = {})",
    );
    for capacity in [1 << 40, 1 << 50] {
        let error = model.session(&[("capacity", capacity)]).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::TooLarge, "{error}");
    }
    let mut session = model.session(&[("capacity", 4)]).unwrap();
    assert!(session.resize(&[("capacity", 1 << 40)]).is_err());
    assert_eq!(session.specs()[0].shape[2], 4);
}
