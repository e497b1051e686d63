//! Connectors that are in use, for as long as the process runs.
//!
//! An [`Action`](crate::action::Action) is copied with every attempt and named in every ledger row, so a declared one is a
//! reference without a counter. Equal documents share one entry: a reload adds only what changed, and
//! [`CONNECTORS_MAX`] bounds how many changed documents one process takes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use super::{ActionDefinition, Connector, DefinedType, ParameterDefinition};
use crate::action::{Parameter, ParameterType, Spec};
use crate::outcome::EffectClass;

/// Maximum number of different connectors that one process registers.
pub const CONNECTORS_MAX: usize = 1_000;

/// A connector with the table rows of its actions.
#[derive(Debug)]
pub struct RegisteredConnector {
    pub definition: &'static Connector,
    pub actions: Vec<DeclaredAction>,
}

/// An action of a declared connector, with its row of the table of actions.
#[derive(Debug)]
pub struct DeclaredAction {
    pub spec: Spec,
    /// Parameters of which at least one is required.
    pub any_of: &'static [&'static str],
    pub definition: &'static ActionDefinition,
    pub connector: &'static Connector,
}

/// Reference to a registered action. Two are equal if they are of the same document.
#[derive(Clone, Copy, Debug)]
pub struct Declared(&'static DeclaredAction);

impl Deref for Declared {
    type Target = DeclaredAction;

    fn deref(&self) -> &DeclaredAction {
        self.0
    }
}

impl Declared {
    /// The row of the table of actions.
    pub fn spec(self) -> &'static Spec {
        &self.0.spec
    }

    pub fn definition(self) -> &'static ActionDefinition {
        self.0.definition
    }

    pub fn any_of(self) -> &'static [&'static str] {
        self.0.any_of
    }
}

impl PartialEq for Declared {
    fn eq(&self, other: &Declared) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Declared {}

impl Hash for Declared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl RegisteredConnector {
    pub fn actions(&'static self) -> impl Iterator<Item = Declared> {
        self.actions.iter().map(Declared)
    }

    /// The action that sends a mail.
    pub fn mail_action(&'static self) -> Option<Declared> {
        self.actions().find(|action| action.definition.is_mail)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process has read {CONNECTORS_MAX} different connectors; restart it to read more")]
pub struct RegistryFull;

static REGISTRY: Mutex<BTreeMap<String, &'static RegisteredConnector>> = Mutex::new(BTreeMap::new());

/// Registers a connector; returns the existing one if an equal document is registered.
pub fn register(connector: Connector) -> Result<&'static RegisteredConnector, RegistryFull> {
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = registry.get(&connector.source) {
        return Ok(known);
    }
    if registry.len() >= CONNECTORS_MAX {
        return Err(RegistryFull);
    }
    let definition: &'static Connector = Box::leak(Box::new(connector));
    let actions = definition.actions.iter().map(|action| declared(definition, action)).collect();
    let registered: &'static RegisteredConnector = Box::leak(Box::new(RegisteredConnector { definition, actions }));
    registry.insert(definition.source.clone(), registered);
    Ok(registered)
}

const RESEND: Parameter = Parameter {
    name: "resend",
    value_type: ParameterType::OneOf(&["allowed", "never"]),
    required: false,
    about: "allowed: an effect with an unknown outcome is sent again and may be applied twice.",
};

fn declared(connector: &'static Connector, action: &'static ActionDefinition) -> DeclaredAction {
    let own = action.parameters.iter().map(parameter);
    let resend = (action.class == EffectClass::Blind).then_some(RESEND);
    let spec = Spec {
        name: &action.name,
        about: &action.about,
        parameters: Vec::leak(own.chain(resend).collect()),
        destination: &connector.name,
        destination_required: true,
    };
    DeclaredAction { spec, any_of: words(&action.any_of), definition: action, connector }
}

fn parameter(defined: &'static ParameterDefinition) -> Parameter {
    let value_type = match &defined.value_type {
        DefinedType::Text => ParameterType::Text,
        DefinedType::Flag => ParameterType::Flag,
        DefinedType::Number => ParameterType::Number,
        DefinedType::Map => ParameterType::Map,
        DefinedType::Any => ParameterType::Any,
        DefinedType::Texts => ParameterType::Texts,
        DefinedType::OneOf(allowed) => ParameterType::OneOf(words(allowed)),
    };
    Parameter { name: &defined.name, value_type, required: defined.required, about: &defined.about }
}

fn words(texts: &'static [String]) -> &'static [&'static str] {
    Vec::leak(texts.iter().map(String::as_str).collect())
}
