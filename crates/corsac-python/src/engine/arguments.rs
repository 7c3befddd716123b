//! Arguments of calls, and the calls that a program is for.

use corsac_engine::DType;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};
use smallvec::SmallVec;

use super::tensors::{Described, Exchange};
use crate::capture::is_same;

/// One argument of a call.
pub(super) enum Argument<'py> {
    Tensor,
    Number(i64),
    /// Neither a tensor of PyTorch's own classes nor an integer.
    Other(Bound<'py, PyAny>),
}

/// The arguments of a call, positional ones first.
pub(super) struct Arguments<'py> {
    pub(super) all: SmallVec<[Argument<'py>; 4]>,
    /// The names of keyword arguments, which come last.
    names: SmallVec<[Bound<'py, PyAny>; 4]>,
    /// The tensors among them, in order.
    pub(super) tensors: SmallVec<[Bound<'py, PyAny>; 4]>,
}

impl<'py> Arguments<'py> {
    pub(super) fn of(
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
        exchange: &Exchange,
    ) -> Self {
        let mut own = Self {
            all: SmallVec::new(),
            names: SmallVec::new(),
            tensors: SmallVec::new(),
        };
        for argument in arguments.iter() {
            own.push(argument, exchange);
        }
        for (name, argument) in keywords.into_iter().flatten() {
            own.names.push(name);
            own.push(argument, exchange);
        }
        own
    }

    fn push(&mut self, argument: Bound<'py, PyAny>, exchange: &Exchange) {
        if exchange.is_tensor(&argument) {
            self.tensors.push(argument);
            self.all.push(Argument::Tensor);
            return;
        }
        let number = argument.cast_exact::<PyInt>().ok();
        let number = number.and_then(|number| number.extract().ok());
        self.all.push(match number {
            Some(number) => Argument::Number(number),
            None => Argument::Other(argument),
        });
    }

    /// Whether some are neither tensors nor integers.
    pub(super) fn has_others(&self) -> bool {
        (self.all.iter()).any(|own| matches!(own, Argument::Other(_)))
    }

    /// The tensors, each once, and the index of each argument's tensor among them.
    pub(super) fn distinct(&self) -> (SmallVec<[Bound<'py, PyAny>; 4]>, SmallVec<[usize; 4]>) {
        let mut distinct = SmallVec::new();
        let numbers = (self.tensors.iter())
            .map(|own| number_of(&mut distinct, own))
            .collect();
        (distinct, numbers)
    }

    /// Whether keyword arguments have these names, in this order.
    fn are_named(&self, names: &[Py<PyAny>]) -> bool {
        self.names.len() == names.len()
            && (self.names.iter().zip(names)).all(|(own, then)| is_name(own, then))
    }
}

/// The index of a tensor in `distinct`, to which it is added if it is missing.
pub(super) fn number_of<'py>(
    distinct: &mut SmallVec<[Bound<'py, PyAny>; 4]>,
    tensor: &Bound<'py, PyAny>,
) -> usize {
    let known = distinct.iter().position(|own| own.is(tensor));
    known.unwrap_or_else(|| {
        distinct.push(tensor.clone());
        distinct.len() - 1
    })
}

/// Whether two names are equal; runs no Python code.
fn is_name(own: &Bound<'_, PyAny>, then: &Py<PyAny>) -> bool {
    own.is(then)
        || (own.is_exact_instance_of::<PyString>() && own.eq(then.bind(own.py())).unwrap_or(false))
}

/// An argument of the calls that a program is for.
enum Expected {
    Tensor,
    Number(i64),
    /// This constant, or this object.
    Same(Py<PyAny>),
    /// A container or an object whose structure is guarded.
    Structure,
}

/// Expected arguments of the calls that a program is for, apart from types and sizes of tensors.
pub(super) struct Signature {
    expected: Vec<Expected>,
    names: Vec<Py<PyAny>>,
    /// Indices of the distinct tensors, if each may be passed several times.
    numbers: Option<SmallVec<[usize; 4]>>,
}

impl Signature {
    /// The signature of calls with arguments like these; `None` if a name is no ordinary string.
    ///
    /// `structures` are the arguments that may be other objects in each call. If `distinct`,
    /// repeated tensors have to be repeated in the same places as here.
    pub(super) fn new(
        arguments: &Arguments<'_>,
        structures: &[Bound<'_, PyAny>],
        distinct: bool,
    ) -> Option<Self> {
        let mut expected = Vec::with_capacity(arguments.all.len());
        for argument in &arguments.all {
            expected.push(match argument {
                Argument::Tensor => Expected::Tensor,
                Argument::Number(number) => Expected::Number(*number),
                Argument::Other(own) if structures.iter().any(|held| held.is(own)) => {
                    Expected::Structure
                }
                Argument::Other(own) => Expected::Same(own.clone().unbind()),
            });
        }
        let mut names = Vec::with_capacity(arguments.names.len());
        for name in &arguments.names {
            if !name.is_exact_instance_of::<PyString>() {
                return None;
            }
            names.push(name.clone().unbind());
        }
        Some(Self {
            expected,
            names,
            numbers: distinct.then(|| arguments.distinct().1),
        })
    }

    /// Whether a call may have this signature: everything but constants and objects is compared.
    pub(super) fn may_be(&self, arguments: &Arguments<'_>) -> bool {
        self.expected.len() == arguments.all.len()
            && self
                .expected
                .iter()
                .zip(&arguments.all)
                .all(|pair| match pair {
                    (Expected::Tensor, Argument::Tensor) => true,
                    (Expected::Number(then), Argument::Number(now)) => now == then,
                    (Expected::Same(_) | Expected::Structure, Argument::Other(_)) => true,
                    _ => false,
                })
            && arguments.are_named(&self.names)
    }

    /// Whether constants and objects are the expected ones, for arguments that
    /// [`may_be`](Self::may_be) accepts.
    pub(super) fn has_same(&self, arguments: &Arguments<'_>) -> bool {
        self.expected
            .iter()
            .zip(&arguments.all)
            .all(|pair| match pair {
                (Expected::Same(then), Argument::Other(now)) => is_same(now, then.bind(now.py())),
                _ => true,
            })
    }

    /// Whether a tensor is passed several times.
    pub(super) fn repeats(&self) -> bool {
        let numbers = self.numbers.iter().flatten();
        numbers.enumerate().any(|(at, number)| at != *number)
    }

    /// The tensors that a program takes of these arguments; `None` if tensors are repeated in other
    /// places.
    pub(super) fn tensors<'py>(
        &self,
        arguments: &Arguments<'py>,
    ) -> Option<SmallVec<[Bound<'py, PyAny>; 4]>> {
        let Some(expected) = &self.numbers else {
            return Some(arguments.tensors.clone());
        };
        let (distinct, numbers) = arguments.distinct();
        (numbers == *expected).then_some(distinct)
    }

    /// The arguments that are compared by their structure.
    pub(super) fn structures<'py>(&self, arguments: &Arguments<'py>) -> Vec<Bound<'py, PyAny>> {
        let pairs = self.expected.iter().zip(&arguments.all);
        let held = pairs.filter_map(|pair| match pair {
            (Expected::Structure, Argument::Other(own)) => Some(own.clone()),
            _ => None,
        });
        held.collect()
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for own in &self.expected {
            if let Expected::Same(own) = own {
                visit.call(own)?;
            }
        }
        self.names.iter().try_for_each(|name| visit.call(name))
    }
}

/// Calls that PyTorch runs, as far as they are distinguished.
#[derive(PartialEq)]
pub(super) struct Outline {
    arguments: Vec<OutlineArgument>,
    /// The number of keyword arguments.
    named: usize,
}

#[derive(PartialEq)]
enum OutlineArgument {
    Tensor(DType, SmallVec<[i64; 4]>),
    Number(i64),
    /// The address of its class.
    Other(usize),
}

fn class_of(own: &Bound<'_, PyAny>) -> usize {
    own.get_type().as_ptr() as usize
}

impl Outline {
    /// The outline of a call; `None` if a tensor is not of a kind that programs support.
    pub(super) fn of(arguments: &Arguments<'_>, exchange: &Exchange) -> Option<Self> {
        let mut tensors = arguments.tensors.iter();
        let mut outlines = Vec::with_capacity(arguments.all.len());
        for argument in &arguments.all {
            outlines.push(match argument {
                Argument::Tensor => {
                    let described = exchange.described_as_stored(tensors.next()?)?;
                    let (dtype, shape) = described.outline()?;
                    OutlineArgument::Tensor(dtype, shape.into())
                }
                Argument::Number(number) => OutlineArgument::Number(*number),
                Argument::Other(own) => OutlineArgument::Other(class_of(own)),
            });
        }
        Some(Self {
            arguments: outlines,
            named: arguments.names.len(),
        })
    }

    /// Whether a call has this outline.
    pub(super) fn is_of(&self, arguments: &Arguments<'_>, described: &[Described<'_>]) -> bool {
        let mut tensors = described.iter();
        self.named == arguments.names.len()
            && self.arguments.len() == arguments.all.len()
            && self
                .arguments
                .iter()
                .zip(&arguments.all)
                .all(|pair| match pair {
                    (OutlineArgument::Tensor(dtype, shape), Argument::Tensor) => {
                        tensors.next().and_then(Described::outline) == Some((*dtype, shape))
                    }
                    (OutlineArgument::Number(then), Argument::Number(now)) => now == then,
                    (OutlineArgument::Other(then), Argument::Other(now)) => *then == class_of(now),
                    _ => false,
                })
    }
}
