//! Change: plans a new configuration and installs its files.
//!
//! In: two configurations, their usage in the ledger; the files of a new one.
//! Out: a plan with a hash; a directory with all new files.
//! Touches: the configuration directory, in [`install`].
//! Never: the ledger, the network; activates nothing.
//! If the process dies here: all files are old or, once the staged ones are committed, all new at the next start.

pub(crate) mod install;
mod plan;
mod stranded;
mod trial;

pub(crate) use plan::{FieldView, LedgerUsage, Plan, PlanChange, PlanHash, Side, plan};
pub(crate) use stranded::{Stranded, reached};
pub(crate) use trial::{Compared, Comparison, ContactPairs, Outcome, PlannedCall, RequestResult};
pub(crate) use trial::{ContactTrial, FieldDifferenceRow, OutcomeDifference, Sample, TrialReport};
