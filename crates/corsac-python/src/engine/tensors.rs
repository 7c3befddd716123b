//! Tensors of PyTorch as slices of memory, without a call of Python for each property.
//!
//! PyTorch exports a table of C functions for this, the exchange interface of DLPack: one of them
//! describes a tensor (the address of its elements, their type, its sizes and strides) without
//! making anything. Layouts are those of `dlpack.h` 1.3, whose first version with this table is
//! 1.2; another major version is not used.

#![expect(unsafe_code, reason = "functions of C, and memory that PyTorch owns")]

use std::ffi::{c_int, c_void};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Range;

use corsac_engine::dlpack::{CPU, DLTensor};
use corsac_engine::{DTYPES, DType, Data, DataMut, Element, Elements, Half, are_booleans};
use pyo3::ffi::{Py_TYPE, PyErr_Clear, PyGetSetDef, PyGetSetDescr_Type, PyObject, PyTypeObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyString, PyTuple, PyType};
use rustc_hash::FxHasher;

use super::allocation::Allocator;
use super::fresh::{Fresh, Template};
use super::tensor_layout::Dense;
use crate::runtime::TorchValues;

/// The major version of DLPack that has these layouts.
const MAJOR: u32 = 1;

/// `DLPackDLTensorFromPyObjectNoSync`: returns 0, or -1 with an exception set.
type Describe = unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int;

/// `DLPackExchangeAPI`
#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    from_object: *const c_void,
    to_object: *const c_void,
    describe: Option<Describe>,
    stream: *const c_void,
}

/// `PyGetSetDescrObject`, as `descrobject.h` has it in all versions
#[repr(C)]
struct GetSet {
    head: PyObject,
    kind: *mut PyTypeObject,
    name: *mut PyObject,
    qualname: *mut PyObject,
    functions: *mut PyGetSetDef,
}

/// An attribute of tensors that a function of C computes, called without a lookup.
struct Getter(Py<PyAny>);

impl Getter {
    /// The attribute of this name; None if it is another kind of attribute.
    fn new(tensor: &Bound<'_, PyType>, name: &Bound<'_, PyString>) -> PyResult<Option<Self>> {
        let found = tensor.getattr(name)?;
        // SAFETY: it is an object, and the type is one of CPython's.
        let is_getter = unsafe { Py_TYPE(found.as_ptr()) == &raw mut PyGetSetDescr_Type };
        if !is_getter {
            return Ok(None);
        }
        // SAFETY: its type is that of such descriptors, whose functions live as long as they do.
        let (kind, has_function) = unsafe {
            let own = found.as_ptr().cast::<GetSet>();
            let functions = (*own).functions;
            let has_function = !functions.is_null() && (*functions).get.is_some();
            ((*own).kind, has_function)
        };
        // SAFETY: a descriptor has the type that it is of.
        let kind = unsafe { Bound::from_borrowed_ptr(tensor.py(), kind.cast()) };
        let is_of_tensors = has_function && tensor.is_subclass(&kind)?;
        Ok(is_of_tensors.then(|| Self(found.unbind())))
    }

    /// Its value; None if it raises.
    #[inline]
    fn ask<'py>(&self, tensor: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let py = tensor.py();
        // SAFETY: `new` has seen that this is such a descriptor of tensors, with a function.
        // Callers have seen that the object is one; the function returns a new reference, or null
        // with an exception.
        let found = unsafe {
            let functions = (*self.0.as_ptr().cast::<GetSet>()).functions;
            let get = (*functions).get?;
            Bound::from_owned_ptr_or_opt(py, get(tensor.as_ptr(), (*functions).closure))
        };
        if found.is_none() {
            // SAFETY: the thread is attached to the interpreter.
            unsafe { PyErr_Clear() };
        }
        found
    }
}

