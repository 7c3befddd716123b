//! Whether anything of a tensor has changed, seen in PyTorch's own structures without a call of it.
//!
//! A program has hundreds of weights, and asking for the version and the layout of one takes 150 ns. The structures are
//! those of `c10/core/TensorImpl.h`, `StorageImpl.h` and `torch/csrc/autograd/python_variable.h`, as far as they are
//! used. [`is_known`] says whether they are this PyTorch's: tensors of many kinds are made and looked at, by a way of
//! reading memory that fails where there is none. Where they are not, everybody asks PyTorch.

#![expect(unsafe_code, reason = "structures of PyTorch")]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// `THPVariable`
#[repr(C)]
struct TensorObject {
    head: ffi::PyObject,
    own: *const TensorImpl,
}

/// `c10::TensorImpl`
#[repr(C)]
struct TensorImpl {
    table: usize,
    references: u64,
    storage: *const StorageImpl,
    autograd: usize,
    extra: usize,
    version: *const VersionCounter,
    object: usize,
    /// Rank, five sizes, five strides, the offset, how many elements, type and device, keys of dispatch.
    form: [u64; FORM],
}

const FORM: usize = 15;
/// The most dimensions of which sizes lie in the structure itself.
const MOST: u64 = 5;

/// `c10::VariableVersion::VersionCounter`
#[repr(C)]
struct VersionCounter {
    table: usize,
    references: u64,
    version: AtomicU32,
}

/// `c10::StorageImpl`
#[repr(C)]
struct StorageImpl {
    table: usize,
    references: u64,
    data: usize,
}

/// All that a tensor was when it was looked at. Whoever has this keeps another tensor with its elements and its
/// counter, so that no others can lie in their places.
pub(super) struct Seen {
    class: usize,
    own: usize,
    storage: usize,
    data: usize,
    counter: usize,
    version: u32,
    form: [u64; FORM],
}

impl Seen {
    /// A tensor of PyTorch itself, that is strided and counts writes; None where structures are not known.
    pub(super) fn of(tensor: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if !is_known(tensor.py())? {
            return Ok(None);
        }
        // SAFETY: the structures are as they are written down here, and the tensor is alive.
        let seen = unsafe {
            let own = (*tensor.as_ptr().cast::<TensorObject>()).own;
            let (storage, counter) = ((*own).storage, (*own).version);
            if storage.is_null() || counter.is_null() || (*own).form[0] > MOST {
                return Ok(None);
            }
            Self {
                class: ffi::Py_TYPE(tensor.as_ptr()).addr(),
                own: own.addr(),
                storage: storage.addr(),
                data: (*storage).data,
                counter: counter.addr(),
                version: (*counter).version.load(Relaxed),
                form: (*own).form,
            }
        };
        Ok(Some(seen))
    }

    /// Whether `tensor`, which it was made of, is as it was.
    #[inline]
    pub(super) fn is_current(&self, tensor: &Py<PyAny>, _attached: Python<'_>) -> bool {
        // SAFETY: `of` has found the structures to be known; the tensor is alive, and has its own of them. Storage and
        // counter are looked into once they are those of then, which are alive.
        unsafe {
            let own = (*tensor.as_ptr().cast::<TensorObject>()).own;
            ffi::Py_TYPE(tensor.as_ptr()).addr() == self.class
                && own.addr() == self.own
                && (*own).storage.addr() == self.storage
                && (*own).version.addr() == self.counter
                && (*(*own).version).version.load(Relaxed) == self.version
                && (*(*own).storage).data == self.data
                && (*own).form == self.form
        }
    }
}

/// Whether the structures are this PyTorch's.
fn is_known(py: Python<'_>) -> PyResult<bool> {
    static KNOWN: PyOnceLock<bool> = PyOnceLock::new();
    let known = KNOWN.get_or_try_init(py, || PyResult::Ok(probed(py).unwrap_or(false)))?;
    Ok(*known)
}

/// The memory of this process, read without risk.
struct Memory(std::fs::File);

impl Memory {
    /// So many words from an address; None where nothing is.
    fn words<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        #[cfg(target_os = "linux")]
        {
            let mut words = [0; N];
            for (number, word) in words.iter_mut().enumerate() {
                let mut bytes = [0; 8];
                let at = at.checked_add(8 * number as u64)?;
                std::os::unix::fs::FileExt::read_exact_at(&self.0, &mut bytes, at).ok()?;
                *word = u64::from_ne_bytes(bytes);
            }
            Some(words)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (at, &self.0);
            None
        }
    }
}

/// Words of a `TensorImpl`, of a `StorageImpl` and of a `VersionCounter`.
type Words = ([u64; 22], [u64; 3], [u64; 3]);

