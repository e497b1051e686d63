//! Reads the totals of the CRM.

use std::collections::HashMap;
use std::time::Duration;

use sluice_simulator::crm::{SeenCall, Truth};
use sluice_simulator::salesforce::Record;
use sluice_simulator::traffic::Traffic;
use tokio::time::Instant;

use super::CrmCounts;
use crate::Error;
use crate::chaos::proxies::Crm;

/// Time for calls in flight to end; longer than the CRM delays any.
const SETTLED_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(super) async fn read(crm: &Crm, traffic: &Traffic) -> Result<(CrmCounts, Vec<SeenCall>), Error> {
    let truth = settled(crm).await?;
    let emails: HashMap<String, String> =
        crm.leads().await?.iter().map(|record| (text(record, "External_Lead_Id__c"), text(record, "Email"))).collect();
    let whole = |lead: u32| {
        let lead = traffic.lead(lead);
        emails.get(&lead.event_id).is_some_and(|email| *email == lead.email.to_lowercase())
    };
    let lead = truth.object("Lead");
    let counts = CrmCounts {
        calls: truth.calls.received,
        faults: truth.faults_total(),
        applied_unseen: truth.calls.applied_unseen,
        records: lead.records,
        created_again: lead.created_again,
        ambiguous: lead.ambiguous,
        incomplete: (0..traffic.leads()).filter(|lead| !whole(*lead)).count() as u64,
        forgotten: truth.calls_forgotten,
    };
    Ok((counts, crm.calls().await?))
}

/// Counts once no call is in flight.
async fn settled(crm: &Crm) -> Result<Truth, Error> {
    let give_up = Instant::now() + SETTLED_MAX;
    loop {
        let truth = crm.truth().await?;
        if truth.calls.settled == truth.calls.received {
            return Ok(truth);
        }
        if Instant::now() > give_up {
            let held = truth.calls.received - truth.calls.settled;
            return Err(Error::Failed(format!("{held} calls are still in flight")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn text(record: &Record, field: &str) -> String {
    record.fields.get(field).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}
