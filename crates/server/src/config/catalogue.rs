//! Connectors that a configuration can use: those that ship with Sluice, and its own.

use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

use sluice_domain::action::Action;
use sluice_domain::connector::RegisteredConnector;
use sluice_domain::verify::SecretValue;

use super::connector::{self, ConnectorOrigin};
use super::declarations::{Placed, add};
use super::diagnostics::{Diagnostics, Report};
use super::node::YamlNode;
use super::parse;
use super::problem::ConfigProblem;
use super::secrets::SecretSource;

/// A shipped connector and its recorded answers.
#[derive(Clone, Copy, Debug)]
pub struct ShippedFile {
    pub name: &'static str,
    pub text: &'static str,
    pub answers: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(ShippedFile {
            name: $name,
            text: include_str!(concat!("../../connectors/", $name, ".yml")),
            answers: include_str!(concat!("../../connectors/", $name, ".answers.yml")),
        }),*]
    };
}

/// Every connector that ships, sorted by name.
pub static SHIPPED: &[ShippedFile] = shipped![
    "activecampaign",
    "brevo",
    "dataverse",
    "discord",
    "fcm",
    "ga4",
    "klaviyo",
    "mailchimp",
    "mailgun",
    "opsgenie",
    "pagerduty",
    "pipedrive",
    "postmark",
    "segment",
    "sendgrid",
    "teams",
    "twilio",
    "zoho",
];

/// Connectors read no secrets: their values come from the keys of a destination.
#[derive(Debug)]
pub(super) struct NoSecrets;

impl SecretSource for NoSecrets {
    fn lookup(&self, _: &str) -> io::Result<Option<SecretValue>> {
        Ok(None)
    }

    fn describe(&self, _: &str) -> String {
        "a connector reads the keys of its destination".to_owned()
    }
}

/// Reads one shipped connector.
fn read_shipped(file: &ShippedFile) -> (Option<&'static RegisteredConnector>, Vec<ConfigProblem>) {
    let secrets = NoSecrets;
    let diagnostics = Diagnostics::new(&secrets);
    let (nodes, flaws) = parse::parse(file.text);
    let mut found = None;
    {
        let report = diagnostics.report(file.name);
        for flaw in flaws {
            report.error(flaw.span, flaw.code, flaw.message);
        }
        for node in &nodes {
            found = connector::read(report, node, ConnectorOrigin::Shipped).and_then(|(_, _, read)| read);
        }
    }
    (found, diagnostics.finish().0)
}

static CONNECTORS: LazyLock<Vec<&'static RegisteredConnector>> =
    LazyLock::new(|| SHIPPED.iter().filter_map(|file| read_shipped(file).0).collect());

/// Every connector that ships, sorted by name.
pub fn shipped() -> &'static [&'static RegisteredConnector] {
    &CONNECTORS
}

/// Built-in actions and those of shipped connectors.
pub(super) fn known_actions() -> impl Iterator<Item = Action> {
    Action::ALL.into_iter().chain(shipped().iter().flat_map(|connector| connector.actions()).map(Action::Declared))
}

/// Connectors of one configuration.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    /// `None` could not be read: the name exists, and no further problem is reported for it.
    own: BTreeMap<String, Placed<Option<&'static RegisteredConnector>>>,
}

impl Catalogue {
    /// Reads a `connector:` document.
    pub(super) fn read(&mut self, report: Report<'_>, node: &YamlNode) {
        let Some((name, span, found)) = connector::read(report, node, ConnectorOrigin::Configuration) else { return };
        if let Some(found) = found {
            for action in found.actions() {
                if let Some(other) = self.action(action.spec().name) {
                    let message = format!("the action `{}` is also declared by another connector", other.name());
                    report.error(span, "duplicate-name", message).hint("give one of them another name");
                }
            }
        }
        add(&mut self.own, report, "connector", (name, span), found);
    }

    /// The connector of this type; `Some(None)` if its document could not be read.
    pub(super) fn connector(&self, name: &str) -> Option<Option<&'static RegisteredConnector>> {
        let shipped = shipped().iter().find(|connector| connector.definition.name == name).copied();
        shipped.map(Some).or_else(|| self.own.get(name).map(|placed| placed.value))
    }

    /// Names of all declared types.
    pub(super) fn types(&self) -> impl Iterator<Item = &str> {
        shipped().iter().map(|connector| connector.definition.name.as_str()).chain(self.own.keys().map(String::as_str))
    }

    /// The built-in or declared action of this name.
    pub(super) fn action(&self, name: &str) -> Option<Action> {
        Action::parse(name).or_else(|| self.declared_actions().find(|action| action.name() == name))
    }

    /// Names of all actions.
    pub(super) fn actions(&self) -> impl Iterator<Item = &'static str> {
        Action::ALL.into_iter().chain(self.declared_actions()).map(Action::name)
    }

    fn declared_actions(&self) -> impl Iterator<Item = Action> {
        let own = self.own.values().filter_map(|placed| placed.value);
        shipped().iter().copied().chain(own).flat_map(|connector| connector.actions()).map(Action::Declared)
    }

    /// Whether a connector could not be read, so that an unknown action may be one of it.
    pub(super) fn is_incomplete(&self) -> bool {
        self.own.values().any(|placed| placed.value.is_none())
    }

    /// Connectors of the configuration, sorted by name.
    pub(super) fn own(&self) -> impl Iterator<Item = &'static RegisteredConnector> {
        self.own.values().filter_map(|placed| placed.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_connector_is_read_without_a_problem() {
        for file in SHIPPED {
            let (found, problems) = read_shipped(file);
            assert!(problems.is_empty(), "{}: {problems:#?}", file.name);
            assert_eq!(found.map(|found| found.definition.name.as_str()), Some(file.name));
        }
        let mut names: Vec<&str> = known_actions().map(Action::name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "two actions have one name");
    }
}
