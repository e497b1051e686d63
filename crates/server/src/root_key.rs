//! Sources of the root key, and its rotation.
//!
//! Sources in order: `SLUICE_ROOT_KEY`, the file named by `SLUICE_ROOT_KEY_FILE`, the systemd credential
//! `sluice-root-key`, `root.key` in the data directory, which is created on the first run.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sluice_domain::time::Time;
use sluice_ledger::{Ledger, RootKey, RootKeyProblem, private_files};

const VARIABLE: &str = "SLUICE_ROOT_KEY";
const FILE_VARIABLE: &str = "SLUICE_ROOT_KEY_FILE";
const CREDENTIAL: &str = "sluice-root-key";
const FILE: &str = "root.key";
/// New key during a rotation: if the process dies, one of the two files opens the ledger. Only [`rotate`] writes it, and nothing
/// deletes it: another process cannot tell a lost rotation from one that is about to commit.
const NEXT_FILE: &str = "root.key.next";

#[derive(Debug, thiserror::Error)]
pub enum RootKeyError {
    #[error("{place}: {source}")]
    Wrong { place: String, source: RootKeyProblem },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// A ledger exists without its key. A new key could not open it.
    #[error(
        "the ledger in {} is encrypted and its root key was not found; set SLUICE_ROOT_KEY or SLUICE_ROOT_KEY_FILE, or restore {} from a backup",
        data.display(), data.join(FILE).display()
    )]
    Missing { data: PathBuf },
    /// The key source is not writable for this process.
    #[error(
        "the root key comes from {origin}, which sluice does not write; name a file for the new key with --to FILE, and install it afterwards"
    )]
    NotOurs { origin: Origin },
    /// The file that was named for a new key cannot become one.
    #[error("the file for the new root key {0}; nothing was done")]
    NewFile(&'static str),
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
}

