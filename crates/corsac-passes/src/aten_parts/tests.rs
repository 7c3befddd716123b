use corsac_ops::Unhosted;

use super::*;

fn call(graph: &mut Graph, name: &str, args: impl IntoIterator<Item = Arg>) -> NodeId {
    let function = graph.function(name);
    let args: Vec<Arg> = args.into_iter().collect();
    graph.call_function(function, args).unwrap()
}

fn aten(graph: &mut Graph, name: &str, inputs: &[NodeId]) -> NodeId {
    let inputs = inputs.iter().map(|&node| node.into());
    call(graph, &format!("torch.ops.aten.{name}"), inputs)
}

fn reasons(graph: &Graph, results: Option<usize>) -> Vec<String> {
    let kept = Kept::of_graph(graph, &Unhosted, &SecondaryMap::new(), results);
    let named = |node| {
        let reason = kept.reasons[node].as_ref()?;
        Some(format!("{}: {reason}", graph.node(node).name()))
    };
    graph.nodes().filter_map(named).collect()
}

#[test]
fn views_are_operators_that_return_one_tensor_and_only_move_elements() {
    for own in [
        "t.default",
        "slice.Tensor",
        "_unsafe_view.default",
        "diagonal.default",
    ] {
        assert!(is_view(&format!("torch.ops.aten.{own}")), "{own}");
    }
    for own in [
        "split.Tensor",
        "as_strided.default",
        "native_dropout.default",
        "_unsafe_view.out",
    ] {
        assert!(!is_view(&format!("torch.ops.aten.{own}")), "{own}");
    }
    assert!(!is_view("torch.t"));
}

#[test]
fn only_inputs_may_be_written_to() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = aten(&mut graph, "neg.default", &[x]);
    aten(&mut graph, "copy_.default", &[x, y]);
    assert_eq!(why_not_split(&graph, &Unhosted), None);
    aten(&mut graph, "copy_.default", &[y, x]);
    let reason = why_not_split(&graph, &Unhosted).unwrap();
    assert_eq!(reason, "copy__default_1 writes to what the graph made");
}

#[test]
fn views_among_the_results_are_kept_with_the_views_that_they_are_of() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = aten(&mut graph, "neg.default", &[x]);
    let t = aten(&mut graph, "t.default", &[y]);
    let split = aten(&mut graph, "split.Tensor", &[t]);
    let item = call(&mut graph, "operator.getitem", [split.into(), 0.into()]);
    let dropped = aten(&mut graph, "native_dropout.default", &[y]);
    let first = call(&mut graph, "operator.getitem", [dropped.into(), 0.into()]);
    let saved = aten(&mut graph, "t.default", &[y]);
    let outputs = [item, first, saved].map(Arg::from);
    graph.output(Arg::tuple(outputs).unwrap()).unwrap();
    assert_eq!(
        reasons(&graph, Some(2)),
        [
            "t_default: whoever called gets it, and it is a view",
            "split_tensor: whoever called gets it, and it is a view",
            "getitem: whoever called gets it, and it is a view",
            "native_dropout_default: it has an effect besides its result",
            "getitem_1: native_dropout_default is run by PyTorch",
        ]
    );
}

#[test]
fn what_is_read_by_its_place_in_memory_is_kept_with_its_base() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let before = aten(&mut graph, "exp.default", &[x]);
    let y = aten(&mut graph, "neg.default", &[before]);
    let t = aten(&mut graph, "t.default", &[y]);
    let by_place = aten(&mut graph, "as_strided.default", &[t]);
    let sum = aten(&mut graph, "sum.default", &[by_place]);
    graph.output(sum).unwrap();
    assert_eq!(
        reasons(&graph, None),
        [
            "neg_default: as_strided_default reads its elements by their place in memory",
            "t_default: as_strided_default reads its elements by their place in memory",
            "as_strided_default: it reads elements by their place in memory",
        ]
    );
}

#[test]
fn attention_without_dropout_is_no_barrier() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let name = "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default";
    let nodes = [0.0, 0.5].map(|dropout| {
        let args = [x.into(), x.into(), x.into(), Arg::Float(dropout)];
        call(&mut graph, name, args)
    });
    let kept = Kept::of_graph(&graph, &Unhosted, &SecondaryMap::new(), None);
    assert_eq!(nodes.map(|node| kept.barriers[node]), [false, true]);
}
