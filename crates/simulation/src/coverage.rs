//! What a run has reached: every transition and every fault, counted.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use sluice_domain::job::{EffectState, JobState};

use super::Profile;

macro_rules! faults {
    ($($name:ident $text:literal)*) => {
        /// Something that goes wrong, or that somebody does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Fault { $($name,)* }

        impl Fault {
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];

            /// What a person reads.
            pub fn as_str(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }
        }
    };
}

faults! {
    SenderRepeats "sender: repeats"
    SenderReorders "sender: out of order"
    SenderBurst "sender: burst about one entity"
    SenderLate "sender: repeats after the key's lifetime"
    SenderClash "sender: same key, other content"
    SenderMissesAnswer "sender: does not hear the answer"
    SenderMeetsClosedDoor "sender: node is down"
    SenderTurnedAway "sender: turned away"
    CallRefused "destination: connection refused"
    CallTimedOutUnapplied "destination: time-out before applying"
    CallTimedOutApplied "destination: time-out after applying"
    CallCutApplied "destination: connection cut after applying"
    CallServerErrorUnapplied "destination: 5xx before applying"
    CallServerErrorApplied "destination: 5xx after applying"
    CallAway "destination: 503, surely not applied"
    CallThrottled "destination: 429"
    CallThrottledUntil "destination: 429 with Retry-After"
    CallThrottledAbsurdly "destination: 429 with an absurd Retry-After"
    CallConflict "destination: conflict"
    CallRejected "destination: rejected for good"
    CallUnauthorized "destination: credentials refused"
    CallNoop "destination: nothing to do"
    CallSlow "destination: answers after the time-out"
    CallLandsLate "destination: applies after the time-out, perhaps after a newer write"
    CallPanics "connector: panics"
    Rechecked "straggler: a confirmed write is compared with its record"
    RecordOverwritten "straggler: a record differs and is written again"
    Batch "call: for several jobs"
    BatchItemRefused "destination: refuses one job of a call"
    BatchPartlyApplied "destination: applies a part of a call whose answer is lost"
    BatchRejected "destination: rejects a call for several jobs"
    RecordedWithOutcome "call: recorded together with its outcome"
    ContinuedAfterStep "step: with on_error continue"
    Undoing "undo: an effect is taken back"
    Expired "queue: a job expires"
    QuietHours "policy: quiet hours"
    PolicyRefused "policy: an effect is skipped"
    Suppressed "operator: suppresses a contact, or no longer"
    Swept "sweep: a dead letter is requeued by a worker"
    Rerouted "scheduler: the route of a job is written"
    Postponed "scheduler: a replay waits for the calls above the reserve"
    BudgetExhausted "call: its slot has used the calls that the budget allows it"
    RollBack "operator: rolls the configuration back"
    Outage "destination: outage"
    OutageEnds "destination: outage ends"
    Flapping "destination: flaps"
    CredentialsBroken "destination: credentials broken"
    ReadLagging "read-back: does not show it yet"
    ReadUnreadable "read-back: cannot be asked"
    ReadLies "read-back: lies"
    CrashIdle "crash: at any time"
    CrashBeforeCommit "crash: before a commit"
    CrashAfterCommit "crash: after a commit, before the answers"
    CrashAfterIntent "crash: after the intent, before the call"
    CrashAfterSend "crash: after the call left"
    CrashAfterAnswer "crash: after the answer, before it is written"
    LateWrite "crash: a write arrives after the next start"
    CrashInRecovery "crash: in the middle of recovery"
    CommitLost "disk: commit failed, not written"
    CommitInDoubt "disk: commit failed, written all the same"
    DiskFull "disk: full for new events"
    DiskFullForAll "disk: full for everything"
    DiskStalls "disk: stalls"
    ReadFails "disk: reading fails"
    ClockForward "clock: jumps forward"
    ClockBack "clock: jumps back"
    ClockFarAhead "clock: jumps forward by months"
    ClockFarBack "clock: jumps back by months"
    ClockReturns "clock: is right again"
    PruningHeld "clock: in doubt, nothing is pruned"
    Reboot "crash: the machine starts anew"
    Pause "operator: pauses"
    Resume "operator: resumes"
    Replay "operator: replays"
    ReplayLatestConfig "operator: replays with the latest configuration"
    Drop "operator: drops"
    ResolveHappened "operator: says it happened"
    ResolveDidNotHappen "operator: says it did not happen"
    Reconfigure "operator: reconfigures"
    ContactsMerged "operator: merges two contacts"
    ContactSplit "operator: splits a contact"
    ContactBusy "operator: a contact whose jobs have not ended is neither merged nor split"
    Prune "upkeep: prunes"
    CrashAfterMark "crash: after a mark, before what it guards"
    MarkSet "mark: set"
    MarkFound "mark: another job has set it"
    MarkFoundAgain "mark: found again by its owner"
    ItemFollows "items: one after the other"
    ItemPaced "items: the next one waits for its time"
    Asked "approval: asked"
    Approved "approval: approved"
    Rejected "approval: rejected"
    ApprovalExpired "approval: expires"
    DecidedTwice "approval: decided otherwise a second time"
    CapReached "policy: a cap is reached"
    SafeModeOn "safe mode: begins"
    SafeModeOff "safe mode: ends"
    SafeModeHolds "safe mode: puts a step off"
    BudgetUsedUp "budget: exhausted"
    AlertFired "alert: fires"
    AlertRecovered "alert: recovers"
    RecordCreated "upsert: creates the record"
    RecordFound "upsert: finds the record"
    RecordRemembered "upsert: updates the record that it remembers"
    CreateLandsLate "upsert: a create is applied after its time-out"
    CreateFoundLater "upsert: a read-back finds the record of a lost create"
    IdentityBusy "upsert: waits for another effect of its identity"
    EventEdited "operator: edits an event"
    EditBusy "operator: an event whose jobs have not ended is not edited"
    EditLateCall "operator: an event is not edited while a call of it may be applied late"
    EditOutdated "operator: an edit of an older revision is refused"
    Escalated "response: a person is told"
    ResponseMet "response: in time"
    ResponseMissed "response: late"
}

