//! Change: what a new configuration would do to a node, and how its files come into place.
//!
//! In: two configurations, and what the ledger holds for them; the files of a new one.
//! Out: a plan with a hash; a directory that holds the new files, all of them.
//! Touches: the configuration directory, in [`place`].
//! Never: the ledger, the network; puts nothing in force by itself.
//! If the process dies here: the files are all old or, once the staged ones are committed, all new at the next start.

pub mod install;
mod plan;
mod stranded;

pub use plan::{FieldView, LedgerUsage, Plan, PlanChange, PlanHash, Side, plan};
pub use stranded::reached;
