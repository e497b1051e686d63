//! The steps of a job, one by one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_connectors::Call;
use sluice_domain::action::Action;
use sluice_domain::contact::ContactState;
use sluice_domain::enrich::{GeoLookup, HttpLookup, LookupResult};
use sluice_domain::event::{Event, EventId, LossCode};
use sluice_domain::job::EffectKey;
use sluice_domain::policy::{ContactFacts, RuleResult};
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::run::{DryRunOutput, dry_run, fill, items, scope_of};
use sluice_domain::template::{Expression, MessageTemplate, Scope, Secrets, Template, TemplateProblem};
use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;
use sluice_domain::verify::SecretValue;
use sluice_domain::worker::{Step, Worker};
use sluice_ledger::{EventBody, EventRecord, NewJob};

use super::{Cover, JobReport, RequestReport, RuleReport, Runs, StepReport};
use crate::config::SecretStore;
use crate::enrich;
use crate::revisions::LoadedRevision;

/// Placeholder trace id.
pub(crate) const TRACE: &str = "00000000000000000000000000000001";

/// The event whose job is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DryRunInput<'a> {
    pub live: &'a LoadedRevision,
    /// Accepted under `live`.
    pub event: &'a EventRecord,
    pub body: &'a Arc<EventBody>,
    /// Merged state of its contact, for steps that write it.
    pub contact: Option<&'a ContactState>,
    pub pseudonyms: &'a PseudonymKey,
    pub now: Time,
    pub cover: Cover,
}

pub(crate) fn job(input: DryRunInput<'_>, job: &NewJob) -> JobReport {
    let DryRunInput { live, event, contact, now, cover, .. } = input;
    let mut report =
        JobReport { worker: job.worker.to_string(), queue: job.queue.to_string(), steps: vec![], problem: None };
    let Some(worker) = live.config.workers.get(&*job.worker) else { return report };
    let revision = live.for_run(input.pseudonyms);
    let scope = match scope_of(&revision, event, input.body, &job.queue) {
        Ok(scope) => scope,
        Err(failure) => {
            report.problem = Some(cover.text(&failure.message));
            return report;
        }
    };
    let secrets = Covered::new(&live.secrets);
    let mut rehearsal = DryRun { live, worker, scope, contact, secrets, event: event.id, now, cover };
    let mut would_run = BTreeSet::new();
    for step in &worker.steps {
        let report_of_step = rehearsal.step(step, &would_run);
        // The output of an internal step is known, so later steps do not depend on it.
        if report_of_step.runs != Runs::No && report_of_step.output.is_none() {
            would_run.insert(step.id.to_string());
        }
        let ends_here = report_of_step.problem.is_some();
        report.steps.push(report_of_step);
        if ends_here {
            break;
        }
    }
    report
}

struct DryRun<'a> {
    live: &'a LoadedRevision,
    worker: &'a Worker,
    scope: Scope,
    contact: Option<&'a ContactState>,
    secrets: Covered,
    event: EventId,
    now: Time,
    cover: Cover,
}

