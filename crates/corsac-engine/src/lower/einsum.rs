//! Einstein summation.

use smallvec::SmallVec;

use super::call::Call;
use super::view::View;
use super::{Lowered, Lowerer, Reason};
use crate::program::{Op, Reduction, ValueId};

/// A tensor with a letter for each dimension.
#[derive(Clone)]
struct Named {
    value: ValueId,
    letters: Vec<char>,
}

/// The letter of a dimension of `...`, counted from the last one.
fn of_ellipsis(from_last: usize) -> char {
    char::from_u32(0xE000 + from_last as u32).unwrap_or('\u{E000}')
}

impl Lowerer<'_, '_> {
    /// `torch.einsum`: two operands at a time, each pair as one product of matrices.
    pub(super) fn einsum(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let equation = call.text("equation")?.ok_or("there is no equation")?;
        let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let values: Vec<ValueId> = match call.get("operands") {
            Some(Lowered::Items(items)) => items
                .iter()
                .map(|item| match item {
                    Lowered::Tensor(value) => Ok(*value),
                    _ => Err("an operand that is no tensor".to_owned()),
                })
                .collect::<Result<_, _>>()?,
            Some(Lowered::Tensor(value)) => vec![*value],
            _ => return Err("the operands are not known".to_owned()),
        };
        let (inputs, result) = match equation.split_once("->") {
            Some((inputs, result)) => (inputs, Some(result)),
            None => (&equation[..], None),
        };
        let terms: Vec<&str> = inputs.split(',').collect();
        if terms.len() != values.len() {
            return Err(format!(
                "{} operands for {} terms",
                values.len(),
                terms.len()
            ));
        }
        let mut operands = Vec::with_capacity(values.len());
        let mut most = 0;
        for (term, value) in terms.iter().zip(values) {
            let rank = self.shape(value).len();
            let letters = letters(term, rank)?;
            most = most.max(rank.saturating_sub(term.replace("...", "").chars().count()));
            operands.push(self.without_repeats(Named { value, letters })?);
        }
        let result: Vec<char> = match result {
            Some(result) => match result.split_once("...") {
                Some((before, after)) => before
                    .chars()
                    .chain((0..most).rev().map(of_ellipsis))
                    .chain(after.chars())
                    .collect(),
                None => result.chars().collect(),
            },
            // The letters that occur once, in alphabetic order.
            None => {
                let all: Vec<char> = inputs.chars().filter(char::is_ascii_alphabetic).collect();
                let mut once: Vec<char> = all
                    .iter()
                    .copied()
                    .filter(|c| all.iter().filter(|other| *other == c).count() == 1)
                    .collect();
                once.sort_unstable();
                let dots = inputs.contains("...").then_some(0..most);
                let dots = dots.into_iter().flatten().rev().map(of_ellipsis);
                dots.chain(once).collect()
            }
        };
        let mut rest = operands.into_iter();
        let mut so_far = rest.next().ok_or("no operands")?;
        let mut rest: Vec<Named> = rest.collect();
        rest.reverse();
        while let Some(next) = rest.pop() {
            let wanted =
                |c: &char| result.contains(c) || rest.iter().any(|other| other.letters.contains(c));
            let (a, b) = (&so_far.letters, &next.letters);
            let keep: Vec<char> = a.iter().chain(b).copied().filter(|c| wanted(c)).collect();
            so_far = self.product(so_far, next, &keep)?;
        }
        let so_far = self.summed(so_far, &result)?;
        let order: Option<Vec<usize>> = result
            .iter()
            .map(|c| so_far.letters.iter().position(|own| own == c))
            .collect();
        let order = order.ok_or("a dimension of the result that no operand has")?;
        let value = self.permuted(so_far.value, &order);
        let shape = self.result_shape()?;
        if self.program.value(value).len() != shape.iter().product::<usize>() {
            return Err("a result of another size".to_owned());
        }
        Ok(self.alias(value, shape))
    }

    /// Replaces dimensions with the same letter by their diagonal.
    fn without_repeats(&mut self, mut named: Named) -> Result<Named, Reason> {
        loop {
            let letters = &named.letters;
            let twice = (0..letters.len()).find_map(|a| {
                let b = (a + 1..letters.len()).find(|&b| letters[b] == letters[a])?;
                Some((a, b))
            });
            let Some((a, b)) = twice else {
                return Ok(named);
            };
            let mut view = View::of(&self.shape(named.value));
            if view.shape[a] != view.shape[b] {
                return Err("a diagonal of what is no square".to_owned());
            }
            view.strides[a] += view.strides[b];
            view.strides.remove(b);
            view.shape.remove(b);
            named.value = self.copied(named.value, view);
            named.letters.remove(b);
        }
    }

