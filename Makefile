# What people type. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

VENV := .venv
PY := $(VENV)/bin/python
EXTENSION := $(VENV)/corsac-extension

# rustup installs here; a shell opened before that does not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin
# The interpreter that the binding is built for.
export PYO3_PYTHON := $(abspath $(PY))
export PYTHON

RUST_SOURCES := crates Cargo.toml Cargo.lock pyproject.toml
PYTHON_FOLDERS := $(wildcard python tests benches examples scripts docs/tutorials)
# The crates that are tested without an interpreter.
WORKSPACE := --workspace --exclude corsac-python

say = @printf 'corsac: %s\n' $(1)

.PHONY: help
help: ## list the targets
	@printf 'make <target>, of:\n'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
	@printf '\nPYTHON=/path/to/python make <target> uses an interpreter that already has torch.\n'

.PHONY: demo
demo: $(EXTENSION) programs ## set everything up, optimize ResNet-50, run it from a file, show the six-line example
	$(call say,'optimizing torchvision'\''s ResNet-50')
	@$(VENV)/bin/corsac optimize torchvision.models:resnet50 --input 1,3,224,224 --out out/resnet50
	@echo
	$(call say,'saving it as one file$(,) and running that without Python')
	@$(VENV)/bin/corsac save torchvision.models:resnet50 --input 1,3,224,224 --out out/resnet50.safetensors
	@"$${CARGO_TARGET_DIR:-target}"/release/corsac bench out/resnet50.safetensors --repeat 10
	@echo
	$(call say,'running examples/first_screen.py')
	@$(PY) examples/first_screen.py

# Python tests run in a process per core, each of one or two gigabytes.
WORKERS := -n auto --maxprocesses 8 --dist worksteal

# The same random graphs in every run: a change is judged by what it changes.
SAME_GRAPHS := PROPTEST_RNG_SEED=2607
PROPTEST := $(SAME_GRAPHS)

.PHONY: test
test: test-rust test-python ## build and run all tests: Rust, then Python

.PHONY: test-all
test-all: PROPTEST := PROPTEST_CASES=5000 PROPTEST_MAX_GLOBAL_REJECTS=10000000
test-all: test-rust check-targets test-arm wasm $(EXTENSION) programs ## the same with the slow tests, other targets, and more random graphs each time
	$(call say,'running all Python tests with the slow ones')
	@$(PY) -m pytest -q $(WORKERS) -m 'slow or not slow'
	$(call say,'once more with each call verified that a recorded program runs')
	@CORSAC_VERIFY_CAPTURE=1 $(PY) -m pytest -q $(WORKERS) -m 'not slow and not unverified' tests/engine tests/backends

.PHONY: test-rust
test-rust: require $(VENV)/bin/python
	$(call say,'running the Rust tests: unit$(,) property$(,) filetests')
	@if cargo nextest --version >/dev/null 2>&1; then \
	    $(PROPTEST) cargo nextest run $(WORKSPACE) --no-fail-fast --no-tests=pass --status-level fail --final-status-level slow; \
	else $(PROPTEST) cargo test $(WORKSPACE) --no-fail-fast --lib --bins --tests; fi
	$(call say,'running the Rust documentation examples')
	@cargo test $(WORKSPACE) --doc --quiet

.PHONY: test-python
test-python: $(EXTENSION) programs
	$(call say,'running the Python tests')
	@$(PY) -m pytest -q $(WORKERS)

.PHONY: lint
lint: require-lint $(EXTENSION) ## formatting, clippy, ruff, names of test files, type stub
	$(call say,'cargo fmt')
	@cargo fmt --all --check
	$(call say,'cargo clippy$(,) warnings are errors')
	@cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(call say,'ruff')
	@$(VENV)/bin/ruff check --quiet $(PYTHON_FOLDERS)
	@$(VENV)/bin/ruff format --quiet --check $(PYTHON_FOLDERS)
	$(call say,'names of test files')
	@$(PY) scripts/check_test_names.py
	$(call say,'type stub against the built module')
	@$(PY) scripts/generate_stub.py --check
	@$(PY) -m mypy.stubtest --concise --allowlist scripts/stub-allowlist.txt corsac._core

.PHONY: stub
stub: $(EXTENSION) ## write python/corsac/_core.pyi anew from the built module
	@$(PY) scripts/generate_stub.py

.PHONY: bench
bench: $(EXTENSION) ## torch.fx and corsac.fx side by side; writes target/bench/fx.json
	$(call say,'torch.fx against corsac.fx$(,) in one process')
	@$(PY) benches/fx.py

.PHONY: bench-engine
bench-engine: $(EXTENSION) ## operators, models, calls, guards, first calls, training steps, texts and partitioners: corsac and its peers; writes target/bench/*.json
	$(call say,'operators: eager against corsac$(,) one thread$(,) worst first')
	@$(PY) benches/operators.py
	$(call say,'models: eager$(,) torch.fx$(,) inductor$(,) ONNX Runtime and OpenVINO against corsac$(,) in one process')
	@$(PY) benches/engine.py
	$(call say,'calls of small programs through Dynamo: eager and inductor against corsac')
	@$(PY) benches/calls.py
	$(call say,'guards: Dynamo against corsac')
	@$(PY) benches/guards.py
	$(call say,'first calls: Dynamo against corsac')
	@$(PY) benches/capture.py
	$(call say,'training steps: eager and inductor against corsac')
	@$(PY) benches/training.py --inductor
	$(call say,'texts that models of Hugging Face generate: eager against corsac')
	@$(PY) benches/generation.py
	$(call say,'number types: PyTorch against corsac$(,) one thread')
	@$(PY) benches/number_types.py
	$(call say,'partitioners: PyTorch against corsac')
	@$(PY) benches/partition.py

.PHONY: bench-warm
bench-warm: $(EXTENSION) ## first calls in fresh processes, with and without CORSAC_CACHE_DIR; writes target/bench/warm_start.json
	@$(PY) benches/warm_start.py

.PHONY: bench-distributed
bench-distributed: $(EXTENSION) ## training steps of two processes against one, and against their plan; writes target/bench/distributed.json
	$(call say,'pipelines: one process against two of one thread each')
	@$(PY) benches/distributed.py

.PHONY: bench-readme
bench-readme: $(EXTENSION) ## write the ratios of the last `make bench` into README.md
	@$(PY) benches/readme.py

.PHONY: bench-rust
bench-rust: require ## the graph alone, in Rust, from 10k to 1M nodes
	@cargo bench --quiet -p corsac-ir --bench scaling

.PHONY: fuzz
fuzz: require ## graphs, edits, model files, language models, tokenizers, code objects and the C interface on random input, for FUZZ_SECONDS (60) each
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),60)

