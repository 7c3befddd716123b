//! Errors of cache folders.

use std::io;
use std::path::PathBuf;

/// A fault of a cache folder or of its limit. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The folder cannot be made or listed, or an entry cannot be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or the entry.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder belongs to another user.
    #[error("{}: it belongs to user {owner}, not to user {user}", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
        /// The number of the user of this process.
        user: u32,
    },
    /// Other users can write to the folder.
    #[error("{}: other users can write to it (mode {mode:03o}, not 700)", path.display())]
    Writable {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A limit that is no size.
    #[error("{text:?} is no size: a number of bytes, or of K, M or G, such as 64M")]
    Size {
        /// The text that was given.
        text: String,
    },
}
