//! Equality of literals by Python's `==` and `type() is type()`.

use num_bigint::BigInt;

use crate::arg::{Arg, Seq};
use crate::entity::ExternalId;
use crate::graph::Graph;

/// An argument and the graph that its symbols and ids belong to.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) arg: &'a Arg,
    pub(super) graph: &'a Graph,
}

/// Compares values that only the host understands.
pub(super) trait Externals<E> {
    /// Whether two host values of different graphs are equal and of one type.
    fn externals(
        &mut self,
        left: (&Graph, ExternalId),
        right: (&Graph, ExternalId),
    ) -> Result<bool, E>;
}

/// A number, as far as equality goes.
enum Number<'a> {
    Int(i64),
    Big(&'a BigInt),
    Float(f64),
    Complex(f64, f64),
}

impl<'a> Value<'a> {
    fn with(self, arg: &'a Arg) -> Self {
        Self { arg, ..self }
    }

    fn graph_is(self, other: Self) -> bool {
        std::ptr::eq(self.graph, other.graph)
    }

    /// `type(left) is type(right) and left == right`.
    pub(super) fn is_same_literal<E>(
        self,
        right: Self,
        host: &mut impl Externals<E>,
    ) -> Result<bool, E> {
        Ok(same_type(self.arg, right.arg) && self.equals(right, host)?)
    }

    /// `left == right`.
    pub(super) fn equals<E>(self, right: Self, host: &mut impl Externals<E>) -> Result<bool, E> {
        if let (Some(a), Some(b)) = (number(self.arg), number(right.arg)) {
            return Ok(equal_numbers(a, b));
        }
        Ok(match (self.arg, right.arg) {
            (Arg::None, Arg::None) | (Arg::Ellipsis, Arg::Ellipsis) => true,
            (Arg::Str(a), Arg::Str(b)) => self.graph.text(*a) == right.graph.text(*b),
            (Arg::Bytes(a), Arg::Bytes(b)) => a == b,
            (Arg::DType(a), Arg::DType(b)) => a == b,
            (Arg::Device(a), Arg::Device(b)) => a == b,
            (Arg::Layout(a), Arg::Layout(b)) => a == b,
            (Arg::MemoryFormat(a), Arg::MemoryFormat(b)) => a == b,
            (Arg::Node(a), Arg::Node(b)) => self.graph_is(right) && a == b,
            (Arg::Opaque(a), Arg::Opaque(b)) => {
                if self.graph_is(right) {
                    a == b
                } else {
                    host.externals((self.graph, *a), (right.graph, *b))?
                }
            }
            (Arg::List(a), Arg::List(b)) | (Arg::Slice(a), Arg::Slice(b)) => {
                self.equal_items(a, right, b, host)?
            }
            (Arg::Range(a), Arg::Range(b)) => match (range_values(a), range_values(b)) {
                (Some(a), Some(b)) => a == b,
                _ => self.equal_items(a, right, b, host)?,
            },
            (Arg::Dict(a), Arg::Dict(b)) => self.equal_entries(a, right, b, host)?,
            // A named tuple equals a plain one with the same items.
            (a, b) => match (tuple_items(a), tuple_items(b)) {
                (Some(a), Some(b)) => self.equal_items(a, right, b, host)?,
                _ => false,
            },
        })
    }

