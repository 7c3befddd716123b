"""Code objects of CPython: listed as :mod:`dis` does, edited, checked, and built by hand.

``dis(f)`` prints the same as the standard one, ``code_info(f)`` every field of a code object with its
meaning; :class:`CodeBuilder` and :func:`assemble` make code objects and functions from instructions, and
reject those that the interpreter cannot run. CPython 3.11 to 3.14.
"""

from corsac._core import BytecodeError
from corsac.bytecode._assemble import assemble
from corsac.bytecode._builder import CodeBuilder, Handler, Label, Op, Positions
from corsac.bytecode._fields import CodeInfo, code_info
from corsac.bytecode._flags import CodeFlag, flag_names
from corsac.bytecode._functions import patch_function
from corsac.bytecode._listing import Bytecode, Instruction, dis

__all__ = [
    "Bytecode",
    "BytecodeError",
    "CodeBuilder",
    "CodeFlag",
    "CodeInfo",
    "Handler",
    "Instruction",
    "Label",
    "Op",
    "Positions",
    "assemble",
    "code_info",
    "dis",
    "flag_names",
    "patch_function",
]
