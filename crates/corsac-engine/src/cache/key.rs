//! What an entry is for.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::entry::FORMAT_VERSION;
use super::processor::processor;

/// What an entry is for: all that what it says depends on. The version of corsac, the processor and what of
/// it can be used are always part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    text: String,
}

impl CacheKey {
    /// The key of these facts, by their names.
    #[must_use]
    pub fn new<'a>(facts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::on(processor(), env!("CARGO_PKG_VERSION"), facts)
    }

    /// The same for another processor and version.
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

    /// What its entry is called: 32 hexadecimal digits. The entry has the text, too, since keys may have
    /// one name.
    pub(super) fn file_name(&self) -> String {
        let mut hasher = SipHasher13::new();
        hasher.write(self.text.as_bytes());
        format!("{:032x}", hasher.finish128().as_u128())
    }
}
