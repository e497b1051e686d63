//! Known bugs, each behind a switch, to prove that the simulation detects them.
//!
//! Without the feature `mutants` every switch is the constant `false`, and no bug is compiled in.

/// A bug that is easy to write. Its name describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Mutant {
    AckBeforeCommit,
    DedupAfterEnqueue,
    DuplicateAnsweredWithAnotherId,
    KeyWithReceiverTimestamp,
    GenerationReused,
    FsyncErrorIgnored,
    EffectMarkedAfterInsteadOfBefore,
    RecoveryRetriesIntentsWithoutVerifying,
    RecoveryForgetsRunningJobs,
    AttemptsResetByRestart,
    VerificationForgottenByRestart,
    PauseForgottenByRestart,
    TimeoutTreatedAsFailure,
    BlindEffectRepeated,
    AbsentBelievedAtFirstRead,
    UnreadableTakenForAbsent,
    LateResponseAccepted,
    AppliedNotAbsorbing,
    NoopRecordedAsApplied,
    ReplayWithNewKeys,
    WaitingCountsAsAttempt,
    AttemptsUnbounded,
    JitterMissing,
    RetryAfterIgnored,
    DeadLetterWithoutReason,
    LaneReleasedBeforeCommit,
    LaneIgnored,
    RetryGoesToTheBackOfTheLane,
    WorkerConcurrencyIgnored,
    WorkerPauseIgnored,
    DestinationPauseIgnored,
    AuthFailureDoesNotPause,
    RateIgnored,
    DestinationConcurrencyIgnored,
    HalfOpenStampede,
    BreakerIgnored,
    WindowForgetsWhatArrivesWhileLoading,
    RevivedJobNotLookedFor,
    TimerLost,
    BudgetResetByRestart,
    SafeModeForgottenByRestart,
    MarkSetTwice,
    MarkForgetsItsOwner,
    SecondAnswerCounts,
    CapIgnored,
    ItemsShareOneKey,
    PaceForgetsVerification,
    UndoForgotten,
    EveryJumpFollowed,
    StragglerForgotten,
    LostBatchAnswerMeansDone,
    OneRejectionFailsTheBatch,
    EqualIdentitiesInOneBatch,
    TrustIgnored,
    ClampMissing,
    CoalescingDropsField,
    LookupMadeAgain,
    AlertNotifiedBeforeAccept,
    NoticeKeyWithTime,
    ResponseKeptBeforeEscalation,
    MergeLosesLane,
    CallBudgetForgottenByRestart,
    CallReserveIgnored,
    UpsertWindowIgnored,
    IdentityClaimNotHeld,
    RememberedRecordIgnored,
    EditResendsApplied,
    CommitNotSynced,
    FailedCommitAnswered,
    CheckpointNeverResets,
}

impl Mutant {
    /// Bugs of the ledger on disk, which the simulation does not use.
    pub const DISK: [Mutant; 3] =
        [Mutant::CommitNotSynced, Mutant::FailedCommitAnswered, Mutant::CheckpointNeverResets];

    /// Bugs of the SQLite driver alone, which the tests of the ledger must detect.
    pub const SQLITE: [Mutant; 2] = [Mutant::DedupAfterEnqueue, Mutant::BudgetResetByRestart];

    /// Bugs that the simulation must detect.
    pub const ALL: [Mutant; 65] = [
        Mutant::AckBeforeCommit,
        Mutant::DuplicateAnsweredWithAnotherId,
        Mutant::KeyWithReceiverTimestamp,
        Mutant::GenerationReused,
        Mutant::FsyncErrorIgnored,
        Mutant::EffectMarkedAfterInsteadOfBefore,
        Mutant::RecoveryRetriesIntentsWithoutVerifying,
        Mutant::RecoveryForgetsRunningJobs,
        Mutant::AttemptsResetByRestart,
        Mutant::VerificationForgottenByRestart,
        Mutant::PauseForgottenByRestart,
        Mutant::TimeoutTreatedAsFailure,
        Mutant::BlindEffectRepeated,
        Mutant::AbsentBelievedAtFirstRead,
        Mutant::UnreadableTakenForAbsent,
        Mutant::LateResponseAccepted,
        Mutant::AppliedNotAbsorbing,
        Mutant::NoopRecordedAsApplied,
        Mutant::ReplayWithNewKeys,
        Mutant::WaitingCountsAsAttempt,
        Mutant::AttemptsUnbounded,
        Mutant::JitterMissing,
        Mutant::RetryAfterIgnored,
        Mutant::DeadLetterWithoutReason,
        Mutant::LaneReleasedBeforeCommit,
        Mutant::LaneIgnored,
        Mutant::RetryGoesToTheBackOfTheLane,
        Mutant::WorkerConcurrencyIgnored,
        Mutant::WorkerPauseIgnored,
        Mutant::DestinationPauseIgnored,
        Mutant::AuthFailureDoesNotPause,
        Mutant::RateIgnored,
        Mutant::DestinationConcurrencyIgnored,
        Mutant::HalfOpenStampede,
        Mutant::BreakerIgnored,
        Mutant::WindowForgetsWhatArrivesWhileLoading,
        Mutant::RevivedJobNotLookedFor,
        Mutant::TimerLost,
        Mutant::SafeModeForgottenByRestart,
        Mutant::MarkSetTwice,
        Mutant::MarkForgetsItsOwner,
        Mutant::SecondAnswerCounts,
        Mutant::CapIgnored,
        Mutant::ItemsShareOneKey,
        Mutant::PaceForgetsVerification,
        Mutant::UndoForgotten,
        Mutant::EveryJumpFollowed,
        Mutant::StragglerForgotten,
        Mutant::LostBatchAnswerMeansDone,
        Mutant::OneRejectionFailsTheBatch,
        Mutant::EqualIdentitiesInOneBatch,
        Mutant::TrustIgnored,
        Mutant::ClampMissing,
        Mutant::CoalescingDropsField,
        Mutant::LookupMadeAgain,
        Mutant::AlertNotifiedBeforeAccept,
        Mutant::NoticeKeyWithTime,
        Mutant::ResponseKeptBeforeEscalation,
        Mutant::MergeLosesLane,
        Mutant::CallBudgetForgottenByRestart,
        Mutant::CallReserveIgnored,
        Mutant::UpsertWindowIgnored,
        Mutant::IdentityClaimNotHeld,
        Mutant::RememberedRecordIgnored,
        Mutant::EditResendsApplied,
    ];

    /// True if this bug is active on this thread.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        false
    }

    /// True if this bug is active on this thread or on all threads.
    #[cfg(feature = "mutants")]
    #[inline]
    pub fn is_on(self) -> bool {
        ON.get() == Some(self) || EVERYWHERE.load(Ordering::Relaxed) == self as usize + 1
    }

    /// Runs a closure with this bug active on this thread.
    #[cfg(feature = "mutants")]
    pub fn while_on<T>(self, run: impl FnOnce() -> T) -> T {
        ON.set(Some(self));
        let result = run();
        ON.set(None);
        result
    }

    /// Runs a closure with this bug active on all threads.
    #[cfg(feature = "mutants")]
    pub fn while_on_everywhere<T>(self, run: impl FnOnce() -> T) -> T {
        EVERYWHERE.store(self as usize + 1, Ordering::Relaxed);
        let result = run();
        EVERYWHERE.store(0, Ordering::Relaxed);
        result
    }
}

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bug that is active on all threads, as its index plus one; 0 is none.
#[cfg(feature = "mutants")]
static EVERYWHERE: AtomicUsize = AtomicUsize::new(0);

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}
