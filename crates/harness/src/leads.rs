//! Configuration for nodes of the harness (leads in, one effect each), and a sender with matching credentials.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_domain::flow::Flow;
use sluice_domain::schedule::Limits;
use sluice_domain::time::Time;
use sluice_domain::verify::{self, UnsignedRequest};

use crate::{ANY_PORT, Error};
use sluice_server::config::TraceEnvironment;
use sluice_server::revisions::LoadedRevision;
use sluice_server::run::{self, NodeSettings};
use sluice_server::{intake, maintain, operate};

const FLOW_NAME: &str = "website-leads";

const FLOW: &str = r#"version: 1
name: website-leads
source: website
triggers:
  - http:
      path: /in/website
      verify:
        scheme: hmac
        header: X-Signature
        prefix: "sha256="
        secret: ${secrets.HARNESS_SENDER}
      idempotency:
        key_from: body.event_id
        ttl: 30d
event:
  schema_version: "1.0"
  type: lead.created
  id: body.event_id
  occurred_at: body.occurred_at
  identity:
    contact_external_id: body.event_id
    email: "{{ body.email | lower | trim }}"
  attributes:
    first_name: body.first_name
    last_name: body.last_name
    company: body.company
  required: [identity.contact_external_id, attributes.last_name, attributes.company]
steps:
  - name: enqueue
    queue: { name: leads }
"#;

const QUEUES: &str = "queues:
  - name: leads
    visibility_timeout: 30s
    retention: 4d
";

/// The simulated CRM fails very often, so attempts are many and delays short: a `Retry-After` of a day is one of its
/// faults.
const TO_SALESFORCE: &str = r#"version: 1
name: lead-to-crm
consumes: { queue: leads }
concurrency: 64
retry:
  strategy: exponential
  base_delay: 100ms
  multiplier: 2
  jitter: full
  max_delay: 2s
  max_attempts: 200
  max_attempts_conflict: 200
  retry_after_cap: 100ms
run:
  - name: upsert
    run: salesforce.upsert
    with:
      object: Lead
      external_id_field: External_Lead_Id__c
      external_id: "{{ event.contact_external_id }}"
      fields:
        FirstName: "{{ event.first_name }}"
        LastName: "{{ event.last_name }}"
        Company: "{{ event.company }}"
        Email: "{{ event.email }}"
"#;

const SALESFORCE: &str = r#"destinations:
  crm:
    type: salesforce
    instance_url: URL
    auth: { client_id: sim-client, client_secret: "${secrets.HARNESS_CRM}" }
    timeout: 500ms
    concurrency: 64
    batch_max: 1
    breaker: { open_first: 1s, open_max: 2s }
"#;

const TO_SINK: &str = r#"version: 1
name: lead-to-sink
consumes: { queue: leads }
concurrency: 64
run:
  - name: put
    run: http.request
    with:
      destination: sink
      method: PUT
      url: "/leads/{{ event.contact_external_id }}"
      json:
        email: "{{ event.email }}"
        last_name: "{{ event.last_name }}"
        company: "{{ event.company }}"
"#;

const SINK: &str = "destinations:
  sink:
    type: http
    base_url: URL
    timeout: 10s
    concurrency: 64
";

const CONTACTS: &str = "contacts:
  identifiers: [{ field: email }]
";

/// Destination of the leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeadsTo<'a> {
    /// One record per lead, in the simulated Salesforce at this URL.
    Salesforce(&'a str),
    /// One `PUT` per lead, to the simulated sink at this URL.
    Sink(&'a str),
}

impl LeadsTo<'_> {
    /// Target of a pause of the destination.
    pub(crate) fn target(&self) -> &'static str {
        match self {
            LeadsTo::Salesforce(_) => "destination:crm",
            LeadsTo::Sink(_) => "destination:sink",
        }
    }
}

/// A configuration on disk, and the data directory beside it.
#[derive(Clone, Debug)]
pub(crate) struct Leads {
    pub config: PathBuf,
    pub data: PathBuf,
}

impl Leads {
    /// Writes the configuration into a subdirectory of `directory`.
    pub(crate) fn write(directory: &Path, to: LeadsTo<'_>) -> Result<Leads, Error> {
        let leads = Leads { config: directory.join("config"), data: directory.join("data") };
        let (worker, destination) = match to {
            LeadsTo::Salesforce(url) => (TO_SALESFORCE, SALESFORCE.replace("URL", url)),
            LeadsTo::Sink(url) => (TO_SINK, SINK.replace("URL", url)),
        };
        let files = [
            ("flow.yml", FLOW),
            ("queues.yml", QUEUES),
            ("worker.yml", worker),
            ("destinations.yml", destination.as_str()),
            ("secrets/HARNESS_SENDER", "harness-sender-secret"),
            ("secrets/HARNESS_CRM", "sim-secret"),
        ];
        std::fs::create_dir_all(leads.config.join("secrets")).map_err(Error::io(leads.config.display().to_string()))?;
        for (name, text) in files {
            let path = leads.config.join(name);
            std::fs::write(&path, text).map_err(Error::io(path.display().to_string()))?;
        }
        Ok(leads)
    }

