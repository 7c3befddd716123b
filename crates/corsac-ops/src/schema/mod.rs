//! Operator schemas: PyTorch's descriptions of the parameters of its operators.

mod table;
mod text;

pub use table::TORCH_VERSION;

use table::TABLE;

/// One overload, as the generated table has it.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    params: &'static str,
    flags: &'static str,
}

/// A parameter of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaParam {
    /// Its name.
    pub name: String,
    /// Whether it can only be given by keyword.
    pub keyword_only: bool,
    /// Whether the operator writes to it.
    pub written: bool,
    /// Whether the result may share storage with it.
    pub aliased: bool,
}

/// PyTorch's description of one overload of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Operator and overload, `add.out`; other namespaces than `aten` in front, `prims::add`.
    pub name: String,
    /// Parameters, in order.
    pub params: Vec<SchemaParam>,
    /// Whether it uses random numbers of the generator that `torch.manual_seed` seeds.
    pub random: bool,
    /// Whether it is composed of other operators and promises nothing about the storage of its
    /// result: it may return an argument, as `type_as` does.
    pub composite: bool,
    /// Whether it has one result that is no list.
    pub single: bool,
    /// Whether each element of its result is computed from one element of each operand.
    pub pointwise: bool,
    /// Whether it may change the sizes and strides of the arguments that it writes to: `t_`,
    /// `resize_`.
    pub reshapes: bool,
}

impl Schema {
    /// The overload `name` (`add.Tensor`; `relu` for the default one).
    #[must_use]
    pub fn overload(name: &str) -> Option<Self> {
        let index = TABLE.binary_search_by(|row| row.name.cmp(name)).ok()?;
        Some(Self::from_row(&TABLE[index]))
    }

    /// All overloads of the operator `name` (`add`).
    pub fn overloads(name: &str) -> impl Iterator<Item = Self> {
        let start = TABLE.partition_point(|row| row.name < name);
        TABLE[start..]
            .iter()
            .take_while(move |row| row.name.starts_with(name))
            .filter(move |row| {
                let rest = &row.name[name.len()..];
                rest.is_empty() || rest.starts_with('.')
            })
            .map(Self::from_row)
    }

    /// Whether it can be called with this many arguments by position, the tensor among them, and
    /// with these keywords, whatever their types.
    #[must_use]
    pub fn takes<'a>(
        &self,
        positional: usize,
        mut keywords: impl Iterator<Item = &'a str>,
    ) -> bool {
        let by_position = self.params.iter().filter(|p| !p.keyword_only);
        by_position.count() >= positional
            && keywords.all(|keyword| {
                let at = self.params.iter().position(|p| p.name == keyword);
                at.is_some_and(|at| at >= positional || self.params[at].keyword_only)
            })
    }

    fn from_row(row: &Row) -> Self {
        let mut keyword_only = false;
        let params = row.params.split_ascii_whitespace().map(|param| {
            keyword_only |= param.starts_with('*');
            let name = param.trim_start_matches('*');
            SchemaParam {
                name: name.trim_end_matches(['!', '~']).to_owned(),
                keyword_only,
                written: name.contains('!'),
                aliased: name.contains('~'),
            }
        });
        Self {
            name: row.name.to_owned(),
            params: params.collect(),
            random: row.flags.contains('r'),
            composite: row.flags.contains('c'),
            single: !row.flags.contains('l'),
            pointwise: row.flags.contains('p'),
            reshapes: row.flags.contains('v'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(name: &str, keyword_only: bool, written: bool, aliased: bool) -> SchemaParam {
        SchemaParam {
            name: name.to_owned(),
            keyword_only,
            written,
            aliased,
        }
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn an_overload_is_found_with_its_parameters() {
        let schema = Schema::overload("add.out").unwrap();
        assert_eq!(
            schema.params,
            [
                param("self", false, false, false),
                param("other", false, false, false),
                param("alpha", true, false, false),
                param("out", true, true, true),
            ]
        );
        assert!(!schema.random && !schema.composite);
        assert!(Schema::overload("bernoulli").unwrap().random);
        assert!(Schema::overload("type_as").unwrap().composite);
        assert!(Schema::overload("add.Tensor").unwrap().pointwise);
        assert!(!Schema::overload("sum").unwrap().pointwise);
        assert!(Schema::overload("split.Tensor").unwrap().params[0].aliased);
        assert_eq!(Schema::overload("add"), None);
    }

    #[test]
    fn overloads_of_an_operator_are_those_with_its_very_name() {
        let names: Vec<_> = Schema::overloads("relu").map(|s| s.name).collect();
        assert_eq!(names, ["relu", "relu.out"]);
        assert_eq!(Schema::overloads("no_such_operator").count(), 0);
    }
}