# -- what the above stand on ------------------------------------------------------------------

, := ,

.PHONY: require require-lint
require:
	@scripts/require.sh
require-lint:
	@scripts/require.sh fmt clippy

# Checked on every run, in a fraction of a second when it is up to date.
$(VENV)/bin/python: FORCE | require
	@scripts/venv.sh $(VENV)

# Rebuilt when a Rust source is newer, or when the built module does not import.
.PHONY: $(EXTENSION)
$(EXTENSION): | require $(VENV)/bin/python
	@if [ ! -e $@ ] || [ -n "$$(find $(RUST_SOURCES) -newer $@ -print -quit)" ] || \
	    ! $(PY) -c 'import corsac._core' 2>/dev/null; then \
	    printf 'corsac: building the extension in release mode: a minute or two the first time\n'; \
	    VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --release; \
	    touch $@; \
	fi

# The native program, one file that runs on any Linux of its architecture, since the C library is in it;
# and the example that the Python tests compare with PyTorch.
.PHONY: programs
programs: require ## build the native program target/release/corsac
	@cargo rustc --release --quiet -p corsac-cli --bin corsac -- -C target-feature=+crt-static
	@cargo build --release --quiet -p corsac-engine --example classify

# Both libraries alone, since a library for Rust beside them would keep them from being optimised across crates.
.PHONY: capi install-capi
capi: require ## build the C libraries target/release/libcorsac.so and libcorsac.a
	@cargo rustc --release --quiet -p corsac-capi --lib --crate-type staticlib,cdylib
install-capi: capi ## install them with header, pkg-config and CMake files in PREFIX (/usr/local)
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' \
	    scripts/install_capi.sh "$${CARGO_TARGET_DIR:-target}"/release

# -- packages -----------------------------------------------------------------------------------

