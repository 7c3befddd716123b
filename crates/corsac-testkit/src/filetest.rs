//! Filetests: text in, expected text out.
//!
//! `filetests/PASS/*.txt` are run through the function that the caller gives for PASS. A file has
//! cases; a line of `=` separates two, and in a case a line of `-` separates input and expected
//! output:
//!
//! ```text
//! # What this case is about.
//! graph v1:
//!     %x = placeholder[target=x]
//! -----
//! graph():
//!     %x : [num_users=0] = placeholder[target=x]
//! =====
//! ...
//! ```
//!
//! With `CORSAC_BLESS=1` in the environment expectations are rewritten; review the difference like
//! code. A crate adds its passes by calling [`run`] from a test of its own.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use corsac_ir::Graph;

const SEPARATOR: &str = "=====";
const ARROW: &str = "-----";

/// Runs all files in `filetests/PASS` of this workspace through `pass`.
///
/// # Panics
/// If outcomes are not the expected ones (the message lists them all), or a file cannot be read.
pub fn run(pass: &str, transform: impl Fn(&str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../filetests/{pass}"));
    let bless = env::var_os("CORSAC_BLESS").is_some_and(|value| value == "1");
    let mut failures = String::new();
    let files = files(&folder);
    assert!(!files.is_empty(), "no filetests in {}", folder.display());
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable file");
        let cases = parse(&text);
        let outcomes: Vec<String> = cases.iter().map(|case| transform(case.input)).collect();
        if bless {
            let written = write(&cases, &outcomes);
            if written != text {
                fs::write(&file, written).expect("a writable file");
            }
            continue;
        }
        for (case, outcome) in cases.iter().zip(&outcomes) {
            if case.expected.trim_end() != outcome.trim_end() {
                let name = file.strip_prefix(&folder).unwrap_or(&file).display();
                // Writing to a `String` cannot fail.
                let _ = write!(
                    failures,
                    "\nfiletests/{pass}/{name}:{}\n{}",
                    case.line,
                    difference(case.expected, outcome)
                );
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{failures}\nCORSAC_BLESS=1 writes what came out into the files"
    );
}

/// A pass over graphs, for [`run`]: reads the input, changes the graph, and prints it without
/// loss; the text that `pass` returns stands in front, as a comment.
///
/// # Panics
/// If the input is no graph, or `pass` leaves an unsound one.
pub fn on_graph(pass: impl Fn(&mut Graph) -> String) -> impl Fn(&str) -> String {
    move |input| {
        let mut graph = crate::parse(input);
        let note = pass(&mut graph);
        crate::assert_sound(&graph);
        let comment: String = note.lines().map(|line| format!("# {line}\n")).collect();
        format!("{comment}{}", graph.to_lossless())
    }
}

struct Case<'t> {
    /// Number of its first line in the file, counted from 1.
    line: usize,
    input: &'t str,
    expected: &'t str,
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    files.sort();
    files
}

fn parse(text: &str) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    let mut line = 1;
    for part in split_at_line(text, SEPARATOR) {
        let mut halves = split_at_line(part, ARROW).into_iter();
        cases.push(Case {
            line,
            input: halves.next().unwrap_or_default(),
            expected: halves.next().unwrap_or_default(),
        });
        line += part.matches('\n').count() + 1;
    }
    cases
}

/// The parts of `text` between lines that consist of `separator`.
fn split_at_line<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_end() == separator {
            parts.push(&text[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    parts.push(&text[start..]);
    parts
}

fn write(cases: &[Case<'_>], outcomes: &[String]) -> String {
    let parts: Vec<String> = cases
        .iter()
        .zip(outcomes)
        .map(|(case, outcome)| {
            let (input, outcome) = (case.input.trim_end(), outcome.trim_end());
            format!("{input}\n{ARROW}\n{outcome}\n")
        })
        .collect();
    parts.join(&format!("{SEPARATOR}\n"))
}

/// The lines from the first to the last one that differ.
fn difference(expected: &str, found: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (
        expected.trim_end().lines().collect(),
        found.trim_end().lines().collect(),
    );
    let same_front = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same_front..], &new[same_front..]);
    let same_back = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let mut out = String::new();
    for line in &old[..old.len() - same_back] {
        let _ = writeln!(out, "- {line}");
    }
    for line in &new[..new.len() - same_back] {
        let _ = writeln!(out, "+ {line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_and_written() {
        let text = "a\nb\n-----\nc\n=====\nd\n-----\ne\n";
        let cases = parse(text);
        assert_eq!(cases.len(), 2);
        assert_eq!((cases[0].line, cases[1].line), (1, 6));
        assert_eq!((cases[0].input, cases[0].expected), ("a\nb\n", "c\n"));
        let outcomes = ["c".to_owned(), "f\ng".to_owned()];
        assert_eq!(
            write(&cases, &outcomes),
            "a\nb\n-----\nc\n=====\nd\n-----\nf\ng\n"
        );
        assert_eq!(difference("a\nb\nc\n", "a\nx\ny\nc"), "- b\n+ x\n+ y\n");
    }
}
