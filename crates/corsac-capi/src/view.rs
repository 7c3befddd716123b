//! Tensors in memory of the caller.

use std::ffi::c_void;

use crate::dtype::Dtype;
use crate::error::{Error, Fault};
use crate::layout::Layout;
use crate::pointer::items;
use crate::strided::Strided;

/// Largest rank of a tensor, as in model files.
const MAX_RANK: usize = 64;

/// A flag of a view: its memory is not written to.
pub const VIEW_READ_ONLY: u64 = 1;

/// A tensor in memory: the caller's, or a library's. All of the memory that it points to belongs to
/// others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The first element, at index [0, ..., 0]. It may be null if there are no elements, and need not
    /// be aligned. The data of an input is not written to.
    pub data: *mut c_void,
    /// Bytes of the memory from `data` on, in which all elements must lie.
    pub size_bytes: usize,
    /// The type of the elements: a `corsac_dtype`.
    pub dtype: i32,
    /// Number of dimensions: 0 to 64.
    pub rank: i32,
    /// The sizes, outermost dimension first. It may be null if the rank is 0.
    pub shape: *const i64,
    /// The distance in elements, not in bytes, between neighbours in each dimension. Null if the
    /// elements lie row by row without gaps. Strides are not negative.
    pub strides: *const i64,
    /// CORSAC_VIEW_READ_ONLY or 0.
    pub flags: u64,
}

impl View {
    /// The tensor, checked.
    ///
    /// # Safety
    /// `shape` and `strides` are null or have as many numbers as `rank`. If `data` is not null, there
    /// are `size_bytes` bytes to read during `'a`, and to write if the tensor is written to.
    pub(crate) unsafe fn strided<'a>(&self) -> Result<Strided<'a>, Fault> {
        let dtype = Dtype::read(self.dtype).ok_or(Fault::Dtype(self.dtype))?;
        // SAFETY: by the contract of this function.
        let layout = unsafe { read_layout(dtype, self.rank, self.shape, self.strides) }?;
        if self.flags & !VIEW_READ_ONLY != 0 {
            return Err(Fault::Flags(self.flags));
        }
        let (needed, size_bytes) = (layout.size_bytes(), self.size_bytes);
        if needed > size_bytes {
            return Err(Fault::Memory { needed, size_bytes });
        }
        if self.data.is_null() && needed > 0 {
            return Err(Fault::Null("data"));
        }
        let read_only = self.flags & VIEW_READ_ONLY != 0;
        // SAFETY: the elements lie within the memory of the caller.
        Ok(unsafe { Strided::new(self.data.cast(), layout, read_only) })
    }

    /// The tensors of an array, checked. An error has their numbers, after `what` they are.
    ///
    /// # Safety
    /// Those of [`View::strided`], for all of them.
    pub(crate) unsafe fn all<'a>(
        views: &[Self],
        what: &'static str,
    ) -> Result<Vec<Strided<'a>>, Error> {
        let views = views.iter().enumerate();
        // SAFETY: by the contract of this function.
        let strided = views.map(|(number, view)| unsafe { view.checked(what, number) });
        strided.collect()
    }

    /// The tensor, checked. An error has its number, after `what` it is.
    ///
    /// # Safety
    /// Those of [`View::strided`].
    pub(crate) unsafe fn checked<'a>(
        &self,
        what: &'static str,
        number: usize,
    ) -> Result<Strided<'a>, Error> {
        // SAFETY: by the contract of this function.
        let strided = unsafe { self.strided() };
        strided.map_err(|fault| Error::Tensor {
            what,
            number,
            fault,
        })
    }
}

/// Reads sizes and strides.
///
/// # Safety
/// `shape` and `strides` are null or have as many numbers as `rank`.
pub(crate) unsafe fn read_layout(
    dtype: corsac_engine::DType,
    rank: i32,
    shape: *const i64,
    strides: *const i64,
) -> Result<Layout, Fault> {
    let len = usize::try_from(rank).ok().filter(|&rank| rank <= MAX_RANK);
    let most = MAX_RANK;
    let len = len.ok_or(Fault::Rank { rank, most })?;
    // SAFETY: by the contract of this function.
    let shape = unsafe { items(shape, len, "shape") }.map_err(|_| Fault::Null("shape"))?;
    // SAFETY: by the contract of this function.
    let strides = (!strides.is_null()).then(|| unsafe { items(strides, len, "strides") });
    let strides = strides.transpose().map_err(|_| Fault::Null("strides"))?;
    Layout::new(dtype, shape, strides)
}
