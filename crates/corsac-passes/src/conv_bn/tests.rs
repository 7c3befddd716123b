use super::*;
use corsac_ir::{Arg, FunctionId};
use corsac_ops::{FunctionInfo, ModuleInfo};

/// Modules by path.
#[derive(Default)]
struct Model {
    modules: FxHashMap<String, ModuleInfo>,
}

impl Host for Model {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        self.modules.get(path).cloned()
    }

    fn function(&self, _: &Graph, _: FunctionId) -> FunctionInfo {
        FunctionInfo::ByName
    }
}

impl Model {
    fn with(mut self, path: &str, class: &str) -> Self {
        let info = ModuleInfo {
            class: format!("torch.nn.modules.{class}"),
            identity: self.modules.len() as u64,
            tracks_statistics: true,
            eps: 1e-5,
            ..ModuleInfo::default()
        };
        self.modules.insert(path.to_owned(), info);
        self
    }

    /// `conv` and `bn` in a block.
    fn block() -> Self {
        Self::default()
            .with("block.conv", "conv.Conv2d")
            .with("block.bn", "batchnorm.BatchNorm2d")
    }

    fn change(mut self, path: &str, change: impl FnOnce(&mut ModuleInfo)) -> Self {
        change(self.modules.get_mut(path).unwrap());
        self
    }

    fn plan(&self, graph: &Graph, pass: FoldBatchNorms, budget: &mut Budget) -> BatchNorms {
        pass.find(graph, self, &TensorFacts::default(), budget)
            .unwrap()
    }

    /// Folds all batch norms that can be.
    fn fuse(&self, graph: &mut Graph) -> BatchNorms {
        let found = self.plan(graph, FoldBatchNorms::default(), &mut Budget::unlimited());
        found.apply(graph).unwrap();
        found
    }

    /// Why the only batch norm of `graph` stays.
    fn refusal(self, mut graph: Graph) -> String {
        let found = self.fuse(&mut graph);
        assert_eq!(found.0.len(), 1);
        found.0[0].site.refusal.as_ref().unwrap().to_string()
    }
}

/// `conv(x)`, `bn` of it, and the nodes that `more` adds to the program.
fn program(more: impl FnOnce(&mut Graph, NodeId, NodeId) -> Arg) -> Graph {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let conv = graph.call_module("block.conv", [x.into()]).unwrap();
    let norm = graph.call_module("block.bn", [conv.into()]).unwrap();
    let result = more(&mut graph, conv, norm);
    graph.output(result).unwrap();
    graph
}

fn plain() -> Graph {
    program(|_, _, norm| norm.into())
}

#[test]
fn a_batch_norm_after_a_convolution_is_folded() {
    let mut graph = plain();
    let model = Model::block();
    let report = model.fuse(&mut graph);
    assert_eq!(report.folded(), 1);
    assert_eq!(report.0[0].site.other.as_deref(), Some("block.conv"));
    let names: Vec<_> = graph.nodes().map(|n| graph.node(n).name()).collect();
    assert_eq!(names, ["x", "block_conv", "output"]);
}

#[test]
fn two_batch_norms_in_a_row_are_both_folded() {
    let model = Model::block().with("second", "batchnorm.BatchNorm2d");
    let mut graph = program(|graph, _, norm| {
        let second = graph.call_module("second", [norm.into()]);
        second.unwrap().into()
    });
    assert_eq!(model.fuse(&mut graph).folded(), 2);
    assert_eq!(graph.len(), 3);
}

#[test]
fn modes_and_hooks_refuse() {
    let conv = |f: fn(&mut ModuleInfo)| Model::block().change("block.conv", f).refusal(plain());
    let norm = |f: fn(&mut ModuleInfo)| Model::block().change("block.bn", f).refusal(plain());
    assert_eq!(norm(|m| m.training = true), "block.bn is in training mode");
    assert_eq!(
        conv(|m| m.training = true),
        "block.conv is in training mode"
    );
    assert_eq!(
        conv(|m| m.hooks = true),
        "block.conv has hooks or declares side effects"
    );
    assert_eq!(
        norm(|m| m.impure = Some(true)),
        "block.bn has hooks or declares side effects"
    );
    assert_eq!(
        norm(|m| m.tracks_statistics = false),
        "block.bn normalises with the statistics of each batch: it keeps no running ones"
    );
    assert_eq!(
        conv(|m| m.class = "mine.Conv2d".to_owned()),
        "its input block_conv is not the result of a 2-d convolution"
    );
    assert_eq!(
        conv(|m| m.class = "torch.nn.modules.conv.Conv1d".to_owned()),
        "its input block_conv is not the result of a 2-d convolution"
    );
}

#[test]
fn other_uses_of_the_convolution_refuse() {
    let used = program(|graph, conv, norm| {
        let add = graph.call_method("add", [conv.into(), norm.into()]);
        add.unwrap().into()
    });
    assert_eq!(
        Model::block().refusal(used),
        "2 nodes use the result of block.conv: block_bn, add"
    );

    let called = || {
        program(|graph, _, norm| {
            let again = graph.call_module("block.conv", [norm.into()]);
            again.unwrap().into()
        })
    };
    assert_eq!(
        Model::block().refusal(called()),
        "block.conv is called 2 times"
    );

    let by_another_path = program(|graph, _, norm| {
        let again = graph.call_module("other", [norm.into()]);
        again.unwrap().into()
    });
    let model = Model::block().with("other", "conv.Conv2d");
    let identity = model.modules["block.conv"].identity;
    let model = model.change("other", |m| m.identity = identity);
    assert_eq!(
        model.refusal(by_another_path),
        "block.conv is called 2 times"
    );
}

