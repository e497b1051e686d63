//! `budget:` of a destination.

use std::time::Duration;

use sluice_domain::call_budget::{BudgetWindow, CallBudgetSettings};
use sluice_domain::destination::DestinationKind;
use sluice_domain::policy::{TimeOfDay, zone};

use super::diagnostics::Report;
use super::fields::Fields;
use super::node::YamlNode;
use super::rule::at_most_one;
use super::table::{SectionSpec, ValueType, key};

const RESERVE_PERCENT: u32 = 20;
const CALLS_MAX: u32 = 1_000_000_000;
const WINDOW_MIN: Duration = Duration::from_secs(60);
const WINDOW_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

pub(super) static BUDGET: SectionSpec = SectionSpec {
    title: "a budget",
    about: "Calls that a destination may get in a day. Live traffic may use all of them, replays and imports what is above the reserve. \
            Jobs wait when none are left. A batch is one call; read-backs and token requests count.",
    keys: &[
        key("calls", ValueType::Count(1, CALLS_MAX), "Calls in one window. Salesforce and HubSpot report it; where both are known, the smaller one counts.")
            .or("what the destination reports"),
        key("reset", ValueType::Clock, "Time of the day at which the count starts again.")
            .or("00:00, or a rolling day for salesforce"),
        key("zone", ValueType::Zone, "Time zone of `reset`.").or("UTC"),
        key("window", ValueType::Between(WINDOW_MIN, WINDOW_MAX), "Count the calls of this long before now instead of those since `reset`, in 24 parts: a call counts up to one part longer.")
            .or("24h for salesforce"),
        key("reserve", ValueType::Count(0, 100), "Percentage of the calls that only live traffic may use.").or("20"),
    ],
    later: &[],
    rules: &[
        at_most_one(&["window", "reset"], "`budget` must have `window` or `reset`, not both", "remove one of them"),
        at_most_one(&["window", "zone"], "`zone` is for `reset`", "remove `zone`"),
    ],
};

pub(super) fn read(report: Report<'_>, node: &YamlNode, kind: &DestinationKind) -> Option<CallBudgetSettings> {
    let fields = Fields::open(report, node, &[&BUDGET])?;
    let reports = matches!(kind, DestinationKind::Salesforce(_) | DestinationKind::Hubspot(_));
    if fields.node("calls").is_none() && !reports {
        let message = format!(
            "`budget` has no effect without `calls`: a {} destination does not report its limit",
            kind.as_str()
        );
        report.warning(node.span, "unused-key", message).hint("such as: calls: 15000");
        return None;
    }
    let calls: Option<u32> = fields.count("calls");
    let is_rolling_day = matches!(kind, DestinationKind::Salesforce(_))
        && fields.node("reset").is_none()
        && fields.node("zone").is_none();
    let window = match fields.duration("window") {
        Some(window) => BudgetWindow::Rolling(window),
        // The limit of Salesforce is that of the last 24 hours.
        None if is_rolling_day => BudgetWindow::Rolling(Duration::from_secs(24 * 3600)),
        None => BudgetWindow::Daily {
            reset: fields.clock("reset").unwrap_or(TimeOfDay(0)),
            zone: fields.text("zone").and_then(zone).or_else(|| zone("UTC"))?,
        },
    };
    Some(CallBudgetSettings {
        calls: calls.map(u64::from),
        window,
        reserve_percent: fields.count("reserve").unwrap_or(RESERVE_PERCENT),
    })
}
