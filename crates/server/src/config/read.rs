//! Reads the files of a configuration; [`compile`](super::compile) interprets them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::document;
use super::message;
use super::node::Span;
use super::parse::FILE_BYTES_MAX;
use super::policy;
use super::problem::{ConfigProblem, Severity};

pub(super) const FILES_MAX: usize = 5_000;
pub(super) const TOTAL_BYTES_MAX: usize = 64 * 1024 * 1024;
const DEPTH_MAX: usize = 16;
/// A directory with this file is a data directory.
const DATA_FILE: &str = "ledger.db";

/// Texts of a configuration, sorted by relative path.
#[derive(Clone, Debug, Default)]
pub struct Files {
    entries: Vec<(String, String)>,
    problems: Vec<ConfigProblem>,
    /// Files that are no part of the configuration, such as `package.json`.
    skipped: Vec<String>,
    directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{path} cannot be read: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// More files or bytes than a configuration may have.
    #[error("{path} holds more than {FILES_MAX} files or {TOTAL_BYTES_MAX} bytes of YAML and JSON")]
    TooMuch { path: PathBuf },
}

impl Files {
    pub fn from_texts<P: Into<String>, T: Into<String>>(texts: impl IntoIterator<Item = (P, T)>) -> Files {
        let mut entries: Vec<(String, String)> =
            texts.into_iter().map(|(path, text)| (path.into(), text.into())).collect();
        entries.sort();
        Files { entries, ..Files::default() }
    }

    /// Sets the directory of the files.
    pub fn within(self, directory: impl Into<PathBuf>) -> Files {
        Files { directory: directory.into(), ..self }
    }

    /// Empty for files that are only in memory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Paths and texts, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.entries.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str())
    }

    /// Stored form of a revision: a list of paths and texts.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.entries).expect("texts have a JSON form")
    }

    /// Inverse of [`Files::to_json`].
    pub fn from_json(kept: &str) -> Option<Files> {
        serde_json::from_str::<Vec<(String, String)>>(kept).ok().map(Files::from_texts)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Problems of files that could not be read.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// Paths of YAML and JSON files that are no part of the configuration, sorted.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Leaves out documents of other programs: they must not change the revision. A schema is kept where a flow names it.
    pub(crate) fn skip_foreign(mut self) -> Files {
        let is_foreign = |(path, text): &(String, String)| {
            is_document(path) && policy::list_of(path).is_none() && document::is_foreign(path, text)
        };
        let (foreign, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.entries).into_iter().partition(is_foreign);
        let named: BTreeSet<String> = kept
            .iter()
            .filter(|(path, _)| is_document(path))
            .flat_map(|(_, text)| document::named_schemas(text))
            .collect();
        let (schemas, foreign): (Vec<_>, Vec<_>) = foreign.into_iter().partition(|(path, _)| named.contains(path));
        self.entries = kept.into_iter().chain(schemas).collect();
        self.entries.sort();
        self.skipped = foreign.into_iter().map(|(path, _)| path).collect();
        self.skipped.sort();
        self
    }

    fn add(&mut self, path: &Path, relative: String) -> Result<(), ReadError> {
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let mut refuse = |code, message: String| {
            let file = relative.clone();
            let problem =
                ConfigProblem { severity: Severity::Error, code, file, span: None::<Span>, message, hint: None };
            self.problems.push(problem);
        };
        let length = std::fs::metadata(path).map_err(io)?.len();
        if length > FILE_BYTES_MAX as u64 {
            refuse("file-too-large", format!("the file has {length} bytes; {FILE_BYTES_MAX} are allowed"));
            return Ok(());
        }
        match String::from_utf8(std::fs::read(path).map_err(io)?) {
            Ok(text) => self.entries.push((relative, text)),
            Err(_) => refuse("not-utf8", "the file is not UTF-8 text".into()),
        }
        Ok(())
    }
}

