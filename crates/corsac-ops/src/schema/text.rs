//! Reads schemas as PyTorch prints them: `add.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`.

use super::{Schema, SchemaParam};

impl Schema {
    /// Reads the text of `str(operator._schema)`. Tags are not in it: `random` is false.
    ///
    /// Returns `None` for unreadable text, so that the operator counts as unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('(')?;
        let end = closing_bracket(rest)?;
        let (params, returns) = (&rest[..end], rest[end + 1..].trim_start());
        let returned = alias_names(returns.strip_prefix("->")?);
        let mut schema = Self {
            name: name.strip_prefix("aten::").unwrap_or(name).to_owned(),
            params: Vec::new(),
            random: false,
            composite: false,
            single: false,
            pointwise: false,
            reshapes: false,
        };
        let mut keyword_only = false;
        for part in top_level_parts(params) {
            if part == "*" {
                keyword_only = true;
                continue;
            }
            let declared = part.split('=').next().unwrap_or(part).trim_end();
            let (ty, name) = declared.rsplit_once(' ')?;
            let aliases = alias_names(ty);
            schema.params.push(SchemaParam {
                name: name.to_owned(),
                keyword_only,
                written: aliases.iter().any(|a| a.ends_with('!')),
                aliased: aliases
                    .iter()
                    .any(|a| *a == "*" || returned.iter().any(|r| same_set(a, r))),
            });
        }
        Some(schema)
    }
}

fn same_set(a: &str, b: &str) -> bool {
    b == "*" || a.trim_end_matches('!') == b.trim_end_matches('!')
}

/// The position of the bracket that closes the one before `text`.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 1_u32;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(i);
        }
    }
    None
}

/// `text` split at the commas that are in no bracket.
fn top_level_parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

/// The alias sets in a type: `a!` in `Tensor(a!)[]`, `a` and `*` in `Tensor(a -> *)`.
fn alias_names(ty: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in ty.match_indices('(') {
        // An alias annotation follows its type; other brackets open a list of returns.
        let follows_type = ty[..at].ends_with(|c: char| c.is_alphanumeric() || "])?".contains(c));
        let inner = &ty[at + 1..];
        let Some(end) = inner.find(')') else { continue };
        if follows_type {
            names.extend(inner[..end].split("->").flat_map(|set| set.split('|')));
        }
    }
    names.iter_mut().for_each(|name| *name = name.trim());
    names.retain(|name| !name.is_empty() && name.len() <= 3 && !name.contains(','));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(text: &str) -> String {
        let schema = Schema::parse(text).unwrap();
        let params = schema.params.iter().map(|p| {
            format!(
                "{}{}{}{}",
                if p.keyword_only { "*" } else { "" },
                p.name,
                if p.written { "!" } else { "" },
                if p.aliased { "~" } else { "" },
            )
        });
        format!("{}: {}", schema.name, params.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_pytorch_prints_is_read() {
        let cases = [
            (
                "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
                "add.out: self other *alpha *out!~",
            ),
            (
                "aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]",
                "chunk: self~ chunks dim",
            ),
            (
                "mylib::scale_(Tensor(a!) x, float[] by=[1., 2.]) -> ()",
                "mylib::scale_: x! by",
            ),
            (
                "mylib::f(Tensor(a!)[] xs, str s=\"ab\", *, Device? d=None) -> (Tensor, Tensor)",
                "mylib::f: xs! s *d",
            ),
            (
                "mylib::pair(Tensor(a) x, Tensor(b) y) -> (Tensor(a), Tensor)",
                "mylib::pair: x~ y",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(summary(text), expected);
        }
    }

    #[test]
    fn what_is_no_schema_is_unknown() {
        for text in ["", "f", "f(", "f(Tensor x)", "f(x) -> Tensor"] {
            assert_eq!(Schema::parse(text), None, "{text}");
        }
    }
}
