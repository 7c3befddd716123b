//! Model files: written, loaded and run; damaged and hostile ones.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

mod kit;

use corsac_engine::{
    DType, Data, Limits, Model, ModelError, ModelErrorKind, ModelFile, Tensor, model_bytes,
    write_model,
};
use corsac_ir::Graph;
use corsac_testkit::model_header::edited;
use kit::{graph, spec, typed};
use proptest::prelude::*;

fn bytes_of(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// `conv(x)`, normalised, its positive part, and the means of its channels.
fn network() -> Vec<u8> {
    let graph = graph(
        "%x = placeholder[target=x]
        %w = get_attr[target=conv.weight]
        %mean = get_attr[target=norm.mean]
        %var = get_attr[target=norm.var]
        %y = call_function[target=torch.nn.functional.conv2d](args = (%x, %w), kwargs = {padding: 1})
        %z = call_function[target=torch.nn.functional.batch_norm](args = (%y, %mean, %var), kwargs = {eps: 0.0})
        %r = call_method[target=relu](args = (%z,), kwargs = {})
        %m = call_method[target=mean](args = (%r, [2, 3]), kwargs = {})
        %output = output[target=output](args = ({'positive': %r, 'means': (%m, %m)},), kwargs = {})",
    );
    let weight: Vec<f32> = (0..36).map(|i| i as f32 / 10.0 - 1.0).collect();
    let weights = [
        (spec("conv.weight", &[2, 2, 3, 3]), bytes_of(&weight)),
        (spec("norm.mean", &[2]), bytes_of(&[0.5, -0.5])),
        (spec("norm.var", &[2]), bytes_of(&[4.0, 0.25])),
    ];
    let weights: Vec<_> = weights.iter().map(|(s, b)| (s.clone(), &b[..])).collect();
    model_bytes(&graph, &[spec("x", &[1, 2, 4, 4])], &weights).unwrap()
}

/// A model of one input and these lines, without weights.
fn lines(lines: &str, shape: &[usize]) -> Result<ModelFile, ModelError> {
    let text = format!(
        "%x = placeholder[target=x]
        {lines}
        %output = output[target=output](args = (%y,), kwargs = {{}})"
    );
    let bytes = model_bytes(&graph(&text), &[spec("x", shape)], &[]).unwrap();
    ModelFile::from_bytes(bytes, &Limits::default())
}

fn load(bytes: Vec<u8>) -> Result<Model, ModelError> {
    ModelFile::from_bytes(bytes, &Limits::default()).and_then(Model::from_file)
}

fn refusal(bytes: Vec<u8>) -> (ModelErrorKind, String) {
    let error = load(bytes).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    (error.kind(), text)
}

#[test]
fn a_model_runs_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network.safetensors");
    std::fs::write(&path, network()).unwrap();
    let model = Model::load(&path).unwrap().with_threads(1);
    let names: Vec<String> = model.outputs().iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "positive: float32[1, 2, 4, 4]",
            "means.0: float32[1, 2]",
            "means.1: float32[1, 2]"
        ]
    );
    let image: Vec<f32> = (0..32).map(|i| i as f32 / 8.0 - 2.0).collect();
    let x = Tensor::new([1, 2, 4, 4], image.clone()).unwrap();
    let outputs = model.run(std::slice::from_ref(&x)).unwrap();
    // By hand: the element in the middle of the second channel.
    let weight = |i: usize| i as f32 / 10.0 - 1.0;
    let mut sum = 0.0;
    for channel in 0..2 {
        for (ky, kx) in (0..9).map(|i| (i / 3, i % 3)) {
            let at = channel * 16 + (ky + 1) * 4 + kx + 1;
            sum += image[at] * weight(18 + channel * 9 + ky * 3 + kx);
        }
    }
    let expected = ((sum + 0.5) / 0.5).max(0.0);
    let got = outputs[0].as_f32().unwrap()[16 + 2 * 4 + 2];
    assert!((got - expected).abs() < 1e-4, "{got} {expected}");
    let mean: f32 = outputs[0].as_f32().unwrap()[16..].iter().sum::<f32>() / 16.0;
    assert!((outputs[1].as_f32().unwrap()[1] - mean).abs() < 1e-4);
    assert_eq!(outputs[1], outputs[2]);
    assert_eq!(model.run(&[x]).unwrap(), outputs);
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let model = load(network()).unwrap();
    let x = Tensor::new([2, 1, 4, 4], vec![0.0_f32; 32]).unwrap();
    let error = model.run(&[x]).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call);
    assert_eq!(
        error.to_string(),
        "the input is x: float32[1, 2, 4, 4], not float32[2, 1, 4, 4]"
    );
    let error = model.run(&[]).unwrap_err().to_string();
    assert_eq!(error, "the program takes 1 inputs, not 0");
    let error = model
        .run_into(&[Data::F32(&[0.0; 32])], &mut [])
        .unwrap_err();
    assert_eq!(error.to_string(), "the program makes 3 results, not 0");
    let error = Tensor::new([usize::MAX, 2], [0.0_f32; 0]).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call);
}

