//! Names of parameters.

use corsac_ir::namespace::is_reserved;
use corsac_ir::{Arg, Op};
use rustc_hash::FxHashSet;

use crate::analyse::{Analysis, Stop, leading_identifier};
use crate::attribute::{is_parameter_name, is_plain_identifier};
use crate::options::Calling;
use crate::plan::{Input, raw_parameter};

impl Analysis<'_, '_> {
    /// Gives parameters another name where the target is none, or would hide a name that the code
    /// refers to.
    pub(crate) fn parameters(&mut self) -> Result<(), Stop> {
        let graph = self.plan.graph;
        let mut seen = FxHashSet::default();
        for index in 0..self.plan.inputs.len() {
            let Input { node: id, is_late } = self.plan.inputs[index];
            let node = graph.node(id);
            let (_, raw) = raw_parameter(node.target_name());
            let is_root = raw == leading_identifier(&self.options.root_module);
            let may_stay = is_parameter_name(raw)
                && (!is_root || seen.is_empty())
                && !self.hides(raw)
                // `y_1 = y` has to come before a value called y.
                && (!is_late || node.name() == raw || !self.namer.names_value(raw))
                && seen.insert(raw);
            if !may_stay {
                let name = self.namer.name(raw, false)?;
                self.plan.parameters.insert(id, name.into());
                seen.insert(raw);
            }
        }
        Ok(())
    }

    /// Whether a parameter called `name` would hide something that the code refers to.
    fn hides(&self, name: &str) -> bool {
        if !is_reserved(name) && !self.namer.is_global(name) {
            return false;
        }
        if self.mentioned.contains(name) {
            return true;
        }
        let is_written = match name {
            "torch" => {
                |arg: &Arg| matches!(arg, Arg::DType(_) | Arg::Layout(_) | Arg::MemoryFormat(_))
            }
            "device" => |arg: &Arg| matches!(arg, Arg::Device(_)),
            "slice" => |arg: &Arg| matches!(arg, Arg::Slice(_)),
            "range" => |arg: &Arg| matches!(arg, Arg::Range(_)),
            "complex" => |arg: &Arg| matches!(arg, Arg::Complex(_)),
            "Ellipsis" => |arg: &Arg| matches!(arg, Arg::Ellipsis),
            "inf" | "nan" => |arg: &Arg| match arg {
                Arg::Float(value) => !value.is_finite(),
                Arg::Complex(parts) => !parts.0.is_finite() || !parts.1.is_finite(),
                _ => false,
            },
            "getattr" => return self.writes_getattr(),
            "fx_pytree" | "pytree" => {
                return matches!(self.options.calling, Calling::PyTree(_));
            }
            "iter" | "next" | "args_list" | "args_iter" => {
                return self.options.calling == Calling::Boxed;
            }
            "_rf" => return self.options.record_func,
            _ => return false,
        };
        let graph = self.plan.graph;
        graph.nodes().any(|id| {
            let node = graph.node(id);
            let kwargs = node.kwargs().iter().map(|(_, arg)| arg);
            node.args()
                .iter()
                .chain(kwargs)
                .any(|arg| any(arg, is_written))
        })
    }

    fn writes_getattr(&self) -> bool {
        let graph = self.plan.graph;
        graph.nodes().any(|id| {
            let node = graph.node(id);
            matches!(node.op(), Op::GetAttr | Op::CallModule | Op::CallMethod)
                && node
                    .target_name()
                    .split('.')
                    .any(|part| !is_plain_identifier(part))
        })
    }
}

/// Whether `holds` for the argument or a part of it.
fn any(arg: &Arg, holds: fn(&Arg) -> bool) -> bool {
    let mut found = holds(arg);
    arg.for_each_part(&mut |part| found = found || any(part, holds));
    found
}

/// The names in an expression that stand for variables.
pub(crate) fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    let mut before = ' ';
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(is_part)?;
            before = rest[..start].chars().next_back().unwrap_or(before);
            let tail = &rest[start..];
            let end = tail.find(|c| !is_part(c)).unwrap_or(tail.len());
            let word = &tail[..end];
            rest = &tail[end..];
            let is_attribute = before == '.';
            before = 'x';
            if !is_attribute {
                return Some(word);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_an_expression() {
        let words: Vec<_> = identifiers("typing_List[torch.Tensor, a.b.c]").collect();
        assert_eq!(words, ["typing_List", "torch", "a"]);
        assert_eq!(identifiers("torch.relu").collect::<Vec<_>>(), ["torch"]);
        assert_eq!(identifiers("...").count(), 0);
    }
}