/// Functions that inspect and make tensors.
pub(crate) struct Exchange {
    describe: Describe,
    version: Option<Getter>,
    requires_grad: Option<Getter>,
    tensor: Py<PyAny>,
    parameter: Py<PyAny>,
    /// `torch.empty`
    empty: Py<PyAny>,
    /// `torch.empty_like`
    empty_like: Py<PyAny>,
    /// `torch.device("cpu")`
    cpu: Py<PyAny>,
    /// Checks whether a tensor stands for another one, whose elements are elsewhere.
    stands_for_another: [Py<PyAny>; 2],
}

/// Description of a tensor on the CPU.
pub(crate) struct Described<'a> {
    description: DLTensor,
    /// The described tensor.
    of: PhantomData<&'a Bound<'a, PyAny>>,
}

impl Exchange {
    /// The interface of the installed PyTorch; `None` if it has none that is known here.
    pub(crate) fn get(py: Python<'_>) -> PyResult<Option<&Self>> {
        static EXCHANGE: PyOnceLock<Option<Exchange>> = PyOnceLock::new();
        Ok(EXCHANGE.get_or_try_init(py, || Self::load(py))?.as_ref())
    }

    fn load(py: Python<'_>) -> PyResult<Option<Self>> {
        let torch = py.import(intern!(py, "torch"))?;
        let tensor = torch.getattr(intern!(py, "Tensor"))?;
        let name = intern!(py, "__dlpack_c_exchange_api__");
        let Some(capsule) = tensor.getattr_opt(name)? else {
            return Ok(None);
        };
        let Ok(capsule) = capsule.cast_into::<PyCapsule>() else {
            return Ok(None);
        };
        let table = capsule.pointer_checked(Some(c"dlpack_exchange_api"))?;
        // SAFETY: a capsule of this name holds a table that lives as long as the process. Its first
        // number says how it is laid out, which is what is read before everything else.
        let major = unsafe { table.cast::<u32>().read() };
        if major != MAJOR {
            return Ok(None);
        }
        // SAFETY: as above, and the version is the one that `Table` is laid out for.
        let describe = unsafe { table.cast::<Table>().as_ref() }.describe;
        let Some(describe) = describe else {
            return Ok(None);
        };
        let class = tensor.cast::<PyType>()?;
        Ok(Some(Self {
            describe,
            version: Getter::new(class, intern!(py, "_version"))?,
            requires_grad: Getter::new(class, intern!(py, "requires_grad"))?,
            tensor: tensor.unbind(),
            parameter: torch.getattr("nn")?.getattr("Parameter")?.unbind(),
            empty: torch.getattr(intern!(py, "empty"))?.unbind(),
            empty_like: torch.getattr(intern!(py, "empty_like"))?.unbind(),
            cpu: torch.getattr("device")?.call1(("cpu",))?.unbind(),
            stands_for_another: [
                torch.getattr("_is_functional_tensor")?.unbind(),
                torch
                    .getattr("_C")?
                    .getattr("_functorch")?
                    .getattr("is_functorch_wrapped_tensor")?
                    .unbind(),
            ],
        }))
    }

    /// Whether `value` is of a tensor class of PyTorch's own, no subclass.
    pub(crate) fn is_tensor(&self, value: &Bound<'_, PyAny>) -> bool {
        // SAFETY: it is an object.
        let class = unsafe { Py_TYPE(value.as_ptr()) }.cast::<PyObject>();
        class == self.tensor.as_ptr() || class == self.parameter.as_ptr()
    }

    /// Whether `value` is a `torch.Tensor` itself, and no parameter.
    pub(crate) fn is_plain(&self, value: &Bound<'_, PyAny>) -> bool {
        value.get_type().is(&self.tensor)
    }

