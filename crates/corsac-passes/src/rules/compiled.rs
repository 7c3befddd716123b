//! Rules compiled for searching, many at once.

use corsac_ops::signature::Signature;
use rustc_hash::FxHashMap;

use super::rule::{Item, Key, Literal, Pattern, Var, is_commutative};

/// An operator that some rule of a set mentions.
pub(crate) type OperatorId = u32;

/// A pattern with operators by number.
#[derive(Clone, Debug)]
pub(crate) enum Matcher {
    Variable(Var),
    Literal(Literal),
    Call {
        operators: Vec<OperatorId>,
        arguments: Vec<(Key, Matcher)>,
        /// Whether the first two arguments are tried in both orders.
        commutative: bool,
    },
    Named(Var, Box<Matcher>),
    OfModule(Var, Box<Matcher>),
    Sequence(Vec<MatcherItem>),
    Tuple(Vec<MatcherItem>),
    Slice(Vec<MatcherItem>),
}

#[derive(Clone, Debug)]
pub(crate) enum MatcherItem {
    One(Matcher),
    Many(Var),
}

impl Matcher {
    /// The pattern without its name.
    pub(crate) fn unnamed(&self) -> &Self {
        match self {
            Self::Named(_, inner) | Self::OfModule(_, inner) => inner.unnamed(),
            other => other,
        }
    }
}

/// A rule with its patterns compiled.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) roots: Vec<Matcher>,
}

pub(crate) fn compile(pattern: &Pattern, operators: &mut FxHashMap<String, OperatorId>) -> Matcher {
    match pattern {
        Pattern::Variable(var) => Matcher::Variable(*var),
        Pattern::Literal(literal) => Matcher::Literal(literal.clone()),
        Pattern::Named(var, inner) => Matcher::Named(*var, Box::new(compile(inner, operators))),
        Pattern::OfModule(var, inner) => {
            Matcher::OfModule(*var, Box::new(compile(inner, operators)))
        }
        Pattern::Sequence(own) => Matcher::Sequence(items(own, operators)),
        Pattern::Tuple(own) => Matcher::Tuple(items(own, operators)),
        Pattern::Slice(parts) => {
            let parts = parts.iter();
            let parts = parts.map(|part| MatcherItem::One(compile(part, operators)));
            Matcher::Slice(parts.collect())
        }
        Pattern::Call {
            operators: names,
            arguments,
        } => {
            let two = arguments.len() == 2
                && (0..2).all(|place| arguments.iter().any(|(k, _)| *k == Key::Position(place)));
            let commutative = two && names.iter().all(|name| is_commutative(name));
            let arguments = arguments.iter();
            let arguments = arguments.map(|(key, p)| (key.clone(), compile(p, operators)));
            let arguments = arguments.collect();
            let mut id = |name: &String| {
                let next = operators.len() as OperatorId;
                *operators.entry(own_name(name)).or_insert(next)
            };
            Matcher::Call {
                operators: names.iter().map(&mut id).collect(),
                arguments,
                commutative,
            }
        }
    }
}

/// Shortens the names of module classes in `torch.nn`: `nn.Dropout`.
fn own_name(name: &str) -> String {
    let class = name.strip_prefix("torch.nn.");
    let is_class = |class: &&str| class.starts_with(|c: char| c.is_ascii_uppercase());
    match class.filter(is_class) {
        Some(class) => format!("nn.{class}"),
        None => name.to_owned(),
    }
}

fn items(items: &[Item], operators: &mut FxHashMap<String, OperatorId>) -> Vec<MatcherItem> {
    let compile = |item: &Item| match item {
        Item::One(pattern) => MatcherItem::One(compile(pattern, operators)),
        Item::Many(var) => MatcherItem::Many(*var),
    };
    items.iter().map(compile).collect()
}

/// The operator that a call has as its target, for a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    pub(crate) id: OperatorId,
    pub(crate) signature: Option<&'static Signature>,
    /// The signature of this spelling, where it passes arguments in another order.
    pub(crate) spelling: Option<&'static Signature>,
    /// Whether it is a class of modules, whose settings are arguments by keyword.
    pub(crate) is_module: bool,
}
