#!/usr/bin/env bash
# Runs every fuzz target for a bounded time.
#
#   scripts/fuzz.sh SECONDS
#
# With cargo-fuzz and a nightly toolchain under libFuzzer, which learns what inputs reach new code;
# without them on inputs made up by the program corsac-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: scripts/fuzz.sh SECONDS}
targets=(parser edits model text tokenizer code capi)
if cargo +nightly fuzz --version >/dev/null 2>&1; then
    for target in "${targets[@]}"; do
        printf 'corsac: fuzzing %s under libFuzzer for %s s\n' "$target" "$seconds"
        cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=4096
    done
else
    printf 'corsac: no cargo-fuzz with a nightly Rust here: fuzzing with corsac-fuzz\n'
    cargo build --quiet -p corsac-testkit --features engine --bin corsac-fuzz
    for target in "${targets[@]}"; do
        printf 'corsac: fuzzing %s for %s s\n' "$target" "$seconds"
        cargo run --quiet -p corsac-testkit --features engine --bin corsac-fuzz -- "$target" "$seconds"
    done
fi
