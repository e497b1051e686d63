//! What must hold, whatever happens. The numbers are those that `sluice verify` uses too.

use std::fmt;

macro_rules! invariants {
    ($($name:ident $number:literal $text:literal)*) => {
        /// What must hold, whatever happens.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Invariant { $($name,)* }

        impl Invariant {
            /// Every one.
            pub const ALL: &[Invariant] = &[$(Invariant::$name,)*];

            /// Its number.
            pub fn number(self) -> u32 {
                match self { $(Invariant::$name => $number,)* }
            }

            /// What it says.
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
    SameAnswer 4 "every repeat is told what the first was told"
    OneRunnerPerLane 7 "one run at a time in a lane, until its end is durable"
    LaneFifo 8 "jobs of one entity reach a destination in their order"
    IntentBeforeCall 9 "a call that a destination sees was written down before"
    AtMostOneApplied 10 "an effect happens at most once"
    DoneMeansDone 11 "what is written down as applied is there"
    AppliedIsAbsorbing 12 "what is applied is not begun again and does not change"
    UnknownNotRetriedBlindly 13 "what nobody knows is looked at, or decided by a person, before it is sent again"
    StableKeys 14 "an effect keeps its key over retries, restarts and replays"
    AttemptsBounded 15 "attempts end, counted over crashes"
    BudgetRespected 16 "no contact takes up more retries than it may, counted over crashes"
    GateRespected 17 "rate, concurrency, Retry-After and breaker are kept"
    WaitingIsFree 18 "nothing is tried while it is paused, and waiting costs no attempt"
    NothingStuck 19 "once faults end, everything comes to an end"
    NothingDropped 20 "accepted is the sum of what became of it"
    DeadLettersComplete 21 "a dead letter says why, where and when"
    Fencing 22 "what belongs to an older try changes nothing"
    ReplaysAreBoring 34 "replaying what is finished changes nothing at a destination"
    RetriesAreSpread 35 "retries do not come back in one instant"
    LegalTransitions 36 "a job only goes where its state may go"
    OneOwnerPerMark 38 "a mark has one owner at a time, who finds it again"
    AnswersStand 39 "what needs a person's word waits for it, and the first word counts"
    CapsKept 40 "no more effects than a cap allows"
    EveryStepDone 41 "a job that succeeded has done every step, for every item"
    SameInSqlite 37 "the ledger on disk answers and holds what the one in memory does"
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.number(), self.as_str())
    }
}