impl DryRun<'_> {
    fn step(&mut self, step: &Step, would_run: &BTreeSet<String>) -> StepReport {
        if step.announces.is_some() {
            self.scope.set("approval", self.question(step));
        }
        let mut expressions = Vec::new();
        step.with.visit_expressions(&mut |expression| expressions.push(expression));
        let list = step.foreach.as_ref().map(|foreach| &foreach.list);
        let condition_needs = needs(list.into_iter().chain(&step.condition), would_run);
        let mut with_needs = needs(expressions, would_run);
        with_needs.extend(self.message_needs(step).into_iter().filter(|step| would_run.contains(step)));
        let mut report = StepReport {
            step: step.id.to_string(),
            action: step.action.name(),
            destination: step.destination.to_string(),
            class: step.class.as_str(),
            is_lookup: step.action.is_lookup(),
            effect_key: EffectKey::new(self.event, &self.worker.name, &step.label(0, step.foreach.as_ref().map(|_| 0)))
                .to_string(),
            condition: step.condition.as_ref().map(|condition| condition.source().to_owned()),
            runs: Runs::Yes,
            needs: condition_needs.union(&with_needs).cloned().collect(),
            items: None,
            undo: self.undo(step),
            output: None,
            assumed: None,
            policies: vec![],
            request: None,
            problem: None,
        };
        if !condition_needs.is_empty() {
            report.runs = Runs::Depends;
            return report;
        }
        match self.first_item(step) {
            Ok(None) => {}
            Ok(Some(0)) => {
                (report.items, report.runs) = (Some(0), Runs::No);
                return report;
            }
            Ok(items) => report.items = items,
            Err(problem) => {
                report.problem = Some(self.cover.text(&problem));
                return report;
            }
        }
        match step.condition.as_ref().map_or(Ok(true), |condition| condition.holds(&self.scope)) {
            Ok(true) => {}
            Ok(false) => {
                report.runs = Runs::No;
                report.needs.clear();
                return report;
            }
            Err(problem) => {
                report.problem = Some(self.cover.text(&format!("if: {problem}")));
                return report;
            }
        }
        match self.policies(step) {
            Ok(policies) => report.policies = policies,
            Err(problem) => report.problem = Some(self.cover.text(&problem)),
        }
        if report.problem.is_some() {
            return report;
        }
        if with_needs.is_empty() && step.action.is_internal() {
            if step.action == Action::EnrichHttp {
                // A request that cannot be made is a warning, as its output says.
                report.request = self.request(step, &report.effect_key).ok();
            }
            match self.inside(step) {
                Ok(DryRunOutput { output, assumed }) => {
                    self.scope.set_step_output(step.id.clone(), output.clone());
                    report.output = Some(self.cover.value(&output));
                    report.assumed = assumed;
                }
                Err(problem) => report.problem = Some(self.cover.text(&problem)),
            }
        } else if with_needs.is_empty() {
            let own = self.merge_contact(step);
            let request = self.request(step, &report.effect_key);
            if let Some(own) = own {
                self.scope.set_shared("event", own);
            }
            match request {
                Ok(request) => report.request = Some(request),
                Err(problem) => report.problem = Some(self.cover.text(&problem)),
            }
        }
        report
    }

    /// Number of items of a step; its expressions then see the first one.
    fn first_item(&mut self, step: &Step) -> Result<Option<usize>, String> {
        let Some(foreach) = &step.foreach else { return Ok(None) };
        let items = items(step, foreach, &self.scope).map_err(|failure| failure.message)?;
        if let Some(first) = items.first() {
            self.scope.set("item", first.clone());
            self.scope.set("index", Value::from(0));
        }
        Ok(Some(items.len()))
    }

    /// Undo action of a step.
    fn undo(&self, step: &Step) -> Option<String> {
        let place = self.worker.steps.iter().position(|other| other.id == step.id);
        let undo = self.worker.undo.iter().find(|undo| undo.undoes == place)?;
        Some(format!("{} → {}", undo.action.name(), undo.destination))
    }

    /// Approval request of a step.
    fn question(&self, step: &Step) -> Value {
        let asks = self.worker.steps.iter().find(|asks| Some(&asks.id) == step.announces.as_ref());
        let with =
            asks.and_then(|asks| asks.with.render(&self.scope, &self.secrets).ok().flatten()).unwrap_or_default();
        let text = |name: &str| with[name].as_str().unwrap_or_default().to_owned();
        let shown = format!("*{}*\n{}", text("title"), text("summary"));
        serde_json::json!({ "id": "apr_…", "title": text("title"), "summary": text("summary"), "text": shown })
    }

    /// Results of the policy rules for a contact without ledger state.
    fn policies(&self, step: &Step) -> Result<Vec<RuleReport>, String> {
        let mut rules = vec![];
        for name in &step.policies {
            let Some(policy) = self.live.config.policies.get(&**name) else { continue };
            let of_policy = |problem: TemplateProblem| format!("policy `{name}`: {problem}");
            let contact = policy.contact(&self.scope).map_err(of_policy)?;
            let results = policy.rule_results(&self.scope, contact.as_ref(), &ContactFacts::default(), self.now);
            for (rule, result) in results.map_err(of_policy)? {
                let (verdict, detail) = match result {
                    RuleResult::Passed(detail) => ("passes", detail),
                    RuleResult::Refused(detail) => ("refuses", detail),
                    RuleResult::Later(until, detail) => ("waits", format!("{detail}, until {until}")),
                    RuleResult::Counted(cap) => {
                        ("passes", format!("at most {} in {}; counted from zero", cap.max, format_duration(cap.window)))
                    }
                };
                let (policy, rule) = (name.to_string(), rule.name.to_string());
                rules.push(RuleReport { policy, rule, verdict, detail: self.cover.text(&detail) });
            }
        }
        Ok(rules)
    }

    /// Output of an internal step.
    fn inside(&self, step: &Step) -> Result<DryRunOutput, String> {
        let with = match step.render_with(&self.scope, &self.secrets) {
            Ok(with) => with,
            Err(problem) if step.action.is_lookup() => {
                let output = LookupResult::failed(LossCode::LookupFailed, format!("with: {problem}")).output();
                return Ok(DryRunOutput { output, assumed: None });
            }
            Err(problem) => return Err(problem.to_string()),
        };
        // A file is only read, so a dry run reads it too.
        if let (Action::EnrichGeoip, Ok(lookup)) = (step.action, GeoLookup::new(&with)) {
            let output = enrich::look_up_in_file(&self.live.config.directory, &lookup).output();
            return Ok(DryRunOutput { output, assumed: None });
        }
        dry_run(&self.live.config, step, &with, &self.scope, self.now)
    }

    /// Steps whose outputs the message reads.
    fn message_needs(&self, step: &Step) -> BTreeSet<String> {
        let Template::Map(with) = &step.with else { return BTreeSet::new() };
        let named = with.iter().find(|(name, _)| name == "template").map(|(_, value)| value);
        let Some(Template::Literal(Value::String(name))) = named.filter(|_| step.action == Action::SendTemplate) else {
            return BTreeSet::new();
        };
        let reads = self.live.config.messages.get(name).map(MessageTemplate::reads).unwrap_or_default();
        let step = |(_, read, _): &(_, String, _)| read.strip_prefix("steps.")?.split('.').next().map(str::to_owned);
        reads.iter().filter_map(step).collect()
    }

    /// Sets `event` to the merged state of the contact, if the step writes that. Returns the event's own value.
    fn merge_contact(&mut self, step: &Step) -> Option<Arc<Value>> {
        let state = self.contact.filter(|_| step.merged.is_some())?;
        let own = Arc::new(self.scope.get("event")?.clone());
        self.scope.set("event", Event::merged_scope(&own, state));
        Some(own)
    }

    fn request(&self, step: &Step, effect_key: &str) -> Result<RequestReport, String> {
        let with = step.render_with(&self.scope, &self.secrets);
        let with = with.and_then(|with| fill(&self.live.config.messages, self.worker, step.action, &self.scope, with));
        let mut with = with.map_err(|problem| problem.to_string())?;
        let mut action = step.action;
        if let (Action::EnrichHttp, Ok(lookup)) = (action, HttpLookup::new(&step.destination, &with)) {
            (action, with) = (Action::HttpRequest, lookup.request);
        }
        let key = self.scope.get("event").and_then(|event| event.get("idempotency_key")).and_then(Value::as_str);
        let traceparent = format!("00-{TRACE}-0000000000000001-01");
        let call = Call {
            action,
            destination: &step.destination,
            with: &with,
            effect_key,
            message_key: key.filter(|_| step.foreach.is_none()),
            record: None,
            attempt: 1,
            traceparent: Some(&traceparent),
            timeout: Duration::from_secs(1),
            now: self.now,
        };
        let preview = self.live.connectors.preview(&call).map_err(|failure| failure.message)?;
        let header = |(name, value): (String, String)| match name.as_str() {
            "traceparent" => (name, "(different for each attempt)".to_owned()),
            _ => (name, self.cover.text(&value)),
        };
        Ok(RequestReport {
            method: preview.method,
            url: self.cover.text(&preview.url),
            headers: preview.headers.into_iter().map(header).collect(),
            body: self.cover.value(&preview.body),
        })
    }
}

/// Steps whose outputs the expressions need. A skipped step has no output.
fn needs<'e>(expressions: impl IntoIterator<Item = &'e Expression>, would_run: &BTreeSet<String>) -> BTreeSet<String> {
    let mut needs = BTreeSet::new();
    for expression in expressions {
        let named = expression.steps();
        if named.is_empty() && expression.roots().contains("steps") {
            needs.extend(would_run.iter().cloned());
        }
        needs.extend(named.into_iter().filter(|step| would_run.contains(step)));
    }
    needs
}

/// Secrets of the steps, with masked values.
struct Covered {
    names: BTreeSet<String>,
    value: SecretValue,
}

impl Covered {
    fn new(secrets: &SecretStore) -> Covered {
        Covered { names: secrets.names().map(str::to_owned).collect(), value: SecretValue::from("***") }
    }
}

impl Secrets for Covered {
    fn secret(&self, name: &str) -> Option<&SecretValue> {
        self.names.contains(name).then_some(&self.value)
    }
}