#[test]
fn many_threads_run_one_model() {
    let model = load(network()).unwrap();
    let run = |seed: usize| {
        let image: Vec<f32> = (0..32)
            .map(|i| ((i * 7 + seed) % 11) as f32 - 5.0)
            .collect();
        let x = Tensor::new([1, 2, 4, 4], image).unwrap();
        model.run(&[x]).unwrap()
    };
    let expected: Vec<_> = (0..4).map(run).collect();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (run, expected) = (&run, &expected);
            scope.spawn(move || (0..50).for_each(|_| assert_eq!(run(seed), expected[seed])));
        }
    });
}

#[test]
fn writing_is_all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let double = graph(
        "%x = placeholder[target=x] at '/home/somebody/secret.py':3 in 'forward'
        %y = call_function[target=operator.mul](args = (%x, 2), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})",
    );
    write_model(&path, &double, &[spec("x", &[2])], &[]).unwrap();
    let first = std::fs::read(&path).unwrap();
    assert!(!String::from_utf8_lossy(&first).contains("secret"));
    write_model(&path, &double, &[spec("x", &[2])], &[]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first, "the same bytes again");
    // A model that could not be loaded does not replace one that can.
    let unknown = graph(
        "%x = placeholder[target=x]
        %y = call_function[target=torch.load](args = (%x,), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})",
    );
    let error = write_model(&path, &unknown, &[spec("x", &[2])], &[]).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Unsupported);
    assert_eq!(std::fs::read(&path).unwrap(), first);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let weight = (spec("w", &[2]), &[0_u8; 8][..]);
    let error = write_model(
        &path,
        &double,
        &[spec("x", &[2])],
        &[weight.clone(), weight],
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "weight w: two weights have this name"
    );
    let error = write_model(
        folder.path().join("no/such"),
        &double,
        &[spec("x", &[2])],
        &[],
    );
    assert_eq!(error.unwrap_err().kind(), ModelErrorKind::Io);
}

#[test]
fn files_that_are_not_whole_are_errors() {
    let whole = network();
    for len in 0..whole.len() {
        let (kind, text) = refusal(whole[..len].to_vec());
        assert_eq!(kind, ModelErrorKind::Damaged, "{len}: {text}");
    }
    let longer = [&whole[..], &[0; 4]].concat();
    let (_, text) = refusal(longer);
    assert!(text.contains("bytes are there"), "{text}");
    let huge = [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat();
    assert!(
        refusal(huge)
            .1
            .contains("a header of 18446744073709551615 bytes")
    );
    let error = Model::load("/no/such/file").unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Io);
    let error = Model::load(std::env::temp_dir()).unwrap_err();
    assert!(
        error.to_string().ends_with("this is no regular file"),
        "{error}"
    );
}

