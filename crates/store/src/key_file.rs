//! The file with the key that seals secrets: made once, for its owner alone to read.

#![allow(clippy::disallowed_methods, reason = "a door: the key's own file")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const KEY_BYTES: usize = 32;
const FIRST_LINE: &str = "reveille secrets key";

/// There is no key to seal and open secrets with; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error(
        "the secrets key {0} is missing, and the data directory has secrets that only it opens; \
         restore it from a backup, or name it with --secrets-key-file"
    )]
    Missing(PathBuf),
    #[error(
        "{0} is not a secrets key of reveille; restore it from a backup, or name another file with \
         --secrets-key-file"
    )]
    Malformed(PathBuf),
    #[error("cannot use {path} as secrets key: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Reads the key, or makes it of `fresh` bytes where nothing was sealed with another one yet.
pub fn load_or_create(
    path: &Path,
    may_create: bool,
    fresh: [u8; KEY_BYTES],
) -> Result<[u8; KEY_BYTES], KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).ok_or_else(|| KeyFileError::Malformed(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(KeyFileError::Malformed(path.to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && may_create => {
            create(path, &fresh).map_err(io)?;
            Ok(fresh)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(KeyFileError::Missing(path.to_owned()))
        }
        Err(source) => Err(io(source)),
    }
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut lines = text.lines();
    let (first, hex) = (lines.next()?, lines.next()?);
    let is_hex = hex.len() == KEY_BYTES * 2 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    if first != FIRST_LINE || !is_hex || lines.next().is_some() {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(key)
}

/// It is whole under its name or not there at all, and durable before anything is sealed with it.
fn create(path: &Path, key: &[u8; KEY_BYTES]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    file.write_all(format!("{FIRST_LINE}\n{hex}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.key");
        let missing = load_or_create(&path, false, [1; 32]).unwrap_err();
        assert!(matches!(missing, KeyFileError::Missing(_)));
        assert!(missing.to_string().contains("--secrets-key-file"), "{missing}");
        assert!(!path.exists());
        assert_eq!(load_or_create(&path, true, [1; 32]).unwrap(), [1; 32]);
        assert_eq!(load_or_create(&path, true, [2; 32]).unwrap(), [1; 32]);
        assert_eq!(load_or_create(&path, false, [2; 32]).unwrap(), [1; 32]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_key_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.key");
        load_or_create(&path, true, [7; 32]).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        for text in ["", "x", &good[..good.len() - 3], &good.replace("07", "+7"), &good.repeat(2)] {
            fs::write(&path, text).unwrap();
            let refused = load_or_create(&path, true, [1; 32]);
            assert!(matches!(refused, Err(KeyFileError::Malformed(_))), "{text:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(load_or_create(&path, true, [1; 32]), Err(KeyFileError::Malformed(_))));
    }
}
