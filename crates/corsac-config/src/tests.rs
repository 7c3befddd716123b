//! Reading, writing, and refused texts with their places.

use corsac_ir::Graph;

use super::*;

const NET: &str = "
# A small network.
model Net
module conv = Conv2d(3, 16, (3, 3), padding='same', bias=False)  # no bias
module layers.0.norm = torch.nn.BatchNorm2d(16, eps=1e-03)
parameter scale = float32[16, 1, 1] ones
buffer steps = int64[2] [0, -1]
input x = float32[_, 3, 32, 32]
input flag = None
input *rest
graph:
    h = torch.relu(layers.0.norm(conv(x))) * scale
    h = h[:, 1:3, ..., None, ::2].to(torch.float16)
    conv = -(h - 2.5e-1) ** 2 @ h.mT
    sizes = conv.shape
    h[0] = sizes[0]
    return {'a': (conv, [h, sizes]), 'b': F.pad(h, (1, 1), value=-1e30, mode=\"it's\"), 'c': steps}
";

#[test]
fn a_network_is_read() {
    let config = Config::read(NET, Format::Graph).unwrap();
    assert_eq!(config.name.as_deref(), Some("Net"));
    let conv = &config.modules[0];
    let pair = Literal::Tuple(vec![Literal::Int(3), Literal::Int(3)]);
    assert_eq!(conv.args, [Literal::Int(3), Literal::Int(16), pair]);
    assert_eq!(
        conv.kwargs[0],
        ("padding".into(), Literal::Str("same".into()))
    );
    assert_eq!(conv.position, Position { line: 4, column: 1 });
    assert_eq!(
        config.tensors[1].initial,
        Initial::Elements(vec![Literal::Int(0), Literal::Int(-1)])
    );
    assert_eq!(
        config.inputs[0].example.as_ref().unwrap().1,
        [None, Some(3), Some(32), Some(32)]
    );
    let expected = "\
graph():
    %x : [num_users=1] = placeholder[target=x]
    %flag : [num_users=0] = placeholder[target=flag](default=None)
    %_rest : [num_users=0] = placeholder[target=*rest]
    %conv : [num_users=1] = call_module[target=conv](args = (%x,), kwargs = {})
    %layers_0_norm : [num_users=1] = call_module[target=layers.0.norm](args = (%conv,), kwargs = {})
    %relu : [num_users=1] = call_function[target=torch.relu](args = (%layers_0_norm,), kwargs = {})
    %scale : [num_users=1] = get_attr[target=scale]
    %h : [num_users=1] = call_function[target=operator.mul](args = (%relu, %scale), kwargs = {})
    %getitem : [num_users=1] = call_function[target=operator.getitem](args = (%h, (slice(None, None, None), slice(1, 3, None), Ellipsis, None, slice(None, None, 2))), kwargs = {})
    %h_1 : [num_users=5] = call_method[target=to](args = (%getitem, torch.float16), kwargs = {})
    %sub : [num_users=1] = call_function[target=operator.sub](args = (%h_1, 0.25), kwargs = {})
    %pow_1 : [num_users=1] = call_function[target=operator.pow](args = (%sub, 2), kwargs = {})
    %neg : [num_users=1] = call_function[target=operator.neg](args = (%pow_1,), kwargs = {})
    %getattr_1 : [num_users=1] = call_function[target=builtins.getattr](args = (%h_1, mT), kwargs = {})
    %conv_1 : [num_users=2] = call_function[target=operator.matmul](args = (%neg, %getattr_1), kwargs = {})
    %sizes : [num_users=2] = call_function[target=builtins.getattr](args = (%conv_1, shape), kwargs = {})
    %getitem_1 : [num_users=1] = call_function[target=operator.getitem](args = (%sizes, 0), kwargs = {})
    %setitem : [num_users=0] = call_function[target=operator.setitem](args = (%h_1, 0, %getitem_1), kwargs = {})
    %pad : [num_users=1] = call_function[target=torch.nn.functional.pad](args = (%h_1, (1, 1)), kwargs = {value: -1e+30, mode: it's})
    %steps : [num_users=1] = get_attr[target=steps]
    return {'a': (conv_1, [h_1, sizes]), 'b': pad, 'c': steps}";
    assert_eq!(config.graph.to_string(), expected);
    config.graph.lint().unwrap();
}

#[test]
fn every_notation_says_the_same() {
    let config = Config::read(NET, Format::Graph).unwrap();
    for format in [Format::Graph, Format::Toml, Format::Json] {
        let text = config.write(format).unwrap();
        let again = Config::read(&text, format).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(again.graph.to_string(), config.graph.to_string(), "{text}");
        assert_eq!(again.write(format).unwrap(), text);
        assert_eq!(again.modules.len(), config.modules.len());
        for (a, b) in again.modules.iter().zip(&config.modules) {
            assert_eq!(
                (&a.path, &a.class, &a.args, &a.kwargs),
                (&b.path, &b.class, &b.args, &b.kwargs)
            );
        }
        for (a, b) in again.tensors.iter().zip(&config.tensors) {
            assert_eq!(
                (&a.path, a.parameter, &a.shape, &a.initial),
                (&b.path, b.parameter, &b.shape, &b.initial)
            );
        }
    }
}

#[test]
fn toml_and_json_are_read() {
    let toml = r#"
name = "Net"
graph = """
h = body.0(x)
return body.1.act(h) + scale
"""
[modules.body]
0 = { class = "Linear", args = [2, 3], dtype = "torch.float64", bias = "None" }
1.act = { class = "ReLU" }
[parameters]
scale = { shape = [3], init = "normal" }
[inputs]
x = [1, "_"]
"#;
    let json = r#"{
  // The same.
  "modules": {
    "body.0": {"class": "Linear", "args": [2, 3], "dtype": "torch.float64", "bias": null},
    "body.1.act": {"class": "ReLU"}
  },
  "parameters": {"scale": {"shape": [3], "init": "normal"}},
  "inputs": {"x": {"shape": [1, "_"]}},
  "graph": ["h = body.0(x)", "return body.1.act(h) + scale"]
}"#;
    let a = Config::read(toml, Format::Toml).unwrap();
    let b = Config::read(json, Format::Json).unwrap();
    assert!(a.graph.same_as(&b.graph));
    assert_eq!(a.graph.len(), 6);
    for config in [&a, &b] {
        let paths: Vec<&str> = config.modules.iter().map(|m| m.path.as_str()).collect();
        assert_eq!(paths, ["body.0", "body.1.act"]);
        assert_eq!(config.modules[0].kwargs[1], ("bias".into(), Literal::None));
        assert_eq!(
            config.inputs[0].example.as_ref().unwrap().1,
            [Some(1), None]
        );
    }
}

struct Case {
    format: Format,
    text: &'static str,
    error: &'static str,
}

#[test]
fn errors_say_where() {
    let graph = |text, error| Case {
        format: Format::Graph,
        text,
        error,
    };
    let toml = |text, error| Case {
        format: Format::Toml,
        text,
        error,
    };
    let json = |text, error| Case {
        format: Format::Json,
        text,
        error,
    };
    let cases = [
        graph(
            "",
            "line 1, column 1: expected `graph:` and the lines of the graph, found the end of the text",
        ),
        graph(
            "graph:\n",
            "line 2, column 1: expected `return` with the result",
        ),
        graph(
            "graph:\n  return x",
            "line 2, column 10: x is not defined before this line",
        ),
        graph(
            "input x\ngraph:\n  y = relu(x)\n  return y",
            "line 3, column 7: relu is no module declared here; a function is written with the name of its module, as torch.relu",
        ),
        graph(
            "input x\ngraph:\n  return os.system(x)",
            "line 3, column 10: os.system is no function that a configuration may call",
        ),
        graph(
            "input x\ngraph:\n  return x.__class__",
            "line 3, column 10: __class__ is no attribute that a configuration may read",
        ),
        graph(
            "input x\ngraph:\n  return x.shape.__reduce__()",
            "line 3, column 10: __reduce__ is no method that a configuration may call",
        ),
        graph(
            "input x\ngraph:\n  return getattr(x, '__dict__')",
            "line 3, column 10: getattr is no module declared here; a function is written with the name of its module, as torch.getattr",
        ),
        graph(
            "input x\ngraph:\n  return builtins.getattr(x, '__dict__')",
            "line 3, column 10: __dict__ is no attribute that a configuration may read",
        ),
        graph(
            "input x\ngraph:\n  a = b + x\n  b = a + x\n  return b",
            "line 3, column 7: b is not defined before this line",
        ),
        graph(
            "module a = os.system('x')\ngraph:\n  return a",
            "line 1, column 12: os.system is neither a module of torch.nn nor allowed by the caller",
        ),
        graph(
            "module a = Linear(x)\ngraph:\n  return 1",
            "line 1, column 19: expected a constant: a number, string, dtype, list, tuple or dictionary",
        ),
        graph(
            "module a = Linear(1, 2)\nmodule a = ReLU()\ngraph:\n  return 1",
            "line 2, column 1: a is declared twice",
        ),
        graph(
            "input x\ninput x\ngraph:\n  return x",
            "line 2, column 1: the input x is declared twice",
        ),
        graph(
            "module a = Linear(1, 2\ngraph:\n return 1",
            "line 2, column 1: expected `,` or `)`, found the end of the text",
        ),
        graph(
            "parameter w = float32[2] [1.0]\ngraph:\n return w",
            "line 1, column 1: expected 2 elements for the shape [2], found 1",
        ),
        graph(
            "parameter w = float[2] ones\ngraph:\n return w",
            "line 1, column 15: expected a type such as float32[3, 4], found `float`",
        ),
        graph(
            "graph:\n  return 1\n  return 2",
            "line 3, column 3: nothing may stand behind `return`",
        ),
        graph(
            "input x\ngraph:\n  x.y = 1\n  return x",
            "line 3, column 3: only a name or x[i] can be assigned to",
        ),
        graph(
            "input x\ngraph:\n  y = 1 < x < 2\n  return x",
            "line 3, column 13: expected brackets around one of two comparisons, found `<`",
        ),
        graph(
            "input x\ngraph:\n  y = 'a\n  return x",
            "line 3, column 7: expected a string that ends on its line",
        ),
        graph(
            "input x\ngraph:\n  return self.w",
            "line 3, column 10: no module, parameter or buffer w is declared",
        ),
        graph(
            "input x\ngraph:\n  return x $ 1",
            "line 3, column 12: unexpected character `$`",
        ),
        toml(
            "graph = 'return 1'\nmodels = 1",
            "line 2, column 1: expected `name`, `modules`, `parameters`, `buffers`, `inputs` or `graph`, found \"models\"",
        ),
        toml(
            "graph = '''\nh = x\nreturn h'''",
            "line 2, column 5: x is not defined before this line",
        ),
        toml(
            "graph = ['y = 1 +', 'return y']",
            "line 1, column 18: expected a value, found the end of the text",
        ),
        toml(
            "[modules]\na = { args = [1] }\n",
            "line 2, column 1: the module a has no `class`",
        ),
        toml(
            "[modules]\na = { class = 'os.system' }\n",
            "line 2, column 15: os.system is neither a module of torch.nn nor allowed by the caller",
        ),
        toml(
            "[modules]\na = { class = 1 }\n",
            "line 2, column 15: expected a string, found an integer",
        ),
        json(
            "{\n \"graph\": [\"return x\"]\n}",
            "line 2, column 20: x is not defined before this line",
        ),
        json(
            "{\n \"graph\": [\"return 1\"],\n \"modules\": {\"a\": {\"class\": \"Linear\", \"class\": \"ReLU\"}}}",
            "line 3, column 39: \"class\" stands twice",
        ),
        json("[]", "line 1, column 1: expected an object, found an array"),
    ];
    for Case {
        format,
        text,
        error,
    } in cases
    {
        match Config::read(text, format) {
            Ok(config) => panic!("{text:?} was read as\n{}", config.graph),
            Err(found) => assert_eq!(found.to_string(), error, "{text:?}"),
        }
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = format!(
        "input x\ngraph:\n  return {}x{}",
        "(".repeat(10_000),
        ")".repeat(10_000)
    );
    assert!(Config::read(&deep, Format::Graph).is_err());
    let minus = format!("input x\ngraph:\n  return {}x", "-".repeat(100_000));
    assert!(Config::read(&minus, Format::Graph).is_err());
    let calls = format!("input x\ngraph:\n  return x{}", ".neg()".repeat(10_000));
    assert!(Config::read(&calls, Format::Graph).is_err());
    let calls = format!("input x\ngraph:\n  return x{}", ".neg()".repeat(100));
    assert_eq!(
        Config::read(&calls, Format::Graph).unwrap().graph.len(),
        102
    );
    let long: String = (0..20_000).map(|i| format!("  x = x + {i}\n")).collect();
    let config =
        Config::read(&format!("input x\ngraph:\n{long}  return x"), Format::Graph).unwrap();
    assert_eq!(config.graph.len(), 20_002);
}

#[test]
fn what_cannot_be_read_back_is_not_written() {
    let mut config = Config::default();
    let x = config.graph.placeholder("x").unwrap();
    let opaque = config.graph.add_external(None);
    let node = config
        .graph
        .call_method("view", [x.into(), corsac_ir::Arg::Opaque(opaque)])
        .unwrap();
    config.graph.output(node).unwrap();
    let error = config.write(Format::Graph).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node view: a value that only the host understands cannot be written into a configuration"
    );
    config.graph = Graph::new();
    assert!(config.write(Format::Toml).is_err());
}
