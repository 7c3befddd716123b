//! Tests of generated code that need no Python. `tests/codegen` compares it with the code of
//! torch.fx for the same graphs.

use crate::{
    Callee, Calling, CodegenError, Expr, Global, GlobalValue, Host, NamedHost, Notes, Options,
    Piece, PyTree, assemble, draft, python_code,
};
use corsac_ir::{
    Arg, DType, Device, DeviceKind, Dict, ExternalId, FunctionId, Graph, NodeId, NodeSpec, Op,
    Target, thin_vec,
};

fn code(graph: &Graph) -> String {
    code_with(graph, &Options::default())
}

fn code_with(graph: &Graph, options: &Options) -> String {
    let code = python_code(graph, options, &NamedHost::new(graph)).unwrap();
    code.src.trim_matches(['\n', ' ']).to_owned()
}

/// The right-hand side of `x.method(arg)` up to the argument.
fn argument(graph: &mut Graph, arg: Arg) -> String {
    let x = graph.placeholder("x").unwrap();
    let node = graph.call_method("f", [x.into(), arg]).unwrap();
    graph.output(node).unwrap();
    let code = code(graph);
    let line = code.lines().nth(1).unwrap();
    let start = line
        .find(".f(x, ")
        .map_or_else(|| line.find(".f(").unwrap() + 3, |at| at + 6);
    line[start..line.find(");  ").unwrap()].to_owned()
}

#[test]
fn every_opcode() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let scale = graph
        .placeholder_with_default("scale", Arg::Float(2.0))
        .unwrap();
    let weight = graph.get_attr("layers.0.weight").unwrap();
    let linear = graph.function("torch.nn.functional.linear");
    let y = graph
        .call_function(linear, [x.into(), weight.into()])
        .unwrap();
    let z = graph.call_module("head.act", [y.into()]).unwrap();
    let mul = graph.function("operator.mul");
    let m = graph.call_function(mul, [z.into(), scale.into()]).unwrap();
    let r = graph.call_method("sum", [m.into(), Arg::Int(-1)]).unwrap();
    graph
        .output(Arg::tuple([r.into(), x.into()]).unwrap())
        .unwrap();
    assert_eq!(
        code(&graph),
        r#"def forward(self, x, scale = 2.0):
    layers_0_weight = getattr(self.layers, "0").weight
    linear = torch.nn.functional.linear(x, layers_0_weight);  layers_0_weight = None
    head_act = self.head.act(linear);  linear = None
    mul = head_act * scale;  head_act = scale = None
    sum_1 = mul.sum(-1);  mul = None
    return (sum_1, x)"#
    );
}

#[test]
fn unused_values_are_let_go_at_once() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    graph.call_method("add_", [x.into(), Arg::Int(1)]).unwrap();
    graph.output(Arg::None).unwrap();
    assert_eq!(
        code(&graph),
        "def forward(self, x):\n    add_ = x.add_(1);  x = add_ = None\n    return None"
    );
}

#[test]
fn a_function_without_statements_passes() {
    let mut graph = Graph::new();
    assert_eq!(code(&graph), "def forward(self):\n    pass");
    graph.placeholder("x").unwrap();
    assert_eq!(code(&graph), "def forward(self, x):\n    pass");
}

#[test]
fn operators_in_place_assign_their_result() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let iadd = graph.function("_operator.iadd");
    let y = graph.call_function(iadd, [x.into(), Arg::Int(1)]).unwrap();
    let setitem = graph.function("operator.setitem");
    let slice = Arg::slice(Arg::None, Arg::Int(2), Arg::None).unwrap();
    graph
        .call_function(setitem, [y.into(), slice, Arg::Float(0.5)])
        .unwrap();
    graph.output(y).unwrap();
    assert_eq!(
        code(&graph),
        "def forward(self, x):
    x += 1;  iadd = x;  x = None
    iadd[slice(None, 2, None)] = 0.5;  setitem = iadd;  setitem = None
    return iadd"
    );
}

