//! The operator table: a row for each operator says everything that is true of it anywhere, a file
//! for each family holds its rows.
//!
//! An [`OperatorId`] is the number of a row. It is looked up by name once for each target
//! ([`crate::Catalogue::operator`]) and once for each name of a type rule, which puts it into the
//! [`crate::shape::Binding`] of a call. Code that is for one operator names it in a constant, which
//! is looked up when the program is compiled: a name without a row does not compile, and a
//! comparison is one of two numbers.
//!
//! ```
//! use corsac_ir::Op;
//! use corsac_ops::{OperatorId, is_operator};
//!
//! const ADD: OperatorId = OperatorId::constant("add");
//!
//! let sum = OperatorId::of(Op::CallMethod, "__add__").unwrap();
//! assert_eq!(sum, ADD);
//! assert!(is_operator!(sum, "add" | "sub"));
//! ```

mod activation;
mod arithmetic;
mod attention;
mod columns;
mod comparison;
mod control;
mod conversion;
mod convolution;
mod creation;
mod dropout;
mod embedding;
mod indexing;
mod joining;
mod linear_algebra;
mod loss;
mod module_call;
mod normalisation;
mod pooling;
mod prims;
mod quantisation;
mod random;
mod recurrent;
mod reduction;
mod scalar;
mod spectral;
pub(crate) mod spelling;
mod view;

use std::sync::LazyLock;

use corsac_ir::{DType, Op};
use rustc_hash::FxHashMap;

pub use columns::{
    BinaryInverse, Conversion, InPlaceForm, Layout, Numbers, Precision, Recompute, Requirement,
};
pub use module_call::{ModuleCall, Source, module_class_of};
pub use spelling::operator_name;
use spelling::{of_library, spelled};

/// An operator: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId(u32);

/// A row of the operator table.
#[derive(Debug)]
pub struct Operator {
    /// Its names, separated by blanks. The first one is that of PyTorch's schemas, without
    /// overload, or of a function without a schema; `prims.sum` of `torch.ops.prims`, and of other libraries
    /// likewise.
    names: &'static str,
    /// Its parameters in the order of the Python signature, with defaults, where calls that pass
    /// the same arguments in different ways are to be recognised as the same. Those that change
    /// nothing in the result (`inplace`, `_stacklevel`) are left out where they come last, since
    /// effects have the arguments written to. Source: PyTorch 2.15's documentation of `torch`,
    /// `torch.Tensor` and `torch.nn.functional`.
    pub(crate) signature: Option<&'static str>,
    /// The classes of `torch.nn` that call it, separated by blanks.
    modules: &'static str,
    /// The call that these modules make of one tensor: the function and its arguments, as
    /// [`ModuleCall`] reads them.
    pub(crate) module_call: Option<(&'static str, &'static str)>,
    /// The condition on a module under which calling the function is the same.
    pub(crate) requirement: Requirement,
    /// Parameters that attributes of these modules supply under another name: `pad=padding`.
    pub(crate) module_attributes: &'static str,
    /// Its form that writes the result into the first argument: `relu_`. Source: the schemas.
    pub in_place: Option<InPlaceForm>,
    /// The position of `inplace` among the parameters of the function of `torch.nn.functional`,
    /// where that uses no random numbers: 1 for `relu(input, inplace=False)`.
    pub inplace_parameter: Option<u16>,
    /// Whether the first two arguments may be swapped, where nothing else is given.
    pub commutes: bool,
    /// For an operator that returns a copy of its first argument with a part replaced by the
    /// second: the view of that part, which takes the other arguments. Source: PyTorch's
    /// functionalisation.
    pub writes_view: Option<&'static str>,
    /// Whether its gradient is computed without the result, so that the result may be overwritten.
    /// Source: `derivatives.yaml` of PyTorch.
    pub result_is_free: bool,
    /// The functions that invert it as an operator of one tensor, in the order in which they are
    /// applied to its result; none where it is not invertible. Exact up to rounding.
    pub inverse: &'static [&'static str],
    /// Functions that compute the first and the second operand from the result and the other one.
    pub operand_inverses: [Option<BinaryInverse>; 2],
    /// The precision under `torch.autocast("cpu")`; `None` where it computes in the types of its
    /// arguments. Source: docs.pytorch.org/docs/stable/amp.html, "CPU Op-Specific Behavior".
    pub precision: Option<Precision>,
    /// Whether it calls operators inside that autocast casts for each in its own way.
    pub is_composed: bool,
    /// The cost of recomputing its result; `None` for an elementwise function or a long
    /// computation, which the schema tells apart.
    pub recompute: Option<Recompute>,
    /// Whether PyTorch's partitioner treats it as a view.
    pub is_partitioner_view: bool,
    /// The cost of a call relative to that of an elementwise operator, where the types of its
    /// arguments are not known.
    pub relative_cost: f64,
    /// Whether its result is a view of an argument, that argument itself, a part of it, or, where strides
    /// allow no view, a copy of its elements.
    pub is_view: bool,
    /// The memory of its arguments that its result, or an error, depends on, besides elements.
    pub layout: Option<Layout>,
    /// The property of a tensor that it returns as numbers, where it does.
    pub numbers: Option<Numbers>,
    /// Whether it reads nothing of its first argument but the element type and the sizes.
    pub reads_only_type: bool,
    /// The element type that it converts to, where it is a conversion.
    pub conversion: Option<Conversion>,
    /// Whether it only moves elements, of any type.
    pub moves_elements: bool,
    /// Whether it computes element by element over floating-point numbers, to which operands of
    /// other types are converted.
    pub converts_operands: bool,
    /// Whether a small difference of an operand can make a large one of the result, though that may be
    /// a floating-point number, as in place: operands are rounded to their type, as PyTorch has them.
    pub jumps: bool,
    /// Whether a number beside tensors of 16 bits is rounded to their type; other operators compute with
    /// it in single precision.
    pub rounds_numbers: bool,
    /// Whether it returns views that may repeat elements.
    pub repeats_elements: bool,
    /// Whether its result takes several times the memory of what it is computed from: numbers of
    /// quantised integers, which are to stay integers in memory.
    pub expands: bool,
}

