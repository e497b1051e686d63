//! Collects problems while a configuration is read, and looks up its secrets.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sluice_domain::verify::SecretValue;

use super::node::Span;
use super::problem::{ConfigProblem, Severity, did_you_mean};
use super::secrets::{SecretSource, SecretStore, is_secret_name};

/// What is known over all files while they are read.
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

    /// For problems of this file.
    pub(super) fn report<'r>(&'r self, file: &'r str) -> Report<'r> {
        Report { desk: self, file }
    }

    /// Whether an error was reported.
    pub(super) fn has_errors(&self) -> bool {
        self.problems.borrow().iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Everything that was reported, by place, and the secrets that are needed at run time.
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

/// Takes the problems of one file.
#[derive(Clone, Copy)]
pub(super) struct Report<'a> {
    desk: &'a Diagnostics<'a>,
    file: &'a str,
}

/// A problem that was just reported: a hint may follow.
pub(super) struct Reported<'a> {
    desk: &'a Diagnostics<'a>,
    index: usize,
}

impl Reported<'_> {
    /// Says what would be right.
    pub(super) fn hint(self, hint: impl Into<String>) {
        if let Some(problem) = self.desk.problems.borrow_mut().get_mut(self.index) {
            problem.hint = Some(hint.into());
        }
    }

    /// Offers the nearest of these words, or says this.
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

    /// An error of the whole file.
    pub(super) fn file_error(&self, code: &'static str, message: impl Into<String>) -> Reported<'a> {
        self.push(Severity::Error, None, code, message.into())
    }

    fn push(&self, severity: Severity, span: Option<Span>, code: &'static str, message: String) -> Reported<'a> {
        let mut problems = self.desk.problems.borrow_mut();
        problems.push(ConfigProblem { severity, code, file: self.file.to_owned(), span, message, hint: None });
        Reported { desk: self.desk, index: problems.len() - 1 }
    }

    /// The secret of this name, read now; a missing one is a problem here.
    pub(super) fn secret(&self, span: Span, name: &str) -> Option<SecretValue> {
        if !is_secret_name(name) {
            self.error(span, "bad-secret-name", format!("`{name}` cannot be the name of a secret"))
                .hint("a name has letters, digits and `_`, and does not begin with a digit");
            return None;
        }
        match self.desk.lookup(name) {
            Ok(value) => Some(value),
            Err(message) => {
                self.error(span, "missing-secret", message).hint(self.desk.source.describe(name));
                None
            }
        }
    }

    /// The same for a secret whose value is put in place when a step runs.
    pub(super) fn secret_at_run_time(&self, span: Span, name: &str) {
        if self.secret(span, name).is_some() {
            self.desk.at_run_time.borrow_mut().insert(name.to_owned());
        }
    }
}