/// Source of a root key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Environment,
    /// File named by the environment, or systemd credential.
    Given(PathBuf),
    Own(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Environment => f.write_str(VARIABLE),
            Origin::Given(path) | Origin::Own(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Environment settings, injectable for tests.
#[derive(Clone, Debug, Default)]
struct EnvironmentSettings {
    key: Option<String>,
    file: Option<PathBuf>,
    credentials: Option<PathBuf>,
}

impl EnvironmentSettings {
    fn in_environment() -> EnvironmentSettings {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        EnvironmentSettings {
            key: std::env::var(VARIABLE).ok(),
            file: path(FILE_VARIABLE),
            credentials: path("CREDENTIALS_DIRECTORY"),
        }
    }
}

/// Root key of a data directory; created if there is neither a key nor a ledger.
pub fn find(data: &Path) -> Result<RootKey, RootKeyError> {
    look(data, &EnvironmentSettings::in_environment()).map(|(key, _)| key)
}

/// Where the root key of an existing ledger comes from. Creates, renames and deletes nothing.
pub fn origin(data: &Path) -> Result<Origin, RootKeyError> {
    origin_in(data, &EnvironmentSettings::in_environment())
}

fn origin_in(data: &Path, environment: &EnvironmentSettings) -> Result<Origin, RootKeyError> {
    Ok(given(environment)?.map_or_else(|| Origin::Own(data.join(FILE)), |(_, origin)| origin))
}

/// Root key that opens the ledger in a data directory. Creates, renames and deletes nothing: a node that rotates its key may run.
pub fn find_existing(data: &Path) -> Result<RootKey, RootKeyError> {
    look_only(data, &EnvironmentSettings::in_environment())
}

fn look_only(data: &Path, environment: &EnvironmentSettings) -> Result<RootKey, RootKeyError> {
    if let Some((key, _)) = given(environment)? {
        return Ok(key);
    }
    for path in [data.join(FILE), data.join(NEXT_FILE)].into_iter().filter(|path| path.exists()) {
        let key = read(&path)?;
        if Ledger::is_opened_by(data, &key)? {
            return Ok(key);
        }
    }
    // Without a next key, the ledger reports that the key is a wrong one.
    let own = data.join(FILE);
    if own.exists() { read(&own) } else { Err(RootKeyError::Missing { data: data.to_owned() }) }
}

/// A key that comes from outside of the data directory.
fn given(environment: &EnvironmentSettings) -> Result<Option<(RootKey, Origin)>, RootKeyError> {
    if let Some(text) = &environment.key {
        return Ok(Some((parse(VARIABLE.to_owned(), text)?, Origin::Environment)));
    }
    if let Some(path) = &environment.file {
        return Ok(Some((read(path)?, Origin::Given(path.clone()))));
    }
    let credential = environment.credentials.as_ref().map(|directory| directory.join(CREDENTIAL));
    match credential.filter(|path| path.exists()) {
        Some(path) => Ok(Some((read(&path)?, Origin::Given(path)))),
        None => Ok(None),
    }
}

fn look(data: &Path, environment: &EnvironmentSettings) -> Result<(RootKey, Origin), RootKeyError> {
    if let Some(found) = given(environment)? {
        return Ok(found);
    }
    let own = data.join(FILE);
    finish_rotation(data, &own)?;
    if own.exists() {
        return Ok((read(&own)?, Origin::Own(own)));
    }
    if Ledger::exists_in(data) {
        return Err(RootKeyError::Missing { data: data.to_owned() });
    }
    let key = RootKey::generate();
    write(&own, &key)?;
    tracing::warn!(path = %own.display(), "root key created; keep a copy elsewhere, the ledger cannot be read without it");
    Ok((key, Origin::Own(own)))
}

/// Finishes an interrupted rotation: the new key takes its place if it opens the ledger. One that does not stays for a rotation that
/// is about to commit; the next rotation replaces it.
fn finish_rotation(data: &Path, own: &Path) -> Result<(), RootKeyError> {
    let next = data.join(NEXT_FILE);
    // A file that was not written to its end is no key, and its rotation was not committed.
    let key = if next.exists() { read(&next).ok() } else { None };
    match key {
        Some(key) if Ledger::is_opened_by(data, &key)? => install(&next, own),
        _ => Ok(()),
    }
}

/// Renames the new key. A process that starts at the same moment may have done so.
fn install(next: &Path, own: &Path) -> Result<(), RootKeyError> {
    match std::fs::rename(next, own) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && own.exists() => Ok(()),
        renamed => renamed.map_err(failed(own)),
    }
}

/// Whether a new key can be written to a file that an operator names. The working directory of a node means nothing to operators,
/// and no file is overwritten or read.
fn check_new_file(path: &Path) -> Result<(), RootKeyError> {
    let text = path.to_string_lossy();
    let problem = match path.parent() {
        _ if text.contains(char::is_control) => "has control characters in its path",
        _ if !path.is_absolute() => "needs an absolute path",
        _ if path.file_name().is_none() || text.ends_with('/') || text.ends_with("/.") => "has no name",
        _ if path.symlink_metadata().is_ok() => "exists already; name one that does not exist",
        Some(directory) if directory.is_dir() => return Ok(()),
        _ => "is in a directory that does not exist",
    };
    Err(RootKeyError::NewFile(problem))
}

/// Re-encrypts the ledger with a new root key and replaces the old one. With `to` the key is written to that file; if the key does not
/// come from the data directory, the operator must install it before the next start. One rotation at a time, and not cancelled
/// half-way: until the ledger has answered, nobody knows which key opens it.
pub async fn rotate(
    ledger: &Ledger,
    data: &Path,
    to: Option<&Path>,
    actor: &str,
    at: Time,
) -> Result<(RootKey, PathBuf), RootKeyError> {
    let origin = origin(data)?;
    let key = RootKey::generate();
    match to {
        Some(to) => {
            check_new_file(to)?;
            write(to, &key)?;
        }
        None if matches!(origin, Origin::Own(_)) => {}
        None => return Err(RootKeyError::NotOurs { origin }),
    }
    let Origin::Own(own) = origin else {
        ledger.rotate_root(key.clone(), actor.to_owned(), at).await?;
        return Ok((key, to.map(Path::to_owned).unwrap_or_default()));
    };
    finish_rotation(data, &own)?;
    let next = data.join(NEXT_FILE);
    private_files::replace_file(&next, key_line(&key).as_bytes()).map_err(failed(&next))?;
    ledger.rotate_root(key.clone(), actor.to_owned(), at).await?;
    install(&next, &own)?;
    Ok((key, own))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> RootKeyError {
    let path = path.to_owned();
    move |source| RootKeyError::File { path, source }
}

fn parse(place: String, text: &str) -> Result<RootKey, RootKeyError> {
    RootKey::parse(text).map_err(|source| RootKeyError::Wrong { place, source })
}

fn read(path: &Path) -> Result<RootKey, RootKeyError> {
    let text = std::fs::read_to_string(path).map_err(failed(path))?;
    let mode = std::fs::metadata(path).map_err(failed(path))?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "other users can read the root key; run chmod 600");
    }
    parse(path.display().to_string(), &text)
}

