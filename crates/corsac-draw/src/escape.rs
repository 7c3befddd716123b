//! Escapes of text of a graph inside markup.

use std::fmt::Write;

/// `text` inside an element or a quoted attribute of XML or HTML. Characters that XML cannot hold
/// are replaced.
pub(crate) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A quoted DOT string that shows `text`.
pub(crate) fn dot(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\0'..='\u{1f}' | '\u{7f}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// JSON inside a `<script>` element: nothing in it ends the element or opens a comment.
pub(crate) fn json_in_script(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_stays_text() {
        assert_eq!(
            xml("</text><script>&\"'\u{0}"),
            "&lt;/text&gt;&lt;script&gt;&amp;&quot;&#39;\u{fffd}"
        );
        assert_eq!(dot("a\"];\n\\"), r#""a\"];\n\\""#);
        assert_eq!(
            json_in_script("\"</script><!--\u{2028}\""),
            r#""\u003c/script\u003e\u003c!--\u2028""#
        );
    }
}
