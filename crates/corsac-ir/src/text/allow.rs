//! The names that a text may use for things that only a host can find: functions, classes, other
//! objects.

use rustc_hash::FxHashSet;

use super::cursor::Cursor;
use super::parse_error::{ParseError, quoted};

/// The qualified names that are allowed. Each is decided once.
#[derive(Default)]
pub(super) struct Allowed<'a> {
    /// Decides whether a name is allowed; without it, all names are.
    decide: Option<&'a dyn Fn(&str) -> bool>,
    known: FxHashSet<String>,
}

impl<'a> Allowed<'a> {
    pub(super) fn by(decide: Option<&'a dyn Fn(&str) -> bool>) -> Self {
        Self {
            decide,
            known: FxHashSet::default(),
        }
    }

    /// Checks that every name in `text`, which stands at `at`, is allowed.
    pub(super) fn check(
        &mut self,
        cursor: &Cursor<'_>,
        at: usize,
        text: &str,
    ) -> Result<(), ParseError> {
        let Some(decide) = self.decide else {
            return Ok(());
        };
        if self.known.contains(text) {
            return Ok(());
        }
        for name in qualified_names(text) {
            if !decide(&name) {
                let found = quoted(&name);
                return Err(cursor.error_found(at, "a name that is allowed here", found));
            }
        }
        self.known.insert(text.to_owned());
        Ok(())
    }
}

/// The names in the text of a host value, each from its module on: `builtins.list` and
/// `torch.Tensor` of `list[torch.Tensor]`. A string between quotes names nothing.
fn qualified_names(text: &str) -> impl Iterator<Item = String> {
    let class = text.strip_prefix("<class '");
    let text = match class.and_then(|name| name.strip_suffix("'>")) {
        Some(class) => class,
        None if text.starts_with(['\'', '"']) => "",
        None => text,
    };
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '<' | '>');
    text.split(move |c| !is_name(c))
        // The ellipsis is no name.
        .filter(|name| !name.trim_matches('.').is_empty() && *name != "None")
        .map(|name| {
            if name.contains('.') {
                name.to_owned()
            } else {
                format!("builtins.{name}")
            }
        })
}

/// Whether `name` is `prefix` or something in it: `torch.nn.ReLU` is in `torch` and in `torch.nn`,
/// and `torchvision.ops` is not.
///
/// ```
/// use corsac_ir::is_name_within;
///
/// assert!(is_name_within("torch.nn.ReLU", "torch.nn"));
/// assert!(!is_name_within("torchvision.ops", "torch"));
/// ```
#[must_use]
pub fn is_name_within(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;

    #[test]
    fn names_are_taken_out_of_types() {
        let cases: [(&str, &[&str]); 7] = [
            ("torch.relu", &["torch.relu"]),
            ("len", &["builtins.len"]),
            ("<class 'os.stat_result'>", &["os.stat_result"]),
            ("list[torch.Tensor]", &["builtins.list", "torch.Tensor"]),
            (
                "typing.Callable[[int, ...], os.system | None]",
                &["typing.Callable", "builtins.int", "os.system"],
            ),
            ("'os.system'", &[]),
            ("a.<locals>.f", &["a.<locals>.f"]),
        ];
        for (text, names) in cases {
            assert_eq!(qualified_names(text).collect::<Vec<_>>(), names, "{text}");
        }
    }

    fn refusal(text: &str) -> Option<String> {
        let allow = |name: &str| {
            ["torch", "builtins.list"]
                .iter()
                .any(|prefix| is_name_within(name, prefix))
        };
        let refused = Graph::parse_allowing(text, &allow).err()?;
        assert_eq!(refused.expected, "a name that is allowed here");
        Some(format!(
            "{}:{} {}",
            refused.line, refused.column, refused.found
        ))
    }

    #[test]
    fn functions_types_and_values_must_be_allowed() {
        let good = "graph v1:
            extern @0 = 'list[torch.Tensor]'
            extern @1
            %x : @0 = placeholder[target=os.system]
            %y = call_function[target=torch.relu](args = (%x, 'os.system', @1), kwargs = {})
            %z = call_method[target=system](args = (%y,), kwargs = {})";
        assert_eq!(refusal(good), None);
        let cases = [
            (
                good.replace("torch.relu", "torchaudio.load"),
                "5:39 `torchaudio.load`",
            ),
            (
                good.replace("torch.relu", "'os.system'"),
                "5:39 `os.system`",
            ),
            (good.replace("torch.relu", "eval"), "5:39 `builtins.eval`"),
            (
                good.replace("'list[", "'dict[str, "),
                "2:25 `builtins.dict`",
            ),
            (
                good.replace("extern @1", "extern @1 = 'os.environ'"),
                "3:25 `os.environ`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(refusal(&text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn the_shown_form_is_asked_about_too() {
        let good = "graph():
    %x : torch.Tensor [num_users=1] = placeholder[target=x](default=os.system)
    %y : [num_users=1] = call_function[target=torch.relu](args = (%x, os.system), kwargs = {})
    return (y, 'os.system')";
        assert_eq!(refusal(good), None);
        let cases = [
            (good.replace("torch.relu", "os.system"), "3:47 `os.system`"),
            (
                good.replace("x : torch.Tensor", "x : os.PathLike"),
                "2:10 `os.PathLike`",
            ),
            (
                good.replace("%x, os.system", "%x, <class 'os.stat_result'>"),
                "3:71 `os.stat_result`",
            ),
            (
                good.replace("%x, os.system", "%x, mine(1)"),
                "3:71 `builtins.mine`",
            ),
            (
                good.replace("(y, 'os.system')", "(y, mine.Tuple(a=1))"),
                "4:16 `mine.Tuple`",
            ),
            (
                good.replace("(y, 'os.system')", "(y, <class 'a.B'>)"),
                "4:16 `a.B`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(refusal(&text).as_deref(), Some(expected), "{text}");
        }
    }
}
