use corsac_ops::Unhosted;
use proptest::prelude::*;

use super::again::{Class, class_of};
use super::*;

/// A joint graph under construction: values first, then the outputs.
struct Sketch {
    graph: Graph,
    values: SecondaryMap<NodeId, Value>,
}

impl Sketch {
    fn new() -> Self {
        Self {
            graph: Graph::new(),
            values: SecondaryMap::new(),
        }
    }

    fn input(&mut self, name: &str, bytes: u64) -> NodeId {
        let node = self.graph.placeholder(name).unwrap();
        self.set(node, |value| value.bytes = bytes);
        node
    }

    fn tangent(&mut self) -> NodeId {
        let node = self.input("tangent", 100);
        self.set(node, |value| value.role = Role::Tangent);
        node
    }

    /// A call of `torch.ops.aten.…` with a value of `bytes` bytes.
    fn call(&mut self, name: &str, inputs: &[NodeId], bytes: u64) -> NodeId {
        let function = self.graph.function(&format!("torch.ops.aten.{name}"));
        let args: Vec<Arg> = inputs.iter().map(|&node| node.into()).collect();
        let node = self.graph.call_function(function, args).unwrap();
        self.set(node, |value| value.bytes = bytes);
        node
    }

    fn item(&mut self, of: NodeId, at: i64, bytes: u64) -> NodeId {
        let function = self.graph.function("operator.getitem");
        let node = self
            .graph
            .call_function(function, [of.into(), at.into()])
            .unwrap();
        self.set(node, |value| value.bytes = bytes);
        node
    }

    fn set(&mut self, node: NodeId, change: impl FnOnce(&mut Value)) {
        change(self.values.get_mut(node));
    }

    fn returns(&mut self, outputs: &[NodeId]) {
        let outputs: Vec<Arg> = outputs.iter().map(|&node| node.into()).collect();
        self.graph.output(Arg::tuple(outputs).unwrap()).unwrap();
    }

    fn parted(&self, forward: usize) -> Result<Partition, JointError> {
        self.parted_with(forward, Effort::FewestBytes)
    }

    fn parted_with(&self, forward: usize, effort: Effort) -> Result<Partition, JointError> {
        partition(&self.graph, &Unhosted, &self.values, forward, effort)
    }
}

/// `(saved, recomputed)` of a linear layer, the named activation and another linear layer.
fn mlp(activation: &str, effort: Effort) -> (Vec<String>, Vec<String>) {
    let mut own = Sketch::new();
    let [x, v, w] = ["x", "v", "w"].map(|name| own.input(name, 100));
    for parameter in [v, w] {
        own.set(parameter, |value| value.role = Role::Parameter);
    }
    let hidden = own.call("mm.default", &[x, v], 400);
    let active = own.call(&format!("{activation}.default"), &[hidden], 400);
    let y = own.call("mm.default", &[active, w], 100);
    let tangent = own.tangent();
    let grad_w = own.call("mm.default", &[active, tangent], 100);
    let grad = own.call("mm.default", &[tangent, w], 400);
    let grad = own.call(
        &format!("{activation}_backward.default"),
        &[grad, hidden],
        400,
    );
    let grad_v = own.call("mm.default", &[x, grad], 100);
    own.returns(&[y, grad_v, grad_w]);
    let parts = own.parted_with(1, effort).unwrap();
    let names = |nodes: &[NodeId]| {
        let names = nodes
            .iter()
            .map(|&node| own.graph.node(node).name().to_owned());
        names.collect()
    };
    (names(&parts.saved), names(&parts.recomputed))
}

#[test]
fn an_activation_is_computed_again_and_a_product_is_saved() {
    let (saved, recomputed) = mlp("gelu", Effort::FewestBytes);
    assert_eq!(saved, ["x", "w", "mm_default"]);
    assert_eq!(recomputed, ["gelu_default"]);
}

