//! Scattering of elements to indexed places, and differences of neighbours.

use super::call::Call;
use super::{Lowerer, Reason};
use crate::program::{Arithmetic, Binary, Combination, Element, Op, ValueId};

impl Lowerer<'_, '_> {
    /// A copy of the input in which indexed elements are replaced by others, or combined with them.
    pub(super) fn scattered(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let element = self.result_element()?;
        let result = self.result_shape()?;
        let (input, index) = (call.tensor("input")?, call.tensor("index")?);
        self.expect_indices(index, &[])?;
        if self.program.element(input) != element {
            return Err("another type of elements than the input's".to_owned());
        }
        let input = self.at_least_a_vector(input);
        let index = self.at_least_a_vector(index);
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), 0)?;
        let combination = self.combination(call)?;
        let source = match call.name {
            "scatter" if call.get("src").is_none() => self.operand_as(call, "value", element)?,
            _ => match call.tensor("src") {
                Ok(source) => source,
                // `scatter(dim, index, number)`
                Err(_) if call.name == "scatter" => self.operand_as(call, "src", element)?,
                Err(reason) => return Err(reason),
            },
        };
        if self.program.element(source) != element {
            return Err("elements of another type than the input's".to_owned());
        }
        let mut source = source;
        if self.shape(source).is_empty() {
            let places = self.shape(index);
            source = self.broadcast_to(source, &places);
        }
        let source = self.at_least_a_vector(source);
        let (places, sizes) = (self.shape(index), self.shape(source));
        let fits = places.len() == shape.len()
            && sizes.len() == shape.len()
            && places.iter().zip(&sizes).all(|(place, size)| place <= size)
            && (0..shape.len()).all(|at| at == dim || places[at] <= shape[at]);
        if !fits && !places.contains(&0) {
            return Err("an index of another shape".to_owned());
        }
        let op = Op::Scatter { dim, combination };
        let value = self.emit_typed(op, [input, index, source], element, shape);
        Ok(self.alias(value, result))
    }

    fn combination(&self, call: &Call) -> Result<Combination, Reason> {
        let element = self.result_element()?;
        let combination = match (call.name, call.text("reduce")?) {
            ("scatter_add", _) | ("scatter", Some("add")) => Combination::Add,
            ("scatter", Some("multiply")) => Combination::Multiply,
            ("scatter", None) => Combination::Replace,
            ("scatter_reduce", _) if !call.flag("include_self", true)? => {
                return Err("scatter_reduce without the input's elements".to_owned());
            }
            ("scatter_reduce", Some("sum")) => Combination::Add,
            ("scatter_reduce", Some("prod")) => Combination::Multiply,
            ("scatter_reduce", Some("amax")) => Combination::Largest,
            ("scatter_reduce", Some("amin")) => Combination::Smallest,
            (name, reduce) => return Err(format!("{name} by {}", reduce.unwrap_or("nothing"))),
        };
        match (element, combination) {
            (Element::Bool, Combination::Replace) | (Element::F32 | Element::I64, _) => {
                Ok(combination)
            }
            _ => Err("truth values combined by indices".to_owned()),
        }
    }

    /// `torch.diff`: differences of neighbours along a dimension, the second minus the first;
    /// repeated.
    pub(super) fn differences(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let element = self.result_element()?;
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), -1)?;
        if shape.is_empty() {
            return Err("differences in a number".to_owned());
        }
        let (before, after) = (call.optional("prepend")?, call.optional("append")?);
        let times = call.int("n")?.unwrap_or(1);
        if times == 0 {
            // Without differences, `prepend` and `append` are ignored.
            return Ok(input);
        }
        let mut value = input;
        if before.is_some() || after.is_some() {
            let mut whole = shape.clone();
            whole[dim] = 0;
            let mut parts = Vec::new();
            for part in before.into_iter().chain([input]).chain(after) {
                let mut own = shape.clone();
                own[dim] = self.shape(part)[dim];
                whole[dim] += own[dim];
                let part = self.cast(part, element);
                parts.push(self.broadcast_to(part, &own));
            }
            value = self.emit_typed(Op::Concat { dim }, parts, element, whole);
        }
        for _ in 0..times {
            let size = self.shape(value)[dim];
            let len = size.saturating_sub(1);
            let second = self.narrowed(value, dim, size - len, len);
            let first = self.narrowed(value, dim, 0, len);
            let shape = self.shape(first);
            let arithmetic = |function| Op::Arithmetic(function);
            value = match element {
                Element::F32 => self.emit(Op::Binary(Binary::Sub), [second, first], shape),
                Element::I64 => {
                    self.emit_typed(arithmetic(Arithmetic::Sub), [second, first], element, shape)
                }
                Element::Bool => {
                    self.emit_typed(arithmetic(Arithmetic::Xor), [second, first], element, shape)
                }
            };
        }
        Ok(value)
    }
}
