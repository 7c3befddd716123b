//! Storage of the bytes of a model file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use super::error::ModelError;

/// The bytes of a model file: in a file, or in memory.
#[derive(Debug)]
pub(super) enum Source {
    File {
        path: PathBuf,
        file: Mutex<File>,
        len: u64,
        /// When it was last changed, where the system has that.
        changed: Option<SystemTime>,
    },
    Memory(Vec<u8>),
}

impl Source {
    /// Opens the regular file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
        let failed = |source| ModelError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let facts = file.metadata().map_err(failed)?;
        if !facts.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file");
            return Err(failed(error));
        }
        Ok(Self::File {
            path: path.to_owned(),
            file: Mutex::new(file),
            len: facts.len(),
            changed: facts.modified().ok(),
        })
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// The `len` bytes from `start` on; an error if they exceed the file.
    pub(super) fn read(&self, start: u64, len: u64) -> Result<Vec<u8>, ModelError> {
        let (path, read) = match self {
            Self::File {
                path,
                file,
                changed,
                ..
            } => (path.clone(), read_file(file, *changed, start, len)),
            Self::Memory(bytes) => {
                let range = usize::try_from(start).ok().zip(usize::try_from(len).ok());
                let range = range.and_then(|(start, len)| Some((start, start.checked_add(len)?)));
                let bytes = range.and_then(|(start, end)| bytes.get(start..end));
                let bytes = bytes.map(<[u8]>::to_vec);
                (
                    PathBuf::new(),
                    bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
                )
            }
        };
        read.map_err(|source| ModelError::Io { path, source })
    }
}

fn read_file(
    file: &Mutex<File>,
    changed: Option<SystemTime>,
    start: u64,
    len: u64,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes
        .try_reserve_exact(size)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut file = file
        .lock()
        .map_err(|_| io::Error::other("another reader of the file failed"))?;
    file.seek(SeekFrom::Start(start))?;
    let read = (&mut *file).take(len).read_to_end(&mut bytes)?;
    if file.metadata()?.modified().ok() != changed {
        return Err(io::Error::other("it was written to after it was opened"));
    }
    match read == size {
        true => Ok(bytes),
        // The file was truncated in the meantime.
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
