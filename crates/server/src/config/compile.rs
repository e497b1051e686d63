//! Compiles files to a configuration in three passes: declarations, documents that refer to them, cross-document
//! checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_domain::config::{Config, Revision};
use sluice_domain::destination::DestinationKind;
use sluice_domain::flow::Flow;
use sluice_domain::retry::RetryPolicy;
use sluice_domain::script::Runtime;
use sluice_domain::worker::{Queue, Worker};

use super::alerts;
use super::answers;
use super::contacts;
use super::cross_checks;
use super::declarations::{Declarations, Placed, SourceLocation, add};
use super::destination::{self, built_in};
use super::diagnostics::{Diagnostics, Report};
use super::document::{DocumentKind, classify};
use super::field_reads;
use super::flow;
use super::lookup::NeededDatabase;
use super::message;
use super::node::YamlNode;
use super::oidc;
use super::parse;
use super::plaintext_secrets;
use super::policy;
use super::problem::{ConfigProblem, Severity};
use super::queue::{self, DeadLetter};
use super::read::Files;
use super::respond_within::{self, FlowResponse};
use super::retry;
use super::script::NeededRuntime;
use super::secrets::{SecretSource, SecretStore};
use super::traces;
use super::worker::{self, ReadWorker};

/// Result of compiling a configuration.
#[derive(Debug)]
pub struct Compiled {
    /// `None` if any problem is an error.
    pub config: Option<Config>,
    /// Secrets used by steps at run time.
    pub secrets: SecretStore,
    /// Sorted by file and position.
    pub problems: Vec<ConfigProblem>,
    /// Script runtimes required on this machine; see [`Compiled::require_runtimes`].
    pub runtimes: Vec<NeededRuntime>,
    /// Geo databases that steps read; see [`Compiled::warn_of_databases`].
    pub databases: Vec<NeededDatabase>,
    /// Directory of the configuration.
    directory: PathBuf,
}

impl Compiled {
    /// Probes every required runtime and reports the missing ones.
    pub fn require_runtimes(&mut self, mut probe: impl FnMut(Runtime) -> Result<(), String>) {
        let mut known: BTreeMap<Runtime, Result<(), String>> = BTreeMap::new();
        for needed in &self.runtimes {
            let found = known.entry(needed.runtime).or_insert_with(|| probe(needed.runtime));
            if let Err(problem) = found {
                self.problems.push(ConfigProblem {
                    severity: Severity::Error,
                    code: "missing-runtime",
                    file: needed.file.clone(),
                    span: Some(needed.span),
                    message: problem.clone(),
                    hint: Some(format!("install {} or put it on the PATH of sluice", needed.runtime.program())),
                });
                self.config = None;
            }
        }
    }
}

impl Compiled {
    /// Probes every geo database and warns of those that cannot be used. They are no errors: jobs continue without a lookup, and the
    /// file may be on another machine.
    pub fn warn_of_databases(&mut self, mut probe: impl FnMut(&Path) -> Result<(), String>) {
        let mut known: BTreeMap<&str, Result<(), String>> = BTreeMap::new();
        for needed in &self.databases {
            let found = known.entry(&needed.path).or_insert_with(|| probe(&self.directory.join(&needed.path)));
            if let Err(problem) = found {
                self.problems.push(ConfigProblem {
                    severity: Severity::Warning,
                    code: "database-unreadable",
                    file: needed.file.clone(),
                    span: Some(needed.span),
                    message: problem.clone(),
                    hint: Some("put the file there; until then the lookup finds nothing and is a warning".to_owned()),
                });
            }
        }
    }
}

struct Document<'f> {
    file: &'f str,
    kind: DocumentKind,
    node: YamlNode,
}

