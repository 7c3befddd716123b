//! Round trips, edits, and bytes that are no code.

use proptest::prelude::*;

use crate::*;

/// `while x: x = f(x)` with a handler, for each version: label 0 at the loop, 1 behind it.
fn sample(version: Version) -> Code {
    let op = |name: &str| version.op_named(name).expect("an opcode of all versions");
    let mut code = Code::new(version);
    let (again, end, handler) = (code.new_label(), code.new_label(), code.new_label());
    code.push(Instruction::new(op("RESUME"), 0).at(Location::line(1)));
    code.place(again, 1);
    code.push(Instruction::new(op("LOAD_FAST"), 0).at(Location::line(2)));
    code.push(Instruction::new(op("POP_TOP"), 0));
    code.push(Instruction::jump(op("JUMP_FORWARD"), end).at(Location {
        column: Some(3),
        end_column: Some(300),
        ..Location::line(200)
    }));
    code.push(Instruction::jump(op("JUMP_BACKWARD"), again));
    code.place(end, 5);
    code.push(Instruction::new(op("LOAD_CONST"), 0));
    code.push(Instruction::new(op("RETURN_VALUE"), 0));
    code.place(handler, 7);
    code.push(Instruction::new(op("PUSH_EXC_INFO"), 0));
    code.push(Instruction::new(op("POP_TOP"), 0));
    code.push(Instruction::new(op("POP_EXCEPT"), 0));
    code.push(Instruction::jump(op("JUMP_BACKWARD"), end));
    code.handlers_mut().push(Handler {
        start: again,
        end,
        target: handler,
        depth: 0,
        lasti: false,
    });
    code
}

fn frame() -> Frame {
    Frame {
        flags: 3,
        consts: vec![ConstKind::None],
        names: vec!["print".to_owned()],
        slots: vec![Slot::Argument],
    }
}

/// Code, read back from its bytes; the bytes, too.
fn again(code: &Code) -> (Code, RawCode) {
    let raw = code.assemble(1).expect("code that can be written");
    let read = Code::disassemble(code.version(), &raw).expect("code that was written");
    (read, raw)
}

#[test]
fn code_is_written_as_it_was_read() {
    for version in Version::ALL {
        let (read, raw) = again(&sample(version));
        assert_eq!(read.assemble(1).as_ref(), Ok(&raw), "{version}");
        assert_eq!(read.instructions().len(), 11);
        assert_eq!(read.verify(&frame()), Ok(2), "{version}");
        assert_eq!(read.label_count(), 3);
    }
}

#[test]
fn instructions_are_put_in_and_everything_else_moves() {
    let version = Version::V3_11;
    let nop = Instruction::new(version.op_named("NOP").expect("NOP"), 0);
    let mut code = sample(version);
    // Far enough for EXTENDED_ARG: 70,000 instructions between the jump and its target.
    code.insert_before(5, std::iter::repeat_n(nop, 70_000));
    let (read, raw) = again(&code);
    assert_eq!(raw.code.len(), 2 * (11 + 70_000 + 2));
    assert_eq!(
        read.handlers()[0],
        Handler {
            lasti: false,
            ..read.handlers()[0]
        }
    );
    assert_eq!(read.position(read.handlers()[0].end), Some(70_005));
    assert_eq!(read.verify(&frame()), Ok(2));

    // Jumps to an instruction run the instructions put in there, or not.
    let mut inside = sample(version);
    inside.insert_at(5, [nop, nop]);
    assert_eq!(inside.position(Label(1)), Some(5));
    let mut before = sample(version);
    before.insert_before(5, [nop, nop]);
    assert_eq!(before.position(Label(1)), Some(7));
    before.remove(5..7);
    assert_eq!(before, sample(version));
}

#[test]
fn jumps_are_turned_where_there_is_an_opcode_for_it() {
    let mut code = sample(Version::V3_11);
    code.place(Label(1), 1);
    let expected = "instruction 3 (JUMP_FORWARD): label L1 lies in the other direction";
    assert_eq!(code.assemble(1).unwrap_err().to_string(), expected);
    code.orient_jumps().expect("placed labels");
    assert_eq!(code.instructions()[3].op.name, "JUMP_BACKWARD");
    code.handlers_mut().clear();
    assert!(code.assemble(1).is_ok());
}

