//! Random programs have the same results, writes and random numbers before and after equality
//! saturation, and the sums of costs never grow.

use corsac_ir::{DType, EntityId, Graph};
use corsac_ops::Unhosted;
use corsac_passes::rules::{Rule, parse};
use corsac_passes::saturate::{CostTable, Directions, Options, saturate};
use corsac_passes::{Budget, TensorFact, TensorFacts};
use proptest::prelude::*;

use crate::interpreter::{Value, run_watched};
use crate::{Step, build, listing, observe, start};

/// Laws of numbers that wrap, some of which make programs larger before they make them smaller.
/// Conditions on shapes exclude lists: a list that is added to a number is no tensor, though the
/// sum is one here.
const LAWS: &str = "
double_negation: neg(neg(?x)) => ?x
neg_of_sum:   neg(add(?x, ?y)) <=> add(neg(?x), neg(?y))  if same_shape(?x, ?y)
add_assoc:    add(add(?x, ?y), ?z) <=> add(?x, add(?y, ?z))  if same_shape(?x, ?y) and same_shape(?y, ?z)
mul_assoc:    mul(mul(?x, ?y), ?z) <=> mul(?x, mul(?y, ?z))  if same_shape(?x, ?y) and same_shape(?y, ?z)
distribute:   add(mul(?x, ?z), mul(?y, ?z)) <=> mul(add(?x, ?y), ?z)  if same_shape(?x, ?y) and same_shape(?y, ?z)
neg_of_mul:   neg(mul(?x, ?y)) <=> mul(neg(?x), ?y)  if same_shape(?x, ?y)
mul_one:      mul(?x, 1) => ?x  if same_shape(?x, result)
add_zero:     add(?x, 0) => ?x  if same_shape(?x, result)
clone_twice:  clone(clone(?x)) => torch.clone(?x)
clone_of_neg: clone(neg(?x)) => torch.neg(?x)
";

fn laws() -> Vec<Rule> {
    parse(LAWS).unwrap()
}

/// Element types and lengths, found by a run.
fn facts(graph: &Graph) -> TensorFacts {
    let ([x, y, ..], mut world) = start(false);
    let mut facts = TensorFacts::new();
    let inputs = [Value::Tensor(x), Value::Tensor(y)];
    run_watched(graph, &inputs, &mut world, &mut |node, value| {
        if let Value::Tensor(tensor) = value {
            let fact = TensorFact {
                shape: Some(vec![tensor.items().len() as i64]),
                dtype: Some(DType::Int64),
                strides: None,
            };
            facts.set(node, fact);
        }
    });
    facts
}

/// Costs that differ from operator to operator.
fn costs(seed: u8) -> CostTable {
    let names = ["neg", "add", "mul", "clone", "view"];
    let cost = |at: u8| f64::from(1 + (seed.wrapping_mul(31).wrapping_add(at * 7)) % 9);
    let by_name = names.iter().zip(0..);
    CostTable {
        by_name: by_name
            .map(|(name, at)| ((*name).to_owned(), cost(at)))
            .collect(),
        default: 2.0,
    }
}

fn options() -> Options {
    Options {
        max_nodes: 300,
        max_time: None,
        iterations: 6,
        ..Options::default()
    }
}

/// A call that only computes: a sum, a product, a negation, a copy, rarely a view.
fn pure_step() -> impl Strategy<Value = Step> {
    let value = 0..9_usize;
    let pick = 0..8_usize;
    let sum = (value.clone(), pick.clone(), 0..2_usize, 0..4_usize)
        .prop_map(|(a, b, name, c)| (4_u8, a, 3 * b + name, c));
    let product = (value.clone(), pick, 0..4_usize).prop_map(|(a, b, c)| (2_u8, a, 3 * b + 2, c));
    let unary = prop_oneof![3 => Just(11_u8), 1 => Just(10_u8)];
    let unary = (unary, value.clone()).prop_map(|(kind, a)| (kind, a, 0, 0));
    let view = value.prop_map(|a| (0_u8, a, 0, 3));
    prop_oneof![4 => sum, 3 => product, 4 => unary, 1 => view]
}

