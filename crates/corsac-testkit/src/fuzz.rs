//! The bodies of the fuzz targets: properties that hold for any bytes.
//!
//! `fuzz/` runs them under libFuzzer; the `corsac-fuzz` program runs them on bytes that it
//! generates itself, for machines without libFuzzer.

use corsac_ir::Graph;

#[cfg(feature = "engine")]
pub use crate::fuzz_model::{
    c_interface, control_model, model_file, quantised_model, sized_model, small_model,
    stateful_model, typed_model,
};
#[cfg(feature = "engine")]
pub use crate::fuzz_text::{SMALL_TOKENIZER, language_model, small_text_model, tokenizer};

pub use corsac_bytecode::fuzz::code_object;

use crate::assert_sound;
use crate::bytes::Bytes;
use crate::edit::Editor;

/// Reads `bytes` as the text of a graph. A graph that is read must print as text that reads back as
/// the same graph.
///
/// # Panics
/// If it does not, or the graph is unsound.
pub fn parser(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let graph = match Graph::parse(&text) {
        Ok(graph) => graph,
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1);
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_sound(&graph);
    assert_round_trip(&graph);
}

/// Makes a graph and changes of it from `bytes`. After each change the graph must be sound, and in
/// the end its text must read back as the same graph.
///
/// # Panics
/// If it is not.
pub fn edit_sequence(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let mut editor = Editor::new(bytes.graph(12).build());
    while !bytes.is_empty() {
        editor.apply(&bytes.edit());
        assert_sound(&editor.graph);
    }
    assert_round_trip(&editor.graph);
}

/// Checks that both text forms of the graph read back, as far as they can be read.
///
/// # Panics
/// If a form reads as another graph.
pub fn assert_round_trip(graph: &Graph) {
    let text = graph.to_lossless();
    match Graph::parse(&text) {
        Ok(again) => {
            assert!(again.same_as(graph), "reads as another graph:\n{text}");
            assert_eq!(again.to_lossless(), text);
        }
        // Two nodes with one name, or an erased node that is still used, cannot be written.
        Err(error) => {
            let faults = graph.lint_report().to_string();
            let excuse = ["the same name", "has been erased"];
            assert!(
                excuse.iter().any(|reason| faults.contains(reason)),
                "{error}\n{text}"
            );
            return;
        }
    }
    let shown = graph.to_string();
    // Line breaks in strings make lines of their own, which may read as comments or blank lines.
    let one_line_each = shown.matches(['\n', '\r']).count() == graph.len();
    if one_line_each && let Ok(again) = Graph::parse(&shown) {
        assert_eq!(again.to_string(), shown, "prints as another text");
    }
}
