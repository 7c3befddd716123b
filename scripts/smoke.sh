#!/usr/bin/env bash
# Installs the wheels in a folder, and tries them without PyTorch and with it.
#
#   scripts/smoke.sh FOLDER PYTHON [OTHER...]
#
# PYTHON has PyTorch, and writes the model file that the others run, too. Nothing is installed into any of them.
set -euo pipefail
cd "$(dirname "$0")/.."

wheels=${1:?usage: scripts/smoke.sh FOLDER PYTHON [OTHER...]}
torch=${2:?usage: scripts/smoke.sh FOLDER PYTHON [OTHER...]}
shift
file=$PWD/target/smoke.safetensors
rm -f "$file"

site=$("$torch" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')

for python in "$@"; do
    printf 'corsac: trying the wheel for %s\n' "$("$python" --version)"
    folder=target/smoke-venv
    rm -rf "$folder"
    "$python" -m venv "$folder"
    install=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${install[@]}" "$(grep '^numpy==' requirements/torch.txt)"
    "${install[@]}" --no-index --find-links "$wheels" corsac
    "$folder/bin/python" scripts/smoke.py
    if [ "$python" = "$torch" ]; then
        own=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        PYTHONPATH=$own:$site "$folder/bin/python" scripts/smoke.py "$file"
    fi
    "$folder/bin/python" scripts/smoke.py "$file"
done