    /// Sums over the dimensions that are not in `keep`.
    fn summed(&mut self, named: Named, keep: &[char]) -> Result<Named, Reason> {
        let gone = named.letters.iter().enumerate();
        let dims: SmallVec<[usize; 4]> = gone
            .filter(|(_, c)| !keep.contains(c))
            .map(|(at, _)| at)
            .collect();
        if dims.is_empty() {
            return Ok(named);
        }
        let mut shape = self.shape(named.value);
        let mut letters = named.letters;
        for &dim in dims.iter().rev() {
            shape.remove(dim);
            letters.remove(dim);
        }
        let reduction = Reduction::Sum;
        let value = self.emit(Op::Reduce { reduction, dims }, [named.value], shape);
        Ok(Named { value, letters })
    }

    /// The product of two operands, summed over the common dimensions that are not in `keep`.
    fn product(&mut self, a: Named, b: Named, keep: &[char]) -> Result<Named, Reason> {
        // Dimensions of one operand that are not in `keep` are summed first.
        let both =
            |other: &Named| -> Vec<char> { keep.iter().chain(&other.letters).copied().collect() };
        let (keep_a, keep_b) = (both(&b), both(&a));
        let (a, b) = (self.summed(a, &keep_a)?, self.summed(b, &keep_b)?);
        let size = |me: &Self, named: &Named, c: char| {
            let at = named.letters.iter().position(|own| *own == c);
            at.map_or(1, |at| me.program.shape(named.value)[at])
        };
        let mut groups: [Vec<char>; 4] = Default::default();
        for &c in &a.letters {
            let group = match (b.letters.contains(&c), keep.contains(&c)) {
                // A broadcast dimension has another size in the other operand.
                (true, false) if size(self, &a, c) != size(self, &b, c) => {
                    return Err("a sum over a dimension that is broadcast".to_owned());
                }
                (true, true) => 0,
                (false, _) => 1,
                (true, false) => 2,
            };
            groups[group].push(c);
        }
        groups[3] = b
            .letters
            .iter()
            .copied()
            .filter(|c| !a.letters.contains(c))
            .collect();
        let [batch, left, inner, right] = groups;
        let arranged =
            |me: &mut Self, named: &Named, order: &[&[char]]| -> Result<ValueId, Reason> {
                let letters = order.concat();
                let dims: Option<Vec<usize>> = letters
                    .iter()
                    .map(|c| named.letters.iter().position(|own| own == c))
                    .collect();
                let dims = dims.ok_or("a dimension that is not there")?;
                let value = me.permuted(named.value, &dims);
                let sizes = me.shape(value);
                let mut rest = &sizes[..];
                let mut shape = Vec::new();
                for (number, group) in order.iter().enumerate() {
                    let (own, after) = rest.split_at(group.len());
                    rest = after;
                    match number {
                        0 => shape.extend_from_slice(own),
                        _ => shape.push(own.iter().product()),
                    }
                }
                Ok(me.alias(value, shape))
            };
        let left_value = arranged(self, &a, &[&batch, &left, &inner])?;
        let right_value = arranged(self, &b, &[&batch, &inner, &right])?;
        let product = self.matmul(left_value, right_value)?;
        let mut shape: Vec<usize> = Vec::new();
        for &c in &batch {
            let (x, y) = (size(self, &a, c), size(self, &b, c));
            shape.push(if x == 1 { y } else { x });
        }
        shape.extend(left.iter().map(|&c| size(self, &a, c)));
        shape.extend(right.iter().map(|&c| size(self, &b, c)));
        let value = self.alias(product, shape);
        Ok(Named {
            value,
            letters: [batch, left, right].concat(),
        })
    }
}

fn letters(term: &str, rank: usize) -> Result<Vec<char>, Reason> {
    let own = |text: &str| -> Result<Vec<char>, Reason> {
        match text.chars().all(|c| c.is_ascii_alphabetic()) {
            true => Ok(text.chars().collect()),
            false => Err(format!("the term {term} of an equation")),
        }
    };
    let letters = match term.split_once("...") {
        Some((before, after)) => {
            let (before, after) = (own(before)?, own(after)?);
            let count = rank.checked_sub(before.len() + after.len());
            let count = count.ok_or("a term with more letters than dimensions")?;
            let dots: Vec<char> = (0..count).rev().map(of_ellipsis).collect();
            [before, dots, after].concat()
        }
        None => own(term)?,
    };
    match letters.len() == rank {
        true => Ok(letters),
        false => Err(format!("the term {term} for {rank} dimensions")),
    }
}
