//! Rust's operators on proxies, recorded as the functions of Python's `operator` module.
//!
//! Of numbers, `i64` and `f64` can stand on the left: with one type for each kind of literal, the
//! compiler can infer the types of `2 - x`.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use super::{Proxy, Value, record};
use crate::op::Op;

macro_rules! binary_operators {
    ($($Trait:ident::$method:ident => $name:literal,)*) => {$(
        impl<V: Into<Value>> $Trait<V> for Proxy {
            type Output = Proxy;

            fn $method(self, other: V) -> Proxy {
                self.function($name, other)
            }
        }

        impl<V: Into<Value>> $Trait<V> for &Proxy {
            type Output = Proxy;

            fn $method(self, other: V) -> Proxy {
                self.function($name, other)
            }
        }

        binary_operators!(@number $Trait::$method => $name, i64, f64);
    )*};
    (@number $Trait:ident::$method:ident => $name:literal, $($number:ty),*) => {$(
        impl $Trait<Proxy> for $number {
            type Output = Proxy;

            fn $method(self, other: Proxy) -> Proxy {
                other.function_after($name, self)
            }
        }

        impl $Trait<&Proxy> for $number {
            type Output = Proxy;

            fn $method(self, other: &Proxy) -> Proxy {
                other.function_after($name, self)
            }
        }
    )*};
}

binary_operators! {
    Add::add => "operator.add",
    Sub::sub => "operator.sub",
    Mul::mul => "operator.mul",
    Div::div => "operator.truediv",
    Rem::rem => "operator.mod",
    BitAnd::bitand => "operator.and_",
    BitOr::bitor => "operator.or_",
    BitXor::bitxor => "operator.xor",
    Shl::shl => "operator.lshift",
    Shr::shr => "operator.rshift",
}

impl Neg for Proxy {
    type Output = Proxy;

    fn neg(self) -> Proxy {
        self.unary("operator.neg")
    }
}

impl Neg for &Proxy {
    type Output = Proxy;

    fn neg(self) -> Proxy {
        self.unary("operator.neg")
    }
}

impl Not for Proxy {
    type Output = Proxy;

    fn not(self) -> Proxy {
        self.unary("operator.invert")
    }
}

impl Not for &Proxy {
    type Output = Proxy;

    fn not(self) -> Proxy {
        self.unary("operator.invert")
    }
}

macro_rules! named_operators {
    ($($(#[$doc:meta])* $method:ident => $name:literal,)*) => {
        /// Operators without an overloadable sign in Rust.
        impl Proxy {
            $(
                $(#[$doc])*
                pub fn $method(&self, other: impl Into<Value>) -> Proxy {
                    self.function($name, other)
                }
            )*
        }
    };
}

named_operators! {
    /// `self > other`
    gt => "operator.gt",
    /// `self >= other`
    ge => "operator.ge",
    /// `self < other`
    lt => "operator.lt",
    /// `self <= other`
    le => "operator.le",
    /// `self == other`
    equals => "operator.eq",
    /// `self != other`
    differs => "operator.ne",
    /// `self ** other`
    pow => "operator.pow",
    /// `self // other`
    floor_div => "operator.floordiv",
    /// `self @ other`
    matmul => "operator.matmul",
}

impl Proxy {
    /// A call of the binary function `name` with another value and this.
    fn function_after(&self, name: &str, other: impl Into<Value>) -> Proxy {
        let args = vec![other.into(), Value::from(self)];
        record(&self.recorder, Op::CallFunction, name, args, [])
    }

    fn unary(&self, name: &str) -> Proxy {
        record(
            &self.recorder,
            Op::CallFunction,
            name,
            vec![Value::from(self)],
            [],
        )
    }
}
