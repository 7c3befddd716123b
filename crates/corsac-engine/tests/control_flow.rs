//! Model files with control flow: branches, loops and scans; and hostile ones.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

mod kit;

use std::collections::BTreeMap;

use corsac_engine::{
    DType, Elements, Limits, Model, ModelError, ModelErrorKind, ModelFile, ProgramSource,
    Signature, Tensor, TensorSpec, programs_bytes,
};
use corsac_ir::Graph;
use kit::{graph, spec, typed};

/// The bytes of a file with these inputs, the lines of its graph, and those of graphs that it calls.
fn bytes(inputs: &[TensorSpec], lines: &str, called: &[(&str, &str)]) -> Vec<u8> {
    let placeholders = inputs.iter().map(|spec| {
        let name = &spec.name;
        format!("%{name} = placeholder[target={name}]\n")
    });
    let main = graph(&format!("{}{lines}", placeholders.collect::<String>()));
    let called: Vec<(&str, Graph)> = called
        .iter()
        .map(|(name, lines)| (*name, graph(lines)))
        .collect();
    let called: Vec<(&str, &Graph)> = called.iter().map(|(name, own)| (*name, own)).collect();
    let program = ProgramSource {
        name: "",
        graph: &main,
        signature: &Signature::fixed(inputs),
    };
    let weight: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0]
        .iter()
        .flat_map(|own| own.to_le_bytes())
        .collect();
    let weights = [(spec("w", &[2, 2]), &*weight)];
    let has_weight = lines.contains("target=w]")
        || called
            .iter()
            .any(|(_, own)| own.nodes().any(|node| own.node(node).target_name() == "w"));
    let weights = if has_weight { &weights[..] } else { &[] };
    programs_bytes(&[program], &called, weights, &BTreeMap::new()).unwrap()
}

fn load(bytes: Vec<u8>) -> Result<Model, ModelError> {
    ModelFile::from_bytes(bytes, &Limits::default()).and_then(Model::from_file)
}

fn refusal(bytes: Vec<u8>) -> (ModelErrorKind, String) {
    let error = load(bytes).unwrap_err();
    (error.kind(), error.to_string())
}

fn floats(shape: &[usize], elements: &[f32]) -> Tensor {
    Tensor::new(shape.to_vec(), elements.to_vec()).unwrap()
}

fn truth(own: bool) -> Tensor {
    Tensor::new([], [own]).unwrap()
}

const DOUBLE: (&str, &str) = (
    "double",
    "%x = placeholder[target=x]
    %y = call_function[target=torch.mul](args = (%x, 2.0), kwargs = {})
    %output = output[target=output](args = ((%y,),), kwargs = {})",
);

/// `x @ w.T`, with a weight of the file.
const LAYER: (&str, &str) = (
    "layer",
    "%x = placeholder[target=x]
    %w = get_attr[target=w]
    %y = call_function[target=torch.nn.functional.linear](args = (%x, %w), kwargs = {})
    %output = output[target=output](args = ((%y,),), kwargs = {})",
);

const COND: &str = "%double = get_attr[target=double]
    %layer = get_attr[target=layer]
    %both = call_function[target=torch.ops.higher_order.cond](args = (%c, %double, %layer, (%x,)), kwargs = {})
    %y = call_function[target=operator.getitem](args = (%both, 0), kwargs = {})
    %z = call_function[target=torch.add](args = (%y, 1.0), kwargs = {})
    %output = output[target=output](args = (%z,), kwargs = {})";

fn cond() -> Vec<u8> {
    let inputs = [typed("c", DType::Bool, &[]), spec("x", &[1, 2])];
    bytes(&inputs, COND, &[DOUBLE, LAYER])
}

#[test]
fn a_condition_chooses_a_graph() {
    let model = load(cond()).unwrap();
    let x = floats(&[1, 2], &[1.0, 10.0]);
    let first = model.run(&[truth(true), x.clone()]).unwrap();
    assert_eq!(first[0].as_f32(), Some(&[3.0, 21.0][..]));
    let second = model.run(&[truth(false), x]).unwrap();
    assert_eq!(second[0].as_f32(), Some(&[22.0, 44.0][..]));
}

#[test]
fn files_with_graphs_are_of_version_5_and_list_them() {
    let file = ModelFile::from_bytes(cond(), &Limits::default()).unwrap();
    let names: Vec<&str> = file.graphs().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["double", "layer"]);
    let text = String::from_utf8_lossy(&cond()).into_owned();
    assert!(text.contains("\"corsac.format\":\"5\""), "{text}");
}

