//! Secret sources, and the store of secrets used at run time.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sluice_domain::template::Secrets;
use sluice_domain::verify::SecretValue;

/// Looks up secrets by name: the only impure part of reading a configuration.
pub trait SecretSource: fmt::Debug {
    /// `None` if the secret is not set.
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>>;

    /// Instruction for setting the secret, for messages.
    fn describe(&self, name: &str) -> String;
}

const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// The environment (`SLUICE_SECRET_NAME`, then `NAME`), then the file `secrets/NAME` in the
/// directory of the configuration.
#[derive(Clone, Debug)]
pub struct EnvironmentThenFiles {
    directory: PathBuf,
}

impl EnvironmentThenFiles {
    /// Reads files in `secrets/` of this directory.
    pub fn new(directory: impl Into<PathBuf>) -> EnvironmentThenFiles {
        EnvironmentThenFiles { directory: directory.into() }
    }
}

impl SecretSource for EnvironmentThenFiles {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        if !is_secret_name(name) {
            return Ok(None);
        }
        for variable in [format!("SLUICE_SECRET_{name}"), name.to_owned()] {
            match std::env::var(&variable) {
                Ok(value) if !value.is_empty() => return Ok(Some(SecretValue::from(value))),
                Ok(_) | Err(std::env::VarError::NotPresent) => {}
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{variable} is not UTF-8")));
                }
            }
        }
        read_secret_file(&self.directory.join("secrets").join(name))
    }

    fn describe(&self, name: &str) -> String {
        format!("set the environment variable SLUICE_SECRET_{name} or write it to the file secrets/{name}")
    }
}

/// Files in `secrets/` of a configuration directory.
pub(crate) fn secret_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory.join("secrets")) else { return vec![] };
    let is_secret =
        |path: &PathBuf| path.is_file() && path.file_name().and_then(|name| name.to_str()).is_some_and(is_secret_name);
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_secret).collect();
    paths.sort();
    paths
}

fn read_secret_file(path: &Path) -> io::Result<Option<SecretValue>> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > SECRET_BYTES_MAX => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has more than {SECRET_BYTES_MAX} bytes", path.display()),
        )),
        Ok(_) => {
            let text = std::fs::read_to_string(path)?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            Ok((!text.is_empty()).then(|| SecretValue::from(text)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Letters, digits and `_`, so that a name cannot escape the `secrets/` directory.
pub(super) fn is_secret_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Source that records its lookups, so that a changed secret can be detected.
#[derive(Debug)]
pub(crate) struct Noted<'s> {
    source: &'s dyn SecretSource,
    seen: Mutex<BTreeMap<String, SecretValue>>,
}

impl<'s> Noted<'s> {
    pub(crate) fn new(source: &'s dyn SecretSource) -> Noted<'s> {
        Noted { source, seen: Mutex::default() }
    }

    /// Secrets returned so far.
    pub(crate) fn seen(self) -> SecretStore {
        SecretStore(self.seen.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SecretSource for Noted<'_> {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        let found = self.source.lookup(name)?;
        if let Some(value) = &found {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value.clone());
        }
        Ok(found)
    }

    fn describe(&self, name: &str) -> String {
        self.source.describe(name)
    }
}

/// Secrets used by steps at run time.
#[derive(Clone, Default)]
pub struct SecretStore(BTreeMap<String, SecretValue>);

impl SecretStore {
    pub fn new(secrets: impl IntoIterator<Item = (String, SecretValue)>) -> SecretStore {
        SecretStore(secrets.into_iter().collect())
    }

    pub(crate) fn is_same(&self, other: &SecretStore) -> bool {
        let same =
            |(name, value): (&String, &SecretValue)| other.0.get(name).is_some_and(|own| own.matches(value.expose()));
        self.0.len() == other.0.len() && self.0.iter().all(same)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Secrets for SecretStore {
    fn secret(&self, name: &str) -> Option<&SecretValue> {
        self.0.get(name)
    }
}

impl fmt::Debug for SecretStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_file_is_read_without_trailing_newline() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("secrets")).unwrap();
        std::fs::write(directory.path().join("secrets/CONFIG_ROOM_KEY"), "two\nlines\r\n").unwrap();
        std::fs::write(directory.path().join("outside"), "x").unwrap();
        let source = EnvironmentThenFiles::new(directory.path());
        let found = source.lookup("CONFIG_ROOM_KEY").unwrap().unwrap();
        assert_eq!(found.expose(), "two\nlines");
        assert!(source.lookup("CONFIG_ROOM_OTHER").unwrap().is_none());
        assert!(source.lookup("../outside").unwrap().is_none());
    }

    #[test]
    fn store_prints_names_and_not_values() {
        let store = SecretStore::new([("KEY".to_owned(), SecretValue::from("hunter2"))]);
        assert_eq!(format!("{store:?}"), "{\"KEY\"}");
        assert_eq!(store.secret("KEY").unwrap().expose(), "hunter2");
    }
}
