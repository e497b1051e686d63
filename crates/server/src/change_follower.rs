//! Follows the change sequence of the ledger. What all nodes must agree on (pauses, safe modes, the active revision) is read from the
//! ledger and applied to the components of this node, whichever process has changed it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_domain::schedule::PauseTarget;
use sluice_ledger::{Error, Ledger, Page};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::TraceEnvironment;
use crate::intake::IntakeContext;
use crate::observe::Metrics;
use crate::pauses::{self, AppliedPauses};
use crate::revisions::{LoadedRevision, Revisions};
use crate::safe_mode::SafeModes;
use crate::schedule::SchedulerHandle;

/// Wait before the ledger is read again after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChangeFollower {
    ledger: Ledger,
    revisions: Revisions,
    safe_modes: SafeModes,
    scheduler: SchedulerHandle,
    intake: IntakeContext,
    paused: AppliedPauses,
    clock: Clock,
    metrics: Metrics,
    trace_environment: TraceEnvironment,
    /// A revision that is compiled here and about to be activated.
    prepared: Arc<Mutex<Option<LoadedRevision>>>,
    /// The change sequence up to which everything is applied. Held while changes are applied.
    applied: Arc<tokio::sync::Mutex<u64>>,
}

/// What changes are applied to.
#[derive(Debug)]
pub(crate) struct Followers {
    pub revisions: Revisions,
    pub safe_modes: SafeModes,
    pub scheduler: SchedulerHandle,
    pub intake: IntakeContext,
    pub paused: AppliedPauses,
    pub clock: Clock,
    pub metrics: Metrics,
    pub trace_environment: TraceEnvironment,
}

impl ChangeFollower {
    pub(crate) fn new(ledger: Ledger, followers: Followers) -> ChangeFollower {
        let Followers { revisions, safe_modes, scheduler, intake, paused, clock, metrics, trace_environment } =
            followers;
        ChangeFollower {
            ledger,
            revisions,
            safe_modes,
            scheduler,
            intake,
            paused,
            clock,
            metrics,
            trace_environment,
            prepared: Arc::default(),
            applied: Arc::default(),
        }
    }

    /// Applies every change until the node stops.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.ledger.changes();
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = self.paused.inserted() => {}
            }
            while let Err(error) = self.apply().await {
                tracing::warn!(%error, "changes of pauses, safe mode and revisions could not be read; trying again");
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => return,
                    () = tokio::time::sleep(RETRY_DELAY) => {}
                }
            }
        }
    }

    /// Reads what the ledger has now, and applies it.
    pub(crate) async fn apply(&self) -> Result<(), Error> {
        let mut applied = self.applied.lock().await;
        self.apply_to(&mut applied).await
    }

    /// Returns once every change that is durable now is applied.
    pub(crate) async fn catch_up(&self) -> Result<(), Error> {
        let seq = self.ledger.change_seq().await?;
        let mut applied = self.applied.lock().await;
        // A changed secret does not change the revision, and so not the sequence.
        if *applied < seq || self.has_prepared() {
            self.apply_to(&mut applied).await?;
        }
        Ok(())
    }

    async fn apply_to(&self, applied: &mut u64) -> Result<(), Error> {
        let seq = self.ledger.change_seq().await?;
        self.safe_modes.refresh().await?;
        self.apply_revision().await?;
        let mut paused = self.paused.lock().await;
        let pauses = self.ledger.pauses().await?;
        self.configure_traces();
        self.intake.set_paused(pauses::sources(&pauses));
        // A new worker may belong to a paused queue.
        let wanted = pauses::targets(&self.revisions.current().config, &pauses);
        for target in paused.difference(&wanted) {
            self.scheduler.resume(target.clone());
        }
        for target in wanted.difference(&paused) {
            match target {
                PauseTarget::Destination(name) if pauses::is_unauthorized(&pauses, name) => {
                    self.scheduler.pause_unauthorized(name.clone());
                }
                _ => self.scheduler.pause(target.clone()),
            }
        }
        *paused = wanted;
        *applied = seq;
        Ok(())
    }

    fn configure_traces(&self) {
        let current = self.revisions.current();
        let settings = self.trace_environment.with_section(current.config.traces.as_ref());
        self.metrics.traces.configure(settings, self.clock.ledger_time());
    }

    /// Keeps a revision that is compiled already, for the moment at which the ledger has it as the active one.
    pub(crate) fn prepare(&self, live: LoadedRevision) {
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    fn has_prepared(&self) -> bool {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn take_prepared(&self, revision: &str) -> Option<LoadedRevision> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.take_if(|live| *live.revision == *revision)
    }

    async fn apply_revision(&self) -> Result<(), Error> {
        let newest = self.ledger.revision_history(Page { after: None, limit: 1 }).await?;
        let Some(active) = newest.first() else { return Ok(()) };
        let current = self.revisions.current();
        let next = match self.take_prepared(&active.hash) {
            Some(prepared) => Arc::new(prepared),
            None if *current.revision == *active.hash => return Ok(()),
            None => match self.revisions.get(&Arc::from(active.hash.as_str()), &self.ledger).await {
                Some(live) => live,
                None => {
                    tracing::error!(
                        revision = %active.hash,
                        "the active revision does not compile on this node (a missing secret?); the last one stays active here"
                    );
                    return Ok(());
                }
            },
        };
        if !next.is_same(&current) {
            tracing::info!(revision = %next.revision, "configuration activated");
            self.revisions.replace(next);
            self.scheduler.reconfigured();
        }
        Ok(())
    }
}
