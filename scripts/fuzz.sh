#!/usr/bin/env bash
# Runs every fuzz target for a bounded time.
#
#   scripts/fuzz.sh SECONDS
#
# Needs cargo-fuzz and a nightly toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: scripts/fuzz.sh SECONDS}
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    printf 'corsac: fuzzing needs a nightly Rust and cargo-fuzz:\n' >&2
    printf '        rustup toolchain install nightly && cargo install cargo-fuzz\n' >&2
    exit 1
fi
for target in $(cargo +nightly fuzz list); do
    printf 'corsac: fuzzing %s for %s s\n' "$target" "$seconds"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=4096
done