#[test]
fn files_that_were_edited_are_errors() {
    use ModelErrorKind::{Damaged, TooLarge, Unsupported, Version};
    let cases: &[(&str, &str, ModelErrorKind, &str)] = &[
        (
            "\"corsac.format\":\"1\"",
            "\"corsac.format\":\"7\"",
            Version,
            "version 7 of the format, and this program reads versions 1 to 6",
        ),
        (
            "\"corsac.format\":\"1\"",
            "\"corsac.format\":\"0\"",
            Version,
            "version 0 of the format",
        ),
        (
            "\"corsac.format\":\"1\"",
            "\"corsac.format\":\"x\"",
            Version,
            "version x",
        ),
        (
            "corsac.format",
            "corsac.layout",
            Damaged,
            "corsac.format in the metadata: it is missing",
        ),
        (
            "\"corsac.graph\"",
            "\"corsac.more\":\"\",\"corsac.graph\"",
            Damaged,
            "no key \"corsac.more\"",
        ),
        (
            "\"corsac.format\"",
            "\"corsac.format\":\"1\",\"corsac.format\"",
            Damaged,
            "stands twice",
        ),
        (
            "\"norm.mean\":",
            "\"norm.var\":",
            Damaged,
            "the name \"norm.var\" stands twice",
        ),
        (
            "\"norm.mean\":",
            "\"norm.other\":",
            Damaged,
            "the weight norm.mean is not in the file",
        ),
        (
            "graph v1:",
            "graph v2:",
            Damaged,
            "version 1 of the text form",
        ),
        ("graph v1:", "graph():", Damaged, "lossless form"),
        (
            "target=x]",
            "target=y]",
            Damaged,
            "an input called y, where x is",
        ),
        (
            "\\\"name\\\":\\\"x\\\"",
            "\\\"name\\\":\\\"a\\\"",
            Damaged,
            "an input called x, where a is",
        ),
        ("[1,2,4,4]", "[1,3,4,4]", Damaged, "node y of the graph"),
        ("[1,2,4,4]", "[1,2,4]", Damaged, "node y of the graph"),
        (
            "[1,2,4,4]",
            "[1,2,4,4000000000]",
            TooLarge,
            "bytes of an input",
        ),
        (
            "[1,2,4,4]",
            "[0,2,4,18446744073709551615]",
            TooLarge,
            "bytes of an input",
        ),
        (
            "[1,2,4,4]",
            "[1,2,4,-4]",
            Damaged,
            "corsac.inputs in the metadata",
        ),
        (
            "\\\"float32\\\"",
            "\\\"float3\\\"",
            Damaged,
            "an element type that does not exist",
        ),
        (
            "\\\"float32\\\"",
            "\\\"int64\\\"",
            Damaged,
            "node y of the graph",
        ),
        (
            "call_method[target=relu]",
            "call_method[target=save]",
            Unsupported,
            "r (save)",
        ),
        (
            "call_method[target=relu]",
            "call_module[target=relu]",
            Damaged,
            "it calls the module relu",
        ),
        (
            "torch.nn.functional.conv2d",
            "os.system",
            Unsupported,
            "y (os.system)",
        ),
        (
            "args = (%y, %mean",
            "args = (%r, %mean",
            Damaged,
            "the number of nodes here that use y",
        ),
        (
            "args = (%y, %mean",
            "args = (%q, %mean",
            Damaged,
            "expected the name of a node",
        ),
        (
            "padding: 1",
            "padding: 1000000000",
            TooLarge,
            "bytes of a value",
        ),
        ("padding: 1", "padding: -1", Damaged, "node y of the graph"),
        ("\"F32\"", "\"F64\"", Damaged, "safetensors"),
        ("\"F32\"", "\"F99\"", Damaged, "F99"),
        ("\"shape\":[2]", "\"shape\":[4]", Damaged, "safetensors"),
        (
            "\"shape\":[2]",
            "\"shape\":[2,1]",
            Unsupported,
            "z (torch.nn.functional.batch_norm): a weight of shape [2, 1], not [2]",
        ),
        (
            "\"data_offsets\":[144,152]",
            "\"data_offsets\":[140,148]",
            Damaged,
            "safetensors",
        ),
        (
            "\"data_offsets\":[144,152]",
            "\"data_offsets\":[144,18446744073709551615]",
            Damaged,
            "safetensors",
        ),
    ];
    let whole = network();
    for (from, to, kind, message) in cases {
        let (got, text) = refusal(edited(&whole, from, to));
        assert!(
            got == *kind && text.contains(message),
            "{from} -> {to}: {text}"
        );
    }
}

