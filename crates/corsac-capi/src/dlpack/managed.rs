//! The two forms of managed tensors, versioned and not.

use super::abi::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use crate::error::Fault;

/// The version that is written, the oldest one with the layout of today.
const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };
/// `DLPACK_FLAG_BITMASK_READ_ONLY`
const READ_ONLY: u64 = 1;

/// Gives a tensor back.
pub(super) type Deleter<T> = unsafe extern "C" fn(*mut T);

/// A form of managed tensors.
pub(super) trait Managed: Sized + 'static {
    /// A tensor of this library.
    fn new(tensor: DLTensor, read_only: bool, deleter: Deleter<Self>) -> Result<Self, Fault>;

    /// Checks that a tensor has the layout of this type.
    ///
    /// # Safety
    /// `managed` points to such a tensor, in any version.
    unsafe fn check(managed: *const Self) -> Result<(), Fault>;

    fn tensor(&self) -> &DLTensor;

    fn is_read_only(&self) -> bool;

    fn deleter(&self) -> Option<Deleter<Self>>;
}

impl Managed for DLManagedTensor {
    fn new(dl_tensor: DLTensor, read_only: bool, deleter: Deleter<Self>) -> Result<Self, Fault> {
        match read_only {
            true => Err(Fault::Unversioned),
            false => Ok(Self {
                dl_tensor,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(deleter),
            }),
        }
    }

    unsafe fn check(_managed: *const Self) -> Result<(), Fault> {
        Ok(())
    }

    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn deleter(&self) -> Option<Deleter<Self>> {
        self.deleter
    }
}

impl Managed for DLManagedTensorVersioned {
    fn new(dl_tensor: DLTensor, read_only: bool, deleter: Deleter<Self>) -> Result<Self, Fault> {
        Ok(Self {
            version: VERSION,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(deleter),
            flags: if read_only { READ_ONLY } else { 0 },
            dl_tensor,
        })
    }

    unsafe fn check(managed: *const Self) -> Result<(), Fault> {
        // SAFETY: all versions begin with their number.
        let DLPackVersion { major, minor } = unsafe { managed.cast::<DLPackVersion>().read() };
        match major == VERSION.major {
            true => Ok(()),
            false => Err(Fault::Version { major, minor }),
        }
    }

    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn is_read_only(&self) -> bool {
        self.flags & READ_ONLY != 0
    }

    fn deleter(&self) -> Option<Deleter<Self>> {
        self.deleter
    }
}
