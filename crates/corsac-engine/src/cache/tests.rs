use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;

fn record(program: &str, native: f64) -> CacheRecord {
    CacheRecord {
        program: program.to_owned(),
        seconds: BTreeMap::from([("native".to_owned(), native), ("host".to_owned(), 0.5)]),
    }
}

fn key(graph: &str) -> CacheKey {
    CacheKey::new([("graph", graph), ("threads", "2")])
}

fn folder(limit_bytes: u64) -> (TempDir, CacheFolder) {
    let parent = tempfile::tempdir().unwrap();
    let folder = CacheFolder::open(&parent.path().join("a/b"), limit_bytes).unwrap();
    (parent, folder)
}

fn files(folder: &CacheFolder) -> Vec<PathBuf> {
    let items = fs::read_dir(folder.path()).unwrap();
    let mut paths: Vec<PathBuf> = items.map(|item| item.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn what_is_put_is_found_by_its_key_only() {
    let (_parent, folder) = folder(1 << 20);
    assert_eq!(folder.get(&key("a")), None);
    folder
        .put(&key("a"), &record("%1 = conv", 1.25e-5))
        .unwrap();
    folder.put(&key("b"), &record("", 3.0)).unwrap();
    assert_eq!(folder.get(&key("a")), Some(record("%1 = conv", 1.25e-5)));
    assert_eq!(folder.get(&key("b")), Some(record("", 3.0)));
    folder.put(&key("a"), &record("%2 = linear", 2.0)).unwrap();
    assert_eq!(folder.get(&key("a")), Some(record("%2 = linear", 2.0)));
    let contents = folder.contents().unwrap();
    assert_eq!((contents.entries, contents.bytes), (2, 8192));
    let none = CacheRecord::default();
    folder.put(&key("c"), &none).unwrap();
    assert_eq!(folder.get(&key("c")), Some(none));
}

#[test]
fn another_processor_or_version_is_another_key() {
    let facts = [("graph", "a")];
    let own = CacheKey::on("EPYC; x86_64 avx2 avx512f", "0.1.0", facts);
    let (_parent, folder) = folder(1 << 20);
    folder.put(&own, &record("", 1.0)).unwrap();
    assert!(folder.get(&own).is_some());
    for other in [
        CacheKey::on("EPYC; x86_64 avx2", "0.1.0", facts),
        CacheKey::on("Xeon; x86_64 avx2 avx512f", "0.1.0", facts),
        CacheKey::on("EPYC; x86_64 avx2 avx512f", "0.1.1", facts),
        CacheKey::on("EPYC; x86_64 avx2 avx512f", "0.1.0", [("graph", "b")]),
        // Not one fact that looks like two.
        CacheKey::on(
            "EPYC; x86_64 avx2 avx512f",
            "0.1.0",
            [("graph", "a\"\n\"b\": \"")],
        ),
    ] {
        assert_ne!(own.text(), other.text());
        assert_eq!(folder.get(&other), None, "{}", other.text());
    }
    let here = CacheKey::new(facts);
    assert!(
        here.text().contains(std::env::consts::ARCH),
        "{}",
        here.text()
    );
    assert!(here.text().contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn damaged_entries_are_not_believed_and_are_replaced() {
    let (_parent, folder) = folder(1 << 20);
    let own = key("a");
    folder
        .put(&own, &record("%1[2] = unary(in0)", 0.25))
        .unwrap();
    let path = files(&folder).remove(0);
    let whole = fs::read(&path).unwrap();
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        assert_eq!(folder.get(&own), None, "cut off after {len} bytes");
    }
    // Trailing spaces are no part of the header.
    let text = whole.len() - whole.iter().rev().take_while(|&&byte| byte == b' ').count();
    for at in 0..text {
        let mut edited = whole.clone();
        edited[at] ^= 1;
        fs::write(&path, &edited).unwrap();
        assert_eq!(folder.get(&own), None, "byte {at} is another");
    }
    let mut longer = whole.clone();
    longer.push(0);
    let others = [
        longer,
        b"nothing of ours".to_vec(),
        vec![0; 64],
        vec![0xff; 2 << 20],
    ];
    for other in others {
        fs::write(&path, other).unwrap();
        assert_eq!(folder.get(&own), None);
    }
    folder.put(&own, &record("", 2.0)).unwrap();
    assert_eq!(folder.get(&own), Some(record("", 2.0)));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(folder.get(&own), None);
    folder.put(&own, &record("", 3.0)).unwrap();
    assert_eq!(folder.get(&own), Some(record("", 3.0)));
}

#[test]
fn entries_of_others_and_of_other_versions_are_not_believed() {
    let (_parent, folder) = folder(1 << 20);
    let (own, other) = (key("a"), key("b"));
    folder.put(&own, &record("", 1.0)).unwrap();
    let path = files(&folder).remove(0);
    // A valid entry under the name of another one.
    fs::write(&path, record("", 1.0).to_bytes(&other).unwrap()).unwrap();
    assert_eq!(folder.get(&own), None);
    let bytes = record("", 1.0).to_bytes(&own).unwrap();
    // The first bytes are the length of the header, which is no text.
    let text = str::from_utf8(&bytes[8..]).unwrap();
    for (from, to) in [
        (r#""corsac.cache":"1""#, r#""corsac.cache":"2""#),
        (
            r#""corsac.program":"""#,
            r#""corsac.program":"","corsac.extra":"""#,
        ),
    ] {
        assert!(text.contains(from), "{text}");
        let edited = text.replace(from, to);
        let len = edited.len() as u64;
        fs::write(&path, [&len.to_le_bytes(), edited.as_bytes()].concat()).unwrap();
        assert_eq!(folder.get(&own), None);
    }
}

#[test]
fn times_that_nobody_can_have_measured_are_not_kept() {
    let (_parent, folder) = folder(1 << 20);
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        folder.put(&key("a"), &record("", seconds)).unwrap();
        assert_eq!(folder.get(&key("a")), None, "{seconds}");
    }
    let many = (0..17).map(|at| (at.to_string(), 1.0));
    let many = CacheRecord {
        program: String::new(),
        seconds: many.collect(),
    };
    folder.put(&key("a"), &many).unwrap();
    let long = record(&"x".repeat(1 << 20), 1.0);
    folder.put(&key("a"), &long).unwrap();
    assert_eq!(folder.get(&key("a")), None);
    assert_eq!(folder.contents().unwrap(), CacheContents::default());
}

#[test]
fn what_was_not_used_for_longest_goes_when_it_is_full() {
    let (_parent, folder) = folder(16 * 4096);
    let keys: Vec<CacheKey> = (0..40).map(|at| key(&at.to_string())).collect();
    let start = SystemTime::now() - Duration::from_secs(1000);
    for (at, own) in keys.iter().enumerate() {
        folder.put(own, &record("", 1.0)).unwrap();
        let path = folder.path().join(own.file_name() + ".safetensors");
        let file = fs::File::options().write(true).open(path);
        let used = start + Duration::from_secs(at as u64);
        file.unwrap().set_modified(used).unwrap();
        // Used each time, and so never the oldest.
        assert!(folder.get(&keys[0]).is_some(), "after {at}");
        let contents = folder.contents().unwrap();
        assert!(contents.bytes <= folder.limit_bytes(), "{contents:?}");
    }
    let kept: Vec<usize> = (0..40)
        .filter(|&at| folder.get(&keys[at]).is_some())
        .collect();
    let first = kept[1];
    let newest: Vec<usize> = std::iter::once(0).chain(first..40).collect();
    assert!(first >= 24, "{kept:?}");
    assert_eq!(kept, newest);
    // Entries that another process wrote under a larger limit are removed, too.
    let small = CacheFolder::open(folder.path(), 4096).unwrap();
    small.put(&key("last"), &record("", 1.0)).unwrap();
    assert_eq!(small.contents().unwrap().entries, 1);
    assert!(small.get(&key("last")).is_some());
    // No entry fits.
    let none = CacheFolder::open(folder.path(), 100).unwrap();
    none.put(&key("more"), &record("", 1.0)).unwrap();
    assert_eq!(none.get(&key("more")), None);
}

#[test]
fn only_entries_are_removed() {
    let (_parent, folder) = folder(1 << 20);
    folder.put(&key("a"), &record("", 1.0)).unwrap();
    folder.put(&key("b"), &record("", 1.0)).unwrap();
    let names = ["notes.txt", "model.safetensors", ".corsac-new.partial"];
    for name in names {
        fs::write(folder.path().join(name), "mine").unwrap();
    }
    let old = folder.path().join(".corsac-old.partial");
    let file = fs::File::create(&old).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    file.set_modified(long_ago).unwrap();
    assert_eq!(folder.contents().unwrap().entries, 2);
    assert_eq!(folder.clear().unwrap(), 2);
    let left = files(&folder).len();
    assert_eq!(left, names.len());
    assert!(!old.exists());
}

#[test]
fn many_threads_read_and_write_at_once() {
    let (_parent, folder) = folder(24 * 4096);
    thread::scope(|scope| {
        for thread in 0..8 {
            let folder = &folder;
            scope.spawn(move || {
                for round in 0..60_usize {
                    let at = (round * 7 + thread) % 40;
                    let own = key(&at.to_string());
                    // An entry that is found is always complete, and was written for this key.
                    if let Some(found) = folder.get(&own) {
                        assert_eq!(found.program, at.to_string());
                    }
                    folder.put(&own, &record(&at.to_string(), 1.0)).unwrap();
                }
            });
        }
    });
    let unfinished = |path: &PathBuf| path.to_str().unwrap().ends_with(".partial");
    assert!(!files(&folder).iter().any(unfinished));
    assert!(folder.contents().unwrap().entries > 0);
}

#[cfg(unix)]
#[test]
fn folders_that_others_can_write_to_are_refused() {
    use std::os::unix::fs::PermissionsExt;

    let (_parent, folder) = folder(1 << 20);
    let path = folder.path();
    let mode = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(
        fs::metadata(path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    folder.put(&key("a"), &record("", 1.0)).unwrap();
    let entry = fs::metadata(files(&folder).remove(0)).unwrap();
    assert_eq!(entry.permissions().mode() & 0o777, 0o600);
    for wide in [0o770, 0o707, 0o722, 0o777] {
        mode(wide);
        let error = CacheFolder::open(path, 1).unwrap_err();
        assert!(matches!(error, CacheError::Writable { mode, .. } if mode == wide));
        let message = error.to_string();
        let end = format!("other users can write to it (mode {wide:03o}, not 700)");
        assert!(message.ends_with(&end), "{message}");
    }
    for narrow in [0o700, 0o755, 0o500] {
        mode(narrow);
        assert!(CacheFolder::open(path, 1).is_ok());
    }
    mode(0o700);
    let file = path.join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(
        CacheFolder::open(&file, 1),
        Err(CacheError::Io { .. })
    ));
}
