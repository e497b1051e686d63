//! Collects problems while a configuration is read, and looks up its secrets.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sluice_domain::verify::SecretValue;

use super::node::Span;
use super::problem::{ConfigProblem, Severity, did_you_mean};
use super::secrets::{SecretSource, SecretStore, is_secret_name};

/// State shared by all files of one compilation.
pub(super) struct Diagnostics<'a> {
    source: &'a dyn SecretSource,
    problems: RefCell<Vec<ConfigProblem>>,
    found: RefCell<BTreeMap<String, Result<SecretValue, String>>>,
    at_run_time: RefCell<BTreeSet<String>>,
}

impl<'a> Diagnostics<'a> {
    pub(super) fn new(source: &'a dyn SecretSource) -> Diagnostics<'a> {
        Diagnostics { source, problems: RefCell::default(), found: RefCell::default(), at_run_time: RefCell::default() }
    }

    /// Reporter for one file.
    pub(super) fn report<'r>(&'r self, file: &'r str) -> Report<'r> {
        Report { diagnostics: self, file }
    }

    /// Whether an error was reported.
    pub(super) fn has_errors(&self) -> bool {
        self.problems.borrow().iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Problems sorted by location, and the secrets used at run time.
    pub(super) fn finish(self) -> (Vec<ConfigProblem>, SecretStore) {
        let mut problems = self.problems.into_inner();
        problems.sort_by(|a, b| (&a.file, a.span, a.severity).cmp(&(&b.file, b.span, b.severity)));
        problems.dedup();
        let names = self.at_run_time.into_inner();
        let found = self.found.into_inner();
        let needed = found.into_iter().filter(|(name, _)| names.contains(name));
        let store = SecretStore::new(needed.filter_map(|(name, value)| value.ok().map(|value| (name, value))));
        (problems, store)
    }

    fn lookup(&self, name: &str) -> Result<SecretValue, String> {
        if let Some(known) = self.found.borrow().get(name) {
            return known.clone();
        }
        let found = match self.source.lookup(name) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(format!("the secret `{name}` is not set")),
            Err(error) => Err(format!("the secret `{name}` cannot be read: {error}")),
        };
        self.found.borrow_mut().insert(name.to_owned(), found.clone());
        found
    }
}

/// Reports problems of one file.
#[derive(Clone, Copy)]
pub(super) struct Report<'a> {
    diagnostics: &'a Diagnostics<'a>,
    file: &'a str,
}

/// Reported problem that may get a hint.
pub(super) struct Reported<'a> {
    diagnostics: &'a Diagnostics<'a>,
    index: usize,
}

impl Reported<'_> {
    pub(super) fn hint(self, hint: impl Into<String>) {
        if let Some(problem) = self.diagnostics.problems.borrow_mut().get_mut(self.index) {
            problem.hint = Some(hint.into());
        }
    }

    /// Sets a "did you mean" hint with the closest candidate, or `otherwise`.
    pub(super) fn meant<'w>(self, word: &str, candidates: impl IntoIterator<Item = &'w str>, otherwise: &str) {
        match did_you_mean(word, candidates) {
            Some(candidate) => self.hint(format!("did you mean `{candidate}`?")),
            None if otherwise.is_empty() => {}
            None => self.hint(otherwise),
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn file(&self) -> &'a str {
        self.file
    }

    pub(super) fn error(&self, span: Span, code: &'static str, message: impl Into<String>) -> Reported<'a> {
        self.push(Severity::Error, Some(span), code, message.into())
    }

    pub(super) fn warning(&self, span: Span, code: &'static str, message: impl Into<String>) -> Reported<'a> {
        self.push(Severity::Warning, Some(span), code, message.into())
    }

    /// Number of errors reported so far, in all files.
    pub(super) fn errors(&self) -> usize {
        self.diagnostics.problems.borrow().iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// Reports an error without a position.
    pub(super) fn file_error(&self, code: &'static str, message: impl Into<String>) -> Reported<'a> {
        self.push(Severity::Error, None, code, message.into())
    }

    fn push(&self, severity: Severity, span: Option<Span>, code: &'static str, message: String) -> Reported<'a> {
        let mut problems = self.diagnostics.problems.borrow_mut();
        problems.push(ConfigProblem { severity, code, file: self.file.to_owned(), span, message, hint: None });
        Reported { diagnostics: self.diagnostics, index: problems.len() - 1 }
    }

    /// Looks up a secret; reports a missing one.
    pub(super) fn secret(&self, span: Span, name: &str) -> Option<SecretValue> {
        if !is_secret_name(name) {
            self.error(span, "bad-secret-name", format!("`{name}` cannot be the name of a secret"))
                .hint("a name has letters, digits and `_`, and does not start with a digit");
            return None;
        }
        match self.diagnostics.lookup(name) {
            Ok(value) => Some(value),
            Err(message) => {
                self.error(span, "missing-secret", message).hint(self.diagnostics.source.describe(name));
                None
            }
        }
    }

    /// Checks a secret that is inserted when a step runs.
    pub(super) fn secret_at_run_time(&self, span: Span, name: &str) {
        if self.secret(span, name).is_some() {
            self.diagnostics.at_run_time.borrow_mut().insert(name.to_owned());
        }
    }
}
