//! What the ledger writes, as data, and the replies: a file for each family of verbs. The writes of a run are defined in the domain.

mod accept;
mod contact;
mod jobs;
mod lookup;
mod operate;
mod payloads;
mod replay;
mod upkeep;

pub use sluice_domain::ops::{
    ApprovalRecord, AttemptSettlement, Begin, BeginResult, CappedBeginResult, ChargeResult, DecideApproval,
    EffectSettlement, Fence, Mark, Marked, RequestApproval, RetryCharge, SetConsent, Settlement, Skip, StepResult,
    StepWarning,
};
use sluice_domain::policy::CapReservation;
pub use sluice_domain::run::Settle;
pub use sluice_domain::transition::JobUpdate;

pub use accept::*;
pub use contact::*;
pub use jobs::*;
pub use lookup::*;
pub use operate::*;
pub use payloads::*;
pub use replay::*;
pub use upkeep::*;

/// The intent of an attempt with the caps that it is counted under: all of them have room, or nothing is written.
#[derive(Clone, Debug)]
pub struct CappedBegin {
    pub begin: Begin,
    pub caps: Vec<CapReservation>,
}