#[test]
fn operators_with_other_arguments_are_calls() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let add = graph.function("operator.add");
    let one = graph.call_function(add, [x.into()]).unwrap();
    let iadd = graph.function("operator.iadd");
    let two = graph.call_function(iadd, [Arg::Int(1), x.into()]).unwrap();
    graph
        .output(Arg::tuple([one.into(), two.into()]).unwrap())
        .unwrap();
    let code = code(&graph);
    assert!(code.contains("add = _operator_add(x)\n"), "{code}");
    assert!(code.contains("iadd = _operator_iadd(1, x);"), "{code}");
}

#[test]
fn signs_bind_as_they_should() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let pow = graph.function("operator.pow");
    let a = graph.call_function(pow, [Arg::Int(-2), x.into()]).unwrap();
    let b = graph.call_function(pow, [a.into(), Arg::Int(-2)]).unwrap();
    let c = graph.call_method("real", [Arg::Int(1)]).unwrap();
    graph
        .output(Arg::tuple([b.into(), c.into()]).unwrap())
        .unwrap();
    let code = code(&graph);
    assert!(code.contains("pow_1 = (-2) ** x;"), "{code}");
    assert!(code.contains("pow_2 = pow_1 ** -2;"), "{code}");
    assert!(code.contains("real = (1).real()"), "{code}");
}

#[test]
fn literals() {
    let cases: Vec<(Arg, &str)> = vec![
        (Arg::None, "None"),
        (Arg::Ellipsis, "Ellipsis"),
        (Arg::Bool(true), "True"),
        (Arg::Int(-3), "-3"),
        (Arg::Float(f64::NEG_INFINITY), "-inf"),
        (Arg::Float(1e-7), "1e-07"),
        (Arg::Complex(Box::new((1.0, -2.0))), "(1-2j)"),
        (Arg::Complex(Box::new((-0.0, 1.0))), "complex(-0.0, 1.0)"),
        (Arg::Complex(Box::new((1.0, f64::NAN))), "complex(1.0, nan)"),
        (Arg::Bytes(Box::new(b"a'\n".to_vec())), "b\"a'\\n\""),
        (Arg::DType(DType::BFloat16), "torch.bfloat16"),
        (
            Arg::Device(Device {
                kind: DeviceKind::Cuda,
                index: Some(0),
            }),
            "device(type='cuda', index=0)",
        ),
        (Arg::tuple([]).unwrap(), "()"),
        (Arg::tuple([Arg::Int(1)]).unwrap(), "(1,)"),
        (
            Arg::list([Arg::tuple([Arg::None, Arg::Int(2)]).unwrap()]).unwrap(),
            "[(None, 2)]",
        ),
        (
            Arg::Dict(Dict::new([(Arg::Int(1), Arg::Float(f64::INFINITY))]).unwrap()),
            "{1: inf}",
        ),
        (
            Arg::slice(Arg::None, Arg::None, Arg::Int(2)).unwrap(),
            "slice(None, None, 2)",
        ),
    ];
    for (arg, expected) in cases {
        assert_eq!(argument(&mut Graph::new(), arg), expected);
    }
    let mut graph = Graph::new();
    let text = graph.intern("it's\n\u{1}");
    assert_eq!(argument(&mut graph, Arg::Str(text)), r#""it's\n\x01""#);
}

#[test]
fn attributes_of_values() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let getattr = graph.function("builtins.getattr");
    for name in ["shape", "for", "a b", "x\").evil(\""] {
        let name = Arg::Str(graph.intern(name));
        graph.call_function(getattr, [x.into(), name]).unwrap();
    }
    let shape = Arg::Str(graph.intern("shape"));
    let last = graph
        .call_function(getattr, [x.into(), shape, Arg::None])
        .unwrap();
    graph.output(last).unwrap();
    assert_eq!(
        code(&graph),
        r#"def forward(self, x):
    getattr_1 = x.shape;  getattr_1 = None
    getattr_2 = getattr(x, 'for');  getattr_2 = None
    getattr_3 = getattr(x, 'a b');  getattr_3 = None
    getattr_4 = getattr(x, 'x").evil("');  getattr_4 = None
    getattr_5 = getattr(x, 'shape', None);  x = None
    return getattr_5"#
    );
}

