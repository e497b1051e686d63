//! In: a directory of YAML and JSON, and a place to look secrets up.
//! Out: a [`Config`](sluice_domain::config::Config) that is valid by construction, and every problem with file, line and column.
//! Touches: the files, once, in [`read`]; the environment and `secrets/`, once for each secret, in [`EnvironmentThenFiles`].
//! Never: the network, the ledger, a clock; and no secret leaves it but inside a type that cannot be printed.
//! If the process dies here: nothing happened yet. The files are only read, and the next start reads them again.

mod approval;
mod bare;
mod body;
mod compile;
mod destination;
mod destination_kinds;
mod difference;
mod document;
mod editor;
mod event;
mod expression;
mod fields;
mod flow;
mod items;
mod key;
mod known_fields;
mod message;
mod names;
mod node;
mod pages;
mod parse;
mod path_list;
mod plain;
mod policy;
mod preset;
mod problem;
mod queue;
mod read;
mod reference;
mod report;
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
mod things;
mod trigger;
mod values;
mod verify;
mod whole;
mod with;
mod worker;

pub use compile::{Compiled, compile};
pub use difference::{Difference, FieldDifference, differences};
pub use editor::{documents, editor_schema};
pub use node::Span;
pub use pages::{actions, expressions, policies, steps};
pub use problem::{Colours, Problem, Severity, did_you_mean, render_all, summary};
pub use read::{Files, ReadError, is_taken, read};
pub use reference::reference;
pub use script::NeededRuntime;
pub use secrets::{EnvironmentThenFiles, Noted, SecretSource, SecretStore};
pub use things::{Thing, ThingName, things};
