//! Leads into the simulated HubSpot and Salesforce, batched and single: calls used, and leads per second.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use sluice_simulator::load::{LoadSettings, Pace, load};
use sluice_simulator::{Hubspot, HubspotSettings, Salesforce, SalesforceSettings};

use super::node_under_test::NodeUnderTest;
use super::workload::Workload;
use super::{NodeHost, SEND_MAX, StatusLine};
use crate::{Error, Leads, LeadsTo};

const CONNECTIONS: usize = 32;
const BODY_BYTES: usize = 700;
/// Between two looks at the simulators.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Without one more record for so long, the bench has failed.
const STALLED: Duration = Duration::from_secs(120);

const TO_HUBSPOT: &str = r#"version: 1
name: lead-to-crm
consumes: { queue: leads }
concurrency: 64
run:
  - name: upsert
    run: hubspot.upsert
    with:
      object: companies
      id_property: external_company_id
      id: "{{ event.contact_external_id }}"
      properties: { name: "{{ event.company }}" }
"#;

const HUBSPOT: &str = r#"destinations:
  crm:
    type: hubspot
    base_url: URL
    auth: { token: "${secrets.HARNESS_CRM}" }
    concurrency: 64
"#;

const TO_SALESFORCE: &str = r#"destinations:
  crm:
    type: salesforce
    instance_url: URL
    auth: { client_id: sim-client, client_secret: "${secrets.HARNESS_CRM}" }
    concurrency: 64
"#;

/// Figures of every destination and form.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Destinations {
    pub leads: u64,
    pub destinations: Vec<DestinationFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DestinationFigures {
    pub destination: &'static str,
    pub form: &'static str,
    pub calls: u64,
    pub seconds: f64,
    pub leads_per_second: f64,
    /// Records at the end; as many as leads.
    pub records: u64,
}

impl Destinations {
    /// Whether each lead is one record, and batches used fewer calls.
    pub(crate) fn all_reached(&self) -> bool {
        let exact = self.destinations.iter().all(|figures| figures.records == self.leads);
        exact && self.destinations.chunks(2).all(|pair| pair.first().map(|f| f.calls) < pair.last().map(|f| f.calls))
    }
}

impl fmt::Display for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} leads that wait for a destination, until each is a record", self.leads)?;
        writeln!(
            f,
            "  {:<12}{:<10}{:>9}{:>12}{:>12}{:>12}",
            "destination", "form", "calls", "leads/call", "leads/s", "time"
        )?;
        for figures in &self.destinations {
            let DestinationFigures { destination, form, calls, seconds, leads_per_second, .. } = figures;
            let per_call = self.leads as f64 / (*calls).max(1) as f64;
            writeln!(
                f,
                "  {destination:<12}{form:<10}{calls:>9}{per_call:>12.1}{leads_per_second:>12.0}{seconds:>10.1} s"
            )?;
        }
        let verdict = if self.all_reached() { "ok" } else { "not every lead is one record" };
        writeln!(f, "  one record of each lead: {verdict}")
    }
}

/// A simulated CRM.
enum Crm {
    Hubspot(Hubspot),
    Salesforce(Salesforce),
}

impl Crm {
    fn start(name: &str) -> Result<Crm, Error> {
        Ok(match name {
            "hubspot" => {
                let settings = HubspotSettings { daily_calls_max: u64::MAX, ..HubspotSettings::default() };
                Crm::Hubspot(Hubspot::start(settings).map_err(Error::io("the simulated HubSpot"))?)
            }
            _ => {
                let settings = SalesforceSettings { daily_calls_max: u64::MAX, ..SalesforceSettings::default() };
                Crm::Salesforce(Salesforce::start(settings).map_err(Error::io("the simulated Salesforce"))?)
            }
        })
    }