/// Pure, except for secret lookups.
pub fn compile(files: &Files, secrets: &dyn SecretSource) -> Compiled {
    let diagnostics = Diagnostics::new(secrets);
    let mut names = Declarations { incomplete: !files.problems().is_empty(), ..Declarations::default() };
    names.texts = files.iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
    names.messages = message::read_all(&diagnostics, files);
    let documents = parse_all(&diagnostics, files, &mut names);
    read_sections(&diagnostics, &documents, &mut names);

    let mut flows: BTreeMap<String, Placed<Arc<Flow>>> = BTreeMap::new();
    let mut responses: Vec<FlowResponse> = vec![];
    let mut addresses: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut workers: BTreeMap<String, Placed<ReadWorker>> = BTreeMap::new();
    for document in &documents {
        let report = diagnostics.report(document.file);
        match document.kind {
            DocumentKind::Flow => {
                for read in flow::read(report, &document.node, &names) {
                    let address = (read.flow.method.clone(), read.flow.path.clone());
                    if let Some(first) = addresses.get(&address) {
                        report
                            .error(
                                read.place.span,
                                "duplicate-path",
                                format!("{} {} is already used by the flow in {first}", address.0, address.1),
                            )
                            .hint("give each flow a unique path");
                    } else {
                        addresses.insert(address, read.place.describe());
                    }
                    if let Some(response) = read.respond {
                        let (flow, file) = (read.name.0.clone(), document.file.to_owned());
                        responses.push(FlowResponse { flow, file, read: response });
                    }
                    add(&mut flows, report, "flow", (&read.name.0, read.name.1), read.flow);
                }
            }
            DocumentKind::Worker => {
                if let Some(read) = worker::read(report, &document.node, &names) {
                    let (name, span) = read.name.clone();
                    add(&mut workers, report, "worker", (&name, span), read);
                }
            }
            DocumentKind::Connector
            | DocumentKind::Answers
            | DocumentKind::Sections
            | DocumentKind::Broken
            | DocumentKind::Foreign => {}
        }
    }
    alerts::expand(&diagnostics, &names, &mut workers);
    respond_within::resolve(&diagnostics, &names, responses, &mut flows, &mut workers);
    check_whole(&diagnostics, &documents, &names, &workers);
    if !names.incomplete {
        cross_checks::check_playbooks(&diagnostics, &flows, &workers);
        cross_checks::check_pulls(&diagnostics, &names, &workers);
        contacts::check(&diagnostics, &names, &flows, &workers);
        alerts::check(&diagnostics, &names, &flows, &workers);
        field_reads::check(&diagnostics, files, &names.messages, &flows, &workers);
    }
    let usable = !diagnostics.has_errors() && files.problems().is_empty();
    let runtimes = workers.values().flat_map(|worker| worker.value.runtimes.iter().cloned()).collect();
    let databases = workers.values().flat_map(|worker| worker.value.databases.iter().cloned()).collect();
    let config = usable.then(|| join(files, names, flows, workers));
    let (mut problems, secrets) = diagnostics.finish();
    problems.splice(0..0, files.problems().iter().cloned());
    let directory = files.directory().to_owned();
    Compiled { config, secrets, problems, runtimes, databases, directory }
}

/// Templates and suppression lists are not YAML documents.
fn is_document(file: &str) -> bool {
    message::part_of(file).is_none() && policy::list_of(file).is_none()
}

fn parse_all<'f>(diagnostics: &Diagnostics<'_>, files: &'f Files, names: &mut Declarations) -> Vec<Document<'f>> {
    let mut documents = vec![];
    for (file, text) in files.iter().filter(|(file, _)| is_document(file)) {
        let report = diagnostics.report(file);
        let is_json = file.to_ascii_lowercase().ends_with(".json");
        // JSON may be indented with tabs, YAML may not. A JSON string cannot contain a raw tab.
        let spaced = is_json.then(|| text.replace('\t', " "));
        let (nodes, flaws) = parse::parse(spaced.as_deref().unwrap_or(text));
        names.incomplete |= !flaws.is_empty();
        for flaw in flaws {
            let reported = report.error(flaw.span, flaw.code, flaw.message);
            if let Some(hint) = flaw.hint {
                reported.hint(hint);
            }
        }
        for node in nodes {
            let kind = classify(report, &node);
            names.incomplete |= kind == DocumentKind::Broken;
            // Recorded answers have made-up credentials.
            if !matches!(kind, DocumentKind::Foreign | DocumentKind::Answers) {
                plaintext_secrets::find(report, &node);
            }
            documents.push(Document { file, kind, node });
        }
    }
    documents
}

