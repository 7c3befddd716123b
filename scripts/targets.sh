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
        programs=(aarch64-linux-gnu-gcc qemu-aarch64)
        if ! command -v "${programs[@]}" >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            (timeout 120 apt-get -qq update && DEBIAN_FRONTEND=noninteractive timeout 240 \
                apt-get -qq install -y --no-install-recommends "${packages[@]}") >/dev/null 2>&1 || true
        fi
        for program in "${programs[@]}"; do
            if ! command -v "$program" >/dev/null; then
                missing "$target" "no $program: sudo apt install ${packages[*]}"
                continue 2
            fi
        done
    fi
    printf '%s\n' "$target"
done
