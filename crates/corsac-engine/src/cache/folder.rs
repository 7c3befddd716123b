//! A folder of entries, shared by any number of processes at once.
//!
//! An entry is written to a temporary file, which then replaces the old one, so that readers see an
//! old entry, the new one, or none; no process waits for another. Entries are not forced to the
//! disk: after a power cut one may be damaged, which its digest reveals, and it is made anew.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::entry::{CacheRecord, LONGEST};
use super::error::CacheError;
use super::key::CacheKey;
use super::owner;
use crate::model::temporary;

/// Suffix of the files of entries.
const SUFFIX: &str = ".safetensors";
/// Suffix of files that are being written.
const UNFINISHED: &str = ".partial";
/// Age at which a file that is being written counts as abandoned.
const GIVEN_UP: Duration = Duration::from_secs(600);
/// Least space of a file on the disk.
const BLOCK_BYTES: u64 = 4096;
/// A process checks the size of the folder when it has written this fraction of the limit: a
/// sixteenth.
const LOOK_EACH: u64 = 16;

/// A folder of measurements of compiled programs.
#[derive(Debug)]
pub struct CacheFolder {
    path: PathBuf,
    limit_bytes: u64,
    /// Bytes that this process may write before it checks the size of the folder.
    room_bytes: AtomicU64,
}

/// Contents of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheContents {
    /// Number of entries.
    pub entries: usize,
    /// Their size on the disk, in blocks of 4 KiB.
    pub bytes: u64,
}

/// A file of a folder.
struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    unfinished: bool,
}

impl CacheFolder {
    /// Default limit of the size of a folder: 64 MiB.
    pub const LIMIT_BYTES: u64 = 64 << 20;

    /// Opens the folder at `path`, which is created if it does not exist. When its entries take
    /// more than `limit_bytes`, the least recently used are removed.
    ///
    /// # Errors
    /// If it cannot be created, is no folder, belongs to another user, or others can write to it.
    pub fn open(path: &Path, limit_bytes: u64) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Io {
            path: path.to_owned(),
            source,
        };
        owner::make(path).map_err(failed)?;
        owner::check(path, &fs::metadata(path).map_err(failed)?)?;
        Ok(Self {
            path: path.to_owned(),
            limit_bytes,
            room_bytes: AtomicU64::new(0),
        })
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Limit of its size.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    fn file(&self, key: &CacheKey) -> PathBuf {
        self.path.join(key.file_name() + SUFFIX)
    }

    /// The record of a program; `None` if there is none, or the entry is damaged.
    #[must_use]
    pub fn get(&self, key: &CacheKey) -> Option<CacheRecord> {
        let path = self.file(key);
        // Reading a pipe or a device could block.
        let facts = fs::symlink_metadata(&path).ok()?;
        if !facts.is_file() || facts.len() > LONGEST {
            return None;
        }
        let mut file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        (&mut file).take(LONGEST + 1).read_to_end(&mut bytes).ok()?;
        let record = CacheRecord::from_bytes(bytes, key)?;
        // Marks the entry as used. If that fails it is removed earlier, no more.
        let _ = file.set_modified(SystemTime::now());
        Some(record)
    }

    /// Writes the record of a program, in place of an earlier one. Records that are too large are
    /// not written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, key: &CacheKey, record: &CacheRecord) -> Result<(), CacheError> {
        let Some(bytes) = record.to_bytes(key) else {
            return Ok(());
        };
        let size = on_disk(bytes.len() as u64);
        if size > self.limit_bytes {
            return Ok(());
        }
        self.make_room(size);
        let path = self.file(key);
        let failed = |source| CacheError::Io {
            path: path.clone(),
            source,
        };
        // The caller does not know the temporary file: only the kind of the error is passed on.
        let mut file = temporary(&self.path, 0o600).map_err(|error| failed(error.kind().into()))?;
        file.write_all(&bytes).map_err(failed)?;
        if path.is_dir() {
            // Only the user can have put it there.
            fs::remove_dir(&path).map_err(failed)?;
        }
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// Number and size of the entries.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn contents(&self) -> Result<CacheContents, CacheError> {
        let found = self.found()?;
        let entries = found.iter().filter(|own| !own.unfinished);
        Ok(
            entries.fold(CacheContents::default(), |sum, own| CacheContents {
                entries: sum.entries + 1,
                bytes: sum.bytes + own.bytes,
            }),
        )
    }

    /// Removes all entries, and no other files; returns their number.
    ///
    /// # Errors
    /// If it cannot be listed, or an entry cannot be removed.
    pub fn clear(&self) -> Result<usize, CacheError> {
        let found = self.found()?;
        let mut removed = 0;
        for own in found {
            if own.unfinished && !own.is_given_up() {
                continue;
            }
            match fs::remove_file(&own.path) {
                Ok(()) => removed += usize::from(!own.unfinished),
                // Another process has removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(CacheError::Io {
                        path: own.path,
                        source,
                    });
                }
            }
        }
        Ok(removed)
    }

    /// Removes the least recently used entries, if `size` more bytes may exceed the limit.
    fn make_room(&self, size: u64) {
        let took = |room: u64| room.checked_sub(size);
        let order = Ordering::Relaxed;
        if self.room_bytes.fetch_update(order, order, took).is_ok() {
            return;
        }
        let Ok(mut found) = self.found() else { return };
        found.retain(|own| {
            let given_up = own.is_given_up();
            if given_up {
                let _ = fs::remove_file(&own.path);
            }
            !given_up
        });
        let mut total = found.iter().fold(size, |sum, own| sum + own.bytes);
        if total > self.limit_bytes {
            // A quarter at once, so that this is not done for each entry.
            let wanted = self.limit_bytes - self.limit_bytes / 4;
            found.sort_by_key(|own| own.used);
            for own in found.iter().filter(|own| !own.unfinished) {
                if total <= wanted {
                    break;
                }
                // If another process has removed it, it is gone, too.
                let _ = fs::remove_file(&own.path);
                total -= own.bytes;
            }
        }
        // Other processes write, too: this one takes only a part of the room.
        let room = self.limit_bytes.saturating_sub(total) / LOOK_EACH;
        self.room_bytes.store(room, order);
    }

    /// The files of entries, and those that are being written. Other files are ignored.
    fn found(&self) -> Result<Vec<Found>, CacheError> {
        let failed = |source| CacheError::Io {
            path: self.path.clone(),
            source,
        };
        let mut found = Vec::new();
        for item in fs::read_dir(&self.path).map_err(failed)? {
            let item = item.map_err(failed)?;
            let name = item.file_name();
            let Some(name) = name.to_str() else { continue };
            let unfinished = name.starts_with(".corsac-") && name.ends_with(UNFINISHED);
            // One that has been removed in the meantime is skipped.
            let Ok(facts) = item.metadata() else { continue };
            if facts.is_file() && (unfinished || is_entry(name)) {
                found.push(Found {
                    path: item.path(),
                    bytes: on_disk(facts.len()),
                    used: facts.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    unfinished,
                });
            }
        }
        Ok(found)
    }
}

impl Found {
    fn is_given_up(&self) -> bool {
        let age = SystemTime::now().duration_since(self.used);
        self.unfinished && age.is_ok_and(|age| age > GIVEN_UP)
    }
}

fn is_entry(name: &str) -> bool {
    let digits = name.strip_suffix(SUFFIX);
    digits.is_some_and(|own| own.len() == 32 && own.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn on_disk(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}
