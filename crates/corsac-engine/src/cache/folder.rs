//! A folder of entries, which any number of processes use at once.
//!
//! An entry is written to a file of another name, which then takes its place, so that readers see an old
//! entry, the new one, or none; nobody waits for anybody. What is written is not forced to the disk: after
//! a power cut an entry may be damaged, which its digest tells, and it is made anew.

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

/// What files of entries end with.
const SUFFIX: &str = ".safetensors";
/// What files end with that are being written.
const UNFINISHED: &str = ".partial";
/// A file that was being written this long ago was given up.
const GIVEN_UP: Duration = Duration::from_secs(600);
/// What a file takes on the disk at least.
const BLOCK_BYTES: u64 = 4096;
/// A process looks how full the folder is when it has written so much of the limit.
const LOOK_EACH: u64 = 16;

/// A folder of compiled programs.
#[derive(Debug)]
pub struct CacheFolder {
    path: PathBuf,
    limit_bytes: u64,
    /// How many bytes may be written before somebody looks how full the folder is.
    room_bytes: AtomicU64,
}

/// What is in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheContents {
    /// How many entries there are.
    pub entries: usize,
    /// What they take on the disk, in blocks of 4 KiB.
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
    /// How large a folder may become by default: 64 MiB.
    pub const LIMIT_BYTES: u64 = 64 << 20;

    /// The folder at `path`, which is made if it is not there. When its entries take more than
    /// `limit_bytes`, those go that were not used for longest.
    ///
    /// # Errors
    /// If it cannot be made, is no folder, belongs to another user, or others may write to it.
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How large it may become.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    fn file(&self, key: &CacheKey) -> PathBuf {
        self.path.join(key.file_name() + SUFFIX)
    }

    /// What is known of a program; `None` if nothing is, or the entry is damaged.
    #[must_use]
    pub fn get(&self, key: &CacheKey) -> Option<CacheRecord> {
        let path = self.file(key);
        // A pipe or a device would have to be waited for.
        let facts = fs::symlink_metadata(&path).ok()?;
        if !facts.is_file() || facts.len() > LONGEST {
            return None;
        }
        let mut file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        (&mut file).take(LONGEST + 1).read_to_end(&mut bytes).ok()?;
        let record = CacheRecord::from_bytes(bytes, key)?;
        // Used just now. Where this cannot be said the entry goes earlier, no more.
        let _ = file.set_modified(SystemTime::now());
        Some(record)
    }

    /// Keeps what is known of a program, in the place of what was known.
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
        // What is said of the file in between means nothing to the caller.
        let mut file = temporary(&self.path, 0o600).map_err(|error| failed(error.kind().into()))?;
        file.write_all(&bytes).map_err(failed)?;
        if path.is_dir() {
            // Nobody but the user can have put it there.
            fs::remove_dir(&path).map_err(failed)?;
        }
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// What is in it.
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

    /// Removes all entries, and nothing else; answers how many there were.
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
                // Another process was first.
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

    /// Lets go of what was not used for longest, if `size` more bytes may be too many.
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
                // Those that another process has removed meanwhile are gone, too.
                let _ = fs::remove_file(&own.path);
                total -= own.bytes;
            }
        }
        // Others write, too: what is left is not this process's alone.
        let room = self.limit_bytes.saturating_sub(total) / LOOK_EACH;
        self.room_bytes.store(room, order);
    }

    /// The files of entries, and those that are being written. What else lies there is nobody's business.
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
            // One that has been removed meanwhile is not there.
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
