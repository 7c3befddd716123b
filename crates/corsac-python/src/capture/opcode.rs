//! Instructions of CPython 3.11 that read, write or call something. Numbers are those of
//! `Lib/opcode.py`.

/// An instruction and its argument.
#[derive(Clone, Copy)]
pub(super) struct Instruction {
    pub(super) opcode: u8,
    pub(super) arg: usize,
}

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(pub(super) const $name: u8 = $number;)*
    };
}

opcodes! {
    POP_TOP = 1, PUSH_NULL = 2, NOP = 9, SWAP = 99, LOAD_CONST = 100, JUMP_FORWARD = 110, COPY = 120, LOAD_FAST = 124,
    STORE_FAST = 125, MAKE_CELL = 135, LOAD_CLOSURE = 136, JUMP_BACKWARD = 140, COPY_FREE_VARS = 149, RESUME = 151,
    PRECALL = 166,
    UNARY_POSITIVE = 10, UNARY_NEGATIVE = 11, UNARY_NOT = 12, UNARY_INVERT = 15, BINARY_SUBSCR = 25,
    GET_LEN = 30, MATCH_MAPPING = 31, MATCH_SEQUENCE = 32, MATCH_KEYS = 33, CHECK_EG_MATCH = 37,
    GET_AITER = 50, GET_ANEXT = 51, BEFORE_ASYNC_WITH = 52, BEFORE_WITH = 53, END_ASYNC_FOR = 54,
    STORE_SUBSCR = 60, DELETE_SUBSCR = 61, GET_ITER = 68, GET_YIELD_FROM_ITER = 69, PRINT_EXPR = 70,
    RETURN_VALUE = 83,
    LOAD_BUILD_CLASS = 71, IMPORT_STAR = 84, YIELD_VALUE = 86, SETUP_ANNOTATIONS = 85, ASYNC_GEN_WRAP = 87,
    STORE_NAME = 90, DELETE_NAME = 91, UNPACK_SEQUENCE = 92, FOR_ITER = 93, UNPACK_EX = 94,
    STORE_ATTR = 95, DELETE_ATTR = 96, STORE_GLOBAL = 97, DELETE_GLOBAL = 98, LOAD_NAME = 101,
    LOAD_ATTR = 106, COMPARE_OP = 107, IMPORT_NAME = 108, IMPORT_FROM = 109,
    BUILD_SET = 104, BUILD_MAP = 105,
    JUMP_IF_FALSE_OR_POP = 111, JUMP_IF_TRUE_OR_POP = 112, POP_JUMP_FORWARD_IF_FALSE = 114,
    POP_JUMP_FORWARD_IF_TRUE = 115, LOAD_GLOBAL = 116, IS_OP = 117, CONTAINS_OP = 118, BINARY_OP = 122, SEND = 123,
    GET_AWAITABLE = 131, LOAD_DEREF = 137, STORE_DEREF = 138, DELETE_DEREF = 139,
    CALL_FUNCTION_EX = 142, EXTENDED_ARG = 144, LOAD_CLASSDEREF = 148, MATCH_CLASS = 152,
    SET_ADD = 146, MAP_ADD = 147, FORMAT_VALUE = 155, LOAD_METHOD = 160, LIST_EXTEND = 162, SET_UPDATE = 163, DICT_MERGE = 164,
    DICT_UPDATE = 165, CALL = 171, KW_NAMES = 172, POP_JUMP_BACKWARD_IF_FALSE = 175, POP_JUMP_BACKWARD_IF_TRUE = 176,
}

/// Whether an instruction only moves values between a frame's variables, its constants and its
/// stack, or jumps.
pub(super) const fn is_plain(opcode: u8) -> bool {
    matches!(
        opcode,
        POP_TOP
            | PUSH_NULL
            | NOP
            | SWAP
            | LOAD_CONST
            | JUMP_FORWARD
            | COPY
            | LOAD_FAST
            | STORE_FAST
            | MAKE_CELL
            | LOAD_CLOSURE
            | JUMP_BACKWARD
            | COPY_FREE_VARS
            | RESUME
            | PRECALL
    )
}

/// Methods that operators call, by the argument of `BINARY_OP`.
const ARITHMETIC: &[[&str; 3]] = &[
    ["__add__", "__radd__", "__iadd__"],
    ["__and__", "__rand__", "__iand__"],
    ["__floordiv__", "__rfloordiv__", "__ifloordiv__"],
    ["__lshift__", "__rlshift__", "__ilshift__"],
    ["__matmul__", "__rmatmul__", "__imatmul__"],
    ["__mul__", "__rmul__", "__imul__"],
    ["__mod__", "__rmod__", "__imod__"],
    ["__or__", "__ror__", "__ior__"],
    ["__pow__", "__rpow__", "__ipow__"],
    ["__rshift__", "__rrshift__", "__irshift__"],
    ["__sub__", "__rsub__", "__isub__"],
    ["__truediv__", "__rtruediv__", "__itruediv__"],
    ["__xor__", "__rxor__", "__ixor__"],
];
/// Methods of comparisons and those of the other operand, by the argument of `COMPARE_OP`.
const COMPARISONS: &[[&str; 2]] = &[
    ["__lt__", "__gt__"],
    ["__le__", "__ge__"],
    ["__eq__", "__eq__"],
    ["__ne__", "__ne__"],
    ["__gt__", "__lt__"],
    ["__ge__", "__le__"],
];

/// Methods that `BINARY_OP` may call; arguments after those of the operators are their in-place
/// forms.
pub(super) fn methods_of_arithmetic(arg: usize) -> &'static [&'static str] {
    let count = if arg >= ARITHMETIC.len() { 3 } else { 2 };
    let found = ARITHMETIC.get(arg % ARITHMETIC.len());
    found.and_then(|own| own.get(..count)).unwrap_or_default()
}

/// Methods that `COMPARE_OP` may call.
pub(super) fn methods_of_comparison(arg: usize) -> &'static [&'static str] {
    COMPARISONS.get(arg).map_or(&[], |own| &own[..])
}

/// Methods that operators may call, and C code for containers, sorting and conversion to text.
pub(super) fn methods_of_operators() -> impl Iterator<Item = &'static str> {
    const OTHERS: &[&str] = &[
        "__hash__",
        "__bool__",
        "__len__",
        "__iter__",
        "__next__",
        "__getitem__",
        "__contains__",
        "__missing__",
        "__index__",
        "__int__",
        "__float__",
        "__neg__",
        "__repr__",
        "__str__",
        "__format__",
    ];
    let arithmetic = (0..2 * ARITHMETIC.len()).flat_map(methods_of_arithmetic);
    let comparisons = COMPARISONS.iter().flatten();
    arithmetic.chain(comparisons).chain(OTHERS).copied()
}

/// The instruction at an offset, with its argument collected from `EXTENDED_ARG` prefixes.
pub(super) fn instruction(code: &[u8], offset: usize) -> Option<Instruction> {
    let (mut at, mut arg) = (offset, 0_usize);
    loop {
        let (opcode, low) = (*code.get(at)?, *code.get(at + 1)?);
        arg = arg << 8 | usize::from(low);
        if opcode != EXTENDED_ARG {
            return Some(Instruction { opcode, arg });
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_spread_over_several() {
        let code = [EXTENDED_ARG, 1, LOAD_ATTR, 2, 9, 0];
        let found = instruction(&code, 0).map(|own| (own.opcode, own.arg));
        assert_eq!(found, Some((LOAD_ATTR, 258)));
        assert!(instruction(&code, 6).is_none());
        assert!(instruction(&[EXTENDED_ARG, 1], 0).is_none());
    }
}
