//! Names of values, by torch.fx's rules.
//!
//! A candidate becomes a Python identifier that no other value of the graph has, that is neither a
//! keyword nor a builtin nor a name that generated code uses itself. A taken name gets a numeric
//! suffix, counted per base name. Source: `torch/fx/graph.py` (`_Namespace`), by behaviour.
//!
//! Two differences, both where torch.fx would produce a name that is no identifier: a trailing
//! line break and non-ASCII digits are replaced like any other illegal character.

use rustc_hash::FxHashMap;

use crate::entity::{EntityId, Symbol};
use crate::interner::Interner;

/// The names in use, and for each base name the suffix given out last.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    used: Vec<u64>,
    bases: FxHashMap<Symbol, Base>,
    /// The base of candidates seen before that have no numeric suffix.
    plain: FxHashMap<Symbol, Symbol>,
    /// The base of the name copied last: names that differ in their number only come in rows.
    last_copied: Option<Symbol>,
    buffer: String,
}

/// The state of a base name.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    last_suffix: u64,
    reserved: bool,
}

impl Namespace {
    /// An empty name space.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `name` is taken.
    #[inline]
    #[must_use]
    pub fn is_used(&self, name: Symbol) -> bool {
        let index = name.index();
        self.used
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Takes `name` as it is, whether or not it is taken already.
    pub fn mark_used(&mut self, name: Symbol) {
        let index = name.index();
        if index / 64 >= self.used.len() {
            self.used.resize(index / 64 + 1, 0);
        }
        self.used[index / 64] |= 1 << (index % 64);
    }

    /// A fresh name after `candidate`, marked as taken.
    ///
    /// `may_shadow` is true if the thing to be named is itself the builtin or keyword object of
    /// that name, which may then keep it.
    pub fn create(&mut self, strings: &mut Interner, candidate: &str, may_shadow: bool) -> Symbol {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        push_identifier(candidate, &mut buffer);
        let name = match split_suffix(&buffer) {
            (_, None) => {
                let base = strings.intern(&buffer);
                self.create_plain(strings, base, may_shadow, &mut buffer)
            }
            (base_len, Some(number)) => {
                let (name, base) = (strings.intern(&buffer), strings.intern(&buffer[..base_len]));
                let free = !self.is_used(name);
                let number = if free {
                    number
                } else {
                    self.base(strings, base).last_suffix
                };
                let name = if free { Some(name) } else { None };
                buffer.truncate(base_len);
                self.take_numbered(strings, base, name, number, &mut buffer)
            }
        };
        self.buffer = buffer;
        name
    }

    /// As [`Namespace::create`], for a candidate that is used again and again.
    pub fn create_after(&mut self, strings: &mut Interner, candidate: Symbol) -> Symbol {
        let mut buffer = std::mem::take(&mut self.buffer);
        let known = self.plain.get(&candidate).copied();
        let name = if let Some(base) = known {
            self.create_plain(strings, base, false, &mut buffer)
        } else {
            buffer.clear();
            push_identifier(strings.resolve(candidate), &mut buffer);
            if split_suffix(&buffer).1.is_none() {
                let base = strings.intern(&buffer);
                self.plain.insert(candidate, base);
                self.create_plain(strings, base, false, &mut buffer)
            } else {
                let text = strings.resolve(candidate).to_owned();
                self.buffer = buffer;
                return self.create(strings, &text, false);
            }
        };
        self.buffer = buffer;
        name
    }

    /// As [`Namespace::create`] for the name that a value has elsewhere, which is most often free.
    pub(crate) fn create_copy(&mut self, strings: &mut Interner, name: Symbol) -> Symbol {
        let text = strings.resolve(name);
        if !self.is_used(name)
            && is_identifier(text)
            && let (base_len, Some(number)) = split_suffix(text)
            && let Some(base) = self
                .last_copied
                .filter(|&last| strings.resolve(last) == &text[..base_len])
                .or_else(|| strings.lookup(&text[..base_len]))
        {
            self.last_copied = Some(base);
            self.mark_used(name);
            self.base(strings, base).last_suffix = number;
            return name;
        }
        let text = text.to_owned();
        self.create(strings, &text, false)
    }

    /// A name after a base that is an identifier without a suffix.
    fn create_plain(
        &mut self,
        strings: &mut Interner,
        base: Symbol,
        may_shadow: bool,
        buffer: &mut String,
    ) -> Symbol {
        let Base {
            last_suffix,
            reserved,
        } = *self.base(strings, base);
        let allowed = may_shadow || !reserved;
        let name = (allowed && !self.is_used(base)).then_some(base);
        buffer.clear();
        buffer.push_str(strings.resolve(base));
        self.take_numbered(strings, base, name, last_suffix, buffer)
    }

    /// Takes `name` if it is given, or else the first free one of `base_N` with N over `number`.
    /// `buffer` holds the base.
    fn take_numbered(
        &mut self,
        strings: &mut Interner,
        base: Symbol,
        mut name: Option<Symbol>,
        mut number: u64,
        buffer: &mut String,
    ) -> Symbol {
        let base_len = buffer.len();
        let name = loop {
            if let Some(name) = name {
                break name;
            }
            number += 1;
            buffer.truncate(base_len);
            buffer.push('_');
            buffer.push_str(itoa::Buffer::new().format(number));
            name = Some(strings.intern(buffer)).filter(|&name| !self.is_used(name));
        };
        self.mark_used(name);
        self.base(strings, base).last_suffix = number;
        name
    }

    fn base(&mut self, strings: &Interner, base: Symbol) -> &mut Base {
        let new = || Base {
            last_suffix: 0,
            reserved: is_reserved(strings.resolve(base)),
        };
        self.bases.entry(base).or_insert_with(new)
    }
}

/// `candidate` made an ASCII identifier, as [`Namespace::create`] does before it checks whether the
/// name is free.
#[must_use]
pub fn identifier(candidate: &str) -> String {
    let mut out = String::with_capacity(candidate.len() + 1);
    push_identifier(candidate, &mut out);
    out
}

/// Appends `candidate` with every run of characters that cannot stand in an ASCII identifier
/// replaced by one underscore, and with a leading underscore where it would start with a digit.
fn push_identifier(candidate: &str, out: &mut String) {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if candidate.is_empty() {
        out.push_str("_unnamed");
        return;
    }
    let mut in_run = false;
    for c in candidate.chars() {
        if legal(c) {
            if out.is_empty() && c.is_ascii_digit() {
                out.push('_');
            }
            out.push(c);
            in_run = false;
        } else if !in_run {
            out.push('_');
            in_run = true;
        }
    }
}

/// Whether [`push_identifier`] would leave `name` as it is.
fn is_identifier(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(legal) && !name.is_empty() && !name.as_bytes()[0].is_ascii_digit()
}

/// Splits `relu_12` into the length of `relu` and 12. A suffix too large to count with is part of
/// the base.
fn split_suffix(name: &str) -> (usize, Option<u64>) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let stem = &name[..name.len() - digits];
    match stem.strip_suffix('_') {
        Some(base) if digits > 0 && !base.is_empty() => match name[stem.len()..].parse::<u64>() {
            Ok(number) if number < u64::MAX / 2 => (base.len(), Some(number)),
            _ => (name.len(), None),
        },
        _ => (name.len(), None),
    }
}

