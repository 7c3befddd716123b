//! Samples compiled by CPython 3.11 to 3.14; `scripts/generate_bytecode_fixtures.py` writes the
//! fixtures anew.

use std::io::BufRead;

use corsac_bytecode::{Code, ConstKind, Frame, Names, RawCode, Slot, Version};
use serde_json::Value;

/// Arguments of the stack effects in the fixtures.
const ARGS: [u32; 9] = [0, 1, 2, 3, 4, 5, 8, 15, 255];

fn fixture(version: Version) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    let text = std::fs::read_to_string(format!("{folder}/{version}.jsonl")).expect("a fixture");
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

fn bytes(value: &Value) -> Vec<u8> {
    let digits = value.as_str().expect("hexadecimal digits").as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    let pairs = digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]));
    pairs.collect()
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().expect("a list").iter();
    items
        .map(|it| it.as_str().expect("a string").to_owned())
        .collect()
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("a number") as usize
}

fn slot(value: &Value) -> Slot {
    match value.as_str() {
        Some("iterator") => Slot::Iterator,
        Some("async iterator") => Slot::AsyncIterator,
        Some("tuple") => Slot::Tuple,
        Some("dict") => Slot::Dict,
        _ => Slot::Argument,
    }
}

fn const_kind(value: &Value) -> ConstKind {
    match value[0].as_str() {
        Some("none") => ConstKind::None,
        Some("str") => ConstKind::Str,
        Some("tuple") => ConstKind::Tuple(value[1].as_u64().map(|count| count as usize)),
        Some("code") => ConstKind::Code {
            free: number(&value[1]),
            generator: value[2] == true,
            parameters: [slot(&value[3][0]), slot(&value[3][1])],
        },
        _ => ConstKind::Other,
    }
}

fn frame(value: &Value) -> Frame {
    let locals = strings(&value["locals"]);
    let (parameters, free) = (number(&value["parameters"]), number(&value["free"]));
    let slot = |index| match index {
        _ if index >= locals.len() - free => Slot::Free,
        _ if index >= parameters && locals[index] == ".type_params" => Slot::TupleCell,
        _ if index >= parameters => Slot::Unbound,
        0 | 1 => slot(&value["first_parameters"][index]),
        _ => Slot::Argument,
    };
    Frame {
        flags: number(&value["flags"]) as u32,
        consts: value["kinds"]
            .as_array()
            .expect("a list")
            .iter()
            .map(const_kind)
            .collect(),
        names: strings(&value["names"]),
        slots: (0..locals.len()).map(slot).collect(),
    }
}

#[test]
fn opcodes_are_those_of_each_version() {
    for version in Version::ALL {
        let fixture = fixture(version);
        let rows = fixture[0].as_array().expect("opcodes");
        assert_eq!(rows.len(), version.ops().count(), "{version}");
        for row in rows {
            let name = row[1].as_str().expect("a name");
            let op = version.op_named(name).expect("an opcode of the version");
            let known = (usize::from(op.code), op.has_arg(), usize::from(op.caches));
            let expected = (number(&row[0]), row[2] == true, number(&row[3]));
            assert_eq!(known, expected, "{version} {name}");
            let args = if op.has_arg() { &ARGS[..] } else { &[0] };
            let asked = [false, true]
                .into_iter()
                .flat_map(|jump| args.iter().map(move |arg| (*arg, jump)));
            for ((arg, jump), effect) in asked.zip(row[4].as_array().expect("effects")) {
                // The version ignores flags that it does not have.
                let out_of_range = matches!(name, "MAKE_FUNCTION" | "UNPACK_EX") && arg > 15;
                if let Some(effect) = effect.as_i64()
                    && !out_of_range
                {
                    assert_eq!(
                        op.stack_effect(arg, jump),
                        effect,
                        "{version} {name} {arg} {jump}"
                    );
                }
            }
        }
    }
}

#[test]
fn code_objects_round_trip_read_as_in_dis_and_are_accepted() {
    for version in Version::ALL {
        let fixture = fixture(version);
        assert!(fixture.len() > 30);
        for value in &fixture[1..] {
            check(version, value);
        }
    }
}

/// All of a standard library passes the checks: `scripts/generate_bytecode_fixtures.py --library
/// FILE PYTHON` writes the file that `CORSAC_BYTECODE_LIBRARY=FILE` names.
#[test]
#[ignore = "needs a file of some hundred megabytes"]
fn the_library() {
    let path = std::env::var("CORSAC_BYTECODE_LIBRARY").expect("CORSAC_BYTECODE_LIBRARY");
    let file = std::fs::File::open(path).expect("a file");
    let mut count = 0;
    for line in std::io::BufReader::new(file).lines() {
        let value: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let version = value["version"].as_str().expect("a version");
        check(version.parse().expect("a known version"), &value);
        count += 1;
    }
    println!("{count} code objects");
}

/// Checks that a code object is read and written as it is, listed as by `dis`, accepted, and has
/// the stack size of its compiler.
fn check(version: Version, value: &Value) {
    let name = format!("{version} {}", value["name"]);
    let raw = RawCode {
        code: bytes(&value["code"]),
        exception_table: bytes(&value["exceptions"]),
        line_table: bytes(&value["lines"]),
        first_line: number(&value["first_line"]) as i32,
    };
    let code = Code::disassemble(version, &raw).expect(&name);
    assert_eq!(code.assemble(raw.first_line).expect(&name), raw, "{name}");
    let frame = frame(value);
    let consts = strings(&value["consts"]);
    let locals = strings(&value["locals"]);
    let names = Names {
        consts: &consts,
        names: &frame.names,
        locals: &locals,
    };
    let listing = code.listing(&names).expect(&name);
    assert_eq!(
        listing.text(),
        value["text"].as_str().expect("text"),
        "{name}"
    );
    let size = number(&value["stack_size"]) as u32;
    assert_eq!(code.stack_size(frame.flags), Ok(size), "{name}");
    assert_eq!(code.verify(&frame), Ok(size), "{name}");
}

/// Code that is changed a little is read or refused, and accepted code has the stack size that
/// [`Code::stack_size`] computes.
#[test]
fn changed_code_is_read_or_refused() {
    for version in Version::ALL {
        for value in &fixture(version)[1..] {
            let (code, lines) = (bytes(&value["code"]), bytes(&value["lines"]));
            let exceptions = bytes(&value["exceptions"]);
            for at in (0..code.len().min(120)).step_by(3) {
                let mut raw = RawCode {
                    code: code.clone(),
                    exception_table: exceptions.clone(),
                    line_table: lines.clone(),
                    first_line: 1,
                };
                raw.code[at] = raw.code[at].wrapping_add(at as u8 + 1);
                if let Some(byte) = raw.exception_table.get_mut(at) {
                    *byte ^= 1 << (at % 8);
                }
                raw.line_table.truncate(lines.len() - at % 3);
                corsac_bytecode::fuzz::check(version, &raw, number(&value["flags"]) as u32);
            }
        }
    }
}