/// Reads a directory recursively, or a single file.
///
/// Reads `*.yml`, `*.yaml` and `*.json`, messages in `templates` and lists in `lists`. Skips hidden files and
/// directories, `secrets`, `node_modules`, data directories, and documents of other programs; does not follow links to
/// directories.
pub fn read(path: &Path) -> Result<Files, ReadError> {
    let mut files = Files::default();
    let metadata = std::fs::metadata(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
    if metadata.is_dir() {
        files.directory = path.to_owned();
        walk(path, "", 0, &mut files)?;
    } else {
        files.directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let name = path.file_name().unwrap_or(path.as_os_str());
        files.add(path, name.to_string_lossy().into_owned())?;
    }
    let total: usize = files.entries.iter().map(|(_, text)| text.len()).sum();
    if total > TOTAL_BYTES_MAX {
        return Err(ReadError::TooMuch { path: path.to_owned() });
    }
    files.entries.sort();
    Ok(if metadata.is_dir() { files.skip_foreign() } else { files })
}

fn walk(directory: &Path, prefix: &str, depth: usize, files: &mut Files) -> Result<(), ReadError> {
    let io = |source| ReadError::Io { path: directory.to_owned(), source };
    for entry in std::fs::read_dir(directory).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let relative = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let kind = entry.file_type().map_err(io)?;
        if kind.is_dir() {
            let is_skipped = name == "secrets" || name == "node_modules" || entry.path().join(DATA_FILE).is_file();
            if depth < DEPTH_MAX && !is_skipped {
                walk(&entry.path(), &relative, depth + 1, files)?;
            }
        } else if is_taken(&relative) && std::fs::metadata(entry.path()).is_ok_and(|found| found.is_file()) {
            files.add(&entry.path(), relative)?;
        }
        if files.entries.len() > FILES_MAX {
            return Err(ReadError::TooMuch { path: directory.to_owned() });
        }
    }
    Ok(())
}

/// Whether the path belongs to a configuration: YAML, JSON, a message or a list.
pub(crate) fn is_taken(path: &str) -> bool {
    is_document(path) || message::part_of(path).is_some() || policy::list_of(path).is_some()
}

/// Whether the file is YAML or JSON.
pub(super) fn is_document(path: &str) -> bool {
    message::part_of(path).is_none() && is_configuration(path.rsplit('/').next().unwrap_or(path))
}

fn is_configuration(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yml" | "yaml" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_read_sorted_and_without_hidden_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &[u8]| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for path in [
            "workers/b.yml",
            "flows/a.YAML",
            "z.json",
            ".git/c.yml",
            "secrets/d.yml",
            "node_modules/e/f.json",
            "notes.txt",
            "templates/cart.txt",
            "templates/cart.png",
        ] {
            write(path, b"{\"queues\": []}");
        }
        write("latin.yml", b"name: caf\xe9");
        let files = read(directory.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["flows/a.YAML", "templates/cart.txt", "workers/b.yml", "z.json"]);
        assert_eq!(
            files.problems().iter().map(|problem| (problem.code, problem.file.as_str())).collect::<Vec<_>>(),
            [("not-utf8", "latin.yml")]
        );
        let one = read(&directory.path().join("z.json")).unwrap();
        assert_eq!(one.text("z.json"), Some("{\"queues\": []}"));
        assert!(matches!(read(&directory.path().join("gone")), Err(ReadError::Io { .. })));
    }

    #[test]
    fn files_of_other_programs_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("flow.yml", "name: a\nschema: ./lead.json\ntriggers: []\n---\nqueues: [q]\n");
        write("lead.json", r#"{"required": ["id"]}"#);
        write("package.json", r#"{"name": "x", "version": "1", "scripts": {"run": "y"}}"#);
        write("payloads/lead.json", r#"{"event": "lead.created", "steps": 3, "on": true, "id": 1}"#);
        write("payloads/list.json", "[1]");
        write("payloads/lines.json", "{\"id\": 1}\n{\"id\": 2}\n");
        write("docker-compose.yml", "services: { db: { image: postgres } }\n");
        write("typo.yml", "name: b\ntrigers: []\n");
        write("retry.json", r#"{"retry": {"strategy": "fixed"}}"#);
        write("state/ledger.db", "");
        write("state/node.json", r#"{"queues": []}"#);
        let files = read(directory.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["flow.yml", "lead.json", "retry.json", "typo.yml"]);
        assert_eq!(
            files.skipped(),
            ["docker-compose.yml", "package.json", "payloads/lead.json", "payloads/lines.json", "payloads/list.json"]
        );
    }
}
