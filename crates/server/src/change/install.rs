//! Puts the files of a configuration into its directory: all of them, or none.
//!
//! They are written beside it first, into a hidden directory, and made durable. Its renaming is the moment that counts: from
//! there on every start finishes the move, so that a crash leaves no mixture of old and new files behind.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{self, Files};

const DRAFT: &str = ".sluice-apply.draft";
const STAGED: &str = ".sluice-apply";
const MANIFEST: &str = "manifest.json";
const TEXTS: &str = "files";
/// How deep a file may lie; deeper ones are not read.
const DEPTH_MAX: usize = 16;
/// How long a path may be.
const PATH_BYTES_MAX: usize = 1_000;

/// Why files cannot be put into place.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// This is not a file of a configuration.
    #[error("`{path}` cannot be a file of the configuration: {reason}")]
    Path {
        /// As it was given.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The node was started with a single file.
    #[error("this node was started with the single file {file}, so that is the only one it can take")]
    SingleFile {
        /// Its name.
        file: String,
    },
    /// The file system said no.
    #[error("{path} cannot be written: {source}")]
    Io {
        /// What was to be written.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Who changes what, as it is written down beside the staged files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The revision that the files are.
    pub revision: String,
    /// Who brings it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Files that are written.
    write: Vec<String>,
    /// Files that are removed.
    remove: Vec<String>,
}

impl Manifest {
    /// For a revision that somebody brings.
    pub fn new(revision: &str, actor: &str, reason: &str) -> Manifest {
        let (revision, actor, reason) = (revision.to_owned(), actor.to_owned(), reason.to_owned());
        Manifest { revision, actor, reason, write: vec![], remove: vec![] }
    }
}

/// Whether a file of this name would be read as part of a configuration, and lies within it.
pub fn check_path(path: &str) -> Result<(), InstallError> {
    let refuse = |reason| Err(InstallError::Path { path: path.chars().take(200).collect(), reason });
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.chars().any(|c| c.is_control() || c == '\\') {
        return refuse("a path has letters, digits and /, and is not long");
    }
    let parts: Vec<&str> = path.split('/').collect();
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || parts.iter().any(|part| part.is_empty()) {
        return refuse("it must lie within the directory of the configuration");
    }
    if parts.iter().any(|part| part.starts_with('.')) {
        return refuse("hidden files are not read");
    }
    if parts.iter().rev().skip(1).any(|part| ["secrets", "node_modules"].contains(part)) {
        return refuse("directories called secrets and node_modules are not read, and secrets are never sent");
    }
    if parts.len() > DEPTH_MAX {
        return refuse("it lies too deep");
    }
    match config::is_taken(path) {
        true => Ok(()),
        false => {
            refuse("a configuration is made of .yml, .yaml and .json files, messages in templates/ and lists in lists/")
        }
    }
}

/// Puts `new` in the place of `old`, which is what lies there. The staged directory stays until [`clear`] is called, so
/// that a crash in between is noticed.
pub fn put(config: &Path, old: &Files, new: &Files, manifest: Manifest) -> Result<(), InstallError> {
    let directory = directory_of(config);
    for (path, _) in new.iter() {
        check_path(path)?;
    }
    if !config.is_dir() {
        let file = config.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if new.iter().any(|(path, _)| path != file) || new.is_empty() {
            return Err(InstallError::SingleFile { file });
        }
    }
    let changed: Vec<(&str, &str)> = new.iter().filter(|(path, text)| old.text(path) != Some(*text)).collect();
    let remove: Vec<String> =
        old.iter().map(|(path, _)| path.to_owned()).filter(|path| new.text(path).is_none()).collect();
    for path in changed.iter().map(|(path, _)| *path).chain(remove.iter().map(String::as_str)) {
        no_links(&directory, path)?;
    }
    let write = changed.iter().map(|(path, _)| (*path).to_owned()).collect();
    let manifest = Manifest { write, remove, ..manifest };
    stage(&directory, &changed, &manifest)?;
    move_into_place(&directory, &manifest)
}

/// Finishes what a process that died had begun. Answers with what that was.
pub fn finish(config: &Path) -> Result<Option<Manifest>, InstallError> {
    let directory = directory_of(config);
    remove_tree(&directory.join(DRAFT))?;
    let path = directory.join(STAGED).join(MANIFEST);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(InstallError::Io { path, source }),
    };
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| InstallError::Io { path, source: io::Error::other(error) })?;
    move_into_place(&directory, &manifest)?;
    Ok(Some(manifest))
}

/// Removes what was staged: it is in force, and written down.
pub fn clear(config: &Path) -> Result<(), InstallError> {
    remove_tree(&directory_of(config).join(STAGED))
}

fn directory_of(config: &Path) -> PathBuf {
    if config.is_dir() {
        return config.to_owned();
    }
    match config.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A link may lead out of the directory, and who made it did not mean it to be replaced.
fn no_links(directory: &Path, path: &str) -> Result<(), InstallError> {
    let mut place = directory.to_owned();
    for part in path.split('/') {
        place.push(part);
        if fs::symlink_metadata(&place).is_ok_and(|found| found.file_type().is_symlink()) {
            let reason = "a link is in its way; change the file that it leads to and reload";
            return Err(InstallError::Path { path: path.to_owned(), reason });
        }
    }
    Ok(())
}

fn stage(directory: &Path, texts: &[(&str, &str)], manifest: &Manifest) -> Result<(), InstallError> {
    let draft = directory.join(DRAFT);
    remove_tree(&draft)?;
    for (path, text) in texts {
        let place = draft.join(TEXTS).join(path);
        write_durably(&place, text)?;
        if let Ok(found) = fs::metadata(directory.join(path)) {
            io(fs::set_permissions(&place, found.permissions()), &place)?;
        }
    }
    let told = serde_json::to_string_pretty(manifest).expect("texts have a JSON form");
    write_durably(&draft.join(MANIFEST), &told)?;
    let staged = directory.join(STAGED);
    remove_tree(&staged)?;
    io(fs::rename(&draft, &staged), &staged)?;
    sync(directory)
}

/// May be begun again where it was cut off: what is not staged any more lies in its place already.
fn move_into_place(directory: &Path, manifest: &Manifest) -> Result<(), InstallError> {
    for path in &manifest.write {
        let (from, to) = (directory.join(STAGED).join(TEXTS).join(path), directory.join(path));
        if !from.exists() {
            continue;
        }
        let parent = to.parent().unwrap_or(directory);
        io(fs::create_dir_all(parent), parent)?;
        io(fs::rename(&from, &to), &to)?;
        sync(parent)?;
    }
    for path in &manifest.remove {
        let gone = directory.join(path);
        match fs::remove_file(&gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(InstallError::Io { path: gone, source: error });
            }
            _ => {}
        }
        if let Some(parent) = gone.parent().filter(|parent| parent.is_dir()) {
            sync(parent)?;
        }
    }
    Ok(())
}

fn write_durably(path: &Path, text: &str) -> Result<(), InstallError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    io(fs::create_dir_all(parent), parent)?;
    let mut file = io(File::create_new(path), path)?;
    io(file.write_all(text.as_bytes()).and_then(|()| file.sync_all()), path)?;
    sync(parent)
}

fn sync(directory: &Path) -> Result<(), InstallError> {
    io(File::open(directory).and_then(|directory| directory.sync_all()), directory)
}

fn remove_tree(path: &Path) -> Result<(), InstallError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => io(other, path),
    }
}

fn io<T>(result: io::Result<T>, path: &Path) -> Result<T, InstallError> {
    result.map_err(|source| InstallError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
