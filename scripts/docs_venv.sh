#!/usr/bin/env bash
# Makes the virtual environment of `make docs`: the packages of requirements/docs.txt, and those of another environment.
#
#   scripts/docs_venv.sh FOLDER VENV
#
# Notebooks run with the packages of VENV (torch, corsac), into which nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: scripts/docs_venv.sh FOLDER VENV}
venv=$(cd "${2:?usage: scripts/docs_venv.sh FOLDER VENV}" && pwd)
pins=$(cat requirements/docs.txt scripts/docs_venv.sh <(echo "$venv") | sha256sum | cut -c1-16)
if [ "$(cat "$folder/corsac-pins" 2>/dev/null)" = "$pins" ]; then exit 0; fi

printf 'corsac: installing what the documentation is made with into %s\n' "$folder"
rm -rf "$folder"
"$venv/bin/python" -m venv "$folder"
"$folder/bin/python" -m pip install --disable-pip-version-check --quiet -r requirements/docs.txt
packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
borrowed=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir(r'$borrowed')" >"$packages/borrowed.pth"
echo "$pins" >"$folder/corsac-pins"
