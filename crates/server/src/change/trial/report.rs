//! The report of a trial, as the API and the command line show it. Samples are masked.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Differences between the active and a new configuration on the same requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrialReport {
    /// Requests that both configurations were applied to.
    pub events: u64,
    /// Requests of which anything differs.
    pub different: u64,
    /// Events whose request is no longer stored.
    pub bodies_removed: u64,
    /// Requests that cannot be read as the new configuration wants them, such as a body with a duplicate key.
    pub unreadable: u64,
    /// Requests that get another key.
    pub other_keys: u64,
    /// Requests that are accepted, refused, quarantined or taken for a duplicate where they were not before.
    pub outcomes: Vec<OutcomeDifference>,
    /// Jobs more or fewer.
    pub jobs: Vec<JobDifference>,
    /// Fields of the normalized event that differ.
    pub fields: Vec<FieldDifferenceRow>,
    /// Fields of requests to destinations that differ.
    pub writes: Vec<WriteDifference>,
    /// Conversions that lose something.
    pub warnings: Vec<WarningDifference>,
    /// Absent if neither configuration keeps contacts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub contacts: Option<ContactTrial>,
    /// Further kinds of difference beyond the limits of the tables.
    pub left_out: u64,
    /// Numbers of contacts are lower bounds: there were too many to tell apart.
    pub contacts_at_least: bool,
}

/// A request whose values differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// `evt_…`
    pub event: String,
    /// Masked.
    pub before: String,
    /// Masked.
    pub after: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OutcomeDifference {
    pub flow: String,
    /// `accepted`, `duplicate`, `quarantined: CODE`, `refused: CODE` or `no flow`.
    pub before: String,
    pub after: String,
    pub events: u64,
    /// `before` and `after` are the keys, or for a duplicate the event that it is one of.
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDifference {
    pub flow: String,
    pub worker: String,
    pub more: u64,
    pub fewer: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldDifferenceRow {
    pub flow: String,
    /// Such as `attributes.phone`.
    pub field: String,
    pub events: u64,
    pub contacts: u64,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WriteDifference {
    pub worker: String,
    pub step: String,
    /// Member of the request body; `method` and `url` of the request itself, `fails` for a job that becomes a dead letter.
    pub field: String,
    pub events: u64,
    pub contacts: u64,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WarningDifference {
    pub flow: String,
    pub field: String,
    /// For example `not-a-number`.
    pub code: String,
    pub more: u64,
    pub fewer: u64,
}

/// Contacts as these requests alone make them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ContactTrial {
    /// Contacts under the active configuration.
    pub before: u64,
    /// Contacts under the new one.
    pub after: u64,
    /// Contacts of the new configuration that join several of the active one.
    pub joined: u64,
    /// Contacts of the active configuration that the new one splits.
    pub split: u64,
    /// Merged values that differ, by field.
    pub fields: Vec<FieldDifferenceRow>,
    /// Requests behind the limit of contacts; theirs are not compared.
    pub not_compared: u64,
}

impl TrialReport {
    /// Whether both configurations do the same with every request.
    pub fn is_same(&self) -> bool {
        let contacts = |trial: &ContactTrial| {
            trial.before == trial.after && trial.joined == 0 && trial.split == 0 && trial.fields.is_empty()
        };
        self.different == 0 && self.contacts.as_ref().is_none_or(contacts)
    }

    /// Requests that change from one outcome to another.
    pub fn changed(&self, is: impl Fn(&OutcomeDifference) -> bool) -> u64 {
        self.outcomes.iter().filter(|row| is(row)).map(|row| row.events).sum()
    }
}
