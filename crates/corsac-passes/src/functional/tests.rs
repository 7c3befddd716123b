//! Replacement of modules by calls, and back.

use corsac_ir::{DType, ExternalId};
use corsac_ops::shape::{TensorType, TypeHost};

use super::*;
use crate::budget::Budget;
use crate::pass::{Report, run};

/// Modules by path.
#[derive(Default)]
struct Modules(Vec<(&'static str, ModuleFacts)>);

impl TypeHost for Modules {
    fn module(&self, path: &str) -> Option<&ModuleFacts> {
        let mut all = self.0.iter();
        all.find(|(own, _)| *own == path).map(|(_, facts)| facts)
    }

    fn attribute(&self, _path: &str) -> Option<Value> {
        None
    }

    fn constant(&self, _id: ExternalId) -> Option<Value> {
        None
    }

    fn weight_count(&self) -> usize {
        0
    }
}

fn tensor() -> Value {
    Value::tensor(TensorType::new(DType::Float32, [Dim::Known(2)]))
}

fn text(text: &str) -> Value {
    Value::Str(text.into())
}

fn module(class: &str, attributes: &[(&str, Value)]) -> ModuleFacts {
    ModuleFacts {
        class: format!("torch.nn.modules.{class}"),
        attributes: attributes
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        ..ModuleFacts::default()
    }
}

fn conv(mode: &str) -> ModuleFacts {
    let pair = Value::Tuple([Value::int(1), Value::int(1)].into());
    module(
        "conv.Conv2d",
        &[
            ("weight", tensor()),
            ("bias", Value::None),
            ("stride", pair.clone()),
            ("padding", text("same")),
            ("dilation", pair),
            ("groups", Value::int(1)),
            ("padding_mode", text(mode)),
        ],
    )
}

/// A program that calls the module `m`, after the pass.
fn called(facts: ModuleFacts) -> (Graph, Report) {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let m = graph.call_module("m", [x.into()]).unwrap();
    graph.output(m).unwrap();
    let modules = Modules(vec![("m", facts)]);
    let pass = ModulesToFunctions::default();
    let report = converted(&pass, &mut graph, &modules, &mut Budget::unlimited());
    (graph, report)
}

fn converted(
    pass: &ModulesToFunctions,
    graph: &mut Graph,
    types: &Modules,
    budget: &mut Budget,
) -> Report {
    let mut context = Context {
        types,
        ..Context::within(budget)
    };
    run(pass, graph, &mut context).unwrap()
}

#[test]
fn a_module_becomes_its_function() {
    let (graph, report) = called(conv("zeros"));
    let text = graph.to_lossless();
    let expected = "%m : [num_users=1] = call_function[target=torch.conv2d](args = (%x, %m_weight, \
                    None), kwargs = {stride: (1, 1), padding: 'same', dilation: (1, 1), groups: 1})";
    assert!(text.contains(expected), "{text}");
    assert_eq!(report.sites[0].other.as_deref(), Some("conv2d"));
    assert_eq!(report.edits.added.len(), 1);
    assert_eq!(graph.node(report.edits.added[0].root).name(), "m");
}

#[test]
fn modules_that_are_no_single_function_stay() {
    let norm = |training, statistics| ModuleFacts {
        training,
        ..module(
            "batchnorm.BatchNorm2d",
            &[("running_mean", statistics), ("running_var", tensor())],
        )
    };
    let hooked = ModuleFacts {
        hooked: true,
        ..conv("zeros")
    };
    let foreign = ModuleFacts {
        class: "mine.Conv2d".to_owned(),
        ..conv("zeros")
    };
    let cases = [
        (conv("reflect"), "it pads by reflect"),
        (hooked, "it has hooks"),
        (foreign, "no function is known for Conv2d"),
        (norm(true, tensor()), "it is in training mode"),
        (
            norm(false, Value::None),
            "it normalises with the statistics of each batch",
        ),
        (
            module("activation.Softmax", &[("dim", Value::None)]),
            "its dimension depends on the shape",
        ),
        (
            module("linear.Linear", &[("bias", Value::None)]),
            "its weight is nothing that can be written into a program",
        ),
        (
            module("activation.ELU", &[("alpha", tensor())]),
            "its alpha is nothing that can be written into a program",
        ),
    ];
    for (facts, expected) in cases {
        let (_, report) = called(facts);
        assert_eq!(report.refusals(), [Some(Refusal::because(expected))]);
    }
}

#[test]
fn budgets_and_classes_limit_what_is_done() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    for _ in 0..2 {
        graph.call_module("m", [x.into()]).unwrap();
    }
    graph.call_module("gone", [x.into()]).unwrap();
    let modules = Modules(vec![("m", conv("zeros"))]);
    let none = ModulesToFunctions {
        classes: Classes::Named(FxHashSet::default()),
    };
    let report = converted(&none, &mut graph, &modules, &mut Budget::unlimited());
    let gone = Some(Refusal::because("there is no module gone"));
    assert_eq!(
        report.refusals(),
        std::slice::from_ref(&gone),
        "it is reported in any case"
    );
    let pass = ModulesToFunctions::default();
    let report = converted(&pass, &mut graph, &modules, &mut Budget::of(1));
    assert_eq!(report.refusals(), [None, Some(Refusal::BUDGET), gone]);
}

#[test]
fn functions_of_parameters_become_modules() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let w = graph.get_attr("fc.weight").unwrap();
    let linear = graph.function("torch._C._nn.linear");
    let fc = graph
        .call_function(linear, [x.into(), w.into(), Arg::None])
        .unwrap();
    let computed = graph
        .call_function(linear, [x.into(), fc.into(), Arg::None])
        .unwrap();
    let relu = graph.function("torch.relu");
    let relu = graph.call_function(relu, [computed.into()]).unwrap();
    graph.output(relu).unwrap();
    let pass = FunctionsToModules {
        parameters: std::iter::once("fc.weight".to_owned()).collect(),
    };
    let mut budget = Budget::of(2);
    let mut plan = pass
        .plan(&graph, &mut Context::within(&mut budget))
        .unwrap();
    let computed = Some(Refusal::because("its weight is no attribute"));
    let refusals: Vec<_> = plan.sites.iter().map(|site| site.refusal.clone()).collect();
    assert_eq!(refusals, [None, computed, None]);
    let fact = |text: &str| Value::Str(text.into());
    let expected = [
        ("class", fact("Linear")),
        ("weight", fact("fc.weight")),
        ("bias", Value::None),
    ];
    assert_eq!(plan.requests[0].facts, expected);
    assert_eq!(plan.requests[1].facts[0].1, fact("ReLU"));
    plan.requests[0].names.push("fc_1".to_owned());
    let report = plan
        .apply(&mut graph, &|graph, name| graph.function(name))
        .unwrap();
    graph.verify().unwrap();
    assert_eq!(report.edits.erased, [w]);
    assert_eq!(report.sites[0].other.as_deref(), Some("fc_1"));
    assert_eq!(graph.node(fc).target_name(), "fc_1");
    assert_eq!(graph.node(fc).args(), [x.into()]);
    assert!(!report.sites[2].is_applied(), "nothing was made for it");
    assert_eq!(graph.node(relu).target_name(), "torch.relu");
}