    /// Keeps contacts, identified by their email address.
    pub(crate) fn keep_contacts(self) -> Result<Leads, Error> {
        let path = self.config.join("contacts.yml");
        std::fs::write(&path, CONTACTS).map_err(Error::io(path.display().to_string()))?;
        Ok(self)
    }

    /// Settings of a node on loopback, with ports chosen by the system.
    pub(crate) fn settings(&self) -> NodeSettings {
        NodeSettings {
            config: self.config.clone(),
            data: self.data.clone(),
            intake: ANY_PORT,
            admin: ANY_PORT,
            admin_settings: operate::AdminSettings::default(),
            intake_settings: intake::IntakeSettings::default(),
            keep: maintain::RetentionSettings::default(),
            scheduler: Limits::default(),
            trace_environment: TraceEnvironment::default(),
        }
    }

    /// Sender whose signatures the configuration accepts.
    pub(crate) fn sender(&self) -> Result<Sender, Error> {
        let run::LoadedConfig { live, .. } = run::load(&self.settings())?;
        let flow = live.config.flows.get(FLOW_NAME).cloned();
        let flow = flow.ok_or_else(|| Error::Failed(format!("the configuration has no flow {FLOW_NAME}")))?;
        Ok(Sender { live: Arc::new(live), flow })
    }
}

/// Builds signed requests.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    live: Arc<LoadedRevision>,
    flow: Arc<Flow>,
}

impl Sender {
    /// Appends the complete HTTP request with this body.
    pub(crate) fn write(&self, body: &[u8], request: &mut Vec<u8>) {
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: sluice-harness\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            self.flow.path,
            body.len()
        );
        request.extend_from_slice(head.as_bytes());
        let unsigned = UnsignedRequest { method: "POST", id: "", content_type: "application/json", body };
        let signed =
            self.flow.verify.as_ref().map(|verifier| verify::sign(verifier, &unsigned, jiff::Timestamp::now()));
        for (name, value) in signed.and_then(Result::ok).map(|signed| signed.headers).into_iter().flatten() {
            request.extend_from_slice(name.as_bytes());
            request.extend_from_slice(b": ");
            request.extend_from_slice(value.expose().as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
    }

    /// Flow that accepts the requests.
    pub(crate) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// The event that a node would write for this body.
    pub(crate) fn prepare(&self, body: &[u8]) -> Result<sluice_ledger::NewEvent, Error> {
        let headers = hyper::HeaderMap::from_iter([
            (hyper::header::HOST, hyper::header::HeaderValue::from_static("127.0.0.1")),
            (hyper::header::USER_AGENT, hyper::header::HeaderValue::from_static("sluice-harness")),
            (hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json")),
        ]);
        let request = intake::RequestMeta {
            received_at: Time::from(jiff::Timestamp::now()),
            verified_by: Some("HARNESS_SENDER"),
            trace: "4bf92f3577b34da6a3ce929d0e0e4736",
            ..intake::RequestMeta::default()
        };
        let prepared = intake::prepare(&self.live, &self.flow, &headers, body, request);
        prepared.map(|prepared| prepared.into_new().1).map_err(|problem| Error::Failed(problem.detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_simulator::traffic::{Traffic, TrafficSettings};

    #[test]
    fn both_configurations_compile_and_accept_a_lead() {
        for to in [LeadsTo::Salesforce("http://127.0.0.1:1"), LeadsTo::Sink("http://127.0.0.1:1")] {
            let directory = tempfile::tempdir().unwrap();
            let sender = Leads::write(directory.path(), to).unwrap().sender().unwrap();
            let traffic = Traffic::plan(TrafficSettings { leads: 1, ..TrafficSettings::default() });
            let event = sender.prepare(&traffic.body(0)).unwrap();
            assert_eq!(event.key_text, traffic.event_id(0));
            assert_eq!(event.jobs.len(), 1);
            let mut request = Vec::new();
            sender.write(&traffic.body(0), &mut request);
            assert!(String::from_utf8_lossy(&request).to_lowercase().contains("x-signature: sha256="));
        }
    }
}