/// Doubles `x` as long as the sum of its elements is below 100; counts in int32 how often, and keeps half of it in
/// bfloat16.
const LOOP: &[(&str, &str)] = &[
    (
        "small",
        "%x = placeholder[target=x]
        %n = placeholder[target=n]
        %h = placeholder[target=h]
        %most = placeholder[target=most]
        %sum = call_method[target=sum](args = (%x,), kwargs = {})
        %y = call_function[target=torch.lt](args = (%sum, %most), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})",
    ),
    (
        "body",
        "%x = placeholder[target=x]
        %n = placeholder[target=n]
        %h = placeholder[target=h]
        %most = placeholder[target=most]
        %y = call_function[target=torch.mul](args = (%x, 2.0), kwargs = {})
        %m = call_function[target=torch.add](args = (%n, 1), kwargs = {})
        %k = call_function[target=torch.mul](args = (%h, 1.01), kwargs = {})
        %output = output[target=output](args = ((%y, %m, %k),), kwargs = {})",
    ),
];

const LOOP_CALL: &str = "%small = get_attr[target=small]
    %body = get_attr[target=body]
    %y = call_function[target=torch.ops.higher_order.while_loop](args = (%small, %body, (%x, %n, %h), (%most,)), kwargs = {})
    %output = output[target=output](args = (%y,), kwargs = {})";

fn loop_inputs() -> [TensorSpec; 4] {
    [
        spec("x", &[2]),
        typed("n", DType::Int32, &[]),
        typed("h", DType::BFloat16, &[1]),
        spec("most", &[]),
    ]
}

fn loop_call(most: f32) -> Vec<Tensor> {
    let n = loop_inputs()[1].zeros().unwrap();
    let h = floats(&[1], &[1.0]).with_dtype(DType::BFloat16).unwrap();
    vec![floats(&[2], &[1.0, 2.0]), n, h, floats(&[], &[most])]
}

#[test]
fn a_loop_runs_as_long_as_its_condition_holds() {
    let model = load(bytes(&loop_inputs(), LOOP_CALL, LOOP)).unwrap();
    let found = model.run(&loop_call(100.0)).unwrap();
    assert_eq!(found[0].as_f32(), Some(&[64.0, 128.0][..]));
    assert_eq!(found[1].elements(), &Elements::I64(vec![6]));
    // 1.01 rounded to bfloat16 after each product: 1.0078125.
    assert_eq!(found[2].as_f32(), Some(&[1.046_875][..]));
    // No iteration: the results are the initial values.
    let found = model.run(&loop_call(0.0)).unwrap();
    assert_eq!(found[0].as_f32(), Some(&[1.0, 2.0][..]));
    assert_eq!(found[1].elements(), &Elements::I64(vec![0]));
}

#[test]
fn loops_without_an_end_are_stopped() {
    let limits = Limits {
        iterations: 1000,
        ..Limits::default()
    };
    let file = bytes(&loop_inputs(), LOOP_CALL, LOOP);
    let file = ModelFile::from_bytes(file, &limits).unwrap();
    let model = Model::from_file(file).unwrap();
    // Zeros stay below the bound.
    let mut inputs = loop_call(1.0);
    inputs[0] = floats(&[2], &[0.0, 0.0]);
    let error = model.run(&inputs).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Call);
    let text = "the loops of a call have more than 1000 iterations";
    assert_eq!(error.to_string(), text);
    // The next call begins anew.
    assert!(model.run(&loop_call(100.0)).is_ok());
}

const STEP: (&str, &str) = (
    "step",
    "%s = placeholder[target=s]
    %x = placeholder[target=x]
    %k = placeholder[target=k]
    %y = call_function[target=torch.add](args = (%s, %x), kwargs = {})
    %z = call_function[target=torch.mul](args = (%y, %k), kwargs = {})
    %big = call_function[target=torch.gt](args = (%z, 25.0), kwargs = {})
    %output = output[target=output](args = ((%y, %z, %big),), kwargs = {})",
);

const SCAN: &str = "%step = get_attr[target=step]
    %y = call_function[target=torch.ops.higher_order.scan](args = (%step, (%s,), (%xs,), (%k,)), kwargs = {})
    %output = output[target=output](args = (%y,), kwargs = {})";