/// Puts an underscore before each capital letter that follows a small one, then makes all letters
/// small: `pascalCase` becomes `pascal_case`, `ALL_CAPS` `all_caps`.
#[must_use]
pub fn snake_case(text: &str) -> String {
    if text
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 4);
    let mut after_small = false;
    for c in text.chars() {
        if after_small && c.is_ascii_uppercase() {
            out.push('_');
        }
        after_small = c.is_ascii_lowercase();
        out.extend(c.to_lowercase());
    }
    out
}

/// Whether a value may not be called `name`: a Python keyword, a builtin, or one of the names that
/// every generated function finds among its globals.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    // Reserved words are short and have no digits, unlike most names.
    name.len() <= LONGEST_RESERVED
        && !name.ends_with(|c: char| c.is_ascii_digit())
        && RESERVED.binary_search(&name).is_ok()
}

/// The names that no value may have, sorted.
#[must_use]
pub fn reserved_names() -> &'static [&'static str] {
    RESERVED
}

/// Whether `name` is a Python keyword (`keyword.kwlist` of CPython 3.11).
#[must_use]
pub fn is_keyword(name: &str) -> bool {
    // Compared by length first: most names are no keywords.
    matches!(
        name,
        "False"
            | "None"
            | "True"
            | "and"
            | "as"
            | "assert"
            | "async"
            | "await"
            | "break"
            | "class"
            | "continue"
            | "def"
            | "del"
            | "elif"
            | "else"
            | "except"
            | "finally"
            | "for"
            | "from"
            | "global"
            | "if"
            | "import"
            | "in"
            | "is"
            | "lambda"
            | "nonlocal"
            | "not"
            | "or"
            | "pass"
            | "raise"
            | "return"
            | "try"
            | "while"
            | "with"
            | "yield"
    )
}

const LONGEST_RESERVED: usize = 25;