/// Job transitions that a node can write, and so have to be reached. A run that passes steps over ends without a try.
const TRANSITIONS: &[(JobState, JobState)] = {
    use JobState::*;
    &[
        (Queued, Running),
        (Queued, Waiting),
        (Queued, Succeeded),
        (Queued, Noop),
        (Queued, Dead),
        (Running, Queued),
        (Running, Retrying),
        (Running, Waiting),
        (Running, Succeeded),
        (Running, Noop),
        (Running, Dead),
        (Running, Unknown),
        (Retrying, Running),
        (Retrying, Waiting),
        (Retrying, Dead),
        (Waiting, Running),
        (Waiting, Waiting),
        (Waiting, Retrying),
        (Waiting, Queued),
        (Waiting, Noop),
        (Waiting, Succeeded),
        (Waiting, Dead),
        (Waiting, Unknown),
        (Succeeded, Queued),
        (Noop, Queued),
        (Dead, Queued),
        (Dead, Dropped),
        (Unknown, Queued),
        (Unknown, Dropped),
    ]
};

/// Number of states of effects.
const EFFECT_STATES: usize = EffectState::ALL.len();

/// Effect transitions, the first one from nothing.
const EFFECT_TRANSITIONS: &[(Option<EffectState>, EffectState)] = {
    use EffectState::*;
    &[
        (None, Intent),
        (Some(Intent), Applied),
        (Some(Intent), Skipped),
        (Some(Intent), NotApplied),
        (Some(Intent), Unknown),
        (Some(NotApplied), Intent),
        (Some(Unknown), Intent),
        (Some(Unknown), Applied),
        (Some(Unknown), NotApplied),
        (Some(Rechecking), Applied),
        (Some(Applied), Superseded),
        (Some(Skipped), Abandoned),
        (Some(NotApplied), Abandoned),
    ]
};

/// What a gate did.
pub(super) const GATE_CHANGES: [&str; 4] = ["opened", "half-open", "closed", "auth-paused"];