#[test]
fn a_function_that_a_product_reads_is_computed_once_if_that_is_faster() {
    let (saved, recomputed) = mlp("gelu", Effort::Balanced);
    assert_eq!(saved, ["x", "w", "mm_default", "gelu_default"]);
    assert!(recomputed.is_empty());
    // A function that takes no longer than reading its result is recomputed all the same.
    let (_, recomputed) = mlp("relu", Effort::Balanced);
    assert_eq!(recomputed, ["relu_default"]);
}

#[test]
fn what_is_not_known_is_saved() {
    let (saved, recomputed) = mlp("no_such_operator", Effort::FewestBytes);
    assert_eq!(saved, ["x", "w", "mm_default", "no_such_operator_default"]);
    assert!(recomputed.is_empty());
}

#[test]
fn random_numbers_are_saved_and_what_is_made_of_them_is_not() {
    let mut own = Sketch::new();
    let x = own.input("x", 100);
    let noise = own.call("rand_like.default", &[x], 100);
    let mask = own.call("gt.Scalar", &[noise, x], 25);
    let y = own.call("mul.Tensor", &[x, mask], 100);
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, mask], 100);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!((&parts.saved[..], parts.saved_bytes), (&[mask][..], 25));
    assert_eq!(parts.forward, [noise, mask, y]);
    assert_eq!(parts.backward, [grad]);
    assert!(parts.redrawn.is_empty());
}

#[test]
fn random_numbers_that_nobody_reads_are_drawn() {
    let mut own = Sketch::new();
    let x = own.input("x", 100);
    let unread = own.call("rand_like.default", &[x], 100);
    let y = own.call("exp.default", &[x], 100);
    let tangent = own.tangent();
    let drawn = own.call("rand_like.default", &[x], 100);
    own.set(drawn, |value| value.time = Time::Backward);
    let grad = own.call("mul.Tensor", &[tangent, y], 100);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.forward, [unread, y]);
    // The argument of the call is saved; the result is recomputed from it.
    assert_eq!(parts.saved, [x]);
    assert_eq!(parts.backward, [drawn, y, grad]);
}

#[test]
fn a_checkpointed_region_is_computed_again_with_the_same_random_numbers() {
    let mut own = Sketch::new();
    let [x, w] = ["x", "w"].map(|name| own.input(name, 100_000));
    let product = own.call("mm.default", &[x, w], 100_000);
    let pair = own.call("native_dropout.default", &[product], 200_000);
    own.set(pair, |value| value.kind = Kind::Other);
    let dropped = own.item(pair, 0, 100_000);
    let mask = own.item(pair, 1, 100_000);
    let y = own.call("exp.default", &[dropped], 100_000);
    for node in [product, pair, dropped, mask, y] {
        own.set(node, |value| {
            (value.policy, value.region) = (Policy::Recompute, Some(0))
        });
    }
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, y], 100_000);
    let grad = own.call("native_dropout_backward.default", &[grad, mask], 100_000);
    let grad = own.call("mm.default", &[grad, w], 100_000);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.saved, [x, w]);
    assert_eq!(parts.recomputed, [product, pair, dropped, y]);
    assert_eq!(parts.redrawn, [pair]);
    assert_eq!(parts.saved_bytes, 200_000 + GENERATOR_BYTES);
}

#[test]
fn what_a_later_region_reads_of_an_earlier_one_is_saved() {
    let mut own = Sketch::new();
    let x = own.input("x", 100);
    let a = own.call("mm.default", &[x, x], 100);
    let b = own.call("exp.default", &[a], 100);
    let c = own.call("mm.default", &[b, b], 100);
    let d = own.call("exp.default", &[c], 100);
    for (node, region) in [(a, 0), (b, 0), (c, 1), (d, 1)] {
        own.set(node, |value| {
            (value.policy, value.region) = (Policy::Recompute, Some(region))
        });
    }
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, d], 100);
    let grad = own.call("mm.default", &[grad, b], 100);
    own.returns(&[d, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.saved, [b]);
    assert_eq!(parts.recomputed, [c, d]);
}

