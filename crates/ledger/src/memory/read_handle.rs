//! The read verbs on the store behind the facade.

use super::StoreHandle;
use crate::read_store::ReadStore;
use crate::read_store::prelude::*;

type Result<T> = std::result::Result<T, Error>;

impl ReadStore for StoreHandle {
    async fn backlog(&self, query: BacklogQuery) -> Result<BacklogPage> {
        Ok(self.lock().backlog(&query))
    }

    async fn load_jobs(&self, jobs: Vec<JobId>, body_bytes_max: usize) -> Result<Vec<LoadedJob>> {
        Ok(self.lock().load_jobs(&jobs, body_bytes_max))
    }

    async fn live_lanes(&self) -> Result<Vec<LiveLane>> {
        Ok(self.lock().live_lanes())
    }

    async fn job_totals(&self) -> Result<Vec<JobTotal>> {
        Ok(self.lock().job_totals())
    }

    async fn blocked_lanes(&self, now: Time, limit: u32) -> Result<Vec<BlockedLane>> {
        Ok(self.lock().blocked_lanes(now, limit))
    }

    async fn blocking_jobs(&self, jobs: Vec<JobId>, now: Time) -> Result<Vec<(JobId, JobId)>> {
        Ok(self.lock().blocking_jobs(&jobs, now))
    }

    async fn oldest_jobs(&self) -> Result<OldestJobs> {
        Ok(self.lock().oldest_jobs())
    }

    async fn pruned_totals(&self) -> Result<BTreeMap<String, u64>> {
        Ok(self.lock().pruned_totals())
    }

    async fn clock(&self) -> Result<Option<ClockRecord>> {
        Ok(self.lock().clock())
    }

    async fn event_count(&self) -> Result<u64> {
        Ok(self.lock().event_count())
    }

    async fn events(&self, seqs: Vec<EventSeq>) -> Result<Vec<(EventRecord, Option<EventBody>)>> {
        Ok(self.lock().events(&seqs))
    }

    async fn events_after(&self, query: StoredQuery) -> Result<Vec<StoredEvent>> {
        Ok(self.lock().events_after(&query))
    }

    async fn event_span(&self, since: Time) -> Result<Option<(EventSeq, EventSeq)>> {
        Ok(self.lock().event_span(since))
    }

    async fn failure_groups(&self, query: GroupQuery) -> Result<Vec<FailureGroup>> {
        Ok(self.lock().list_failure_groups(&query))
    }

    async fn failure_group(&self, id: GroupId) -> Result<Option<FailureGroup>> {
        Ok(self.lock().failure_group(id))
    }

    async fn failure_group_counts(&self) -> Result<Vec<(GroupState, u64)>> {
        Ok(self.lock().failure_group_counts())
    }

    async fn shapes(&self, source: Option<String>) -> Result<Vec<ShapeRecord>> {
        Ok(self.lock().shapes(source.as_ref()))
    }

    async fn payloads_seen(&self) -> Result<Option<EventSeq>> {
        Ok(self.lock().payloads_seen())
    }

    async fn drifting_sources(&self) -> Result<Vec<(String, u64)>> {
        Ok(self.lock().drifting_sources())
    }

    async fn shadow(&self) -> Result<Option<ShadowRecord>> {
        Ok(self.lock().shadow())
    }

    async fn variants(&self, event: EventSeq) -> Result<Variants> {
        Ok(self.lock().variants(event))
    }

    async fn duplicate_stats(&self, source: String) -> Result<DuplicateStats> {
        Ok(self.lock().duplicate_stats(&source))
    }

    async fn mapping_warnings(&self, source: String) -> Result<Vec<MappingWarningCount>> {
        Ok(self.lock().mapping_warnings(&source))
    }

