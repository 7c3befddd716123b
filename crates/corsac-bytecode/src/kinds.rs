//! Kinds of values in a slot of the stack or in a local variable.

/// A set of kinds that a slot may hold: joining two paths is the union.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kinds(u32);

impl Kinds {
    /// No object: the NULL of `PUSH_NULL`, or an unbound variable.
    pub(crate) const NULL: Self = Self(1);
    /// An object of any type.
    pub(crate) const OBJECT: Self = Self(1 << 1);
    /// An iterator, or an object that is awaited.
    pub(crate) const ITER: Self = Self(1 << 2);
    pub(crate) const LIST: Self = Self(1 << 3);
    pub(crate) const SET: Self = Self(1 << 4);
    pub(crate) const DICT: Self = Self(1 << 5);
    pub(crate) const TUPLE: Self = Self(1 << 6);
    pub(crate) const STR: Self = Self(1 << 7);
    pub(crate) const CODE: Self = Self(1 << 8);
    pub(crate) const FUNCTION: Self = Self(1 << 9);
    /// An exception.
    pub(crate) const EXCEPTION: Self = Self(1 << 10);
    pub(crate) const NONE: Self = Self(1 << 11);
    /// The exception that was handled before, which `POP_EXCEPT` restores.
    pub(crate) const PREVIOUS: Self = Self(1 << 12);
    /// The place that an exception was raised at, as a number.
    pub(crate) const LASTI: Self = Self(1 << 13);
    /// A cell of a closure.
    pub(crate) const CELL: Self = Self(1 << 14);
    /// A function that has no closure yet and needs one.
    pub(crate) const OPEN_FUNCTION: Self = Self(1 << 15);

    /// An asynchronous iterator.
    pub(crate) const ASYNC_ITER: Self = Self(1 << 16);
    /// A function whose parameters have to be of certain kinds: a comprehension's.
    pub(crate) const NEEDY_FUNCTION: Self = Self(1 << 17);
    /// A list that nothing else refers to, of exceptions and None only.
    pub(crate) const EXCEPTION_LIST: Self = Self(1 << 18);
    /// Functions that may crash when they are called.
    const UNSAFE: Self = Self::OPEN_FUNCTION.or(Self::NEEDY_FUNCTION);

    /// Any object, not NULL, and no function that may crash when it is called.
    pub(crate) const ANY_OBJECT: Self = Self(!0).without(Self::NULL.or(Self::UNSAFE));
    /// Anything that is safe to move about.
    pub(crate) const ANY: Self = Self(!0).without(Self::UNSAFE);

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The same where something else refers to it, too.
    pub(crate) const fn shared(self) -> Self {
        if self.0 & Self::EXCEPTION_LIST.0 == 0 {
            return self;
        }
        self.without(Self::EXCEPTION_LIST).or(Self::LIST)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn is_within(self, allowed: Self) -> bool {
        self.0 & !allowed.0 == 0
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The kinds that `word` of a stack signature accepts.
    pub(crate) fn accepted(word: &str) -> Option<Self> {
        Some(match word {
            "o" => Self::ANY_OBJECT,
            "x" => Self::ANY,
            "func" => Self::FUNCTION.or(Self::UNSAFE),
            "list" | "list@n" => Self::LIST.or(Self::EXCEPTION_LIST),
            _ => return Self::pushed(word),
        })
    }

    /// The kinds that `word` of a stack signature pushes.
    pub(crate) fn pushed(word: &str) -> Option<Self> {
        let mut kinds = Self(0);
        for part in word.split('|') {
            kinds = kinds.or(match part {
                "o" => Self::OBJECT,
                "x" => Self::OBJECT.or(Self::NULL),
                "n" => Self::NULL,
                "iter" => Self::ITER,
                "aiter" => Self::ASYNC_ITER,
                "list" => Self::LIST,
                "excs" => Self::EXCEPTION_LIST,
                "set" => Self::SET,
                "dict" => Self::DICT,
                "tuple" => Self::TUPLE,
                "str" => Self::STR,
                "code" => Self::CODE,
                "func" => Self::FUNCTION,
                "exc" => Self::EXCEPTION,
                "none" => Self::NONE,
                "prev" => Self::PREVIOUS,
                "lasti" => Self::LASTI,
                _ => return None,
            });
        }
        Some(kinds)
    }
}

impl std::fmt::Display for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [&str; 19] = [
            "NULL",
            "an object",
            "an iterator",
            "a list",
            "a set",
            "a dict",
            "a tuple",
            "a str",
            "a code object",
            "a function",
            "an exception",
            "None",
            "the previous exception",
            "the place of an exception",
            "a cell",
            "a function without its closure",
            "an asynchronous iterator",
            "the function of a comprehension",
            "a list of exceptions",
        ];
        if Self::ANY_OBJECT.is_within(*self) {
            return f.write_str(if self.has(Self::NULL) {
                "anything"
            } else {
                "an object"
            });
        }
        let mut first = true;
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                if !first {
                    f.write_str(" or ")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}