#[test]
fn a_scan_takes_rows_and_returns_rows() {
    let inputs = [spec("s", &[2]), spec("xs", &[3, 2]), spec("k", &[])];
    let model = load(bytes(&inputs, SCAN, &[STEP])).unwrap();
    let shapes: Vec<&[usize]> = model.outputs().iter().map(|own| &*own.shape).collect();
    assert_eq!(shapes, [&[2][..], &[3, 2], &[3, 2]]);
    let xs = floats(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let given = [floats(&[2], &[0.0, 1.0]), xs, floats(&[], &[10.0])];
    let found = model.run(&given).unwrap();
    assert_eq!(found[0].as_f32(), Some(&[9.0, 13.0][..]));
    let rows = [10.0, 30.0, 40.0, 70.0, 90.0, 130.0];
    assert_eq!(found[1].as_f32(), Some(&rows[..]));
    assert_eq!(found[2].elements(), &Elements::Bool(vec![0, 1, 1, 1, 1, 1]));
}

#[test]
fn control_flow_is_nested() {
    // In each iteration of a scan, a condition doubles the state or multiplies it with the weight.
    let step = (
        "step",
        "%s = placeholder[target=s]
        %c = placeholder[target=c]
        %double = get_attr[target=double]
        %layer = get_attr[target=layer]
        %both = call_function[target=torch.ops.higher_order.cond](args = (%c, %double, %layer, (%s,)), kwargs = {})
        %y = call_function[target=operator.getitem](args = (%both, 0), kwargs = {})
        %output = output[target=output](args = ((%y, %y),), kwargs = {})",
    );
    let lines = "%step = get_attr[target=step]
        %y = call_function[target=torch.ops.higher_order.scan](args = (%step, (%s,), (%cs,), ()), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})";
    let inputs = [spec("s", &[1, 2]), typed("cs", DType::Bool, &[3])];
    let model = load(bytes(&inputs, lines, &[step, DOUBLE, LAYER])).unwrap();
    let cs = Tensor::new([3], vec![true, false, true]).unwrap();
    let found = model.run(&[floats(&[1, 2], &[1.0, 1.0]), cs]).unwrap();
    assert_eq!(found[0].as_f32(), Some(&[12.0, 28.0][..]));
    let rows = [2.0, 2.0, 6.0, 14.0, 12.0, 28.0];
    assert_eq!(found[1].as_f32(), Some(&rows[..]));
}

#[test]
fn many_threads_run_one_model_with_control_flow() {
    let model = load(cond()).unwrap().with_threads(2);
    std::thread::scope(|scope| {
        for at in 0..4 {
            let model = &model;
            scope.spawn(move || {
                let x = floats(&[1, 2], &[at as f32, 1.0]);
                for _ in 0..50 {
                    let found = model.run(&[truth(true), x.clone()]).unwrap();
                    assert_eq!(found[0].as_f32(), Some(&[at as f32 * 2.0 + 1.0, 3.0][..]));
                }
            });
        }
    });
}

#[test]
fn calls_of_graphs_that_do_not_fit_are_refused() {
    let other = |lines: &'static str| ("layer", lines);
    let inputs = [typed("c", DType::Bool, &[]), spec("x", &[1, 2])];
    let cases: &[((&str, &str), &str)] = &[
        (
            other(
                "%x = placeholder[target=x]
                %y = call_method[target=sum](args = (%x, 1), kwargs = {})
                %output = output[target=output](args = ((%y,),), kwargs = {})",
            ),
            "expected value 0 of equal types: float32[1, 2] (the first graph), got float32[1] (the second one)",
        ),
        (
            other(
                "%x = placeholder[target=x]
                %y = call_method[target=to](args = (%x, torch.int64), kwargs = {})
                %output = output[target=output](args = ((%y,),), kwargs = {})",
            ),
            "got int64[1, 2] (the second one)",
        ),
        (
            other(
                "%x = placeholder[target=x]
                %output = output[target=output](args = ((%x, %x),), kwargs = {})",
            ),
            "expected 1 results, as the first graph, got 2",
        ),
        (
            other(
                "%x = placeholder[target=x]
                %y = placeholder[target=y]
                %output = output[target=output](args = ((%x,),), kwargs = {})",
            ),
            "expected 2 operands, as the graph layer takes, got 1",
        ),
        (
            other(
                "%x = placeholder[target=x]
                %double = get_attr[target=double]
                %layer = get_attr[target=layer]
                %t = call_method[target=any](args = (%x,), kwargs = {})
                %y = call_function[target=torch.ops.higher_order.cond](args = (%t, %double, %layer, (%x,)), kwargs = {})
                %output = output[target=output](args = (%y,), kwargs = {})",
            ),
            "the graph layer calls itself",
        ),
        (
            other(
                "%x = placeholder[target=x]
                %double = get_attr[target=double]
                %y = call_function[target=operator.getitem](args = ((%double, %x), 1), kwargs = {})
                %output = output[target=output](args = ((%y,),), kwargs = {})",
            ),
            "it reads the graph double, and does not call it",
        ),
        (
            other(
                "%x = placeholder[target=x]
                %y = call_method[target=add_](args = (%x, 1.0), kwargs = {})
                %output = output[target=output](args = ((%y,),), kwargs = {})",
            ),
            "it writes to the input x",
        ),
        (
            other(
                "%x = placeholder[target=x]
                %y = call_method[target=reshape](args = (%x, (3, 3)), kwargs = {})
                %output = output[target=output](args = ((%y,),), kwargs = {})",
            ),
            "in node y of the graph layer",
        ),
        (
            other("%output = output[target=output](args = (), kwargs = {})"),
            "expected 0 operands",
        ),
        (
            other("%x = placeholder[target=x]"),
            "the graph has no output",
        ),
    ];
    for (layer, expected) in cases {
        let (_, text) = refusal(bytes(&inputs, COND, &[DOUBLE, *layer]));
        assert!(text.contains(expected), "{text}\n{expected}");
    }
    let (kind, text) = refusal(bytes(&inputs, COND, &[DOUBLE]));
    assert_eq!(kind, ModelErrorKind::Damaged);
    assert!(
        text.contains("the weight layer is not in the file"),
        "{text}"
    );
    let unused = ("unused", DOUBLE.1);
    let (_, text) = refusal(bytes(&inputs, COND, &[DOUBLE, LAYER, unused]));
    assert!(text.contains("no graph calls \"unused\""), "{text}");
    let (_, text) = refusal(bytes(&inputs, COND, &[DOUBLE, LAYER, DOUBLE]));
    assert!(text.contains("the name \"double\" stands twice"), "{text}");
    let (_, text) = refusal(bytes(&inputs, COND, &[DOUBLE, LAYER, ("w", DOUBLE.1)]));
    assert!(text.contains("a tensor has the name \"w\", too"), "{text}");
}

