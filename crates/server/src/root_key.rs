//! Where the key that opens the ledger comes from, and how it is replaced.
//!
//! From `SLUICE_ROOT_KEY`, from the file that `SLUICE_ROOT_KEY_FILE` names, from the systemd credential `sluice-root-key`,
//! or from `root.key` in the data directory, which is made on the first run.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sluice_domain::time::Time;
use sluice_ledger::{Ledger, RootKey, RootKeyProblem};

const VARIABLE: &str = "SLUICE_ROOT_KEY";
const FILE_VARIABLE: &str = "SLUICE_ROOT_KEY_FILE";
const CREDENTIAL: &str = "sluice-root-key";
const FILE: &str = "root.key";
/// The new key while a rotation is under way: should the process die in between, one of the two files opens the ledger.
const NEXT_FILE: &str = "root.key.next";

/// Why there is no root key.
#[derive(Debug, thiserror::Error)]
pub enum RootKeyError {
    /// It is there and cannot be used.
    #[error("{place}: {source}")]
    Wrong {
        /// Where it was found.
        place: String,
        /// What is wrong with it.
        source: RootKeyProblem,
    },
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is a ledger, and nothing that opens it. A new key would not either.
    #[error(
        "the ledger in {} is sealed and its root key is not to be found; set SLUICE_ROOT_KEY or SLUICE_ROOT_KEY_FILE, or bring {} back from your backup",
        data.display(), data.join(FILE).display()
    )]
    Missing {
        /// The data directory.
        data: PathBuf,
    },
    /// The key comes from a place that this process does not write to.
    #[error(
        "the root key comes from {origin}, which is not mine to change; say where the new one is to be kept with --to FILE, and put it there afterwards"
    )]
    NotOurs {
        /// Where it comes from.
        origin: Origin,
    },
    /// The ledger said no.
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
}

/// Where a root key was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the environment.
    Environment,
    /// In a file that the environment names, or a systemd credential.
    Given(PathBuf),
    /// In the data directory.
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

/// What the environment says, without the environment.
#[derive(Clone, Debug, Default)]
struct Said {
    key: Option<String>,
    file: Option<PathBuf>,
    credentials: Option<PathBuf>,
}

impl Said {
    fn in_environment() -> Said {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Said {
            key: std::env::var(VARIABLE).ok(),
            file: path(FILE_VARIABLE),
            credentials: path("CREDENTIALS_DIRECTORY"),
        }
    }
}

/// The root key of the ledger in a data directory; made there if there is no ledger yet and nobody has given one.
pub fn find(data: &Path) -> Result<RootKey, RootKeyError> {
    look(data, &Said::in_environment()).map(|(key, _)| key)
}

/// Where the root key comes from.
pub fn origin(data: &Path) -> Result<Origin, RootKeyError> {
    look(data, &Said::in_environment()).map(|(_, origin)| origin)
}

fn look(data: &Path, said: &Said) -> Result<(RootKey, Origin), RootKeyError> {
    if let Some(text) = &said.key {
        return Ok((parse(VARIABLE.to_owned(), text)?, Origin::Environment));
    }
    if let Some(path) = &said.file {
        return Ok((read(path)?, Origin::Given(path.clone())));
    }
    if let Some(path) =
        said.credentials.as_ref().map(|directory| directory.join(CREDENTIAL)).filter(|path| path.exists())
    {
        return Ok((read(&path)?, Origin::Given(path)));
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
    tracing::warn!(path = %own.display(), "a root key was made; keep a copy elsewhere, since nothing in the ledger can be read without it");
    Ok((key, Origin::Own(own)))
}

/// A rotation that did not come to its end: the key that opens the ledger stays.
fn finish_rotation(data: &Path, own: &Path) -> Result<(), RootKeyError> {
    let next = data.join(NEXT_FILE);
    if !next.exists() {
        return Ok(());
    }
    if Ledger::is_opened_by(data, &read(&next)?)? {
        std::fs::rename(&next, own).map_err(failed(own))
    } else {
        std::fs::remove_file(&next).map_err(failed(&next))
    }
}

/// Seals the ledger with a new root key, and puts that where the old one was. One that came from elsewhere is written to
/// `to`, or read from there; whoever keeps it has to put it in its place before the next start.
pub async fn rotate(
    ledger: &Ledger,
    data: &Path,
    to: Option<&Path>,
    actor: &str,
    at: Time,
) -> Result<(RootKey, PathBuf), RootKeyError> {
    let origin = origin(data)?;
    let key = match to {
        Some(to) if to.exists() => read(to)?,
        Some(to) => {
            let key = RootKey::generate();
            write(to, &key)?;
            key
        }
        None if matches!(origin, Origin::Own(_)) => RootKey::generate(),
        None => return Err(RootKeyError::NotOurs { origin }),
    };
    let Origin::Own(own) = origin else {
        ledger.rotate_root(key.clone(), actor.to_owned(), at).await?;
        return Ok((key, to.map(Path::to_owned).unwrap_or_default()));
    };
    let next = data.join(NEXT_FILE);
    write(&next, &key)?;
    ledger.rotate_root(key.clone(), actor.to_owned(), at).await?;
    std::fs::rename(&next, &own).map_err(failed(&own))?;
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
        tracing::warn!(path = %path.display(), "others on this machine can read the root key; chmod 600 it");
    }
    parse(path.display().to_string(), &text)
}

