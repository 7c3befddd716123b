//! The C interface as C programs use it: compiled with gcc against the libraries and the header.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

mod kit;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use corsac::fuzz::{Target, TextTarget};
use corsac_testkit::fuzz::{small_text_model, stateful_model};
use kit::{double, has, library, root, rows, run, types, write_models};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// gcc with the header, and all warnings as errors.
fn gcc() -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-g", "-O1"]).args(WARNINGS);
    gcc.arg("-I").arg(root().join("include"));
    gcc
}

/// The sources of the test program.
fn sources() -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join("tests/c")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|own| own == "c"))
        .collect()
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("include/corsac.h")).unwrap();
    let code = header
        .lines()
        .filter(|line| !line.trim_start().starts_with('*'));
    let words =
        code.flat_map(|line| line.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_'));
    let calls = words.filter_map(|word| word.strip_suffix('('));
    calls
        .filter(|name| name.starts_with("corsac_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_c_program_makes_no_error_and_leaks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_models(folder.path());
    let program = folder.path().join("program");
    let mut gcc = gcc();
    gcc.args(sources()).arg(library("libcorsac.a"));
    gcc.args(["-lpthread", "-lm", "-ldl", "-Wl,--strip-debug", "-o"])
        .arg(&program);
    let is_checked_by_valgrind = has("valgrind");
    if !is_checked_by_valgrind {
        gcc.arg("-fsanitize=address,undefined")
            .arg("-fno-sanitize-recover=all");
    }
    run(&mut gcc);
    let mut checked = match is_checked_by_valgrind {
        true => {
            let mut valgrind = Command::new("valgrind");
            // Threads of pools live as long as the program, with what is theirs.
            valgrind.args(["--quiet", "--error-exitcode=1", "--leak-check=full"]);
            valgrind.args([
                "--show-leak-kinds=definite,indirect",
                "--errors-for-leak-kinds=definite,indirect",
            ]);
            let known = root().join("tests/c/valgrind.supp");
            valgrind.arg(format!("--suppressions={}", known.display()));
            valgrind.arg(&program);
            valgrind
        }
        false => Command::new(&program),
    };
    assert_eq!(run(checked.arg(folder.path())), "all good\n");
}

#[test]
fn the_shared_library_has_the_functions_of_the_header_and_no_others() {
    let shared = library("libcorsac.so");
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(&shared));
    let exported = symbols.lines().filter_map(|line| line.split(' ').next());
    let exported: BTreeSet<String> = exported.map(str::to_owned).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 20, "{exported:?}");
    let facts = run(Command::new("readelf").arg("-d").arg(&shared));
    assert!(facts.contains("soname: [libcorsac.so.0]"), "{facts}");
}

#[test]
fn the_header_is_cpp_too() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.cc");
    let text = "#include \"corsac.h\"
        #include <cstdio>
        int main() {
            corsac_model *model = nullptr;
            corsac_status status = corsac_model_load(\"none\", nullptr, &model, nullptr);
            std::puts(corsac_status_name(status));
        }";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("program");
    let mut gpp = Command::new("g++");
    gpp.arg("-std=c++11")
        .args(WARNINGS)
        .arg("-I")
        .arg(root().join("include"));
    gpp.arg(&source).arg(library("libcorsac.a"));
    run(gpp
        .args(["-lpthread", "-lm", "-ldl", "-Wl,--strip-debug", "-o"])
        .arg(&program));
    assert_eq!(run(&mut Command::new(&program)), "CORSAC_STATUS_IO\n");
}

#[test]
fn the_program_of_the_documentation_is_c() {
    let crates = root().parent().unwrap();
    let text = std::fs::read_to_string(crates.with_file_name("docs").join("c.md")).unwrap();
    let (_, rest) = text.split_once("```c\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.c");
    std::fs::write(&path, program).unwrap();
    run(gcc().arg("-c").arg(&path).arg("-o").arg("/dev/null"));
}

/// Makes calls of random bytes, of which some are right.
fn make_random_calls(calls: impl Fn(&[u8]) -> usize) {
    let (mut right, cases) = (0, 300);
    let mut bytes = vec![0; 300];
    let mut state = 1_u64;
    for _ in 0..cases {
        for byte in &mut bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        right += calls(&bytes);
    }
    assert!(right > cases / 10, "{right}");
}

#[test]
fn random_calls_keep_their_promises() {
    for model in [rows(), types()] {
        let target = Target::load(&model).unwrap();
        make_random_calls(|bytes| target.calls(bytes));
    }
    let stateful = Target::load(&stateful_model()).unwrap();
    make_random_calls(|bytes| stateful.session_calls(&[c"batch", c"capacity"], bytes));
    let text = TextTarget::load(&small_text_model()).unwrap();
    make_random_calls(|bytes| text.calls(bytes));
}

#[test]
fn the_example_is_built_against_an_installation_and_prints_the_largest_elements() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("usr");
    let crates = root().parent().unwrap();
    let scripts = crates.with_file_name("scripts");
    let built = library("libcorsac.so");
    let mut install = Command::new(scripts.join("install_capi.sh"));
    install.arg(built.parent().unwrap()).env_remove("DESTDIR");
    install.env("PREFIX", &prefix).env_remove("LIBDIR");
    run(install.env("STRIP", "no"));
    let flags = format!("-I{0}/include -L{0}/lib -lcorsac", prefix.display());
    if has("pkg-config") {
        let mut config = Command::new("pkg-config");
        config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        let found = run(config.args(["--cflags", "--libs", "corsac"]));
        assert_eq!(found.trim(), flags);
    }
    let program = folder.path().join("classify");
    let mut gcc = Command::new("gcc");
    gcc.arg("-std=c11").args(WARNINGS);
    gcc.arg(crates.with_file_name("examples").join("c/classify.c"));
    run(gcc.args(flags.split_whitespace()).arg("-o").arg(&program));

    let (model, array) = (folder.path().join("model"), folder.path().join("array"));
    std::fs::write(&model, double()).unwrap();
    let elements = [0.5_f32, -1.0, 4.0, 0.0, 2.25, 3.0];
    let bytes: Vec<u8> = elements.iter().flat_map(|own| own.to_ne_bytes()).collect();
    std::fs::write(&array, bytes).unwrap();
    let mut classify = Command::new(&program);
    classify.args([&model, &array]).arg("3");
    let printed = run(classify.env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert_eq!(printed, "class 2: 8\nclass 5: 6\nclass 4: 4.5\n");
}
