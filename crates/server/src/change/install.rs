//! Installs the files of a configuration atomically: all or none.
//!
//! Files are staged in a hidden directory and synced. Renaming that directory commits the change: from then on every
//! start finishes the move, so that a crash leaves no mixture of old and new files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{self, Files};

const DRAFT: &str = ".sluice-apply.draft";
const STAGED: &str = ".sluice-apply";
const MANIFEST: &str = "manifest.json";
const TEXTS: &str = "files";
/// Maximum directory depth; deeper files are not read.
const DEPTH_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("`{path}` is not a valid configuration file: {reason}")]
    Path { path: String, reason: &'static str },
    #[error("this node was started with the single file {file}, so only that file can be applied")]
    SingleFile { file: String },
    #[error("{path} cannot be written: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Description of the change, stored with the staged files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub revision: String,
    pub actor: String,
    pub reason: String,
    write: Vec<String>,
    remove: Vec<String>,
}

impl Manifest {
    pub(crate) fn new(revision: &str, actor: &str, reason: &str) -> Manifest {
        let (revision, actor, reason) = (revision.to_owned(), actor.to_owned(), reason.to_owned());
        Manifest { revision, actor, reason, write: vec![], remove: vec![] }
    }
}

/// Checks that the path is inside the configuration and would be read as part of it.
pub(crate) fn check_path(path: &str) -> Result<(), InstallError> {
    let refuse = |reason| Err(InstallError::Path { path: path.chars().take(200).collect(), reason });
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.chars().any(|c| c.is_control() || c == '\\') {
        return refuse("a path has letters, digits and /, and at most 1,000 bytes");
    }
    let parts: Vec<&str> = path.split('/').collect();
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || parts.iter().any(|part| part.is_empty()) {
        return refuse("it must be inside the configuration directory");
    }
    if parts.iter().any(|part| part.starts_with('.')) {
        return refuse("hidden files are not read");
    }
    if parts.iter().rev().skip(1).any(|part| ["secrets", "node_modules"].contains(part)) {
        return refuse("the directories secrets and node_modules are not read, and secrets are never sent");
    }
    if parts.len() > DEPTH_MAX {
        return refuse("it is nested more than 16 directories deep");
    }
    match config::is_taken(path) {
        true => Ok(()),
        false => refuse("a configuration has .yml, .yaml and .json files, messages in templates/ and lists in lists/"),
    }
}

/// Replaces `old`, the current files, with `new`. The staged directory stays until [`clear`], so that a crash in
/// between is detected.
pub(crate) fn put(config: &Path, old: &Files, new: &Files, manifest: Manifest) -> Result<(), InstallError> {
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

/// Finishes an interrupted installation. Returns its manifest.
pub(crate) fn finish(config: &Path) -> Result<Option<Manifest>, InstallError> {
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

/// Removes the staged directory once the revision is active and recorded.
pub(crate) fn clear(config: &Path) -> Result<(), InstallError> {
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

/// A link may lead out of the directory, so it is neither followed nor replaced.
fn no_links(directory: &Path, path: &str) -> Result<(), InstallError> {
    let mut place = directory.to_owned();
    for part in path.split('/') {
        place.push(part);
        if fs::symlink_metadata(&place).is_ok_and(|found| found.file_type().is_symlink()) {
            let reason = "it is a link; change its target and reload";
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
    let text = serde_json::to_string_pretty(manifest).expect("strings serialize to JSON");
    write_durably(&draft.join(MANIFEST), &text)?;
    let staged = directory.join(STAGED);
    remove_tree(&staged)?;
    io(fs::rename(&draft, &staged), &staged)?;
    sync(directory)
}

/// Idempotent: a file that is no longer staged is already installed.
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
