//! Sessions: state between calls of the programs of a model.

use std::sync::Arc;

use corsac_ir::DType;
use smallvec::SmallVec;

use super::Model;
use super::check::bytes_of;
use super::error::ModelError;
use super::limits::within;
use super::program::ModelProgram;
use super::signature::SizeValues;
use super::specialisation::Specialisation;
use super::state::{begun, put_first};
use super::tensor::{Tensor, TensorSpec};
use crate::data::{Data, DataMut, Elements};
use crate::error::RunError;
use crate::lower::element_of;

/// State of a model: tensors that calls of its programs read and write, such as key/value caches and counters.
///
/// Sessions of one model share its packed weights and its compiled programs, and keep the model. Each has a state of
/// its own, and they run at once on any number of threads.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use corsac_engine::{Model, Tensor};
/// let model = Arc::new(Model::load("decoder.safetensors")?);
/// let mut session = model.session(&[("batch", 1), ("capacity", 64)])?;
/// session.run("prompt", &[Tensor::new([1, 3], [5_i64, 7, 2])?])?;
/// let logits = session.run("token", &[Tensor::new([1, 1], [9_i64])?])?;
/// # Ok::<(), corsac_engine::ModelError>(())
/// ```
///
/// A call writes its state in place. A call with wrong inputs changes nothing. One that fails halfway, by an index that
/// is out of range, may leave the state incomplete: then all calls are errors until it is [reset](Session::reset).
#[derive(Clone, Debug)]
pub struct Session {
    model: Arc<Model>,
    /// The values of the symbols of the state.
    values: SizeValues,
    specs: Vec<TensorSpec>,
    state: Vec<Tensor>,
    /// Whether a call has failed after it had written to the state.
    is_torn: bool,
}

impl Session {
    pub(super) fn new(model: Arc<Model>, sizes: &[(&str, usize)]) -> Result<Self, ModelError> {
        let values = model.state().values(sizes)?;
        let specs = model.state().specs_at(&values)?;
        let state = beginning(&model, &specs)?;
        Ok(Self {
            model,
            values,
            specs,
            state,
            is_torn: false,
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Names, types and shapes of the state.
    #[must_use]
    pub fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// The sizes of the state, by name.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, usize)> {
        let symbols = self.model.state().symbols().iter();
        let named = symbols.zip(&self.values);
        named.map(|(symbol, &value)| (&*symbol.name, value))
    }

    /// Runs the program of this name, or with `None` the default one, on `inputs`, in order. It reads and writes the
    /// state.
    ///
    /// # Errors
    /// If there is no such program, it expects other inputs, or an index is out of range.
    pub fn run<'n>(
        &mut self,
        program: impl Into<Option<&'n str>>,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, ModelError> {
        Ok(self.run_specialised(program, inputs)?.1)
    }

    /// As [`run`](Self::run); also gives the program that has run, compiled for these inputs and the state.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_specialised<'n>(
        &mut self,
        program: impl Into<Option<&'n str>>,
        inputs: &[Tensor],
    ) -> Result<(Arc<Specialisation>, Vec<Tensor>), ModelError> {
        let program = program.into();
        let sized = self.specialise_for(program, inputs)?;
        let inputs = inputs.iter().map(|tensor| tensor.elements().all());
        let inputs: Vec<Data<'_>> = inputs.collect();
        let mut outputs = sized.empty_outputs();
        let mut places: Vec<DataMut<'_>> = outputs.iter_mut().map(Elements::all_mut).collect();
        self.run_sized(program, &sized, &inputs, &mut places)?;
        let results = sized.results(outputs);
        Ok((sized, results))
    }