#[test]
fn attributes_and_parents_in_use_refuse() {
    for attribute in ["block.conv.weight", "block.bn.running_mean"] {
        let graph = program(|graph, _, norm| {
            let read = graph.get_attr(attribute).unwrap();
            let add = graph.call_method("add", [norm.into(), read.into()]);
            add.unwrap().into()
        });
        assert_eq!(
            Model::block().refusal(graph),
            format!("the graph uses {attribute} by itself")
        );
    }
    let graph = program(|graph, _, norm| {
        let block = graph.call_module("block", [norm.into()]);
        block.unwrap().into()
    });
    let model = Model::block().with("block", "container.Sequential");
    assert_eq!(
        model.refusal(graph),
        "block.conv is part of block, which is called as a whole"
    );
}

#[test]
fn a_linear_layer_is_folded_on_request() {
    let model = Model::default()
        .with("linear", "linear.Linear")
        .with("bn", "batchnorm.BatchNorm1d");
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let linear = graph.call_module("linear", [x.into()]).unwrap();
    let norm = graph.call_module("bn", [linear.into()]).unwrap();
    graph.output(norm).unwrap();
    let report = model.fuse(&mut graph);
    assert_eq!(report.folded(), 0);
    let pass = FoldBatchNorms { linear: true };
    let found = model.plan(&graph, pass, &mut Budget::unlimited());
    assert_eq!(found.folded(), 1);
}

/// `conv(x)`, `batch_norm` of it and the names of the attributes.
fn functional(training: bool) -> Graph {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let mut attribute = |name| Arg::from(graph.get_attr(name).unwrap());
    let (weight, mean, var) = (attribute("w"), attribute("mean"), attribute("var"));
    let conv = graph.function("torch.conv2d");
    let conv = graph.call_function(conv, [x.into(), weight]).unwrap();
    let norm = graph.function("torch.nn.functional.batch_norm");
    let args = [
        conv.into(),
        mean,
        var,
        Arg::None,
        Arg::None,
        Arg::Bool(training),
    ];
    let norm = graph.call_function(norm, args).unwrap();
    graph.output(norm).unwrap();
    graph
}

#[test]
fn functions_of_attributes_get_new_ones() {
    let (mut graph, model) = (functional(false), Model::default());
    let mut found = model.plan(&graph, FoldBatchNorms::default(), &mut Budget::unlimited());
    found.settle(0, ["w_folded", "w_folded_bias"].map(str::to_owned));
    found.apply(&mut graph).unwrap();
    let listing = "graph():
    %x : [num_users=1] = placeholder[target=x]
    %w_folded : [num_users=1] = get_attr[target=w_folded]
    %w_folded_bias : [num_users=1] = get_attr[target=w_folded_bias]
    %conv2d : [num_users=1] = call_function[target=torch.conv2d](args = (%x, %w_folded), kwargs = {bias: %w_folded_bias})
    return conv2d";
    assert_eq!(graph.to_text(&corsac_ir::NoHost), listing);
    let reason = Model::default().refusal(functional(true));
    assert_eq!(reason, "batch_norm is in training mode");
}

#[test]
fn a_batch_norm_before_a_layer_is_folded_unless_zeros_are_put_around() {
    let program = || {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let norm = graph.call_module("bn", [x.into()]).unwrap();
        let conv = graph.call_module("conv", [norm.into()]).unwrap();
        graph.output(conv).unwrap();
        graph
    };
    let model = || {
        Model::default()
            .with("bn", "batchnorm.BatchNorm2d")
            .with("conv", "conv.Conv2d")
    };
    let mut graph = program();
    assert_eq!(model().fuse(&mut graph).folded(), 1);
    assert_eq!(graph.len(), 3);
    let padded = model().change("conv", |m| m.zero_padded = true);
    assert_eq!(
        padded.refusal(program()),
        "conv comes after it and pads its input with zeros"
    );
}

#[test]
fn a_budget_is_spent_in_order() {
    let found = Model::block().plan(&plain(), FoldBatchNorms::default(), &mut Budget::of(0));
    assert_eq!(found.0[0].site.refusal, Some(Refusal::BUDGET));
}

#[test]
fn a_refusal_before_a_layer_says_nothing_of_what_comes_after_it() {
    let model = Model::block().with("first", "batchnorm.BatchNorm2d");
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let first = graph.call_module("first", [x.into()]).unwrap();
    let conv = graph.call_module("block.conv", [first.into()]).unwrap();
    let last = graph.call_module("block.bn", [conv.into()]).unwrap();
    graph.output(last).unwrap();
    let mut report = model.plan(&graph, FoldBatchNorms::default(), &mut Budget::unlimited());
    assert_eq!(report.folded(), 2);
    report.0[0].site.refusal = Some(Refusal::because("for another transformation"));
    assert_eq!(report.folded(), 1);
    report.apply(&mut graph).unwrap();
    assert!(graph.contains(first) && !graph.contains(last));
}