#[test]
fn what_asks_for_too_much_is_refused_before_it_is_made() {
    let double = "%a = call_function[target=operator.add](args = ((%x,), (%x,)), kwargs = {})\n";
    let mut doubled = double.to_owned();
    let mut nested = double.to_owned();
    for i in 0..60 {
        let (before, after) = (
            if i == 0 {
                "a".to_owned()
            } else {
                format!("a{i}")
            },
            i + 1,
        );
        doubled += &format!(
            "%a{after} = call_function[target=operator.add](args = (%{before}, %{before}), kwargs = {{}})\n"
        );
        nested += &format!(
            "%a{after} = call_function[target=operator.add](args = ((%{before},), (%{before},)), kwargs = {{}})\n"
        );
    }
    let last = "%y = call_function[target=operator.getitem](args = (%a60, 0), kwargs = {})";
    let cases = [
        (
            "%y = call_method[target=expand](args = (%x, 4000000000, 4), kwargs = {})",
            "bytes of a value",
        ),
        (
            "%y = call_method[target=repeat](args = (%x, 9000000000000000000, 4), kwargs = {})",
            "bytes of a value",
        ),
        (
            "%y = call_function[target=torch.nn.functional.pad](args = (%x, (0, 9223372036854775807)), kwargs = {})",
            "bytes of a value",
        ),
        (
            "%u = call_method[target=expand](args = (%x, 0, 4000000000000, 4), kwargs = {})\n%y = call_method[target=sum](args = (%u,), kwargs = {})",
            "bytes of a value",
        ),
        (&format!("{doubled}{last}"), "items of containers"),
        (&format!("{nested}{last}"), "items of containers"),
        (
            "%s = call_function[target=operator.mul](args = ((%x,), 65535), kwargs = {})\n%t = call_function[target=operator.mul](args = (%s, 65535), kwargs = {})\n%y = call_function[target=operator.getitem](args = (%t, 0), kwargs = {})",
            "s (operator.mul)",
        ),
        (
            "%s = call_method[target=chunk](args = (%x, 4000000000), kwargs = {})\n%y = call_function[target=operator.getitem](args = (%s, 0), kwargs = {})",
            "parts are too many",
        ),
        (
            "%e = call_method[target=expand](args = (%x, 100000000, 4), kwargs = {})\n%s = call_method[target=unbind](args = (%e,), kwargs = {})\n%y = call_function[target=operator.getitem](args = (%s, 0), kwargs = {})",
            "parts are too many",
        ),
        (
            "%y = call_function[target=torch.sum](args = (%x, range(-9223372036854775808, 9223372036854775807)), kwargs = {}) ",
            "y (torch.sum)",
        ),
    ];
    for (text, expected) in cases {
        match lines(text, &[1, 4]) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(expected), "{text}: {message}");
                assert_ne!(error.kind(), ModelErrorKind::Internal, "{text}: {message}");
            }
        }
    }
    // A kernel with a large stride needs as many planes as it has phases.
    let conv = "%w = call_method[target=reshape](args = (%x, 1, 1, 1, 4), kwargs = {})
        %y = call_function[target=torch.nn.functional.conv2d](args = (%w, %w), kwargs = {stride: 1000000})";
    let error = lines(conv, &[1, 4]).unwrap_err().to_string();
    assert!(error.contains("bytes of a convolution's input"), "{error}");
}

