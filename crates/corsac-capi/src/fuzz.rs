//! The fuzz target of the C interface: calls with any sizes, strides, types and pointers to null.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use crate::{
    ErrorHandle, ModelHandle, Spec, Status, TensorHandle, View, corsac_error_free,
    corsac_error_message, corsac_error_status, corsac_model_free, corsac_model_input,
    corsac_model_input_count, corsac_model_load_memory, corsac_model_output,
    corsac_model_output_count, corsac_model_run, corsac_model_run_into, corsac_tensor_free,
    corsac_tensor_from_dlpack_versioned, corsac_tensor_to_dlpack_versioned, corsac_tensor_view,
};

/// More dimensions than tensors may have, so that every rank has numbers to read.
const NUMBERS: usize = 70;

/// A model that calls are made of.
pub struct Target(*mut ModelHandle);

/// Choices, read from bytes; zeros when these are used up.
struct Choices<'b>(&'b [u8]);

/// Numbers and memory of a view.
struct Owned {
    shape: [i64; NUMBERS],
    strides: [i64; NUMBERS],
    memory: Box<[u8]>,
    view: View,
}

impl Target {
    /// Loads the model file of these bytes; `None` if it is none.
    #[must_use]
    pub fn load(bytes: &[u8]) -> Option<Self> {
        let mut model = null_mut();
        checked(|error| {
            // SAFETY: the bytes are there, and so are places for results.
            unsafe {
                corsac_model_load_memory(
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    null(),
                    &mut model,
                    error,
                )
            }
        });
        (!model.is_null()).then_some(Self(model))
    }

    /// Makes calls that `bytes` choose. Wrong ones are errors, and right ones have the same results into
    /// memory of the caller and of the library. Returns how many were right.
    ///
    /// # Panics
    /// If a call breaks its promises.
    pub fn calls(&self, bytes: &[u8]) -> usize {
        let (mut choices, mut right) = (Choices(bytes), 0);
        while !choices.0.is_empty() {
            right += usize::from(self.call(&mut choices));
        }
        right
    }

    fn call(&self, choices: &mut Choices<'_>) -> bool {
        let mut inputs = owned(self.inputs(), choices);
        let mut outputs = owned(self.outputs(), choices);
        let inputs: Vec<View> = inputs.iter_mut().map(Owned::view).collect();
        let views: Vec<View> = outputs.iter_mut().map(Owned::view).collect();
        let input_count = inputs.len() - usize::from(choices.rarely() && !inputs.is_empty());
        let mut tensors: Vec<*mut TensorHandle> = vec![null_mut(); views.len()];
        let allocated = checked(|error| {
            // SAFETY: views are of memory as large as they say, and there is a place for each result.
            unsafe {
                corsac_model_run(
                    self.0,
                    inputs.as_ptr(),
                    input_count,
                    tensors.as_mut_ptr(),
                    tensors.len(),
                    error,
                )
            }
        });
        let written = checked(|error| {
            // SAFETY: views are of memory as large as they say, of their own.
            unsafe {
                corsac_model_run_into(
                    self.0,
                    inputs.as_ptr(),
                    input_count,
                    views.as_ptr(),
                    views.len(),
                    error,
                )
            }
        });
        assert!(allocated == Status::Ok || written != Status::Ok);
        for (&tensor, view) in tensors.iter().zip(&views) {
            assert_eq!(tensor.is_null(), allocated != Status::Ok);
            // SAFETY: it is null or a tensor, with its view.
            if let Some(own) = unsafe { corsac_tensor_view(tensor).as_ref() } {
                if written == Status::Ok {
                    assert_eq!(elements(own), elements(view));
                }
                round_trip(tensor);
            }
        }
        written == Status::Ok
    }

    /// Specs of the inputs.
    fn inputs(&self) -> Vec<&Spec> {
        // SAFETY: it is a model, with these specs.
        unsafe {
            let numbers = 0..corsac_model_input_count(self.0);
            numbers
                .filter_map(|number| corsac_model_input(self.0, number).as_ref())
                .collect()
        }
    }

