//! The read verbs, and what a driver implements for them.

/// The table of read verbs, handed to a macro that generates an implementation from it.
macro_rules! read_verbs {
    ($generate:ident) => {
        $generate! {
            /// Live jobs of one worker and destination that can run now.
            backlog(query: BacklogQuery) -> BacklogPage;
            /// Jobs with their events, bodies and effects, in the order of the request. A job whose event is gone is left
            /// out; a body that was removed is empty. Ends before the bodies exceed `body_bytes_max`, but not before the first job.
            load_jobs(jobs: Vec<JobId>, body_bytes_max: usize) -> Vec<LoadedJob>;
            /// Every pair of worker and destination that has live jobs.
            live_lanes() -> Vec<LiveLane>;
            /// Number of jobs by worker, destination, state and dead-letter queue. Kept, not counted.
            job_totals() -> Vec<JobTotal>;
            /// Lanes in which queued jobs wait behind a job that is not due at `now` of the steady clock; the one that has waited
            /// longest comes first. Looks at the oldest queued jobs of each worker and destination.
            blocked_lanes(now: Time, limit: u32) -> Vec<BlockedLane>;
            /// Of these live jobs, those that wait behind an older job of their lane that is not due at `now` of the steady clock,
            /// with the oldest such job.
            blocking_jobs(jobs: Vec<JobId>, now: Time) -> Vec<(JobId, JobId)>;
            /// Ages of the oldest live jobs and dead letters.
            oldest_jobs() -> OldestJobs;
            /// Number of events. Kept, not counted.
            event_count() -> u64;
            /// Rows that retention has deleted, by kind.
            pruned_totals() -> BTreeMap<String, u64>;
            /// The ledger's clock as it was stored last, not before the newest event; `None` if it was never stored.
            clock() -> Option<ClockRecord>;
            /// Events by sequence number, with bodies where they are still stored.
            events(seqs: Vec<EventSeq>) -> Vec<(EventRecord, Option<EventBody>)>;
            /// Events with their requests, oldest first.
            events_after(query: StoredQuery) -> Vec<StoredEvent>;
            /// Sequence numbers of the first event that was received at or after a time, and of the last event. Events are in the
            /// order of their commits: a few of the first ones may have been received earlier.
            event_span(since: Time) -> Option<(EventSeq, EventSeq)>;
            /// Other contents that were received under the key of an event.
            variants(event: EventSeq) -> Variants;
            /// How often and how late a source sends duplicates.
            duplicate_stats(source: String) -> DuplicateStats;
            /// Fields of a source's events whose conversion lost something, with how often and when last.
            mapping_warnings(source: String) -> Vec<MappingWarningCount>;
            jobs_of_event(event: EventRecord) -> Vec<JobRecord>;
            job(id: JobId) -> Option<JobRecord>;
            /// Jobs by id, ascending. Those that do not exist are left out.
            jobs(ids: Vec<JobId>) -> Vec<JobRecord>;
            /// The effects of a job in the order of its steps; of one step, the one that was begun last first.
            effects(job: JobId) -> Vec<EffectRecord>;
            /// The attempts of a job in their order.
            attempts(job: JobId) -> Vec<AttemptRecord>;
            /// Events that match, newest first, with their jobs.
            list_events(query: EventQuery, page: Page) -> ListPage<ListedEvent>;
            /// Jobs that match, newest first, with their events.
            list_jobs(filter: JobFilter, page: Page) -> ListPage<(JobRecord, EventRecord)>;
            /// Ids of jobs that match beyond an id, oldest first, as far as they are found in the time of one read.
            matching_jobs_part(filter: JobFilter, after: JobId, limit: u32) -> ListPage<JobId>;
            /// Failures of dead and unknown jobs since a time, most frequent first.
            dead_reasons(since: Time, limit: u32) -> Vec<Reason>;
            /// Dead letters by why they died, the one with the newest first. Kept, not scanned.
            failure_groups(query: GroupQuery) -> Vec<FailureGroup>;
            failure_group(id: GroupId) -> Option<FailureGroup>;
            /// Number of failure groups with dead letters, by state.
            failure_group_counts() -> Vec<(GroupState, u64)>;
            /// Replays, newest first.
            replays(page: Page) -> Vec<ReplayRecord>;
            /// Replays that are running, oldest first.
            running_replays() -> Vec<ReplayRecord>;
            replay_record(id: ReplayId) -> Option<ReplayRecord>;
            import_record(id: ImportId) -> Option<ImportRecord>;
            /// Imports, newest first.
            imports(page: Page) -> Vec<ImportRecord>;
            pauses() -> Vec<PauseRecord>;
            /// When the next lane is due to be compared with its record.
            next_straggler() -> Option<Time>;
            /// The files of a revision of the configuration.
            revision(hash: Arc<str>) -> Option<String>;
            /// Activations of revisions, newest first: the first one is active.
            revision_history(page: Page) -> Vec<RevisionRecord>;
            /// Number of live jobs and dead letters by revision, worker and queues.
            pinned() -> Vec<PinnedRecord>;
            /// Entries of the audit trail that match, newest first.
            audit_entries(filter: AuditFilter, page: Page) -> ListPage<AuditRecord>;
            /// What each source has sent since the start of a day, and the sequence numbers of the events since then. Of one snapshot.
            balance_start(day: Time) -> (Vec<SourceDayCounts>, Range<EventSeq>);
            /// What became of at most so many events beyond one.
            balance_part(after: EventSeq, limit: u32) -> BalancePart;
            /// What each source has sent on each day since one (`2026-11-15`).
            source_day_counts(since_day: String) -> Vec<SourceDayCounts>;
            /// Intervals of a measure, oldest first, at most [`POINTS_MAX`](sluice_domain::history::series::POINTS_MAX).
            history(query: HistoryQuery) -> Vec<HistoryRow>;
            /// Counters of the ledger since it was created. Kept with what they count, so they are exact.
            counter_totals() -> Vec<CounterTotal>;
            /// Every alert, by kind and subject.
            alerts() -> Vec<Alert>;
            /// Learned shapes of payloads, by source and type.
            shapes(source: Option<String>) -> Vec<ShapeRecord>;
            /// The last event whose payload was learned.
            payloads_seen() -> Option<EventSeq>;
            /// Sources with open notices about their payloads, and how many.
            drifting_sources() -> Vec<(String, u64)>;
            /// The configuration that runs beside the active one.
            shadow() -> Option<ShadowRecord>;
            /// Response clocks that are due, with what became of their events, oldest first.
            due_responses(now: Time, limit: u32) -> Vec<DueResponse>;
            /// Response clocks that run, newest event first.
            responses(page: Page) -> Vec<ResponseClock>;
            /// Number of response clocks that run, by flow and state.
            response_counts() -> Vec<ResponseCount>;
            /// Facts about a contact that policies are evaluated with.
            contact_facts(contact: KeyDigest, channel: Arc<str>, purposes: Vec<Arc<str>>) -> ContactFacts;
            /// The contact of an event, with the last confirmed write of a step. `None` if the event has none.
            contact_of_event(event: EventSeq, slot: WriteSlot) -> Option<ContactView>;
            /// A contact with everything that is merged into it.
            contact(id: ContactId) -> Option<ContactRecord>;
            /// Contacts, newest first: those that are not merged into another one, or all that have conflicts.
            contacts(conflicts_only: bool, page: Page) -> Vec<ContactRecord>;
            /// The identity that was supplied for an event after it was accepted, or until when the event waits for one.
            event_identity(event: EventSeq) -> EventIdentity;
            /// Quarantined events whose lookups are due, and how often they were made; oldest first.
            due_identity_lookups(at: Time, limit: u32) -> Vec<(EventSeq, u32)>;
            /// Requests that were answered as duplicates of an event.
            event_duplicates(event: EventSeq) -> Option<EventDuplicates>;
            /// An event as it was accepted, and its edits, in their order. Empty if there is no such event.
            event_revisions(event: EventSeq) -> Vec<EventRevisionRecord>;
            /// Events of a contact, and of those that are merged into it, whose identity was supplied later; newest first.
            supplied_identities(contact: ContactId, limit: u32) -> Vec<IdentityRecord>;
            /// Number of effects that count under a cap.
            cap_used(cap: CapReservation, now: Time) -> u64;
            /// Suppressed contacts, newest first.
            suppressions(page: Page) -> Vec<SuppressionRecord>;
            approval(id: ApprovalId) -> Option<ApprovalRecord>;
            /// Approvals that match, newest first.
            approvals(filter: ApprovalFilter, page: Page) -> Vec<ApprovalRecord>;
            /// Every safe mode that was not turned off, also if it has ended.
            safe_modes() -> Vec<SafeModeRecord>;
            /// Sequence number of the last change that all nodes must agree on: pauses, safe mode, the active revision, suppression.
            change_seq() -> u64;
            /// The keys that seal the ledger, without their values.
            keys() -> KeysRecord;
            /// A user of the admin API.
            user(name: String) -> Option<UserRecord>;
            /// Users by name.
            users() -> Vec<UserRecord>;
            /// The credential of a secret, valid or not.
            credential(digest: SecretDigest) -> Option<CredentialRecord>;
            /// Credentials, newest first, at most 1,000.
            credentials(kind: CredentialKind) -> Vec<CredentialRecord>;
        }
    };
}

