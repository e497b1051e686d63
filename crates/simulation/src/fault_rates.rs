//! Rates of faults. Each seed has its own: some faults often, some never.

use sluice_domain::random::Random;

use super::Profile;
use super::destinations::CALL_FAULTS;

/// Probability of each fault.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultRates {
    /// Of each call.
    pub call_fails: f64,
    pub noop: f64,
    calls: [bool; CALL_FAULTS],
    /// Of each read-back.
    pub read_fails: f64,
    pub lies: f64,
    /// At each point where a crash can lose something.
    pub crash: f64,
    /// Of each commit.
    pub commit_fails: f64,
    pub commit_stalls: f64,
    /// Of each read of live jobs.
    pub load_fails: f64,
    /// Of each webhook.
    pub sender: f64,
    /// At each disturbance, which comes about every minute.
    pub outage: f64,
    pub unauthorized: f64,
    pub disk_full: f64,
    pub clock: f64,
    pub crash_idle: f64,
    /// Whether operators act.
    pub operators: bool,
}

impl FaultRates {
    /// Nothing goes wrong.
    pub(crate) fn calm() -> FaultRates {
        FaultRates::default()
    }

    /// The rates of a seed under a profile.
    pub(crate) fn of(profile: Profile, random: &mut Random) -> FaultRates {
        let mut rates = match profile {
            Profile::Calm => return FaultRates { sender: 0.1, noop: 0.01, ..FaultRates::default() },
            Profile::Mixed | Profile::Liar => FaultRates::everything(random),
            Profile::Network => FaultRates {
                crash: 0.0,
                crash_idle: 0.0,
                commit_fails: 0.0,
                disk_full: 0.0,
                call_fails: 0.4,
                outage: 0.3,
                ..FaultRates::everything(random)
            },
            Profile::Crashes => FaultRates { crash: 0.004, crash_idle: 0.5, ..FaultRates::everything(random) },
            Profile::Disk => FaultRates {
                commit_fails: 0.004,
                commit_stalls: 0.02,
                disk_full: 0.4,
                ..FaultRates::everything(random)
            },
        };
        rates.lies = if profile == Profile::Liar { 0.3 } else { 0.0 };
        rates
    }

    fn everything(random: &mut Random) -> FaultRates {
        let mut some = |often: f64| if random.chance(0.75) { often * random.unit() } else { 0.0 };
        let mut rates = FaultRates {
            call_fails: some(0.5),
            noop: some(0.1),
            calls: [true; CALL_FAULTS],
            read_fails: some(0.3),
            lies: 0.0,
            crash: some(0.001),
            commit_fails: some(0.001),
            commit_stalls: some(0.005),
            load_fails: some(0.2),
            sender: some(0.5),
            outage: some(0.3),
            unauthorized: some(0.05),
            disk_full: some(0.1),
            clock: some(0.1),
            crash_idle: some(0.2),
            operators: true,
        };
        rates.operators = random.chance(0.8);
        for on in &mut rates.calls {
            *on = random.chance(0.6);
        }
        rates.calls[random.below(CALL_FAULTS as u64) as usize] = true;
        rates
    }

    /// How a call fails under these rates.
    pub(crate) fn pick_call(&self, random: &mut Random) -> usize {
        loop {
            let kind = random.below(CALL_FAULTS as u64) as usize;
            if self.calls[kind] {
                return kind;
            }
        }
    }
}
