//! Headers of model files, for tests of damaged ones.

/// The model file with `from` in its header replaced by `to`, once.
///
/// # Panics
/// If the header does not have it, or is no text.
#[must_use]
pub fn edited(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let (length, rest) = bytes.split_first_chunk().expect("the length of the header");
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header = std::str::from_utf8(header).expect("text");
    assert!(header.contains(from), "{from} is not in {header}");
    let header = header.replacen(from, to, 1);
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), data].concat()
}