fn kwargs_node(graph: &mut Graph, x: NodeId, keys: &[&str]) -> NodeId {
    let function = Target::Function(graph.function("my.function"));
    let kwargs = keys
        .iter()
        .map(|key| (graph.intern(key), Arg::Int(1)))
        .collect();
    let spec = NodeSpec {
        op: Op::CallFunction,
        target: function,
        args: thin_vec![x.into()],
        kwargs,
        ty: None,
    };
    graph.create(spec, None).unwrap()
}

#[test]
fn keywords_that_are_no_identifiers() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = kwargs_node(&mut graph, x, &["dim", "for", "a'b", "keepdim"]);
    graph.output(y).unwrap();
    let code = code(&graph);
    assert!(
        code.contains(r#"my_function(x, dim = 1, **{'for': 1}, **{"a'b": 1}, keepdim = 1)"#),
        "{code}"
    );
}

#[test]
fn nothing_in_a_graph_gets_out_of_its_place() {
    let evil = "x): pass\nimport os; os.system('true') #";
    let mut graph = Graph::new();
    let x = graph.placeholder(evil).unwrap();
    let a = graph.get_attr(evil).unwrap();
    let b = graph.call_module(evil, [a.into()]).unwrap();
    let c = graph.call_method(evil, [b.into()]).unwrap();
    let evil_arg = Arg::Str(graph.intern(evil));
    let d = graph
        .call_method("f", [c.into(), evil_arg, x.into()])
        .unwrap();
    graph.set_name(d, evil).unwrap();
    let e = kwargs_node(&mut graph, d, &[evil]);
    let function = graph.function(evil);
    let f = graph.call_function(function, [e.into()]).unwrap();
    graph.output(f).unwrap();
    for calling in [
        Calling::Plain,
        Calling::Boxed,
        Calling::PyTree(PyTree {
            parameters: vec!["x".into()],
            keywords: Some((0, vec![evil.into()])),
            has_out_spec: true,
        }),
    ] {
        let code = code_with(
            &graph,
            &Options {
                calling,
                ..Options::default()
            },
        );
        for line in code.lines() {
            assert!(!line.trim_start().starts_with("import"), "{code}");
            let quotes = line.matches(['\'', '"']).count();
            let shown = line.matches("import os").count();
            assert!(shown == 0 || quotes >= 2, "{code}");
        }
    }
}

#[test]
fn globals_give_way_to_values() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let f = graph.function("foo");
    let y = graph.call_function(f, [x.into()]).unwrap();
    let z = graph.call_function(f, [y.into()]).unwrap();
    graph.output(z).unwrap();
    let generated = python_code(&graph, &Options::default(), &NamedHost::new(&graph)).unwrap();
    assert!(
        generated
            .src
            .contains("foo_1 = foo(x);  x = None\n    foo_2 = foo(foo_1);  foo_1 = None"),
        "{}",
        generated.src
    );
    let named = |name: &str| GlobalValue::Named(name.into());
    assert_eq!(
        generated.globals,
        [
            ("inf".to_owned(), named("math.inf")),
            ("nan".to_owned(), named("math.nan")),
            ("NoneType".to_owned(), named("types.NoneType")),
            ("torch".to_owned(), named("torch")),
            ("device".to_owned(), named("torch.device")),
            ("fx_pytree".to_owned(), named("torch.fx._pytree")),
            ("pytree".to_owned(), named("torch.utils._pytree")),
            ("foo".to_owned(), named("foo")),
        ]
    );
}

