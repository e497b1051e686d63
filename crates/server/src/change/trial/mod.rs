//! Trial: what a new configuration makes of stored requests, compared with the active one. Pure.

mod compare;
mod contacts;
mod merge;
mod report;
mod rows;

pub(crate) use compare::{Compared, Comparison, Outcome, PlannedCall, RequestResult};
pub(crate) use contacts::ContactPairs;
pub(crate) use report::{ContactTrial, FieldDifferenceRow, OutcomeDifference, Sample, TrialReport};

#[cfg(test)]
mod tests;
