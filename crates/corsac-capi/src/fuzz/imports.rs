//! Tensors of DLPack with any numbers, taken over and given back.

use std::ptr::null_mut;

use super::checked;
use super::choices::Choices;
use super::owned::NUMBERS;
use crate::dlpack::abi::{DLDataType, DLDevice, DLPackVersion, DLTensor};
use crate::{
    DLManagedTensorVersioned, Status, corsac_tensor_free, corsac_tensor_from_dlpack_versioned,
};

/// Counts that a tensor is given back.
unsafe extern "C" fn count(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the context of the tensors below is a number that outlives them.
    unsafe { *(*managed).manager_ctx.cast::<usize>() += 1 };
}

/// Imports a tensor and frees it: it is given back once if it was taken, and otherwise not at all. Its
/// elements are not read, since nothing says how many there are.
pub(super) fn import(choices: &mut Choices<'_>) {
    let (mut shape, mut strides) = ([2; NUMBERS], [1; NUMBERS]);
    let (mut given_back, mut element) = (0_usize, 0_u64);
    for numbers in [&mut shape, &mut strides] {
        if choices.below(4) == 3 {
            numbers[usize::from(choices.below(4))] = choices.number();
        }
    }
    let is_wrong = |choices: &mut Choices<'_>| choices.below(8) == 7;
    let mut managed = DLManagedTensorVersioned {
        version: DLPackVersion {
            major: if is_wrong(choices) {
                choices.byte().into()
            } else {
                1
            },
            minor: choices.byte().into(),
        },
        manager_ctx: (&raw mut given_back).cast(),
        deleter: Some(count),
        flags: choices.byte().into(),
        dl_tensor: DLTensor {
            data: (&raw mut element).cast(),
            device: DLDevice {
                device_type: if is_wrong(choices) {
                    choices.byte().into()
                } else {
                    1
                },
                device_id: 0,
            },
            ndim: i32::from(choices.below(NUMBERS as u8)) - 2,
            dtype: DLDataType {
                code: choices.below(8),
                bits: 8 << choices.below(4),
                lanes: if is_wrong(choices) {
                    choices.byte().into()
                } else {
                    1
                },
            },
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: choices.number().cast_unsigned(),
        },
    };
    if is_wrong(choices) {
        managed.dl_tensor.data = null_mut();
    }
    if is_wrong(choices) {
        managed.dl_tensor.shape = null_mut();
    }
    if is_wrong(choices) {
        managed.dl_tensor.strides = null_mut();
    }
    let mut tensor = null_mut();
    let status = checked(|error| {
        // SAFETY: all that is not null has as many numbers as dimensions; elements are not read.
        unsafe { corsac_tensor_from_dlpack_versioned(&mut managed, &mut tensor, error) }
    });
    // SAFETY: it is null, or was made here.
    unsafe { corsac_tensor_free(tensor) };
    let own = managed.manager_ctx.cast::<usize>();
    // SAFETY: it is the number above.
    let given_back = unsafe { own.read() };
    assert_eq!(given_back, usize::from(status == Status::Ok));
}
