//! Report of a dry run, as JSON and text.

use serde::Serialize;
use serde_json::Value;
use sluice_domain::printable::{line, lines};

use super::super::print::{heading, hint, indented, plural, pretty, style_of, styled};
use super::super::table::pairs;
use crate::dry_run::{JobReport, RequestReport, Runs, StepReport};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub flow: String,
    pub source: String,
    pub route: String,
    pub verify: String,
    pub events: Vec<EventReport>,
    pub revealed: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct EventReport {
    pub key: KeyReport,
    pub event_id: String,
    pub event_type: String,
    pub normalized: Value,
    /// Payload members unknown to the schema and the mapping.
    pub unknown_fields: Vec<String>,
    /// Quarantine reason.
    pub quarantine: Option<String>,
    pub queues: Vec<QueueReport>,
    /// Playbooks of its event type.
    pub playbooks: Vec<String>,
    pub jobs: Vec<JobReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct KeyReport {
    pub strategy: String,
    pub parts: Vec<PartReport>,
    /// Earlier strategies, with their missing values.
    pub passed_over: Vec<String>,
    pub text: String,
    pub kept_for: String,
}

#[derive(Debug, Serialize)]
pub(super) struct PartReport {
    pub from: String,
    pub value: String,
}

/// One `queue:` step of the flow.
#[derive(Debug, Serialize)]
pub(super) struct QueueReport {
    pub step: String,
    pub queue: String,
    pub condition: Option<String>,
    pub taken: bool,
    pub workers: Vec<String>,
}

impl Report {
    /// Replaces the ids of the dry run, which differ from those of the ledger.
    pub(super) fn without_ids(&self, mut text: String) -> String {
        for event in &self.events {
            text = text.replace(&event.event_id, "evt_…");
            for step in event.jobs.iter().flat_map(|job| &job.steps) {
                text = text.replace(&step.effect_key, "eff_…");
            }
        }
        text
    }

    /// First problem that would prevent an effect.
    pub(super) fn problem(&self) -> Option<String> {
        self.events.iter().find_map(EventReport::problem)
    }

    pub(super) fn render(&self) -> String {
        let sender = match self.verify.as_str() {
            "not verified" => self.verify.clone(),
            scheme => format!("verified by {scheme}"),
        };
        let flow =
            vec![("flow", format!("{} ({}), source {}", self.flow, self.route, self.source)), ("sender", sender)];
        let mut text = match self.events.as_slice() {
            [] => pairs(flow) + "The payload carries no event.\n",
            [only] => only.render(flow),
            _ => pairs(flow),
        };
        if self.events.len() > 1 {
            for (place, event) in self.events.iter().enumerate() {
                text.push_str(&heading(&format!("Event {} of {}", place + 1, self.events.len())));
                text.push_str(&event.render(vec![]));
            }
        }
        text.push_str(&hint("\nNothing was written and nothing was sent. Send it: sluice send FLOW FILE"));
        if !self.revealed {
            text.push_str(&hint("Personal data is masked; --reveal shows it."));
        }
        text
    }
}

impl EventReport {
    fn problem(&self) -> Option<String> {
        if let Some(quarantine) = &self.quarantine {
            return Some(format!("it would be quarantined: {quarantine}"));
        }
        self.jobs.iter().find_map(|job| {
            if let Some(problem) = &job.problem {
                return Some(format!("worker `{}`: {problem}", job.worker));
            }
            let step = job.steps.iter().find(|step| step.problem.is_some())?;
            Some(format!("worker `{}`, step `{}`: {}", job.worker, step.step, step.problem.as_deref()?))
        })
    }

    /// `before` are pairs shown before those of the event.
    fn render(&self, before: Vec<(&'static str, String)>) -> String {
        let parts: Vec<String> = self.key.parts.iter().map(|part| format!("{} = {}", part.from, part.value)).collect();
        let from = if parts.is_empty() { self.key.strategy.clone() } else { parts.join(", ") };
        let own = [
            ("key", safe(format!("{} (from {from}; kept for {})", self.key.text, self.key.kept_for))),
            ("not used", safe(self.key.passed_over.join("; "))),
            (
                "event",
                safe(format!(
                    "{} {} (the ledger assigns its id; a known key is a duplicate)",
                    self.event_id, self.event_type
                )),
            ),
            ("unknown fields", safe(self.unknown_fields.join(", "))),
            ("quarantined", safe(self.quarantine.clone().unwrap_or_default())),
        ];
        let mut text = pairs(before.into_iter().chain(own));
        text.push_str(&heading("Normalized event"));
        text.push_str(&format!("{}\n", pretty(&self.normalized)));
        text.push_str(&heading("Queues"));
        if self.queues.is_empty() && self.playbooks.is_empty() {
            text.push_str("None: the flow has no queue for it, and no playbook has its event type.\n");
        }
        for playbook in &self.playbooks {
            text.push_str(&format!("on {} → playbook {playbook}\n", line(&self.event_type)));
        }
        for queue in &self.queues {
            text.push_str(&queue.render());
        }
        if self.quarantine.is_some() {
            text.push_str("Its jobs wait for an operator: sluice dlq\n");
        }
        for job in &self.jobs {
            text.push_str(&heading(&format!("Job for worker {} (queue {})", job.worker, job.queue)));
            if let Some(problem) = &job.problem {
                text.push_str(&format!("{} {}\n", styled("dead:", style_of("dead")), line(problem)));
            }
            for (place, step) in job.steps.iter().enumerate() {
                text.push_str(&step.render(place + 1));
            }
        }
        text
    }
}

/// The payload is untrusted.
fn safe(text: String) -> String {
    line(&text).into_owned()
}

impl QueueReport {
    fn render(&self) -> String {
        let workers = match self.workers.as_slice() {
            [] => "no worker consumes it".to_owned(),
            workers => format!("a job for {}", workers.join(", ")),
        };
        match (&self.condition, self.taken) {
            (None, _) => format!("{} → {}: {workers}\n", self.step, self.queue),
            (Some(condition), true) => format!("{} → {}: {workers} ({condition} is true)\n", self.step, self.queue),
            (Some(condition), false) => {
                format!("{} → {}: skipped ({condition} is false)\n", self.step, self.queue)
            }
        }
    }
}

impl StepReport {
    fn render(&self, number: usize) -> String {
        let place = if self.destination.is_empty() { String::new() } else { format!(" → {}", self.destination) };
        let kind = match self.destination.is_empty() {
            _ if self.is_lookup => "lookup".to_owned(),
            true => "internal".to_owned(),
            false => format!("{} effect", self.class),
        };
        let mut text = format!("{number}. {}: {}{place}, {kind}\n", self.step, self.action);
        let mut show = |words: String| text.push_str(&format!("   {}\n", line(&words)));
        match self.items {
            Some(0) => {
                show("its list is empty: nothing to do".to_owned());
                return text;
            }
            Some(items) => {
                let items = plural(items as u64, "item");
                show(format!("for each of {items}, each a separate effect; the first is:"));
            }
            None => {}
        }
        if let Some(undo) = &self.undo {
            show(format!("undone with {undo} if a later step fails permanently"));
        }
        match (&self.condition, self.runs) {
            (Some(condition), Runs::Yes) if self.problem.is_none() => show(format!("if {condition}: true")),
            (Some(condition), Runs::No) => {
                show(format!("if {condition}: false, step skipped"));
                return text;
            }
            (Some(condition), Runs::Depends) => {
                show(format!("if {condition}: depends on the output of {}", self.needs.join(", ")))
            }
            _ => {}
        }
        if !self.destination.is_empty() && !self.is_lookup {
            show(format!("effect key {}, stable across attempts and replays", self.effect_key));
        }
        for rule in &self.policies {
            show(format!("policy {}: {} {}: {}", rule.policy, rule.rule, rule.verdict, rule.detail));
        }
        if let Some(rule) = self.policies.iter().find(|rule| rule.verdict == "refuses") {
            show(format!("nothing would be sent: no-op by {} of {}", rule.rule, rule.policy));
            return text;
        }
        if let Some(assumed) = self.assumed {
            show(format!("assumed: {assumed}"));
        }
        if let Some(problem) = &self.problem {
            text.push_str(&format!("   {} {}\n", styled("dead:", style_of("dead")), line(problem)));
        } else if self.output.is_some() || self.request.is_some() {
            text.push_str(&self.request.as_ref().map(RequestReport::render).unwrap_or_default());
            if let Some(output) = &self.output {
                text.push_str(&indented(&format!("output {}", pretty(output)), 3));
            }
        } else if self.runs != Runs::Depends {
            show(format!("the request depends on the output of {}", self.needs.join(", ")));
        }
        text
    }
}

impl RequestReport {
    fn render(&self) -> String {
        let mut text = String::new();
        let mut show = |words: String| text.push_str(&format!("   {}\n", line(&words)));
        show(format!("{} {}", self.method, self.url));
        for (name, value) in &self.headers {
            show(format!("{name}: {value}"));
        }
        match &self.body {
            Value::Null => {}
            Value::String(plain) => text.push_str(&indented(&lines(plain), 3)),
            body => text.push_str(&indented(&pretty(body), 3)),
        }
        text
    }
}
