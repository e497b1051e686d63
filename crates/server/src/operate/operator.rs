//! Operator commands and queries, shared by the API and the command line without a node.

use std::sync::Arc;

use hyper::StatusCode;
use sluice_domain::access::{Caller, Permission};
use sluice_domain::event::EventId;
use sluice_domain::job::JobId;
use sluice_ledger::{EventRecord, JobRecord, Ledger};

use crate::change_follower::ChangeFollower;
use crate::clock::Clock;
use crate::config::SecretSource;
use crate::observe::Metrics;
use crate::replays::Replays;
use crate::revisions::{LoadedRevision, Revisions};
use crate::run::NodeSettings;
use crate::safe_mode::SafeModes;
use crate::trials::Trials;
use crate::{intake, schedule};

#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Invalid(String),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// Valid, but in conflict with the current state: code and reason.
    #[error("{1}")]
    Refused(&'static str, String),
    /// The new configuration has errors; the old one stays active.
    #[error("{0}")]
    Config(String),
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
}

impl OperateError {
    pub fn code(&self) -> &'static str {
        match self {
            OperateError::NotFound(_) => "not-found",
            OperateError::Invalid(_) => "invalid",
            OperateError::Forbidden(_) => "forbidden",
            OperateError::Refused(code, _) => code,
            OperateError::Config(_) => "config-invalid",
            OperateError::Ledger(sluice_ledger::Error::TooSlow) => "too-slow",
            OperateError::Ledger(_) => "ledger",
        }
    }

    pub fn status(&self) -> StatusCode {
        match self {
            OperateError::NotFound(_) => StatusCode::NOT_FOUND,
            OperateError::Refused(..) => StatusCode::CONFLICT,
            OperateError::Forbidden(_) => StatusCode::FORBIDDEN,
            OperateError::Invalid(_) => StatusCode::BAD_REQUEST,
            OperateError::Config(_) => StatusCode::UNPROCESSABLE_ENTITY,
            OperateError::Ledger(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Components that operator commands notify.
#[derive(Clone, Debug)]
pub struct NodeHandles {
    pub scheduler: schedule::SchedulerHandle,
    pub intake: intake::IntakeContext,
    pub safe_modes: SafeModes,
    pub metrics: Metrics,
    /// `None` if no node runs here.
    pub changes: Option<ChangeFollower>,
}

/// Commands and queries of operators. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Who asks. The node itself acts as the owner.
    pub(super) caller: Arc<Caller>,
    pub(super) ledger: Ledger,
    pub(super) revisions: Revisions,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    pub(super) scheduler: schedule::SchedulerHandle,
    pub(super) intake: intake::IntakeContext,
    pub(super) safe_modes: SafeModes,
    pub(super) replays: Replays,
    pub(super) trials: Trials,
    pub(super) settings: Arc<NodeSettings>,
    changes: Option<ChangeFollower>,
    /// Held while a configuration is activated, so that concurrent changes are serialized.
    pub(super) changing: Arc<tokio::sync::Mutex<()>>,
    /// Held while the root key is rotated: two rotations would replace each other's key file.
    pub(super) rotating: Arc<tokio::sync::Mutex<()>>,
    /// Held while all events are accounted for, so that one reader at a time goes through them.
    pub(super) accounting: Arc<tokio::sync::Mutex<()>>,
}

impl Operator {
    pub fn new(
        ledger: Ledger,
        revisions: Revisions,
        clock: Clock,
        handles: NodeHandles,
        settings: NodeSettings,
    ) -> Operator {
        let NodeHandles { scheduler, intake, safe_modes, metrics, changes } = handles;
        let replays = Replays::new(ledger.clone(), clock.clone(), metrics.clone(), scheduler.clone());
        let trials = Trials::new(ledger.clone(), revisions.pseudonyms().clone());
        Operator {
            caller: Arc::new(Caller::owner()),
            replays,
            trials,
            ledger,
            revisions,
            metrics,
            clock,
            scheduler,
            intake,
            safe_modes,
            settings: Arc::new(settings),
            changes,
            changing: Arc::default(),
            rotating: Arc::default(),
            accounting: Arc::default(),
        }
    }

    /// For a data directory that no node has open: everything that needs no scheduler and no intake. Jobs that come back to
    /// life run when a node starts.
    pub(crate) async fn offline(
        ledger: Ledger,
        live: LoadedRevision,
        secrets: Arc<dyn SecretSource + Send + Sync>,
        clock: Clock,
        settings: NodeSettings,
    ) -> Result<Operator, OperateError> {
        let metrics = Metrics::new();
        let revisions = Revisions::new(live, secrets, ledger.pseudonym_key());
        let (scheduler, _) = schedule::SchedulerHandle::new();
        let intake = intake::IntakeContext::new(ledger.clone(), revisions.clone(), metrics.clone(), clock.clone());
        let safe_modes = SafeModes::load(ledger.clone()).await?;
        let handles = NodeHandles { scheduler, intake, safe_modes, metrics, changes: None };
        let operator = Operator::new(ledger, revisions, clock, handles, settings);
        operator.catch_up().await?;
        Ok(operator)
    }

    /// The same commands and queries, for another caller.
    pub(crate) fn acting_for(&self, caller: Caller) -> Operator {
        Operator { caller: Arc::new(caller), ..self.clone() }
    }

    /// Refuses what the caller may not do.
    pub(super) fn permit(&self, permission: Permission) -> Result<(), OperateError> {
        if self.caller.may(permission) {
            return Ok(());
        }
        let who = self.caller.actor("");
        Err(OperateError::Forbidden(format!("this needs {permission}, which {who} does not have; nothing was done")))
    }

    /// Name of the caller for the audit trail; only the owner can state another one.
    pub(super) fn actor(&self, stated: &str) -> String {
        self.caller.actor(stated)
    }

    /// Whether no node runs here, so that jobs wait for the next start.
    pub(super) fn is_offline(&self) -> bool {
        self.changes.is_none()
    }

    /// The batches of running replays, for the loop that takes them.
    pub(crate) fn replay_batches(&self) -> Replays {
        self.replays.clone()
    }

    pub(super) async fn find(&self, id: &str) -> Result<EventRecord, OperateError> {
        if EventId::parse_shortened(id).is_none() {
            let least = EventId::SHORT_CHARACTERS;
            let problem =
                format!("`{id}` is not an event id, such as evt_…, with at least {least} characters after evt_");
            return Err(OperateError::Invalid(problem));
        }
        let mut found = self.ledger.find_by_short_id(id).await?;
        match (found.pop(), found.is_empty()) {
            (Some(event), true) => Ok(event),
            (Some(_), false) => Err(OperateError::Invalid(format!("several events begin with {id}; use a longer id"))),
            (None, _) => {
                Err(OperateError::NotFound(format!("unknown event {id}; it may have been deleted by retention")))
            }
        }
    }

    pub(super) async fn job_record(&self, id: JobId) -> Result<JobRecord, OperateError> {
        self.ledger
            .job(id)
            .await?
            .ok_or_else(|| OperateError::NotFound(format!("unknown job {id}; it may have been deleted by retention")))
    }

    /// Returns once the changes that were written are applied here. Without a node there is only what queries show.
    pub(super) async fn catch_up(&self) -> Result<(), OperateError> {
        match &self.changes {
            Some(changes) => changes.catch_up().await?,
            None => {
                self.safe_modes.refresh().await?;
                self.intake.set_paused(crate::pauses::sources(&self.ledger.pauses().await?));
            }
        }
        Ok(())
    }

    /// Makes a compiled revision active once the ledger has it so.
    pub(super) fn prepare(&self, live: LoadedRevision) {
        match &self.changes {
            Some(changes) => changes.prepare(live),
            None => self.revisions.replace(Arc::new(live)),
        }
    }
}

/// Reads `job_17`.
pub(super) fn job_id(text: &str) -> Result<JobId, OperateError> {
    JobId::parse(text).ok_or_else(|| OperateError::Invalid(format!("`{text}` is not a job id, such as job_17")))
}
