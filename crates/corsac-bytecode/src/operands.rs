//! Meanings of arguments, in words.

use crate::{ArgKind, Op, Version};

/// The comparisons, by number.
pub(crate) const COMPARISONS: [&str; 6] = ["<", "<=", "==", "!=", ">", ">="];

/// The binary operators, by number; from 3.14 on `[]` as well.
const OPERATORS: [&str; 27] = [
    "+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^", "+=", "&=", "//=", "<<=",
    "@=", "*=", "%=", "|=", "**=", ">>=", "-=", "/=", "^=", "[]",
];

/// The built-in functions of one argument, from 1; of one number in all versions.
const INTRINSICS_1: [&str; 11] = [
    "PRINT",
    "IMPORT_STAR",
    "STOPITERATION_ERROR",
    "ASYNC_GEN_WRAP",
    "UNARY_POSITIVE",
    "LIST_TO_TUPLE",
    "TYPEVAR",
    "PARAMSPEC",
    "TYPEVARTUPLE",
    "SUBSCRIPT_GENERIC",
    "TYPEALIAS",
];

/// The built-in functions of two arguments, from 1; the last one from 3.13 on.
const INTRINSICS_2: [&str; 5] = [
    "PREP_RERAISE_STAR",
    "TYPEVAR_WITH_BOUND",
    "TYPEVAR_WITH_CONSTRAINTS",
    "SET_FUNCTION_TYPE_PARAMS",
    "SET_TYPEPARAM_DEFAULT",
];

/// The methods that `LOAD_SPECIAL` loads.
const SPECIAL_METHODS: [&str; 4] = ["__enter__", "__exit__", "__aenter__", "__aexit__"];

/// The objects that `LOAD_COMMON_CONSTANT` loads, as `dis` shows them.
const COMMON_CONSTANTS: [&str; 5] = [
    "AssertionError",
    "NotImplementedError",
    "tuple",
    "<built-in function all>",
    "<built-in function any>",
];

/// The low bits of `COMPARE_OP` from 3.12 on: a mask of unordered, less, greater and equal.
const COMPARE_MASKS: [u32; 6] = [2, 10, 8, 7, 4, 12];

/// Whether the low bits of a comparison are those of its operator, which the interpreter relies on.
pub(crate) fn is_whole_comparison(version: Version, arg: u32) -> bool {
    let mask = COMPARE_MASKS.get((arg >> version.compare_shift()) as usize);
    version == Version::V3_11 || mask == Some(&(arg & 15))
}

impl Version {
    /// The argument of `op` for `text`, as listings show it: `+` of `BINARY_OP`, `<=` of
    /// `COMPARE_OP`.
    #[must_use]
    pub fn operand(self, op: &Op, text: &str) -> Option<u32> {
        let is_it = |arg: &u32| {
            let whole = op.arg != ArgKind::Compare || is_whole_comparison(self, *arg);
            whole && choice(self, op, *arg).as_deref() == Some(text)
        };
        if text.is_empty() {
            None
        } else {
            (0..256).find(is_it)
        }
    }
}

const CONVERSIONS: [&str; 4] = ["", "str", "repr", "ascii"];

const FUNCTION_PARTS: [&str; 5] = [
    "defaults",
    "kwdefaults",
    "annotations",
    "closure",
    "annotate",
];

/// Numbers of [`OPERATORS`], [`INTRINSICS_2`] and [`FUNCTION_PARTS`] in the version.
const fn counts(version: Version) -> (usize, usize, usize) {
    match version {
        Version::V3_11 => (26, 0, 4),
        Version::V3_12 => (26, 4, 4),
        Version::V3_13 => (26, 5, 4),
        Version::V3_14 => (27, 5, 5),
    }
}

/// The meaning of `arg`, if it is one of a closed set; an empty text for other arguments.
///
/// `None` if the version's set has no such member.
pub(crate) fn choice(version: Version, op: &Op, arg: u32) -> Option<String> {
    let index = arg as usize;
    let (operators, intrinsics_2, parts) = counts(version);
    let one_of = |names: &[&str], index: usize| Some((*names.get(index)?).to_owned());
    match op.arg {
        ArgKind::Compare => {
            let number = arg >> version.compare_shift();
            let name = one_of(&COMPARISONS, number as usize)?;
            let as_bool = version >= Version::V3_13 && arg & 16 != 0;
            Some(if as_bool {
                format!("bool({name})")
            } else {
                name
            })
        }
        ArgKind::Binary => one_of(&OPERATORS[..operators], index),
        ArgKind::Intrinsic1 => {
            let name = INTRINSICS_1.get(index.checked_sub(1)?)?;
            Some(format!("INTRINSIC_{name}"))
        }
        ArgKind::Intrinsic2 => {
            let name = INTRINSICS_2[..intrinsics_2].get(index.checked_sub(1)?)?;
            Some(format!("INTRINSIC_{name}"))
        }
        ArgKind::Conversion => one_of(&CONVERSIONS, index),
        ArgKind::SpecialMethod => one_of(&SPECIAL_METHODS, index),
        ArgKind::CommonConstant => one_of(&COMMON_CONSTANTS, index),
        ArgKind::Format => {
            let mut text = one_of(&CONVERSIONS, index & 3)?;
            if arg & 4 != 0 {
                text += if text.is_empty() {
                    "with format"
                } else {
                    ", with format"
                };
            }
            Some(text)
        }
        ArgKind::FunctionParts => {
            let bits = FUNCTION_PARTS[..parts].iter().enumerate();
            let set = bits.filter(|(bit, _)| arg & (1 << bit) != 0);
            Some(set.map(|(_, name)| *name).collect::<Vec<_>>().join(", "))
        }
        ArgKind::Inversion if version >= Version::V3_14 => Some(
            match (op.name, arg) {
                ("IS_OP", 0) => "is",
                ("IS_OP", _) => "is not",
                (_, 0) => "in",
                _ => "not in",
            }
            .to_owned(),
        ),
        _ => Some(String::new()),
    }
}
