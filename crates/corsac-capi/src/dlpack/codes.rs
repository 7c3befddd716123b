//! Numbers of DLPack for devices and element types.

use corsac_engine::DType;
use corsac_engine::dlpack::CPU;

use super::abi::{DLDataType, DLDevice};
use crate::error::Fault;

/// Names of devices by their numbers.
const DEVICES: [(i32, &str); 16] = [
    (1, "cpu"),
    (2, "cuda"),
    (3, "cuda_host"),
    (4, "opencl"),
    (7, "vulkan"),
    (8, "metal"),
    (9, "vpi"),
    (10, "rocm"),
    (11, "rocm_host"),
    (12, "ext_dev"),
    (13, "cuda_managed"),
    (14, "oneapi"),
    (15, "webgpu"),
    (16, "hexagon"),
    (17, "maia"),
    (18, "trn"),
];

/// Names of codes, in order.
const CODES: [&str; 7] = [
    "int", "uint", "float", "handle", "bfloat", "complex", "bool",
];

/// Checks that the memory of a device is that of the process.
pub(super) fn check_device(device: DLDevice) -> Result<(), Fault> {
    let DLDevice {
        device_type,
        device_id,
    } = device;
    if device_type == CPU.device_type {
        return Ok(());
    }
    let name = DEVICES.iter().find(|(number, _)| *number == device_type);
    Err(Fault::Device {
        device: match name {
            Some((_, name)) => format!("{name}:{device_id}"),
            None => format!("device {device_id} of type {device_type}"),
        },
    })
}

/// The type with these numbers.
pub(super) fn read_type(own: DLDataType) -> Result<DType, Fault> {
    own.dtype().ok_or_else(|| {
        let DLDataType { code, bits, lanes } = own;
        let name = match CODES.get(usize::from(code)) {
            Some(name) => format!("{name}{bits}"),
            None => format!("{bits} bits of code {code}"),
        };
        Fault::Elements(match lanes {
            1 => name,
            _ => format!("{lanes} lanes of {name}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_types_of_the_engine_have_numbers() {
        for &dtype in corsac_engine::DTYPES {
            let own = DLDataType::of(dtype).unwrap();
            assert_eq!(read_type(own).unwrap(), dtype);
            assert_eq!(usize::from(own.bits), 8 * crate::dtype::size_bytes(dtype));
        }
    }

    #[test]
    fn other_types_and_devices_are_named() {
        let of = |code, bits, lanes| {
            let fault = read_type(DLDataType { code, bits, lanes }).unwrap_err();
            fault.to_string()
        };
        assert_eq!(of(5, 64, 1), "elements of complex64 are not supported");
        assert_eq!(of(1, 16, 1), "elements of uint16 are not supported");
        let expected = "elements of 4 lanes of float32 are not supported";
        assert_eq!(of(2, 32, 4), expected);
        let expected = "elements of 8 bits of code 200 are not supported";
        assert_eq!(of(200, 8, 1), expected);
        let device = |device_type, device_id| {
            let device = DLDevice {
                device_type,
                device_id,
            };
            check_device(device).unwrap_err().to_string()
        };
        assert_eq!(device(2, 3), "it is on cuda:3, and memory on cpu is needed");
        assert_eq!(
            device(99, 0),
            "it is on device 0 of type 99, and memory on cpu is needed"
        );
        assert!(check_device(CPU).is_ok());
    }
}
