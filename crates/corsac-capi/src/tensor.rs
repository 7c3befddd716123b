//! Tensors that C holds by a handle.

use std::sync::Arc;

use corsac_engine::DType;

use crate::dtype::Dtype;
use crate::error::Error;
use crate::layout::Layout;
use crate::memory::{Keeper, Memory};
use crate::pointer::free;
use crate::view::{VIEW_READ_ONLY, View};

/// A tensor: a result of a run, or one that was imported by DLPack.
pub struct TensorHandle {
    view: View,
    layout: Layout,
    /// The numbers that the view points to.
    shape: Vec<i64>,
    strides: Vec<i64>,
    keeper: Keeper,
}

impl TensorHandle {
    /// A tensor of zeros for output `number` of a model.
    pub(crate) fn zeros(number: usize, dtype: DType, shape: &[usize]) -> Result<Self, Error> {
        let sizes = shape.iter();
        let shape: Vec<i64> = sizes.map(|&size| size.try_into().unwrap_or(-1)).collect();
        let fault = |fault| Error::Tensor {
            what: "output",
            number,
            fault,
        };
        let layout = Layout::new(dtype, &shape, None).map_err(fault)?;
        let memory = Memory::zeroed(layout.size_bytes())?;
        let start = memory.start();
        // SAFETY: the memory has as many bytes, and the tensor keeps it.
        Ok(unsafe { Self::new(start, layout, false, Arc::new(memory)) })
    }

    /// The tensor whose elements lie as `layout` says from `start` on.
    ///
    /// # Safety
    /// While `keeper` lives, there are these elements, to write to if it is not `read_only`.
    pub(crate) unsafe fn new(
        start: *mut u8,
        layout: Layout,
        read_only: bool,
        keeper: Keeper,
    ) -> Self {
        // They come from numbers of this type, or are within the address space.
        let numbers = |own: &[usize]| -> Vec<i64> {
            own.iter()
                .map(|&own| i64::try_from(own).unwrap_or(i64::MAX))
                .collect()
        };
        let (shape, strides) = (numbers(layout.shape()), numbers(layout.strides()));
        let view = View {
            data: start.cast(),
            size_bytes: layout.size_bytes(),
            dtype: Dtype::of(layout.dtype()) as i32,
            rank: shape.len() as i32,
            shape: shape.as_ptr(),
            strides: strides.as_ptr(),
            flags: if read_only { VIEW_READ_ONLY } else { 0 },
        };
        Self {
            view,
            layout,
            shape,
            strides,
            keeper,
        }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub(crate) fn strides(&self) -> &[i64] {
        &self.strides
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.view.flags & VIEW_READ_ONLY != 0
    }

    pub(crate) fn keeper(&self) -> Keeper {
        Arc::clone(&self.keeper)
    }
}

/// The elements of a tensor, with strides: they and the view live as long as the tensor. Null for
/// null. A copy of the view can be passed to a run.
///
/// # Safety
/// `tensor` is null or a tensor that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_tensor_view(tensor: *const TensorHandle) -> *const View {
    // SAFETY: by the contract of this function.
    let tensor = unsafe { tensor.as_ref() };
    tensor.map_or(std::ptr::null(), |tensor| &raw const tensor.view)
}

/// Frees a tensor. Memory that was exported by DLPack stays until it is released there, too. Null is
/// ignored.
///
/// # Safety
/// `tensor` is null or a tensor that has not been freed, and that no thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_tensor_free(tensor: *mut TensorHandle) {
    // SAFETY: by the contract of this function; tensors are made in boxes.
    unsafe { free(tensor) };
}
