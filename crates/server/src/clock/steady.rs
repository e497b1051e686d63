//! The steady clock of the machine: counts from its start, also while it sleeps, and nobody can set it.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_domain::ledger_clock::Steady;

/// How precisely the steady clock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Counted by this process since the last reading of the machine's clock: cheap, and stands still while the machine sleeps.
    Counted,
    /// Read from the machine.
    Machine,
}

/// Source of the steady time.
pub type SteadyFn = Arc<dyn Fn(Precision) -> Steady + Send + Sync>;

/// Linux names each start of the machine, and counts from it over restarts of the process. Elsewhere every process is a start of
/// its own: time between two processes then counts as unobserved.
pub(super) fn of_the_machine() -> SteadyFn {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().filter(|_| uptime().is_some());
    let boot = match boot {
        Some(id) => hash(&id),
        None => RandomState::new().hash_one(std::process::id()),
    };
    let (started, at_start) = (Instant::now(), uptime().unwrap_or_default());
    let asleep_ms = AtomicU64::new(0);
    Arc::new(move |precision| {
        let counted = at_start + started.elapsed();
        if precision == Precision::Machine
            && let Some(uptime) = uptime()
        {
            let asleep = u64::try_from(uptime.saturating_sub(counted).as_millis()).unwrap_or(0);
            asleep_ms.fetch_max(asleep, Ordering::Relaxed);
        }
        Steady { boot, elapsed: counted + Duration::from_millis(asleep_ms.load(Ordering::Relaxed)) }
    })
}

/// The same in every process.
fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.trim().hash(&mut hasher);
    hasher.finish()
}

fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_of_one_machine_read_one_clock() {
        let (first, second) = (of_the_machine(), of_the_machine());
        let (before, after) = (first(Precision::Machine), second(Precision::Machine));
        if uptime().is_some() {
            assert_eq!(before.boot, after.boot);
            assert!(after.elapsed + Duration::from_millis(20) >= before.elapsed);
        }
        assert!(first(Precision::Counted).elapsed >= before.elapsed);
    }
}
