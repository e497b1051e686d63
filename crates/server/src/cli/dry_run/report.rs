//! What a dry run says, for a machine and for a person.

use serde::Serialize;
use serde_json::Value;

use super::super::print::{heading, hint, indented, plural, pretty, style_of, styled};
use super::super::table::pairs;

/// What a payload would become.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub flow: String,
    pub source: String,
    pub route: String,
    pub verify: String,
    /// One for each event that the payload carries.
    pub events: Vec<EventReport>,
    pub revealed: bool,
}

/// What one event would become.
#[derive(Debug, Serialize)]
pub(super) struct EventReport {
    pub key: KeyReport,
    pub event_id: String,
    pub event_type: String,
    pub normalized: Value,
    /// Members of the payload that neither the schema nor the mapping knows.
    pub unknown_fields: Vec<String>,
    /// Why it would be kept for a person.
    pub quarantine: Option<String>,
    pub queues: Vec<QueueReport>,
    /// The playbooks for its type.
    pub playbooks: Vec<String>,
    pub jobs: Vec<JobReport>,
}

/// How a repeat would be recognised.
#[derive(Debug, Serialize)]
pub(super) struct KeyReport {
    pub strategy: String,
    pub parts: Vec<PartReport>,
    /// Strategies before it, and what each had no value for.
    pub passed_over: Vec<String>,
    pub text: String,
    pub kept_for: String,
}

/// One expression of a key, and its value.
#[derive(Debug, Serialize)]
pub(super) struct PartReport {
    pub from: String,
    pub value: String,
}

/// One `queue:` line of the flow.
#[derive(Debug, Serialize)]
pub(super) struct QueueReport {
    pub step: String,
    pub queue: String,
    pub condition: Option<String>,
    pub taken: bool,
    pub workers: Vec<String>,
}

/// One job that the event would bring.
#[derive(Debug, Serialize)]
pub(super) struct JobReport {
    pub worker: String,
    pub queue: String,
    pub steps: Vec<StepReport>,
    pub problem: Option<String>,
}

/// Whether a step would be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Runs {
    Yes,
    No,
    /// Only an earlier step's output can tell.
    Depends,
}

/// One step of a job.
#[derive(Debug, Serialize)]
pub(super) struct StepReport {
    pub step: String,
    pub action: &'static str,
    pub destination: String,
    pub class: &'static str,
    pub effect_key: String,
    pub condition: Option<String>,
    pub runs: Runs,
    /// Steps whose output has to be known first.
    pub needs: Vec<String>,
    /// How many items it would be done for; what is shown is the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<usize>,
    /// What would take its effect back if a later step failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// What a step that stays inside would come to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What was taken for granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed: Option<&'static str>,
    /// What the rules of its policies say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<RuleReport>,
    pub request: Option<RequestReport>,
    /// What would make the job a dead letter.
    pub problem: Option<String>,
}

/// What one rule of a policy says.
#[derive(Debug, Serialize)]
pub(super) struct RuleReport {
    pub policy: String,
    pub rule: String,
    /// passes, refuses or waits.
    pub verdict: &'static str,
    pub detail: String,
}

/// The request that would be sent.
#[derive(Debug, Serialize)]
pub(super) struct RequestReport {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Report {
    /// A text without the ids of this rehearsal: the ledger makes them with a key of its own, so they would not be these.
    pub fn without_ids(&self, mut text: String) -> String {
        for event in &self.events {
            text = text.replace(&event.event_id, "evt_…");
            for step in event.jobs.iter().flat_map(|job| &job.steps) {
                text = text.replace(&step.effect_key, "eff_…");
            }
        }
        text
    }

    /// What would keep an effect from happening, if anything would.
    pub fn problem(&self) -> Option<String> {
        self.events.iter().find_map(EventReport::problem)
    }

    pub fn told(&self) -> String {
        let sender = match self.verify.as_str() {
            "nobody is verified" => self.verify.clone(),
            scheme => format!("verified by {scheme}"),
        };
        let flow =
            vec![("flow", format!("{} ({}), source {}", self.flow, self.route, self.source)), ("sender", sender)];
        let mut text = match self.events.as_slice() {
            [] => pairs(flow) + "The payload carries no event.\n",
            [only] => only.told(flow),
            _ => pairs(flow),
        };
        if self.events.len() > 1 {
            for (place, event) in self.events.iter().enumerate() {
                text.push_str(&heading(&format!("Event {} of {}", place + 1, self.events.len())));
                text.push_str(&event.told(vec![]));
            }
        }
        text.push_str(&hint("\nNothing was written and nothing was sent. In earnest: sluice send FLOW FILE"));
        if !self.revealed {
            text.push_str(&hint("Personal data is masked; --reveal shows it."));
        }
        text
    }
}

impl EventReport {
    fn problem(&self) -> Option<String> {
        if let Some(quarantine) = &self.quarantine {
            return Some(format!("it would be kept for a person: {quarantine}"));
        }
        self.jobs.iter().find_map(|job| {
            if let Some(problem) = &job.problem {
                return Some(format!("worker `{}`: {problem}", job.worker));
            }
            let step = job.steps.iter().find(|step| step.problem.is_some())?;
            Some(format!("worker `{}`, step `{}`: {}", job.worker, step.step, step.problem.as_deref()?))
        })
    }