fn key_line(key: &RootKey) -> String {
    format!("{}\n", key.to_hex())
}

fn write(path: &Path, key: &RootKey) -> Result<(), RootKeyError> {
    let written = || -> std::io::Result<()> {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
        private_files::create_directory(directory)?;
        let mut file = private_files::create_file(path)?;
        file.write_all(key_line(key).as_bytes())?;
        file.sync_all()?;
        std::fs::File::open(directory)?.sync_all()
    };
    written().map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use sluice_ledger::LedgerOptions;

    fn open(data: &Path) -> Result<Ledger, String> {
        let (key, _) = look(data, &EnvironmentSettings::default()).map_err(|error| error.to_string())?;
        let options = LedgerOptions::quiet(Clock::start().for_ledger()).with_root_key(key);
        Ledger::open(data, options).map_err(|error| error.to_string())
    }

    #[test]
    fn first_run_creates_a_key_readable_only_by_its_owner() {
        let data = tempfile::tempdir().unwrap();
        let (key, origin) = look(data.path(), &EnvironmentSettings::default()).unwrap();
        let path = data.path().join(FILE);
        assert_eq!(origin, Origin::Own(path.clone()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            look(data.path(), &EnvironmentSettings::default()).unwrap().0.id(),
            key.id(),
            "and the second finds it"
        );
    }

    #[test]
    fn first_source_in_order_wins() {
        let data = tempfile::tempdir().unwrap();
        let hex = |digit: &str| digit.repeat(64);
        std::fs::write(data.path().join("given"), hex("2")).unwrap();
        std::fs::write(data.path().join(CREDENTIAL), hex("3")).unwrap();
        std::fs::write(data.path().join(FILE), hex("4")).unwrap();
        let mut environment = EnvironmentSettings {
            key: Some(hex("1")),
            file: Some(data.path().join("given")),
            credentials: Some(data.path().to_owned()),
        };
        let found = |environment: &EnvironmentSettings| look(data.path(), environment).unwrap().0.to_hex();
        assert_eq!(found(&environment), hex("1"));
        environment.key = None;
        assert_eq!(found(&environment), hex("2"));
        environment.file = None;
        assert_eq!(found(&environment), hex("3"));
        assert_eq!(found(&EnvironmentSettings::default()), hex("4"));
        environment.key = Some("short".into());
        let error = look(data.path(), &environment).unwrap_err().to_string();
        assert_eq!(error, "SLUICE_ROOT_KEY: a root key is 32 bytes, written as 64 hexadecimal digits or in base64");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lost_key_is_not_replaced_by_a_new_one() {
        let data = tempfile::tempdir().unwrap();
        open(data.path()).unwrap().close().await;
        std::fs::remove_file(data.path().join(FILE)).unwrap();
        let error = open(data.path()).unwrap_err();
        assert!(error.contains("is encrypted and its root key was not found") && error.contains("backup"), "{error}");
        assert!(!data.path().join(FILE).exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rotation_survives_a_crash_before_and_after_its_commit() {
        let data = tempfile::tempdir().unwrap();
        let ledger = open(data.path()).unwrap();
        let before = std::fs::read_to_string(data.path().join(FILE)).unwrap();
        let (key, path) = rotate(&ledger, data.path(), None, "ann", Time(0)).await.unwrap();
        assert_eq!(path, data.path().join(FILE));
        let after = std::fs::read_to_string(&path).unwrap();
        assert_eq!(after.trim(), key.to_hex());
        ledger.close().await;

        // Died before the commit: the next key is invalid, and stays for the next rotation.
        std::fs::write(data.path().join(NEXT_FILE), "7".repeat(64)).unwrap();
        let found = || look_only(data.path(), &EnvironmentSettings::default()).unwrap().to_hex();
        assert_eq!((found(), data.path().join(NEXT_FILE).exists()), (key.to_hex(), true));
        open(data.path()).unwrap().close().await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        // Died after the commit: the next key replaces the old one.
        std::fs::write(&path, before).unwrap();
        std::fs::write(data.path().join(NEXT_FILE), &after).unwrap();
        assert_eq!((found(), data.path().join(NEXT_FILE).exists()), (key.to_hex(), true));
        open(data.path()).unwrap().close().await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        assert!(!data.path().join(NEXT_FILE).exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn key_of_a_rotation_that_is_about_to_commit_survives_readers_and_starts() {
        let data = tempfile::tempdir().unwrap();
        let next = data.path().join(NEXT_FILE);
        std::fs::write(&next, "cut off").unwrap();
        let ledger = open(data.path()).unwrap();
        std::fs::remove_file(&next).unwrap();
        let key = RootKey::generate();
        write(&next, &key).unwrap();
        let none = EnvironmentSettings::default();
        assert_eq!(origin_in(data.path(), &none).unwrap(), Origin::Own(data.path().join(FILE)));
        look(data.path(), &none).unwrap();
        look_only(data.path(), &none).unwrap();
        assert_eq!(read(&next).unwrap().to_hex(), key.to_hex(), "the only copy of the key to come");
        // Its commit, whose process dies before the file is renamed.
        ledger.rotate_root(key.clone(), "ann".into(), Time(0)).await.unwrap();
        assert_eq!(origin_in(data.path(), &none).unwrap(), Origin::Own(data.path().join(FILE)));
        assert!(next.exists());
        // The next rotation keeps it until its own commit, and replaces it.
        let (newest, _) = rotate(&ledger, data.path(), None, "ann", Time(0)).await.unwrap();
        ledger.close().await;
        assert_ne!(newest.to_hex(), key.to_hex());
        assert_eq!(look(data.path(), &none).unwrap().0.to_hex(), newest.to_hex());
        open(data.path()).unwrap().close().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn new_key_is_written_only_to_a_new_file_with_an_absolute_path() {
        let data = tempfile::tempdir().unwrap();
        let there = |name: &str| data.path().join(name);
        std::fs::write(there("taken"), "7".repeat(64)).unwrap();
        std::os::unix::fs::symlink(there("nowhere"), there("link")).unwrap();
        let refused = |path: PathBuf| check_new_file(&path).unwrap_err().to_string();
        for (path, problem) in [
            (PathBuf::from("new.key"), "needs an absolute path"),
            (PathBuf::from(""), "needs an absolute path"),
            (there("new\nkey"), "control characters"),
            (there("new\u{9b}key"), "control characters"),
            (there("taken"), "exists already"),
            (there("link"), "exists already"),
            (there("absent/new.key"), "does not exist"),
            (there("taken/new.key"), "does not exist"),
            (there("absent/"), "has no name"),
            (there("absent/.."), "has no name"),
            (PathBuf::from("/"), "has no name"),
        ] {
            let said = refused(path.clone());
            assert!(said.contains(problem), "{}: {said}", path.display());
        }
        assert!(check_new_file(&there("new.key")).is_ok());
        let ledger = open(data.path()).unwrap();
        let wrong = rotate(&ledger, data.path(), Some(&there("taken")), "ann", Time(0)).await.unwrap_err();
        assert!(matches!(wrong, RootKeyError::NewFile(_)), "{wrong}");
        let before = std::fs::read_to_string(data.path().join(FILE)).unwrap();
        let (key, _) = rotate(&ledger, data.path(), Some(&there("new.key")), "ann", Time(0)).await.unwrap();
        ledger.close().await;
        assert_eq!(read(&there("new.key")).unwrap().to_hex(), key.to_hex());
        assert_ne!(std::fs::read_to_string(data.path().join(FILE)).unwrap(), before);
        open(data.path()).unwrap().close().await;
    }
}