# The crates for others: tests and the binding are not.
PRIVATE := corsac-python corsac-testkit
CRATES := $(filter-out $(PRIVATE),$(notdir $(wildcard crates/*)))

# CPythons beside that of $(VENV) that wheels are built for and tried with, without PyTorch.
PYTHONS :=

.PHONY: wheel smoke sdist crates
wheel: require $(VENV)/bin/python ## wheels for this CPython and PYTHONS, installed and tried, and a source distribution, in target/wheels
	@rm -rf target/wheels
	@$(VENV)/bin/maturin build --quiet --release --locked --interpreter $(PY) $(PYTHONS) --out target/wheels
	@$(MAKE) sdist smoke
smoke:
	@scripts/smoke.sh target/wheels $(PY) $(PYTHONS)
sdist: require $(VENV)/bin/python
	@log=$$($(VENV)/bin/maturin sdist --out target/wheels 2>&1) || { printf '%s\n' "$$log" >&2; exit 1; }
	$(call say,'reading the source distribution')
	@rm -rf target/sdist && mkdir target/sdist && tar xzf target/wheels/corsac-*.tar.gz -C target/sdist --strip-components 1
	@cargo metadata --locked --format-version 1 --manifest-path target/sdist/Cargo.toml >target/sdist/metadata.json
crates: require ## the packages that crates.io would get, each built from its package
	@cargo publish --dry-run --quiet --workspace --locked --allow-dirty

# -- the documentation site ---------------------------------------------------------------------

DOCS := target/docs-venv
TUTORIALS := $(wildcard docs/tutorials/*.py)

.PHONY: docs docs-site rust-docs tutorials
docs: rust-docs tutorials docs-site ## the documentation site in target/site: runs the tutorials, checks all links
rust-docs: require
	$(call say,'documentation of the crates')
	@RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --quiet --no-deps $(CRATES:%=-p %)
tutorials: $(EXTENSION) $(DOCS)
	@mkdir -p target/tutorials
	@for source in $(TUTORIALS); do \
	    page=target/tutorials/$$(basename $$source .py).md; \
	    if [ ! $$page -nt $$source ] || [ ! $$page -nt $(EXTENSION) ]; then \
	        PYTHONPATH=$(abspath python) $(DOCS)/bin/python scripts/site/notebooks.py target/tutorials $$source; \
	    fi; \
	done
docs-site: $(DOCS)
	$(call say,'the site')
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet
	@$(DOCS)/bin/python scripts/site/links.py target/site

.PHONY: $(DOCS)
$(DOCS): | $(VENV)/bin/python
	@scripts/docs_venv.sh $@ $(VENV)

# -- other processors and systems --------------------------------------------------------------

ARM := aarch64-unknown-linux-gnu
WASM := wasm32-unknown-unknown
OTHER_SYSTEMS := $(ARM) x86_64-pc-windows-gnu aarch64-apple-darwin

# Nothing is linked, so that no C compiler of the other system is needed: `true` stands for it.
clippy_for = targets=$$(scripts/targets.sh $(1)); \
    if [ -n "$$targets" ]; then \
        printf 'corsac: cargo clippy for %s\n' $$targets; \
        TARGET_CC=true TARGET_AR=true cargo clippy --quiet $(2) $$(printf ' --target %s' $$targets) -- -D warnings; \
    fi
.PHONY: check-targets
check-targets: require-lint ## clippy of all crates for ARM, Windows, macOS and WebAssembly, as far as their standard libraries can be had
	@$(call clippy_for,$(OTHER_SYSTEMS),$(WORKSPACE))
	@$(call clippy_for,$(WASM),-p corsac-capi)

# One test is left out that multiplies large matrices one number at a time: a quarter of an hour in an emulator.
.PHONY: test-arm
# An emulator is too slow for the random graphs of test-all.
test-arm: PROPTEST := $(SAME_GRAPHS)
test-arm: require ## tests of kernels and engine for 64-bit ARM, in an emulator
	@for target in $$(scripts/targets.sh --run $(ARM)); do \
	    printf 'corsac: the tests of kernels and engine for %s\n' "$$target"; \
	    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc; \
	    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu'; \
	    $(PROPTEST) cargo test --quiet -p corsac-kernels -p corsac-engine --lib --tests --target "$$target" \
	        -- --skip kernels::blocked::tests::linear_layers; \
	done

.PHONY: wasm test-wasm
wasm: require ## build npm/corsac.wasm, the engine of the npm package
	@for target in $$(scripts/targets.sh $(WASM)); do \
	    cargo rustc --release --quiet -p corsac-capi --lib --crate-type cdylib --target "$$target"; \
	    cp "$${CARGO_TARGET_DIR:-target}/$$target/release/corsac.wasm" npm/; \
	done
test-wasm: $(EXTENSION) wasm ## tests of the npm package in Node.js and Chromium
	@$(PY) -m pytest -q tests/web

.PHONY: FORCE
FORCE:
