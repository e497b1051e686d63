//! Warnings about the node: the one place where they are collected. Each has a stable code, says what is wrong and what to do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_domain::call_budget::CallBudgetView;
use sluice_domain::config::Revision;
use sluice_domain::schedule::SchedulerView;
use sluice_domain::schedule::gate::PauseReason;
use sluice_domain::unit::{grouped, plural};
use sluice_ledger::BlockedLane;

use crate::clock::CLOCK_ACTION;
use crate::config::{self, Severity};
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::WarningView;
use crate::run::{self, StartError};

/// Jobs that have waited longer behind another job of their lane are reported.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Lanes that are named; the rest is counted.
const LANES_NAMED_MAX: usize = 5;
const LANES_MAX: u32 = 100;

impl Operator {
    /// Every warning. `view` is absent without a running node.
    pub(super) async fn warnings(&self, view: Option<&SchedulerView>) -> Result<Vec<WarningView>, OperateError> {
        let mut warnings = self.config_warnings().await;
        warnings.extend(self.disk_warning());
        warnings.extend(self.clock_warning());
        warnings.extend(view.into_iter().flat_map(|view| self.gate_warnings(view)));
        warnings.extend(self.lane_warnings().await?);
        Ok(warnings)
    }

    fn disk_warning(&self) -> Option<WarningView> {
        self.ledger.stats().is_disk_full.load(Ordering::Relaxed).then(|| {
            WarningView::new(
                "disk-full",
                format!("the disk of {} is full: senders receive 503", self.settings.data.display()),
                "Free space or enlarge the disk; the node accepts events again by itself.",
            )
        })
    }

    fn clock_warning(&self) -> Option<WarningView> {
        let warning = self.clock.warning(self.clock.read_ledger_clock())?;
        Some(WarningView::new("clock", warning, CLOCK_ACTION))
    }

    fn gate_warnings(&self, view: &SchedulerView) -> Vec<WarningView> {
        let mut warnings = Vec::new();
        for (name, gate) in &view.gates {
            if gate.paused == Some(PauseReason::Auth) {
                warnings.push(WarningView::new(
                    "unauthorized",
                    format!("destination:{name} rejects the credentials and is paused"),
                    format!("Fix the credentials, then run `sluice resume destination:{name}`."),
                ));
            }
            warnings.extend(gate.budget.as_ref().and_then(|budget| budget_warning(name, budget)));
            let until = match gate.breaker {
                "closed" => continue,
                _ => gate.open_until.map(|until| self.clock.to_wall(until)),
            };
            let probe = until.map_or("one call is under way or comes next to test it".to_owned(), |until| {
                format!("one call tests it at {until}")
            });
            warnings.push(WarningView::new(
                "breaker-open",
                format!("the circuit breaker of destination:{name} is {}: its calls keep failing; {probe}", gate.breaker),
                format!("Its jobs wait and lose no attempts. Check the destination; `sluice jobs --state retrying` shows the failures of {name}."),
            ));
        }
        warnings
    }

    async fn lane_warnings(&self) -> Result<Vec<WarningView>, OperateError> {
        let now = self.clock.ledger_time();
        let mut lanes = self.ledger.blocked_lanes(self.clock.now(), LANES_MAX).await?;
        lanes.retain(|lane| now.since(lane.waits_since) >= STUCK_AFTER);
        let mut warnings: Vec<WarningView> = lanes.iter().take(LANES_NAMED_MAX).map(lane_warning).collect();
        if lanes.len() > LANES_NAMED_MAX {
            let more = grouped((lanes.len() - LANES_NAMED_MAX) as u64);
            warnings.push(WarningView::new(
                "lane-stuck",
                format!("{more} or more other lanes wait behind a job that is not due"),
                "See `sluice jobs --state retrying,waiting`.",
            ));
        }
        Ok(warnings)
    }

    /// Whether the files on disk are the active configuration, and compile.
    async fn config_warnings(&self) -> Vec<WarningView> {
        let (settings, revisions) = (self.settings.clone(), self.revisions.clone());
        let look = move || {
            let active = revisions.current().revision.clone();
            let files = match config::read(&settings.config) {
                Ok(files) => files,
                Err(error) => return Some(broken(&error.to_string(), &active)),
            };
            let on_disk = Revision::of(files.iter()).0;
            if on_disk == *active {
                return None;
            }
            match run::ready(&files, &**revisions.secrets()) {
                Ok(_) => Some(WarningView::new(
                    "config-not-active",
                    format!("the configuration on disk is revision {on_disk}, and revision {active} is active"),
                    "`sluice plan` shows the difference; `sluice reload` activates the files.",
                )),
                Err(StartError::Config(compiled, _)) => {
                    let mut errors = compiled.problems.iter().filter(|problem| problem.severity == Severity::Error);
                    let first = errors.next().map(|problem| format!("{}: {}", problem.place(), problem.message));
                    let more = match errors.count() as u64 {
                        0 => String::new(),
                        more => format!(" (and {})", plural(more, "more error")),
                    };
                    Some(broken(&format!("{}{more}", first.unwrap_or_default()), &active))
                }
                Err(error) => Some(broken(&error.to_string(), &active)),
            }
        };
        tokio::task::spawn_blocking(look).await.ok().flatten().into_iter().collect()
    }
}

fn broken(problem: &str, active: &str) -> WarningView {
    let active = if active.is_empty() { String::new() } else { format!("; revision {active} stays active") };
    WarningView::new(
        "config-broken",
        format!("the configuration on disk has errors{active}: {problem}"),
        "`sluice check` shows every problem. The node does not start with these files.",
    )
}

fn lane_warning(lane: &BlockedLane) -> WarningView {
    let head = &lane.head;
    let (behind, id, state) = (plural(lane.jobs_behind, "job"), head.id, head.state);
    let to = if head.destination.is_empty() { String::new() } else { format!(" to destination:{}", head.destination) };
    WarningView::new(
        "lane-stuck",
        format!(
            "{behind} of worker:{}{to} wait behind {id}, which is {state} after {}; the oldest has waited since {}",
            head.worker,
            plural(u64::from(head.attempts_total), "attempt"),
            lane.waits_since
        ),
        format!("`sluice jobs show {id}` says what it waits for. Jobs of one entity run in their order."),
    )
}

/// A budget whose calls are used up, or are reserved for live traffic.
fn budget_warning(name: &str, budget: &CallBudgetView) -> Option<WarningView> {
    let (limit, until) = (grouped(budget.limit?), budget.resets_at?);
    let used = grouped(budget.used);
    let message = match (budget.left?, budget.left_for_replays?) {
        (0, _) => format!(
            "the budget of destination:{name} is used up ({used} of {limit} calls); its jobs wait until {until}"
        ),
        (left, 0) if budget.reserve > 0 => format!(
            "destination:{name} has {} of {limit} calls left, all reserved for live traffic; replays and imports wait",
            grouped(left)
        ),
        _ => return None,
    };
    let action =
        format!("`sluice destinations show {name}` has the forecast; raise `budget:` if the destination allows more.");
    Some(WarningView::new("budget", message, action))
}
