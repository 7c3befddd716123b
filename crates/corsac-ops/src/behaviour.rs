//! Effects of a callable, whatever its arguments.

use crate::schema::{Schema, SchemaParam};

/// A parameter: by position, by keyword, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its place among the positional arguments; `None` for a keyword-only parameter.
    pub position: Option<u16>,
    /// Its name.
    pub name: String,
}

impl Param {
    /// The parameter at `position`, called `name`.
    #[must_use]
    pub fn at(position: u16, name: &str) -> Self {
        Self {
            position: Some(position),
            name: name.to_owned(),
        }
    }

    /// The keyword-only parameter called `name`.
    #[must_use]
    pub fn keyword(name: &str) -> Self {
        Self {
            position: None,
            name: name.to_owned(),
        }
    }
}

/// A condition on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// In no call.
    Never,
    /// In every call.
    Always,
    /// If this argument is true: anything but a literal `False`, `None` or zero. The flag is the
    /// value where the argument is not given.
    If(Param, bool),
}

/// Effects on an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The parameter.
    pub param: Param,
    /// Condition under which it is written to.
    pub written: When,
    /// Condition under which the result may be the argument itself, or share storage with it.
    pub aliased: When,
}

/// Effects of a callable, whatever its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// The arguments that are written to or shared.
    pub roles: Vec<Role>,
    /// Whether the result may share storage with any argument.
    pub aliases_all: bool,
    /// Whether it depends on the strides of arguments if the result shares storage with them: a
    /// reshape of a contiguous tensor is a view.
    pub by_layout: bool,
    /// Whether it may change the sizes of the arguments that it writes to.
    pub reshapes: bool,
    /// Whether the result is a container that holds the items of the arguments, where those are
    /// containers: `operator.add` of two lists.
    pub concatenates: bool,
    /// Whether the result is one tensor or number, never a container or anything else that could
    /// hold other values.
    pub single: bool,
    /// Condition under which it uses random numbers.
    pub random: When,
    /// Whether it is an operator tagged as using random numbers (`torch.ops.…`), which torch.fx
    /// distinguishes from the Python functions that do.
    pub seeded_operator: bool,
    /// Whether it has an effect beside its results: asserts, prints, switches a mode.
    pub side_effect: bool,
    /// Whether calls after it may compute something else than calls before it, with the same
    /// arguments: modes, global state.
    pub barrier: bool,
    /// Whether a second call with the same arguments may return something else, though it writes to
    /// nothing: all that is known of it is that it is declared free of side effects.
    pub unrepeatable: bool,
    /// Whether it reads state that is no argument: parameters and buffers of a module.
    pub reads_state: bool,
    /// Whether it writes to such state.
    pub writes_state: bool,
    /// Whether nothing is known: it may write to, keep or return any argument and any state.
    pub opaque: bool,
}

impl Behaviour {
    /// A function of its arguments with a result of its own.
    #[must_use]
    pub fn pure() -> Self {
        Self {
            roles: Vec::new(),
            aliases_all: false,
            by_layout: false,
            reshapes: false,
            concatenates: false,
            single: false,
            random: When::Never,
            seeded_operator: false,
            side_effect: false,
            barrier: false,
            unrepeatable: false,
            reads_state: false,
            writes_state: false,
            opaque: false,
        }
    }

    /// A function of its arguments with one tensor or number of its own as the result.
    #[must_use]
    pub fn value() -> Self {
        Self {
            single: true,
            ..Self::pure()
        }
    }

    /// A function whose result may be an argument, or a view of one.
    #[must_use]
    pub fn view_of_any() -> Self {
        Self {
            aliases_all: true,
            ..Self::pure()
        }
    }

    /// A function whose result may be its first argument, or a view of it.
    #[must_use]
    pub fn view(first: &str) -> Self {
        Self::pure().role(Param::at(0, first), When::Never, When::Always)
    }

    /// A function that writes to its first argument and returns it.
    #[must_use]
    pub fn in_place(first: &str) -> Self {
        Self::pure().role(Param::at(0, first), When::Always, When::Always)
    }

    /// A function with a side effect.
    #[must_use]
    pub fn effect() -> Self {
        Self {
            side_effect: true,
            ..Self::pure()
        }
    }

    /// A side effect on later calls: a mode, a seed, a global setting.
    #[must_use]
    pub fn mode_switch() -> Self {
        Self {
            barrier: true,
            ..Self::effect()
        }
    }

    /// A callable of which nothing is known.
    #[must_use]
    pub fn opaque() -> Self {
        Self {
            aliases_all: true,
            barrier: true,
            reads_state: true,
            writes_state: true,
            opaque: true,
            ..Self::pure()
        }
    }

    /// The same, with `param` in a role.
    #[must_use]
    pub fn role(mut self, param: Param, written: When, aliased: When) -> Self {
        if written != When::Never || aliased != When::Never {
            self.roles.push(Role {
                param,
                written,
                aliased,
            });
        }
        self
    }

    /// The same, using random numbers under this condition.
    #[must_use]
    pub fn random(mut self, random: When) -> Self {
        self.random = random;
        self
    }

    /// Effects of one overload of an operator.
    #[must_use]
    pub fn of_schema(schema: &Schema) -> Self {
        let mut behaviour = Self::pure();
        behaviour.aliases_all = schema.composite;
        behaviour.by_layout = schema.composite;
        // Arguments given for a result are resized to fit it.
        let is_result = |param: &SchemaParam| param.written && param.keyword_only;
        behaviour.reshapes = schema.reshapes || schema.params.iter().any(is_result);
        behaviour.single = schema.single;
        if schema.random {
            behaviour.random = When::Always;
        }
        for (position, param) in schema.params.iter().enumerate() {
            let is_dropout = schema.random && param.name == "dropout_p";
            if !(param.written || param.aliased || is_dropout) {
                continue;
            }
            let when = |holds| if holds { When::Always } else { When::Never };
            let position = u16::try_from(position).ok().filter(|_| !param.keyword_only);
            let param_ref = Param {
                position,
                name: param.name.clone(),
            };
            if is_dropout {
                // Attention without dropout uses none.
                behaviour.random = When::If(param_ref.clone(), false);
            }
            behaviour = behaviour.role(param_ref, when(param.written), when(param.aliased));
        }
        behaviour
    }

    /// Effects of an operator whose overload is not known: those of all overloads together. An
    /// `out` argument is written to where it is given.
    #[must_use]
    pub fn of_operator(overloads: impl Iterator<Item = Schema>) -> Option<Self> {
        let union = overloads.map(|s| Self::of_schema(&s)).reduce(Self::union)?;
        Some(union)
    }

    fn union(mut self, other: Self) -> Self {
        for role in other.roles {
            if !self.roles.contains(&role) {
                self.roles.push(role);
            }
        }
        self.aliases_all |= other.aliases_all;
        self.by_layout |= other.by_layout;
        self.reshapes |= other.reshapes;
        self.single &= other.single;
        if other.random != When::Never {
            self.random = other.random;
        }
        self
    }

    /// Whether it only computes a new value from its arguments, whatever they are.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        self.roles.is_empty()
            && !self.aliases_all
            && !self.concatenates
            && self.random == When::Never
            && !self.side_effect
            && !self.barrier
            && !self.reads_state
            && !self.writes_state
            && !self.opaque
    }
}
