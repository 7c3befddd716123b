//! Every operation on graphs of 10,000, 100,000 and 1,000,000 nodes, with criterion; the
//! throughput is in nodes. `scaling` prints the same as one table.

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

mod operations;

fn graph(criterion: &mut Criterion) {
    for operation in operations::OPERATIONS {
        let mut group = criterion.benchmark_group(operation.name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_secs(1));
        for nodes in [10_000, 100_000, 1_000_000] {
            group.throughput(Throughput::Elements(nodes as u64));
            group.bench_function(nodes.to_string(), |bencher| {
                bencher.iter_batched_ref(
                    || (operation.prepare)(nodes).expect("the benches' own graphs are well formed"),
                    |subject| (operation.run)(subject).expect("and so is what is done to them"),
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

criterion_group!(benches, graph);
criterion_main!(benches);
