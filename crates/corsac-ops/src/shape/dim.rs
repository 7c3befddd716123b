//! Sizes: known integers, and expressions over symbols such as a batch size.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

use smallvec::SmallVec;

/// The least value that a symbol is taken to have.
///
/// A size of 0 or 1 behaves differently from all others (it broadcasts, its stride is free), so
/// that no single result would hold for it. `torch.export` has the same limit.
pub const LEAST_SYMBOL: i64 = 2;

/// A size, stride or other integer that follows from sizes.
///
/// Expressions are kept as polynomials with integer coefficients over symbols and floor divisions,
/// in one normal form: expressions that are equal by the laws of sums and products compare equal. A
/// remainder is `a - b * (a // b)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number.
    Known(i64),
    /// An expression that is no number.
    Symbolic(Arc<Polynomial>),
}

/// A sum of products of atoms, with at least one product.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Polynomial {
    /// Products with their coefficients, none of them zero, in order.
    terms: Vec<(Product, i64)>,
    constant: i64,
}

/// Atoms in order, repeated for powers; not empty.
type Product = SmallVec<[Atom; 2]>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(Arc<str>),
    FloorDiv(Box<(Dim, Dim)>),
    Max(Box<(Dim, Dim)>),
}

impl Dim {
    /// The number one.
    pub const ONE: Self = Self::Known(1);
    /// The number zero.
    pub const ZERO: Self = Self::Known(0);

    /// The symbol called `name`, which stands for any number from [`LEAST_SYMBOL`].
    #[must_use]
    pub fn symbol(name: &str) -> Self {
        Self::atom(Atom::Symbol(name.into()))
    }

    fn atom(atom: Atom) -> Self {
        Self::Symbolic(Arc::new(Polynomial {
            terms: vec![(SmallVec::from_iter([atom]), 1)],
            constant: 0,
        }))
    }

