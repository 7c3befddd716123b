#!/usr/bin/env bash
# Says which of the programs that building corsac needs are missing, and how to get them.
set -euo pipefail

missing=()
if ! command -v cargo >/dev/null; then
    missing+=("cargo (Rust 1.95 or newer): curl -sSf https://sh.rustup.rs | sh -s -- -y, then open a new shell")
elif ! version=$(cargo --version 2>&1); then
    missing+=("a cargo that runs; this one says: $version")
else
    number=${version#cargo }
    if [ "$(printf '%s\n1.95.0\n' "${number%% *}" | sort -V | head -n1)" != 1.95.0 ]; then
        missing+=("Rust 1.95 or newer (this is ${number%% *}): rustup update stable")
    fi
fi
command -v cc >/dev/null || missing+=("cc, the linker that Rust uses: sudo apt install gcc libc6-dev")
command -v sha256sum >/dev/null || missing+=("sha256sum: sudo apt install coreutils")
for component in "$@"; do
    if command -v cargo >/dev/null && ! cargo "$component" --version >/dev/null 2>&1; then
        case $component in
        fmt) name=rustfmt ;;
        *) name=$component ;;
        esac
        missing+=("cargo $component: rustup component add $name")
    fi
done

if [ ${#missing[@]} -gt 0 ]; then
    printf 'corsac: missing on this machine:\n' >&2
    printf '  - %s\n' "${missing[@]}" >&2
    exit 1
fi
