//! Literals as Python's `repr` writes them.
//!
//! Generated code, the printed graph and the text form show strings, numbers and byte strings as
//! CPython does, character for character. Every function writes to a [`fmt::Write`], so that
//! printing a graph needs no temporary strings. The characters that count as printable are those of
//! Unicode 14, which CPython 3.11 has; later versions escape fewer, and read both.
//!
//! ```
//! use corsac_ir::literal;
//!
//! let mut out = String::new();
//! literal::write_str(&mut out, "it's\n")?;
//! literal::write_float(&mut out, 1e16)?;
//! assert_eq!(out, r#""it's\n"1e+16"#);
//! # Ok::<(), std::fmt::Error>(())
//! ```

mod printable;

use std::fmt::{self, Write};

use num_bigint::BigInt;

use crate::dtype::Device;
use printable::NONPRINTABLE;

/// CPython neither prints nor reads decimal integers of more than 4300 digits
/// (`sys.get_int_max_str_digits`); 14284 bits never make more. Hexadecimal has no such limit.
const MAX_DECIMAL_BITS: u64 = 14284;

/// Appends `repr` of an integer that fits 64 bits.
pub(crate) fn push_int(out: &mut String, value: i64) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// `repr` of a string.
///
/// # Errors
/// Those of `out`.
pub fn write_str<W: Write + ?Sized>(out: &mut W, text: &str) -> fmt::Result {
    let quote = quote_for(text.as_bytes());
    out.write_char(quote as char)?;
    // Runs of characters that need no escape are written in one piece.
    let mut written = 0;
    for (at, c) in text.char_indices() {
        if (c.is_ascii_graphic() || c == ' ') && c != '\\' && c != quote as char {
            continue;
        }
        if !c.is_ascii() && is_printable(c) {
            continue;
        }
        out.write_str(&text[written..at])?;
        written = at + c.len_utf8();
        match c {
            '\t' => out.write_str("\\t")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\\' | '\'' | '"' => {
                out.write_char('\\')?;
                out.write_char(c)?;
            }
            c if u32::from(c) <= 0xff => write!(out, "\\x{:02x}", u32::from(c))?,
            c if u32::from(c) <= 0xffff => write!(out, "\\u{:04x}", u32::from(c))?,
            c => write!(out, "\\U{:08x}", u32::from(c))?,
        }
    }
    out.write_str(&text[written..])?;
    out.write_char(quote as char)
}

/// `repr` of a byte string.
///
/// # Errors
/// Those of `out`.
pub fn write_bytes<W: Write + ?Sized>(out: &mut W, bytes: &[u8]) -> fmt::Result {
    let quote = quote_for(bytes);
    out.write_char('b')?;
    out.write_char(quote as char)?;
    for &byte in bytes {
        match byte {
            b'\t' => out.write_str("\\t")?,
            b'\n' => out.write_str("\\n")?,
            b'\r' => out.write_str("\\r")?,
            b'\\' => out.write_str("\\\\")?,
            byte if byte == quote => write!(out, "\\{}", quote as char)?,
            b' '..=b'~' => out.write_char(byte as char)?,
            byte => write!(out, "\\x{byte:02x}")?,
        }
    }
    out.write_char(quote as char)
}

/// Double quotes where that saves escaping a single one.
fn quote_for(text: &[u8]) -> u8 {
    if text.contains(&b'\'') && !text.contains(&b'"') {
        b'"'
    } else {
        b'\''
    }
}

/// `str.isprintable` of one character.
#[must_use]
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let code = u32::from(c);
    let after = NONPRINTABLE.partition_point(|&(low, _)| low <= code);
    after == 0 || NONPRINTABLE[after - 1].1 < code
}

/// `repr` of a floating-point number: the shortest digits that read back as the same number.
///
/// # Errors
/// Those of `out`.
pub fn write_float<W: Write + ?Sized>(out: &mut W, value: f64) -> fmt::Result {
    write_real(out, value, ".0")
}

/// `repr` of a complex number. Not always an expression of the same value: `-0j`, `infj`.
///
/// # Errors
/// Those of `out`.
pub fn write_complex<W: Write + ?Sized>(out: &mut W, real: f64, imag: f64) -> fmt::Result {
    if real == 0.0 && real.is_sign_positive() {
        write_real(out, imag, "")?;
        return out.write_char('j');
    }
    out.write_char('(')?;
    write_real(out, real, "")?;
    if imag.is_nan() || imag.is_sign_positive() {
        out.write_char('+')?;
    }
    write_real(out, imag, "")?;
    out.write_str("j)")
}

/// Shortest digits, with `whole` after a number that shows neither point nor exponent.
fn write_real<W: Write + ?Sized>(out: &mut W, value: f64, whole: &str) -> fmt::Result {
    if value.is_nan() {
        return out.write_str("nan");
    }
    if value.is_infinite() {
        return out.write_str(if value > 0.0 { "inf" } else { "-inf" });
    }
    let magnitude = value.abs();
    // CPython shows an exponent below 1e-4 and from 1e16 on (`float_repr_style` short).
    if magnitude == 0.0 || (1e-4..1e16).contains(&magnitude) {
        write!(out, "{value}")?;
        return if value.fract() == 0.0 {
            out.write_str(whole)
        } else {
            Ok(())
        };
    }
    // Rust writes `1.5e-5` where Python writes `1.5e-05`.
    let mut exponent_sign = Exponent {
        out,
        state: ExponentState::Mantissa,
    };
    write!(exponent_sign, "{value:e}")?;
    exponent_sign.finish()
}

/// Passes a number in scientific notation on with a signed exponent of at least two digits.
struct Exponent<'w, W: ?Sized> {
    out: &'w mut W,
    state: ExponentState,
}

enum ExponentState {
    Mantissa,
    /// The exponent's text so far: at most a sign and three digits.
    Exponent(String),
}

impl<W: Write + ?Sized> Write for Exponent<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match &mut self.state {
            ExponentState::Exponent(exponent) => exponent.write_str(text),
            ExponentState::Mantissa => match text.split_once('e') {
                None => self.out.write_str(text),
                Some((mantissa, exponent)) => {
                    self.state = ExponentState::Exponent(exponent.to_owned());
                    self.out.write_str(mantissa)
                }
            },
        }
    }
}

impl<W: Write + ?Sized> Exponent<'_, W> {
    fn finish(self) -> fmt::Result {
        let ExponentState::Exponent(exponent) = self.state else {
            return Ok(());
        };
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent.as_str()),
        };
        write!(self.out, "e{sign}{digits:0>2}")
    }
}

/// `repr` of an integer of any size; in hexadecimal where it is so long that Python refuses to
/// read or write it in decimal.
///
/// # Errors
/// Those of `out`.
pub fn write_big_int<W: Write + ?Sized>(out: &mut W, value: &BigInt) -> fmt::Result {
    if value.bits() > MAX_DECIMAL_BITS {
        write!(out, "{value:#x}")
    } else {
        write!(out, "{value}")
    }
}

/// `repr` of a truth value.
#[must_use]
pub fn bool_repr(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// `repr` of a `torch.device`: `device(type='cuda', index=1)`.
///
/// # Errors
/// Those of `out`.
pub fn write_device<W: Write + ?Sized>(out: &mut W, device: Device) -> fmt::Result {
    write!(out, "device(type='{}'", device.kind.name())?;
    if let Some(index) = device.index {
        write!(out, ", index={index}")?;
    }
    out.write_char(')')
}

#[cfg(test)]
mod tests;
