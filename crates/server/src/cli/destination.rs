//! `sluice destinations show`.

use super::CliError;
use super::endpoints::held_back_by;
use super::node_access::NodeArgs;
use super::print::{self, Format, hint};
use super::table::{Cell, Column, Table, pairs};

use super::latency::seconds;
use super::print::ago;
use crate::operate::views::{DestinationDetail, DestinationLatencyView, FailureRuleView, PercentilesView};
use sluice_domain::unit::grouped;

/// Show one destination: gate, latencies, budget, failure rules
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sluice destinations show crm\n  sluice destinations show crm --rules")]
pub(super) struct Show {
    /// The destination
    name: String,
    /// List what error responses mean, in order of precedence
    #[arg(long)]
    rules: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

impl Show {
    pub(super) fn run(self) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let answer = client.get(&format!("/destinations/{}", self.name), &[]).await?;
            let Some(detail) = self.format.read::<DestinationDetail>(&answer)? else { return Ok(()) };
            print::print(&match self.rules {
                true => rendered_rules(&detail),
                false => rendered(&detail),
            })
        })
    }
}

fn rendered(detail: &DestinationDetail) -> String {
    let gate = detail.destination.gate.as_ref();
    let member = |name: &str| gate.and_then(|gate| gate.get(name));
    let number = |name: &str| member(name).map_or(String::new(), ToString::to_string);
    let text = |name: &str| member(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let time = |name: &str| member(name).and_then(serde_json::Value::as_str).map_or(String::new(), ago);
    let per_second = |name: &str| {
        let rate = member(name).and_then(serde_json::Value::as_f64);
        rate.map_or(String::new(), |rate| format!("{rate:.2}/s"))
    };
    let calls = detail.calls_today.map_or(String::new(), |calls| format!("{} of {}", calls.used, calls.limit));
    let of_them = |own: bool| detail.failure_rules.iter().filter(|rule| rule.own == own).count();
    let rules = match detail.failure_rules.is_empty() {
        true => String::new(),
        false => format!("{} of the connector, {} of the configuration", of_them(false), of_them(true)),
    };
    let shown = pairs([
        ("destination", detail.destination.name.clone()),
        ("type", detail.destination.kind.clone()),
        ("breaker", text("breaker")),
        ("in flight", number("in_flight")),
        ("allowed", number("concurrency")),
        ("maximum", number("concurrency_max")),
        ("rate", detail.rate.clone().unwrap_or_default()),
        ("learned rate", per_second("learned_rate")),
        ("open until", time("open_until")),
        ("asked to wait until", time("not_before")),
        ("failing since", time("failing_since")),
        ("held back by", held_back_by(&detail.destination)),
        ("our wait", percentiles(detail, |latency| latency.wait)),
        ("their time", percentiles(detail, |latency| latency.call)),
        ("budget", gate.and_then(budget).unwrap_or_default()),
        ("budget for replays", gate.and_then(budget_for_replays).unwrap_or_default()),
        ("runs out", gate.and_then(runs_out).unwrap_or_default()),
        ("calls today", calls),
        ("failure rules", rules),
    ]);
    match detail.failure_rules.is_empty() {
        true => shown,
        false => shown + &hint(&format!("\nThe rules: sluice destinations show {} --rules", detail.destination.name)),
    }
}

/// `p50 12.3ms, p95 40.1ms, p99 1.20s of 340 calls in 1h`.
fn percentiles(
    detail: &DestinationDetail,
    part: impl Fn(&DestinationLatencyView) -> Option<PercentilesView>,
) -> String {
    let Some(latency) = &detail.latency else { return String::new() };
    let Some(PercentilesView { count, p50, p95, p99 }) = part(latency) else { return String::new() };
    let (p50, p95, p99) = (seconds(p50), seconds(p95), seconds(p99));
    format!("p50 {p50}, p95 {p95}, p99 {p99} of {} calls in {}", grouped(count), latency.window)
}

/// `8,400 of 10,000 calls used (daily, until in 3h)`.
pub(super) fn budget(gate: &serde_json::Value) -> Option<String> {
    let budget = gate.get("budget")?;
    let used = grouped(budget.get("used")?.as_u64()?);
    let window = budget.get("window").and_then(serde_json::Value::as_str).unwrap_or_default();
    Some(match budget.get("limit").and_then(serde_json::Value::as_u64) {
        Some(limit) => format!("{used} of {} calls used ({window})", grouped(limit)),
        None => format!("{used} calls used; the destination has not reported its limit yet"),
    })
}

fn budget_for_replays(gate: &serde_json::Value) -> Option<String> {
    let budget = gate.get("budget")?;
    let left = budget.get("left_for_replays")?.as_u64()?;
    let reserve = budget.get("reserve")?.as_u64()?;
    Some(format!("{} calls left; {} are reserved for live traffic", grouped(left), grouped(reserve)))
}

/// The forecast of a budget.
fn runs_out(gate: &serde_json::Value) -> Option<String> {
    let budget = gate.get("budget")?;
    let time = |name: &str| budget.get(name).and_then(serde_json::Value::as_str);
    let (resets, left) = (time("resets_at").map(ago)?, budget.get("left")?.as_u64()?);
    let pace = grouped(budget.get("calls_per_hour").and_then(serde_json::Value::as_u64).unwrap_or(0));
    Some(match (left, time("runs_out_at")) {
        (0, _) => format!("now; used calls come back {resets}"),
        (_, Some(at)) => format!("{} at {pace} calls/h; used calls come back {resets}", ago(at)),
        (_, None) => format!("not before used calls come back {resets}, at {pace} calls/h"),
    })
}

fn rendered_rules(detail: &DestinationDetail) -> String {
    if detail.failure_rules.is_empty() {
        return format!("The connector of type {} has no table of failure rules.", detail.destination.kind);
    }
    let mut table = Table::new([
        Column::Whole("OF"),
        Column::Whole("CALL"),
        Column::Wrap("STATUS"),
        Column::Wrap("CODE"),
        Column::Wrap("CONTAINS"),
        Column::Whole("ACTION"),
        Column::Wrap("ADVICE"),
    ]);
    for rule in &detail.failure_rules {
        let FailureRuleView { from, call, status, code, contains, action, advice, .. } = rule;
        let row = [from, call, status, code, contains, action, advice];
        table.row(row.map(|cell| Cell::from(cell.as_str())));
    }
    table.render() + &hint("The first rule that matches applies. Add rules with `failure_rules:` of the destination.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn detail(budget: &serde_json::Value) -> DestinationDetail {
        let gate = json!({
            "breaker": "closed", "in_flight": 1, "concurrency": 4, "concurrency_max": 16, "budget": budget,
            "learned_rate": 48.5, "open_until": "2099-01-01T00:00:00Z", "not_before": "2099-01-02T00:00:00Z", "failing_since": "2099-01-03T00:00:00Z",
        });
        let percentiles = |p50: f64| json!({ "count": 1340, "p50": p50, "p95": p50 * 2.0, "p99": p50 * 4.0 });
        let rule = json!({
            "own": false, "from": "http", "call": "effect", "status": "408, 425", "code": "", "contains": "",
            "action": "retry", "advice": "did not accept the request this time",
        });
        serde_json::from_value(json!({
            "name": "crm", "type": "http", "gate": gate, "calls_today": null, "rate": "5/2s", "failure_rules": [rule],
            "latency": { "window": "1h", "wait": percentiles(0.002), "call": percentiles(0.4) },
        }))
        .unwrap()
    }

    #[test]
    fn budget_latencies_and_rules_are_shown_with_the_forecast() {
        let budget = json!({
            "limit": 10_000, "used": 8_400, "reserve": 2_000, "left": 1_600, "left_for_replays": 0, "is_reported": false,
            "calls_per_hour": 800, "runs_out_at": "2099-01-01T00:00:00Z", "resets_at": "2099-01-02T00:00:00Z", "window": "daily",
        });
        let shown = rendered(&detail(&budget));
        for part in [
            "8,400 of 10,000 calls used (daily)",
            "0 calls left; 2,000 are reserved for live traffic",
            "at 800 calls/h; used calls come back",
            "p50 2.0ms, p95 4.0ms, p99 8.0ms of 1,340 calls in 1h",
            "p50 400.0ms, p95 800.0ms, p99 1.60s",
            "5/2s",
            "48.50/s",
            "open until",
            "asked to wait until",
            "failing since",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        let mut used_up = budget.clone();
        (used_up["left"], used_up["used"]) = (json!(0), json!(10_000));
        let mut held = detail(&used_up);
        // Its breaker and its Retry-After would be named first.
        if let Some(gate) = &mut held.destination.gate {
            (gate["open_until"], gate["not_before"]) = (json!(null), json!(null));
        }
        let shown = rendered(&held);
        assert!(shown.contains("budget: no calls are left") && shown.contains("now; used calls come back"), "{shown}");
        let unknown =
            json!({ "used": 3, "reserve": 0, "is_reported": false, "calls_per_hour": 0, "window": "rolling" });
        assert!(rendered(&detail(&unknown)).contains("has not reported its limit yet"));
        let rules = rendered_rules(&detail(&budget));
        assert!(rules.contains("http") && rules.contains("408, 425"), "{rules}");
    }
}
