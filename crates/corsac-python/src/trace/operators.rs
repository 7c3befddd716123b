//! Functions as which operators on proxies are recorded.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

macro_rules! operators {
    ($($variant:ident = $name:literal,)*) => {
        /// An operator of Python.
        #[derive(Clone, Copy)]
        pub(super) enum Operator {
            $($variant,)*
        }

        impl Operator {
            const NAMES: &'static [&'static str] = &[$($name,)*];
        }
    };
}

operators! {
    Eq = "eq",
    Ne = "ne",
    Lt = "lt",
    Gt = "gt",
    Le = "le",
    Ge = "ge",
    Pos = "pos",
    Neg = "neg",
    Invert = "invert",
    Abs = "abs",
    Add = "add",
    Sub = "sub",
    Mul = "mul",
    FloorDiv = "floordiv",
    TrueDiv = "truediv",
    Mod = "mod",
    Pow = "pow",
    LShift = "lshift",
    RShift = "rshift",
    And = "and_",
    Or = "or_",
    Xor = "xor",
    GetItem = "getitem",
    SetItem = "setitem",
    MatMul = "matmul",
}

impl Operator {
    /// The function in Python's `operator` module.
    pub(super) fn function(self, py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
        static FUNCTIONS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
        let functions = FUNCTIONS.get_or_try_init(py, || {
            let module = py.import("operator")?;
            let functions = Self::NAMES.iter().map(|name| module.getattr(*name));
            functions.map(|f| Ok::<_, PyErr>(f?.unbind())).collect()
        })?;
        Ok(functions[self as usize].bind(py))
    }
}
