//! Sizes of inputs: numbers, or what follows from symbols.

use std::fmt;
use std::str::FromStr;

use corsac_ops::shape::Dim;

/// A symbol for sizes of inputs, and the range that it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeSymbol {
    /// The name.
    pub name: String,
    /// The least value.
    pub least: usize,
    /// The largest value; `None` if there is none.
    pub most: Option<usize>,
}

impl fmt::Display for SizeSymbol {
    /// `batch=1..64`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}..", self.name, self.least)?;
        self.most.map_or(Ok(()), |most| most.fmt(f))
    }
}

/// The size of a dimension of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// The same in all calls.
    Fixed(usize),
    /// `factor * symbol + offset`, where the factor is not 0.
    Symbolic {
        /// The name of the symbol.
        symbol: String,
        /// Its factor.
        factor: usize,
        /// The number that is added.
        offset: i64,
    },
}

impl Size {
    fn parse(text: &str) -> Option<Self> {
        let (product, offset) = match text.find(['+', '-']) {
            Some(at) => {
                let digits = text[at + 1..].trim();
                let offset: u32 = digits.parse().ok()?;
                let is_less = text[at..].starts_with('-');
                (
                    &text[..at],
                    i64::from(offset) * if is_less { -1 } else { 1 },
                )
            }
            None => (text, 0),
        };
        let (factor, symbol) = match product.split_once('*') {
            Some((factor, symbol)) => (factor.trim().parse::<u32>().ok()? as usize, symbol),
            None => (1, product),
        };
        let symbol = symbol.trim();
        (factor > 0 && is_name(symbol)).then(|| Self::Symbolic {
            symbol: symbol.to_owned(),
            factor,
            offset,
        })
    }

    /// The size, if it is the same in all calls.
    #[must_use]
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Symbolic { .. } => None,
        }
    }

    /// The name of its symbol; `None` for a number.
    #[must_use]
    pub fn symbol(&self) -> Option<&str> {
        match self {
            Self::Fixed(_) => None,
            Self::Symbolic { symbol, .. } => Some(symbol),
        }
    }

    /// The size where the symbol has this value; `None` if that is no size.
    pub(super) fn at(&self, value: usize) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Symbolic { factor, offset, .. } => {
                let product = i64::try_from(value.checked_mul(*factor)?).ok()?;
                usize::try_from(product.checked_add(*offset)?).ok()
            }
        }
    }

    /// The value of the symbol for which this is the size; `None` if there is none.
    pub(super) fn value_for(&self, size: usize) -> Option<usize> {
        match self {
            Self::Fixed(_) => None,
            Self::Symbolic { factor, offset, .. } => {
                let product = i64::try_from(size).ok()?.checked_sub(*offset)?;
                let product = usize::try_from(product).ok()?;
                product.is_multiple_of(*factor).then(|| product / factor)
            }
        }
    }

    /// The size as an expression.
    pub(super) fn dim(&self) -> Dim {
        let known = |number: usize| Dim::Known(i64::try_from(number).unwrap_or(i64::MAX));
        match self {
            Self::Fixed(size) => known(*size),
            Self::Symbolic {
                symbol,
                factor,
                offset,
            } => known(*factor) * Dim::symbol(symbol) + Dim::Known(*offset),
        }
    }
}

impl FromStr for Size {
    type Err = ();

    /// Reads what [`Display`](fmt::Display) writes for symbols: `batch`, `2*batch`, `2*batch + 1`.
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::parse(text).ok_or(())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => size.fmt(f),
            Self::Symbolic { .. } => self.dim().fmt(f),
        }
    }
}

/// Whether `text` can be the name of a symbol: letters, digits and underscores.
pub(super) fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c == '_' || c.is_alphabetic();
    text.len() <= 64
        && text.starts_with(is_letter)
        && text.chars().all(|c| is_letter(c) || c.is_numeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for text in ["batch", "2*batch", "2*batch + 1", "n - 3", "16*n_1"] {
            assert_eq!(Size::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", "2", "0*n", "n*2", "2*", "n + m", "n + -1", "n-", "-n", "2*2*n", "n//2",
        ] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
    }

    #[test]
    fn values_of_symbols_follow_from_sizes() {
        let size = Size::parse("4*n - 2").unwrap();
        assert_eq!(size.at(3), Some(10));
        assert_eq!(size.at(0), None);
        assert_eq!(size.at(usize::MAX), None);
        assert_eq!(size.value_for(10), Some(3));
        assert_eq!(size.value_for(9), None);
        assert_eq!(Size::parse("n + 5").unwrap().value_for(4), None);
    }
}