#[test]
fn one_result_of_several_is_saved_and_not_all_of_them() {
    let mut own = Sketch::new();
    let x = own.input("x", 100);
    let pair = own.call("native_layer_norm.default", &[x], 300);
    own.set(pair, |value| value.kind = Kind::Other);
    let [norm, mean] = [(0, 100), (1, 10)].map(|(at, bytes)| own.item(pair, at, bytes));
    let y = own.call("exp.default", &[norm], 100);
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, mean], 100);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.saved, [mean]);
    assert_eq!(parts.backward, [grad]);
}

#[test]
fn views_are_taken_again_of_what_they_show() {
    let mut own = Sketch::new();
    let w = own.input("w", 400);
    own.set(w, |value| value.role = Role::Parameter);
    let x = own.input("x", 100);
    let turned = own.call("t.default", &[w], 400);
    let y = own.call("mm.default", &[x, turned], 100);
    let tangent = own.tangent();
    let grad = own.call("mm.default", &[tangent, turned], 100);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!((&parts.saved[..], parts.saved_bytes), (&[w][..], 0));
    assert_eq!(parts.backward, [turned, grad]);
}

#[test]
fn a_sum_is_saved_and_not_what_it_sums_up() {
    let mut own = Sketch::new();
    let [x, z] = ["x", "z"].map(|name| own.input(name, 1000));
    let product = own.call("mul.Tensor", &[x, z], 1000);
    let sum = own.call("sum.default", &[product], 4);
    let y = own.call("exp.default", &[sum], 4);
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, y], 4);
    own.returns(&[y, grad]);
    // Of two with the same bytes, the one that leaves less work.
    assert_eq!(own.parted(1).unwrap().saved, [y]);
}

#[test]
fn sizes_are_saved_in_the_place_of_tensors() {
    let mut own = Sketch::new();
    let x = own.input("x", 1000);
    let size = own.call("sym_size.int", &[x], 0);
    let twice = own.graph.function("operator.mul");
    let twice = own
        .graph
        .call_function(twice, [size.into(), 2.into()])
        .unwrap();
    for node in [size, twice] {
        own.set(node, |value| value.kind = Kind::Size);
    }
    let y = own.call("exp.default", &[x], 1000);
    let tangent = own.tangent();
    let grad = own.call("expand.default", &[tangent, twice], 1000);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(
        (&parts.saved[..], &parts.saved_numbers[..]),
        (&[][..], &[twice][..])
    );
    assert_eq!(parts.saved_bytes, 0);
}

#[test]
fn what_is_written_to_is_not_read_again() {
    // buffer.mul_(2) at the end; the backward pass needs exp(buffer) of the old contents.
    let mut own = Sketch::new();
    let [x, buffer] = ["x", "buffer"].map(|name| own.input(name, 100));
    own.set(buffer, |value| value.role = Role::Parameter);
    let shown = own.call("view.default", &[buffer], 100);
    let factor = own.call("exp.default", &[shown], 100);
    let y = own.call("mul.Tensor", &[x, factor], 100);
    let doubled = own.call("mul.Tensor", &[buffer, buffer], 100);
    let written = own.call("copy_.default", &[buffer, doubled], 100);
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, factor], 100);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.saved, [factor]);
    assert_eq!(parts.forward, [shown, factor, y, doubled, written]);
    assert_eq!(parts.backward, [grad]);
}

#[test]
fn what_both_ways_compute_is_saved_once_or_computed_twice() {
    // A checkpoint by hand: the backward pass recomputes the product, which is cheaper than saving.
    let mut own = Sketch::new();
    let x = own.input("x", 10);
    let product = own.call("mm.default", &[x, x], 1000);
    let y = own.call("exp.default", &[product], 1000);
    let again = own.call("mm.default", &[x, x], 1000);
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, again], 1000);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.saved, [x]);
    assert_eq!(parts.backward.len(), 2);
}