    /// The number, if it is one.
    #[must_use]
    pub fn known(&self) -> Option<i64> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Symbolic(_) => None,
        }
    }

    /// Whether it is this number.
    #[must_use]
    pub fn is(&self, value: i64) -> bool {
        matches!(self, Self::Known(known) if *known == value)
    }

    fn constant(&self) -> i64 {
        match self {
            Self::Known(value) => *value,
            Self::Symbolic(sum) => sum.constant,
        }
    }

    fn terms(&self) -> &[(Product, i64)] {
        match self {
            Self::Known(_) => &[],
            Self::Symbolic(sum) => &sum.terms,
        }
    }

    fn from_terms(terms: BTreeMap<Product, i64>, constant: i64) -> Self {
        let terms: Vec<_> = terms.into_iter().filter(|(_, c)| *c != 0).collect();
        if terms.is_empty() {
            return Self::Known(constant);
        }
        Self::Symbolic(Arc::new(Polynomial { terms, constant }))
    }

    /// The least value that it can take; `i64::MIN` where none is known.
    #[must_use]
    pub fn lower_bound(&self) -> i64 {
        let mut bound = self.constant();
        for (product, coefficient) in self.terms() {
            let mut least = *coefficient;
            for atom in product {
                let atom = atom.lower_bound();
                if least < 0 || atom < 0 {
                    return i64::MIN;
                }
                least = least.saturating_mul(atom);
            }
            bound = bound.saturating_add(least);
        }
        bound
    }

    /// Whether the two are equal, where that is known for all values of the symbols.
    #[must_use]
    pub fn equals(&self, other: &Self) -> Option<bool> {
        if let (Self::Known(a), Self::Known(b)) = (self, other) {
            return Some(a == b);
        }
        if self == other {
            return Some(true);
        }
        let difference = self.clone() - other.clone();
        match difference {
            Self::Known(difference) => Some(difference == 0),
            Self::Symbolic(_) if difference.lower_bound() > 0 => Some(false),
            Self::Symbolic(_) if (-difference).lower_bound() > 0 => Some(false),
            Self::Symbolic(_) => None,
        }
    }

    /// Whether `self` is less than `other`, where that is known.
    #[must_use]
    pub fn less_than(&self, other: &Self) -> Option<bool> {
        if let (Self::Known(a), Self::Known(b)) = (self, other) {
            return Some(a < b);
        }
        let difference = other.clone() - self.clone();
        if difference.lower_bound() > 0 {
            return Some(true);
        }
        ((-difference).lower_bound() >= 0).then_some(false)
    }

    /// `self // by`, rounded down; `None` for a division by zero.
    #[must_use]
    pub fn floor_div(&self, by: &Self) -> Option<Self> {
        match (self, by) {
            (_, Self::Known(0)) => None,
            (_, Self::Known(1)) => Some(self.clone()),
            (Self::Known(a), Self::Known(b)) => {
                let quotient = a.wrapping_div(*b);
                let rounds_up = a.wrapping_rem(*b) != 0 && (*a < 0) != (*b < 0);
                Some(Self::Known(quotient - i64::from(rounds_up)))
            }
            (_, Self::Known(b)) if *b > 0 => Some(self.floor_div_by_known(*b)),
            _ => Some(self.exact_div(by).unwrap_or_else(|| {
                Self::atom(Atom::FloorDiv(Box::new((self.clone(), by.clone()))))
            })),
        }
    }

    fn floor_div_by_known(&self, by: i64) -> Self {
        // floor((by * q + r) / by) = q + floor(r / by)
        let mut whole = BTreeMap::new();
        let mut rest = BTreeMap::new();
        for (product, coefficient) in self.terms() {
            let (quotient, remainder) = (coefficient.div_euclid(by), coefficient.rem_euclid(by));
            whole.insert(product.clone(), quotient);
            rest.insert(product.clone(), remainder);
        }
        let whole = Self::from_terms(whole, self.constant().div_euclid(by));
        let rest = Self::from_terms(rest, self.constant().rem_euclid(by));
        // floor((g * a + r) / (g * b)) = floor((a + floor(r / g)) / b)
        let common = rest.terms().iter().fold(by, |g, (_, c)| gcd(g, *c));
        let reduced = rest.terms().iter().map(|(p, c)| (p.clone(), c / common));
        let rest = Self::from_terms(reduced.collect(), rest.constant().div_euclid(common));
        let by = by / common;
        if by == 1 || rest.known().is_some() {
            return whole + Self::Known(rest.constant().div_euclid(by)) + rest.without_constant();
        }
        // floor((floor(a / b) + k) / c) = floor((a + k * b) / (b * c))
        if let [(product, 1)] = rest.terms()
            && let [Atom::FloorDiv(inner)] = product.as_slice()
            && let Self::Known(b @ 1..) = inner.1
        {
            let above = inner.0.clone() + Self::Known(rest.constant().saturating_mul(b));
            return whole + above.floor_div_by_known(b.saturating_mul(by));
        }
        whole + Self::atom(Atom::FloorDiv(Box::new((rest, Self::Known(by)))))
    }

    fn without_constant(self) -> Self {
        let constant = Self::Known(self.constant());
        self - constant
    }

    /// `self / by`, if that is a polynomial again.
    #[must_use]
    pub fn exact_div(&self, by: &Self) -> Option<Self> {
        if let (Self::Known(a), Self::Known(b)) = (self, by) {
            return (*b != 0 && a % b == 0).then(|| Self::Known(a / b));
        }
        let (divisor, factor) = by.leading();
        let mut rest = self.clone();
        let mut quotient = Self::ZERO;
        // Each step removes one term; a division that needs more steps than both have terms fails.
        for _ in 0..=2 * (self.terms().len() + by.terms().len() + 1) {
            if rest.is(0) {
                return Some(quotient);
            }
            let (product, coefficient) = rest.leading();
            if factor == 0 || coefficient % factor != 0 {
                return None;
            }
            let mut over: Product = product;
            for atom in &divisor {
                let at = over.iter().position(|a| a == atom)?;
                over.remove(at);
            }
            let mut term = BTreeMap::new();
            let term = if over.is_empty() {
                Self::Known(coefficient / factor)
            } else {
                term.insert(over, coefficient / factor);
                Self::from_terms(term, 0)
            };
            rest = rest - term.clone() * by.clone();
            quotient = quotient + term;
        }
        None
    }

    /// The term of the highest degree, the constant counting as of degree 0.
    fn leading(&self) -> (Product, i64) {
        let highest = self.terms().iter().max_by_key(|(p, _)| (p.len(), p));
        highest.map_or_else(
            || (Product::new(), self.constant()),
            |(product, coefficient)| (product.clone(), *coefficient),
        )
    }

    /// `self % by`, with the sign of `by`, as in Python; `None` for a division by zero.
    #[must_use]
    pub fn modulo(&self, by: &Self) -> Option<Self> {
        Some(self.clone() - self.floor_div(by)? * by.clone())
    }

    /// The larger of the two.
    #[must_use]
    pub fn larger(&self, other: &Self) -> Self {
        match self.less_than(other) {
            Some(true) => other.clone(),
            Some(false) => self.clone(),
            None if other.less_than(self) == Some(true) => self.clone(),
            None => {
                let (a, b) = if self <= other {
                    (self, other)
                } else {
                    (other, self)
                };
                Self::atom(Atom::Max(Box::new((a.clone(), b.clone()))))
            }
        }
    }

    /// The smaller of the two.
    #[must_use]
    pub fn smaller(&self, other: &Self) -> Self {
        -((-self.clone()).larger(&-other.clone()))
    }

    /// Its value where symbols have the values that `of` returns; `None` if one has none, or for a
    /// division by zero.
    pub fn evaluate(&self, of: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let mut sum = self.constant();
        for (product, coefficient) in self.terms() {
            let mut term = *coefficient;
            for atom in product {
                let value = match atom {
                    Atom::Symbol(name) => of(name)?,
                    Atom::FloorDiv(parts) => {
                        let a = Self::Known(parts.0.evaluate(of)?);
                        a.floor_div(&Self::Known(parts.1.evaluate(of)?))?.known()?
                    }
                    Atom::Max(parts) => parts.0.evaluate(of)?.max(parts.1.evaluate(of)?),
                };
                term = term.checked_mul(value)?;
            }
            sum = sum.checked_add(term)?;
        }
        Some(sum)
    }

    /// Calls `visit` with the name of each symbol in it, as often as it appears.
    pub fn for_each_symbol(&self, visit: &mut dyn FnMut(&str)) {
        for atom in self.terms().iter().flat_map(|(product, _)| product) {
            match atom {
                Atom::Symbol(name) => visit(name),
                Atom::FloorDiv(parts) | Atom::Max(parts) => {
                    parts.0.for_each_symbol(visit);
                    parts.1.for_each_symbol(visit);
                }
            }
        }
    }

    /// The product of `dims`: the number of elements of a shape.
    #[must_use]
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Self>) -> Self {
        dims.into_iter()
            .fold(Self::ONE, |product, dim| product * dim.clone())
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

impl Atom {
    fn lower_bound(&self) -> i64 {
        match self {
            Self::Symbol(_) => LEAST_SYMBOL,
            Self::FloorDiv(parts) => match (parts.0.lower_bound(), &parts.1) {
                (i64::MIN, _) => i64::MIN,
                (above, Dim::Known(by @ 1..)) => above.div_euclid(*by),
                (0.., by) if by.lower_bound() > 0 => 0,
                _ => i64::MIN,
            },
            Self::Max(parts) => parts.0.lower_bound().max(parts.1.lower_bound()),
        }
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Self::Known(value)
    }
}

impl Add for Dim {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.saturating_add(*b)),
            (Self::Known(0), _) => other,
            (_, Self::Known(0)) => self,
            _ => {
                let mut terms: BTreeMap<Product, i64> = self.terms().iter().cloned().collect();
                for (product, coefficient) in other.terms() {
                    let sum = terms.entry(product.clone()).or_insert(0);
                    *sum = sum.saturating_add(*coefficient);
                }
                Self::from_terms(terms, self.constant().saturating_add(other.constant()))
            }
        }
    }
}