/// Sorted, for binary search: the keywords, the builtins of CPython 3.11 to 3.13, and the names
/// that generated code imports (`torch/fx/graph.py`, `_register_custom_builtin`).
#[rustfmt::skip]
static RESERVED: &[&str] = &[
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "BaseExceptionGroup",
    "BlockingIOError", "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError",
    "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "DeprecationWarning", "EOFError", "Ellipsis", "EncodingWarning", "EnvironmentError",
    "Exception", "ExceptionGroup", "False", "FileExistsError", "FileNotFoundError",
    "FloatingPointError", "FutureWarning", "GeneratorExit", "IOError", "ImportError",
    "ImportWarning", "IndentationError", "IndexError", "InterruptedError", "IsADirectoryError",
    "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError", "ModuleNotFoundError",
    "NameError", "None", "NoneType", "NotADirectoryError", "NotImplemented",
    "NotImplementedError", "OSError", "OverflowError", "PendingDeprecationWarning",
    "PermissionError", "ProcessLookupError", "PythonFinalizationError", "RecursionError",
    "ReferenceError", "ResourceWarning", "RuntimeError", "RuntimeWarning", "StopAsyncIteration",
    "StopIteration", "SyntaxError", "SyntaxWarning", "SystemError", "SystemExit", "TabError",
    "TimeoutError", "True", "TypeError", "UnboundLocalError", "UnicodeDecodeError",
    "UnicodeEncodeError", "UnicodeError", "UnicodeTranslateError", "UnicodeWarning",
    "UserWarning", "ValueError", "Warning", "ZeroDivisionError", "_IncompleteInputError",
    "__build_class__", "__debug__", "__doc__", "__import__", "__loader__", "__name__",
    "__package__", "__spec__", "abs", "aiter", "all", "and", "anext", "any", "as", "ascii",
    "assert", "async", "await", "bin", "bool", "break", "breakpoint", "bytearray", "bytes",
    "callable", "chr", "class", "classmethod", "compile", "complex", "continue", "copyright",
    "credits", "def", "del", "delattr", "device", "dict", "dir", "divmod", "elif", "else",
    "enumerate", "eval", "except", "exec", "exit", "filter", "finally", "float", "for", "format",
    "from", "frozenset", "fx_pytree", "getattr", "global", "globals", "hasattr", "hash", "help",
    "hex", "id", "if", "import", "in", "inf", "input", "int", "is", "isinstance", "issubclass",
    "iter", "lambda", "len", "license", "list", "locals", "map", "max", "memoryview", "min",
    "nan", "next", "nonlocal", "not", "object", "oct", "open", "or", "ord", "pass", "pow",
    "print", "property", "pytree", "quit", "raise", "range", "repr", "return", "reversed",
    "round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "torch",
    "try", "tuple", "type", "vars", "while", "with", "yield", "zip",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(candidates: &[&str]) -> Vec<String> {
        let (mut strings, mut space) = (Interner::new(), Namespace::new());
        candidates
            .iter()
            .map(|c| {
                let name = space.create(&mut strings, c, false);
                strings.resolve(name).to_owned()
            })
            .collect()
    }

    /// Each row was printed by torch.fx 2.15's name space.
    #[test]
    fn names_are_torch_fx_names() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["relu", "relu", "relu"], &["relu", "relu_1", "relu_2"]),
            (&["a_1", "a_1", "a"], &["a_1", "a_2", "a"]),
            (&["a", "a_5", "a", "a"], &["a", "a_5", "a_6", "a_7"]),
            (
                &["add.Tensor", "0", "", "_1", "__1"],
                &["add_Tensor", "_0", "_unnamed", "_1", "__1"],
            ),
            (&["max", "max", "max_1"], &["max_1", "max_2", "max_3"]),
            (
                &["for", "torch", "inf", "device"],
                &["for_1", "torch_1", "inf_1", "device_1"],
            ),
            (&["a.-+b", "é", "x y"], &["a_b", "_", "x_y"]),
            (&["a_01", "a_01"], &["a_01", "a_2"]),
            (&["len_1", "len"], &["len_1", "len_2"]),
        ];
        for (given, expected) in cases {
            assert_eq!(names(given), *expected, "{given:?}");
        }
    }

    #[test]
    fn copied_names_are_those_of_created_ones() {
        let given = [
            "relu", "relu_7", "relu_3", "relu_3", "relu", "max", "max_1", "for", "x y", "7",
            "a_2_5", "a_2", "a_01", "_1", "b_9", "b_9", "b",
        ];
        let (mut strings, mut space) = (Interner::new(), Namespace::new());
        for known_base in ["relu", "a_2", "b"] {
            strings.intern(known_base);
        }
        let copied = given.map(|name| {
            let name = strings.intern(name);
            let copy = space.create_copy(&mut strings, name);
            strings.resolve(copy).to_owned()
        });
        assert_eq!(copied.as_slice(), names(&given));
    }

    #[test]
    fn a_huge_suffix_does_not_overflow() {
        let long = format!("a_{}", "9".repeat(60));
        assert_eq!(names(&[&long, &long]), [long.clone(), format!("{long}_1")]);
    }

    #[test]
    fn reserved_names_are_sorted() {
        assert!(RESERVED.is_sorted());
        assert!(RESERVED.iter().all(|word| is_reserved(word)));
        assert!(is_reserved("getattr") && is_keyword("lambda") && !is_keyword("getattr"));
    }

    #[test]
    fn snake_case_follows_torch_fx() {
        for (given, expected) in [
            ("pascalCase", "pascal_case"),
            ("ALL_CAPS", "all_caps"),
            ("ReLU", "re_lu"),
        ] {
            assert_eq!(snake_case(given), expected);
        }
    }
}
