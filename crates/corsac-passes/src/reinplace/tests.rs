use corsac_ir::{DType, ThinVec};
use corsac_ops::{FunctionInfo, ModuleInfo, Unhosted};

use super::*;
use crate::budget::Budget;
use crate::pass::run;
use crate::pass::testing::run_with;
use crate::tensors::TensorFact;

const INFERENCE: Reinplace = Reinplace { gradients: false };

fn fact(shape: &[i64], dtype: DType) -> TensorFact {
    let mut step = 1;
    let mut strides: Vec<i64> = Vec::new();
    for size in shape.iter().rev() {
        strides.push(step);
        step *= size;
    }
    strides.reverse();
    TensorFact {
        shape: Some(shape.to_vec()),
        dtype: Some(dtype),
        strides: Some(strides),
    }
}

fn used_later(user: &str) -> Refusal {
    let reason = format!("its input, or what may share storage with it, is used later, by {user}");
    reason.into()
}

struct Program {
    graph: Graph,
    tensors: TensorFacts,
    x: NodeId,
}

impl Program {
    fn new() -> Self {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let mut tensors = TensorFacts::new();
        tensors.set(x, fact(&[2, 3], DType::Float32));
        Self { graph, tensors, x }
    }

    /// A method's result, a 2 by 3 tensor of float32.
    fn method(&mut self, name: &str, args: &[Arg]) -> NodeId {
        let args: ThinVec<Arg> = args.iter().cloned().collect();
        let node = self.graph.call_method(name, args).unwrap();
        self.tensors.set(node, fact(&[2, 3], DType::Float32));
        node
    }

    fn function(&mut self, name: &str, args: &[Arg]) -> NodeId {
        let function = self.graph.function(name);
        let args: ThinVec<Arg> = args.iter().cloned().collect();
        let node = self.graph.call_function(function, args).unwrap();
        self.tensors.set(node, fact(&[2, 3], DType::Float32));
        node
    }

    /// The sites of the pass, on a copy.
    fn sites(&self, pass: Reinplace, host: &dyn Host) -> Vec<Site> {
        run_with(&pass, &mut self.graph.clone(), host, &self.tensors).sites
    }

    /// Why `node` does not overwrite its input.
    fn refusal(&self, node: NodeId) -> Option<Refusal> {
        let sites = self.sites(INFERENCE, &Unhosted);
        let site = sites.iter().find(|s| s.node == node);
        site.expect("it has an in-place form").refusal.clone()
    }

    fn applied(mut self) -> String {
        run_with(&INFERENCE, &mut self.graph, &Unhosted, &self.tensors);
        self.graph.to_string()
    }
}

#[test]
fn each_way_of_calling_has_its_form() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let b = p.method("add", &[a.into(), Arg::Int(1)]);
    let c = p.function("torch.sigmoid", &[b.into()]);
    let d = p.function("operator.mul", &[c.into(), p.x.into()]);
    let e = p.function(
        "torch.nn.functional.leaky_relu",
        &[d.into(), Arg::Float(0.2)],
    );
    let f = p.function("torch.ops.aten.add.Tensor", &[e.into(), p.x.into()]);
    p.graph.output(f).unwrap();
    let text = p.applied();
    for line in [
        "call_method[target=add_](args = (%cos, 1)",
        "call_method[target=sigmoid_](args = (%add,)",
        "call_function[target=operator.imul](args = (%sigmoid, %x)",
        "(args = (%mul, 0.2), kwargs = {inplace: True})",
        "call_function[target=torch.ops.aten.add_.Tensor](args = (%leaky_relu, %x)",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn what_others_see_is_not_overwritten() {
    let mut p = Program::new();
    let of_input = p.method("relu", &[p.x.into()]);
    let a = p.method("cos", &[of_input.into()]);
    let early = p.method("relu", &[a.into()]);
    let late = p.method("sin", &[a.into()]);
    p.graph
        .output(Arg::list([early.into(), late.into()]).unwrap())
        .unwrap();
    assert_eq!(p.refusal(of_input), Some(OUTSIDE));
    assert_eq!(p.refusal(early), Some(used_later("sin")));
    assert_eq!(p.refusal(late), None);
}

#[test]
fn views_are_one_with_what_they_are_views_of() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let view = p.method("view", &[a.into(), Arg::Int(2), Arg::Int(3)]);
    let first = p.method("relu", &[view.into()]);
    let sum = p.method("add", &[first.into(), a.into()]);
    p.graph.output(sum).unwrap();
    assert_eq!(p.refusal(first), Some(used_later("add")));
    assert_eq!(p.refusal(sum), None, "the sum overwrites what relu made");
}

#[test]
fn views_need_the_strides_of_the_result() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let expanded = p.method("expand", &[a.into(), Arg::Int(2), Arg::Int(3)]);
    let relu = p.method("relu", &[expanded.into()]);
    p.graph.output(relu).unwrap();
    assert_eq!(p.refusal(relu), None);
    let mut overlapping = fact(&[2, 3], DType::Float32);
    overlapping.strides = Some(vec![0, 1]);
    p.tensors.set(expanded, overlapping);
    assert_eq!(p.refusal(relu), Some(STRIDES));
    p.tensors.set(expanded, TensorFact::default());
    assert_eq!(p.refusal(relu), Some(STRIDES));
}

