//! Ownership of cache folders.

use std::fs;
use std::path::Path;

use super::error::CacheError;

/// Creates the folder, accessible to its owner only, and its parents.
pub(super) fn make(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Checks that no other user can put an entry into the folder.
#[cfg(unix)]
pub(super) fn check(path: &Path, facts: &fs::Metadata) -> Result<(), CacheError> {
    use std::os::unix::fs::MetadataExt;

    let user = rustix::process::geteuid().as_raw();
    if facts.uid() != user {
        return Err(CacheError::Owner {
            path: path.to_owned(),
            owner: facts.uid(),
            user,
        });
    }
    // Writable by the group or by all.
    match facts.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(CacheError::Writable {
            path: path.to_owned(),
            mode: facts.mode() & 0o777,
        }),
    }
}

/// On other systems the folders of a user belong to that user.
#[cfg(not(unix))]
pub(super) fn check(_path: &Path, _facts: &fs::Metadata) -> Result<(), CacheError> {
    Ok(())
}