    /// Description of `tensor`; `None` if its elements are not in memory, or not stored as their
    /// values.
    pub(crate) fn described<'a>(
        &self,
        tensor: &'a Bound<'_, PyAny>,
    ) -> PyResult<Option<Described<'a>>> {
        if !self.is_tensor(tensor) {
            return Ok(None);
        }
        if let Some(own) = Dense::of(tensor) {
            return Ok(Some(own.into()));
        }
        self.described_by_torch(tensor)
    }

    /// The same by PyTorch, which copies elements that are shared until they are written to.
    pub(super) fn described_by_torch<'a>(
        &self,
        tensor: &'a Bound<'_, PyAny>,
    ) -> PyResult<Option<Described<'a>>> {
        let py = tensor.py();
        if !self.is_tensor(tensor) {
            return Ok(None);
        }
        // A tensor with this bit is stored as its negative.
        if tensor
            .call_method0(intern!(py, "is_neg"))?
            .cast::<pyo3::types::PyBool>()
            .map_or(true, |flag| flag.is_true())
        {
            return Ok(None);
        }
        Ok(self.asked(tensor))
    }

    /// The same for a tensor of PyTorch's own classes, as it is stored: perhaps as its negative.
    pub(crate) fn described_as_stored<'a>(
        &self,
        tensor: &'a Bound<'_, PyAny>,
    ) -> Option<Described<'a>> {
        match Dense::of(tensor) {
            Some(own) => Some(own.into()),
            None => self.asked(tensor),
        }
    }

    fn asked<'a>(&self, tensor: &'a Bound<'_, PyAny>) -> Option<Described<'a>> {
        for asks in &self.stands_for_another {
            let answer = asks.bind(tensor.py()).call1((tensor,)).ok()?;
            if answer.is_truthy().ok()? {
                return None;
            }
        }
        let description = self.description(tensor);
        let on_cpu = |own: &DLTensor| own.device.device_type == CPU.device_type && own.ndim >= 0;
        description.filter(on_cpu).map(|description| Described {
            description,
            of: PhantomData,
        })
    }

    /// Number of writes to `tensor`, which was not made in inference mode.
    pub(super) fn version(&self, tensor: &Bound<'_, PyAny>) -> PyResult<i64> {
        let asked = match &self.version {
            Some(own) if self.is_tensor(tensor) => own.ask(tensor),
            _ => None,
        };
        match asked {
            Some(own) => own.extract(),
            None => tensor.getattr(intern!(tensor.py(), "_version"))?.extract(),
        }
    }

    /// Whether `tensor` requires a gradient.
    pub(super) fn requires_grad(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let asked = match &self.requires_grad {
            Some(own) if self.is_tensor(tensor) => own.ask(tensor),
            _ => None,
        };
        match asked {
            Some(own) => own.is_truthy(),
            None => {
                let own = tensor.getattr(intern!(tensor.py(), "requires_grad"))?;
                own.is_truthy()
            }
        }
    }

    /// Whether `value` is a strided tensor of PyTorch's own classes on the CPU, of a type that
    /// programs support.
    fn is_native(&self, value: &Bound<'_, PyAny>) -> bool {
        self.is_tensor(value)
            && self
                .described_as_stored(value)
                .is_some_and(|own| own.dtype().is_some())
    }

    /// Hash of the address, type and layout of the elements of `tensor`, which changes with
    /// `tensor.data = …`. `None` for subclasses, and where DLPack cannot describe the tensor.
    pub(super) fn layout(&self, tensor: &Bound<'_, PyAny>) -> Option<u64> {
        if !self.is_tensor(tensor) {
            return None;
        }
        // A tensor that is stored as its negative has the same address.
        let negated = tensor.call_method0(intern!(tensor.py(), "is_neg"));
        let negated = negated.and_then(|own| own.is_truthy()).ok()?;
        let place = |own: &DLTensor| (own.data.addr(), own.byte_offset, negated);
        self.hashed(tensor, place)
    }

    /// Hash of the type, sizes and strides of `tensor`, wherever its elements are.
    pub(super) fn form(&self, tensor: &Bound<'_, PyAny>) -> Option<u64> {
        self.hashed(tensor, |_| ())
    }

    /// Hash of the type, sizes and strides of `tensor`, and of the result of `place`.
    fn hashed<H: Hash>(
        &self,
        tensor: &Bound<'_, PyAny>,
        place: impl Fn(&DLTensor) -> H,
    ) -> Option<u64> {
        if !self.is_tensor(tensor) {
            return None;
        }
        let own = self.description(tensor)?;
        let rank = usize::try_from(own.ndim).ok()?;
        let mut hasher = FxHasher::default();
        (place(&own), rank).hash(&mut hasher);
        (own.device.device_type, own.dtype.code, own.dtype.bits).hash(&mut hasher);
        for numbers in [own.shape, own.strides] {
            if rank > 0 && !numbers.is_null() {
                // SAFETY: where they are, there are as many as dimensions, and they live as long as
                // the tensor does, which is borrowed here.
                unsafe { std::slice::from_raw_parts(numbers, rank) }.hash(&mut hasher);
            }
        }
        Some(hasher.finish())
    }

    /// PyTorch's description of `tensor`, which is of one of its own classes.
    fn description(&self, tensor: &Bound<'_, PyAny>) -> Option<DLTensor> {
        let mut description = std::mem::MaybeUninit::<DLTensor>::uninit();
        // SAFETY: the object is a tensor of PyTorch, which is what its function takes; the thread
        // is attached to the interpreter; and the second pointer is to memory of the right size.
        let status =
            unsafe { (self.describe)(tensor.as_ptr().cast::<c_void>(), description.as_mut_ptr()) };
        if status != 0 {
            // SAFETY: the thread is attached to the interpreter.
            unsafe { PyErr_Clear() };
            return None;
        }
        // SAFETY: the function has succeeded, and then has filled it in.
        Some(unsafe { description.assume_init() })
    }

    /// A new tensor like `template`, with unset elements.
    pub(crate) fn empty<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[usize],
        template: &Template,
    ) -> PyResult<Fresh<'py>> {
        let made = Allocator::get(py).and_then(|own| own.empty(py, &template.form));
        let tensor = match made {
            Some(tensor) => tensor,
            None => self.empty_like(py, dtype, shape, template)?,
        };
        let data = match self.is_plain(&tensor) {
            true => self
                .described_as_stored(&tensor)
                .and_then(|own| own.is_made_as(dtype, shape).then(|| own.start())),
            false => None,
        };
        let wrong = || pyo3::exceptions::PyRuntimeError::new_err("PyTorch made another tensor");
        let (data, len) = (data.ok_or_else(wrong)?, shape.iter().product());
        // SAFETY: the new tensor has this type and shape, and is contiguous and aligned.
        Ok(unsafe { Fresh::new(tensor, data, len, dtype) })
    }

    /// A new tensor like `template`, made by PyTorch.
    fn empty_like<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        shape: &[usize],
        template: &Template,
    ) -> PyResult<Bound<'py, PyAny>> {
        let like = template.like.get_or_try_init(py, || {
            let options = self.options(py, dtype)?;
            let sizes = PyTuple::new(py, shape)?;
            let like = self.empty.bind(py).call((sizes,), Some(&options))?;
            // Its elements are never read.
            like.call_method0(intern!(py, "untyped_storage"))?
                .call_method1(intern!(py, "resize_"), (0,))?;
            PyResult::Ok(like.unbind())
        })?;
        self.empty_like.bind(py).call1((like,))
    }

    /// Keyword arguments that make tensors of this type, always the same.
    fn options<'py>(&self, py: Python<'py>, dtype: DType) -> PyResult<Bound<'py, PyDict>> {
        static OPTIONS: [PyOnceLock<Py<PyDict>>; DTYPES.len()] =
            [const { PyOnceLock::new() }; DTYPES.len()];
        let number = DTYPES.iter().position(|own| *own == dtype);
        let options = OPTIONS[number.unwrap_or(0)].get_or_try_init(py, || {
            let options = PyDict::new(py);
            options.set_item("dtype", TorchValues::get(py)?.dtype(dtype))?;
            options.set_item("device", &self.cpu)?;
            PyResult::Ok(options.unbind())
        })?;
        Ok(options.bind(py).clone())
    }
}

