#!/usr/bin/env bash
# Prints those of the targets that can be built for, after installing what that needs; says what is missing.
#
#     scripts/targets.sh [--run] TARGET...
#
# With --run, programs for Linux on ARM need a linker, and an emulator to run.
set -euo pipefail

runs=
if [ "${1:-}" = --run ]; then
    runs=1
    shift
fi

has_std() {
    compgen -G "$(rustc --print target-libdir --target "$1")/libcore-*.rlib" >/dev/null
}

# The first program that is needed to run programs for ARM, and is not there.
lacking() {
    for program in aarch64-linux-gnu-gcc qemu-aarch64; do
        command -v "$program" >/dev/null || { printf '%s\n' "$program"; return; }
    done
}

missing() {
    printf 'corsac: %s is left out: %s\n' "$1" "$2" >&2
}

for target in "$@"; do
    if ! has_std "$target" && command -v rustup >/dev/null; then
        timeout 120 rustup --quiet target add "$target" >&2 || true
    fi
    if ! has_std "$target"; then
        missing "$target" "no standard library: rustup target add $target"
        continue
    fi
    if [ -n "$runs" ] && [ "$target" = aarch64-unknown-linux-gnu ]; then
        packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
        if [ -n "$(lacking)" ]; then
            "$(dirname "$0")"/apt_install.sh "${packages[@]}" || true
        fi
        program=$(lacking)
        if [ -n "$program" ]; then
            missing "$target" "no $program: sudo apt install ${packages[*]}"
            continue
        fi
    fi
    printf '%s\n' "$target"
done
