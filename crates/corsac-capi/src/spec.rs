//! Names, types and shapes of inputs, outputs and weights.

use std::ffi::{CStr, CString, c_char};

use corsac_engine::{DType, InputSpec, OutputSpec, Size, TensorSpec};

use crate::dtype::Dtype;
use crate::error::Error;

/// Name, dtype and shape of an input, an output or a weight of a model.
#[repr(C)]
#[derive(Debug)]
pub struct Spec {
    /// The name, in UTF-8.
    pub name: *const c_char,
    /// The type of the elements: a `corsac_dtype`.
    pub dtype: i32,
    /// Number of dimensions.
    pub rank: i32,
    /// The sizes, outermost dimension first; -1 for a size that differs between calls.
    pub shape: *const i64,
}

/// Specs for C, with the memory that they point to.
#[derive(Debug)]
pub(crate) struct Specs {
    all: Vec<Spec>,
    names: Vec<CString>,
    _shapes: Vec<Vec<i64>>,
}

/// A name, a type, and sizes, of which `None` differs between calls.
type Parts = (String, DType, Vec<Option<usize>>);

/// A name for C.
pub(crate) fn c_name(name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error::ZeroInName {
        name: name.to_owned(),
    })
}

impl Specs {
    pub(crate) fn of_tensors<'a>(
        specs: impl IntoIterator<Item = &'a TensorSpec>,
    ) -> Result<Self, Error> {
        let specs = specs.into_iter();
        Self::new(specs.map(|spec| {
            let shape = spec.shape.iter().map(|&size| Some(size));
            (spec.name.clone(), spec.dtype, shape.collect())
        }))
    }

    pub(crate) fn of_inputs(specs: &[InputSpec]) -> Result<Self, Error> {
        Self::new(specs.iter().map(|spec| {
            let shape = spec.shape.iter().map(Size::fixed);
            (spec.name.clone(), spec.dtype, shape.collect())
        }))
    }

    pub(crate) fn of_outputs(specs: &[OutputSpec]) -> Result<Self, Error> {
        Self::new(
            specs
                .iter()
                .map(|spec| (spec.name.clone(), spec.dtype, spec.fixed_sizes())),
        )
    }

    fn new(specs: impl IntoIterator<Item = Parts>) -> Result<Self, Error> {
        let (mut dtypes, mut names, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
        for (name, dtype, shape) in specs {
            let number = |size| i64::try_from(size).unwrap_or(i64::MAX);
            let sizes = shape.into_iter().map(|size| size.map_or(-1, number));
            shapes.push(sizes.collect::<Vec<i64>>());
            names.push(c_name(&name)?);
            dtypes.push(Dtype::of(dtype) as i32);
        }
        // The addresses are taken where names and shapes stay.
        let parts = dtypes.into_iter().zip(names.iter().zip(&shapes));
        let all = parts.map(|(dtype, (name, shape))| Spec {
            name: name.as_ptr(),
            dtype,
            rank: shape.len() as i32,
            shape: shape.as_ptr(),
        });
        Ok(Self {
            all: all.collect(),
            names,
            _shapes: shapes,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Spec> {
        self.all.get(number)
    }

    /// The number of the spec with this name.
    pub(crate) fn find(&self, what: &'static str, name: &CStr) -> Result<usize, Error> {
        let found = self.names.iter().position(|own| **own == *name);
        found.ok_or_else(|| {
            const SHOWN: usize = 8;
            let known = self.names.iter().map(|own| own.to_string_lossy());
            let mut known: Vec<_> = known.take(SHOWN).collect();
            match self.len() {
                0 => known.push("none".into()),
                len if len > SHOWN => known.push(format!("and {} more", len - SHOWN).into()),
                _ => {}
            }
            Error::Name {
                what,
                name: name.to_string_lossy().into_owned(),
                known: known.join(", "),
            }
        })
    }
}