type Program = (Vec<Step>, Vec<usize>);

/// Programs mostly of calls that only compute.
fn steps() -> impl Strategy<Value = Program> {
    let any = (any::<u8>(), 0..40_usize, 0..40_usize, 0..24_usize);
    let step = prop_oneof![1 => any, 6 => pure_step()];
    let steps = prop::collection::vec(step, 1..24);
    (steps, prop::collection::vec(0..28_usize, 1..4))
}

/// Programs without anything that writes: one region, free but for views.
fn pure_steps() -> impl Strategy<Value = Program> {
    let steps = prop::collection::vec(pure_step(), 1..20);
    (steps, prop::collection::vec(0..28_usize, 1..4))
}

fn check(
    steps: &[Step],
    returned: &[usize],
    seed: u8,
    budget: &mut Budget,
) -> Result<(), TestCaseError> {
    let before = build(steps, returned);
    let mut after = before.clone();
    let rules = Directions::of(&laws());
    let facts = facts(&before);
    let found = saturate(
        &mut after,
        &rules,
        &Unhosted,
        &facts,
        &mut costs(seed),
        options(),
        budget,
    );
    let (report, _) = found.unwrap();
    prop_assert!(report.cost_after <= report.cost_before, "{report:?}");
    after
        .verify()
        .map_err(|e| TestCaseError::fail(e.to_string()))?;
    for shared in [false, true] {
        prop_assert_eq!(
            observe(&before, shared),
            observe(&after, shared),
            "{}\nbecame\n{}",
            listing(&before),
            listing(&after)
        );
    }
    // A second run has the same result.
    let mut again = before.clone();
    let mut same = budget.limit().map_or_else(Budget::unlimited, Budget::of);
    let options = options();
    let found = saturate(
        &mut again,
        &rules,
        &Unhosted,
        &facts,
        &mut costs(seed),
        options,
        &mut same,
    );
    prop_assert_eq!(found.unwrap().0, report);
    prop_assert_eq!(listing(&again), listing(&after));
    prop_assert!(
        after
            .nodes()
            .all(|node| after.inputs(node).all(|i| after.is_before(i, node)))
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn saturation_keeps_what_is_seen((steps, returned) in steps(), seed in any::<u8>()) {
        check(&steps, &returned, seed, &mut Budget::unlimited())?;
    }

    #[test]
    fn saturation_keeps_what_pure_programs_compute(
        (steps, returned) in pure_steps(),
        seed in any::<u8>(),
    ) {
        check(&steps, &returned, seed, &mut Budget::unlimited())?;
    }

    #[test]
    fn saturation_with_little_budget_keeps_what_is_seen(
        (steps, returned) in pure_steps(),
        seed in any::<u8>(),
        limit in 0..4_u64,
    ) {
        let mut budget = Budget::of(limit);
        check(&steps, &returned, seed, &mut budget)?;
        prop_assert!(budget.spent() <= limit);
    }
}

/// The random programs are useful: there are improvements to find in them.
#[test]
fn random_programs_become_cheaper() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut cheaper, mut replaced) = (0, 0);
    for seed in 0..250 {
        let (steps, returned) = pure_steps().new_tree(&mut runner).unwrap().current();
        let mut graph = build(&steps, &returned);
        let facts = facts(&graph);
        let (report, applied) = saturate(
            &mut graph,
            &Directions::of(&laws()),
            &Unhosted,
            &facts,
            &mut costs(seed),
            options(),
            &mut Budget::unlimited(),
        )
        .unwrap();
        cheaper += usize::from(report.cost_after < report.cost_before);
        replaced += applied.added.len();
        assert!(
            applied
                .added
                .iter()
                .all(|a| a.node.index() < graph.id_bound())
        );
    }
    assert!(cheaper > 125, "{cheaper}");
    assert!(replaced > 25, "{replaced}");
}