impl From<Dense> for Described<'_> {
    fn from(own: Dense) -> Self {
        Self {
            description: DLTensor {
                data: own.data,
                device: CPU,
                ndim: own.rank,
                dtype: own.dtype,
                shape: own.sizes,
                strides: own.strides,
                byte_offset: own.offset * u64::from(own.dtype.bits / 8),
            },
            of: PhantomData,
        }
    }
}

impl<'a> Described<'a> {
    fn element(&self) -> Option<Element> {
        match self.dtype()? {
            DType::Float32 => Some(Element::F32),
            DType::Float64 => Some(Element::F64),
            DType::Int64 => Some(Element::I64),
            DType::Bool => Some(Element::Bool),
            _ => None,
        }
    }

    /// Element type by PyTorch's name, if programs support it.
    pub(super) fn dtype(&self) -> Option<DType> {
        self.description.dtype.dtype()
    }

    fn numbers(&self, from: *const i64) -> &[i64] {
        // Not `unsigned_abs` below the test for zero: LLVM 22 joins both, and goes on to believe
        // that the length is never zero.
        let rank = usize::try_from(self.description.ndim).unwrap_or(0);
        if rank == 0 || from.is_null() {
            return &[];
        }
        // SAFETY: a description has as many sizes and strides as its rank says. They belong to the
        // tensor, which is borrowed, and change in calls of Python only.
        unsafe { std::slice::from_raw_parts(from, rank) }
    }