/// A row of which nothing is known but the names.
const fn operator(names: &'static str) -> Operator {
    Operator {
        names,
        signature: None,
        modules: "",
        module_call: None,
        requirement: Requirement::None,
        module_attributes: "",
        in_place: None,
        inplace_parameter: None,
        commutes: false,
        writes_view: None,
        result_is_free: false,
        inverse: &[],
        operand_inverses: [None, None],
        precision: None,
        is_composed: false,
        recompute: None,
        is_partitioner_view: false,
        relative_cost: 1.0,
        is_view: false,
        layout: None,
        numbers: None,
        reads_only_type: false,
        conversion: None,
        moves_elements: false,
        converts_operands: false,
        jumps: false,
        rounds_numbers: false,
        repeats_elements: false,
        expands: false,
    }
}

/// Functions that set the columns of a row.
macro_rules! columns {
    ($($name:ident($($value:ident: $type:ty),*) => $column:ident = $is:expr;)*) => {
        impl Operator {
            $(const fn $name(mut self, $($value: $type),*) -> Self {
                self.$column = $is;
                self
            })*
        }
    };
}

columns! {
    signature(parameters: &'static str) => signature = Some(parameters);
    modules(classes: &'static str) => modules = classes;
    module_call(function: &'static str, arguments: &'static str) => module_call = Some((function, arguments));
    requires(requirement: Requirement) => requirement = requirement;
    module_attributes(renamed: &'static str) => module_attributes = renamed;
    in_place(form: InPlaceForm) => in_place = Some(form);
    inplace_parameter(position: u16) => inplace_parameter = Some(position);
    commutes() => commutes = true;
    writes_view(view: &'static str) => writes_view = Some(view);
    result_is_free() => result_is_free = true;
    inverse(functions: &'static [&'static str]) => inverse = functions;
    operand_inverses(first: BinaryInverse, second: BinaryInverse) => operand_inverses = [Some(first), Some(second)];
    autocast(precision: Precision) => precision = Some(precision);
    composed() => is_composed = true;
    recompute(cost: Recompute) => recompute = Some(cost);
    partitioner_view() => is_partitioner_view = true;
    relative_cost(cost: f64) => relative_cost = cost;
    view() => is_view = true;
    layout(layout: Layout) => layout = Some(layout);
    numbers(numbers: Numbers) => numbers = Some(numbers);
    reads_only_type() => reads_only_type = true;
    converts() => conversion = Some(Conversion::Given);
    converts_to(dtype: DType) => conversion = Some(Conversion::To(dtype));
    moves_elements() => moves_elements = true;
    rounds_numbers() => rounds_numbers = true;
    jumps() => jumps = true;
    converts_operands() => converts_operands = true;
    expands() => expands = true;
    repeats_elements() => repeats_elements = true;
}

impl Operator {
    /// The classes of `torch.nn` that call it, by their names among `torch.nn`'s own.
    pub(crate) fn module_classes(&self) -> impl Iterator<Item = &'static str> {
        self.modules.split_ascii_whitespace()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.names.split(' ').next().unwrap_or(self.names)
    }
}

impl OperatorId {
    /// The number of operators in the table.
    pub const COUNT: usize = {
        let (mut family, mut count) = (0, 0);
        while family < FAMILIES.len() {
            count += FAMILIES[family].1.len();
            family += 1;
        }
        count
    };

    /// Its place in a list of [`OperatorId::COUNT`] items with one for each operator.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The operator that a call of `target` computes, whatever its spelling; `None` where the
    /// table has no row for it.
    ///
    /// ```
    /// use corsac_ir::Op;
    /// use corsac_ops::OperatorId;
    ///
    /// let add = OperatorId::of(Op::CallMethod, "add");
    /// assert_eq!(add.unwrap().name(), "add");
    /// assert_eq!(OperatorId::of(Op::CallFunction, "torch.ops.aten.add.Tensor"), add);
    /// assert_eq!(OperatorId::of(Op::CallFunction, "operator.add"), add);
    /// assert_eq!(OperatorId::of(Op::CallFunction, "mine.add"), None);
    /// ```
    #[must_use]
    pub fn of(op: Op, target: &str) -> Option<Self> {
        let name = spelled(op, target).or_else(|| of_library(op, target));
        Self::named(name?)
    }

    /// The operator of which a call of `target` is the form in place.
    ///
    /// ```
    /// use corsac_ir::Op;
    /// use corsac_ops::OperatorId;
    ///
    /// let add = OperatorId::named("add");
    /// assert_eq!(OperatorId::of_in_place(Op::CallMethod, "add_"), add);
    /// assert_eq!(OperatorId::of_in_place(Op::CallFunction, "operator.iadd"), add);
    /// assert_eq!(OperatorId::of_in_place(Op::CallFunction, "operator.add"), None);
    /// ```
    #[must_use]
    pub fn of_in_place(op: Op, target: &str) -> Option<Self> {
        Self::named(spelling::in_place(op, target)?)
    }

    /// The operator with this name, without namespace and overload: any of its names.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TABLE.by_name.get(name).copied()
    }

    /// The operator with this name, for constants: any of its names.
    ///
    /// # Panics
    /// If there is none, which stops the compiler where a constant is computed.
    #[must_use]
    pub const fn constant(name: &str) -> Self {
        let (mut family, mut id) = (0, 0);
        while family < FAMILIES.len() {
            let rows = FAMILIES[family].1;
            let mut row = 0;
            while row < rows.len() {
                if has_word(rows[row].names.as_bytes(), name.as_bytes()) {
                    return Self(id);
                }
                (row, id) = (row + 1, id + 1);
            }
            family += 1;
        }
        panic!("the table has no row with this name")
    }

    /// The element type that a conversion named after it converts to, for constants.
    ///
    /// # Panics
    /// If it is no such conversion.
    pub(crate) const fn own_dtype(self) -> DType {
        let (mut family, mut index) = (0, self.index());
        while index >= FAMILIES[family].1.len() {
            index -= FAMILIES[family].1.len();
            family += 1;
        }
        match FAMILIES[family].1[index].conversion {
            Some(Conversion::To(dtype)) => dtype,
            _ => panic!("it is not named after an element type"),
        }
    }

    /// The operator that a module of this class calls, by its name among `torch.nn`'s own.
    #[must_use]
    pub fn of_module(class: &str) -> Option<Self> {
        TABLE.by_class.get(class).copied()
    }

    /// Its row.
    #[must_use]
    pub fn row(self) -> &'static Operator {
        TABLE.rows[self.index()].1
    }

    /// Its family.
    #[must_use]
    pub fn family(self) -> Family {
        TABLE.rows[self.index()].0
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name()
    }

    /// All operators of the table.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..).zip(&TABLE.rows).map(|(at, _)| Self(at))
    }
}