fn write(path: &Path, key: &RootKey) -> Result<(), RootKeyError> {
    let written = || -> std::io::Result<()> {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(format!("{}\n", key.to_hex()).as_bytes())?;
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
        let (key, _) = look(data, &Said::default()).map_err(|error| error.to_string())?;
        let options = LedgerOptions::quiet(Clock::start().for_ledger()).with_root_key(key);
        Ledger::open(data, options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_run_makes_a_key_that_only_its_owner_can_read() {
        let data = tempfile::tempdir().unwrap();
        let (key, origin) = look(data.path(), &Said::default()).unwrap();
        let path = data.path().join(FILE);
        assert_eq!(origin, Origin::Own(path.clone()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(look(data.path(), &Said::default()).unwrap().0.id(), key.id(), "and the second finds it");
    }

    #[test]
    fn the_nearest_place_wins() {
        let data = tempfile::tempdir().unwrap();
        let hex = |digit: &str| digit.repeat(64);
        std::fs::write(data.path().join("given"), hex("2")).unwrap();
        std::fs::write(data.path().join(CREDENTIAL), hex("3")).unwrap();
        std::fs::write(data.path().join(FILE), hex("4")).unwrap();
        let mut said = Said {
            key: Some(hex("1")),
            file: Some(data.path().join("given")),
            credentials: Some(data.path().to_owned()),
        };
        let found = |said: &Said| look(data.path(), said).unwrap().0.to_hex();
        assert_eq!(found(&said), hex("1"));
        said.key = None;
        assert_eq!(found(&said), hex("2"));
        said.file = None;
        assert_eq!(found(&said), hex("3"));
        assert_eq!(found(&Said::default()), hex("4"));
        said.key = Some("short".into());
        let error = look(data.path(), &said).unwrap_err().to_string();
        assert_eq!(error, "SLUICE_ROOT_KEY: a root key is 32 bytes, written as 64 hexadecimal digits or in base64");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lost_key_is_not_replaced_by_one_that_opens_nothing() {
        let data = tempfile::tempdir().unwrap();
        open(data.path()).unwrap().close().await;
        std::fs::remove_file(data.path().join(FILE)).unwrap();
        let error = open(data.path()).unwrap_err();
        assert!(error.contains("is sealed and its root key is not to be found") && error.contains("backup"), "{error}");
        assert!(!data.path().join(FILE).exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_rotation_survives_a_death_on_either_side_of_its_commit() {
        let data = tempfile::tempdir().unwrap();
        let ledger = open(data.path()).unwrap();
        let before = std::fs::read_to_string(data.path().join(FILE)).unwrap();
        let (key, path) = rotate(&ledger, data.path(), None, "ann", Time(0)).await.unwrap();
        assert_eq!(path, data.path().join(FILE));
        let after = std::fs::read_to_string(&path).unwrap();
        assert_eq!(after.trim(), key.to_hex());
        ledger.close().await;

        // It died before the commit: the next key opens nothing and goes.
        std::fs::write(data.path().join(NEXT_FILE), "7".repeat(64)).unwrap();
        open(data.path()).unwrap().close().await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        // It died behind it: the next key takes its place.
        std::fs::write(&path, before).unwrap();
        std::fs::write(data.path().join(NEXT_FILE), &after).unwrap();
        open(data.path()).unwrap().close().await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        assert!(!data.path().join(NEXT_FILE).exists());
    }
}