#[test]
fn parameters_do_not_hide_what_the_code_needs() {
    let mut graph = Graph::new();
    let torch = graph.placeholder("torch").unwrap();
    let device = graph.placeholder("device").unwrap();
    let relu = graph.function("torch.relu");
    let y = graph
        .call_function(relu, [torch.into(), device.into()])
        .unwrap();
    graph.output(y).unwrap();
    assert_eq!(
        code(&graph),
        "def forward(self, torch_2, device):
    torch_1 = torch_2
    device_1 = device
    relu = torch.relu(torch_1, device_1);  torch_1 = device_1 = None
    return relu"
    );
}

#[test]
fn a_value_called_self_is_renamed() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.call_method("self", [x.into()]).unwrap();
    let z = graph.call_module("layer", [y.into()]).unwrap();
    graph.output(z).unwrap();
    assert_eq!(
        code(&graph),
        "def forward(self, x):
    self_1 = x.self();  x = None
    layer = self.layer(self_1);  self_1 = None
    return layer"
    );
}

#[test]
fn a_global_called_self_is_renamed() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let function = graph.function("self");
    let y = graph.call_function(function, [x.into()]).unwrap();
    graph.set_name(y, "y").unwrap();
    graph.output(y).unwrap();
    assert!(code(&graph).contains("y = self_1(x);"));
}

#[test]
fn star_parameters() {
    let mut graph = Graph::new();
    let args = graph.placeholder("*args").unwrap();
    let kwargs = graph.placeholder("**kwargs").unwrap();
    graph
        .output(Arg::list([args.into(), kwargs.into()]).unwrap())
        .unwrap();
    assert_eq!(
        code(&graph),
        "def forward(self, *args, **kwargs):
    _args = args
    _kwargs = kwargs
    return [_args, _kwargs]"
    );
}

#[test]
fn duplicate_names_are_told_apart() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.call_method("relu", [x.into()]).unwrap();
    graph.set_name(y, "x").unwrap();
    graph.output(y).unwrap();
    assert_eq!(
        code(&graph),
        "def forward(self, x):\n    x_1 = x.relu();  x = None\n    return x_1"
    );
}

#[test]
fn missing_arguments_are_errors() {
    let mut graph = Graph::new();
    graph.call_method("relu", []).unwrap();
    let error = python_code(&graph, &Options::default(), &NamedHost::new(&graph)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "call_method node relu: expected the object whose method is called, got 0 positional \
         arguments"
    );
    let mut graph = Graph::new();
    let host = NamedHost::new(&graph);
    let relu = graph.function("torch.relu");
    graph.call_function(relu, []).unwrap();
    let error = python_code(&graph, &Options::default(), &host).unwrap_err();
    assert!(matches!(error, CodegenError::UnknownToHost { .. }));
}

fn two_inputs() -> Graph {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.placeholder("y").unwrap();
    let add = graph.function("operator.add");
    let z = graph.call_function(add, [x.into(), y.into()]).unwrap();
    graph.output(Arg::list([z.into()]).unwrap()).unwrap();
    graph
}

#[test]
fn boxed_calling() {
    let options = Options {
        calling: Calling::Boxed,
        ..Options::default()
    };
    assert_eq!(
        code_with(&two_inputs(), &options),
        "def forward(self, args_list):
    args_iter = iter(args_list)
    x = next(args_iter)
    y = next(args_iter)
    args_list.clear()
    add = x + y;  x = y = None
    return [add]"
    );
}

#[test]
fn pytree_calling() {
    let tree = PyTree {
        parameters: vec!["a".into(), "b".into()],
        keywords: Some((1, vec!["b".into()])),
        has_out_spec: true,
    };
    let options = Options {
        calling: Calling::PyTree(tree),
        ..Options::default()
    };
    assert_eq!(
        code_with(&two_inputs(), &options),
        "def forward(self, a, b):
    x, y, = fx_pytree.tree_flatten_spec(([a], {'b':b}), self._in_spec)
    add = x + y;  x = y = None
    return pytree.tree_unflatten([add], self._out_spec)"
    );
}

