//! What is done to the node and to those around it, how often, and when.

use serde::Serialize;
use sluice_domain::random::Random;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChaosFault {
    /// `kill -9`.
    Kill,
    /// SIGSTOP, and SIGCONT some time later.
    Stop,
    /// No write goes through any more, and the node must end by itself.
    DiskFails,
    /// There is no room on the disk for some time.
    DiskFull,
    /// Every write waits for some time.
    SlowDisk,
    /// The wall clock is set while the node runs.
    ClockSet,
    /// Nobody reaches the CRM for some time.
    Outage,
    /// `kill -9` for one of the processes that send.
    SenderKilled,
}

/// How often each happens, or has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounts {
    /// Times that the node is killed.
    pub kills: u32,
    /// Times that it is stopped for a moment, and goes on.
    pub stops: u32,
    /// Times that its disk fails, so that it has to end by itself.
    pub disk_failures: u32,
    /// Times that its disk is full for a moment.
    pub disk_full: u32,
    /// Times that its disk stands still for a moment.
    pub slow_disk: u32,
    /// Times that its wall clock is set while it runs.
    pub clock_sets: u32,
    /// Times that nobody reaches the CRM for a moment.
    pub outages: u32,
    /// Times that a process that sends is killed.
    pub sender_kills: u32,
}

impl FaultCounts {
    /// Each with its count and what happened, in words.
    pub(super) fn all(self) -> [(ChaosFault, u32, &'static str); 8] {
        [
            (ChaosFault::Kill, self.kills, "the node was killed"),
            (ChaosFault::Stop, self.stops, "the node was stopped"),
            (ChaosFault::DiskFails, self.disk_failures, "the disk failed and the node ended"),
            (ChaosFault::DiskFull, self.disk_full, "the disk was full and the node noticed"),
            (ChaosFault::SlowDisk, self.slow_disk, "the disk stood still"),
            (ChaosFault::ClockSet, self.clock_sets, "the clock was set"),
            (ChaosFault::Outage, self.outages, "the CRM was out of reach"),
            (ChaosFault::SenderKilled, self.sender_kills, "a sender was killed"),
        ]
    }

    /// All together.
    pub(super) fn total(self) -> u32 {
        self.all().iter().map(|(_, count, _)| count).sum()
    }

    /// Counts one.
    pub(super) fn count(&mut self, trouble: ChaosFault) {
        *match trouble {
            ChaosFault::Kill => &mut self.kills,
            ChaosFault::Stop => &mut self.stops,
            ChaosFault::DiskFails => &mut self.disk_failures,
            ChaosFault::DiskFull => &mut self.disk_full,
            ChaosFault::SlowDisk => &mut self.slow_disk,
            ChaosFault::ClockSet => &mut self.clock_sets,
            ChaosFault::Outage => &mut self.outages,
            ChaosFault::SenderKilled => &mut self.sender_kills,
        } += 1;
    }

    /// What happens after which share of the work, in ascending order. By work done and not by the clock: a slow machine sees as
    /// much trouble in the middle of things as a fast one.
    pub(super) fn plan(self, random: &mut Random) -> Vec<(f64, ChaosFault)> {
        let mut plan: Vec<(f64, ChaosFault)> = self
            .all()
            .into_iter()
            .flat_map(|(trouble, count, _)| std::iter::repeat_n(trouble, count as usize))
            .map(|trouble| (0.01 + random.unit() * 0.94, trouble))
            .collect();
        plan.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_and_done_is_what_was_wanted() {
        let wanted = FaultCounts {
            kills: 8,
            stops: 7,
            disk_failures: 6,
            disk_full: 5,
            slow_disk: 4,
            clock_sets: 3,
            outages: 2,
            sender_kills: 1,
        };
        let plan = wanted.plan(&mut Random::seeded(1));
        assert!(plan.is_sorted_by(|(one, _), (other, _)| one <= other));
        let mut done = FaultCounts::default();
        plan.into_iter().for_each(|(_, trouble)| done.count(trouble));
        assert_eq!(done, wanted);
        assert_eq!(done.total(), 36);
    }
}
