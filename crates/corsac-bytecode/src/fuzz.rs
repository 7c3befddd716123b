//! Properties that must hold for any bytes, for tests and fuzzers.

use crate::{Code, ConstKind, Frame, Names, RawCode, Slot, Version};

/// Takes `bytes` for a version, flags, the lengths of two tables, the tables, and code.
///
/// # Panics
/// As [`check`].
pub fn code_object(bytes: &[u8]) {
    let [version, flags, exceptions, lines, rest @ ..] = bytes else {
        return;
    };
    let version = Version::ALL[usize::from(version % 4)];
    let exceptions = usize::from(*exceptions).min(rest.len());
    let (exception_table, rest) = rest.split_at(exceptions);
    let (line_table, code) = rest.split_at(usize::from(*lines).min(rest.len()));
    let raw = RawCode {
        code: code.to_vec(),
        exception_table: exception_table.to_vec(),
        line_table: line_table.to_vec(),
        first_line: 1,
    };
    check(
        version,
        &raw,
        [3, 0x23, 0x83, 0x203][usize::from(flags % 4)],
    );
}

/// Reads a code object. It must be written as the same bytes, but for tables that have a shorter
/// form, and no method may panic on it.
///
/// # Panics
/// If it does not, or an error has more than one line.
pub fn check(version: Version, raw: &RawCode, flags: u32) {
    let code = match Code::disassemble(version, raw) {
        Ok(code) => code,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{message}");
            return;
        }
    };
    let written = code.assemble(raw.first_line).expect("code that was read");
    assert_eq!(written.code, raw.code, "{version}");
    let again = Code::disassemble(version, &written).expect("code that was written");
    assert_eq!(again.assemble(raw.first_line).as_ref(), Ok(&written));
    assert_eq!(again.handlers(), code.handlers());
    assert_eq!(again.instructions(), code.instructions());

    let listing = code.listing(&Names::default()).expect("code that was read");
    assert!(listing.text().lines().count() >= listing.rows.len());
    let blocks = code.blocks();
    if let Ok(blocks) = &blocks {
        let count: usize = blocks.iter().map(|block| block.instructions.len()).sum();
        assert_eq!(count, code.instructions().len());
    }
    let size = code.stack_size(flags);
    let frame = Frame {
        flags,
        consts: vec![
            ConstKind::None,
            ConstKind::Str,
            ConstKind::Tuple(Some(2)),
            ConstKind::Other,
        ],
        names: vec!["a".to_owned(), "b".to_owned()],
        slots: vec![Slot::Argument, Slot::Unbound, Slot::Free],
    };
    if let Ok(verified) = code.verify(&frame) {
        assert_eq!(size, Ok(verified));
        assert!(blocks.is_ok());
    }
}