#[test]
fn profiled_and_expanded() {
    let options = Options {
        record_func: true,
        expanded_def: true,
        function_name: "inner".into(),
        ..Options::default()
    };
    assert_eq!(
        code_with(&two_inputs(), &options),
        "def inner(
    self,
    x,
    y,
):
    _rf = torch._C._profiler._RecordFunctionFast('## ENTER_GRAPH_PLACEHOLDER_KEY ##'); _rf.__enter__()
    _rf_add = torch._C._profiler._RecordFunctionFast('## 2 ##'); _rf_add.__enter__()
    add = x + y;  x = y = None
    _rf_add.__exit__(None, None, None)
    return [add]
    _rf.__exit__(None, None, None)"
    );
}

#[test]
fn lines_know_their_nodes() {
    let graph = two_inputs();
    let code = python_code(&graph, &Options::default(), &NamedHost::new(&graph)).unwrap();
    assert_eq!(
        code.lines.iter().collect::<Vec<_>>(),
        [(1, Some(2)), (2, Some(3)), (3, Some(3))]
    );
    assert_eq!(code.prologue_start, 4);
}

#[test]
fn a_draft_put_together_is_the_code() {
    let graph = two_inputs();
    let host = NamedHost::new(&graph);
    let code = python_code(&graph, &Options::default(), &host).unwrap();
    let parts = draft(&graph, &Options::default(), &host, false).unwrap();
    let pieces: Vec<_> = parts.pieces().collect();
    assert_eq!(
        pieces,
        [
            "# COUNTER: 0\n",
            "# COUNTER: 1\n",
            "# COUNTER: 2\n",
            "add = x + y",
            ";  x = y = None\n",
            "# COUNTER: 3\n",
            "return [add]",
            "\n",
        ]
    );
    let (src, lines, start) = assemble("", "def forward(self, x, y):", &parts.text);
    assert_eq!(
        (src, lines, start),
        (code.src, code.lines, code.prologue_start)
    );
    let parts = draft(&graph, &Options::default(), &host, true).unwrap();
    assert_eq!(parts.outputs, [(6, graph.output_node().unwrap())]);
    assert_eq!(parts.pieces().nth(6), Some(""));
}

/// The host of a graph with host values of every kind.
struct Everything {
    named: NamedHost,
    callee: Callee,
    enumeration: Expr,
    annotation: Expr,
    class: Expr,
    wrapped: Option<NodeId>,
    boxed: Option<(NodeId, Vec<usize>)>,
    notes: Vec<(NodeId, Notes)>,
}

fn held(hint: &str, number: u32) -> Global {
    Global {
        hint: hint.into(),
        value: GlobalValue::Held(number),
        is_builtin: false,
    }
}

impl Everything {
    fn new(graph: &Graph) -> Self {
        Self {
            named: NamedHost::new(graph),
            callee: Callee {
                expr: Expr::global(held("__main__.f", 0)),
                operator: None,
            },
            enumeration: Expr(vec![
                Piece::Global(held("Color", 1)),
                Piece::Text(".RED".into()),
            ]),
            annotation: Expr(vec![
                Piece::Global(held("typing.List", 2)),
                Piece::Text("[torch.Tensor]".into()),
            ]),
            class: Expr::global(held("__main__.Pair", 3)),
            wrapped: None,
            boxed: None,
            notes: Vec::new(),
        }
    }
}

impl Host for Everything {
    fn callee(&self, _function: FunctionId) -> Option<&Callee> {
        Some(&self.callee)
    }

    fn value(&self, _external: ExternalId) -> Option<&Expr> {
        Some(&self.enumeration)
    }

    fn annotation(&self, _external: ExternalId) -> Option<&Expr> {
        Some(&self.annotation)
    }

    fn class(&self, _external: ExternalId) -> Option<&Expr> {
        Some(&self.class)
    }

    fn builtins(&self) -> &[Global] {
        self.named.builtins()
    }

    fn wrap(&self) -> &Expr {
        self.named.wrap()
    }

    fn is_wrapped(&self, node: NodeId) -> bool {
        self.wrapped == Some(node)
    }

