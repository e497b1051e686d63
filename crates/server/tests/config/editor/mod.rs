//! Validates documents with the JSON Schema for editors.

#![allow(dead_code)]

use std::sync::OnceLock;

use serde_json::Value;
use sluice_domain::config::Config;
use sluice_domain::schema::Schema;
use sluice_domain::verify::SecretValue;
use sluice_server::config::{Colours, Compiled, Files, SecretSource, documents, editor_schema, render_all};

/// A secret source with a value for every name.
#[derive(Debug)]
pub(crate) struct AnySecret;

impl SecretSource for AnySecret {
    fn lookup(&self, name: &str) -> std::io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from(format!("hunter2-{name}"))))
    }

    fn describe(&self, name: &str) -> String {
        format!("set SLUICE_SECRET_{name}")
    }
}

/// The violations of a document.
pub(crate) fn violations_of(document: &Value) -> Vec<String> {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| Schema::new(&editor_schema()).expect("it is a schema"));
    schema.check(document).iter().map(ToString::to_string).collect()
}

/// The violations of every document.
pub(crate) fn violations(files: &Files) -> Vec<String> {
    let mut found = vec![];
    for (file, document) in documents(files) {
        match document {
            None => found.push(format!("{file}: not valid YAML")),
            Some(document) => {
                found.extend(violations_of(&document).into_iter().map(|violation| format!("{file}{violation}")))
            }
        }
    }
    found
}

/// Asserts that every document is valid.
#[track_caller]
pub(crate) fn accepts(files: &Files) {
    let violations = violations(files);
    assert!(violations.is_empty(), "the schema rejects what `check` accepts:\n{}", violations.join("\n"));
}

/// The configuration, which must be valid for the compiler and for the schema.
#[track_caller]
pub(crate) fn valid((compiled, files): (Compiled, Files)) -> Config {
    accepts(&files);
    let problems = render_all(&compiled.problems, &files, Colours::None);
    compiled.config.unwrap_or_else(|| panic!("{problems}"))
}