/// Whether `word` is one of the words of `text`, which blanks separate.
const fn has_word(text: &[u8], word: &[u8]) -> bool {
    let (mut start, mut at) = (0, 0);
    while at <= text.len() {
        if at == text.len() || text[at] == b' ' {
            if at - start == word.len() {
                let mut same = 0;
                while same < word.len() && text[start + same] == word[same] {
                    same += 1;
                }
                if same == word.len() {
                    return true;
                }
            }
            start = at + 1;
        }
        at += 1;
    }
    false
}

/// Whether an operator is one of those with these names, which are constants.
#[macro_export]
macro_rules! is_operator {
    ($operator:expr, $($name:literal)|+) => {{
        let operator: $crate::OperatorId = $operator;
        $(operator == const { $crate::OperatorId::constant($name) })||+
    }};
}

/// The family of an operator: the file of the table that has its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Activation functions.
    Activation,
    /// Arithmetic and functions of numbers, element by element.
    Arithmetic,
    /// Attention.
    Attention,
    /// Comparisons, logic and choices, element by element.
    Comparison,
    /// Copies and conversions of tensors.
    Conversion,
    /// Control flow that depends on elements.
    Control,
    /// Convolutions.
    Convolution,
    /// Creation of tensors.
    Creation,
    /// Dropout.
    Dropout,
    /// Embeddings.
    Embedding,
    /// Indexing, and updates of indexed elements.
    Indexing,
    /// Joining of tensors.
    Joining,
    /// Products of matrices and linear algebra.
    LinearAlgebra,
    /// Losses.
    Loss,
    /// Normalisation.
    Normalisation,
    /// Pooling and resampling.
    Pooling,
    /// Primitives that PyTorch's decompositions end in (`torch.ops.prims`).
    Prims,
    /// Conversions between numbers and quantised integers.
    Quantisation,
    /// Operators that use random numbers.
    Random,
    /// Recurrent layers.
    Recurrent,
    /// Reductions, scans and sorting.
    Reduction,
    /// Functions of numbers, containers and types, and questions about tensors that return such.
    Scalar,
    /// Fourier transforms.
    Spectral,
    /// Views and other operators that only move elements.
    View,
}

