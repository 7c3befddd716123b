use super::*;
use crate::text::NoHost;

fn faults(graph: &Graph) -> Vec<String> {
    graph
        .lint_report()
        .faults
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_good_graph_passes() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let rest = graph.placeholder("*rest").unwrap();
    let add = graph.function("operator.add");
    let pair = Arg::tuple([x.into(), Arg::list([rest.into()]).unwrap()]).unwrap();
    let y = graph.call_function(add, [pair]).unwrap();
    graph.output(y).unwrap();
    assert_eq!(graph.lint(), Ok(()));
    assert_eq!(graph.verify(), Ok(()));
    assert_eq!(faults(&graph), [""; 0]);
}

#[test]
fn every_fault_is_reported_and_shown_in_place() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let add = graph.function("operator.add");
    let y = graph.call_function(add, [x.into(), x.into()]).unwrap();
    let gone = graph.get_attr("w").unwrap();
    graph.erase(gone).unwrap();
    let z = graph
        .call_function(add, [y.into(), Arg::list([gone.into()]).unwrap()])
        .unwrap();
    graph.output(z).unwrap();
    graph.set_name(y, "x").unwrap();
    graph.move_before(z, y).unwrap();

    let report = graph.lint().unwrap_err();
    assert_eq!(graph.verify(), Err(report.clone()));
    assert_eq!(
        graph.lint_listing(&report, &NoHost),
        "graph():
    %x : [num_users=1] = placeholder[target=x]
    %add_1 : [num_users=1] = call_function[target=operator.add](args = (%x, [%w]), kwargs = {})
#   ^ error: argument x is used before it has been defined; topological_sort() can put the nodes in order
#   ^ error: argument w has been erased from the graph
    %x : [num_users=1] = call_function[target=operator.add](args = (%x, %x), kwargs = {})
#   ^ error: an earlier node has the same name
    return add_1"
    );
    assert_eq!(
        report.to_string().lines().last(),
        Some("node x: an earlier node has the same name")
    );
}

#[test]
fn what_torch_fx_accepts_is_only_suspect() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    graph.placeholder("x").unwrap();
    graph.placeholder("a b").unwrap();
    graph.placeholder("lambda").unwrap();
    let first = graph.output(x).unwrap();
    graph.output(first).unwrap();
    graph.call_method("neg", [x.into()]).unwrap();
    assert_eq!(graph.lint(), Ok(()));
    assert_eq!(graph.verify(), Ok(()));
    assert_eq!(
        faults(&graph),
        [
            "node x_1: x is already the parameter called x",
            "node a_b: the target \"a b\" cannot be the name of a parameter",
            "node lambda_1: the target \"lambda\" cannot be the name of a parameter",
            "node output: an output is no value, but output_1 uses it",
            "node output_1: a second output, after output",
            "node neg: never runs: it comes after output",
        ]
    );
}

#[test]
fn a_node_that_uses_itself_is_used_before_it_is_defined() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.call_method("neg", [x.into()]).unwrap();
    graph.set_args(y, [y.into()]).unwrap();
    let argument = "neg".to_owned();
    assert_eq!(
        graph.lint().unwrap_err().faults[0].kind,
        FaultKind::UsedBeforeDefinition { argument }
    );
}