#[test]
fn types_have_to_stay() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let sum = p.method("add", &[a.into(), p.x.into()]);
    p.graph.output(sum).unwrap();
    assert_eq!(p.refusal(sum), None);
    p.tensors.set(a, fact(&[2, 3], DType::Int64));
    let dtype = Refusal::because("its input is torch.int64, the result torch.float32");
    assert_eq!(p.refusal(sum), Some(dtype));
    p.tensors.set(a, fact(&[3], DType::Float32));
    let shape = Refusal::because("its input has the shape [3], the result [2, 3]");
    assert_eq!(p.refusal(sum), Some(shape));
    p.tensors.set(a, TensorFact::default());
    assert_eq!(p.refusal(sum), Some(UNKNOWN));
    p.tensors.set(a, fact(&[], DType::Float32));
    p.tensors.set(sum, fact(&[], DType::Float32));
    assert_eq!(p.refusal(sum), Some(SCALAR));
}

#[test]
fn other_arguments_must_not_overlap() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let twice = p.method("mul", &[a.into(), a.into()]);
    let view = p.method("flip_view", &[]);
    let t = p.method("view", &[twice.into(), Arg::Int(2), Arg::Int(3)]);
    let overlap = p.method("add", &[twice.into(), t.into()]);
    let index = p.method(
        "index_add",
        &[overlap.into(), Arg::Int(0), overlap.into(), overlap.into()],
    );
    p.graph
        .output(Arg::list([index.into(), view.into()]).unwrap())
        .unwrap();
    assert_eq!(p.refusal(twice), None);
    assert_eq!(p.refusal(overlap), Some(OVERLAP));
    assert_eq!(p.refusal(index), Some(OVERLAP));
}

#[test]
fn the_second_operand_is_overwritten_where_the_first_cannot_be() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let sum = p.function("operator.add", &[p.x.into(), a.into()]);
    let difference = p.function("operator.sub", &[p.x.into(), sum.into()]);
    p.graph.output(difference).unwrap();
    assert_eq!(p.refusal(sum), None);
    assert_eq!(p.refusal(difference), Some(OUTSIDE));
    let mut unknown = fact(&[2, 3], DType::Float32);
    unknown.strides = None;
    p.tensors.set(sum, unknown);
    assert_eq!(
        p.refusal(sum),
        Some(OUTSIDE),
        "which layout it has is not known"
    );
    p.tensors.set(sum, fact(&[2, 3], DType::Float32));
    let text = p.applied();
    let line = "call_function[target=operator.iadd](args = (%cos, %x)";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_list_keeps_what_is_put_into_it() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let add = p.graph.function("operator.add");
    let lists = [
        Arg::list([a.into()]).unwrap(),
        Arg::list([p.x.into()]).unwrap(),
    ];
    let list = p.graph.call_function(add, lists).unwrap();
    let relu = p.method("relu", &[a.into()]);
    let output = Arg::list([list.into(), relu.into()]).unwrap();
    p.graph.output(output).unwrap();
    assert_eq!(p.refusal(relu), Some(OUTSIDE));
}

#[test]
fn gradients_keep_what_they_are_computed_from() {
    for (producer, lost) in [("linear", true), ("exp", false), ("sigmoid", false)] {
        let mut p = Program::new();
        let name = format!("torch.{producer}");
        let a = p.function(&name, &[p.x.into()]);
        let relu = p.method("relu", &[a.into()]);
        p.graph.output(relu).unwrap();
        let sites = p.sites(Reinplace::default(), &Unhosted);
        let found = sites.iter().find(|s| s.node == relu).unwrap();
        let expected = (!lost).then_some(GRADIENTS);
        assert_eq!(found.refusal, expected, "{producer}");
        assert_eq!(p.refusal(relu), None);
    }
}

struct Modules {
    hooks: bool,
}

impl Host for Modules {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        Some(ModuleInfo {
            class: format!("torch.nn.modules.activation.{path}"),
            hooks: self.hooks,
            ..ModuleInfo::default()
        })
    }

    fn function(&self, _graph: &Graph, _function: FunctionId) -> FunctionInfo {
        FunctionInfo::ByName
    }
}

#[test]
fn modules_without_settings_become_functions() {
    let refusal = |class: &str, hooks| {
        let mut p = Program::new();
        let a = p.method("cos", &[p.x.into()]);
        let node = p.graph.call_module(class, [a.into()]).unwrap();
        p.graph.output(node).unwrap();
        let sites = p.sites(INFERENCE, &Modules { hooks });
        let mut sites = sites.into_iter();
        sites.find(|s| s.node == node).map(|site| site.refusal)
    };
    assert_eq!(refusal("ReLU", false), Some(None));
    assert_eq!(refusal("LeakyReLU", false), Some(Some(SETTINGS)));
    assert_eq!(refusal("Softmax", false), None);
    assert_eq!(refusal("ReLU", true), None, "it may do anything");
}

#[test]
fn the_budget_limits_changes() {
    let mut p = Program::new();
    let a = p.method("cos", &[p.x.into()]);
    let b = p.method("relu", &[a.into()]);
    let c = p.method("relu", &[b.into()]);
    p.graph.output(c).unwrap();
    let mut budget = Budget::of(1);
    let mut context = Context {
        tensors: &p.tensors,
        ..Context::within(&mut budget)
    };
    let report = run(&INFERENCE, &mut p.graph, &mut context).unwrap();
    assert_eq!(report.refusals()[1..], [None, Some(Refusal::BUDGET)]);
}