    /// Specs of the outputs.
    fn outputs(&self) -> Vec<&Spec> {
        // SAFETY: it is a model, with these specs.
        unsafe {
            let numbers = 0..corsac_model_output_count(self.0);
            numbers
                .filter_map(|number| corsac_model_output(self.0, number).as_ref())
                .collect()
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: it is a model that is used no more.
        unsafe { corsac_model_free(self.0) };
    }
}

/// Exports a tensor, frees it, imports it again, and frees that.
fn round_trip(tensor: *mut TensorHandle) {
    let (mut managed, mut again) = (null_mut(), null_mut());
    // SAFETY: it is a tensor, which is freed once, and so is the one that is imported.
    unsafe {
        let before = elements(&*corsac_tensor_view(tensor));
        let exported =
            checked(|error| corsac_tensor_to_dlpack_versioned(tensor, &mut managed, error));
        assert_eq!(exported, Status::Ok);
        corsac_tensor_free(tensor);
        let imported =
            checked(|error| corsac_tensor_from_dlpack_versioned(managed, &mut again, error));
        assert_eq!(imported, Status::Ok);
        assert_eq!(elements(&*corsac_tensor_view(again)), before);
        corsac_tensor_free(again);
    }
}

/// Makes a call, and checks its status and its error.
fn checked(call: impl FnOnce(*mut *mut ErrorHandle) -> Status) -> Status {
    let mut error = null_mut();
    let status = call(&mut error);
    // SAFETY: it is null or an error, which is freed once.
    unsafe {
        assert_eq!(corsac_error_status(error), status);
        let message = CStr::from_ptr(corsac_error_message(error));
        let message = message.to_str().expect("texts are in UTF-8");
        assert_eq!(message.is_empty(), status == Status::Ok);
        assert!(
            status != Status::Internal && !message.contains('\n'),
            "{message}"
        );
        corsac_error_free(error);
    }
    status
}

/// Views as the specs want them, more or less.
fn owned(specs: Vec<&Spec>, choices: &mut Choices<'_>) -> Vec<Owned> {
    let own = specs.into_iter().map(|spec| Owned::new(spec, choices));
    own.collect()
}

/// The bytes of the elements of a correct view, row by row.
fn elements(view: &View) -> Vec<u8> {
    // SAFETY: the view has been used by a call that succeeded.
    let gathered = unsafe { view.strided() }.map(|strided| strided.gathered());
    match gathered.expect("a view").expect("memory") {
        corsac_engine::Elements::F32(own) => own.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        corsac_engine::Elements::F64(own) => own.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        corsac_engine::Elements::I64(own) => own.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        corsac_engine::Elements::Bool(own) => own,
    }
}

impl Owned {
    fn new(spec: &Spec, choices: &mut Choices<'_>) -> Self {
        let rank = usize::try_from(spec.rank).unwrap_or(0);
        let (mut shape, mut strides) = ([1; NUMBERS], [0; NUMBERS]);
        let mut size_bytes = crate::corsac_dtype_size_bytes(spec.dtype);
        let mut next = 1 + i64::from(choices.below(3));
        let mut last = 0;
        // Dimensions from the innermost one out, in any order, with gaps.
        let turned = choices.below(2) == 1;
        for at in 0..rank {
            let dim = if turned { at } else { rank - 1 - at };
            // SAFETY: a spec has as many sizes as its rank says.
            shape[dim] = unsafe { spec.shape.add(dim).read() };
            strides[dim] = next;
            last += (shape[dim] - 1).max(0) * next;
            next = next * shape[dim].max(1) + i64::from(choices.below(2));
        }
        size_bytes *= usize::try_from(last + 1).unwrap_or(1);
        let view = View {
            data: null_mut(),
            size_bytes,
            dtype: spec.dtype,
            rank: spec.rank,
            shape: null(),
            strides: null(),
            flags: 0,
        };
        let fill = if choices.rarely() { choices.byte() } else { 0 };
        let mut own = Self {
            shape,
            strides,
            memory: vec![fill; size_bytes].into(),
            view,
        };
        // Whether strides are given, and what is null, stands in addresses until `view`.
        own.view.strides = own.strides.as_ptr();
        own.view.shape = own.shape.as_ptr();
        own.view.data = own.memory.as_mut_ptr().cast();
        if choices.below(8) == 7 {
            own.damage(choices);
        }
        own
    }

    /// Changes something, so that the view may be wrong.
    fn damage(&mut self, choices: &mut Choices<'_>) {
        let at = usize::from(choices.below(4));
        match choices.below(9) {
            0 => self.view.dtype = i32::from(choices.byte()) - 2,
            1 => self.view.rank = i32::from(choices.byte()) % 68 - 1,
            2 => self.shape[at] = choices.number(),
            3 => self.strides[at] = choices.number(),
            4 => self.view.size_bytes -= self.view.size_bytes.min(choices.byte().into()),
            5 => self.view.flags = u64::from(choices.byte()),
            6 => self.view.data = null_mut(),
            7 => self.view.shape = null(),
            _ => self.view.strides = null(),
        }
    }

    /// The view, with the addresses that its parts have now.
    fn view(&mut self) -> View {
        if !self.view.shape.is_null() {
            self.view.shape = self.shape.as_ptr();
        }
        if !self.view.strides.is_null() {
            self.view.strides = self.strides.as_ptr();
        }
        if !self.view.data.is_null() {
            self.view.data = self.memory.as_mut_ptr().cast();
        }
        self.view
    }
}

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn rarely(&mut self) -> bool {
        self.below(16) == 15
    }

    /// A small number, or an extreme one.
    fn number(&mut self) -> i64 {
        match self.below(4) {
            0 => i64::MAX >> self.below(64),
            1 => i64::MIN >> self.below(64),
            _ => i64::from(self.byte()) - 8,
        }
    }
}
