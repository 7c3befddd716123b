//! Runs of models.

use corsac_engine::{
    DType, Data, DataMut, Elements, ModelError, ModelProgram, RunError, Specialisation, TensorSpec,
};

use crate::border::{ErrorHandle, call};
use crate::error::{Error, Fault, Status};
use crate::model::ModelHandle;
use crate::pointer::{Place, given, items};
use crate::strided::{Strided, blank};
use crate::tensor::TensorHandle;
use crate::view::View;

/// Runs a model, and allocates its outputs.
///
/// `inputs` are as many views as the model has inputs, in its order, each of the dtype and shape of
/// that input. They are only read; the memory may be freed after the call. Inputs that are not
/// contiguous, or are not aligned, are copied, and so are those of the dtypes of 8 to 32 bits other
/// than float32 and bool.
///
/// `outputs` has a place for each output of the model. On success each holds a new tensor, which is
/// the caller's to free with corsac_tensor_free; on failure they are not written to.
///
/// Any number of threads may run a model at once.
///
/// # Safety
/// Pointers are null or point to what is described here, and nobody writes to the memory of inputs
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_run(
    model: *const ModelHandle,
    inputs: *const View,
    input_count: usize,
    outputs: *mut *mut TensorHandle,
    output_count: usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    let run = || {
        // SAFETY: by the contract of this function.
        let (model, inputs, places) = unsafe {
            let model = given(model, "model")?.model();
            let inputs = checked(model.program(None)?, inputs, input_count, output_count)?;
            (model, inputs, places(outputs, output_count)?)
        };
        let sizes = model.specialise_for_types(&types(&inputs))?;
        run_new(&sizes, &inputs, &places, |inputs, outputs| {
            model.run_specialised(&sizes, inputs, outputs)
        })
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, run) }
}

/// Runs a model into memory of the caller.
///
/// `inputs` are as in corsac_model_run. `outputs` are as many views as the model has outputs, each of
/// the dtype and shape of that output, with any strides by which its elements do not overlap. Two
/// outputs may not reach over the same memory. An output may share memory with inputs: all inputs
/// are read before it is written to. After an error from the run itself (an index out of range, no
/// memory), outputs have unspecified elements; other errors leave them as they were.
///
/// Any number of threads may run a model at once, into different memory.
///
/// # Safety
/// Pointers are null or point to what is described here. During the call nobody writes to the memory
/// of inputs, and nobody uses that of outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_run_into(
    model: *const ModelHandle,
    inputs: *const View,
    input_count: usize,
    outputs: *const View,
    output_count: usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    let run = || {
        // SAFETY: by the contract of this function.
        unsafe {
            let model = given(model, "model")?.model();
            let inputs = checked(model.program(None)?, inputs, input_count, output_count)?;
            let outputs = items(outputs, output_count, "outputs")?;
            let outputs = View::all(outputs, "output")?;
            let sizes = model.specialise_for_types(&types(&inputs))?;
            run_into(&sizes, &inputs, &outputs, |inputs, outputs| {
                model.run_specialised(&sizes, inputs, outputs)
            })
        }
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, run) }
}

/// The places of outputs.
///
/// # Safety
/// `outputs` is null, or a pointer can be written to each of `count` places for as long as they are used.
pub(crate) unsafe fn places(
    outputs: *mut *mut TensorHandle,
    count: usize,
) -> Result<Vec<Place<*mut TensorHandle>>, Error> {
    let mut places = Vec::new();
    for number in 0..count {
        let place = match outputs.is_null() {
            true => outputs,
            false => outputs.wrapping_add(number),
        };
        // SAFETY: by the contract of this function.
        places.push(unsafe { Place::new(place, "outputs") }?);
    }
    Ok(places)
}

/// Does `run`, for `sizes`, into new tensors.
pub(crate) fn run_new(
    sizes: &Specialisation,
    inputs: &[Strided<'_>],
    places: &[Place<*mut TensorHandle>],
    run: impl FnOnce(&[Data<'_>], &mut [DataMut<'_>]) -> Result<(), ModelError>,
) -> Result<(), Error> {
    let specs = sizes.outputs().iter().enumerate();
    let tensors = specs.map(|(number, spec)| TensorHandle::zeros(number, spec.dtype, &spec.shape));
    let tensors: Vec<TensorHandle> = tensors.collect::<Result<_, _>>()?;
    let views: Vec<View> = tensors.iter().map(|tensor| *tensor.view()).collect();
    // SAFETY: these are views of new tensors.
    let results = unsafe { View::all(&views, "output") }?;
    // SAFETY: as above.
    unsafe { run_into(sizes, inputs, &results, run) }?;
    for (place, tensor) in places.iter().zip(tensors) {
        place.give(tensor);
    }
    Ok(())
}

/// The inputs of a run of `program`. Counts are checked before any of the inputs is read.
///
/// # Safety
/// Those of [`corsac_model_run`].
pub(crate) unsafe fn checked<'a>(
    program: &ModelProgram,
    inputs: *const View,
    input_count: usize,
    output_count: usize,
) -> Result<Vec<Strided<'a>>, Error> {
    let wrong = |error: RunError| Err(Error::Model(error.into()));
    let (expected, got) = (program.inputs().len(), input_count);
    if expected != got {
        return wrong(RunError::InputCount { expected, got });
    }
    let (expected, got) = (program.outputs().len(), output_count);
    if expected != got {
        return wrong(RunError::OutputCount { expected, got });
    }
    // SAFETY: by the contract of this function.
    unsafe { View::all(items(inputs, input_count, "inputs")?, "input") }
}