#[test]
fn a_step_may_be_as_large_as_it_likes() {
    let slice = "%y = call_function[target=operator.getitem](args = (%x, (slice(None, None, None), slice(1, 3, 9223372036854775807))), kwargs = {})";
    let model = Model::from_file(lines(slice, &[2, 4]).unwrap()).unwrap();
    let x = Tensor::new([2, 4], [0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
    let outputs = model.run(&[x]).unwrap();
    assert_eq!(outputs, [Tensor::new([2, 1], [1.0_f32, 5.0]).unwrap()]);
}

#[test]
fn integers_and_truth_values_come_from_files() {
    let graph = graph(
        "%i = placeholder[target=i]
        %w = get_attr[target=table]
        %n = get_attr[target=offsets]
        %s = call_function[target=operator.add](args = (%i, %n), kwargs = {})
        %e = call_function[target=torch.nn.functional.embedding](args = (%s, %w), kwargs = {})
        %g = call_function[target=operator.gt](args = (%e, 2.5), kwargs = {})
        %output = output[target=output](args = ((%e, %s, %g),), kwargs = {})",
    );
    let offsets: Vec<u8> = [1_i64, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    let table = bytes_of(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let weights = [
        (typed("offsets", DType::Int64, &[2]), &offsets[..]),
        (spec("table", &[3, 2]), &table[..]),
    ];
    let inputs = [typed("i", DType::Int64, &[2])];
    let model = load(model_bytes(&graph, &inputs, &weights).unwrap()).unwrap();
    let names: Vec<String> = model.outputs().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["0: float32[2, 2]", "1: int64[2]", "2: bool[2, 2]"]);
    let outputs = model.run(&[Tensor::new([2], [1_i64, 1]).unwrap()]).unwrap();
    assert_eq!(
        outputs,
        [
            Tensor::new([2, 2], [4.0_f32, 5.0, 2.0, 3.0]).unwrap(),
            Tensor::new([2], [2_i64, 1]).unwrap(),
            Tensor::new([2, 2], [true, true, false, true]).unwrap(),
        ]
    );
    let error = model
        .run(&[Tensor::new([2], [7_i64, 0]).unwrap()])
        .unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call);
    assert!(
        error.to_string().contains("index 8 is out of range"),
        "{error}"
    );
    let error = model
        .run(&[Tensor::new([2], [1.0_f32, 0.0]).unwrap()])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the input is i: int64[2], not float32[2]"
    );
}

#[test]
fn limits_can_be_set() {
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        ModelFile::from_bytes(network(), &limits)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        limits(|l| l.nodes = 8),
        "nodes of the graph: 9 is more than the limit of 8"
    );
    assert!(limits(|l| l.header_bytes = 100).starts_with("bytes of the header: "));
    assert_eq!(
        limits(|l| l.weight_bytes = 159),
        "bytes of weights: 160 is more than the limit of 159"
    );
    assert!(limits(|l| l.value_bytes = 127).contains(": 128 is more than the limit of 127"));
}

#[test]
fn a_file_cut_off_after_it_was_opened_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network.safetensors");
    std::fs::write(&path, network()).unwrap();
    let file = ModelFile::open(&path).unwrap();
    let len = network().len() as u64;
    let own = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    own.set_len(len - 100).unwrap();
    assert_eq!(
        Model::from_file(file).unwrap_err().kind(),
        ModelErrorKind::Io
    );
}

/// Words for the text of a graph, and numbers at the bounds of their types.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "4",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "18446744073709551616",
    "1e308",
    "nan",
    "-inf",
    "None",
    "True",
    "()",
    "(1, 2)",
    "[2, 3]",
    "(0, 9223372036854775807)",
    "'same'",
    "'x'",
    "%x",
    "%w",
    "%y",
    "%r",
    "slice(None, None, -1)",
    "slice(9223372036854775807, None, 1)",
    "range(0, 9223372036854775807)",
    "torch.float64",
    "torch.int64",
    "Ellipsis",
    "2j",
];

/// Operators that take one tensor, or two, and any number.
const CALLS: &[&str] = &[
    "relu",
    "mean",
    "sum",
    "amax",
    "softmax",
    "flatten",
    "unflatten",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "permute",
    "transpose",
    "expand",
    "chunk",
    "split",
    "unbind",
    "narrow",
    "select",
    "roll",
    "matmul",
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "clamp",
    "repeat",
    "t",
    "contiguous",
    "add_",
    "relu_",
    "new_zeros",
    "cumsum",
    "topk",
    "index_select",
    "tile",
    "unfold",
    "as_strided",
];

