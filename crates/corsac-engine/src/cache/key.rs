//! Keys of entries.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::entry::FORMAT_VERSION;
use super::processor::processor;

/// Key of an entry: all facts that its record depends on. The version of corsac, the processor and
/// its usable instructions are always part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    text: String,
}

impl CacheKey {
    /// The key of these facts, as pairs of names and values.
    #[must_use]
    pub fn new<'a>(facts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::on(processor(), env!("CARGO_PKG_VERSION"), facts)
    }

    /// The key for another processor and version.
    pub(super) fn on<'a>(
        processor: &str,
        version: &str,
        facts: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut text = String::new();
        // Quoted, so that no value can look like another fact.
        let mut add = |name: &str, value: &str| text += &format!("{name:?}: {value:?}\n");
        add("format", &FORMAT_VERSION.to_string());
        add("corsac", version);
        add("processor", processor);
        for (name, value) in facts {
            add(name, value);
        }
        Self { text }
    }

    /// The facts, a line each.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// File name of the entry: 32 hexadecimal digits. The entry contains the text, too, since two
    /// keys may have one name.
    pub(super) fn file_name(&self) -> String {
        let mut hasher = SipHasher13::new();
        hasher.write(self.text.as_bytes());
        format!("{:032x}", hasher.finish128().as_u128())
    }
}
