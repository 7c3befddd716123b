#!/usr/bin/env bash
# Makes a virtual environment ready for building, testing and running corsac.
#
#   scripts/venv.sh FOLDER
#
# FOLDER is created if need be, and gets the packages that requirements/{dev,test,torch}.txt pin. When PYTHON names an
# interpreter that has torch and torchvision, the environment borrows that interpreter's packages
# instead of installing PyTorch again; nothing is ever installed into PYTHON itself. A second run
# with unchanged pins does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:?usage: scripts/venv.sh FOLDER}
stamp=$venv/corsac-pins
pins=$(cat requirements/{dev,test,torch}.txt scripts/venv.sh | sha256sum | cut -c1-16)

say() { printf 'corsac: %s\n' "$*"; }
fail() {
    printf 'corsac: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '        %s\n' "$line" >&2; done
    exit 1
}

# The interpreter to build on: PYTHON, else the one this environment was made from, else the first
# new enough on the PATH.
is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}
recorded_pins= recorded_base=
if [ -f "$stamp" ]; then { read -r recorded_pins && read -r recorded_base; } <"$stamp" || true; fi
base=${PYTHON:-}
if [ -n "$base" ]; then
    base=$(command -v "$base") || fail "PYTHON=$PYTHON: no such program"
    is_new_enough "$base" || fail "PYTHON=$PYTHON is not a CPython 3.11 or newer" \
        "$("$base" --version 2>&1 || true)"
    base=$("$base" -c 'import sys; print(sys.executable)')
    # PYTHON=.venv/bin/python means the environment as it is.
    if [ -d "$venv" ] && [ "$(dirname "$base")" = "$(cd "$venv" && pwd)/bin" ]; then base=$recorded_base; fi
elif [ -n "$recorded_base" ] && is_new_enough "$recorded_base"; then
    base=$recorded_base
fi
if [ -z "$base" ]; then
    for candidate in python3.11 python3 python3.12 python3.13; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            base=$("$candidate" -c 'import sys; print(sys.executable)')
            break
        fi
    done
    [ -n "$base" ] || fail "CPython 3.11 or newer is missing" \
        "on Debian 12: sudo apt install python3 python3-venv" \
        "or name one: PYTHON=/path/to/python make ..."
fi

if [ "$recorded_pins" = "$pins" ] && [ "$recorded_base" = "$base" ] &&
    "$venv/bin/python" -c 'import importlib.util as u, sys
sys.exit(not all(u.find_spec(m) for m in ("torch", "torchvision", "pytest", "mypy")))' 2>/dev/null; then
    exit 0
fi

# An environment made from another interpreter, or one that no longer starts, is made anew.
if [ -e "$venv" ] && { [ "$recorded_base" != "$base" ] || ! "$venv/bin/python" -c '' 2>/dev/null; }; then
    [ -f "$venv/pyvenv.cfg" ] || fail "$venv is in the way and is not a virtual environment: move it"
    say "making $venv anew (it was made from ${recorded_base:-an unknown interpreter})"
    rm -rf "$venv"
fi
if [ ! -e "$venv" ]; then
    say "creating $venv from $base"
    # Debian's python3 has no ensurepip without python3-venv; its own pip can stand in.
    if ! log=$("$base" -m venv "$venv" 2>&1); then
        rm -rf "$venv"
        { "$base" -m venv --without-pip "$venv" &&
            "$base" -m pip --python "$venv/bin/python" install --quiet pip; } >/dev/null 2>&1 || {
            rm -rf "$venv"
            fail "$base can create no virtual environment with pip in it" \
                "on Debian 12: sudo apt install python3-venv python3-pip" "$log"
        }
    fi
fi
rm -f "$stamp"

borrowed=$("$base" - <<'PY' 2>/dev/null || true
import importlib.metadata as metadata
import site
import sys
import torch, torchvision
if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6):
    print(torch.__version__)
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")):
            print(folder)
PY
)
install=("$venv/bin/python" -m pip install --disable-pip-version-check)
[ -t 1 ] || install+=(--progress-bar off)
if [ -n "${PYTHON:-}" ] && [ -z "$borrowed" ]; then
    say "$base lacks torch >= 2.6 with torchvision, so both are installed into $venv"
fi
if [ -n "$borrowed" ]; then
    version=$(head -n1 <<<"$borrowed")
    say "using torch $version from $base"
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    tail -n+2 <<<"$borrowed" | sed 's/.*/import site; site.addsitedir(r"&")/' >"$packages/borrowed.pth"
else
    say "installing PyTorch into $venv: about 5 GB on disk, a minute or more with a fast network"
    "${install[@]}" -r requirements/torch.txt || fail "PyTorch could not be installed (see above)" \
        "a network, 5 GB of disk and pip are needed; with an interpreter that already has torch:" \
        "PYTHON=/path/to/python make ..."
fi
say "installing the build and test tools"
"${install[@]}" --quiet -r requirements/test.txt -r requirements/dev.txt ||
    fail "the build and test tools could not be installed (see above)"
# Programs that come with borrowed packages lie beside the other interpreter.
for program in maturin ruff; do
    if [ ! -e "$venv/bin/$program" ]; then
        ln -s "$(dirname "$base")/$program" "$venv/bin/$program"
    fi
done
"$venv/bin/python" -c 'import torch, torchvision, pytest, mypy' ||
    fail "the packages in $venv cannot be imported (see above): remove $venv and try again"
printf '%s\n%s\n' "$pins" "$base" >"$stamp"
say "$venv is ready"
