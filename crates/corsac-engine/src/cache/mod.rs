//! Measurements of compiled programs, kept from one process to the next.
//!
//! An entry holds the steps of a program as text, and the time of each way to run it where that was
//! measured. It holds no code and no plan: a process that finds an entry compiles the graph again,
//! which takes about a millisecond, and compares the steps. It saves the measurements, which take
//! seconds. An entry that was tampered with can therefore make a program slower, never wrong.
//!
//! A [`CacheFolder`] is a folder of entries, one file each ([`entry`]), which any number of
//! processes may read and write at once. An entry is found by its [key](CacheKey): all facts that
//! the measurement depends on.
//!
//! ```
//! use corsac_engine::{CacheFolder, CacheKey, CacheRecord};
//!
//! # let parent = tempfile::tempdir().unwrap();
//! let folder = CacheFolder::open(&parent.path().join("programs"), CacheFolder::LIMIT_BYTES)?;
//! let key = CacheKey::new([("graph", "8625f7eda19159aa"), ("threads", "2")]);
//! let record = CacheRecord {
//!     program: "%1[2] = unary(in0)\n".to_owned(),
//!     seconds: [("host".to_owned(), 3e-5), ("native".to_owned(), 1e-5)].into(),
//! };
//! folder.put(&key, &record)?;
//! assert_eq!(folder.get(&key), Some(record));
//! assert_eq!(folder.get(&CacheKey::new([("graph", "another")])), None);
//! # Ok::<(), corsac_engine::CacheError>(())
//! ```

mod entry;
mod error;
mod folder;
mod key;
mod owner;
mod processor;
mod size;
#[cfg(test)]
mod tests;

pub use entry::CacheRecord;
pub use error::CacheError;
pub use folder::{CacheContents, CacheFolder};
pub use key::CacheKey;
pub use size::size_bytes;