fn value() -> impl Strategy<Value = String> {
    let word = || proptest::sample::select(WORDS).prop_map(str::to_owned);
    prop_oneof![
        4 => word(),
        1 => any::<i64>().prop_map(|i| i.to_string()),
        1 => (-4_i64..5).prop_map(|i| i.to_string()),
        1 => proptest::collection::vec(word(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
    ]
}

fn call() -> impl Strategy<Value = String> {
    let function = proptest::sample::select(
        &[
            "torch.nn.functional.conv2d",
            "torch.nn.functional.conv1d",
            "torch.nn.functional.linear",
            "torch.nn.functional.layer_norm",
            "torch.nn.functional.max_pool2d",
            "torch.nn.functional.avg_pool2d",
            "torch.nn.functional.adaptive_avg_pool2d",
            "torch.nn.functional.pad",
            "torch.nn.functional.scaled_dot_product_attention",
            "torch.nn.functional.batch_norm",
            "torch.cat",
            "torch.stack",
            "torch.addmm",
            "operator.getitem",
            "torch.zeros",
            "torch.arange",
            "torch.einsum",
            "operator.add",
            "operator.mul",
            "operator.pow",
            "operator.lshift",
            "operator.floordiv",
            "builtins.getattr",
            "torch.nn.functional.interpolate",
            "torch.nn.functional.embedding",
            "torch.bmm",
            "torch.tensor_split",
            "torch.full",
        ][..],
    );
    let method = proptest::sample::select(CALLS);
    let target = prop_oneof![
        function.prop_map(|name| format!("call_function[target={name}]")),
        method.prop_map(|name| format!("call_method[target={name}]")),
    ];
    let keyword = proptest::sample::select(
        &[
            "dim",
            "stride",
            "padding",
            "dilation",
            "groups",
            "kernel_size",
            "ceil_mode",
            "size",
            "eps",
            "bias",
            "scale",
            "is_causal",
            "keepdim",
            "output_size",
        ][..],
    );
    let first = proptest::sample::select(&["%x", "%w", "%y", "%z", "[%x, %y]", "(%w,)"][..]);
    let rest = proptest::collection::vec(value(), 0..5);
    let named = proptest::collection::btree_map(keyword, value(), 0..3);
    (target, first, rest, named).prop_map(|(target, first, rest, named)| {
        let rest: String = rest.iter().map(|value| format!(", {value}")).collect();
        let named: Vec<String> = named
            .iter()
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        format!(
            "{target}(args = ({first}{rest},), kwargs = {{{}}})",
            named.join(", ")
        )
    })
}

fn small_shape() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![8 => 1_usize..5, 1 => Just(0), 1 => Just(1 << 20), 1 => any::<usize>()];
    proptest::collection::vec(size, 0..5)
}

/// Loads `bytes` with small limits, and runs the model if it loads.
fn survives(bytes: Vec<u8>) {
    let limits = Limits {
        value_bytes: 1 << 22,
        ..Limits::default()
    };
    let model = match ModelFile::from_bytes(bytes, &limits).and_then(Model::from_file) {
        Ok(model) => model.with_threads(1),
        Err(error) => {
            assert_ne!(error.kind(), ModelErrorKind::Internal, "{error}");
            return;
        }
    };
    let inputs: Vec<Tensor> = model
        .inputs()
        .iter()
        .map(|spec| match spec.dtype {
            DType::Float32 => {
                let len = spec.shape.iter().product();
                Tensor::new(spec.shape.clone(), vec![0.5_f32; len]).unwrap()
            }
            _ => spec.zeros().unwrap(),
        })
        .collect();
    let outputs = match model.run(&inputs) {
        Ok(outputs) => outputs,
        // Indices out of range and divisions by zero are expected.
        Err(error) => return assert_eq!(error.kind(), ModelErrorKind::Call, "{error}"),
    };
    for (spec, tensor) in model.outputs().iter().zip(&outputs) {
        assert_eq!(spec.shape, tensor.shape());
    }
}

proptest! {
    #[test]
    fn bytes_that_change_do_no_harm(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_header in any::<bool>(),
    ) {
        let mut bytes = network();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize + 8;
        for (at, byte) in changes {
            let at = at.index(if in_header { len } else { bytes.len() });
            bytes[at] = byte;
        }
        survives(bytes);
    }

    #[test]
    fn words_of_the_graph_that_change_do_no_harm(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), value()), 1..4),
    ) {
        let bytes = network();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = std::str::from_utf8(&bytes[8..8 + len]).unwrap();
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '%' | '-');
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
    fn graphs_of_any_calls_do_no_harm(
        calls in proptest::collection::vec(call(), 1..5),
        shapes in [small_shape(), small_shape()],
        users in any::<bool>(),
    ) {
        let names = ["y", "z", "r", "s", "t"];
        let mut text = "%x = placeholder[target=x]\n%w = placeholder[target=w]\n".to_owned();
        for (name, call) in names.iter().zip(&calls) {
            text += &format!("%{name} = {call}\n");
        }
        let last = names[calls.len() - 1];
        let results = if users { format!("(%{last}, %y)") } else { format!("%{last}") };
        text += &format!("%output = output[target=output](args = ({results},), kwargs = {{}})");
        let Ok(graph) = Graph::parse(&format!("graph v1:\n{text}")) else { return Ok(()) };
        let inputs = [spec("x", &shapes[0]), spec("w", &shapes[1])];
        survives(model_bytes(&graph, &inputs, &[]).unwrap());
    }
}