    fn boxed_arguments(&self, node: NodeId) -> &[usize] {
        match &self.boxed {
            Some((boxed, positions)) if *boxed == node => positions,
            _ => &[],
        }
    }

    fn notes(&self, node: NodeId) -> Option<&Notes> {
        self.notes
            .iter()
            .find(|(noted, _)| *noted == node)
            .map(|(_, notes)| notes)
    }
}

#[test]
fn host_values() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let ty = graph.add_external(None);
    graph.set_ty(x, Some(ty)).unwrap();
    let color = graph.add_external(None);
    let class = graph.add_external(None);
    let f = graph.function("f");
    let items = corsac_ir::Seq::new([x.into(), Arg::Float(1.0)]).unwrap();
    let pair = Arg::NamedTuple(Box::new((class, items)));
    let y = graph
        .call_function(f, [x.into(), Arg::Opaque(color), pair])
        .unwrap();
    let output = graph.output(y).unwrap();
    graph.set_ty(output, Some(ty)).unwrap();
    let mut host = Everything::new(&graph);
    host.wrapped = Some(y);
    let code = python_code(&graph, &Options::default(), &host).unwrap();
    assert_eq!(
        code.src,
        "
torch.fx._symbolic_trace.wrap(\"__main___f\")

def forward(self, x : typing_List[torch.Tensor]) -> typing_List[torch.Tensor]:
    f = __main___f(x, Color.RED, __main___Pair(x, 1.0));  x = None
    return f
    "
    );
    let names: Vec<_> = code
        .globals
        .iter()
        .skip(7)
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(
        names,
        ["typing_List", "__main___f", "Color", "__main___Pair"]
    );
}

#[test]
fn arguments_that_the_function_empties() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.placeholder("y").unwrap();
    let f = graph.function("f");
    let list = Arg::list([x.into(), y.into()]).unwrap();
    let z = graph
        .call_function(f, [Arg::Int(3), list, y.into()])
        .unwrap();
    graph.output(z).unwrap();
    let mut host = Everything::new(&graph);
    host.boxed = Some((z, vec![1]));
    let code = python_code(&graph, &Options::default(), &host).unwrap();
    assert_eq!(
        code.src.trim_start(),
        "def forward(self, x, y):
    f_boxed_arg_1 = [x, y];  x = None
    f = __main___f(3, f_boxed_arg_1, y);  f_boxed_arg_1 = None;  y = None
    return f
    "
    );
}

#[test]
fn notes_are_comments_and_annotations() {
    let graph = two_inputs();
    let ids: Vec<_> = graph.nodes().collect();
    let mut host = Everything::new(&graph);
    host.callee.operator = crate::Operator::of_function("add");
    let note = |comment: Option<&str>, annotation: &str| Notes {
        comment: comment.map(str::to_owned),
        annotation: Some(annotation.to_owned()),
        ..Notes::default()
    };
    let mut x = note(None, "\"f32[2]\"");
    x.descriptions = Some(vec!["first: a#b\nimport os".into()]);
    host.notes = vec![
        (ids[0], x),
        (
            ids[2],
            note(Some("# File: a.py:1\nimport os"), "\"f32[3]\""),
        ),
    ];
    let options = Options {
        expanded_def: true,
        ..Options::default()
    };
    let code = python_code(&graph, &options, &host).unwrap();
    assert_eq!(
        code.src.trim_start(),
        "def forward(
    self,
    x: \"f32[2]\",  # first: a#b\\nimport os
    y,
):
    # File: a.py:1\\nimport os
    add: \"f32[3]\" = x + y;  x = y = None
    return [add]
    "
    );
    let parts = draft(&graph, &options, &host, false).unwrap();
    let (src, lines, _) = assemble(
        "",
        code.src
            .trim_start()
            .split_once("):")
            .map(|(head, _)| format!("{head}):"))
            .unwrap()
            .as_str(),
        &parts.text,
    );
    assert_eq!((src, lines), (code.src, code.lines));
}
