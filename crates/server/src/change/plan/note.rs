//! What a change means for senders and jobs, in sentences.

use sluice_domain::config::Config;
use sluice_domain::flow::Flow;
use sluice_domain::unit::{format_duration, plural};

use super::LedgerUsage;
use crate::config::{Difference, FieldDifference};

/// What to know about one change before it is made.
pub(super) fn notes(
    difference: &Difference,
    before: Option<&Config>,
    after: &Config,
    subject: &LedgerUsage,
) -> Vec<String> {
    let name = difference.thing.1.as_str();
    match difference.thing.0.as_str() {
        "flow" => flow(flow_of(before, name), flow_of(Some(after), name), subject),
        "worker" if difference.before => worker(difference, name, subject),
        "queue" if difference.before => queue(before, after, name),
        "destination" if difference.before && difference.after => {
            vec!["holds at once, also for jobs that were accepted before".to_owned()]
        }
        _ => vec![],
    }
}

fn flow_of<'a>(config: Option<&'a Config>, name: &str) -> Option<&'a Flow> {
    config?.flows.get(name).map(|flow| &**flow)
}

fn flow(before: Option<&Flow>, after: Option<&Flow>, subject: &LedgerUsage) -> Vec<String> {
    let route = |flow: &Flow| format!("{} {}", flow.method, flow.path);
    let mut notes = vec![];
    match (before, after) {
        (None, Some(after)) => {
            notes.push(format!("{} is answered from now on; {}", route(after), proof(after)));
        }
        (Some(before), None) => {
            notes.push(format!("{} is answered with 404 from now on{}", route(before), lately(before, subject)));
        }
        (Some(before), Some(after)) => {
            if route(before) != route(after) {
                let lately = lately(before, subject);
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
                    "the key was {} and is {}: a repeat of an event from before the change counts as new",
                    keys(before),
                    keys(after)
                ));
            }
            let (old, new) = (before.idempotency.ttl, after.idempotency.ttl);
            if new < old {
                notes.push(format!(
                    "a repeat that comes between {} and {} after the first counts as new",
                    format_duration(new),
                    format_duration(old)
                ));
            }
            if before.source != after.source {
                notes.push("counts, pauses and keys go by the source: under the new name they start anew".to_owned());
            }
        }
        (None, None) => {}
    }
    notes
}

fn proof(flow: &Flow) -> String {
    match &flow.verify {
        Some(verifier) => format!("who sends is verified by {}", verifier.scheme()),
        None => "nobody is verified, so only callers on loopback are answered".to_owned(),
    }
}

fn lately(flow: &Flow, subject: &LedgerUsage) -> String {
    match subject.accepted.get(&flow.source) {
        Some(count) if *count > 0 => {
            format!("; {} has sent {} in the last 7 days", flow.source, plural(*count, "event"))
        }
        _ => String::new(),
    }
}

fn worker(difference: &Difference, name: &str, subject: &LedgerUsage) -> Vec<String> {
    let (live, parked) = (subject.pinned.iter().filter(|record| record.worker == name))
        .fold((0, 0), |(live, parked), record| (live + record.live, parked + record.parked));
    if !difference.after || live + parked == 0 {
        return vec![];
    }
    let steps = |field: &FieldDifference| field.path.starts_with("run") || field.path.starts_with("steps");
    let jobs = format!("jobs that are there ({live} live, {parked} dead letters)");
    let mut notes = vec![];
    if difference.fields.iter().any(steps) {
        notes.push(format!(
            "{jobs} keep the steps that they were accepted with; `sluice replay --latest-config` takes the new ones"
        ));
    }
    if difference.fields.iter().any(|field| !steps(field)) {
        notes.push(format!("retry numbers and concurrency hold at once, also for {jobs}"));
    }
    let renamed = |field: &FieldDifference| {
        steps(field) && field.to.is_none() && field.path.matches('.').count() == 1 && !field.path.ends_with("(order)")
    };
    if difference.fields.iter().any(renamed) {
        notes.push("an effect is known by the name of its step: under another name it is done anew".to_owned());
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
            "what has waited longer than {} becomes a dead letter, or is dropped if it is one",
            format_duration(new.retention)
        ));
    }
    if new.visibility_timeout < old.visibility_timeout {
        notes.push(format!(
            "an attempt that takes longer than {} counts as unknown",
            format_duration(new.visibility_timeout)
        ));
    }
    notes
}