#[test]
fn inputs_weights_and_results_have_their_types() {
    use DType::{BFloat16, Float16, Int16, Int32};
    let graph = graph(
        "%x = placeholder[target=x]
        %n = placeholder[target=n]
        %w = get_attr[target=w]
        %y = call_function[target=torch.mul](args = (%x, %w), kwargs = {})
        %h = call_method[target=half](args = (%x,), kwargs = {})
        %m = call_function[target=torch.mul](args = (%n, %n), kwargs = {})
        %s = call_method[target=to](args = (%n, torch.int16), kwargs = {})
        %output = output[target=output](args = ((%y, %h, %m, %s),), kwargs = {})",
    );
    // 1.5 and -2^-7 as float16.
    let bits = [0x3e00_u16, 0xa000].map(u16::to_le_bytes).concat();
    let inputs = [typed("x", BFloat16, &[2]), typed("n", Int32, &[3])];
    let weights = [(typed("w", Float16, &[2]), &bits[..])];
    let bytes = model_bytes(&graph, &inputs, &weights).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains(r#""corsac.format":"2""#));
    let model = load(bytes).unwrap();
    let outputs: Vec<String> = model.outputs().iter().map(ToString::to_string).collect();
    assert_eq!(
        outputs,
        [
            "0: float32[2]",
            "1: float16[2]",
            "2: int32[3]",
            "3: int16[3]"
        ]
    );
    // 1 + 2^-9 is not of bfloat16: it is rounded to 1.
    let x = Tensor::new([2], [1.001_953_1_f32, 3.0]).unwrap();
    let x = x.with_dtype(BFloat16).unwrap();
    let n = Tensor::new([3], [70_000_i64, -3, 1 << 20]).unwrap();
    let n = n.with_dtype(Int32).unwrap();
    let found = model.run(&[x.clone(), n.clone()]).unwrap();
    assert_eq!(found[0].as_f32().unwrap(), [1.5, -3.0 / 128.0]);
    assert_eq!(found[1].dtype(), Float16);
    assert_eq!(found[1].as_f32().unwrap(), [1.0, 3.0]);
    // 70,000² = 4,900,000,000 modulo 2^32, and 2^40.
    let wrapped = Tensor::new([3], [605_032_704_i64, 9, 0]).unwrap();
    assert_eq!(found[2], wrapped.with_dtype(Int32).unwrap());
    let short = Tensor::new([3], [4_464_i64, -3, 0]).unwrap();
    assert_eq!(found[3], short.with_dtype(Int16).unwrap());

    let plain = Tensor::new([2], [1.0_f32, 3.0]).unwrap();
    let error = model.run(&[plain.clone(), n.clone()]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the input is x: bfloat16[2], not float32[2]"
    );
    let error = n.with_dtype(Int16).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call);
    assert_eq!(
        error.to_string(),
        "the number 70000 in a tensor of torch.int16"
    );
    let error = plain.with_dtype(Int16).unwrap_err().to_string();
    assert_eq!(error, "elements of float32 in a tensor of torch.int16");
}

#[test]
fn interpolation_is_bounded() {
    let resized = |sizes: &[usize]| {
        let mut text = String::new();
        for (at, size) in sizes.iter().enumerate() {
            let from = if at == 0 {
                "x".to_owned()
            } else {
                format!("s{at}")
            };
            let to = if at + 1 == sizes.len() {
                "y".to_owned()
            } else {
                format!("s{}", at + 1)
            };
            text += &format!(
                "%{to} = call_function[target=torch.nn.functional.interpolate](args = (%{from},), kwargs = {{size: {size}, mode: \"linear\"}})\n"
            );
        }
        lines(&text, &[1, 1, 4])
    };
    assert!(resized(&[1000, 7]).is_ok());
    for sizes in [&[5_000_000][..], &[3_000_000, 2_000_000]] {
        let error = resized(sizes).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains("interpolation to more than 4194304 rows"),
            "{text}"
        );
    }
}
