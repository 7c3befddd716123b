//! Memory layout of tensors in PyTorch's own structures: address and state are read without a call.
//!
//! A program has hundreds of weights, and asking for the version and the layout of one takes 150
//! ns. The structures are those of `c10/core/TensorImpl.h`, `StorageImpl.h` and
//! `torch/csrc/autograd/python_variable.h`, as far as they are used. [`known`] finds out whether
//! the installed PyTorch has them: tensors of many kinds are made and inspected, by a way of
//! reading memory that fails where there is none. If it does not have them, everybody asks PyTorch.

#![expect(unsafe_code, reason = "structures of PyTorch")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use corsac_engine::dlpack::DLDataType;
use corsac_engine::{DTYPES, DType};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use super::probe::{in_new_thread, within};

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
    /// Rank, five sizes, five strides, the offset, number of elements, type and device, dispatch
    /// keys.
    form: [u64; FORM],
}

const FORM: usize = 15;
/// Largest number of dimensions whose sizes are in the structure itself.
const MOST: u64 = 5;
/// Mask for the type of elements and the device in the word that also has flags.
const TYPE_AND_DEVICE: u64 = (1 << 40) - 1;

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

/// Full state of a tensor when it was seen. Its owner keeps another tensor with the same elements
/// and version counter alive, so that nothing else can take their addresses.
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
    /// State of a tensor of PyTorch's own classes that is strided and counts writes; None if
    /// structures are unknown.
    pub(super) fn of(tensor: &Bound<'_, PyAny>) -> Option<Self> {
        known(tensor.py())?;
        // SAFETY: the structures are as they are written down here, and the tensor is alive.
        unsafe {
            let own = (*tensor.as_ptr().cast::<TensorObject>()).own;
            let (storage, counter) = ((*own).storage, (*own).version);
            if storage.is_null() || counter.is_null() || (*own).form[0] > MOST {
                return None;
            }
            Some(Self {
                class: ffi::Py_TYPE(tensor.as_ptr()).addr(),
                own: own.addr(),
                storage: storage.addr(),
                data: (*storage).data,
                counter: counter.addr(),
                version: (*counter).version.load(Relaxed),
                form: (*own).form,
            })
        }
    }

    /// Whether `tensor`, whose state this is, is unchanged.
    #[inline]
    pub(super) fn is_current(&self, tensor: &Py<PyAny>, _attached: Python<'_>) -> bool {
        // SAFETY: `of` has found the structures to be known; the tensor is alive, and has its own
        // of them. Storage and counter are looked into once they are those of then, which are
        // alive.
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

/// An ordinary tensor on the CPU: strided, with elements that are stored as their values.
pub(super) struct Dense {
    /// The address of its storage.
    pub(super) storage: usize,
    /// Start of its storage.
    pub(super) data: *mut c_void,
    /// Number of elements before its own.
    pub(super) offset: u64,
    pub(super) dtype: DLDataType,
    pub(super) rank: i32,
    /// Sizes, `rank` of them, and strides, as many: the tensor's own.
    pub(super) sizes: *mut i64,
    pub(super) strides: *mut i64,
}

impl Dense {
    /// Description of `tensor`, which is of a class of PyTorch's own, no subclass; None if it is
    /// not ordinary, or structures are unknown.
    #[inline]
    pub(super) fn of(tensor: &Bound<'_, PyAny>) -> Option<Self> {
        let known = known(tensor.py())?;
        // SAFETY: the structures are as they are written down here, and the tensor is alive. One on
        // the CPU has storage.
        unsafe {
            let own = (*tensor.as_ptr().cast::<TensorObject>()).own;
            let form = &(*own).form;
            let is_ordinary =
                (*own).extra == 0 && form[0] <= MOST && known.keys.contains(&form[FORM - 1]);
            if !is_ordinary {
                return None;
            }
            let kind = form[FORM - 2] & TYPE_AND_DEVICE;
            let (_, dtype) = known.types.iter().find(|(own, _)| *own == kind)?;
            let numbers = form.as_ptr().cast::<i64>().cast_mut();
            Some(Self {
                storage: (*own).storage.addr(),
                data: (*(*own).storage).data as *mut c_void,
                offset: form[11],
                dtype: *dtype,
                rank: form[0] as i32,
                sizes: numbers.add(1),
                strides: numbers.add(6),
            })
        }
    }
}

/// Words in the structures of the installed PyTorch.
struct Known {
    /// Dispatch keys of ordinary tensors on the CPU: those made as usual, and those made in
    /// inference mode.
    keys: [u64; 2],
    /// Types of elements, on the CPU.
    types: Vec<(u64, DLDataType)>,
}

/// The known words; None if the structures are not those of this module.
fn known(py: Python<'_>) -> Option<&Known> {
    static KNOWN: PyOnceLock<Option<Known>> = PyOnceLock::new();
    let probed = || in_new_thread(py, |py| probed(py).ok().flatten()).flatten();
    KNOWN.get_or_init(py, probed).as_ref()
}

/// Memory of this process, read without the risk of a crash.
struct Memory(std::fs::File);

impl Memory {
    /// `N` words from an address; None where nothing is mapped.
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

/// Words of a tensor's `TensorImpl`, of its storage and of its counter, if they agree with
/// PyTorch's answers.
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

fn probed(py: Python<'_>) -> PyResult<Option<Known>> {
    if size_of::<usize>() != 8 || size_of::<TensorImpl>() != 22 * 8 {
        return Ok(None);
    }
    let Ok(memory) = std::fs::File::open("/proc/self/mem").map(Memory) else {
        return Ok(None);
    };
    let torch = py.import("torch")?;
    let tensor = torch.getattr("Tensor")?;
    if tensor.getattr("__basicsize__")?.extract::<usize>()? < size_of::<TensorObject>() {
        return Ok(None);
    }
    let is_so = within(&torch.call_method0("no_grad")?, || {
        all_agree(&memory, &torch)
    })?;
    match is_so {
        true => known_words(&memory, &torch),
        false => Ok(None),
    }
}

/// The words of ordinary tensors.
fn known_words(memory: &Memory, torch: &Bound<'_, PyModule>) -> PyResult<Option<Known>> {
    let py = torch.py();
    let words = |device: &str, dtype: DType| -> PyResult<Option<[u64; 22]>> {
        let options = PyDict::new(py);
        options.set_item("dtype", torch.getattr(dtype.name())?)?;
        options.set_item("device", device)?;
        let own = torch.call_method("empty", (2, 3), Some(&options))?;
        Ok(memory.words(own.getattr("_cdata")?.extract()?))
    };
    let of_mode = |inference: bool| {
        let mode = torch.call_method1("inference_mode", (inference,))?;
        within(&mode, || words("cpu", DType::Float32))
    };
    let (Some(usual), Some(inference)) = (of_mode(false)?, of_mode(true)?) else {
        return Ok(None);
    };
    let mut types: Vec<(u64, DLDataType)> = Vec::new();
    for &dtype in DTYPES {
        let words = (words("cpu", dtype)?, words("meta", dtype)?);
        let ((Some(own), Some(elsewhere)), Some(numbers)) = (words, DLDataType::of(dtype)) else {
            return Ok(None);
        };
        let kind = own[20] & TYPE_AND_DEVICE;
        let is_told_apart = kind != elsewhere[20] & TYPE_AND_DEVICE
            && own[21] != elsewhere[21]
            && types.iter().all(|(other, _)| *other != kind);
        if !is_told_apart {
            return Ok(None);
        }
        types.push((kind, numbers));
    }
    Ok(Some(Known {
        keys: [usual[21], inference[21]],
        types,
    }))
}

/// A view of a tensor with these sizes and strides, from element `offset` on.
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

/// Whether the words of tensors of many kinds agree with PyTorch, and changes show in them.
fn all_agree(memory: &Memory, torch: &Bound<'_, PyModule>) -> PyResult<bool> {
    let py = torch.py();
    let zeros = |len: usize, dtype: &str| {
        let options = PyDict::new(py);
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
    // Like tensors have the same words, except for unused bits beside the flags; another type and
    // another dispatch key show.
    let negated = torch.call_method1("_neg_view", (&own,))?;
    let Some(negative) = agreed(memory, &negated)? else {
        return Ok(false);
    };
    // The type and the device do not depend on sizes and strides.
    let whole = agreed(memory, &base)?;
    let kind = |words: &[u64; 22]| words[20] & TYPE_AND_DEVICE;
    let mut is_so = first.0[7..20] == other.0[7..20]
        && kind(&first.0) == kind(&other.0)
        && first.0[21] == other.0[21]
        && whole.is_some_and(|own| kind(&own.0) == kind(&first.0))
        && kind(&first.0) != kind(&typed.0)
        && first.0[21] != negative.0[21]
        && first.0[5] != other.0[5];
    // A write through another tensor that shares the memory is counted.
    base.call_method1("add_", (1,))?;
    let written = agreed(memory, &own)?;
    is_so &= written.is_some_and(|own| own.0[5] == first.0[5] && own.2[2] != first.2[2]);
    // `tensor.data = …` keeps the structure, and other storage or sizes show in it.
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
    // Storage that grows keeps its structure, and moves.
    let storage = like.call_method0("untyped_storage")?;
    storage.call_method1("resize_", (1 << 20,))?;
    let grown = agreed(memory, &like)?;
    Ok(is_so && grown.is_some_and(|own| own.0[2] == other.0[2] && own.1[2] != other.1[2]))
}

/// Whether the structures of tensors are known, for tests.
#[pyfunction]
pub(super) fn knows_tensor_layout(py: Python<'_>) -> bool {
    known(py).is_some()
}
