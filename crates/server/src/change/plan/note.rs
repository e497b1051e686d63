//! Consequences of a change for senders and jobs, as text.

use sluice_domain::config::Config;
use sluice_domain::flow::Flow;
use sluice_domain::unit::{format_duration, plural};

use super::LedgerUsage;
use crate::config::{Difference, FieldDifference};

pub(super) fn notes(
    difference: &Difference,
    before: Option<&Config>,
    after: &Config,
    usage: &LedgerUsage,
) -> Vec<String> {
    let name = difference.thing.1.as_str();
    match difference.thing.0.as_str() {
        "flow" => flow(flow_of(before, name), flow_of(Some(after), name), usage),
        "worker" if difference.before => worker(difference, name, usage),
        "queue" if difference.before => queue(before, after, name),
        "destination" if difference.before && difference.after => {
            vec!["applies immediately, also to jobs accepted before".to_owned()]
        }
        _ => vec![],
    }
}

fn flow_of<'a>(config: Option<&'a Config>, name: &str) -> Option<&'a Flow> {
    config?.flows.get(name).map(|flow| &**flow)
}

fn flow(before: Option<&Flow>, after: Option<&Flow>, usage: &LedgerUsage) -> Vec<String> {
    let route = |flow: &Flow| format!("{} {}", flow.method, flow.path);
    let mut notes = vec![];
    match (before, after) {
        (None, Some(after)) => {
            notes.push(format!("{} becomes available; {}", route(after), proof(after)));
        }
        (Some(before), None) => {
            notes.push(format!("{} responds with 404{}", route(before), lately(before, usage)));
        }
        (Some(before), Some(after)) => {
            if route(before) != route(after) {
                let lately = lately(before, usage);
                notes.push(format!("senders of {} get 404 until they use {}{lately}", route(before), route(after)));
            }
            if proof(before) != proof(after) {
                notes.push(format!("before: {}; now: {}", proof(before), proof(after)));
            }
            let keys = |flow: &Flow| {
                flow.idempotency
                    .strategies
                    .iter()
                    .map(|strategy| strategy.describe())
                    .collect::<Vec<_>>()
                    .join(", then ")
            };
            if keys(before) != keys(after) {
                notes.push(format!(
                    "the key changes from {} to {}: a duplicate of an earlier event is accepted as a new event",
                    keys(before),
                    keys(after)
                ));
            }
            let (old, new) = (before.idempotency.ttl, after.idempotency.ttl);
            if new < old {
                notes.push(format!(
                    "a duplicate between {} and {} after the first event is accepted as a new event",
                    format_duration(new),
                    format_duration(old)
                ));
            }
            if before.source != after.source {
                notes.push("counts, pauses and keys are per source: they start empty under the new name".to_owned());
            }
        }
        (None, None) => {}
    }
    notes
}

fn proof(flow: &Flow) -> String {
    match &flow.verify {
        Some(verifier) => format!("senders are verified by {}", verifier.scheme()),
        None => "senders are not verified, so only callers on loopback are accepted".to_owned(),
    }
}

fn lately(flow: &Flow, usage: &LedgerUsage) -> String {
    match usage.accepted.get(&flow.source) {
        Some(count) if *count > 0 => {
            format!("; {} has sent {} in the last 7 days", flow.source, plural(*count, "event"))
        }
        _ => String::new(),
    }
}

fn worker(difference: &Difference, name: &str, usage: &LedgerUsage) -> Vec<String> {
    let (live, parked) = (usage.pinned.iter().filter(|record| record.worker == name))
        .fold((0, 0), |(live, parked), record| (live + record.live, parked + record.parked));
    if !difference.after || live + parked == 0 {
        return vec![];
    }
    let steps = |field: &FieldDifference| field.path.starts_with("run") || field.path.starts_with("steps");
    let jobs = format!("existing jobs ({live} live, {parked} dead letters)");
    let mut notes = vec![];
    if difference.fields.iter().any(steps) {
        notes.push(format!(
            "{jobs} keep the steps they were accepted with; `sluice replay --latest-config` uses the new ones"
        ));
    }
    if difference.fields.iter().any(|field| !steps(field)) {
        notes.push(format!("retry settings and concurrency apply immediately, also to {jobs}"));
    }
    let renamed = |field: &FieldDifference| {
        steps(field) && field.to.is_none() && field.path.matches('.').count() == 1 && !field.path.ends_with("(order)")
    };
    if difference.fields.iter().any(renamed) {
        notes.push(
            "a step name is part of the effect key: a renamed step is a different effect and runs again".to_owned(),
        );
    }
    notes
}

fn queue(before: Option<&Config>, after: &Config, name: &str) -> Vec<String> {
    let (Some(old), Some(new)) = (before.and_then(|before| before.queues.get(name)), after.queues.get(name)) else {
        return vec![];
    };
    let mut notes = vec![];
    if new.retention < old.retention {
        notes.push(format!(
            "jobs that have waited longer than {} become dead letters; dead letters are dropped",
            format_duration(new.retention)
        ));
    }
    if new.visibility_timeout < old.visibility_timeout {
        notes
            .push(format!("an attempt longer than {} has an unknown outcome", format_duration(new.visibility_timeout)));
    }
    notes
}
