//! A call with its arguments, as rules read them.

use corsac_ir::{DType, Device, MemoryFormat};
use smallvec::SmallVec;

use super::dim::Dim;
use super::error::Failure;
use super::propagate::TypeHost;
use super::rule::Signature;
use super::tensor_type::Shape;
use super::value::{Tensor, Value};

/// Settings of the process that a call is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The type of floating-point results of integers. Source: `torch.get_default_dtype`.
    pub default_dtype: DType,
    /// Whether autograd records. Source: `torch.is_grad_enabled`.
    pub grad: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_dtype: DType::Float32,
            grad: true,
        }
    }
}

/// A call with its arguments, in the order of the rule's parameters.
#[derive(Debug)]
pub struct Call<'a> {
    pub(super) signature: &'a Signature,
    pub(super) args: SmallVec<[Option<Value>; 8]>,
    /// Arguments of a parameter that takes all further positional arguments.
    pub(super) rest: Vec<Value>,
    pub(super) settings: Settings,
    /// Whether it goes to an operator of `torch.ops`, whose signature may be another one.
    pub(super) exact: bool,
    /// The argument that the result is written to, where one is given.
    pub(super) out: Option<Value>,
    /// The host of graphs in arguments, if there is one.
    pub(super) host: Option<&'a dyn TypeHost>,
}

impl<'a> Call<'a> {
    /// Matches arguments with the parameters of a rule.
    ///
    /// # Errors
    /// [`Failure::Unknown`] for arguments that the rule has no parameter for: they may mean
    /// anything.
    pub(super) fn bind<'k>(
        signature: &'a Signature,
        args: impl Iterator<Item = Value>,
        kwargs: impl Iterator<Item = (&'k str, Value)>,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let bound = signature.bind(args, kwargs).map_err(Failure::unknown)?;
        Ok(Self {
            signature,
            args: bound.args,
            rest: bound.rest,
            settings,
            exact: false,
            out: bound.out.filter(|out| !matches!(out, Value::None)),
            host: None,
        })
    }