fn read_sections(diagnostics: &Diagnostics<'_>, documents: &[Document<'_>], names: &mut Declarations) {
    let mut dead_letters: Vec<(&str, DeadLetter)> = vec![];
    read_connectors(diagnostics, documents, names);
    for document in documents.iter().filter(|document| has_sections(document.kind)) {
        let report = diagnostics.report(document.file);
        if let Some(section) = document.node.get("queues").filter(|section| !section.is_null()) {
            let read = queue::read_all(report, section, &mut names.queues);
            dead_letters.extend(read.into_iter().map(|dead| (document.file, dead)));
        }
        if let Some(node) = document.node.get("retry").filter(|_| document.kind == DocumentKind::Sections) {
            read_policy(report, node, names);
        }
        if let Some(section) = document.node.get("destinations").filter(|section| !section.is_null()) {
            destination::read_all(report, section, &names.connectors, &mut names.destinations);
        }
        if let Some(section) = document.node.get("policies").filter(|section| !section.is_null()) {
            policy::read_all(report, section, names);
        }
        if let Some(section) = document.node.get("contacts").filter(|section| !section.is_null()) {
            contacts::read(report, section, names);
        }
        if let Some(section) = document.node.get("alerts").filter(|section| !section.is_null()) {
            alerts::read(report, section, names);
        }
        if let Some(section) = document.node.get("traces").filter(|section| !section.is_null()) {
            traces::read(report, section, names);
        }
        if let Some(section) = document.node.get("oidc").filter(|section| !section.is_null()) {
            oidc::read(report, section, names);
        }
    }
    for (file, dead) in dead_letters {
        let report = diagnostics.report(file);
        names.check_queue(report, dead.span, &dead.to);
        if dead.from == dead.to {
            report.error(dead.span, "dead-letter-loop", format!("`{}` is its own dead-letter queue", dead.from));
        }
    }
}

fn has_sections(kind: DocumentKind) -> bool {
    !matches!(kind, DocumentKind::Foreign | DocumentKind::Connector | DocumentKind::Answers)
}

/// Connectors before everything that may use them, then their recorded answers.
fn read_connectors(diagnostics: &Diagnostics<'_>, documents: &[Document<'_>], names: &mut Declarations) {
    let of_kind = |kind| documents.iter().filter(move |document| document.kind == kind);
    for document in of_kind(DocumentKind::Connector) {
        names.connectors.read(diagnostics.report(document.file), &document.node);
    }
    for document in of_kind(DocumentKind::Answers) {
        answers::read(diagnostics.report(document.file), &document.node, &names.connectors);
    }
}

/// Reads a document that contains only a retry policy.
fn read_policy(report: Report<'_>, node: &YamlNode, names: &mut Declarations) {
    if let Some(first) = &names.retry {
        report
            .error(
                node.span,
                "duplicate-name",
                format!("the default retry policy is already defined in {}", first.place.describe()),
            )
            .hint("remove one of them, or set `retry:` in the workers");
        return;
    }
    let value = retry::read(report, node, &RetryPolicy::standard(), (names, ""));
    names.retry = Some(Placed { place: SourceLocation::new(report, node.span), value });
}

