//! The file of an entry: a safetensors file without tensors.
//!
//! Its metadata has five keys, all strings:
//!
//! | key | value |
//! |---|---|
//! | `corsac.cache` | the version of this format: `1` |
//! | `corsac.key` | the facts that the entry is for, a line each |
//! | `corsac.program` | the steps of the program, a line each; empty if it was not compiled |
//! | `corsac.seconds` | time of each way to run it, by name: a JSON object of numbers above zero |
//! | `corsac.digest` | SipHash-1-3 of 128 bits over the others, against damage |

use std::collections::BTreeMap;
use std::hash::Hasher;

use serde_json::{Map, json};
use siphasher::sip128::{Hasher128, SipHasher13};

use super::key::CacheKey;
use crate::model::{Limits, file_metadata, header_bytes};

/// The version of entries.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Largest file that is read. Programs of a hundred steps take some ten thousand bytes.
pub(super) const LONGEST: u64 = 1 << 20;
/// Largest number of ways to run a program of which an entry has times.
const WAYS: usize = 16;
/// No part of a program takes longer; a larger number is damage.
const LONGEST_SECONDS: f64 = 1e6;

const FORMAT: &str = "corsac.cache";
const KEY: &str = "corsac.key";
const PROGRAM: &str = "corsac.program";
const SECONDS: &str = "corsac.seconds";
const DIGEST: &str = "corsac.digest";

/// Measurements of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheRecord {
    /// Its steps, a line each; empty if it was not compiled.
    pub program: String,
    /// Time of each way to run it in seconds, by name; empty if it was not measured.
    pub seconds: BTreeMap<String, f64>,
}

impl CacheRecord {
    /// Whether the times are plausible measurements.
    fn is_sound(&self) -> bool {
        let sound = |seconds: &f64| *seconds > 0.0 && *seconds < LONGEST_SECONDS;
        self.seconds.len() <= WAYS && self.seconds.values().all(sound)
    }

    /// The file for `key`; `None` if it could not be read back.
    pub(super) fn to_bytes(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let seconds = serde_json::to_string(&self.seconds).ok()?;
        let mut entries = Map::new();
        let metadata = json!({
            FORMAT: FORMAT_VERSION.to_string(),
            KEY: key.text(),
            PROGRAM: self.program,
            SECONDS: seconds,
            DIGEST: digest(key.text(), &self.program, &seconds),
        });
        entries.insert("__metadata__".to_owned(), metadata);
        let bytes = header_bytes(entries);
        (self.is_sound() && bytes.len() as u64 <= LONGEST).then_some(bytes)
    }

    /// The record in the file for `key`; `None` if it is for another key, damaged or of another
    /// version.
    pub(super) fn from_bytes(bytes: Vec<u8>, key: &CacheKey) -> Option<Self> {
        let limits = Limits {
            header_bytes: LONGEST,
            weight_bytes: 0,
            ..Limits::default()
        };
        let metadata = file_metadata(bytes, &limits).ok()?;
        if metadata.len() != 5 || metadata.get(FORMAT)?.parse() != Ok(FORMAT_VERSION) {
            return None;
        }
        let text = |name: &str| metadata.get(name).map(String::as_str);
        let (found, program, seconds) = (text(KEY)?, text(PROGRAM)?, text(SECONDS)?);
        if found != key.text() || text(DIGEST)? != digest(found, program, seconds) {
            return None;
        }
        let record = Self {
            program: program.to_owned(),
            seconds: serde_json::from_str(seconds).ok()?,
        };
        record.is_sound().then_some(record)
    }
}

fn digest(key: &str, program: &str, seconds: &str) -> String {
    let mut hasher = SipHasher13::new();
    for text in [key, program, seconds] {
        hasher.write_u64(text.len() as u64);
        hasher.write(text.as_bytes());
    }
    format!("{:032x}", hasher.finish128().as_u128())
}