    /// The argument for the parameter; `None` if none was given, or `None` was.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        debug_assert!(
            self.signature.position(name).is_some(),
            "a rule asks for its own parameters, not {name}"
        );
        let at = self.signature.position(name)?;
        self.args[at].as_ref().filter(|v| !matches!(v, Value::None))
    }

    /// The argument for the parameter, which must be given.
    pub(super) fn need(&self, name: &str) -> Result<&Value, Failure> {
        self.get(name)
            .ok_or_else(|| Failure::invalid(format!("an argument {name}"), "none"))
    }

    /// The tensor given for the parameter.
    pub(super) fn tensor(&self, name: &str) -> Result<&Tensor, Failure> {
        match self.need(name)? {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(Failure::expected(format!("a tensor as {name}"), other)),
        }
    }

    /// The tensor given for the parameter, if any was.
    pub(super) fn optional_tensor(&self, name: &str) -> Result<Option<&Tensor>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(_) => self.tensor(name).map(Some),
        }
    }

    /// The tensors in the tuple or list given for the parameter.
    pub(super) fn tensors(&self, name: &str) -> Result<Vec<&Tensor>, Failure> {
        let given = self.need(name)?;
        let expected = || format!("a list of tensors as {name}");
        let Some(items) = given.as_items() else {
            return Err(Failure::expected(expected(), given));
        };
        let tensors = items.iter().map(|item| match item {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(Failure::expected(expected(), other)),
        });
        tensors.collect()
    }

    /// The size or other integer given for the parameter, if any was.
    pub(super) fn dim(&self, name: &str) -> Result<Option<Dim>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => as_dim(value)
                .ok_or_else(|| Failure::expected(format!("an integer as {name}"), value))
                .map(Some),
        }
    }

    /// The number given for the parameter, if any was.
    pub(super) fn int(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(dim) = self.dim(name)? else {
            return Ok(None);
        };
        let known = dim.known();
        known
            .map(Some)
            .ok_or_else(|| Failure::unknown(format!("{name} depends on the size {dim}")))
    }

    /// The truth value given for the parameter, `default` if none was.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, Failure> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::Int(Dim::Known(value))) => Ok(*value != 0),
            Some(other) => Err(Failure::expected(format!("a truth value as {name}"), other)),
        }
    }

    /// The string given for the parameter, if any was.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Str(text)) => Ok(Some(text)),
            Some(other) => Err(Failure::expected(format!("a string as {name}"), other)),
        }
    }

    /// The element type given for the parameter, if any was.
    pub(super) fn dtype(&self, name: &str) -> Result<Option<DType>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::DType(dtype)) => Ok(Some(*dtype)),
            Some(other) => Err(Failure::expected(
                format!("an element type as {name}"),
                other,
            )),
        }
    }

    /// The device given for the parameter, if any was.
    pub(super) fn device(&self, name: &str) -> Result<Option<Device>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Device(device)) => Ok(Some(*device)),
            Some(Value::Str(text)) => text
                .parse()
                .map(Some)
                .map_err(|()| Failure::unknown(format!("{text} is no device known here"))),
            Some(other) => Err(Failure::expected(format!("a device as {name}"), other)),
        }
    }

    /// The memory format given for the parameter, if any was.
    pub(super) fn memory_format(&self, name: &str) -> Result<Option<MemoryFormat>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::MemoryFormat(format)) => Ok(Some(*format)),
            Some(other) => Err(Failure::expected(
                format!("a memory format as {name}"),
                other,
            )),
        }
    }

    /// The sizes given for the parameter: a tuple, a list or one integer.
    pub(super) fn dims(&self, name: &str) -> Result<Option<Shape>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => dims_of(value, name).map(Some),
        }
    }

    /// `count` numbers given for the parameter, where one stands for all; `default` if none were.
    pub(super) fn per_axis(
        &self,
        name: &str,
        count: usize,
        default: i64,
    ) -> Result<SmallVec<[i64; 3]>, Failure> {
        let Some(dims) = self.dims(name)? else {
            return Ok(SmallVec::from_elem(default, count));
        };
        let mut known = SmallVec::new();
        for dim in &dims {
            known
                .push(dim.known().ok_or_else(|| {
                    Failure::unknown(format!("{name} depends on the size {dim}"))
                })?);
        }
        if let Some(far) = known
            .iter()
            .find(|value: &&i64| value.abs_diff(0) >= 1 << 31)
        {
            let expected = format!("numbers of less than 32 bits as {name}");
            return Err(Failure::invalid(expected, far.to_string()));
        }
        match known.len() {
            0 => Ok(SmallVec::from_elem(default, count)),
            1 => Ok(SmallVec::from_elem(known[0], count)),
            n if n == count => Ok(known),
            n => Err(Failure::invalid(
                format!("1 or {count} numbers as {name}"),
                n.to_string(),
            )),
        }
    }

    /// The sizes given one by one or as one tuple or list, for a variadic parameter.
    pub(super) fn rest_dims(&self, name: &str) -> Result<Shape, Failure> {
        if let [only] = self.rest.as_slice()
            && only.as_items().is_some()
        {
            return dims_of(only, name);
        }
        self.rest.iter().map(|item| one_dim(item, name)).collect()
    }

    /// The dimension given for the parameter, counted from the front; `None` if none was.
    pub(super) fn axis(&self, name: &str, rank: usize) -> Result<Option<usize>, Failure> {
        match self.int(name)? {
            None => Ok(None),
            Some(axis) => wrap_axis(axis, rank).map(Some),
        }
    }

    /// The dimensions given for the parameter, each once, ascending; `None` if none were.
    pub(super) fn axes(
        &self,
        name: &str,
        rank: usize,
    ) -> Result<Option<SmallVec<[usize; 4]>>, Failure> {
        let Some(dims) = self.dims(name)? else {
            return Ok(None);
        };
        axes_of(&dims, rank).map(Some)
    }
}

/// The dimensions `dims`, counted from the front, each once, ascending.
pub(super) fn axes_of(dims: &[Dim], rank: usize) -> Result<SmallVec<[usize; 4]>, Failure> {
    let mut axes: SmallVec<[usize; 4]> = SmallVec::new();
    for dim in dims {
        let axis = dim
            .known()
            .ok_or_else(|| Failure::unknown(format!("a dimension depends on the size {dim}")))?;
        let axis = wrap_axis(axis, rank)?;
        if axes.contains(&axis) {
            return Err(Failure::invalid("each dimension once", axis.to_string()));
        }
        axes.push(axis);
    }
    axes.sort_unstable();
    Ok(axes)
}

/// A dimension counted from the front. A tensor without dimensions takes 0 and -1.
pub(super) fn wrap_axis(axis: i64, rank: usize) -> Result<usize, Failure> {
    let len = rank.max(1) as i64;
    let wrapped = if axis < 0 { axis + len } else { axis };
    if (0..len).contains(&wrapped) {
        return Ok(wrapped as usize);
    }
    Err(Failure::invalid(
        format!("a dimension from {} to {}", -len, len - 1),
        axis.to_string(),
    ))
}

/// The integer that a value is.
pub(super) fn as_dim(value: &Value) -> Option<Dim> {
    match value {
        Value::Int(dim) => Some(dim.clone()),
        Value::Bool(value) => Some(Dim::Known((*value).into())),
        _ => None,
    }
}

fn one_dim(value: &Value, name: &str) -> Result<Dim, Failure> {
    as_dim(value).ok_or_else(|| Failure::expected(format!("integers as {name}"), value))
}

/// The sizes in a tuple or list, or the one size that a value is.
pub(super) fn dims_of(value: &Value, name: &str) -> Result<Shape, Failure> {
    match value.as_items() {
        Some(items) => items.iter().map(|item| one_dim(item, name)).collect(),
        None => Ok(Shape::from_iter([one_dim(value, name)?])),
    }
}