#[test]
fn duplicates_are_saved_once() {
    let mut own = Sketch::new();
    let x = own.input("x", 1000);
    let a = own.call("mm.default", &[x, x], 100);
    let b = own.call("mm.default", &[x, x], 100);
    let y = own.call("add.Tensor", &[a, b], 100);
    let tangent = own.tangent();
    let grad = own.call("mul.Tensor", &[tangent, a], 100);
    let grad = own.call("mul.Tensor", &[grad, b], 100);
    own.returns(&[y, grad]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.merged, [(b, a)]);
    assert_eq!((&parts.saved[..], parts.saved_bytes), (&[a][..], 100));
    assert_eq!(parts.forward, [a, y]);
}

#[test]
fn a_result_that_needs_a_tangent_is_an_error() {
    let mut own = Sketch::new();
    let x = own.input("x", 100);
    let tangent = own.tangent();
    let y = own.call("mul.Tensor", &[x, tangent], 100);
    own.returns(&[y, y]);
    let node = "tangent".to_owned();
    assert_eq!(own.parted(1), Err(JointError::NeedsTangent { node }));
    let (given, expected) = (2, 3);
    assert_eq!(
        own.parted(3),
        Err(JointError::TooFewOutputs { given, expected })
    );
}

#[test]
fn a_graph_without_a_way_back_is_all_ahead() {
    let mut own = Sketch::new();
    let x = own.input("x", 100);
    let y = own.call("exp.default", &[x], 100);
    own.returns(&[y]);
    let parts = own.parted(1).unwrap();
    assert_eq!(parts.forward, [y]);
    assert!(parts.saved.is_empty() && parts.backward.is_empty());
}

#[test]
fn operators_are_in_classes() {
    for (name, class) in [
        ("torch.ops.aten.view.default", Class::None),
        ("operator.getitem", Class::None),
        ("torch.ops.aten.sym_size.int", Class::None),
        ("torch.ops.aten.add.Tensor", Class::Copied),
        ("torch.ops.aten.sum.dim_IntList", Class::Copied),
        (
            "torch.ops.prims.convert_element_type.default",
            Class::Copied,
        ),
        ("torch.ops.aten.gelu.default", Class::Function),
        ("torch.ops.aten.mm.default", Class::Long),
        ("torch.ops.aten.convolution.default", Class::Long),
        ("torch.ops.aten.native_layer_norm.default", Class::Long),
        ("torch.ops.mine.relu.default", Class::Long),
        ("print", Class::Long),
    ] {
        assert_eq!(class_of(name), class, "{name}");
    }
}

/// Calls of a random graph: an operator, up to two operands by number, and bytes.
type Calls = Vec<(usize, usize, usize, u64)>;

const OPERATORS: [&str; 5] = [
    "add.Tensor",
    "exp.default",
    "mm.default",
    "rand_like.default",
    "view.default",
];

/// A graph of one input, these calls, and a backward pass that reads the `demanded` values.
fn random(calls: &Calls, demanded: &[usize]) -> (Sketch, Vec<NodeId>, Vec<NodeId>) {
    let mut own = Sketch::new();
    let mut made = vec![own.input("x", 7)];
    for &(operator, a, b, bytes) in calls {
        let inputs = [made[a % made.len()], made[b % made.len()]];
        let name = OPERATORS[operator];
        let count = if matches!(operator, 0 | 2) { 2 } else { 1 };
        let node = own.call(name, &inputs[..count], bytes);
        made.push(node);
    }
    let tangent = own.tangent();
    let mut grad = tangent;
    let mut read = Vec::new();
    for &at in demanded {
        let value = made[at % made.len()];
        read.push(value);
        grad = own.call("mul.Tensor", &[grad, value], 7);
    }
    own.returns(&[made[made.len() - 1], grad]);
    (own, made, read)
}

