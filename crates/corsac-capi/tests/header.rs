//! `include/corsac.h` is what cbindgen writes from the sources. `CORSAC_BLESS=1` rewrites it.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use std::path::Path;

/// The modules with what C sees, in the order of the header.
const MODULES: [&str; 13] = [
    "version",
    "error",
    "border",
    "dtype",
    "options",
    "spec",
    "view",
    "model",
    "run",
    "session",
    "text_model",
    "generate",
    "tensor",
];

/// The header, without the sections on safety that are for Rust.
fn header() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in MODULES.into_iter().chain(["dlpack/mod"]) {
        builder = builder.with_src(root.join(format!("src/{module}.rs")));
    }
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let mut lines: Vec<&str> = Vec::new();
    let mut is_safety = false;
    for line in text.lines() {
        is_safety = (is_safety || line.trim() == "* # Safety") && line.trim() != "*/";
        if is_safety {
            continue;
        }
        if line.trim() == "*/" && lines.last().is_some_and(|last| last.trim() == "*") {
            lines.pop();
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_header_is_that_of_the_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/corsac.h");
    let written = header();
    if std::env::var_os("CORSAC_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == written,
        "include/corsac.h is not current: CORSAC_BLESS=1 cargo test -p corsac-capi --test header"
    );
}
