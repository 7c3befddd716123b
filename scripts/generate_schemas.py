"""Writes crates/corsac-ops/src/schema/table.rs from the operator schemas of the installed torch.

One row per overload of the `aten` and `prims` namespaces in the dispatcher:

    row("add.out", "self other *alpha out!~", "")

In the parameter list `*` starts the keyword-only parameters, `!` marks one that the operator writes to, `~`
one that the result may share storage with. Flags: `r`, the operator uses random numbers (tag
`nondeterministic_seeded`); `c`, the operator is a composition whose schema does not state whether results
share storage, so that its result may be an argument (as for `type_as`); `l`, it has several results, or a
list; `p`, each element of its result is computed from one element of each operand (tag `pointwise`); `v`, the
tensor written to may have other sizes and strides afterwards (tag `inplace_view`).

    python scripts/generate_schemas.py
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import torch

TABLE = Path(__file__).parent.parent / "crates/corsac-ops/src/schema/table.rs"
NAMESPACES = ("aten", "prims")
SEEDED = torch.Tag.nondeterministic_seeded
POINTWISE = torch.Tag.pointwise
INPLACE_VIEW = torch.Tag.inplace_view

HEAD = """\
//! Operator schemas of torch {version}, written by `scripts/generate_schemas.py`; do not edit.
//!
//! Sorted by name, for binary search.

use super::Row;

/// The version of torch that the table was made from.
pub const TORCH_VERSION: &str = "{version}";

const fn row(name: &'static str, params: &'static str, flags: &'static str) -> Row {{
    Row {{ name, params, flags }}
}}

"""


def top_level_parts(text: str) -> list[str]:
    """Split `text` at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def alias_of(text: str) -> tuple[set[str], bool]:
    """The alias set in a type, `Tensor(a!)[]`, and whether it is written to."""
    found = re.search(r"\(([a-z*|]+)(!?)(?: -> [a-z*|]+)?\)", text)
    return (set(found[1].split("|")), bool(found[2])) if found else (set(), False)


def row(schema) -> tuple[str, str, str] | None:
    qualified = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    namespace, name = qualified.split("::")
    if namespace not in NAMESPACES:
        return None
    try:
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(
            qualified, "CompositeImplicitAutograd"
        )
    except RuntimeError:  # TorchScript's own types: lists, dictionaries, strings
        return None
    text = str(schema)
    arguments, depth = text.index("(") + 1, 1
    end = arguments
    while depth:  # up to the closing bracket of the parameter list
        depth += (text[end] == "(") - (text[end] == ")")
        end += 1
    returned = set()
    for alias in re.findall(r"\w(\([a-z*|]+!?\))", text[end:]):
        returned |= alias_of(alias)[0]
    params, keyword_only = [], False
    parts = [part for part in top_level_parts(text[arguments : end - 1]) if part != "*"]
    for argument, part in zip(schema.arguments, parts, strict=bool(schema.arguments)):
        star = "*" if argument.kwarg_only and not keyword_only else ""
        keyword_only |= argument.kwarg_only
        aliases, written = alias_of(part.split("=")[0])
        sigils = ("!" if written else "") + ("~" if aliases & returned else "")
        params.append(star + argument.name + sigils)
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    flags = "r" if SEEDED in operator.tags else ""
    silent = composite and not schema.is_mutable and not returned
    if silent and any("Tensor" in str(r.type) for r in schema.returns):
        flags += "c"
    if len(schema.returns) != 1 or "List" in str(schema.returns[0].type):
        flags += "l"
    if POINTWISE in operator.tags:
        flags += "p"
    if INPLACE_VIEW in operator.tags:
        flags += "v"
    return ("" if namespace == "aten" else f"{namespace}::") + name, " ".join(params), flags


def main() -> None:
    torch._prims  # noqa: B018  registers the prims namespace
    rows = sorted(filter(None, map(row, torch._C._jit_get_all_schemas())))
    version = torch.__version__.partition("+")[0]
    with TABLE.open("w") as out:
        out.write(HEAD.format(version=version))
        out.write(f"/// {len(rows)} overloads.\n")
        out.write("#[rustfmt::skip]\n")
        out.write("pub(super) static TABLE: &[Row] = &[\n")
        for name, params, flags in rows:
            out.write(f'    row("{name}", "{params}", "{flags}"),\n')
        out.write("];\n")
    subprocess.run(["rustfmt", "--edition", "2024", TABLE], check=True)
    print(f"{TABLE}: {len(rows)} overloads of torch {version}")


if __name__ == "__main__":
    main()
