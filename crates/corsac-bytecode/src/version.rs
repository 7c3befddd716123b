//! The versions of CPython.

use std::fmt;
use std::str::FromStr;

use crate::BytecodeError;

/// A supported version of CPython.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)] // the names say it
pub enum Version {
    V3_11,
    V3_12,
    V3_13,
    V3_14,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 4] = [Self::V3_11, Self::V3_12, Self::V3_13, Self::V3_14];

    /// The minor number: 11 of 3.11.
    #[must_use]
    pub const fn minor(self) -> u8 {
        self as u8 + 11
    }

    /// The version 3.`minor`.
    ///
    /// # Errors
    /// For a version that is not supported.
    pub fn from_minor(minor: u32) -> Result<Self, BytecodeError> {
        (Self::ALL.into_iter())
            .find(|version| u32::from(version.minor()) == minor)
            .ok_or_else(|| BytecodeError::UnknownVersion {
                version: format!("3.{minor}"),
            })
    }

    /// Number of bits by which the operator is shifted in the argument of `COMPARE_OP`.
    pub(crate) const fn compare_shift(self) -> u32 {
        match self {
            Self::V3_11 => 0,
            Self::V3_12 => 4,
            Self::V3_13 | Self::V3_14 => 5,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}", self.minor())
    }
}

impl FromStr for Version {
    type Err = BytecodeError;

    fn from_str(text: &str) -> Result<Self, BytecodeError> {
        (Self::ALL.into_iter())
            .find(|version| version.to_string() == text)
            .ok_or_else(|| BytecodeError::UnknownVersion {
                version: text.chars().take(40).collect(),
            })
    }
}