const FAULTS: usize = Fault::ALL.len();

/// Counters of everything that a run has reached.
#[derive(Clone, Debug)]
pub struct Coverage {
    faults: [u64; FAULTS],
    jobs: [[u64; 9]; 9],
    effects: [[u64; EFFECT_STATES]; EFFECT_STATES + 1],
    gates: [u64; GATE_CHANGES.len()],
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            faults: [0; FAULTS],
            jobs: [[0; 9]; 9],
            effects: [[0; EFFECT_STATES]; EFFECT_STATES + 1],
            gates: [0; GATE_CHANGES.len()],
        }
    }
}

fn job_index(state: JobState) -> usize {
    match state.code() {
        code @ 0..=3 => code as usize,
        code => code as usize - 4,
    }
}

fn effect_index(state: EffectState) -> usize {
    EffectState::ALL.iter().position(|other| *other == state).unwrap_or(0)
}

impl Coverage {
    pub(super) fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub(super) fn job(&mut self, from: JobState, to: JobState) {
        self.jobs[job_index(from)][job_index(to)] += 1;
    }

    pub(super) fn effect(&mut self, from: Option<EffectState>, to: EffectState) {
        self.effects[from.map_or(EFFECT_STATES, effect_index)][effect_index(to)] += 1;
    }

    pub(super) fn gate(&mut self, change: usize) {
        self.gates[change] += 1;
    }

    /// Adds what another run has reached.
    pub fn add(&mut self, other: &Coverage) {
        let pairs = |a: &mut [u64], b: &[u64]| a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        pairs(&mut self.faults, &other.faults);
        pairs(&mut self.gates, &other.gates);
        self.jobs.iter_mut().zip(&other.jobs).for_each(|(a, b)| pairs(a, b));
        self.effects.iter_mut().zip(&other.effects).for_each(|(a, b)| pairs(a, b));
    }

    /// Every name with its count, in a fixed order.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let mut counts: Vec<(String, u64)> =
            Fault::ALL.iter().map(|fault| (fault.as_str().to_owned(), self.faults[*fault as usize])).collect();
        for (from, to) in TRANSITIONS {
            counts.push((format!("job: {from} → {to}"), self.jobs[job_index(*from)][job_index(*to)]));
        }
        for (from, to) in EFFECT_TRANSITIONS {
            let name = from.map_or("nothing", EffectState::as_str);
            let count = self.effects[from.map_or(EFFECT_STATES, effect_index)][effect_index(*to)];
            counts.push((format!("effect: {name} → {}", to.as_str()), count));
        }
        for (name, count) in GATE_CHANGES.iter().zip(self.gates) {
            counts.push((format!("gate: {name}"), count));
        }
        counts
    }

    /// Faults in all.
    pub fn faults_total(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Transitions in all.
    pub fn transitions_total(&self) -> u64 {
        self.jobs.iter().flatten().chain(self.effects.iter().flatten()).chain(&self.gates).sum()
    }

    /// What was never reached, of what a profile can reach.
    pub fn missing(&self, profile: Profile) -> Vec<String> {
        let expected = |name: &str| match profile {
            Profile::Calm | Profile::Network => false,
            Profile::Liar => true,
            Profile::Mixed | Profile::Crashes | Profile::Disk => name != Fault::ReadLies.as_str(),
        };
        // A slot has room for every request of a simulated run; the unit tests of budgets reach its end.
        let is_rare = |name: &str| name == Fault::BudgetExhausted.as_str();
        self.counts()
            .into_iter()
            .filter(|(name, count)| *count == 0 && expected(name) && !is_rare(name))
            .map(|(name, _)| name)
            .collect()
    }
}

impl Serialize for Coverage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counts = self.counts();
        let mut map = serializer.serialize_map(Some(counts.len()))?;
        for (name, count) in counts {
            map.serialize_entry(&name, &count)?;
        }
        map.end()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.counts() {
            writeln!(f, "  {count:>12}  {name}")?;
        }
        Ok(())
    }
}
