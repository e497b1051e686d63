//! The facade that callers hold: the verbs, whichever driver stores the ledger.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use sluice_domain::alert::state::AlertChanges;
use sluice_domain::call_budget::BudgetRow;
use sluice_domain::event::EventId;
use sluice_domain::idempotent_command::Claim;
use sluice_domain::job::{JobState, Term};
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::respond::ResponseChange;
use sluice_domain::upsert::{self, RecordIdentity};
use tokio::sync::watch;

use crate::access::{NewCredential, PutUser, RemoveUser, RevokeCredential, TakeLink, UseCredential};
use crate::command::{ClaimCommand, FinishCommand};
use crate::event_edit::{EditEvent, Edited};
use crate::failure_group::{MarkGroup, MarkedGroup};
use crate::filter::EventFilter;
use crate::import::{CancelImport, ImportStep, NewImport};
use crate::memory;
use crate::op::*;
use crate::options::{LedgerOptions, Opened, Stats};
use crate::read_store::prelude::*;
use crate::read_store::{ReadStore, read_verbs};
use crate::seal::RootKey;
use crate::sqlite;
use crate::submission_queue::{BatchReceiver, Submitter, submission_queue};
use crate::write_store::{Op, Request};

/// Operations that may wait for the writer.
const QUEUE_OPS_MAX: usize = 16 * 1024;
/// Accepts fail above this; the rest is for settlements.
const QUEUE_ACCEPTS_MAX: u64 = 8 * 1024;

/// The ledger. Cheap to clone. Each verb is one transaction, and a repeat of it does no harm. Verbs that are submitted one
/// after the other are committed in that order, whether their replies are awaited in between or not.
#[derive(Clone, Debug)]
pub struct Ledger {
    operations: Submitter<Op>,
    reads: Reads,
    opened: Opened,
    stats: Arc<Stats>,
    writer: Arc<WriterThread>,
}

#[derive(Clone, Debug)]
enum Reads {
    Sqlite(sqlite::ReadPool),
    Memory(memory::StoreHandle),
}

#[derive(Debug)]
struct WriterThread(std::sync::Mutex<Option<std::thread::JoinHandle<()>>>);