/// A chain of graphs, each of which calls the next one twice.
fn chain(len: usize) -> Vec<u8> {
    let named: Vec<(String, String)> = (0..len)
        .map(|at| {
            let lines = match at + 1 == len {
                true => DOUBLE.1.to_owned(),
                false => format!(
                    "%x = placeholder[target=x]
                    %next = get_attr[target=g{}]
                    %c = call_method[target=any](args = (%x,), kwargs = {{}})
                    %y = call_function[target=torch.ops.higher_order.cond](args = (%c, %next, %next, (%x,)), kwargs = {{}})
                    %output = output[target=output](args = (%y,), kwargs = {{}})",
                    at + 1
                ),
            };
            (format!("g{at}"), lines)
        })
        .collect();
    let called: Vec<(&str, &str)> = named.iter().map(|(a, b)| (&**a, &**b)).collect();
    let lines = "%next = get_attr[target=g0]
        %c = call_method[target=any](args = (%x,), kwargs = {})
        %y = call_function[target=torch.ops.higher_order.cond](args = (%c, %next, %next, (%x,)), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})";
    bytes(&[spec("x", &[2])], lines, &called)
}

#[test]
fn deep_and_wide_calls_are_refused_before_they_are_compiled() {
    let model = load(chain(3)).unwrap();
    let found = model.run(&[floats(&[2], &[1.0, 2.0])]).unwrap();
    assert_eq!(found[0].as_f32(), Some(&[2.0, 4.0][..]));
    for (len, expected) in [
        (15, "nodes of the graph, with those of calls"),
        (40, "graphs that call each other"),
        (4000, "graphs that call each other"),
    ] {
        let (kind, text) = refusal(chain(len));
        assert_eq!(kind, ModelErrorKind::TooLarge, "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn memory_of_loops_counts_before_it_is_allocated() {
    // Each iteration returns a row of 4 MiB: 16 GiB.
    let step = (
        "step",
        "%i = placeholder[target=i]
        %y = call_method[target=expand](args = (%i, 1048576), kwargs = {})
        %z = call_function[target=torch.add](args = (%y, 1.0), kwargs = {})
        %output = output[target=output](args = ((%z,),), kwargs = {})",
    );
    let lines = "%step = get_attr[target=step]
        %both = call_function[target=torch.ops.higher_order.scan](args = (%step, (), (%xs,), ()), kwargs = {})
        %rows = call_function[target=operator.getitem](args = (%both, 0), kwargs = {})
        %y = call_method[target=sum](args = (%rows,), kwargs = {})
        %output = output[target=output](args = (%y,), kwargs = {})";
    let (kind, text) = refusal(bytes(&[spec("xs", &[4096])], lines, &[step]));
    assert_eq!(kind, ModelErrorKind::TooLarge, "{text}");
    let wide = (
        "step",
        "%i = placeholder[target=i]
        %y = call_method[target=expand](args = (%i, 4294967296), kwargs = {})
        %z = call_method[target=sum](args = (%y,), kwargs = {})
        %output = output[target=output](args = ((%z,),), kwargs = {})",
    );
    let (_, text) = refusal(bytes(&[spec("xs", &[4096])], lines, &[wide]));
    assert!(
        text.contains("exceed") || text.contains("bytes of a value"),
        "{text}"
    );
}