#[test]
fn a_jump_back_by_nothing_goes_on() {
    let raw = RawCode {
        code: vec![140, 0, 9, 0],
        ..RawCode::default()
    };
    let code = Code::disassemble(Version::V3_11, &raw).expect("code");
    assert_eq!(code.position(Label(0)), Some(1));
    assert_eq!(code.assemble(1).map(|it| it.code), Ok(raw.code));
}

#[test]
fn blocks_end_at_jumps_targets_and_handlers() {
    let blocks = sample(Version::V3_13).blocks().expect("sound code");
    let ranges: Vec<_> = blocks.iter().map(|it| it.instructions.clone()).collect();
    assert_eq!(ranges, [0..1, 1..4, 4..5, 5..7, 7..11]);
    let next: Vec<_> = blocks.iter().map(|it| it.successors.clone()).collect();
    assert_eq!(next, [vec![1], vec![3], vec![1], vec![], vec![3]]);
    assert_eq!(blocks[1].handlers, [4]);
    assert_eq!(blocks[3].handlers, [0; 0]);
    assert_eq!(Code::new(Version::V3_11).blocks(), Ok(Vec::new()));
}

/// The message for 3.11 code of these bytes.
fn refused(code: &[u8], exception_table: &[u8], line_table: &[u8]) -> String {
    let raw = RawCode {
        code: code.to_vec(),
        exception_table: exception_table.to_vec(),
        line_table: line_table.to_vec(),
        first_line: 1,
    };
    match Code::disassemble(Version::V3_11, &raw) {
        Ok(_) => "read".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn malformed_bytes_are_errors_with_their_offset() {
    struct Case {
        code: &'static [u8],
        exceptions: &'static [u8],
        lines: &'static [u8],
        message: &'static str,
    }
    let none: &[u8] = &[];
    let (nops, misplaced) = (
        &[9, 0, 9, 0],
        "exception table, byte 0: the entry is cut off, misplaced, or has a number that is too large",
    );
    let cases = [
        Case {
            code: &[9],
            exceptions: none,
            lines: none,
            message: "code of 1 bytes: expected an even number, at most 2^30",
        },
        Case {
            code: &[9, 0, 255, 0],
            exceptions: none,
            lines: none,
            message: "offset 2: 255 is no opcode of CPython 3.11",
        },
        Case {
            code: &[0, 0],
            exceptions: none,
            lines: none,
            message: "offset 0: expected an empty cache unit of CACHE",
        },
        Case {
            code: &[122, 0],
            exceptions: none,
            lines: none,
            message: "offset 0: expected an empty cache unit of BINARY_OP",
        },
        Case {
            code: &[122, 0, 0, 7],
            exceptions: none,
            lines: none,
            message: "offset 0: expected an empty cache unit of BINARY_OP",
        },
        Case {
            code: &[144, 1],
            exceptions: none,
            lines: none,
            message: "offset 0: EXTENDED_ARG without an instruction",
        },
        Case {
            code: &[144, 0, 144, 0, 144, 0, 144, 0, 9, 0],
            exceptions: none,
            lines: none,
            message: "offset 6: EXTENDED_ARG for the fourth time",
        },
        Case {
            code: &[144, 255, 144, 255, 144, 255, 100, 0],
            exceptions: none,
            lines: none,
            message: "offset 4: EXTENDED_ARG makes an argument above 2^31 - 1",
        },
        Case {
            code: &[110, 1, 9, 0],
            exceptions: none,
            lines: none,
            message: "offset 0: JUMP_FORWARD refers to offset 4, where no instruction starts",
        },
        Case {
            code: &[140, 3, 9, 0],
            exceptions: none,
            lines: none,
            message: "offset 0: JUMP_BACKWARD refers to offset -4, where no instruction starts",
        },
        Case {
            code: &[110, 1, 122, 0, 0, 0],
            exceptions: none,
            lines: none,
            message: "offset 0: JUMP_FORWARD refers to offset 4, where no instruction starts",
        },
        Case {
            code: nops,
            exceptions: &[0x80, 1],
            lines: none,
            message: misplaced,
        },
        Case {
            code: nops,
            exceptions: &[0, 1, 0, 0],
            lines: none,
            message: misplaced,
        },
        Case {
            code: nops,
            exceptions: &[0xff, 127, 127, 127, 127, 127, 1, 0, 0],
            lines: none,
            message: misplaced,
        },
        Case {
            code: nops,
            exceptions: &[0x80, 3, 0, 0],
            lines: none,
            message: "offset 0: the exception table refers to offset 6, where no instruction starts",
        },
        Case {
            code: nops,
            exceptions: &[0x80, 1, 2, 0],
            lines: none,
            message: "offset 0: the exception table refers to offset 4, where no instruction starts",
        },
        Case {
            code: nops,
            exceptions: none,
            lines: &[0x00],
            message: "line table, byte 0: expected the first byte of an entry",
        },
        Case {
            code: nops,
            exceptions: none,
            lines: &[0xf0],
            message: "line table, byte 0: the entry is cut off, or a number is too large",
        },
        Case {
            code: nops,
            exceptions: none,
            lines: &[0xfa],
            message: "line table, byte 0: the table is longer than the code",
        },
        Case {
            code: nops,
            exceptions: none,
            lines: &[0xf8],
            message: "line table, byte 1: the table is shorter than the code",
        },
        Case {
            code: nops,
            exceptions: none,
            lines: &[0xe8, 127, 127, 127, 127, 127, 127, 1],
            message: "line table, byte 0: the entry is cut off, or a number is too large",
        },
        Case {
            code: nops,
            exceptions: none,
            lines: &[0xf9],
            message: "read",
        },
    ];
    for case in cases {
        assert_eq!(
            refused(case.code, case.exceptions, case.lines),
            case.message
        );
    }
    assert!("3.10".parse::<Version>().is_err() && Version::from_minor(15).is_err());
    assert_eq!("3.14".parse(), Ok(Version::V3_14));
}

#[test]
fn numbers_at_the_limits_of_the_tables_survive() {
    let version = Version::V3_12;
    let nop = version.op_named("NOP").expect("NOP");
    let mut code = Code::new(version);
    for line in [1, i32::MAX, i32::MAX / 2, 1, 2, 4] {
        for (column, end_column) in [
            (0, 15),
            (79, 95),
            (80, 81),
            (127, 128),
            (5, 2),
            (1 << 30, 0),
        ] {
            code.push(Instruction::new(nop, 0).at(Location {
                column: Some(column),
                end_column: Some(end_column),
                ..Location::line(line)
            }));
            code.push(Instruction::new(nop, 0).at(Location {
                end_line: Some(i32::MAX),
                ..Location::line(line)
            }));
        }
        code.push(Instruction::new(nop, 0));
    }
    code.push(Instruction::new(nop, i32::MAX as u32));
    assert_eq!(again(&code).0.instructions(), code.instructions());
    code.push(Instruction::new(nop, 1 << 31));
    assert!(code.assemble(1).is_err());
}

/// The result of [`Code::verify`] for instructions `name arg`, where an argument `L2` is a label
/// before the instruction with this number.
fn verified(version: Version, text: &str, flags: u32) -> Result<u32, String> {
    let mut code = Code::new(version);
    let labels: Vec<Label> = (0..20).map(|_| code.new_label()).collect();
    for line in text.split(';').map(str::trim) {
        let (name, arg) = line.split_once(' ').unwrap_or((line, "0"));
        let op = version.op_named(name).map_err(|error| error.to_string())?;
        code.push(match arg.strip_prefix('L') {
            Some(number) => Instruction::jump(op, labels[number.parse::<usize>().unwrap_or(0)]),
            None => Instruction::new(op, arg.parse().unwrap_or(0)),
        });
    }
    for (index, label) in labels
        .into_iter()
        .enumerate()
        .take(code.instructions().len())
    {
        code.place(label, index);
    }
    let frame = Frame {
        flags,
        consts: vec![
            ConstKind::None,
            ConstKind::Other,
            ConstKind::Code {
                free: 1,
                generator: false,
                parameters: [Slot::Argument; 2],
            },
            ConstKind::Tuple(Some(1)),
            ConstKind::Code {
                free: 0,
                generator: false,
                parameters: [Slot::Iterator, Slot::Argument],
            },
        ],
        names: vec!["print".to_owned()],
        slots: vec![Slot::Argument, Slot::Unbound, Slot::Free],
    };
    code.verify(&frame).map_err(|error| error.to_string())
}

#[test]
fn what_would_crash_is_refused() {
    let (v11, v12, v13, v14) = (
        Version::V3_11,
        Version::V3_12,
        Version::V3_13,
        Version::V3_14,
    );
    let cases = [
        (v11, "LOAD_CONST 0; RETURN_VALUE", Ok(1)),
        (
            v11,
            "RETURN_VALUE",
            Err("offset 0 (RETURN_VALUE): the stack is 0 high, expected 1 at least"),
        ),
        (v11, "NOP", Err("execution runs over the end of the code")),
        (
            v11,
            "LOAD_CONST 9; RETURN_VALUE",
            Err("offset 0 (LOAD_CONST): there is no constant 9: there are 5"),
        ),
        (
            v11,
            "LOAD_FAST 3; RETURN_VALUE",
            Err("offset 0 (LOAD_FAST): there is no variable 3: there are 3"),
        ),
        (
            v11,
            "LOAD_GLOBAL 2; RETURN_VALUE",
            Err("offset 0 (LOAD_GLOBAL): there is no name 1: there are 1"),
        ),
        (
            v11,
            "LOAD_FAST 0; LOAD_FAST 0; BINARY_OP 26; RETURN_VALUE",
            Err("offset 4 (BINARY_OP): CPython 3.11 has no number 26 for it"),
        ),
        (
            v11,
            "PUSH_NULL; RETURN_VALUE",
            Err("offset 2 (RETURN_VALUE): expected an object on the stack, got NULL"),
        ),
        (
            v11,
            "LOAD_FAST 0; BUILD_LIST 0; LOAD_FAST 0; LIST_APPEND 1; PREP_RERAISE_STAR; RETURN_VALUE",
            Err(
                "offset 8 (PREP_RERAISE_STAR): expected a list of exceptions on the stack, got a list",
            ),
        ),
        (
            v11,
            "LOAD_FAST 0; BUILD_LIST 0; LOAD_CONST 0; LIST_APPEND 1; PREP_RERAISE_STAR; RETURN_VALUE",
            Ok(3),
        ),
        (
            v13,
            "LOAD_FAST 0; CALL_INTRINSIC_1 10; RETURN_VALUE",
            Err("offset 2 (CALL_INTRINSIC_1): expected a tuple, got an object"),
        ),
        (
            v11,
            "PUSH_NULL; COPY 1; LOAD_CONST 0; RETURN_VALUE",
            Err("offset 2 (COPY): expected an object to copy, got NULL"),
        ),
        (
            v11,
            "LOAD_FAST 0; FOR_ITER L3; RETURN_VALUE; LOAD_CONST 0; RETURN_VALUE",
            Err("offset 2 (FOR_ITER): expected an iterator on the stack, got an object"),
        ),
        (
            v11,
            "LOAD_FAST 0; POP_JUMP_FORWARD_IF_TRUE L3; LOAD_CONST 0; RETURN_VALUE",
            Err("offset 6 (RETURN_VALUE): the stack is 1 high on one path, 0 on another"),
        ),
        (
            v11,
            "LOAD_FAST 0; LOAD_FAST 0; LIST_APPEND 1; RETURN_VALUE",
            Err("offset 4 (LIST_APPEND): expected a list or a list of exceptions 1 below"),
        ),
        (
            v11,
            "BUILD_LIST 0; LOAD_FAST 0; LIST_APPEND 0; RETURN_VALUE",
            Err("offset 4 (LIST_APPEND): expected an argument of 1 or more, got 0"),
        ),
        (
            v11,
            "LOAD_DEREF 1; RETURN_VALUE",
            Err("offset 0 (LOAD_DEREF): expected a cell in variable 1, got NULL"),
        ),
        (v11, "MAKE_CELL 1; LOAD_DEREF 1; RETURN_VALUE", Ok(1)),
        (
            v11,
            "LOAD_DEREF 2; RETURN_VALUE",
            Err("offset 0 (LOAD_DEREF): expected a cell in variable 2, got NULL"),
        ),
        (
            v11,
            "COPY_FREE_VARS 2; LOAD_DEREF 2; RETURN_VALUE",
            Err("offset 0 (COPY_FREE_VARS): the code has 1 free variables"),
        ),
        (v11, "COPY_FREE_VARS 1; LOAD_DEREF 2; RETURN_VALUE", Ok(1)),
        (
            v11,
            "LOAD_CONST 2; MAKE_FUNCTION 0; RETURN_VALUE",
            Err("offset 2 (MAKE_FUNCTION): expected a closure of 1 cells, got none"),
        ),
        (
            v11,
            "LOAD_FAST 0; MAKE_FUNCTION 0; RETURN_VALUE",
            Err("offset 2 (MAKE_FUNCTION): expected a code object on the stack, got an object"),
        ),
        (
            v11,
            "LOAD_CONST 3; LOAD_CONST 2; MAKE_FUNCTION 8; RETURN_VALUE",
            Err("offset 4 (MAKE_FUNCTION): expected a closure of 1 cells"),
        ),
        (
            v11,
            "MAKE_CELL 1; LOAD_CLOSURE 1; BUILD_TUPLE 1; LOAD_CONST 2; MAKE_FUNCTION 8; RETURN_VALUE",
            Ok(2),
        ),
        (
            v11,
            "PUSH_NULL; LOAD_FAST 0; CALL 0; RETURN_VALUE",
            Err("offset 4 (CALL): expected PRECALL before it"),
        ),
        (
            v11,
            "PUSH_NULL; LOAD_FAST 0; PRECALL 0; CALL 1; RETURN_VALUE",
            Err("offset 4 (PRECALL): expected CALL with the same number next"),
        ),
        (
            v11,
            "PUSH_NULL; LOAD_FAST 0; PRECALL 0; CALL 0; RETURN_VALUE",
            Ok(2),
        ),
        (
            v11,
            "LOAD_FAST 0; YIELD_VALUE; RETURN_VALUE",
            Err("offset 2 (YIELD_VALUE): the flags are not those of a generator"),
        ),
        (
            v11,
            "RETURN_GENERATOR; LOAD_CONST 0; RETURN_VALUE",
            Err("RETURN_GENERATOR where no generator starts"),
        ),
        (
            v11,
            "LOAD_FAST 0; POP_EXCEPT; LOAD_CONST 0; RETURN_VALUE",
            Err(
                "offset 2 (POP_EXCEPT): expected the previous exception on the stack, got an object",
            ),
        ),
        (
            v11,
            "LOAD_CONST 4; MAKE_FUNCTION 0; LOAD_FAST 0; PRECALL 0; CALL 0; RETURN_VALUE",
            Err("offset 10 (CALL): expected an iterator as an argument, got an object"),
        ),
        (
            v11,
            "LOAD_CONST 4; MAKE_FUNCTION 0; LOAD_FAST 0; GET_ITER; PRECALL 0; CALL 0; RETURN_VALUE",
            Ok(2),
        ),
        (
            v11,
            "LOAD_CONST 4; MAKE_FUNCTION 0; RETURN_VALUE",
            Err("offset 4 (RETURN_VALUE): expected an object on the stack, got the function of"),
        ),
        (
            v11,
            "LOAD_FAST 0; RERAISE 0",
            Err("offset 2 (RERAISE): expected an exception on the stack, got an object"),
        ),
        (v11, "LOAD_FAST 1; RETURN_VALUE", Ok(1)),
        (
            v12,
            "LOAD_FAST 1; RETURN_VALUE",
            Err("offset 0 (LOAD_FAST): variable 1 may not be bound"),
        ),
        (v12, "LOAD_FAST_CHECK 1; RETURN_VALUE", Ok(1)),
        (
            v12,
            "LOAD_FAST 0; LOAD_FAST 0; COMPARE_OP 0; RETURN_VALUE",
            Err("offset 4 (COMPARE_OP): the low bits of 0 are not those of its operator"),
        ),
        (
            v12,
            "LOAD_FAST 0; GET_ITER; FOR_ITER L4; JUMP_BACKWARD L2; LOAD_CONST 0; RETURN_VALUE",
            Err("offset 6 (JUMP_BACKWARD): "),
        ),
        (
            v13,
            "LOAD_CONST 2; MAKE_FUNCTION; RETURN_VALUE",
            Err(
                "offset 4 (RETURN_VALUE): expected an object on the stack, got a function without its closure",
            ),
        ),
        (
            v13,
            "LOAD_FAST 0; INTERPRETER_EXIT",
            Err("offset 2 (INTERPRETER_EXIT): only the interpreter itself uses it"),
        ),
        (v14, "LOAD_FAST_BORROW 0; RETURN_VALUE", Ok(1)),
        (
            v14,
            "LOAD_FAST_BORROW 0; DELETE_FAST 0; RETURN_VALUE",
            Err("offset 2 (DELETE_FAST): the stack borrows what variable 0 holds"),
        ),
        (
            v14,
            "LOAD_SMALL_INT 257; RETURN_VALUE",
            Err("offset 2 (LOAD_SMALL_INT): there is no small integer 257: there are 257"),
        ),
    ];
    for (version, text, expected) in cases {
        match (verified(version, text, 3), expected) {
            (Err(message), Err(start)) => {
                assert!(
                    message.starts_with(start) || start.ends_with(": "),
                    "{text}: {message}"
                );
            }
            (result, expected) => assert_eq!(result, expected.map_err(str::to_owned), "{text}"),
        }
    }
    let generator = "RETURN_GENERATOR; POP_TOP; LOAD_CONST 0; YIELD_VALUE; RETURN_VALUE";
    assert_eq!(verified(v11, generator, 0x23), Ok(1));
    let again = "RETURN_GENERATOR; POP_TOP; LOAD_CONST 0; JUMP_BACKWARD L0";
    let message = "RETURN_GENERATOR where no generator starts";
    assert_eq!(verified(v11, again, 0x23), Err(message.to_owned()));
    // RESUME 2 means that the object below is delegated to: exceptions thrown in go there.
    let yields = "RETURN_GENERATOR; POP_TOP; LOAD_CONST 0; YIELD_VALUE; RESUME 2; RETURN_VALUE";
    let message = "offset 6 (YIELD_VALUE): expected SEND before it, since RESUME after it says so";
    assert_eq!(verified(v11, yields, 0x23), Err(message.to_owned()));
    let message = "offset 6 (YIELD_VALUE): expected 1 here, got 0";
    assert_eq!(verified(v13, yields, 0x23), Err(message.to_owned()));
    let late = "POP_TOP; LOAD_CONST 0; RETURN_VALUE";
    assert_eq!(
        verified(v11, late, 0x23),
        Err("a generator has to start with RETURN_GENERATOR".to_owned())
    );
}

#[test]
fn large_numbers_take_no_memory() {
    let huge = "LOAD_FAST 0; UNPACK_SEQUENCE 2147483647; RETURN_VALUE";
    assert_eq!(
        verified(Version::V3_11, huge, 3),
        Err("the code is too large to be checked".to_owned())
    );
    // 200,000 EXTENDED_ARG.
    let flood = [144, 0].repeat(200_000);
    assert_eq!(
        refused(&flood, &[], &[]),
        "offset 6: EXTENDED_ARG for the fourth time"
    );
    // A deep stack that each of many blocks keeps.
    let mut text = "LOAD_FAST 0; UNPACK_SEQUENCE 1000000".to_owned();
    text.extend((2..18).map(|at| format!("; POP_JUMP_FORWARD_IF_NONE L{}", at + 1)));
    text += "; RETURN_VALUE";
    assert_eq!(
        verified(Version::V3_11, &text, 3),
        Err("the code is too large to be checked".to_owned())
    );
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

/// Bytes that are mostly opcodes of the version.
fn code_bytes(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let ops: Vec<&'static Op> = version.ops().filter(|op| op.name != "CACHE").collect();
    let arg = prop_oneof![4 => 0_u8..8, 1 => any::<u8>()];
    prop::collection::vec((prop::sample::select(ops), arg), 0..40).prop_map(|units| {
        let mut bytes = Vec::new();
        for (op, arg) in units {
            bytes.extend([op.code, arg]);
            bytes.resize(bytes.len() + 2 * usize::from(op.caches), 0);
        }
        bytes
    })
}

proptest! {
    /// Code that can be read is written as it was, and no method panics on it.
    #[test]
    fn random_code_round_trips(
        (version, code) in version().prop_flat_map(|version| (Just(version), code_bytes(version))),
        exception_table in prop::collection::vec(prop_oneof![0x80_u8..0x90, 0_u8..12], 0..9),
        flags in prop::sample::select(vec![3_u32, 0x23, 0x83]),
    ) {
        let raw = RawCode { code, exception_table, line_table: Vec::new(), first_line: 1 };
        crate::fuzz::check(version, &raw, flags);
    }

    /// Any bytes are code or an error.
    #[test]
    fn random_bytes_never_panic(
        version in version(),
        code in prop::collection::vec(any::<u8>(), 0..60),
        exception_table in prop::collection::vec(any::<u8>(), 0..20),
        line_table in prop::collection::vec(any::<u8>(), 0..40),
        first_line in any::<i32>(),
    ) {
        let raw = RawCode { code, exception_table, line_table, first_line };
        crate::fuzz::check(version, &raw, 3);
    }

    /// Locations and handlers of any numbers survive.
    #[test]
    fn tables_round_trip(
        version in version(),
        places in prop::collection::vec(
            (any::<Option<i32>>(), 0_i32..5, any::<Option<u16>>(), any::<Option<u16>>()), 1..30),
        depth in 0_u32..(1 << 30),
        lasti in any::<bool>(),
        bounds in (0_usize..30, 0_usize..30, 0_usize..30),
    ) {
        let nop = version.op_named("NOP").expect("NOP");
        let mut code = Code::new(version);
        let count = places.len();
        for (line, more, column, end_column) in places {
            // Columns belong to a line; one without the other is written as none.
            let place = line.map(|line| Location {
                line: Some(line),
                end_line: Some(line.saturating_add(more)),
                column: column.and(end_column).and(column).map(u32::from),
                end_column: column.and(end_column).map(u32::from),
            });
            code.push(Instruction::new(nop, 0).at(place.unwrap_or(Location::NONE)));
        }
        let (first, second) = (bounds.0.min(count), bounds.1.min(count));
        let (start, end) = (code.label_at(first.min(second)), code.label_at(first.max(second)));
        let target = code.label_at(bounds.2.min(count - 1));
        code.handlers_mut().push(Handler { start, end, target, depth, lasti });
        let lines: Vec<_> = code.instructions().iter().filter_map(|it| it.location.line).collect();
        // Differences of lines are of 32 bits in the table.
        prop_assume!(lines.windows(2).all(|pair| pair[1].checked_sub(pair[0]).is_some()));
        prop_assume!(lines.first().is_none_or(|line| line.checked_sub(1).is_some()));
        let (read, raw) = again(&code);
        prop_assert_eq!(read.instructions(), code.instructions());
        prop_assert_eq!((read.handlers()[0].depth, read.handlers()[0].lasti), (depth, lasti));
        prop_assert_eq!(read.assemble(1).expect("code"), raw);
    }
}
