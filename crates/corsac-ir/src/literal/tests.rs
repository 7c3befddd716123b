use num_bigint::BigInt;

use super::*;
use crate::dtype::DeviceKind;

fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut out = String::new();
    write(&mut out).unwrap();
    out
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn float_of(hex: &str) -> f64 {
    f64::from_bits(u64::from_str_radix(hex, 16).unwrap())
}

/// Each row was printed by CPython 3.11 (scripts/literals.py).
#[test]
fn literals_are_python_literals() {
    let table = include_str!("../../tests/data/literals.txt");
    let mut rows = 0;
    for row in table.lines() {
        let (kind, rest) = row.split_once(' ').unwrap();
        let (value, expected) = rest.split_once(' ').unwrap();
        let actual = written(|out| match kind {
            "float" => write_float(out, float_of(value)),
            "complex" => {
                let (real, imag) = value.split_at(16);
                write_complex(out, float_of(real), float_of(imag))
            }
            "str" => write_str(out, &String::from_utf8(bytes_of(value)).unwrap()),
            "bytes" => write_bytes(out, &bytes_of(value)),
            other => panic!("unknown kind {other}"),
        });
        assert_eq!(actual, expected, "{row}");
        rows += 1;
    }
    assert!(rows > 500);
}

#[test]
fn huge_integers_are_hexadecimal() {
    let limit = BigInt::from(10).pow(4299);
    assert_eq!(written(|out| write_big_int(out, &limit)).len(), 4300);
    let beyond = -(BigInt::from(1) << 14284u32);
    let text = written(|out| write_big_int(out, &beyond));
    assert_eq!(&text[..5], "-0x10");
    let small = BigInt::from(u64::MAX);
    assert_eq!(
        written(|out| write_big_int(out, &small)),
        "18446744073709551615"
    );
}

#[test]
fn devices_print_as_calls() {
    let mut device = Device {
        kind: DeviceKind::Cpu,
        index: None,
    };
    assert_eq!(
        written(|out| write_device(out, device)),
        "device(type='cpu')"
    );
    (device.kind, device.index) = (DeviceKind::Cuda, Some(1));
    assert_eq!(
        written(|out| write_device(out, device)),
        "device(type='cuda', index=1)"
    );
}

proptest::proptest! {
    #[test]
    fn floats_read_back(bits: u64) {
        let value = f64::from_bits(bits);
        let text = written(|out| write_float(out, value));
        let read: f64 = text.parse().unwrap();
        proptest::prop_assert!(read.to_bits() == value.to_bits() || value.is_nan());
    }

    #[test]
    fn strings_stay_on_one_line(text: String) {
        let repr = written(|out| write_str(out, &text));
        proptest::prop_assert!(repr.chars().all(is_printable));
        proptest::prop_assert!(repr.len() >= text.len() + 2);
    }
}