/// The fewest bytes to save, by trying all sets of nodes to recompute.
fn tried(own: &Sketch, made: &[NodeId], read: &[NodeId]) -> u64 {
    let graph = &own.graph;
    let may_again = |node: NodeId| {
        let class = class_of(graph.node(node).target_name());
        let read = graph.node(node).args().iter().filter_map(Arg::as_node);
        let read: u64 = read.map(|n| own.values.get(n).bytes).sum();
        let bytes = own.values.get(node).bytes;
        let random = graph.node(node).target_name().contains("rand_like");
        let small = class != Class::None && bytes * 4 < read;
        graph.node(node).op() == Op::CallFunction && class != Class::Long && !random && !small
    };
    let mut best = u64::MAX;
    for again in 0..1_u32 << made.len() {
        let is_again = |node: NodeId| {
            let at = made.iter().position(|&own| own == node).unwrap();
            again >> at & 1 == 1
        };
        if made.iter().any(|&node| is_again(node) && !may_again(node)) {
            continue;
        }
        let mut needed: Vec<NodeId> = read.to_vec();
        for &node in made.iter().filter(|&&node| is_again(node)) {
            needed.extend(graph.inputs(node));
        }
        needed.retain(|&node| !is_again(node));
        needed.sort_unstable();
        needed.dedup();
        best = best.min(needed.iter().map(|&node| own.values.get(node).bytes).sum());
    }
    best
}

proptest! {
    #[test]
    fn the_fewest_bytes_are_saved(
        calls in prop::collection::vec((0..5_usize, 0..9_usize, 0..9_usize, 1..40_u64), 1..9),
        demanded in prop::collection::vec(0..10_usize, 1..4),
    ) {
        let (own, made, read) = random(&calls, &demanded);
        let parts = own.parted(1).unwrap();
        let mut ahead = vec![made[made.len() - 1]];
        let mut at = 0;
        while at < ahead.len() {
            ahead.extend(own.graph.inputs(ahead[at]));
            at += 1;
        }
        // The trial merges nothing, and computes nothing first in the backward pass.
        if parts.merged.is_empty() && made.iter().all(|node| ahead.contains(node)) {
            prop_assert_eq!(parts.saved_bytes, tried(&own, &made, &read));
        }
        check(&own, &parts, &ahead);
    }
}

/// Checks that both graphs read only available values, and that no random call runs twice.
fn check(own: &Sketch, parts: &Partition, ahead: &[NodeId]) {
    let by: std::collections::HashMap<NodeId, NodeId> = parts.merged.iter().copied().collect();
    let placeholders = own
        .graph
        .nodes()
        .filter(|&n| own.graph.node(n).op() == Op::Placeholder);
    let (tangents, inputs): (Vec<NodeId>, Vec<NodeId>) =
        placeholders.partition(|&node| own.values.get(node).role == Role::Tangent);
    let saved = parts.saved.iter().chain(&parts.saved_numbers).copied();
    let mut there: Vec<NodeId> = inputs;
    let runs = |there: &mut Vec<NodeId>, nodes: &[NodeId]| {
        for &node in nodes {
            for input in own.graph.inputs(node) {
                let input = by.get(&input).copied().unwrap_or(input);
                assert!(there.contains(&input), "{node} reads {input}");
            }
            assert!(!there.contains(&node), "{node} runs twice");
            there.push(node);
        }
    };
    runs(&mut there, &parts.forward);
    assert!(saved.clone().all(|node| there.contains(&node)));
    let mut there: Vec<NodeId> = saved.chain(tangents).collect();
    runs(&mut there, &parts.backward);
    for &node in &parts.recomputed {
        let name = own.graph.node(node).target_name();
        // Products that the program itself computes again in the backward pass are allowed.
        let is_twice = by.values().any(|&kept| kept == node) || !ahead.contains(&node);
        let is_product = name.contains("mm.") && !is_twice;
        assert!(!name.contains("rand") && !is_product, "{name} runs twice");
    }
}
