"""Operators that ONNX has under another name with the same meaning: written and read by the same rows."""

from __future__ import annotations

#: Functions of floating-point numbers, by their names in the operator table.
FLOAT_FUNCTIONS = {
    name: name.capitalize()
    for name in (
        "exp", "sqrt", "reciprocal", "log", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
        "asinh", "acosh", "atanh", "tanh", "sigmoid",
    )
}  # fmt: skip
#: Functions of numbers of any type, with a result of that type.
FUNCTIONS = {
    "neg": "Neg", "abs": "Abs", "floor": "Floor", "ceil": "Ceil", "sign": "Sign", "round": "Round",
}  # fmt: skip
COMPARISONS = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip
#: Operations on truth values.
LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
#: Operations on bits.
BITS = {"bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor"}