macro_rules! read_methods {
    ($($(#[$doc:meta])* $verb:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        impl Ledger {
            $($(#[$doc])*
            pub async fn $verb(&self, $($argument: $type),*) -> Result<$output, Error> {
                match &self.reads {
                    Reads::Sqlite(store) => store.$verb($($argument),*).await,
                    Reads::Memory(store) => store.$verb($($argument),*).await,
                }
            })*
        }
    };
}

read_verbs!(read_methods);

impl Ledger {
    /// Whether a directory contains a ledger. Nothing is opened or created.
    pub fn exists_in(directory: &Path) -> bool {
        sqlite::exists_in(directory)
    }

    /// Whether a process has the ledger in a directory open. Nothing is created.
    pub fn is_open_in(directory: &Path) -> std::io::Result<bool> {
        sqlite::is_locked(directory)
    }

    /// Whether this root key opens the ledger in a directory; any key does if there is none yet. Nothing is written.
    pub fn is_opened_by(directory: &Path, root_key: &RootKey) -> Result<bool, Error> {
        sqlite::is_opened_by(directory, root_key)
    }

    /// Opens the embedded ledger in a directory under a new term and starts its writer. Creates it if there is none.
    pub fn open(directory: &Path, options: LedgerOptions) -> Result<Ledger, Error> {
        let lock = sqlite::lock(directory)?;
        let (stats, search_max) = (Arc::new(Stats::default()), options.search_max);
        let writer = sqlite::Writer::open(directory, options, stats.clone())?;
        let reads = Reads::Sqlite(sqlite::ReadPool::open(directory, writer.key_store(), search_max)?);
        let opened = writer.opened();
        let run = move |operations| {
            // Held by the writer: the directory is free for another process once the last write is done.
            let _lock = lock;
            writer.run(operations);
        };
        Ledger::start(reads, opened, stats, run)
    }

    /// Opens a ledger in memory under a new term. Nothing is sealed, and nothing outlives the process.
    pub fn in_memory(handle: &memory::StoreHandle, options: LedgerOptions) -> Result<Ledger, Error> {
        let (writer, opened) = handle.open()?;
        let stats = Arc::new(Stats::default());
        let counters = stats.clone();
        let run = move |operations| writer.run(operations, &options, &counters);
        Ledger::start(Reads::Memory(handle.clone()), opened, stats, run)
    }

    fn start(
        reads: Reads,
        opened: Opened,
        stats: Arc<Stats>,
        run: impl FnOnce(BatchReceiver<Op>) + Send + 'static,
    ) -> Result<Ledger, Error> {
        let (operations, received) = submission_queue(QUEUE_OPS_MAX);
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || run(received))
            .map_err(|source| Error::Thread { source })?;
        let writer = Arc::new(WriterThread(std::sync::Mutex::new(Some(thread))));
        Ok(Ledger { operations, reads, opened, stats, writer })
    }

    /// Waits until the writer has written everything and ended. Later writes through other clones fail.
    pub async fn close(self) {
        let _ = self.submit(Op::Close, ()).await;
        let writer = self.writer.clone();
        // Joined under the mutex, so that every caller of `close` waits for the thread.
        let join = move || writer.0.lock().ok().and_then(|mut thread| thread.take().map(std::thread::JoinHandle::join));
        let _ = tokio::task::spawn_blocking(join).await;
    }

    /// The term that this process took when it opened the ledger.
    pub fn term(&self) -> Term {
        self.opened.term
    }

    /// The key of pseudonyms in idempotency keys. It belongs to the ledger and never changes.
    pub fn pseudonym_key(&self) -> PseudonymKey {
        self.opened.pseudonyms.clone()
    }

    /// Receives the [change sequence](Ledger::change_seq) whenever it grows. A receiver reads what has changed from the ledger.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.opened.changes.clone()
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether an accept would be rejected now. Checked before a body is read.
    pub fn is_overloaded(&self) -> bool {
        self.stats.queued.load(Ordering::Relaxed) >= QUEUE_ACCEPTS_MAX
    }

    async fn send(&self, op: Op) -> Result<(), Error> {
        // Counted once there is room: a caller that gives up while it waits for room is not counted.
        let permit = self.operations.reserve().await.map_err(|_| Error::Failed)?;
        self.stats.queued.fetch_add(1, Ordering::Relaxed);
        permit.submit(op);
        Ok(())
    }

    async fn submit<I, O>(&self, verb: fn(Box<Request<I, O>>) -> Op, input: I) -> Result<O, Error> {
        let (request, reply) = Request::new(input);
        self.send(verb(request)).await?;
        reply.await.map_err(|_| Error::Failed)?
    }

    /// Accepts an event: its key, body and jobs in one commit. If the caller goes away meanwhile, the event is accepted all the
    /// same.
    pub async fn accept(&self, event: NewEvent) -> Result<Acceptance, Error> {
        self.accept_all(vec![event]).await?.pop().ok_or(Error::Failed)
    }

    /// Accepts the events of one request, all in one commit or none of them. Replies in their order.
    pub async fn accept_all(&self, events: Vec<NewEvent>) -> Result<Vec<Acceptance>, Error> {
        if events.is_empty() {
            return Ok(vec![]);
        }
        if self.is_overloaded() {
            return Err(Error::Overloaded);
        }
        self.submit(Op::Accept, RequestEvents { events, import: None }).await
    }

    /// Accepts a batch of rows of an import and moves the import on, in one commit. `None` if the import does not run, or has
    /// moved on: nothing is written then.
    pub async fn accept_rows(&self, events: Vec<NewEvent>, step: ImportStep) -> Result<Option<Vec<Acceptance>>, Error> {
        if self.is_overloaded() {
            return Err(Error::Overloaded);
        }
        let (rows, (id, until)) = (events.len(), (step.id, step.until));
        let accepted = self.submit(Op::Accept, RequestEvents { events, import: Some(step) }).await?;
        if rows > 0 {
            return Ok(Some(accepted).filter(|accepted| accepted.len() == rows));
        }
        let record = self.import_record(id).await?;
        Ok(record.filter(|record| record.position == until).map(|_| accepted))
    }

    /// Starts an import, or continues the one that is known by its id. One that is done stays so.
    pub async fn start_import(&self, import: NewImport) -> Result<ImportRecord, Error> {
        self.submit(Op::StartImport, import).await
    }

    /// Cancels a running import. Returns it as it is then; `None` if there is none.
    pub async fn cancel_import(&self, cancel: CancelImport) -> Result<Option<ImportRecord>, Error> {
        self.submit(Op::CancelImport, cancel).await
    }

    /// Records the intent of an attempt, if every cap has room for its effect, and waits until that is durable.
    pub async fn begin(&self, begin: Begin, caps: Vec<CapReservation>) -> Result<CappedBeginResult, Error> {
        self.submit(Op::Begin, CappedBegin { begin, caps }).await
    }

    /// Records the intent of an attempt without waiting. It becomes durable before the settlement that follows it. For effects
    /// that may be repeated without harm.
    pub async fn begin_without_waiting(&self, begin: Begin) -> Result<(), Error> {
        self.send(Op::Begin(Request::without_reply(CappedBegin { begin, caps: vec![] }))).await
    }

    /// Records the end of a run: with `begin`, an attempt whose intent was not recorded before; with `charge`, a retry within
    /// the budget of the job's contact.
    pub async fn settle(&self, settle: Settle) -> Result<ChargeResult, Error> {
        self.submit(Op::Settle, settle).await
    }

    /// Records the result of an internal step and returns the recorded one: the first counts. `None` if the run is stale.
    pub async fn record_step(&self, result: StepResult) -> Result<Option<serde_json::Value>, Error> {
        self.submit(Op::RecordStep, result).await
    }

    /// Sets a mark unless another job has. `None` if the run is stale.
    pub async fn set_mark(&self, mark: Mark) -> Result<Option<Marked>, Error> {
        self.submit(Op::SetMark, mark).await
    }

    /// Records that an effect is skipped, and why. `false` if the run is stale.
    pub async fn skip(&self, skip: Skip) -> Result<bool, Error> {
        self.submit(Op::Skip, skip).await
    }

    pub async fn set_consent(&self, consent: SetConsent) -> Result<(), Error> {
        self.submit(Op::SetConsent, consent).await
    }

    /// Returns the number of contacts that were not suppressed before.
    pub async fn suppress(&self, suppress: Suppress) -> Result<u64, Error> {
        self.submit(Op::Suppress, suppress).await
    }

    /// Returns the number of contacts that were suppressed.
    pub async fn unsuppress(&self, unsuppress: Unsuppress) -> Result<u64, Error> {
        self.submit(Op::Unsuppress, unsuppress).await
    }

    /// Requests an approval and returns it as it is recorded. `None` if the run is stale.
    pub async fn request_approval(&self, request: RequestApproval) -> Result<Option<ApprovalRecord>, Error> {
        self.submit(Op::RequestApproval, request).await
    }

    /// Records decisions. The first decision on an approval counts; its job becomes due.
    pub async fn decide_approval(&self, decide: DecideApproval) -> Result<Vec<(ApprovalId, Decided)>, Error> {
        self.submit(Op::DecideApproval, decide).await
    }

    pub async fn set_safe_mode(&self, set: SetSafeMode) -> Result<(), Error> {
        self.submit(Op::SetSafeMode, set).await
    }

    /// Makes waiting jobs due. Returns those that waited.
    pub async fn make_due(&self, due: MakeDue) -> Result<Vec<ChangedJob>, Error> {
        self.submit(Op::MakeDue, due).await
    }

    /// Requeues finished and dead jobs. Returns those that were requeued.
    pub async fn replay(&self, replay: Replay) -> Result<Vec<ChangedJob>, Error> {
        self.submit(Op::Replay, replay).await
    }

    /// Starts a durable replay. Its batches are taken with [`Ledger::advance_replay`].
    pub async fn start_replay(&self, replay: NewReplay) -> Result<ReplayRecord, Error> {
        self.submit(Op::StartReplay, replay).await
    }

    /// Requeues the jobs of a batch and returns those that were requeued. `None` if the replay does not run, or has moved on.
    pub async fn advance_replay(&self, advance: AdvanceReplay) -> Result<Option<Vec<ChangedJob>>, Error> {
        self.submit(Op::AdvanceReplay, advance).await
    }

    /// Pauses, resumes or cancels a replay.
    pub async fn control_replay(&self, control: ControlReplay) -> Result<Controlled, Error> {
        self.submit(Op::ControlReplay, control).await
    }

    /// Records what became of an effect of unknown outcome. Returns its job if that continues.
    pub async fn resolve(&self, resolve: Resolve) -> Result<Vec<ChangedJob>, Error> {
        self.submit(Op::Resolve, resolve).await
    }

    /// Requeues the jobs of lanes in which a call may have been applied late. Returns those that were requeued.
    pub async fn recheck(&self, recheck: Recheck) -> Result<Vec<ChangedJob>, Error> {
        self.submit(Op::Recheck, recheck).await
    }

    /// Discards dead and unknown jobs. Returns those that were discarded.
    pub async fn drop_jobs(&self, drop: DropJobs) -> Result<Vec<ChangedJob>, Error> {
        self.submit(Op::DropJobs, drop).await
    }

    pub async fn pause(&self, pause: Pause) -> Result<(), Error> {
        self.submit(Op::Pause, pause).await
    }

    pub async fn resume(&self, resume: Resume) -> Result<(), Error> {
        self.submit(Op::Resume, resume).await
    }

    /// Stores a revision of the configuration, so that jobs can run under the one that they were accepted under, and makes it
    /// the active one.
    pub async fn activate_revision(&self, revision: NewRevision) -> Result<(), Error> {
        self.submit(Op::ActivateRevision, revision).await
    }

    pub async fn audit(&self, entry: AuditEntry) -> Result<(), Error> {
        self.submit(Op::Audit, entry).await
    }

    /// Removes a slice of expired rows.
    pub async fn prune(&self, prune: Prune) -> Result<Pruned, Error> {
        self.submit(Op::Prune, prune).await
    }

    /// Stores the state of the ledger's clock.
    pub async fn keep_clock(&self, keep: KeepClock) -> Result<(), Error> {
        self.submit(Op::KeepClock, keep).await
    }

    /// Writes a minute of the history: what the node observed, and what the ledger has counted since the minute before. `false`
    /// if this minute of this term is written already.
    pub async fn record_history(&self, record: RecordHistory) -> Result<bool, Error> {
        self.submit(Op::RecordHistory, record).await
    }

    /// Stores the states of alerts. What operators have marked is kept, unless the alert fires again.
    pub async fn keep_alerts(&self, changes: AlertChanges) -> Result<(), Error> {
        self.submit(Op::KeepAlerts, changes).await
    }

    /// Stores a response clock after a look, or removes one that has ended. `false` if it does not run any more.
    pub async fn keep_response(&self, change: ResponseChange) -> Result<bool, Error> {
        self.submit(Op::KeepResponse, change).await
    }

    /// An operator acknowledges or snoozes an alert. `false` if there is no such alert.
    pub async fn mark_alert(&self, mark: MarkAlert) -> Result<bool, Error> {
        self.submit(Op::MarkAlert, mark).await
    }

    /// Claims an idempotency key for a command of an operator.
    pub async fn claim_command(&self, claim: ClaimCommand) -> Result<Claim, Error> {
        self.submit(Op::ClaimCommand, claim).await
    }

    /// Stores the response of a command that was claimed, or frees its key.
    pub async fn finish_command(&self, finish: FinishCommand) -> Result<(), Error> {
        self.submit(Op::FinishCommand, finish).await
    }

    /// The audit trail without a filter, newest first.
    pub async fn audit_trail(&self, page: Page) -> Result<Vec<AuditRecord>, Error> {
        Ok(self.audit_entries(AuditFilter::default(), page).await?.rows)
    }

    /// Stores an edited event as a new revision and requeues its jobs. They are announced as those that are released.
    pub async fn edit_event(&self, edit: EditEvent) -> Result<Edited, Error> {
        self.submit(Op::EditEvent, edit).await
    }

    /// An operator acknowledges, resolves or reopens a failure group.
    pub async fn mark_group(&self, mark: MarkGroup) -> Result<MarkedGroup, Error> {
        self.submit(Op::MarkGroup, mark).await
    }

    /// Charges calls of a budget. Returns its rows, oldest first.
    pub async fn charge_calls(&self, charge: ChargeCalls) -> Result<Vec<BudgetRow>, Error> {
        self.submit(Op::ChargeCalls, charge).await
    }

    /// Stores what was learned of payloads with the last event that was looked at. `false` if another write came between: the
    /// caller reads again.
    pub async fn keep_shapes(&self, keep: KeepShapes) -> Result<bool, Error> {
        self.submit(Op::KeepShapes, keep).await
    }

    /// An operator makes departures from the shape of payloads the new normal. Returns the number of notices.
    pub async fn accept_drift(&self, accept: AcceptDrift) -> Result<u64, Error> {
        self.submit(Op::AcceptDrift, accept).await
    }

    /// Runs a configuration beside the active one, from the next event on. Replaces another one.
    pub async fn set_shadow(&self, set: SetShadow) -> Result<(), Error> {
        self.submit(Op::SetShadow, set).await
    }

    /// `false` if no configuration runs beside the active one.
    pub async fn stop_shadow(&self, stop: StopShadow) -> Result<bool, Error> {
        self.submit(Op::StopShadow, stop).await
    }

    /// Stores what was compared. `false` if the shadow is another one by now, or has moved on.
    pub async fn keep_shadow(&self, keep: KeepShadow) -> Result<bool, Error> {
        self.submit(Op::KeepShadow, keep).await
    }

    /// Since when a worker has had this schedule: since `at`, if it had another one before.
    pub async fn schedule(&self, schedule: Schedule) -> Result<Time, Error> {
        self.submit(Op::Schedule, schedule).await
    }

    /// Seals with another root key: the previous one does not open the ledger any more.
    pub async fn rotate_root(&self, new: RootKey, actor: String, at: Time) -> Result<(), Error> {
        self.submit(Op::Rotate, Rotate { rotation: Rotation::Root(new), actor, at }).await.map(drop)
    }

    /// Seals new data with a new tenant key and returns its version. [`Ledger::rewrap_contacts`] does the rest.
    pub async fn rotate_tenant(&self, actor: String, at: Time) -> Result<u64, Error> {
        self.submit(Op::Rotate, Rotate { rotation: Rotation::Tenant, actor, at }).await
    }

    /// Wraps a slice of the contact keys with the newest tenant key. Returns how many were looked at: 0 when all are done.
    /// Continues after a restart.
    pub async fn rewrap_contacts(&self, rows_max: u32, at: Time) -> Result<u64, Error> {
        let rotation = Rotation::Contacts { rows_max };
        self.submit(Op::Rotate, Rotate { rotation, actor: String::new(), at }).await
    }

    /// Creates or changes a user. Returns whether the user is new.
    pub async fn put_user(&self, put: PutUser) -> Result<bool, Error> {
        self.submit(Op::PutUser, put).await
    }

    /// Removes a user with their sessions. `false` if there is none of this name.
    pub async fn remove_user(&self, remove: RemoveUser) -> Result<bool, Error> {
        self.submit(Op::RemoveUser, remove).await
    }

    pub async fn issue_credential(&self, new: NewCredential) -> Result<CredentialRecord, Error> {
        self.submit(Op::IssueCredential, new).await
    }

    /// Takes a sign-in link, which counts once. `None` if there is no such link, or if it has expired.
    pub async fn take_link(&self, take: TakeLink) -> Result<Option<CredentialRecord>, Error> {
        self.submit(Op::TakeLink, take).await
    }

    /// Records the use of a credential.
    pub async fn use_credential(&self, used: UseCredential) -> Result<(), Error> {
        self.submit(Op::UseCredential, used).await
    }

    /// Removes a credential. `false` if there is none.
    pub async fn revoke_credential(&self, revoke: RevokeCredential) -> Result<bool, Error> {
        self.submit(Op::RevokeCredential, revoke).await
    }

    /// Contacts with one of these identifiers, each as the one that it is merged into.
    /// Events by what refers to them, newest first.
    pub async fn find_referenced(&self, lookup: EventLookup) -> Result<Vec<EventSeq>, Error> {
        self.submit(Op::FindReferenced, lookup).await
    }

    /// Id of the record of an identity, for an effect of this job: as an earlier effect returned it.
    pub async fn remembered_record(&self, job: JobId, identity: RecordIdentity) -> Result<Option<Value>, Error> {
        /// Newest events that are looked at; all of them should have the same record.
        const EVENTS_MAX: usize = 16;
        let lookup = EventLookup::Identity(identity.clone());
        let mut seqs = self.find_referenced(lookup).await?;
        seqs.truncate(EVENTS_MAX);
        let mut effects = Vec::new();
        for (event, _) in self.events(seqs).await? {
            for other in self.jobs_of_event(event).await? {
                effects.extend(self.effects(other.id).await?);
            }
        }
        Ok(upsert::remembered(&effects, &identity, job))
    }

    /// Events of a contact and of those that are merged into it, newest first.
    pub async fn contact_events(&self, contact: ContactId, page: Page) -> Result<Vec<EventSeq>, Error> {
        self.submit(Op::ContactEvents, ContactEvents { contact, page }).await
    }

    pub async fn find_contacts(&self, identifiers: Vec<KeyDigest>) -> Result<Vec<ContactId>, Error> {
        self.submit(Op::FindContacts, ContactLookup { identifiers }).await
    }

    /// Makes two contacts one. Both keep their own state, so that [`Ledger::split_contact`] takes it back.
    pub async fn merge_contacts(&self, merge: MergeContacts) -> Result<ContactChange, Error> {
        self.submit(Op::MergeContacts, merge).await
    }

    /// Releases a quarantined event with an identity that an operator or a lookup supplies. Its jobs are announced like those that
    /// a later event releases.
    pub async fn identify(&self, identify: IdentifyEvent) -> Result<Identified, Error> {
        self.submit(Op::Identify, identify).await
    }

    /// Records that the lookups of an event found no identity, and when they are made again. `false` if the event was identified
    /// meanwhile, or the lookups were made by another process.
    pub async fn identity_lookup_ended(&self, ended: IdentityLookupEnded) -> Result<bool, Error> {
        self.submit(Op::IdentityLookupEnded, ended).await
    }

    /// Takes a contact out of the one that it is merged into.
    pub async fn split_contact(&self, split: SplitContact) -> Result<ContactChange, Error> {
        self.submit(Op::SplitContact, split).await
    }

    pub async fn find_event(&self, id: EventId) -> Result<Option<EventRecord>, Error> {
        let candidates = self.submit(Op::FindEvent, id).await?;
        Ok(self.events(candidates).await?.into_iter().map(|(event, _)| event).find(|event| event.id == id))
    }

    /// Events that match, newest first, with their jobs. Keys and contacts are found by their digests.
    pub async fn find_events(&self, filter: EventFilter, page: Page) -> Result<ListPage<ListedEvent>, Error> {
        let (keys, contacts) = (filter.keys.clone().unwrap_or_default(), filter.contacts.clone().unwrap_or_default());
        let found = match keys.is_empty() && contacts.is_empty() {
            true => FoundKeys::default(),
            false => self.submit(Op::FindKeys, KeyLookup { keys, contacts }).await?,
        };
        self.list_events(EventQuery::new(filter, found), page).await
    }

    /// Ids of jobs that match beyond an id, oldest first. Searches in several reads, so that none of them is long.
    pub async fn matching_jobs(&self, filter: JobFilter, after: JobId, limit: u32) -> Result<Vec<JobId>, Error> {
        let (mut found, mut after) = (Vec::new(), after);
        while found.len() < limit as usize {
            let missing = limit - found.len() as u32;
            let part = self.matching_jobs_part(filter.clone(), after, missing).await?;
            found.extend(part.rows);
            let Some(next) = part.next else { break };
            after = JobId(next);
        }
        Ok(found)
    }

    /// Events whose ids begin with this text, of at least [`EventId::SHORT_CHARACTERS`] characters after `evt_`.
    pub async fn find_by_short_id(&self, start: &str) -> Result<Vec<EventRecord>, Error> {
        let Some(smallest) = EventId::parse_shortened(start) else { return Ok(vec![]) };
        let start = start.trim().to_ascii_lowercase();
        let candidates = self.submit(Op::FindEvent, smallest).await?;
        let events = self.events(candidates).await?.into_iter().map(|(event, _)| event);
        Ok(events.filter(|event| event.id.to_string().starts_with(&start)).collect())
    }

    /// Number of jobs by state.
    pub async fn job_counts(&self) -> Result<Vec<(JobState, u64)>, Error> {
        Ok(count_by(self.job_totals().await?.iter().map(|total| (total.state, total.count))))
    }

    /// Number of live jobs by worker and state.
    pub async fn live_counts(&self) -> Result<Vec<(String, JobState, u64)>, Error> {
        let totals = self.job_totals().await?;
        let live = totals.iter().filter(|total| total.state.is_live());
        let counts = count_by(live.map(|total| ((total.worker.to_string(), total.state), total.count)));
        Ok(counts.into_iter().map(|((worker, state), count)| (worker, state, count)).collect())
    }
}

/// Sums by key, in the order of the keys.
fn count_by<K: Ord>(counts: impl Iterator<Item = (K, u64)>) -> Vec<(K, u64)> {
    let mut sums = std::collections::BTreeMap::new();
    for (key, count) in counts {
        *sums.entry(key).or_default() += count;
    }
    sums.into_iter().collect()
}
