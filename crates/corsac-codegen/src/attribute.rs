//! Identifiers, and attributes by qualified name.

use corsac_ir::literal;
use corsac_ir::namespace::is_keyword;

/// Whether `text` is an ASCII identifier and no keyword, so that it can stand behind a dot or name
/// a variable on every version of Python.
#[must_use]
pub(crate) fn is_plain_identifier(text: &str) -> bool {
    is_identifier(text) && !is_keyword(text)
}

/// Whether `text` is an ASCII identifier, or a keyword.
#[inline]
#[must_use]
pub(crate) fn is_identifier(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|first| !first.is_ascii_digit())
        && bytes.iter().all(|&byte| IN_IDENTIFIER[byte as usize])
}

/// ASCII letters, digits and the underscore.
static IN_IDENTIFIER: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        byte += 1;
    }
    table
};

/// Whether `text` can name a parameter: an identifier, not necessarily ASCII, and no keyword.
///
/// Every version of Python has to accept its characters, and none may be one that Python takes for
/// another (compatibility characters such as `ﬁ` for `fi`, which start at U+FB00 and U+1D400, and
/// some before): only letters of the scripts below, which have few such, are accepted.
#[must_use]
pub(crate) fn is_parameter_name(text: &str) -> bool {
    if !text.chars().all(|c| c.is_ascii() || is_plain_letter(c)) {
        return false;
    }
    let mut chars = text.chars();
    chars
        .next()
        .is_some_and(|c| c == '_' || unicode_ident::is_xid_start(c))
        && chars.all(unicode_ident::is_xid_continue)
        && !is_keyword(text)
}

/// A non-ASCII letter that normalisation (NFKC) leaves as it is.
fn is_plain_letter(c: char) -> bool {
    let is_compatible = matches!(
        c,
        'ª' | 'µ' | 'º' | 'ſ' | '\u{132}' | '\u{133}' | '\u{13f}' | '\u{140}' | '\u{149}'
            | '\u{1c4}'..='\u{1cc}' | '\u{1f1}'..='\u{1f3}'
            | '\u{374}' | '\u{37a}' | '\u{37e}' | '\u{387}'
            | '\u{3d0}'..='\u{3d6}' | '\u{3f0}'..='\u{3f5}' | '\u{3f9}'
            | '\u{309b}' | '\u{309c}' | '\u{309f}' | '\u{30ff}'
            | '\u{3099}' | '\u{309a}'
    );
    // Latin, Greek and Cyrillic; kana; Han; Hangul.
    let is_known = matches!(
        c,
        '\u{c0}'..='\u{2af}' | '\u{370}'..='\u{482}' | '\u{48a}'..='\u{52f}'
            | '\u{3041}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}'
    );
    is_known && !is_compatible && literal::is_printable(c)
}

/// Appends the attributes in `path` to the expression that stands in `out` from `start` on:
/// `self` becomes `self.layer`, or `getattr(self.layers, "0")` where the name is no identifier.
///
/// Non-ASCII names are quoted as well: Python normalises identifiers but not strings.
pub(crate) fn push_path(out: &mut String, start: usize, path: &str) {
    for name in path.split('.') {
        push_attribute(out, start, name);
    }
}

/// Appends one attribute, likewise; `name` may hold anything.
pub(crate) fn push_attribute(out: &mut String, start: usize, name: &str) {
    if is_plain_identifier(name) {
        out.push('.');
        out.push_str(name);
        return;
    }
    out.insert_str(start, "getattr(");
    out.push_str(", ");
    push_double_quoted(out, name);
    out.push(')');
}

/// A string in double quotes where nothing in it needs escaping, as `repr` has it otherwise.
pub(crate) fn push_double_quoted(out: &mut String, text: &str) {
    if text
        .chars()
        .all(|c| c != '"' && c != '\\' && literal::is_printable(c))
    {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        // Writing to a `String` cannot fail.
        let _ = literal::write_str(out, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(base: &str, path: &str) -> String {
        let mut out = format!("x = {base}");
        push_path(&mut out, 4, path);
        out
    }

    #[test]
    fn paths_are_attributes_or_getattr() {
        assert_eq!(path("self", "a.b"), "x = self.a.b");
        assert_eq!(
            path("self", "layers.0.weight"),
            r#"x = getattr(self.layers, "0").weight"#
        );
        assert_eq!(
            path("self", "0.1"),
            r#"x = getattr(getattr(self, "0"), "1")"#
        );
        assert_eq!(path("self", "for"), r#"x = getattr(self, "for")"#);
        assert_eq!(path("self", ""), r#"x = getattr(self, "")"#);
        assert_eq!(
            path("self", "a\") or evil(\"\n"),
            "x = getattr(self, 'a\") or evil(\"\\n')"
        );
        assert_eq!(path("self", "ﬁ"), "x = getattr(self, \"ﬁ\")");
    }

    #[test]
    fn parameters_may_be_of_any_script() {
        for name in ["é", "_1", "λ", "вход", "入力", "입력"] {
            assert!(is_parameter_name(name), "{name}");
        }
        for name in ["ﬁ", "ｘ", "e\u{301}", "\u{2ebf0}", "ℝ", "ſ", "\u{1100}"] {
            assert!(!is_parameter_name(name), "{name}");
        }
        assert!(!is_parameter_name("1é") && !is_parameter_name("for") && !is_parameter_name(""));
        assert!(!is_parameter_name("x):\n    evil(") && !is_parameter_name("*x"));
    }
}