    /// Whether it has elements of this type, and these sizes.
    pub(crate) fn is(&self, dtype: DType, shape: &[usize]) -> bool {
        self.dtype() == Some(dtype) && self.has_shape(shape)
    }

    /// Its element type, if programs support it, and its sizes.
    pub(super) fn outline(&self) -> Option<(DType, &[i64])> {
        Some((self.dtype()?, self.numbers(self.description.shape)))
    }

    /// Its element type, if programs support it, its sizes and its strides.
    pub(crate) fn layout(&self) -> Option<(DType, &[i64], &[i64])> {
        let (dtype, shape) = self.outline()?;
        Some((dtype, shape, self.numbers(self.description.strides)))
    }

    fn has_shape(&self, shape: &[usize]) -> bool {
        let sizes = self.numbers(self.description.shape);
        sizes.len() == shape.len()
            && sizes
                .iter()
                .zip(shape)
                .all(|(&own, &size)| own == size as i64)
    }

    /// Whether it has this type and these sizes, and is contiguous and aligned.
    fn fits(&self, element: Element, shape: &[usize]) -> bool {
        self.element() == Some(element) && self.is_in_place(element.size_bytes(), shape)
    }

    /// Whether it has these sizes, is contiguous, and is aligned for elements of this many bytes.
    fn is_in_place(&self, size_bytes: usize, shape: &[usize]) -> bool {
        let start = self.start();
        let is_aligned = !start.is_null() && (start as usize).is_multiple_of(size_bytes);
        self.has_shape(shape) && self.is_in_rows() && (is_aligned || shape.contains(&0))
    }

    /// Whether it has this type and these sizes, and is contiguous and aligned.
    fn is_made_as(&self, dtype: DType, shape: &[usize]) -> bool {
        self.dtype() == Some(dtype) && self.is_in_place(self.element_bytes(), shape)
    }

    /// The kind and the bits of its element type, and the bytes of its elements, if it has these sizes
    /// and they can be read in place.
    pub(super) fn content(&self, shape: &[usize]) -> Option<([u8; 2], &'a [u8])> {
        let dtype = &self.description.dtype;
        let len = shape
            .iter()
            .product::<usize>()
            .checked_mul(self.element_bytes())?;
        if !dtype.bits.is_multiple_of(8) || !self.is_in_place(1, shape) {
            return None;
        }
        let bytes = match len {
            0 => &[],
            // SAFETY: there are as many elements of this size, one after the other. They live as long
            // as the tensor, which is borrowed for `'a`. As for any operator of PyTorch, nobody may
            // write to them or take their memory while they are read.
            _ => unsafe { std::slice::from_raw_parts(self.start().cast_const().cast(), len) },
        };
        Some(([dtype.code, dtype.bits], bytes))
    }

