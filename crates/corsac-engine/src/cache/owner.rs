//! Whose a folder is.

use std::fs;
use std::path::Path;

use super::error::CacheError;

/// Makes the folder, which only its owner can look into, with those around it.
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

/// That nobody else can put an entry into the folder.
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
    // Written to by the group or by all.
    match facts.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(CacheError::Writable {
            path: path.to_owned(),
            mode: facts.mode() & 0o777,
        }),
    }
}

/// Other systems keep what belongs to a user in folders of the user's.
#[cfg(not(unix))]
pub(super) fn check(_path: &Path, _facts: &fs::Metadata) -> Result<(), CacheError> {
    Ok(())
}
