//! Replacement of modules by calls, and back.

use corsac_ir::{DType, ExternalId};
use corsac_ops::shape::TensorType;

use super::*;

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
fn called(facts: ModuleFacts) -> (Graph, Functional, Edits) {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let m = graph.call_module("m", [x.into()]).unwrap();
    graph.output(m).unwrap();
    let modules = Modules(vec![("m", facts)]);
    let found = find(&graph, &modules, &|_| true, &mut Budget::unlimited());
    let edits = found.apply(&mut graph, Graph::function).unwrap();
    graph.verify().unwrap();
    (graph, found, edits)
}

#[test]
fn a_module_becomes_its_function() {
    let (graph, found, edits) = called(conv("zeros"));
    let text = graph.to_lossless();
    let expected = "%m : [num_users=1] = call_function[target=torch.conv2d](args = (%x, %m_weight, \
                    None), kwargs = {stride: (1, 1), padding: 'same', dilation: (1, 1), groups: 1})";
    assert!(text.contains(expected), "{text}");
    assert_eq!(found.functions().collect::<Vec<_>>(), ["torch.conv2d"]);
    assert_eq!(edits.added.len(), 1);
    assert_eq!(graph.node(edits.added[0].root).name(), "m");
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
        let (_, found, _) = called(facts);
        let refusal = found.sites[0].outcome.clone().unwrap_err();
        assert_eq!(refusal.to_string(), expected);
        assert!(!found.changed());
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
    let found = find(&graph, &modules, &|_| true, &mut Budget::of(1));
    let outcomes: Vec<_> = found.sites.into_iter().map(|site| site.outcome).collect();
    let path = "gone".to_owned();
    assert_eq!(
        outcomes,
        [
            Ok("torch.conv2d"),
            Err(Refusal::Budget),
            Err(Refusal::NoModule { path })
        ]
    );
    let none = find(&graph, &modules, &|_| false, &mut Budget::unlimited());
    assert_eq!(
        none.sites.len(),
        1,
        "what is not there is told all the same"
    );
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
    let sites = find_layers(&graph, &|path| path == "fc.weight", &mut Budget::of(2));
    let expected = Layer {
        node: fc,
        class: "Linear",
        weight: Some("fc.weight".to_owned()),
        bias: None,
    };
    assert_eq!(sites[0].outcome, Ok(expected));
    let parameter = "weight";
    let refusal = LayerRefusal::NotAttribute { parameter };
    assert_eq!(sites[1].outcome, Err(refusal));
    assert_eq!(sites[2].outcome.as_ref().unwrap().class, "ReLU");
    let edits = call_layers(&mut graph, &[(fc, "fc_1"), (relu, "relu_1")]).unwrap();
    graph.verify().unwrap();
    assert_eq!(edits.erased, [w]);
    assert_eq!(graph.node(fc).target_name(), "fc_1");
    assert_eq!(graph.node(fc).args(), [x.into()]);

    let buffers = find_layers(&graph, &|_| false, &mut Budget::unlimited());
    assert_eq!(buffers.len(), 1, "the other calls are modules now");
}