pub(crate) use read_verbs;

/// Everything that the table names, for the modules that expand it.
pub(crate) mod prelude {
    pub(crate) use std::collections::BTreeMap;
    pub(crate) use std::ops::Range;
    pub(crate) use std::sync::Arc;

    pub(crate) use sluice_domain::access::CredentialKind;
    pub(crate) use sluice_domain::alert::Alert;
    pub(crate) use sluice_domain::approval::ApprovalId;
    pub(crate) use sluice_domain::contact::{ContactId, ContactView, WriteSlot};
    pub(crate) use sluice_domain::duplicate_stats::{DuplicateStats, EventDuplicates};
    pub(crate) use sluice_domain::failure_group::{FailureGroup, GroupId, GroupState};
    pub(crate) use sluice_domain::history::series::{HistoryQuery, HistoryRow};
    pub(crate) use sluice_domain::import::ImportId;
    pub(crate) use sluice_domain::job::JobId;
    pub(crate) use sluice_domain::key::KeyDigest;
    pub(crate) use sluice_domain::ledger_clock::ClockRecord;
    pub(crate) use sluice_domain::policy::{CapReservation, ContactFacts};
    pub(crate) use sluice_domain::replay::ReplayId;
    pub(crate) use sluice_domain::respond::{DueResponse, ResponseClock};
    pub(crate) use sluice_domain::schedule::backlog::{BacklogPage, BacklogQuery};
    pub(crate) use sluice_domain::time::Time;

    pub(crate) use crate::Error;
    pub(crate) use crate::access::{CredentialRecord, SecretDigest, UserRecord};
    pub(crate) use crate::audit::AuditFilter;
    pub(crate) use crate::balance::{BalanceOutcome, BalancePart};
    pub(crate) use crate::event_edit::EventRevisionRecord;
    pub(crate) use crate::failure_group::GroupQuery;
    pub(crate) use crate::filter::{ApprovalFilter, EventQuery, JobFilter, ListPage, Page, StoredQuery};
    pub(crate) use crate::op::ApprovalRecord;
    pub(crate) use crate::record::*;
}

use prelude::*;

macro_rules! define_trait {
    ($($(#[$doc:meta])* $verb:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        /// The read verbs. Each reads one snapshot.
        pub(crate) trait ReadStore {
            $($(#[$doc])* fn $verb(&self, $($argument: $type),*) -> impl Future<Output = Result<$output, Error>> + Send;)*
        }
    };
}

read_verbs!(define_trait);
