//! The state of a model file: tensors that its programs read and write.

use rustc_hash::FxHashMap;

use super::error::ModelError;
use super::metadata::{ProgramMetadata, STATE, wrong};
use super::signature::{InputSpec, Signature};
use super::size::SizeSymbol;
use super::tensor::{Tensor, TensorSpec};
use crate::data::{Data, DataMut};
use crate::kernels::rows::broadcast_strides;

/// The state of a file, and the weights that hold its initial values.
#[derive(Debug, Default)]
pub(super) struct FileState {
    /// The tensors as inputs. Their symbols have the values that all programs take.
    pub(super) signature: Signature,
    /// By tensor, the number of the weight that holds its initial value; zeros if there is none.
    pub(super) initial: Vec<Option<usize>>,
}

impl FileState {
    /// The state that these programs share, and its initial values among `weights`: those of its names.
    pub(super) fn new<'w>(
        state: Vec<InputSpec>,
        programs: &[ProgramMetadata],
        weights: impl Iterator<Item = &'w TensorSpec>,
    ) -> Result<Self, ModelError> {
        let weights = weights
            .enumerate()
            .map(|(number, own)| (&*own.name, (number, own)));
        let weights: FxHashMap<&str, (usize, &TensorSpec)> = weights.collect();
        let initial = state.iter().map(|spec| match weights.get(&*spec.name) {
            Some(&(number, own)) if is_initial(spec, own) => Ok(Some(number)),
            Some((_, own)) => Err(wrong(STATE, format!("{spec} begins as {own}"))),
            None => Ok(None),
        });
        let initial = initial.collect::<Result<_, _>>()?;
        let mut symbols: Vec<SizeSymbol> = Vec::new();
        for program in programs {
            for symbol in program.signature.symbols() {
                let mut sizes = program.signature.state().iter().flat_map(|own| &own.shape);
                if !sizes.any(|size| size.symbol() == Some(&symbol.name)) {
                    continue;
                }
                match symbols.iter_mut().find(|own| own.name == symbol.name) {
                    None => symbols.push(symbol.clone()),
                    Some(own) => {
                        own.least = own.least.max(symbol.least);
                        own.most = own.most.into_iter().chain(symbol.most).min();
                    }
                }
            }
        }
        let signature = Signature::new(state, symbols, Vec::new());
        Ok(Self {
            signature: signature.map_err(|error| wrong(STATE, error.to_string()))?,
            initial,
        })
    }
}

/// Whether a weight can be the initial value of `spec`: of its type and sizes, and of size 1 where these are symbols.
fn is_initial(spec: &InputSpec, weight: &TensorSpec) -> bool {
    let mut sizes = spec.shape.iter().zip(&weight.shape);
    weight.dtype == spec.dtype
        && weight.shape.len() == spec.shape.len()
        && sizes.all(|(size, &own)| own == size.fixed().unwrap_or(1))
}

/// The state `spec` at the beginning: `initial`, repeated where that has the size 1, or zeros.
pub(super) fn begun(spec: &TensorSpec, initial: Option<&Tensor>) -> Result<Tensor, ModelError> {
    let mut tensor = empty(spec)?;
    if let Some(initial) = initial {
        copy(&spec.shape, initial, &mut tensor);
    }
    Ok(tensor)
}

/// `old` as the first part of the larger tensor `new`.
pub(super) fn put_first(old: &Tensor, new: &mut Tensor) {
    copy(old.shape(), old, new);
}

/// Zeros, if there is memory for them.
fn empty(spec: &TensorSpec) -> Result<Tensor, ModelError> {
    let unknown = || ModelError::graph(&spec.name, format!("the engine has no {}", spec.dtype));
    spec.zeros().ok_or_else(unknown)
}

/// Copies the first elements of this shape; `from` is repeated where it has the size 1.
fn copy(shape: &[usize], from: &Tensor, to: &mut Tensor) {
    let strides = |own: &Tensor| broadcast_strides(own.shape(), shape.len());
    let (from_strides, to_strides) = (strides(from), strides(to));
    let steps = (&from_strides[..], &to_strides[..]);
    match (from.elements().all(), to.elements_mut().all_mut()) {
        (Data::F32(from), DataMut::F32(to)) => copy_strided(shape, from, to, steps),
        (Data::F64(from), DataMut::F64(to)) => copy_strided(shape, from, to, steps),
        (Data::I64(from), DataMut::I64(to)) => copy_strided(shape, from, to, steps),
        (Data::Bool(from), DataMut::Bool(to)) => copy_strided(shape, from, to, steps),
        // Both are of the type of the state.
        _ => {}
    }
}

fn copy_strided<T: Copy>(
    shape: &[usize],
    from: &[T],
    to: &mut [T],
    (from_strides, to_strides): (&[isize], &[isize]),
) {
    let (Some((&size, shape)), [from_step, from_strides @ ..], [to_step, to_strides @ ..]) =
        (shape.split_first(), from_strides, to_strides)
    else {
        if let (Some(to), Some(&from)) = (to.first_mut(), from.first()) {
            *to = from;
        }
        return;
    };
    if shape.is_empty() && (*from_step, *to_step) == (1, 1) {
        to[..size].copy_from_slice(&from[..size]);
        return;
    }
    for at in 0..size {
        let [from_at, to_at] = [from_step, to_step].map(|step| at * step.unsigned_abs());
        let (from, to) = (from.get(from_at..), to.get_mut(to_at..));
        if let (Some(from), Some(to)) = (from, to) {
            copy_strided(shape, from, to, (from_strides, to_strides));
        }
    }
}