/// The words of a tensor's `TensorImpl`, of its storage and of its counter, if they are what PyTorch says.
fn agreed(memory: &Memory, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Words>> {
    let py = tensor.py();
    let address = |own: &Bound<'_, PyAny>| own.getattr(intern!(py, "_cdata"))?.extract::<u64>();
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    let data: u64 = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
    let version: u64 = tensor.getattr(intern!(py, "_version"))?.extract()?;
    let sizes: Vec<u64> = tensor.getattr(intern!(py, "shape"))?.extract()?;
    let strides: Vec<u64> = tensor.call_method0(intern!(py, "stride"))?.extract()?;
    let offset: u64 = tensor
        .call_method0(intern!(py, "storage_offset"))?
        .extract()?;
    let numel: u64 = tensor.call_method0(intern!(py, "numel"))?.extract()?;
    let own = address(tensor)?;
    let found = || {
        let object: [u64; 3] = memory.words(tensor.as_ptr().addr() as u64)?;
        let words: [u64; 22] = memory.words(own)?;
        let kept: [u64; 3] = memory.words(words[2])?;
        let counter: [u64; 3] = memory.words(words[5])?;
        let rank = sizes.len();
        let is_so = object[2] == own
            && words[7] == rank as u64
            && words[8..8 + rank] == sizes[..]
            && words[13..13 + rank] == strides[..]
            && words[18] == offset
            && words[19] == numel
            && kept[2] == data
            && counter[2] & u64::from(u32::MAX) == version;
        is_so.then_some((words, kept, counter))
    };
    Ok(match found() {
        Some(found) if found.0[2] == address(&storage)? => Some(found),
        _ => None,
    })
}

fn probed(py: Python<'_>) -> PyResult<bool> {
    if size_of::<usize>() != 8 || size_of::<TensorImpl>() != 22 * 8 {
        return Ok(false);
    }
    let Ok(memory) = std::fs::File::open("/proc/self/mem").map(Memory) else {
        return Ok(false);
    };
    let torch = py.import("torch")?;
    let tensor = torch.getattr("Tensor")?;
    if tensor.getattr("__basicsize__")?.extract::<usize>()? < size_of::<TensorObject>() {
        return Ok(false);
    }
    let no_grad = torch.call_method0("no_grad")?;
    no_grad.call_method0("__enter__")?;
    let result = all_agree(&memory, &torch);
    no_grad.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    result
}

/// A view of a tensor with these sizes and strides, from this element on.
fn strided<'py>(
    own: &Bound<'py, PyAny>,
    sizes: &[usize],
    strides: &[usize],
    offset: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = own.py();
    let (sizes, strides) = (PyTuple::new(py, sizes)?, PyTuple::new(py, strides)?);
    own.call_method1("as_strided", (sizes, strides, offset))
}

/// Whether tensors of many kinds are what PyTorch says, and changes of them are seen.
fn all_agree(memory: &Memory, torch: &Bound<'_, PyModule>) -> PyResult<bool> {
    let py = torch.py();
    let zeros = |len: usize, dtype: &str| {
        let options = pyo3::types::PyDict::new(py);
        options.set_item("dtype", torch.getattr(dtype)?)?;
        options.set_item("device", "cpu")?;
        torch.call_method("zeros", (len,), Some(&options))
    };
    let base = zeros(4096, "float32")?;
    let own = strided(&base, &[3, 5, 7], &[300, 50, 6], 9)?;
    let like = strided(&zeros(4096, "float32")?, &[3, 5, 7], &[300, 50, 6], 9)?;
    let doubled = strided(&zeros(4096, "float64")?, &[3, 5, 7], &[300, 50, 6], 9)?;
    let five = strided(
        &zeros(4096, "int64")?,
        &[2, 3, 4, 5, 6],
        &[1, 2, 3, 4, 5],
        17,
    )?;
    let one = strided(&zeros(8, "bool")?, &[], &[], 3)?;
    let weight = zeros(12, "float32")?.call_method1("reshape", (3, 4))?;
    let weight = torch
        .getattr("nn")?
        .getattr("Parameter")?
        .call1((weight,))?;
    for _ in 0..3 {
        own.call_method1("add_", (1,))?;
    }
    let (Some(first), Some(_), Some(other), Some(typed), Some(_), Some(_), Some(_)) = (
        agreed(memory, &own)?,
        agreed(memory, &base)?,
        agreed(memory, &like)?,
        agreed(memory, &doubled)?,
        agreed(memory, &five)?,
        agreed(memory, &one)?,
        agreed(memory, &weight)?,
    ) else {
        return Ok(false);
    };
    // What is alike has the same form, and another type and another key of dispatch are seen.
    let negated = torch.call_method1("_neg_view", (&own,))?;
    let (Some(negative), form) = (agreed(memory, &negated)?, 7..22) else {
        return Ok(false);
    };
    let mut is_so = first.0[form.clone()] == other.0[form]
        && first.0[20] != typed.0[20]
        && first.0[21] != negative.0[21]
        && first.0[5] != other.0[5];
    // A write through the other one of two that share memory is counted.
    base.call_method1("add_", (1,))?;
    let written = agreed(memory, &own)?;
    is_so &= written.is_some_and(|own| own.0[5] == first.0[5] && own.2[2] != first.2[2]);
    // `tensor.data = …` keeps the structure, and other storage or sizes are seen in it.
    let before = agreed(memory, &weight)?;
    let data = zeros(12, "float32")?.call_method1("reshape", (3, 4))?;
    weight.setattr("data", data)?;
    let after = agreed(memory, &weight)?;
    weight.setattr("data", zeros(5, "float32")?)?;
    let shorter = agreed(memory, &weight)?;
    if let (Some(before), Some(after), Some(shorter)) = (before, after, shorter) {
        is_so &= before.0[2] != after.0[2] && after.0[8] != shorter.0[8];
    } else {
        return Ok(false);
    }
    // Storage that grows keeps its structure, and lies elsewhere.
    let storage = like.call_method0("untyped_storage")?;
    storage.call_method1("resize_", (1 << 20,))?;
    let grown = agreed(memory, &like)?;
    Ok(is_so && grown.is_some_and(|own| own.0[2] == other.0[2] && own.1[2] != other.1[2]))
}

/// Whether structures of tensors are known, for tests.
#[pyfunction]
pub(super) fn knows_tensor_layout(py: Python<'_>) -> PyResult<bool> {
    is_known(py)
}