    fn equal_items<E>(
        self,
        left: &'a [Arg],
        other: Self,
        right: &'a [Arg],
        host: &mut impl Externals<E>,
    ) -> Result<bool, E> {
        if left.len() != right.len() {
            return Ok(false);
        }
        for (a, b) in left.iter().zip(right) {
            if !self.with(a).equals(other.with(b), host)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Dictionaries are equal in any order.
    fn equal_entries<E>(
        self,
        left: &'a [(Arg, Arg)],
        other: Self,
        right: &'a [(Arg, Arg)],
        host: &mut impl Externals<E>,
    ) -> Result<bool, E> {
        if left.len() != right.len() {
            return Ok(false);
        }
        for (at, (key, value)) in left.iter().enumerate() {
            // Usually the entries come in the same order.
            let mut found = None;
            for (k, v) in right[at..].iter().chain(&right[..at]) {
                if self.with(key).equals(other.with(k), host)? {
                    found = Some(v);
                    break;
                }
            }
            match found {
                Some(v) if self.with(value).equals(other.with(v), host)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The items of a tuple or list of Python, named tuples included.
pub(super) fn sequence_items(arg: &Arg) -> Option<&[Arg]> {
    match arg {
        Arg::List(items) => Some(items),
        other => tuple_items(other),
    }
}

fn tuple_items(arg: &Arg) -> Option<&[Arg]> {
    match arg {
        Arg::Tuple(items) => Some(items),
        Arg::NamedTuple(named) => Some(&named.1),
        _ => None,
    }
}

/// Whether both are of one Python type. Host values are taken to be: the host compares their types.
fn same_type(left: &Arg, right: &Arg) -> bool {
    match (left, right) {
        (Arg::Int(_) | Arg::BigInt(_), Arg::Int(_) | Arg::BigInt(_)) => true,
        (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
    }
}

fn number(arg: &Arg) -> Option<Number<'_>> {
    match arg {
        Arg::Bool(value) => Some(Number::Int(i64::from(*value))),
        Arg::Int(value) => Some(Number::Int(*value)),
        Arg::BigInt(value) => Some(Number::Big(value)),
        Arg::Float(value) => Some(Number::Float(*value)),
        Arg::Complex(value) => Some(Number::Complex(value.0, value.1)),
        _ => None,
    }
}

fn equal_numbers(left: Number<'_>, right: Number<'_>) -> bool {
    match (left, right) {
        (Number::Int(a), Number::Int(b)) => a == b,
        (Number::Big(a), Number::Big(b)) => a == b,
        // An integer that fits 64 bits is never kept as a big one.
        (Number::Int(_), Number::Big(_)) | (Number::Big(_), Number::Int(_)) => false,
        (Number::Float(a), Number::Float(b)) => a == b,
        (Number::Int(a), Number::Float(b)) | (Number::Float(b), Number::Int(a)) => {
            exact_integer(b).is_some_and(|b| b == BigInt::from(a))
        }
        (Number::Big(a), Number::Float(b)) | (Number::Float(b), Number::Big(a)) => {
            exact_integer(b).is_some_and(|b| b == *a)
        }
        (Number::Complex(re, im), Number::Complex(re2, im2)) => re == re2 && im == im2,
        (Number::Complex(re, im), real) | (real, Number::Complex(re, im)) => {
            im == 0.0 && equal_numbers(Number::Float(re), real)
        }
    }
}

/// The integer that `value` is, if it is one.
fn exact_integer(value: f64) -> Option<BigInt> {
    if !value.is_finite() || value.fract() != 0.0 {
        return None;
    }
    let bits = value.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).ok()?;
    if exponent == 0 {
        // Subnormal numbers have fractions: this is zero.
        return Some(BigInt::from(0));
    }
    let mantissa = BigInt::from(bits & ((1 << 52) - 1) | 1 << 52);
    let shift = exponent - 1075;
    let magnitude = if shift >= 0 {
        mantissa << shift
    } else {
        mantissa >> -shift
    };
    Some(if value < 0.0 { -magnitude } else { magnitude })
}

/// First value, step and length, as far as they determine the values that a range runs through.
fn range_values(range: &Seq) -> Option<(Option<i128>, Option<i128>, i128)> {
    let &[Arg::Int(start), Arg::Int(stop), Arg::Int(step)] = &**range else {
        return None;
    };
    let (start, stop, step) = (i128::from(start), i128::from(stop), i128::from(step));
    let span = if step > 0 { stop - start } else { start - stop };
    let stride = step.abs();
    if stride == 0 {
        return None;
    }
    let len = if span <= 0 {
        0
    } else {
        (span + stride - 1) / stride
    };
    Some(((len > 0).then_some(start), (len > 1).then_some(step), len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arg::Dict;

    struct Nothing;
    impl Externals<()> for Nothing {
        fn externals(
            &mut self,
            (_, left): (&Graph, ExternalId),
            (_, right): (&Graph, ExternalId),
        ) -> Result<bool, ()> {
            Ok(left == right)
        }
    }

    fn equal(left: &Arg, right: &Arg) -> (bool, bool) {
        let graph = &Graph::new();
        let (left, right) = (Value { arg: left, graph }, Value { arg: right, graph });
        (
            left.equals(right, &mut Nothing).unwrap(),
            left.is_same_literal(right, &mut Nothing).unwrap(),
        )
    }

    fn ints(items: &[i64]) -> Seq {
        Seq::new(items.iter().map(|&i| Arg::Int(i)).collect::<Vec<_>>()).unwrap()
    }

    /// Each row was evaluated by CPython: `a == b`, `type(a) is type(b) and a == b`.
    #[test]
    fn literals_are_equal_where_python_says_so() {
        let big = |text: &str| Arg::BigInt(Box::new(text.parse().unwrap()));
        let cases = [
            (Arg::Int(1), Arg::Bool(true), (true, false)),
            (Arg::Int(1), Arg::Float(1.0), (true, false)),
            (Arg::Int(0), Arg::Float(-0.0), (true, false)),
            (
                Arg::Int(9007199254740993),
                Arg::Float(9007199254740992.0),
                (false, false),
            ),
            (Arg::Int(-3), Arg::Float(-3.0), (true, false)),
            (Arg::Int(3), Arg::Float(3.5), (false, false)),
            (
                big("18446744073709551616"),
                Arg::Float(18446744073709551616.0),
                (true, false),
            ),
            (
                big("18446744073709551617"),
                Arg::Float(18446744073709551616.0),
                (false, false),
            ),
            (
                big("18446744073709551617"),
                big("18446744073709551617"),
                (true, true),
            ),
            (
                Arg::Complex(Box::new((2.0, 0.0))),
                Arg::Int(2),
                (true, false),
            ),
            (
                Arg::Complex(Box::new((2.0, 1.0))),
                Arg::Int(2),
                (false, false),
            ),
            (Arg::Float(f64::NAN), Arg::Float(f64::NAN), (false, false)),
            (
                Arg::Float(f64::INFINITY),
                Arg::Float(f64::INFINITY),
                (true, true),
            ),
            (
                Arg::List(ints(&[1])),
                Arg::Tuple(ints(&[1])),
                (false, false),
            ),
            (Arg::Tuple(ints(&[1])), Arg::Tuple(ints(&[1])), (true, true)),
            (
                Arg::Range(ints(&[0, 3, 2])),
                Arg::Range(ints(&[0, 4, 2])),
                (true, true),
            ),
            (
                Arg::Range(ints(&[0, 0, 1])),
                Arg::Range(ints(&[5, 2, 3])),
                (true, true),
            ),
            (
                Arg::Range(ints(&[0, 1, 1])),
                Arg::Range(ints(&[0, 2, 5])),
                (true, true),
            ),
            (
                Arg::Range(ints(&[0, 4, 1])),
                Arg::Range(ints(&[3, -1, -1])),
                (false, false),
            ),
            (
                Arg::Slice(ints(&[0, 3, 2])),
                Arg::Slice(ints(&[0, 4, 2])),
                (false, false),
            ),
            (Arg::None, Arg::Ellipsis, (false, false)),
        ];
        for (left, right, expected) in cases {
            assert_eq!(equal(&left, &right), expected, "{left:?} {right:?}");
            assert_eq!(equal(&right, &left), expected, "{right:?} {left:?}");
        }
    }

    #[test]
    fn dictionaries_are_equal_in_any_order() {
        let dict = |entries: &[(i64, f64)]| {
            let entries: Vec<_> = entries
                .iter()
                .map(|&(k, v)| (Arg::Int(k), Arg::Float(v)))
                .collect();
            Arg::Dict(Dict::new(entries).unwrap())
        };
        assert!(equal(&dict(&[(1, 1.0), (2, 2.0)]), &dict(&[(2, 2.0), (1, 1.0)])).1);
        assert!(!equal(&dict(&[(1, 1.0), (2, 2.0)]), &dict(&[(2, 1.0), (1, 2.0)])).0);
        assert!(!equal(&dict(&[(1, 1.0)]), &dict(&[])).0);
    }
}
