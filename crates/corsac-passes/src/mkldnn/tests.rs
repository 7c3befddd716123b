use super::*;
use corsac_ir::Arg;
use corsac_ops::FunctionInfo;

/// Modules by path, each given by its class in `torch.nn.modules`.
struct Model(FxHashMap<String, ModuleInfo>);

impl Model {
    fn new(modules: &[(&str, &str)]) -> Self {
        let info = |(at, &(path, class)): (usize, &(&str, &str))| {
            let info = ModuleInfo {
                class: format!("torch.nn.modules.{class}"),
                identity: at as u64,
                ..ModuleInfo::default()
            };
            (path.to_owned(), info)
        };
        Self(modules.iter().enumerate().map(info).collect())
    }

    fn change(mut self, path: &str, change: impl FnOnce(&mut ModuleInfo)) -> Self {
        change(self.0.get_mut(path).unwrap());
        self
    }
}

impl Host for Model {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        self.0.get(path).cloned()
    }

    fn function(&self, _: &Graph, _: FunctionId) -> FunctionInfo {
        FunctionInfo::ByName
    }
}

fn model() -> Model {
    Model::new(&[
        ("conv", "conv.Conv2d"),
        ("conv2", "conv.Conv2d"),
        ("bn", "batchnorm.BatchNorm2d"),
        ("relu", "activation.ReLU"),
        ("hardswish", "activation.Hardswish"),
        ("linear", "linear.Linear"),
        ("softmax", "activation.Softmax"),
    ])
}

/// Parses a program, one node per line: `name = op target operands`.
fn program(text: &str) -> Graph {
    let mut graph = Graph::new();
    let mut values: FxHashMap<String, NodeId> = FxHashMap::default();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut words = line.split_whitespace();
        let (name, op) = (words.next().unwrap(), words.next().unwrap());
        let target = words.next().unwrap_or(name);
        let args: Vec<Arg> = words.map(|word| values[word].into()).collect();
        let node = match op {
            "in" => graph.placeholder(name).unwrap(),
            "module" => graph.call_module(target, args).unwrap(),
            "method" => graph.call_method(target, args).unwrap(),
            "out" => {
                let results = target.split(',').map(|n| Arg::Node(values[n]));
                let results: Vec<Arg> = results.collect();
                graph.output(Arg::tuple(results).unwrap()).unwrap()
            }
            _ => {
                let function = graph.function(target);
                graph.call_function(function, args).unwrap()
            }
        };
        graph.rename(node, name).unwrap();
        values.insert(name.to_owned(), node);
    }
    graph
}

fn names(graph: &Graph, nodes: &[NodeId]) -> String {
    let names = nodes.iter().map(|&n| graph.node(n).name());
    names.collect::<Vec<_>>().join(" ")
}

/// The subgraphs of a program, and the refused nodes with reasons.
fn planned(text: &str, model: &Model) -> (Vec<String>, Vec<String>) {
    let graph = program(text);
    let plan = plan(&graph, model, &Supported::of_graph(&graph)).unwrap();
    let subgraphs = plan.subgraphs.iter().map(|s| names(&graph, &s.nodes));
    let reason = |site: &Site| format!("{}: {}", site.name, site.refusal.as_ref().unwrap());
    (
        subgraphs.collect(),
        plan.refused.iter().map(reason).collect(),
    )
}