    /// `before` goes before what is known of the event.
    fn told(&self, before: Vec<(&'static str, String)>) -> String {
        let parts: Vec<String> = self.key.parts.iter().map(|part| format!("{} = {}", part.from, part.value)).collect();
        let from = if parts.is_empty() { self.key.strategy.clone() } else { parts.join(", ") };
        let own = [
            ("key", format!("{} (from {from}; kept for {})", self.key.text, self.key.kept_for)),
            ("not used", self.key.passed_over.join("; ")),
            (
                "event",
                format!(
                    "{} {} (the ledger makes its id; a known key gets the first answer again)",
                    self.event_id, self.event_type
                ),
            ),
            ("unknown fields", self.unknown_fields.join(", ")),
            ("kept for a person", self.quarantine.clone().unwrap_or_default()),
        ];
        let mut text = pairs(before.into_iter().chain(own));
        text.push_str(&heading("Normalized event"));
        text.push_str(&format!("{}\n", pretty(&self.normalized)));
        text.push_str(&heading("Queues"));
        if self.queues.is_empty() && self.playbooks.is_empty() {
            text.push_str("None: this flow enqueues nothing, and no playbook is for this type of event.\n");
        }
        for playbook in &self.playbooks {
            text.push_str(&format!("on {} → playbook {playbook}\n", self.event_type));
        }
        for queue in &self.queues {
            text.push_str(&queue.told());
        }
        if self.quarantine.is_some() {
            text.push_str("Its jobs wait for a person: sluice dlq\n");
        }
        for job in &self.jobs {
            text.push_str(&heading(&format!("Job for worker {} (queue {})", job.worker, job.queue)));
            if let Some(problem) = &job.problem {
                text.push_str(&format!("{} {problem}\n", styled("dead:", style_of("dead"))));
            }
            for (place, step) in job.steps.iter().enumerate() {
                text.push_str(&step.told(place + 1));
            }
        }
        text
    }
}

impl QueueReport {
    fn told(&self) -> String {
        let workers = match self.workers.as_slice() {
            [] => "no worker consumes it".to_owned(),
            workers => format!("a job for {}", workers.join(", ")),
        };
        match (&self.condition, self.taken) {
            (None, _) => format!("{} → {}: {workers}\n", self.step, self.queue),
            (Some(condition), true) => format!("{} → {}: {workers} ({condition} holds)\n", self.step, self.queue),
            (Some(condition), false) => {
                format!("{} → {}: not taken ({condition} does not hold)\n", self.step, self.queue)
            }
        }
    }
}

impl StepReport {
    fn told(&self, number: usize) -> String {
        let place = if self.destination.is_empty() { String::new() } else { format!(" → {}", self.destination) };
        let kind = if self.destination.is_empty() { "inside".to_owned() } else { format!("{} effect", self.class) };
        let mut text = format!("{number}. {}: {}{place}, {kind}\n", self.step, self.action);
        let mut line = |words: String| text.push_str(&format!("   {words}\n"));
        match self.items {
            Some(0) => {
                line("its list is empty, so there is nothing to do".to_owned());
                return text;
            }
            Some(items) => {
                let items = plural(items as u64, "item");
                line(format!("for each of {items}, each an effect of its own; this is the first:"));
            }
            None => {}
        }
        if let Some(undo) = &self.undo {
            line(format!("undone with {undo} if a later step fails for good"));
        }
        match (&self.condition, self.runs) {
            (Some(condition), Runs::Yes) if self.problem.is_none() => line(format!("if {condition}: holds")),
            (Some(condition), Runs::No) => {
                line(format!("if {condition}: does not hold, so this step is passed over"));
                return text;
            }
            (Some(condition), Runs::Depends) => {
                line(format!("if {condition}: depends on the output of {}", self.needs.join(", ")))
            }
            _ => {}
        }
        if !self.destination.is_empty() {
            line(format!("effect key {}, the same in every attempt and replay", self.effect_key));
        }
        for rule in &self.policies {
            line(format!("policy {}: {} {}: {}", rule.policy, rule.rule, rule.verdict, rule.detail));
        }
        if let Some(rule) = self.policies.iter().find(|rule| rule.verdict == "refuses") {
            line(format!("so nothing would be sent: a no-op by {} of {}", rule.rule, rule.policy));
            return text;
        }
        if let Some(assumed) = self.assumed {
            line(format!("taken for granted: {assumed}"));
        }
        if let Some(problem) = &self.problem {
            line(format!("{} {problem}", styled("dead:", style_of("dead"))));
        } else if let Some(output) = &self.output {
            text.push_str(&indented(&format!("output {}", pretty(output)), 3));
        } else if let Some(request) = &self.request {
            line(format!("{} {}", request.method, request.url));
            for (name, value) in &request.headers {
                line(format!("{name}: {value}"));
            }
            match &request.body {
                Value::Null => {}
                Value::String(plain) => text.push_str(&indented(plain, 3)),
                body => text.push_str(&indented(&pretty(body), 3)),
            }
        } else if self.runs != Runs::Depends {
            line(format!("the request depends on the output of {}", self.needs.join(", ")));
        }
        text
    }
}
