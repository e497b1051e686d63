//! Invariants that hold whatever happens. `sluice verify` uses the same numbers.

use std::fmt;

macro_rules! invariants {
    ($($name:ident $number:literal $text:literal)*) => {
        /// An invariant of the engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Invariant { $($name,)* }

        impl Invariant {
            pub const ALL: &[Invariant] = &[$(Invariant::$name,)*];

            pub fn number(self) -> u32 {
                match self { $(Invariant::$name => $number,)* }
            }

            pub fn as_str(self) -> &'static str {
                match self { $(Invariant::$name => $text,)* }
            }
        }
    };
}

invariants! {
    AckMeansDurable 1 "every 202 is in the ledger, whatever happens afterwards"
    AtomicAccept 2 "an event is there with all of its jobs, or not at all"
    OneOwnerPerKey 3 "a key has one owner at a time, and generations follow each other"
    SameAnswer 4 "every duplicate gets the first answer"
    OneRunnerPerLane 7 "one run at a time in a lane, until its end is durable"
    LaneFifo 8 "jobs of one entity reach a destination in their order"
    IntentBeforeCall 9 "a call is recorded before a destination sees it"
    AtMostOneApplied 10 "an effect is applied at most once"
    DoneMeansDone 11 "an effect that is recorded as applied is at the destination"
    AppliedIsAbsorbing 12 "an applied effect is not begun again and does not change"
    UnknownNotRetriedBlindly 13 "an unknown effect is read back, or resolved by an operator, before it is sent again"
    StableKeys 14 "an effect keeps its key over retries, restarts and replays"
    AttemptsBounded 15 "attempts end, counted over crashes"
    BudgetRespected 16 "no contact uses more retries than its budget, counted over crashes"
    GateRespected 17 "rate, concurrency, Retry-After and breaker are kept"
    WaitingIsFree 18 "nothing is attempted while it is paused, and waiting costs no attempt"
    NothingStuck 19 "once faults end, every job ends"
    NothingDropped 20 "accepted is the sum of what became of it"
    DeadLettersComplete 21 "a dead letter says why, where and when"
    Fencing 22 "a write of an older attempt or owner changes nothing"
    MergeLaws 23 "a contact is the merge of its events, in whatever order they came"
    ClockSkewClamped 24 "no value of a contact is newer than the arrival of its event and the clock skew allow"
    CoalescingLosesNothing 25 "the last write of a contact has the merge of its events"
    ReplaysChangeNothing 34 "replaying finished jobs changes nothing at a destination"
    RetriesAreSpread 35 "retries are not due at the same instant"
    LegalTransitions 36 "a job changes only between states of its lifecycle"
    OneOwnerPerMark 38 "a mark has one owner at a time, to whom it stays set"
    DecisionsStand 39 "a step that needs an approval waits for it, and the first decision counts"
    CapsKept 40 "no more effects than a cap allows"
    EveryStepDone 41 "a job that succeeded has done every step, for every item"
    DeadIsUndone 42 "what a dead job did is undone where its worker says how, or the job says what is left"
    NothingPrunedEarly 43 "no event is deleted before its retention has really passed"
    NewestWriteStands 44 "in the end a record is as the last confirmed write of its lane left it"
    OwnOutcome 47 "a job settles what the destination said about its own effect"
    IdentitiesApart 48 "no call writes the same record twice"
    LookupsStand 49 "a job keeps what its lookup found first, over retries, restarts and replays"
    NothingUntold 50 "every change of an alert and every response at risk is told, whatever crashes"
    ToldOnce 51 "no change of an alert and no response at risk is told twice"
    OneLanePerContact 52 "jobs of one contact run in one lane, whichever of its merged contacts they came through"
    CallBudgetKept 53 "a destination gets no more calls than its budget allows, counted over crashes, and replays none of the reserve"
    OneRecordPerIdentity 54 "a system that creates a record for every create has one record for each identity"
    OpenCreatesWait 55 "no record is created while an earlier create of it may still be applied"
    EditsStand 56 "an edit keeps the original and counts its revisions, and sends again only what overwrites"
    SameInSqlite 37 "the ledger on disk answers and holds the same as the one in memory"
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.number(), self.as_str())
    }
}