/// Checks across documents.
fn check_whole(
    diagnostics: &Diagnostics<'_>,
    documents: &[Document<'_>],
    names: &Declarations,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    let has = |kind| documents.iter().any(|document| document.kind == kind);
    if !has(DocumentKind::Flow) && !names.incomplete {
        diagnostics
            .report("")
            .file_error("no-flows", "the configuration has no flow, so no request can be accepted")
            .hint("a flow is a document with `triggers:`, such as: triggers: [{http: {path: /contacts}}]");
    }
    if names.incomplete {
        // The missing worker may be in a document that could not be read.
        return;
    }
    for (name, placed) in &names.queues {
        let consumed = workers.values().any(|worker| worker.value.worker.queue == *name);
        if !consumed && !is_dead_letter_queue(name, names, workers) {
            diagnostics
                .report(&placed.place.file)
                .warning(
                    placed.place.span,
                    "queue-without-worker",
                    format!("no worker consumes the queue `{name}`, so its jobs never run"),
                )
                .hint(format!("add a worker with `consumes: {name}`"));
        }
    }
}

pub(super) fn is_dead_letter_queue(
    name: &str,
    names: &Declarations,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) -> bool {
    let of_queue = names.queues.values().any(|queue| queue.value.dead_letter_queue.as_deref() == Some(name));
    let of_worker = |worker: &Worker| {
        let policies = worker.steps.iter().filter_map(|step| step.retry.as_ref()).chain([&worker.retry]);
        policies.into_iter().any(|policy| policy.dead_letter_queue.as_deref() == Some(name))
            || implicit_name(&worker.queue) == name
    };
    of_queue || workers.values().any(|worker| of_worker(&worker.value.worker))
}

fn implicit_name(queue: &str) -> String {
    format!("{queue}-dlq")
}

/// Builds the configuration and assigns a dead-letter queue to every worker and queue.
fn join(
    files: &Files,
    names: Declarations,
    flows: BTreeMap<String, Placed<Arc<Flow>>>,
    workers: BTreeMap<String, Placed<ReadWorker>>,
) -> Config {
    let directory = files.directory().to_owned();
    let mut config = Config { revision: Revision::of(files.iter()), directory, ..Config::default() };
    config.flows = flows.into_iter().map(|(name, flow)| (name, flow.value)).collect();
    config.messages = names.messages;
    config.contacts = names.contacts.map(|contacts| contacts.value.into_rules());
    config.alerts = names.alerts.map(|alerts| alerts.value.into_settings()).unwrap_or_default();
    config.traces = names.traces.map(|traces| traces.value);
    config.oidc = names.oidc.map(|oidc| oidc.value);
    config.policies = policy::join(names.policies);
    config.queues = names.queues.into_iter().map(|(name, queue)| (name, queue.value)).collect();
    config.destinations =
        names.destinations.into_iter().filter_map(|(name, placed)| Some((name, placed.value?))).collect();
    for (name, placed) in workers {
        let ReadWorker { worker, built_in: used, .. } = placed.value;
        for destination in used.into_iter().filter_map(built_in) {
            config.destinations.insert(destination.name.clone(), destination);
        }
        let mut worker = Worker::clone(&worker);
        let own = config.queues.get(&worker.queue).and_then(|queue| queue.dead_letter_queue.clone());
        let dead =
            worker.retry.dead_letter_queue.clone().or(own).unwrap_or_else(|| implicit_name(&worker.queue).into());
        worker.retry.dead_letter_queue = Some(dead.clone());
        if worker.on.is_some() || worker.schedule.is_some() {
            config.queues.entry(worker.queue.clone()).or_insert_with(|| queue::plain(&worker.queue));
        }
        for policy in worker.steps.iter_mut().chain(&mut worker.undo).filter_map(|step| step.retry.as_mut()) {
            policy.dead_letter_queue.get_or_insert_with(|| dead.clone());
        }
        config
            .queues
            .entry(dead.to_string())
            .or_insert_with(|| Queue { retention: queue::IMPLICIT_RETENTION, ..queue::plain(&dead) });
        if let Some(queue) = config.queues.get_mut(&worker.queue) {
            queue.dead_letter_queue.get_or_insert(dead);
        }
        config.workers.insert(name, Arc::new(worker));
    }
    for destination in config.destinations.values_mut() {
        if let DestinationKind::Script(script) = &mut destination.kind {
            script.directory = config.directory.clone();
        }
    }
    for name in config.flows.keys().cloned().collect::<Vec<_>>() {
        settle_identity(&mut config, &name);
    }
    config
}

/// A CRM record without an identity cannot be found again. So an event without identity fields is quarantined before a
/// CRM worker, and before one whose lookups supply an identity, unless the flow sets `require_identity`.
fn settle_identity(config: &mut Config, name: &str) {
    let Some(flow) = config.flows.get(name).filter(|flow| flow.admission.require_identity.is_none()) else { return };
    let into_crm = |worker: &Arc<Worker>| {
        worker.steps.iter().any(|step| step.action.writes_crm_record()) || !worker.identity_lookups().is_empty()
    };
    let by_queue = || flow.enqueue.iter().any(|enqueue| config.consumers(&enqueue.queue).any(into_crm));
    let by_type = || cross_checks::types_of(flow).iter().any(|name| config.playbooks(name).any(into_crm));
    let needed = !flow.event.identity.is_empty() && (by_queue() || by_type());
    let mut flow = Flow::clone(flow);
    flow.admission.require_identity = Some(needed);
    config.flows.insert(name.to_owned(), Arc::new(flow));
}