/// The element types and shapes of inputs.
pub(crate) fn types<'a>(inputs: &'a [Strided<'_>]) -> Vec<(DType, &'a [usize])> {
    let layouts = inputs.iter().map(Strided::layout);
    layouts.map(|own| (own.dtype(), own.shape())).collect()
}

/// Does `run` with the elements of inputs and outputs, for `sizes`, which are those of `inputs`, after all is checked.
///
/// # Safety
/// Nobody uses the memory of `outputs` otherwise.
pub(crate) unsafe fn run_into(
    sizes: &Specialisation,
    inputs: &[Strided<'_>],
    outputs: &[Strided<'_>],
    run: impl FnOnce(&[Data<'_>], &mut [DataMut<'_>]) -> Result<(), ModelError>,
) -> Result<(), Error> {
    check_outputs(sizes, outputs)?;
    let in_place: Vec<Option<Data<'_>>> = inputs.iter().map(Strided::data).collect();
    let mut copies: Vec<Option<Elements>> = Vec::new();
    for (input, data) in inputs.iter().zip(&in_place) {
        let copy = data.is_none().then(|| input.gathered());
        copies.push(copy.transpose()?);
    }
    let data = in_place.into_iter().zip(&copies);
    let data: Vec<Data<'_>> = data
        .filter_map(|(data, copy)| data.or_else(|| copy.as_ref().map(Elements::all)))
        .collect();
    // Results that cannot be written where they belong, or not yet.
    let mut staged: Vec<Option<Elements>> = Vec::new();
    let mut direct: Vec<Option<DataMut<'_>>> = Vec::new();
    let program = sizes.executable().program();
    for (output, value) in outputs.iter().zip(program.outputs()) {
        let is_shared = inputs.iter().any(|input| input.meets(output));
        // SAFETY: `check_outputs` has found that it can be written to and meets no other output. It
        // meets no input either.
        let place = (!is_shared).then(|| unsafe { output.data_mut() }).flatten();
        let element = program.value(value).element;
        let copy = place
            .is_none()
            .then(|| blank(element, output.layout().len()));
        staged.push(copy.transpose()?);
        direct.push(place);
    }
    let places = direct.into_iter().zip(&mut staged);
    let mut places: Vec<DataMut<'_>> = places
        .filter_map(|(place, copy)| place.or_else(|| copy.as_mut().map(Elements::all_mut)))
        .collect();
    run(&data, &mut places)?;
    for (output, elements) in outputs.iter().zip(&staged) {
        if let Some(elements) = elements {
            // SAFETY: as above, and inputs are no longer used.
            unsafe { output.scatter(elements) }?;
        }
    }
    Ok(())
}

/// The specs that differ, if `tensor` is not as `spec` says.
fn other_spec(
    spec: &TensorSpec,
    tensor: &Strided<'_>,
) -> Option<(Box<TensorSpec>, Box<TensorSpec>)> {
    let (dtype, shape) = (tensor.layout().dtype(), tensor.layout().shape());
    if spec.dtype == dtype && spec.shape == shape {
        return None;
    }
    let got = TensorSpec {
        name: spec.name.clone(),
        dtype,
        shape: shape.to_vec(),
    };
    Some((Box::new(spec.clone()), Box::new(got)))
}

fn check_outputs(sizes: &Specialisation, outputs: &[Strided<'_>]) -> Result<(), Error> {
    for (number, (spec, output)) in sizes.outputs().iter().zip(outputs).enumerate() {
        if let Some((expected, got)) = other_spec(spec, output) {
            return Err(Error::Output { expected, got });
        }
        let fault = match output.layout().overlaps_itself() {
            true => Some(Fault::SelfOverlap),
            false => output.is_read_only().then_some(Fault::ReadOnly),
        };
        if let Some(fault) = fault {
            return Err(Error::Tensor {
                what: "output",
                number,
                fault,
            });
        }
        let mut before = outputs.iter().take(number);
        if let Some(first) = before.position(|other| other.meets(output)) {
            return Err(Error::Overlap {
                first,
                second: number,
            });
        }
    }
    Ok(())
}
