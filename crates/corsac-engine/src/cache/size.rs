//! Parsing of sizes.

use super::error::CacheError;

/// The bytes of a size as people write it: a number of bytes, or of K, M or G (1024 bytes, and so
/// on).
///
/// # Errors
/// If `text` is no size.
pub fn size_bytes(text: &str) -> Result<u64, CacheError> {
    let own = text.trim();
    let own = own.strip_suffix(['B', 'b']).unwrap_or(own);
    let (digits, shift) = match own.chars().last().map(|unit| unit.to_ascii_uppercase()) {
        Some('K') => (&own[..own.len() - 1], 10),
        Some('M') => (&own[..own.len() - 1], 20),
        Some('G') => (&own[..own.len() - 1], 30),
        _ => (own, 0),
    };
    let number = digits.trim_end().parse::<u64>().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| CacheError::Size {
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 64 << 10),
            (" 64 m ", 64 << 20),
            ("2GB", 2 << 30),
        ] {
            assert_eq!(size_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "64 MiB", "99999999999G", "ten", "ü"] {
            let message = size_bytes(text).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("{text:?} is no size")),
                "{message}"
            );
        }
    }
}
