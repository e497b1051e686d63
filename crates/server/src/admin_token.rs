//! Token of the admin API.
//!
//! The operator configures one (`SLUICE_ADMIN_TOKEN`, `--admin-token-file`), or the first start generates one and writes it
//! to `admin.token` in the data directory, where commands of the same user find it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sluice_domain::verify::SecretValue;
use sluice_ledger::{private_files, random_token};

/// Name of the file in the data directory.
pub const FILE: &str = "admin.token";
/// Shortest token, in characters.
pub const LENGTH_MIN: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "{place} has fewer than {LENGTH_MIN} characters; write a longer admin token, or delete it and restart the node"
    )]
    Short { place: String },
}

/// Token that callers of the admin API present.
#[derive(Clone, Debug)]
pub struct AdminToken {
    value: SecretValue,
    is_generated: bool,
}

impl AdminToken {
    /// Chosen by an operator, so it may be guessable.
    pub fn configured(value: SecretValue) -> AdminToken {
        AdminToken { value, is_generated: false }
    }

    /// 256 random bits.
    pub fn generate() -> AdminToken {
        AdminToken { value: SecretValue::from(random_token()), is_generated: true }
    }

    /// Token of a data directory; generated at the first start. The caller has the directory open.
    pub(crate) fn of_directory(data: &Path) -> Result<AdminToken, AdminTokenError> {
        let path = data.join(FILE);
        if let Some(value) = read(&path)? {
            return Ok(AdminToken { value, is_generated: true });
        }
        let token = AdminToken::generate();
        private_files::replace_file(&path, format!("{}\n", token.value.expose()).as_bytes())
            .map_err(|source| AdminTokenError::File { path: path.clone(), source })?;
        tracing::info!(path = %path.display(), "admin token created; commands of this user find it there");
        Ok(token)
    }

    /// Token of a node: the configured one, or that of the data directory. A configured token makes that of the directory
    /// invalid, so its file is deleted.
    pub(crate) fn of_node(configured: Option<&SecretValue>, data: &Path) -> Result<AdminToken, AdminTokenError> {
        let Some(value) = configured else { return AdminToken::of_directory(data) };
        let path = data.join(FILE);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(AdminTokenError::File { path, source }),
            _ => Ok(AdminToken::configured(value.clone())),
        }
    }

    pub fn value(&self) -> &SecretValue {
        &self.value
    }

    /// Whether it is random, so that it cannot be guessed.
    pub(crate) fn is_generated(&self) -> bool {
        self.is_generated
    }
}

/// Token in a file; `None` if there is no file.
pub fn read(path: &Path) -> Result<Option<SecretValue>, AdminTokenError> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&path.display().to_string(), &text).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(AdminTokenError::File { path: path.to_owned(), source }),
    }
}

/// `place` says where the text comes from, for the error.
pub fn parse(place: &str, text: &str) -> Result<SecretValue, AdminTokenError> {
    let token = text.trim();
    if token.chars().count() < LENGTH_MIN {
        return Err(AdminTokenError::Short { place: place.to_owned() });
    }
    Ok(SecretValue::from(token))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_generated_once_and_only_its_owner_can_read_it() {
        let data = tempfile::tempdir().unwrap();
        let first = AdminToken::of_directory(data.path()).unwrap();
        assert_eq!(first.value().expose().len(), 64);
        let path = data.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = AdminToken::of_directory(data.path()).unwrap();
        assert!(second.value().matches(first.value().expose()));
    }

    #[test]
    fn configured_token_makes_the_generated_one_invalid() {
        let data = tempfile::tempdir().unwrap();
        AdminToken::of_node(None, data.path()).unwrap();
        let token = AdminToken::of_node(Some(&"chosen-by-an-operator".into()), data.path()).unwrap();
        assert!(token.value().matches("chosen-by-an-operator") && !token.is_generated());
        assert!(!data.path().join(FILE).exists());
    }

    #[test]
    fn empty_token_file_is_an_error() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(FILE), "\n").unwrap();
        let error = AdminToken::of_directory(data.path()).unwrap_err();
        assert!(error.to_string().contains("admin.token has fewer than 16 characters"), "{error}");
    }
}