    /// The bits of its elements, if they have 16 and can be read in place, and their type.
    pub(super) fn halves(&self, shape: &[usize]) -> Option<(&'a [u16], Half)> {
        let half = Half::of(self.dtype()?)?;
        let len: usize = shape.iter().product();
        if len == 0 || !self.is_in_place(size_of::<u16>(), shape) {
            return None;
        }
        // SAFETY: there are `len` elements of 16 bits from the start, aligned. They live as long as
        // the tensor, which is borrowed for `'a`. As for any operator of PyTorch, nobody may write to
        // them or take their memory while they are read.
        let bits = unsafe { std::slice::from_raw_parts(self.start().cast_const().cast(), len) };
        Some((bits, half))
    }

    /// Its elements, if they are integers of fewer than 64 bits and can be read in place.
    pub(super) fn integers(&self, shape: &[usize]) -> Option<Vec<i64>> {
        let (_, bytes) = self.content(shape)?;
        match self.dtype()? {
            DType::Int32 => Some(widened(bytes, i32::from_ne_bytes)),
            DType::Int16 => Some(widened(bytes, i16::from_ne_bytes)),
            DType::Int8 => Some(widened(bytes, i8::from_ne_bytes)),
            DType::UInt8 => Some(widened(bytes, u8::from_ne_bytes)),
            _ => None,
        }
    }

    /// Whether it is contiguous.
    pub(super) fn is_in_rows(&self) -> bool {
        let sizes = self.numbers(self.description.shape);
        let strides = self.numbers(self.description.strides);
        let mut len = 1;
        let mut in_rows = true;
        for (&size, &stride) in sizes.iter().zip(strides).rev() {
            in_rows &= size == 1 || stride == len;
            len *= size;
        }
        len == 0 || in_rows
    }

    /// Range of its memory, from its first element to the end of its last.
    pub(super) fn bytes(&self) -> Range<usize> {
        let start = self.start() as usize;
        let sizes = self.numbers(self.description.shape);
        let strides = self.numbers(self.description.strides);
        if sizes.contains(&0) {
            return start..start;
        }
        let steps = sizes.iter().zip(strides);
        let steps: i64 = steps.map(|(size, stride)| (size - 1) * stride).sum();
        start..start + (usize::try_from(steps).unwrap_or(0) + 1) * self.element_bytes()
    }

    /// Bytes of an element.
    fn element_bytes(&self) -> usize {
        let dtype = &self.description.dtype;
        (usize::from(dtype.bits) * usize::from(dtype.lanes)).div_ceil(8)
    }

    fn start(&self) -> *mut c_void {
        let offset = self.description.byte_offset as usize;
        self.description.data.wrapping_byte_add(offset)
    }

    /// Its elements, if they can be read in place.
    pub(crate) fn data(&self, element: Element, shape: &[usize]) -> Option<Data<'a>> {
        match self.data_of_any_bytes(element, shape) {
            // Bytes that were reinterpreted as truth values may be anything.
            Some(Data::Bool(bytes)) if !are_booleans(bytes) => None,
            data => data,
        }
    }

    /// The same where truth values may be any bytes.
    pub(super) fn data_of_any_bytes(&self, element: Element, shape: &[usize]) -> Option<Data<'a>> {
        if !self.fits(element, shape) {
            return None;
        }
        let len = shape.iter().product();
        let start = self.start();
        if len == 0 {
            return Some(match element {
                Element::F32 => Data::F32(&[]),
                Element::F64 => Data::F64(&[]),
                Element::I64 => Data::I64(&[]),
                Element::Bool => Data::Bool(&[]),
            });
        }
        // SAFETY: `fits` has found `len` elements of this type from `start`, aligned. They live as
        // long as the tensor, which is borrowed for `'a`. As for any operator of PyTorch, nobody
        // may write to them or take their memory while the program runs.
        Some(unsafe {
            match element {
                Element::F32 => Data::F32(std::slice::from_raw_parts(start.cast(), len)),
                Element::F64 => Data::F64(std::slice::from_raw_parts(start.cast(), len)),
                Element::I64 => Data::I64(std::slice::from_raw_parts(start.cast(), len)),
                Element::Bool => Data::Bool(std::slice::from_raw_parts(start.cast(), len)),
            }
        })
    }
}