    /// The program compiled for the types and shapes of these inputs, and for the state: names, types and shapes of
    /// its inputs and outputs.
    ///
    /// # Errors
    /// If there is no such program, or it expects other inputs.
    pub fn specialise_for<'n>(
        &self,
        program: impl Into<Option<&'n str>>,
        inputs: &[Tensor],
    ) -> Result<Arc<Specialisation>, ModelError> {
        let types = inputs.iter().map(|tensor| (tensor.dtype(), tensor.shape()));
        self.specialise_for_types(program, &types.collect::<SmallVec<[_; 4]>>())
    }

    /// As [`specialise_for`](Self::specialise_for), for inputs of these types and shapes.
    ///
    /// # Errors
    /// As [`specialise_for`](Self::specialise_for).
    pub fn specialise_for_types<'n>(
        &self,
        program: impl Into<Option<&'n str>>,
        inputs: &[(DType, &[usize])],
    ) -> Result<Arc<Specialisation>, ModelError> {
        let number = self.model.file.number_of(program.into())?;
        let own = &self.model.programs()[number];
        let expected = own.signature().inputs().len();
        if inputs.len() != expected {
            return Err(ModelError::Run(RunError::InputCount {
                expected,
                got: inputs.len(),
            }));
        }
        let mut types: SmallVec<[(DType, &[usize]); 8]> = inputs.iter().copied().collect();
        types.extend(own.state.iter().map(|&at| {
            let tensor = &self.state[at];
            (tensor.dtype(), tensor.shape())
        }));
        self.model.specialise_with(number, &types)
    }

    /// As [`run`](Self::run), with elements row by row, into memory of the caller: see [`Model::run_into`]. `inputs`
    /// are the types, shapes and elements of the inputs.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if outputs differ in number, length or element type from those of the program.
    pub fn run_into<'n>(
        &mut self,
        program: impl Into<Option<&'n str>>,
        inputs: &[(DType, &[usize], Data<'_>)],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), ModelError> {
        let program = program.into();
        let types = inputs.iter().map(|&(dtype, shape, _)| (dtype, shape));
        let types: SmallVec<[_; 4]> = types.collect();
        let sized = self.specialise_for_types(program, &types)?;
        let inputs: Vec<Data<'_>> = inputs.iter().map(|&(.., data)| data).collect();
        self.run_sized(program, &sized, &inputs, outputs)
    }

    /// Runs a program that is compiled for these inputs and the state.
    fn run_sized(
        &mut self,
        program: Option<&str>,
        sized: &Specialisation,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), ModelError> {
        if self.is_torn {
            return Err(ModelError::Torn);
        }
        let own: &ModelProgram = self.model.program(program)?;
        let (expected, got) = (sized.outputs().len(), outputs.len());
        if expected != got {
            return Err(ModelError::Run(RunError::OutputCount { expected, got }));
        }
        let mut state: SmallVec<[Option<&mut Tensor>; 8]> =
            self.state.iter_mut().map(Some).collect();
        let mut results: Vec<DataMut<'_>> = outputs.iter_mut().map(DataMut::reborrowed).collect();
        for &(input, _) in &sized.executable().program().written {
            let tensor = state[own.state[input - inputs.len()]].take();
            results.extend(tensor.map(|own| own.elements_mut().all_mut()));
        }
        let mut inputs = inputs.to_vec();
        // What is written is read from its result.
        let read = |at: &usize| state[*at].as_deref().map(|own| own.elements().all());
        let state = own.state.iter().map(read);
        inputs.extend(state.map(|own| own.unwrap_or(Data::F32(&[]))));
        let done = self.model.run_with(sized, &inputs, &mut results);
        // A panic may have come at any time.
        self.is_torn = matches!(
            done,
            Err(ModelError::Run(RunError::AfterWrites { .. }) | ModelError::Internal { .. })
        );
        done
    }

    /// The state of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn state(&self, name: &str) -> Result<&Tensor, ModelError> {
        Ok(&self.state[self.number_of(name)?])
    }

    /// The elements of the state of this name, row by row, to be changed. Numbers have to be those of its type.
    ///
    /// # Errors
    /// If there is none.
    pub fn state_mut(&mut self, name: &str) -> Result<DataMut<'_>, ModelError> {
        let at = self.number_of(name)?;
        Ok(self.state[at].elements_mut().all_mut())
    }

    /// Replaces the state of this name by `tensor`, of its type and shape.
    ///
    /// # Errors
    /// If there is none, or the type or shape is another one.
    pub fn set_state(&mut self, name: &str, tensor: Tensor) -> Result<(), ModelError> {
        let at = self.number_of(name)?;
        let spec = &self.specs[at];
        if (tensor.dtype(), tensor.shape()) != (spec.dtype, &*spec.shape) {
            let got = format!("{}{:?}", tensor.dtype().name(), tensor.shape());
            return Err(ModelError::State {
                name: name.to_owned(),
                reason: format!("{spec} is needed, not {got}"),
            });
        }
        self.state[at] = tensor;
        Ok(())
    }

    fn number_of(&self, name: &str) -> Result<usize, ModelError> {
        let found = self.specs.iter().position(|spec| spec.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.specs.iter().map(|spec| &*spec.name).collect();
            ModelError::State {
                name: name.chars().take(64).collect(),
                reason: match known.is_empty() {
                    true => "the model has no state".to_owned(),
                    false => format!("the state of the model is {}", known.join(", ")),
                },
            }
        })
    }

    /// Sets the state to its initial values, for the same sizes.
    ///
    /// # Errors
    /// If there is no memory for them; then nothing changes.
    pub fn reset(&mut self) -> Result<(), ModelError> {
        self.state = beginning(&self.model, &self.specs)?;
        self.is_torn = false;
        Ok(())
    }

    /// Enlarges the state to these sizes: `[("capacity", 256)]`. Others stay as they are. Elements keep their
    /// places, and new ones have their initial values.
    ///
    /// # Errors
    /// If the state has no such sizes, or values are out of range or less than they are: what should be kept then, only
    /// the caller knows. Nothing changes then.
    pub fn resize(&mut self, sizes: &[(&str, usize)]) -> Result<(), ModelError> {
        for &(name, value) in sizes {
            if let Some((_, old)) = self.sizes().find(|&(own, old)| own == name && value < old) {
                return Err(ModelError::Symbol {
                    name: name.to_owned(),
                    reason: format!("{value} is less than {old}: state can grow only"),
                });
            }
        }
        let given = |name: &str| sizes.iter().any(|(own, _)| *own == name);
        let kept = self.sizes().filter(|(name, _)| !given(name));
        let all: Vec<(&str, usize)> = sizes.iter().copied().chain(kept).collect();
        let mut grown = Self::new(Arc::clone(&self.model), &all)?;
        for (old, new) in self.state.iter().zip(&mut grown.state) {
            put_first(old, new);
        }
        grown.is_torn = self.is_torn;
        *self = grown;
        Ok(())
    }

    /// Another session of the model, with a copy of the state.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.clone()
    }
}

/// The state at the beginning.
fn beginning(model: &Model, specs: &[TensorSpec]) -> Result<Vec<Tensor>, ModelError> {
    let mut bytes = 0_u64;
    for spec in specs {
        let element = element_of(spec.dtype).unwrap_or_default();
        bytes = bytes.saturating_add(bytes_of(element, &spec.shape));
        within("bytes of state", bytes, model.file.limits().value_bytes)?;
    }
    let initial = model.initial.iter();
    let state = specs.iter().zip(initial);
    state.map(|(spec, own)| begun(spec, own.as_ref())).collect()
}
