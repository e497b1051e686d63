//! Config: files to a valid configuration, or every problem in them.
//!
//! In: a directory of YAML and JSON files, and a source of secrets.
//! Out: a [`Config`](sluice_domain::config::Config) that is valid by construction, and every problem with file, line and column.
//! Touches: the files, once, in [`read`]; the environment and `secrets/`, once per secret, in [`EnvironmentThenFiles`].
//! Never: the network, the ledger, a clock. Secrets leave it only in a type that cannot be printed.
//! If the process dies here: nothing has happened. Files are only read, and the next start reads them again.

mod alerts;
mod answers;
mod approval;
mod body;
mod budget;
mod catalogue;
mod compile;
mod connector;
mod connector_action;
mod connector_batch;
mod connector_destination;
mod connector_failure;
mod connector_upsert;
mod contacts;
mod cross_checks;
mod declarations;
mod destination;
mod destination_kinds;
mod destination_stores;
mod diagnostics;
mod difference;
mod document;
mod event;
mod expression;
mod failure_rules;
mod field_mapping;
mod field_reads;
mod fields;
mod flow;
mod foreach;
mod http_auth;
mod json_schema;
mod key;
mod known_fields;
mod lookup;
mod message;
mod node;
mod notify;
mod oidc;
mod pages;
mod parameters;
mod parse;
mod path_list;
mod plaintext_secrets;
mod policy;
mod preset;
mod problem;
mod queue;
mod read;
mod reference;
mod renamed;
mod resources;
mod respond_within;
mod retry;
mod rule;
mod safe_mode;
mod schema;
mod script;
mod secrets;
mod step;
mod step_action;
mod step_destination;
mod table;
mod template_escape;
mod traces;
mod trigger;
mod upsert;
mod values;
mod verify;
mod worker;

pub use answers::{
    AnswerCase, ConnectorTests, ExpectedAnswer, ExpectedOutcome, ExpectedRequest, available, own_connectors, own_tests,
    shipped_tests,
};
pub use catalogue::{SHIPPED, ShippedFile, shipped};
pub use compile::{Compiled, compile};
pub(crate) use difference::{Difference, FieldDifference, differences};
pub use json_schema::{documents, editor_schema};
pub(crate) use notify::CHANNEL_PREFIX;
pub use pages::{actions, expressions, policies, steps};
pub use problem::{Colours, ConfigProblem, Severity, render_all};
pub(crate) use problem::{did_you_mean, summary};
pub use read::{Files, read};
pub(crate) use read::{ReadError, is_taken};
pub use reference::reference;
pub(crate) use resources::resources;
pub use secrets::{EnvironmentThenFiles, SecretSource};
pub(crate) use secrets::{Noted, SecretStore, secret_files};
pub use traces::TraceEnvironment;