impl Described<'_> {
    /// Whether it is contiguous, with the strides that PyTorch gives such tensors: convolutions look at
    /// those of dimensions of one element, too.
    pub(super) fn is_as_made(&self) -> bool {
        let sizes = self.numbers(self.description.shape);
        if sizes.len() < 4 || !sizes.contains(&1) {
            return self.is_in_rows();
        }
        let strides = self.numbers(self.description.strides);
        let mut next = 1;
        sizes.iter().zip(strides).rev().all(|(&size, &stride)| {
            let is_so = stride == next;
            next *= size.max(1);
            is_so
        })
    }

    /// Copies the elements of a small tensor in any layout, in row-major order: PyTorch takes
    /// microseconds for any copy.
    pub(super) fn gathered(&self, element: Element) -> Option<Elements> {
        const MOST: i64 = 4096;
        let sizes = self.numbers(self.description.shape);
        let strides = self.numbers(self.description.strides);
        let len: i64 = sizes.iter().product();
        let start = self.start();
        let is_aligned = (start as usize).is_multiple_of(element.size_bytes());
        let is_readable = !start.is_null() && is_aligned && self.element() == Some(element);
        if !is_readable || !(1..=MOST).contains(&len) || sizes.len() != strides.len() {
            return None;
        }
        // SAFETY: the tensor, which is borrowed, has elements of this type, aligned, at all
        // multiples of its strides that are within its sizes. Nobody writes to them meanwhile, as
        // for any operator of PyTorch.
        Some(unsafe {
            match element {
                Element::F32 => Elements::F32(gathered(start.cast(), sizes, strides, len)),
                Element::F64 => Elements::F64(gathered(start.cast(), sizes, strides, len)),
                Element::I64 => Elements::I64(gathered(start.cast(), sizes, strides, len)),
                Element::Bool => Elements::bools(gathered(start.cast(), sizes, strides, len)),
            }
        })
    }
}

/// The integers with these bytes.
fn widened<T: Into<i64>, const N: usize>(bytes: &[u8], from: fn([u8; N]) -> T) -> Vec<i64> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks.iter().map(|own| from(*own).into()).collect()
}

/// Copies `len` elements in row-major order.
///
/// # Safety
/// There is an element to read at all multiples of `strides` within `sizes`, with product `len`.
unsafe fn gathered<T: Copy>(start: *const T, sizes: &[i64], strides: &[i64], len: i64) -> Vec<T> {
    /// # Safety
    /// As above.
    unsafe fn gather<T: Copy>(to: &mut Vec<T>, from: *const T, sizes: &[i64], strides: &[i64]) {
        let ([size, sizes @ ..], [stride, strides @ ..]) = (sizes, strides) else {
            // SAFETY: by the contract of this function.
            to.push(unsafe { from.read() });
            return;
        };
        for number in 0..*size {
            let from = from.wrapping_offset((number * stride) as isize);
            // SAFETY: by the contract of this function, for each of these.
            unsafe { gather(to, from, sizes, strides) };
        }
    }
    let mut to = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    // SAFETY: by the contract of this function.
    unsafe { gather(&mut to, start, sizes, strides) };
    to
}