const FAMILIES: &[(Family, &[Operator])] = &[
    (Family::Activation, activation::ROWS),
    (Family::Arithmetic, arithmetic::ROWS),
    (Family::Attention, attention::ROWS),
    (Family::Comparison, comparison::ROWS),
    (Family::Conversion, conversion::ROWS),
    (Family::Control, control::ROWS),
    (Family::Convolution, convolution::ROWS),
    (Family::Creation, creation::ROWS),
    (Family::Dropout, dropout::ROWS),
    (Family::Embedding, embedding::ROWS),
    (Family::Indexing, indexing::ROWS),
    (Family::Joining, joining::ROWS),
    (Family::LinearAlgebra, linear_algebra::ROWS),
    (Family::Loss, loss::ROWS),
    (Family::Normalisation, normalisation::ROWS),
    (Family::Pooling, pooling::ROWS),
    (Family::Prims, prims::ROWS),
    (Family::Quantisation, quantisation::ROWS),
    (Family::Random, random::ROWS),
    (Family::Recurrent, recurrent::ROWS),
    (Family::Reduction, reduction::ROWS),
    (Family::Scalar, scalar::ROWS),
    (Family::Spectral, spectral::ROWS),
    (Family::View, view::ROWS),
];

struct Table {
    rows: Vec<(Family, &'static Operator)>,
    by_name: FxHashMap<&'static str, OperatorId>,
    by_class: FxHashMap<&'static str, OperatorId>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let rows = FAMILIES.iter().copied();
    let rows = rows.flat_map(|(family, rows)| rows.iter().map(move |row| (family, row)));
    let rows: Vec<(Family, &Operator)> = rows.collect();
    let index = |names: fn(&Operator) -> &'static str| {
        let mut index = FxHashMap::default();
        for (at, (_, row)) in (0..).zip(&rows) {
            for name in names(row).split_ascii_whitespace() {
                let replaced = index.insert(name, OperatorId(at));
                debug_assert!(replaced.is_none(), "one row for {name}");
            }
        }
        index
    };
    let (by_name, by_class) = (index(|row| row.names), index(|row| row.modules));
    Table {
        rows,
        by_name,
        by_class,
    }
});

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::*;
    use crate::schema::Schema;

    #[test]
    fn in_place_forms_write_to_their_first_argument_and_nothing_else() {
        for operator in OperatorId::all().filter(|own| own.row().in_place.is_some()) {
            let form = format!("{}_", operator.name());
            let schemas: Vec<_> = Schema::overloads(&form).collect();
            assert!(!schemas.is_empty(), "there is no {form}");
            for schema in schemas {
                let written: Vec<_> = schema.params.iter().map(|p| p.written).collect();
                assert!(written[0], "{form}");
                assert!(!written[1..].contains(&true), "{form}");
                assert!(!schema.random, "{form}");
            }
        }
    }

    #[test]
    fn every_row_is_for_an_operator_with_a_schema_or_a_rule() {
        let of_rules = crate::shape::rules()
            .into_iter()
            .flat_map(|rule| rule.names);
        let own = |name: &str| {
            let name = name.strip_suffix(".forward").unwrap_or(name);
            name.rsplit('.').next().unwrap_or(name).to_owned()
        };
        let names = of_rules.flat_map(|name| [own(&name), name]);
        let of_rules: FxHashSet<String> = names.collect();
        let unknown = OperatorId::all().map(OperatorId::name).filter(|name| {
            let schema = name.replacen("prims.", "prims::", 1);
            Schema::overloads(&schema).next().is_none() && !of_rules.contains(*name)
        });
        let expected = [
            "multi_head_attention_forward",
            "transformer_encoder",
            "as_tensor",
            "cholesky",
            "prims._low_memory_max_pool_offsets_to_indices",
            "prims.prepare_softmax_online",
            "corsac.fake_quantize",
            "corsac.moving_average_qparams",
            "_grad_sum_to_size",
            "data_ptr",
            "is_non_overlapping_and_dense",
            "storage",
            "tolist",
            "untyped_storage",
        ];
        assert_eq!(unknown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn constants_are_the_operators_with_these_names() {
        for operator in OperatorId::all() {
            for name in operator.row().names.split_ascii_whitespace() {
                assert_eq!(OperatorId::constant(name), operator, "{name}");
            }
        }
        let sub = OperatorId::named("subtract").unwrap();
        assert!(is_operator!(sub, "add" | "sub"));
        assert!(!is_operator!(sub, "add" | "rsub"));
    }

    #[test]
    fn columns_are_found_by_any_name() {
        let row = |name| OperatorId::named(name).unwrap().row();
        assert_eq!(row("relu").in_place, Some(InPlaceForm::SameType));
        assert_eq!(row("multiply").in_place, Some(InPlaceForm::Promoted));
        assert_eq!(row("index_add").in_place, Some(InPlaceForm::Update));
        for name in ["softmax", "matmul", "cat"] {
            assert_eq!(row(name).in_place, None, "{name}");
        }
        assert_eq!(row("exp").inverse, ["torch.log"]);
        let other = BinaryInverse::OfOther("operator.sub");
        assert_eq!(row("sub").operand_inverses[1], Some(other));
        assert_eq!(OperatorId::named("relu_"), None);
        assert_eq!(OperatorId::named(""), None);
    }
}
