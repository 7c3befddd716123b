//! Shapes of outputs as expressions of symbols.

use std::fmt;

use corsac_ir::{DType, Op};
use corsac_ops::shape::Dim;

use super::compile::{Checked, Compiler};
use super::tensor::{TensorSpec, write_spec};

/// With more symbols than this, sizes are sums of them only: products take a set of types each.
const PRODUCTS: usize = 3;

/// Name, element type and shape of an output, whose sizes may follow from symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// The name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its sizes, outermost dimension first; `None` where they are neither sums nor products of symbols.
    pub shape: Vec<Option<Dim>>,
}

impl OutputSpec {
    /// The sizes that are the same in all calls, by dimension.
    #[must_use]
    pub fn fixed_sizes(&self) -> Vec<Option<usize>> {
        let fixed = |dim: &Option<Dim>| usize::try_from(dim.as_ref()?.known()?).ok();
        self.shape.iter().map(fixed).collect()
    }
}

impl fmt::Display for OutputSpec {
    /// `output: float32[batch, 1000]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |dim: &Option<Dim>| dim.as_ref().map_or("?".to_owned(), Dim::to_string);
        write_spec(f, &self.name, self.dtype, self.shape.iter().map(text))
    }
}

/// The outputs with sizes as expressions, where `least` has them for the least sizes of inputs.
///
/// Sizes are computed for a few sets of sizes, and compared with polynomials through these.
pub(super) fn dynamic_outputs(compiler: &Compiler, least: &[TensorSpec]) -> Vec<OutputSpec> {
    let signature = compiler.signature();
    let start = signature.least();
    let count = start.len();
    // Sets of symbols that are one more than the least: bits.
    let sets: Vec<usize> = match count <= PRODUCTS {
        true => (0..1 << count).collect(),
        false => std::iter::once(0)
            .chain((0..count).map(|at| 1 << at))
            .collect(),
    };
    let shapes_at = |more: &dyn Fn(usize) -> usize| {
        let values: Vec<usize> = (0..count)
            .map(|at| start[at].saturating_add(more(at)))
            .collect();
        shapes(compiler, &values).filter(|shapes| shapes.len() == least.len())
    };
    let found: Option<Vec<_>> = sets
        .iter()
        .map(|set| shapes_at(&|at| set >> at & 1))
        .collect();
    let check = shapes_at(&|at| at + 2);
    let dim = |output: usize, dim: usize| -> Option<Dim> {
        let size = |shapes: &Vec<Vec<i64>>| shapes[output].get(dim).copied();
        let sizes: Vec<i64> = found.as_ref()?.iter().map(size).collect::<Option<_>>()?;
        let mut sum = Dim::ZERO;
        for &set in &sets {
            let mut factor = 0;
            for (part, size) in sets.iter().zip(&sizes) {
                if part & !set == 0 {
                    let is_odd = (set & !part).count_ones() % 2 == 1;
                    factor += if is_odd { -size } else { *size };
                }
            }
            let symbols = (0..count).filter(|at| set >> at & 1 == 1).map(|at| {
                let first = i64::try_from(start[at]).unwrap_or(i64::MAX);
                Dim::symbol(&signature.symbols()[at].name) - Dim::Known(first)
            });
            sum = sum + symbols.fold(Dim::Known(factor), |product, symbol| product * symbol);
        }
        let value = |name: &str| {
            let at = signature
                .symbols()
                .iter()
                .position(|own| own.name == name)?;
            i64::try_from(start[at].saturating_add(at + 2)).ok()
        };
        (sum.evaluate(&value) == size(check.as_ref()?)).then_some(sum)
    };
    let output = |(number, spec): (usize, &TensorSpec)| OutputSpec {
        name: spec.name.clone(),
        dtype: spec.dtype,
        shape: match count {
            0 => spec
                .shape
                .iter()
                .map(|&size| i64::try_from(size).ok().map(Dim::Known))
                .collect(),
            _ => (0..spec.shape.len()).map(|at| dim(number, at)).collect(),
        },
    };
    least.iter().enumerate().map(output).collect()
}

/// The shapes of the tensors that the graph returns; `None` if it cannot be called so.
fn shapes(compiler: &Compiler, values: &[usize]) -> Option<Vec<Vec<i64>>> {
    let types = compiler.types(values, Checked::No).ok()?;
    let graph = compiler.graph();
    let mut nodes = graph.nodes();
    let output = nodes.find(|&node| graph.node(node).op() == Op::Output)?;
    let mut found = Vec::new();
    types.value(output).for_each_tensor(&mut |tensor| {
        let sizes = tensor.shape.iter().map(Dim::known);
        found.push(sizes.collect::<Option<Vec<i64>>>());
    });
    found.into_iter().collect()
}