/// Whether the memory of `all[number]` overlaps that of the others, or `elsewhere`, the other memory that
/// a call uses.
fn is_shared(all: &[Described<'_>], number: usize, elsewhere: &[Range<usize>]) -> bool {
    let bytes = all[number].bytes();
    let is_met = |other: &Range<usize>| bytes.start < other.end && other.start < bytes.end;
    let mut others = all.iter().enumerate().filter(|(at, _)| *at != number);
    elsewhere.iter().any(is_met) || others.any(|(_, other)| is_met(&other.bytes()))
}

/// The bits of the elements of `all[number]`, for writing, if they have 16; otherwise as
/// [`writable`].
pub(super) fn writable_halves<'a>(
    all: &[Described<'a>],
    number: usize,
    shape: &[usize],
    elsewhere: &[Range<usize>],
) -> Option<(&'a mut [u16], Half)> {
    let (bits, half) = all[number].halves(shape)?;
    let len = bits.len();
    if is_shared(all, number, elsewhere) {
        return None;
    }
    // SAFETY: `halves` has found `len` elements of 16 bits from the start, aligned, which live as long
    // as the tensor; what it has returned is no longer used. No other tensor of the call lies there. As for
    // any operator of PyTorch, nobody else may use this memory while the program runs.
    let bits = unsafe { std::slice::from_raw_parts_mut(all[number].start().cast(), len) };
    Some((bits, half))
}

/// The elements of `all[number]`, for writing, if they are contiguous, and overlap neither the
/// others nor `elsewhere`, the other memory that a call uses.
pub(super) fn writable<'a>(
    all: &[Described<'a>],
    number: usize,
    (element, shape): (Element, &[usize]),
    elsewhere: &[Range<usize>],
) -> Option<DataMut<'a>> {
    let own = &all[number];
    // Truth values have to be 0 or 1, and numbers to be stored as their values.
    let len = own.data(element, shape)?.len();
    if len == 0 {
        return Some(match element {
            Element::F32 => DataMut::F32(&mut []),
            Element::F64 => DataMut::F64(&mut []),
            Element::I64 => DataMut::I64(&mut []),
            Element::Bool => DataMut::Bool(&mut []),
        });
    }
    if is_shared(all, number, elsewhere) {
        return None;
    }
    let start = own.start();
    // SAFETY: `data` has found `len` elements of this type from `start`, aligned, which live as
    // long as the tensor. No other tensor of the call lies there. As for any operator of PyTorch,
    // nobody else may use this memory while the program runs.
    Some(unsafe {
        match element {
            Element::F32 => DataMut::F32(std::slice::from_raw_parts_mut(start.cast(), len)),
            Element::F64 => DataMut::F64(std::slice::from_raw_parts_mut(start.cast(), len)),
            Element::I64 => DataMut::I64(std::slice::from_raw_parts_mut(start.cast(), len)),
            Element::Bool => DataMut::Bool(std::slice::from_raw_parts_mut(start.cast(), len)),
        }
    })
}

/// Whether all of `values` are strided tensors of PyTorch's own classes on the CPU, of types that
/// programs support.
#[pyfunction]
pub(super) fn are_native(values: &Bound<'_, PyTuple>) -> PyResult<bool> {
    Ok(match Exchange::get(values.py())? {
        Some(exchange) => values.iter().all(|own| exchange.is_native(&own)),
        None => false,
    })
}

/// Names of the element types of PyTorch that programs have.
#[pyfunction]
pub(super) fn native_dtypes() -> Vec<&'static str> {
    DTYPES.iter().map(|dtype| dtype.name()).collect()
}

/// Whether a tensor requires a gradient.
pub(crate) fn requires_grad(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    match Exchange::get(tensor.py())? {
        Some(exchange) => exchange.requires_grad(tensor),
        None => {
            let requires = tensor.getattr(intern!(tensor.py(), "requires_grad"))?;
            requires.is_truthy()
        }
    }
}
