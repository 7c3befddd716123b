//! Random recipes and edits, for proptest.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};

use crate::edit::Edit;
use crate::recipe::{ArgRecipe, GraphRecipe, KeyRecipe, Leaf, NodeRecipe};

/// Strings: words, punctuation that the text forms use, anything.
fn strings() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_.]{1,8}",
        r#"[%@()\[\]{}<>,:='" a-z0-9.\-+\\]{0,12}"#,
        any::<String>(),
    ]
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        prop::num::f64::ANY,
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(-0.0),
        (-1000_i32..1000).prop_map(|i| f64::from(i) / 8.0),
    ]
}

/// Arguments without parts: every kind.
pub fn leaves() -> impl Strategy<Value = Leaf> {
    prop_oneof![
        Just(Leaf::None),
        Just(Leaf::Ellipsis),
        any::<bool>().prop_map(Leaf::Bool),
        prop_oneof![any::<i64>(), -3_i64..10].prop_map(Leaf::Int),
        (any::<bool>(), vec(any::<u8>(), 0..24)).prop_map(|(sign, b)| Leaf::Big(sign, b)),
        floats().prop_map(Leaf::Float),
        (floats(), floats()).prop_map(|(re, im)| Leaf::Complex(re, im)),
        strings().prop_map(Leaf::Str),
        vec(any::<u8>(), 0..6).prop_map(Leaf::Bytes),
        any::<u8>().prop_map(Leaf::Torch),
        (any::<u8>(), option::of(any::<u16>())).prop_map(|(k, i)| Leaf::Device(k, i)),
        (any::<i64>(), -5_i64..5, 1_i64..3).prop_map(|(a, b, c)| Leaf::Range(a, b, c)),
        any::<u8>().prop_map(Leaf::Opaque),
    ]
}

fn keys() -> impl Strategy<Value = KeyRecipe> {
    prop_oneof![
        leaves().prop_map(KeyRecipe::Leaf),
        vec(leaves(), 0..3).prop_map(KeyRecipe::Tuple),
    ]
}

/// Arguments: every kind, nested.
pub fn args() -> impl Strategy<Value = ArgRecipe> {
    let leaf = prop_oneof![
        3 => any::<u16>().prop_map(ArgRecipe::Node),
        2 => leaves().prop_map(ArgRecipe::Leaf),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let items = || vec(inner.clone(), 0..3);
        prop_oneof![
            items().prop_map(ArgRecipe::Tuple),
            items().prop_map(ArgRecipe::List),
            vec((keys(), inner.clone()), 0..3).prop_map(ArgRecipe::Dict),
            [inner.clone(), inner.clone(), inner.clone()]
                .prop_map(|parts| ArgRecipe::Slice(Box::new(parts))),
            (any::<u8>(), items()).prop_map(|(c, parts)| ArgRecipe::NamedTuple(c, parts)),
        ]
    })
}

/// Nodes of the five opcodes besides output.
pub fn nodes() -> impl Strategy<Value = NodeRecipe> {
    let call = (any::<u8>(), any::<u8>(), vec(args(), 0..4));
    let rest = (
        vec((any::<u8>(), args()), 0..3),
        option::weighted(0.2, any::<u8>()),
        option::weighted(0.3, any::<(bool, u8)>()),
        option::weighted(0.3, any::<u8>()),
    );
    (call, rest).prop_map(
        |((op, target, args), (kwargs, ty, source, scope))| NodeRecipe {
            op,
            target,
            args,
            kwargs,
            ty,
            source,
            scope,
        },
    )
}

/// Valid graphs of up to `len` nodes.
pub fn graphs(len: usize) -> impl Strategy<Value = GraphRecipe> {
    (vec(nodes(), 0..len), option::weighted(0.8, args()))
        .prop_map(|(nodes, output)| GraphRecipe { nodes, output })
}

/// Changes of a graph: every kind.
pub fn edits() -> impl Strategy<Value = Edit> {
    let at = || any::<u16>();
    prop_oneof![
        3 => (at(), any::<bool>(), nodes()).prop_map(|(a, b, n)| Edit::Insert(a, b, n)),
        3 => at().prop_map(Edit::Erase),
        1 => (at(), at()).prop_map(|(a, b)| Edit::MoveBefore(a, b)),
        1 => (at(), at()).prop_map(|(a, b)| Edit::MoveAfter(a, b)),
        2 => (at(), at()).prop_map(|(a, b)| Edit::ReplaceAllUses(a, b)),
        1 => (at(), at(), at()).prop_map(|(a, b, c)| Edit::ReplaceInput(a, b, c)),
        2 => (at(), vec(args(), 0..4)).prop_map(|(a, args)| Edit::SetArgs(a, args)),
        1 => (at(), any::<u8>(), args()).prop_map(|(a, k, arg)| Edit::SetKwarg(a, k, arg)),
        1 => (at(), nodes()).prop_map(|(a, node)| Edit::SetTarget(a, node)),
        1 => (at(), strings()).prop_map(|(a, name)| Edit::Rename(a, name)),
        1 => (at(), strings()).prop_map(|(a, name)| Edit::SetName(a, name)),
        1 => (at(), option::of(any::<u8>())).prop_map(|(a, ty)| Edit::SetType(a, ty)),
        1 => Just(Edit::Sort),
        1 => Just(Edit::Compact),
    ]
}