    /// Files of a configuration that writes to it.
    fn configure(&self, leads: &Leads, form: &str) -> Result<(), Error> {
        let (destination, worker, secret) = match self {
            Crm::Hubspot(hubspot) => (HUBSPOT.replace("URL", &hubspot.url()), Some(TO_HUBSPOT), "pat-sim-hubspot"),
            Crm::Salesforce(crm) => (TO_SALESFORCE.replace("URL", &crm.url()), None, "sim-secret"),
        };
        let batch_max = if form == "single" { "    batch_max: 1\n" } else { "" };
        let mut files = vec![("destinations.yml", format!("{destination}{batch_max}"))];
        files.push(("secrets/HARNESS_CRM", secret.to_owned()));
        files.extend(worker.map(|worker| ("worker.yml", worker.to_owned())));
        for (name, text) in files {
            let path = leads.config.join(name);
            std::fs::write(&path, text).map_err(Error::io(path.display().to_string()))?;
        }
        Ok(())
    }

    /// Records, and calls so far.
    fn counts(&self) -> (u64, u64) {
        let (truth, object) = match self {
            Crm::Hubspot(hubspot) => (hubspot.truth(), "companies"),
            Crm::Salesforce(crm) => (crm.truth(), "Lead"),
        };
        (truth.object(object).records, truth.calls.received)
    }
}

/// Measures this many leads with each destination and form.
pub(crate) async fn destinations(host: NodeHost, leads: u64, status: StatusLine) -> Result<Destinations, Error> {
    let directory = tempfile::tempdir().map_err(Error::io("a temporary directory"))?;
    let mut figures = Vec::new();
    for destination in ["hubspot", "salesforce"] {
        for form in ["batched", "single"] {
            let show = |what: &str| status.show(&format!("{destination}, {form}: {what} …"));
            let path = directory.path().join(format!("{destination}-{form}"));
            figures.push(measure(&host, (destination, form), leads, &path, &show).await?);
        }
    }
    status.clear();
    Ok(Destinations { leads, destinations: figures })
}

/// Sends leads while the destination is paused, then lets them go.
async fn measure(
    host: &NodeHost,
    (destination, form): (&'static str, &'static str),
    leads: u64,
    directory: &Path,
    show: &impl Fn(&str),
) -> Result<DestinationFigures, Error> {
    let crm = Crm::start(destination)?;
    let config = Leads::write(directory, LeadsTo::Salesforce("http://127.0.0.1:9"))?;
    crm.configure(&config, form)?;
    let workload = Workload::new(config.sender()?, BODY_BYTES)?;
    let node = NodeUnderTest::start(host, &config, &directory.join("node.log")).await?;
    let api = node.api();
    let target = LeadsTo::Salesforce("").target();
    api.post("/api/v1/pause", &json!({ "target": target, "reason": "a backlog is wanted", "actor": "bench" })).await?;
    show("leads for a paused destination");
    let settings = LoadSettings {
        target: node.intake(),
        connections: CONNECTIONS,
        requests_max: leads,
        time_max: SEND_MAX,
        pace: Pace::Closed,
    };
    let sent = load(settings, workload.requests()).await.map_err(Error::io("the load"))?;
    if sent.with_status(202) != leads {
        return Err(Error::Failed(format!("not every lead was accepted: {:?}", sent.statuses)));
    }
    show("leads into the CRM");
    let started = Instant::now();
    api.post("/api/v1/resume", &json!({ "target": target, "actor": "bench" })).await?;
    written(&crm, leads).await?;
    let seconds = started.elapsed().as_secs_f64();
    let (records, calls) = crm.counts();
    node.stop().await?;
    let leads_per_second = leads as f64 / seconds;
    Ok(DestinationFigures { destination, form, calls, seconds, leads_per_second, records })
}

/// Waits until every lead is a record.
async fn written(crm: &Crm, leads: u64) -> Result<(), Error> {
    let mut last = (0, Instant::now());
    loop {
        let (records, _) = crm.counts();
        if records >= leads {
            return Ok(());
        }
        if records > last.0 {
            last = (records, Instant::now());
        }
        if last.1.elapsed() > STALLED {
            return Err(Error::Failed(format!("{records} of {leads} leads are records, and no more come")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