    async fn jobs_of_event(&self, event: EventRecord) -> Result<Vec<JobRecord>> {
        Ok(self.lock().jobs_of_event(&event))
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>> {
        Ok(self.lock().job(id).cloned())
    }

    async fn jobs(&self, mut ids: Vec<JobId>) -> Result<Vec<JobRecord>> {
        ids.sort_unstable();
        let store = self.lock();
        Ok(ids.into_iter().filter_map(|id| store.job(id).cloned()).collect())
    }

    async fn effects(&self, job: JobId) -> Result<Vec<EffectRecord>> {
        Ok(self.lock().effects(job))
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        Ok(self.lock().attempts(job))
    }

    async fn list_events(&self, query: EventQuery, page: Page) -> Result<ListPage<ListedEvent>> {
        Ok(self.lock().list_events(&query, page))
    }

    async fn list_jobs(&self, filter: JobFilter, page: Page) -> Result<ListPage<(JobRecord, EventRecord)>> {
        Ok(self.lock().list_jobs(&filter, page))
    }

    async fn matching_jobs_part(&self, filter: JobFilter, after: JobId, limit: u32) -> Result<ListPage<JobId>> {
        Ok(self.lock().matching_jobs_part(&filter, after, limit))
    }

    async fn dead_reasons(&self, since: Time, limit: u32) -> Result<Vec<Reason>> {
        Ok(self.lock().dead_reasons(since, limit))
    }

    async fn next_straggler(&self) -> Result<Option<Time>> {
        Ok(self.lock().next_straggler())
    }

    async fn replays(&self, page: Page) -> Result<Vec<ReplayRecord>> {
        Ok(self.lock().replays(page))
    }

    async fn running_replays(&self) -> Result<Vec<ReplayRecord>> {
        Ok(self.lock().running_replays())
    }

    async fn import_record(&self, id: ImportId) -> Result<Option<ImportRecord>> {
        Ok(self.lock().import_record(id))
    }

    async fn imports(&self, page: Page) -> Result<Vec<ImportRecord>> {
        Ok(self.lock().imports(page))
    }

    async fn replay_record(&self, id: ReplayId) -> Result<Option<ReplayRecord>> {
        Ok(self.lock().replay_record(id))
    }

    async fn pauses(&self) -> Result<Vec<PauseRecord>> {
        Ok(self.lock().pauses())
    }

    async fn revision(&self, hash: Arc<str>) -> Result<Option<String>> {
        Ok(self.lock().revision(&hash))
    }

    async fn revision_history(&self, page: Page) -> Result<Vec<RevisionRecord>> {
        Ok(self.lock().revision_history(page))
    }

    async fn pinned(&self) -> Result<Vec<PinnedRecord>> {
        Ok(self.lock().pinned())
    }

    async fn audit_entries(&self, filter: AuditFilter, page: Page) -> Result<ListPage<AuditRecord>> {
        Ok(self.lock().audit_entries(&filter, page))
    }

    async fn balance_part(&self, after: EventSeq, limit: u32) -> Result<BalancePart> {
        Ok(self.lock().balance_part(after, limit))
    }

    async fn balance_start(&self, day: Time) -> Result<(Vec<SourceDayCounts>, Range<EventSeq>)> {
        Ok(self.lock().balance_start(day))
    }

    async fn source_day_counts(&self, since_day: String) -> Result<Vec<SourceDayCounts>> {
        Ok(self.lock().source_day_counts(&since_day))
    }

    async fn history(&self, query: HistoryQuery) -> Result<Vec<HistoryRow>> {
        Ok(self.lock().history(&query))
    }

    async fn counter_totals(&self) -> Result<Vec<CounterTotal>> {
        Ok(self.lock().counter_totals())
    }

    async fn alerts(&self) -> Result<Vec<Alert>> {
        Ok(self.lock().alerts())
    }

    async fn due_responses(&self, now: Time, limit: u32) -> Result<Vec<DueResponse>> {
        Ok(self.lock().due_responses(now, limit))
    }

    async fn responses(&self, page: Page) -> Result<Vec<ResponseClock>> {
        Ok(self.lock().responses(page))
    }

    async fn response_counts(&self) -> Result<Vec<ResponseCount>> {
        Ok(self.lock().response_counts())
    }

    async fn contact_facts(
        &self,
        contact: KeyDigest,
        channel: Arc<str>,
        purposes: Vec<Arc<str>>,
    ) -> Result<ContactFacts> {
        Ok(self.lock().contact_facts(contact, &channel, &purposes))
    }

    async fn contact_of_event(&self, event: EventSeq, slot: WriteSlot) -> Result<Option<ContactView>> {
        Ok(self.lock().contact_of_event(event, slot))
    }

    async fn event_revisions(&self, event: EventSeq) -> Result<Vec<EventRevisionRecord>> {
        Ok(self.lock().event_revisions(event))
    }

    async fn event_identity(&self, event: EventSeq) -> Result<EventIdentity> {
        Ok(self.lock().event_identity(event))
    }

    async fn due_identity_lookups(&self, at: Time, limit: u32) -> Result<Vec<(EventSeq, u32)>> {
        Ok(self.lock().due_identity_lookups(at, limit))
    }

    async fn event_duplicates(&self, event: EventSeq) -> Result<Option<EventDuplicates>> {
        Ok(self.lock().event_duplicates(event))
    }

    async fn supplied_identities(&self, contact: ContactId, limit: u32) -> Result<Vec<IdentityRecord>> {
        Ok(self.lock().supplied_identities(contact, limit))
    }

    async fn contact(&self, id: ContactId) -> Result<Option<ContactRecord>> {
        Ok(self.lock().contact(id))
    }

    async fn contacts(&self, conflicts_only: bool, page: Page) -> Result<Vec<ContactRecord>> {
        Ok(self.lock().contacts(conflicts_only, page))
    }

    async fn cap_used(&self, cap: CapReservation, now: Time) -> Result<u64> {
        Ok(self.lock().cap_used(&cap, now))
    }

    async fn user(&self, name: String) -> Result<Option<UserRecord>> {
        Ok(self.lock().user(&name))
    }

    async fn users(&self) -> Result<Vec<UserRecord>> {
        Ok(self.lock().users())
    }

    async fn credential(&self, digest: SecretDigest) -> Result<Option<CredentialRecord>> {
        Ok(self.lock().credential(&digest))
    }

    async fn credentials(&self, kind: CredentialKind) -> Result<Vec<CredentialRecord>> {
        Ok(self.lock().credentials(kind))
    }

    async fn suppressions(&self, page: Page) -> Result<Vec<SuppressionRecord>> {
        Ok(self.lock().suppressions(page))
    }

    async fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalRecord>> {
        Ok(self.lock().approval(id))
    }

    async fn approvals(&self, filter: ApprovalFilter, page: Page) -> Result<Vec<ApprovalRecord>> {
        Ok(self.lock().approvals(&filter, page))
    }

    async fn safe_modes(&self) -> Result<Vec<SafeModeRecord>> {
        Ok(self.lock().safe_modes())
    }

    async fn change_seq(&self) -> Result<u64> {
        Ok(self.lock().change_seq())
    }

    /// Nothing is sealed in memory.
    async fn keys(&self) -> Result<KeysRecord> {
        Ok(KeysRecord { root: String::new(), tenant: vec![], contacts: 0, to_rewrap: 0 })
    }
}
