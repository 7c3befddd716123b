//! Assembles a function from the text of its body, which a host may have changed.

use crate::body::NO_NODE;
use crate::code::LineMap;

/// The mark at the beginning of a node's code in a body of text.
const COUNTER: &str = "# COUNTER: ";

/// Assembles a module of one function from the statements before it, its first lines, and its body
/// as text with marks at the beginning of each node's code.
///
/// Returns the source, the node of each line, and the line that the function starts on.
#[must_use]
pub fn assemble(wraps: &str, prologue: &str, body: &str) -> (String, LineMap, u32) {
    let (mut src, start) = head(wraps, prologue);
    let mut lines = Vec::new();
    let mut node = NO_NODE;
    let mut is_first = true;
    for line in body.split('\n') {
        let line = match counter(line) {
            Some((before, index)) => {
                node = index;
                // The mark has the line for itself, unless a transformer left out a line break.
                if before.trim().is_empty() {
                    continue;
                }
                before
            }
            None => line,
        };
        lines.push(node);
        // Empty lines are not shown before the first other one.
        if is_first && line.is_empty() {
            continue;
        }
        if !is_first {
            src.push('\n');
        }
        is_first = false;
        src.push_str("    ");
        src.push_str(line);
    }
    if is_first {
        src.push_str("    ");
    }
    (src, LineMap::after(prologue, lines), start)
}

/// The source up to the body, and the line that the function starts on.
pub(crate) fn head(wraps: &str, prologue: &str) -> (String, u32) {
    let start = wraps.matches('\n').count() + 4;
    (
        format!("\n{wraps}\n\n{prologue}\n"),
        u32::try_from(start).unwrap_or(u32::MAX),
    )
}

/// Splits a line that ends in a mark into the text before it and the node's index.
fn counter(line: &str) -> Option<(&str, u32)> {
    let (before, index) = line.trim_end().rsplit_once(COUNTER)?;
    Some((before, index.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_the_line_map() {
        let body = "# COUNTER: 0\n# COUNTER: 1\nadd = x + 1\n# COUNTER: 2\nreturn add\n";
        let (src, lines, start) = assemble("", "def forward(self, x):", body);
        assert_eq!(
            src,
            "\n\n\ndef forward(self, x):\n    add = x + 1\n    return add\n    "
        );
        let map: Vec<_> = lines.iter().collect();
        assert_eq!(map, [(1, Some(1)), (2, Some(2)), (3, Some(2))]);
        assert_eq!(start, 4);
    }

    #[test]
    fn text_that_looks_like_a_mark_stays() {
        let body = "# COUNTER: 0\nx = f('# COUNTER: 7')\nbreakpoint()# COUNTER: 1\n";
        let (src, _, _) = assemble("", "def f():", body);
        assert_eq!(
            src,
            "\n\n\ndef f():\n    x = f('# COUNTER: 7')\n    breakpoint()\n    "
        );
    }
}
