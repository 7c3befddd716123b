//! Python source of graphs of 1k to 1M nodes; the time per node has to stay the same.

use corsac_codegen::{NamedHost, Needs, Options, python_code};
use corsac_ir::{Arg, Graph, GraphError};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Calls of every kind in a chain, as in an exported model.
fn chain(nodes: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let relu = graph.function("torch.nn.functional.relu");
    let add = graph.function("operator.add");
    let input = graph.placeholder("x")?;
    let mut value = input;
    for index in 0..nodes / 4 {
        let a = graph.call_function(relu, [value.into()])?;
        let b = graph.call_function(add, [a.into(), input.into()])?;
        let shape = Arg::tuple([Arg::Int(1), Arg::Int(-1)])?;
        let c = graph.call_method("view", [b.into(), shape])?;
        value = graph.call_module(&format!("layers.{}.conv", index % 50), [c.into()])?;
    }
    graph.output(value)?;
    Ok(graph)
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("python_code");
    for nodes in [1_000, 10_000, 100_000, 1_000_000] {
        let graph = chain(nodes).expect("the chain is a graph");
        let host = NamedHost::new(&graph);
        let options = Options::default();
        group.throughput(Throughput::Elements(nodes as u64));
        group.sample_size(if nodes < 100_000 { 50 } else { 10 });
        group.bench_with_input(BenchmarkId::new("generate", nodes), &graph, |b, graph| {
            b.iter(|| python_code(graph, &options, &host));
        });
        group.bench_with_input(BenchmarkId::new("needs", nodes), &graph, |b, graph| {
            b.iter(|| Needs::of(graph));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
