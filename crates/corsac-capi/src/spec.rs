//! Names, types and shapes of inputs, outputs and weights.

use std::ffi::{CStr, CString, c_char};

use corsac_engine::TensorSpec;

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
    /// The sizes, outermost dimension first. This version makes none that is negative; -1 is kept
    /// for a size that each call chooses.
    pub shape: *const i64,
}

/// Specs for C, with the memory that they point to.
#[derive(Debug)]
pub(crate) struct Specs {
    all: Vec<Spec>,
    names: Vec<CString>,
    _shapes: Vec<Vec<i64>>,
}

impl Specs {
    pub(crate) fn new<'a>(specs: impl IntoIterator<Item = &'a TensorSpec>) -> Result<Self, Error> {
        let (mut dtypes, mut names, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
        for spec in specs {
            let zero = |_| Error::ZeroInName {
                name: spec.name.clone(),
            };
            names.push(CString::new(&*spec.name).map_err(zero)?);
            let size = |&size| i64::try_from(size).unwrap_or(i64::MAX);
            shapes.push(spec.shape.iter().map(size).collect::<Vec<i64>>());
            dtypes.push(Dtype::of(spec.dtype) as i32);
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
