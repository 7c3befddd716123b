//! Options of the generated function.

/// Calling convention and style of the generated function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The expression under which attributes and submodules are found; usually `self`.
    pub root_module: String,
    /// The function's name.
    pub function_name: String,
    /// The calling convention.
    pub calling: Calling,
    /// Each parameter and each result on a line of its own, with its description.
    pub expanded_def: bool,
    /// Mark each call for the profiler.
    pub record_func: bool,
    /// Names that neither values nor globals may get.
    pub reserved: Vec<String>,
    /// Escape sequences of a terminal for literals and for the code that frees values.
    pub colored: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root_module: "self".to_owned(),
            function_name: "forward".to_owned(),
            calling: Calling::Plain,
            expanded_def: false,
            record_func: false,
            reserved: Vec::new(),
            colored: false,
        }
    }
}

/// The calling convention of the generated function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Calling {
    /// One parameter for each input.
    #[default]
    Plain,
    /// One list, emptied by the function so that the caller keeps no input alive.
    Boxed,
    /// The parameters of the function traced, flattened to the inputs inside.
    PyTree(PyTree),
}

/// The structure of nested arguments, which become inputs, and of a nested result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PyTree {
    /// The parameters of the function traced.
    pub parameters: Vec<String>,
    /// Number of positional ones and the names of the others, where the input structure has both.
    pub keywords: Option<(usize, Vec<String>)>,
    /// Whether the result is put back into a structure.
    pub has_out_spec: bool,
}