impl Neg for Dim {
    type Output = Self;

    fn neg(self) -> Self {
        self * Self::Known(-1)
    }
}

impl Sub for Dim {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.saturating_sub(*b)),
            _ => self + -other,
        }
    }
}

impl Mul for Dim {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Known(a), Self::Known(b)) => return Self::Known(a.saturating_mul(*b)),
            (Self::Known(0), _) | (_, Self::Known(0)) => return Self::ZERO,
            (Self::Known(1), _) => return other,
            (_, Self::Known(1)) => return self,
            _ => {}
        }
        let mut terms = BTreeMap::new();
        let mut add = |product: Product, coefficient: i64| {
            let sum = terms.entry(product).or_insert(0_i64);
            *sum = sum.saturating_add(coefficient);
        };
        for (p, a) in self.terms() {
            for (q, b) in other.terms() {
                let mut product: Product = p.iter().chain(q).cloned().collect();
                product.sort();
                add(product, a.saturating_mul(*b));
            }
            add(p.clone(), a.saturating_mul(other.constant()));
        }
        for (q, b) in other.terms() {
            add(q.clone(), b.saturating_mul(self.constant()));
        }
        Self::from_terms(terms, self.constant().saturating_mul(other.constant()))
    }
}

impl fmt::Display for Dim {
    /// As Python writes it: `2*batch*(seq//4) + 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Symbolic(sum) = self else {
            return write!(f, "{}", self.constant());
        };
        for (i, (product, coefficient)) in sum.terms.iter().enumerate() {
            let magnitude = coefficient.unsigned_abs();
            match (i, *coefficient < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            if magnitude != 1 {
                write!(f, "{magnitude}*")?;
            }
            for (j, atom) in product.iter().enumerate() {
                if j > 0 {
                    f.write_str("*")?;
                }
                write!(f, "{atom}")?;
            }
        }
        match sum.constant {
            0 => Ok(()),
            constant if constant < 0 => write!(f, " - {}", constant.unsigned_abs()),
            constant => write!(f, " + {constant}"),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol(name) => f.write_str(name),
            Self::FloorDiv(parts) => write!(f, "(({})//({}))", parts.0, parts.1),
            Self::Max(parts) => write!(f, "max({}, {})", parts.0, parts.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n() -> Dim {
        Dim::symbol("n")
    }

    fn s() -> Dim {
        Dim::symbol("s")
    }

    fn k(value: i64) -> Dim {
        Dim::Known(value)
    }

    #[test]
    fn equal_expressions_compare_equal() {
        assert_eq!(n() + s(), s() + n());
        assert_eq!(
            (n() + k(1)) * (n() - k(1)),
            n() * n() + k(1) - k(1) * k(2) + k(0)
        );
        assert_eq!(n() * k(6) - n() * k(6), k(0));
        let halves = |d: Dim, by: i64| d.floor_div(&k(by)).unwrap();
        assert_eq!(halves(halves(n(), 2), 2), halves(n(), 4));
        assert_eq!(halves(n() * k(4) + k(3), 2), n() * k(2) + k(1));
        assert_eq!(halves(n() * k(6) + k(5), 4) - n(), halves(n() + k(2), 2));
        assert_eq!(
            (n() * s() * k(12)).exact_div(&(n() * k(3))),
            Some(s() * k(4))
        );
        assert_eq!((n() + k(1)).exact_div(&n()), None);
        let product = (n() + k(1)) * (s() + k(2));
        assert_eq!(product.exact_div(&(s() + k(2))), Some(n() + k(1)));
        assert_eq!((n() * k(4)).modulo(&k(2)), Some(k(0)));
    }

    #[test]
    fn floor_division_agrees_with_numbers() {
        for value in 2..40 {
            let of = |_: &str| Some(value);
            for (a, b, c) in [(1, 0, 2), (3, 1, 2), (6, 5, 4), (-2, 7, 3), (4, -9, 6)] {
                let expression = n() * k(a) + k(b);
                let quotient = expression.floor_div(&k(c)).unwrap();
                let twice = quotient.floor_div(&k(3)).unwrap();
                let expected = (a * value + b).div_euclid(c);
                assert_eq!(quotient.evaluate(&of), Some(expected), "{quotient}");
                assert_eq!(twice.evaluate(&of), Some(expected.div_euclid(3)), "{twice}");
                let rest = expression.modulo(&k(c)).unwrap();
                assert_eq!(rest.evaluate(&of), Some((a * value + b).rem_euclid(c)));
            }
        }
        assert_eq!(k(-7).floor_div(&k(2)), Some(k(-4)));
        assert_eq!(k(-7).modulo(&k(2)), Some(k(1)));
        assert_eq!(k(7).floor_div(&k(0)), None);
    }

    #[test]
    fn what_is_not_known_is_not_claimed() {
        assert_eq!(n().equals(&k(1)), Some(false));
        assert_eq!(n().equals(&k(4)), None);
        assert_eq!(n().equals(&(n() + k(1))), Some(false));
        assert_eq!(k(1).less_than(&n()), Some(true));
        assert_eq!(n().less_than(&s()), None);
        assert_eq!(n().larger(&k(1)), n());
        assert_eq!(n().larger(&k(8)).to_string(), "max(8, n)");
        assert_eq!(n().smaller(&k(8)).evaluate(&|_| Some(5)), Some(5));
    }

    #[test]
    fn expressions_print_as_python() {
        let half = n().floor_div(&k(2)).unwrap();
        assert_eq!((half * k(2) * s() - k(3)).to_string(), "2*s*((n)//(2)) - 3");
    }
}
