//! Faults of a chaos run: kinds, counts and schedule.

use serde::Serialize;
use sluice_domain::random::Random;

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChaosFault {
    /// SIGKILL to the node.
    Kill,
    /// SIGSTOP to the node, SIGCONT some time later.
    Stop,
    /// Every write fails until the node has ended by itself.
    DiskFails,
    /// The disk is full for some time.
    DiskFull,
    /// Writes block for some time.
    SlowDisk,
    /// The wall clock of the running node is set.
    ClockSet,
    /// The CRM is unreachable for some time.
    Outage,
    /// SIGKILL to one of the sender processes.
    SenderKilled,
}

/// Number of faults of each kind, planned or injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounts {
    pub kills: u32,
    pub stops: u32,
    pub disk_failures: u32,
    pub disk_full: u32,
    pub slow_disk: u32,
    pub clock_sets: u32,
    pub outages: u32,
    pub sender_kills: u32,
}

impl FaultCounts {
    /// Every kind with its count and its description in the report.
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

    pub(super) fn total(self) -> u32 {
        self.all().iter().map(|(_, count, _)| count).sum()
    }

    pub(super) fn count(&mut self, fault: ChaosFault) {
        *match fault {
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

    /// Each fault with the share of the work after which it is injected, in ascending order. The schedule follows the work
    /// and not the clock, so that a slow machine meets as many faults under load as a fast one.
    pub(super) fn plan(self, random: &mut Random) -> Vec<(f64, ChaosFault)> {
        let mut plan: Vec<(f64, ChaosFault)> = self
            .all()
            .into_iter()
            .flat_map(|(fault, count, _)| std::iter::repeat_n(fault, count as usize))
            .map(|fault| (0.01 + random.unit() * 0.94, fault))
            .collect();
        plan.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_contains_every_wanted_fault() {
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
        plan.into_iter().for_each(|(_, fault)| done.count(fault));
        assert_eq!(done, wanted);
        assert_eq!(done.total(), 36);
    }
}
