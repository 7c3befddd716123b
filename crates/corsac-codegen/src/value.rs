//! Arguments as Python expressions.

use std::fmt::Write;

use corsac_ir::{Arg, Graph, Symbol, literal};

use crate::plan::Plan;

/// Escape sequences of a terminal.
#[derive(Clone, Copy)]
pub(crate) enum Color {
    Blue,
    Dim,
}

impl Color {
    const RESET: &str = "\x1b[0m";

    fn code(self) -> &'static str {
        match self {
            Self::Blue => "\x1b[34m",
            Self::Dim => "\x1b[2m",
        }
    }
}

/// The context of an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Between commas, or as an operand that no sign can be confused with.
    Free,
    /// Left of `**`, which binds tighter than a sign.
    Base,
    /// Left of a dot: `1.real` is no expression.
    Receiver,
}

/// Writes arguments.
#[derive(Clone, Copy)]
pub(crate) struct Values<'p, 'g> {
    plan: &'p Plan<'g>,
    colored: bool,
}

// Writing to a `String` cannot fail, so results of `write!` are dropped in this file.
impl<'p, 'g> Values<'p, 'g> {
    pub(crate) fn new(plan: &'p Plan<'g>, colored: bool) -> Self {
        Self { plan, colored }
    }

    /// The output of `write`, in a colour if colours are on.
    pub(crate) fn color(self, out: &mut String, color: Color, write: impl FnOnce(&mut String)) {
        if self.colored {
            out.push_str(color.code());
        }
        write(out);
        if self.colored {
            out.push_str(Color::RESET);
        }
    }

    /// Positional and keyword arguments, with commas between. Keywords that Python has no syntax
    /// for are passed in dictionaries.
    pub(crate) fn call(self, out: &mut String, args: &[Arg], kwargs: &[(Symbol, Arg)]) {
        self.list(out, args);
        for (index, (key, arg)) in kwargs.iter().enumerate() {
            if index > 0 || !args.is_empty() {
                out.push_str(", ");
            }
            self.keyword(out, *key, arg);
        }
    }

    pub(crate) fn keyword(self, out: &mut String, key: Symbol, arg: &Arg) {
        let key = self.graph().text(key);
        if crate::attribute::is_plain_identifier(key) {
            out.push_str(key);
            out.push_str(" = ");
            self.arg(out, arg);
        } else {
            out.push_str("**{");
            let _ = literal::write_str(out, key);
            out.push_str(": ");
            self.arg(out, arg);
            out.push('}');
        }
    }

    fn list(self, out: &mut String, args: &[Arg]) {
        for (index, arg) in args.iter().enumerate() {
            if index > 0 {
                out.push_str(", ");
            }
            self.arg(out, arg);
        }
    }

    /// One argument where it may have to be in parentheses.
    pub(crate) fn operand(self, out: &mut String, arg: &Arg, place: Place) {
        let in_parentheses = match (place, arg) {
            (Place::Free, _) => false,
            (Place::Receiver, Arg::Int(_) | Arg::BigInt(_)) => true,
            (_, Arg::Int(value)) => *value < 0,
            (_, Arg::BigInt(value)) => value.sign() == num_bigint::Sign::Minus,
            (_, Arg::Float(value)) => value.is_sign_negative() && !value.is_nan(),
            _ => false,
        };
        if in_parentheses {
            out.push('(');
        }
        self.arg(out, arg);
        if in_parentheses {
            out.push(')');
        }
    }

    /// One argument.
    pub(crate) fn arg(self, out: &mut String, arg: &Arg) {
        match arg {
            Arg::Node(id) => out.push_str(self.plan.name(*id)),
            Arg::None => self.word(out, "None"),
            Arg::Ellipsis => self.word(out, "Ellipsis"),
            Arg::Bool(value) => self.word(out, literal::bool_repr(*value)),
            Arg::Int(value) => self.color(out, Color::Blue, |out| {
                let _ = write!(out, "{value}");
            }),
            Arg::BigInt(value) => self.color(out, Color::Blue, |out| {
                let _ = literal::write_big_int(out, value);
            }),
            Arg::Float(value) => self.float(out, *value),
            Arg::Complex(parts) => self.complex(out, parts.0, parts.1),
            Arg::Str(symbol) => self.color(out, Color::Blue, |out| {
                let _ = literal::write_str(out, self.graph().text(*symbol));
            }),
            Arg::Bytes(bytes) => self.color(out, Color::Blue, |out| {
                let _ = literal::write_bytes(out, bytes);
            }),
            Arg::DType(dtype) => self.torch(out, dtype.name()),
            Arg::Layout(layout) => self.torch(out, layout.name()),
            Arg::MemoryFormat(format) => self.torch(out, format.name()),
            Arg::Device(device) => self.color(out, Color::Blue, |out| {
                let _ = literal::write_device(out, *device);
            }),
            Arg::Tuple(items) => self.tuple(out, items),
            Arg::List(items) => {
                out.push('[');
                self.list(out, items);
                out.push(']');
            }
            Arg::Slice(items) => {
                out.push_str("slice(");
                self.list(out, items);
                out.push(')');
            }
            Arg::Range(items) => self.color(out, Color::Blue, |out| {
                // A step of one is not shown.
                let shown: &[Arg] = match &**items {
                    [_, _, Arg::Int(1)] => &items[..2],
                    _ => items,
                };
                out.push_str("range(");
                self.uncolored().list(out, shown);
                out.push(')');
            }),
            Arg::Dict(dict) => self.color(out, Color::Blue, |out| {
                out.push('{');
                for (index, (key, value)) in dict.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    self.uncolored().arg(out, key);
                    out.push_str(": ");
                    self.uncolored().arg(out, value);
                }
                out.push('}');
            }),
            Arg::NamedTuple(named) => {
                out.push_str(self.plan.class(named.0));
                self.uncolored().tuple(out, &named.1);
            }
            Arg::Opaque(external) => out.push_str(self.plan.value(*external)),
        }
    }

    fn graph(self) -> &'g Graph {
        self.plan.graph
    }

    fn uncolored(self) -> Self {
        Self {
            colored: false,
            ..self
        }
    }

    fn word(self, out: &mut String, word: &str) {
        self.color(out, Color::Blue, |out| out.push_str(word));
    }

    fn torch(self, out: &mut String, name: &str) {
        self.color(out, Color::Blue, |out| {
            out.push_str("torch.");
            out.push_str(name);
        });
    }

    fn float(self, out: &mut String, value: f64) {
        self.color(out, Color::Blue, |out| {
            let _ = literal::write_float(out, value);
        });
    }

    /// `repr` where it reads back as the same number, a call otherwise.
    fn complex(self, out: &mut String, real: f64, imag: f64) {
        let reads_back = real != 0.0 && imag != 0.0 && real.is_finite() && imag.is_finite();
        if reads_back {
            self.color(out, Color::Blue, |out| {
                let _ = literal::write_complex(out, real, imag);
            });
        } else {
            out.push_str("complex(");
            self.float(out, real);
            out.push_str(", ");
            self.float(out, imag);
            out.push(')');
        }
    }

    fn tuple(self, out: &mut String, items: &[Arg]) {
        out.push('(');
        self.list(out, items);
        if items.len() == 1 {
            out.push(',');
        }
        out.push(')');
    }
}
