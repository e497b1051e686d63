//! Who operates a node, whoever asks for it: the API, or the command line while no node runs.

use std::sync::Arc;

use hyper::StatusCode;
use sluice_domain::event::EventId;
use sluice_domain::job::JobId;
use sluice_ledger::{EventRecord, JobRecord, Ledger};

use crate::clock::Clock;
use crate::config::SecretSource;
use crate::observe::Metrics;
use crate::revisions::{LoadedRevision, Revisions};
use crate::run::NodeSettings;
use crate::safe_mode::SafeModes;
use crate::{intake, schedule};

/// Why an act or a question could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// It makes sense, and not now: the code, and what is in the way.
    #[error("{1}")]
    Refused(&'static str, String),
    /// The new configuration has mistakes; the old one stays.
    #[error("{0}")]
    Config(String),
    /// The ledger said no.
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
}

impl OperateError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            OperateError::NotFound(_) => "not-found",
            OperateError::Invalid(_) => "invalid",
            OperateError::Refused(code, _) => code,
            OperateError::Config(_) => "config-invalid",
            OperateError::Ledger(sluice_ledger::Error::TooSlow) => "too-slow",
            OperateError::Ledger(_) => "ledger",
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            OperateError::NotFound(_) => StatusCode::NOT_FOUND,
            OperateError::Refused(..) => StatusCode::CONFLICT,
            OperateError::Invalid(_) => StatusCode::BAD_REQUEST,
            OperateError::Config(_) => StatusCode::UNPROCESSABLE_ENTITY,
            OperateError::Ledger(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Whom an operator's acts are told to.
#[derive(Clone, Debug)]
pub struct NodeHandles {
    /// What runs next.
    pub scheduler: schedule::SchedulerHandle,
    /// Who comes in.
    pub intake: intake::IntakeContext,
    /// Who is in safe mode.
    pub safe_modes: SafeModes,
}

/// What operators can do. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(super) ledger: Ledger,
    pub(super) revisions: Revisions,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    pub(super) scheduler: schedule::SchedulerHandle,
    pub(super) intake: intake::IntakeContext,
    pub(super) safe_modes: SafeModes,
    pub(super) settings: Arc<NodeSettings>,
    /// Held from the write to the word to the scheduler: were two pauses to overtake each other, the two would disagree.
    pub(super) pausing: Arc<tokio::sync::Mutex<()>>,
    /// Held while a configuration is put in force: of two changes the second one sees what the first one made.
    pub(super) changing: Arc<tokio::sync::Mutex<()>>,
}

impl Operator {
    /// Joins the rooms that an operator acts on.
    pub fn new(
        ledger: Ledger,
        revisions: Revisions,
        metrics: Metrics,
        clock: Clock,
        rooms: NodeHandles,
        settings: NodeSettings,
    ) -> Operator {
        let NodeHandles { scheduler, intake, safe_modes } = rooms;
        Operator {
            ledger,
            revisions,
            metrics,
            clock,
            scheduler,
            intake,
            safe_modes,
            settings: Arc::new(settings),
            pausing: Arc::default(),
            changing: Arc::default(),
        }
    }

    /// For a data directory that no node has open: everything that needs no scheduler and no intake. Jobs that come back to
    /// life run when a node starts.
    pub async fn offline(
        ledger: Ledger,
        live: LoadedRevision,
        secrets: Arc<dyn SecretSource + Send + Sync>,
        settings: NodeSettings,
    ) -> Result<Operator, OperateError> {
        let (clock, metrics, revisions) = (Clock::start(), Metrics::new(), Revisions::new(live, secrets));
        let (scheduler, _) = schedule::SchedulerHandle::new();
        let intake = intake::IntakeContext::new(ledger.clone(), revisions.clone(), metrics.clone(), clock.clone());
        let safe_modes = SafeModes::load(ledger.clone()).await?;
        let rooms = NodeHandles { scheduler, intake, safe_modes };
        let operator = Operator::new(ledger, revisions, metrics, clock, rooms, settings);
        operator.put_paused_sources_in_force().await?;
        Ok(operator)
    }

    pub(super) async fn find(&self, id: &str) -> Result<EventRecord, OperateError> {
        let parsed = EventId::parse(id)
            .ok_or_else(|| OperateError::Invalid(format!("`{id}` is not an event id; those look like evt_…")))?;
        let found = self.ledger.find_event(parsed).await?;
        found.ok_or_else(|| OperateError::NotFound(format!("there is no event {id}; it may be past its retention")))
    }

    pub(super) async fn job_record(&self, id: JobId) -> Result<JobRecord, OperateError> {
        self.ledger
            .job(id)
            .await?
            .ok_or_else(|| OperateError::NotFound(format!("there is no {id}; it may be past its retention")))
    }

    pub(super) async fn put_paused_sources_in_force(&self) -> Result<(), OperateError> {
        let pauses = self.ledger.pauses().await?;
        self.intake.set_paused(
            pauses.iter().filter_map(|pause| pause.target.strip_prefix("source:").map(str::to_owned)).collect(),
        );
        Ok(())
    }
}

/// Reads `job_17`.
pub(super) fn job_id(text: &str) -> Result<JobId, OperateError> {
    JobId::parse(text).ok_or_else(|| OperateError::Invalid(format!("`{text}` is not a job id; those look like job_17")))
}