/// The program with all its subgraphs converted and fused, one node per line.
fn lowered(text: &str, model: &Model) -> String {
    let mut graph = program(text);
    let mut plan = plan(&graph, model, &Supported::of_graph(&graph)).unwrap();
    let (enter, leave) = (graph.function("enter"), graph.function("leave"));
    for subgraph in &plan.subgraphs {
        convert(&mut graph, subgraph, &mut plan.writes, enter, leave).unwrap();
        fuse(&mut graph, model, subgraph, &plan.writes).unwrap();
    }
    graph.verify().unwrap_or_else(|report| panic!("{report}"));
    let line = |id| {
        let node = graph.node(id);
        let inputs: Vec<_> = node.inputs().collect();
        let line = format!(
            "{} = {} {}",
            node.name(),
            node.target_name(),
            names(&graph, &inputs)
        );
        line.trim_end().to_owned()
    };
    let body = graph
        .nodes()
        .filter(|&n| !matches!(graph.node(n).op(), Op::Placeholder | Op::Output));
    body.map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn connected_nodes_are_one_subgraph_and_others_split_it() {
    let text = "
        x in
        a module conv x
        b module relu a
        c module softmax b
        d module conv2 c
        e fn operator.add d b
        f fn operator.add x x
        o out e,f";
    let (subgraphs, refused) = planned(text, &model());
    // `e` joins what the softmax keeps apart; `f` has no operand in a subgraph.
    assert_eq!(subgraphs, ["a b d e"]);
    assert_eq!(refused, [] as [&str; 0]);

    let apart = "
        x in
        a module conv x
        b module conv2 x
        o out a,b";
    assert_eq!(planned(apart, &model()).0, ["a", "b"]);
}

#[test]
fn what_does_not_fit_says_why() {
    let text = "
        x in
        a module conv x
        b module bn a
        o out b";
    let cases: [(Model, &str); 3] = [
        (
            model().change("bn", |m| m.training = true),
            "b: bn is in training mode",
        ),
        (
            model().change("bn", |m| m.hooks = true),
            "b: bn has hooks or declares side effects",
        ),
        (
            model().change("bn", |m| m.impure = Some(true)),
            "b: bn has hooks or declares side effects",
        ),
    ];
    for (model, reason) in cases {
        let (subgraphs, refused) = planned(text, &model);
        assert_eq!(
            (subgraphs, refused),
            (vec!["a".to_owned()], vec![reason.to_owned()])
        );
    }
    let graph = program(text);
    let mut supported = Supported::of_graph(&graph);
    supported
        .unfit
        .insert("conv".to_owned(), "conv is on cuda".to_owned());
    let plan = plan(&graph, &model(), &supported).unwrap();
    assert_eq!(
        plan.refused[0].refusal.as_ref().unwrap().reason(),
        "conv is on cuda"
    );
}

#[test]
fn a_write_that_others_see_keeps_a_value_out() {
    let seen = "
        x in
        a module conv x
        b method add_ a x
        c module relu a
        o out c";
    let (subgraphs, refused) = planned(seen, &model());
    assert_eq!(subgraphs, ["c"]);
    assert_eq!(
        refused,
        ["a: its value may be written to while others use it"]
    );

    // The value that is written to has no other user: it is as good as a new value.
    let alone = "
        x in
        a module conv x
        b module conv2 x
        c fn operator.iadd a b
        o out c";
    assert_eq!(planned(alone, &model()).0, ["a b c"]);
    let outside = "
        x in
        a module conv x
        c fn operator.iadd x a
        o out c";
    let (subgraphs, refused) = planned(outside, &model());
    assert_eq!(subgraphs, ["a"]);
    assert_eq!(
        refused,
        ["c: its value may be written to while others use it"]
    );
}

#[test]
fn values_are_converted_at_the_border() {
    let text = "
        x in
        y in
        a module hardswish x
        b fn operator.add a y
        c fn operator.mul b y
        d module softmax c
        o out d,c";
    let expected = "
        enter = enter x
        a = hardswish enter
        enter_1 = enter y
        b = operator.add a enter_1
        c = operator.mul b enter_1
        leave = leave c
        d = softmax leave";
    assert_eq!(lowered(text, &model()), dedent(expected));
}

#[test]
fn conversions_can_be_taken_away_again() {
    let text = "
        x in
        a module conv x
        b module relu a
        o out b";
    let mut graph = program(text);
    let before = graph.to_lossless();
    let mut plan = plan(&graph, &model(), &Supported::of_graph(&graph)).unwrap();
    let (enter, leave) = (graph.function("enter"), graph.function("leave"));
    let subgraph = &plan.subgraphs[0];
    let conversions = convert(&mut graph, subgraph, &mut plan.writes, enter, leave).unwrap();
    assert_eq!((conversions.starts.len(), conversions.ends.len()), (1, 1));
    assert_eq!(unconvert(&mut graph, &conversions).unwrap().len(), 2);
    assert_eq!(graph.to_lossless(), before);
}

#[test]
fn a_value_that_is_written_to_is_converted_before_each_user() {
    let text = "
        x in
        a module hardswish x
        w method add_ x a
        b fn operator.add a x
        o out b";
    let expected = "
        enter = enter x
        a = hardswish enter
        leave = leave a
        w = add_ x leave
        enter_1 = enter x
        b = operator.add a enter_1
        leave_1 = leave b";
    assert_eq!(lowered(text, &model()), dedent(expected));
}

#[test]
fn a_convolution_takes_the_sum_and_the_activation_after_it() {
    let text = "
        x in
        a module conv x
        b module conv2 x
        c fn operator.iadd a b
        d module relu c
        o out d";
    // The later one is fused with the sum.
    let expected = "
        enter = enter x
        a = conv enter
        d = conv2 enter a
        leave = leave d";
    assert_eq!(lowered(text, &model()), dedent(expected));

    // After a sum, only relu can be fused.
    let hardswish = "
        x in
        y in
        a module conv x
        c fn operator.add a y
        d module hardswish c
        o out d";
    let expected = "
        enter = enter x
        enter_1 = enter y
        c = conv enter enter_1
        d = hardswish c
        leave = leave d";
    assert_eq!(lowered(hardswish, &model()), dedent(expected));

    let linear = "
        x in
        a module linear x
        d module hardswish a
        c fn operator.add d x
        o out c";
    let expected = "
        enter = enter x
        d = linear enter
        c = operator.add d enter
        leave = leave c";
    assert_eq!(lowered(linear, &model()), dedent(expected));
}

#[test]
fn a_result_that_is_used_again_is_kept() {
    let text = "
        x in
        a module conv x
        b module relu a
        c fn operator.mul b a
        o out c";
    let expected = "
        enter = enter x
        a = conv enter
        b = relu a
        c = operator.mul b a
        leave = leave c";
    assert_eq!(lowered(text, &model()), dedent(expected));
}

#[test]
fn nothing_moves_past_a_write_to_what_it_reads() {
    let text = "
        x in
        a module conv x
        w method add_ x x
        b module relu a
        o out b,w";
    let out = lowered(text, &model());
    // The conversion is a copy that is not written to, or the value itself, which is.
    assert!(out.contains("a = conv enter\n"), "{out}");
    assert!(out.contains("b = relu a"), "{out}");

    let harmless = "
        x in
        y in
        w method add_ y y
        a module conv x
        b module relu a
        o out b,w";
    assert!(lowered(harmless, &model()).contains("b = conv enter"));
}

#[test]
fn a_call_of_which_nothing_is_known_splits_a_subgraph_and_no_more() {
    let text = "
        x in
        a module conv x
        b module relu a
        c fn mine.op b
        d module conv2 c
        e module relu d
        o out e";
    let expected = "
        enter = enter x
        b = conv enter
        leave = leave b
        c = mine.op leave
        enter_1 = enter c
        e = conv2 enter_1
        leave_1 = leave e";
    assert_eq!(lowered(text, &model()), dedent(expected));
}

fn dedent(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}
