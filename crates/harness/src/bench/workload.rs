//! Requests of a benchmark: leads with distinct ids.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;
use sluice_ledger::{EventBody, Ledger, NewEvent};
use sluice_simulator::load::WriteRequest;
use sluice_simulator::traffic::{Traffic, TrafficSettings};
use tokio::task::JoinSet;

use crate::{Error, Sender};
use sluice_server::intake::TENANT;

/// Distinct leads; further ones differ in their ids only.
const VARIETY: u32 = 64;
/// Leads of a person, where persons are told apart.
const EVENTS_PER_PERSON: u64 = 2;
/// Digits of the number in an id.
const DIGITS: usize = 12;
/// Concurrent accepts while the ledger is filled.
const FILL_IN_FLIGHT: usize = 1_024;

/// Source of requests.
#[derive(Debug)]
pub(super) struct Workload {
    sender: Sender,
    bodies: Arc<[Body]>,
    next: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Body {
    bytes: Vec<u8>,
    /// Byte offsets of the number.
    number_offsets: Vec<usize>,
    /// Byte offsets of the number of the person; none if every lead of a kind is about the same one.
    person_offsets: Vec<usize>,
}

impl Body {
    fn with_number(&self, number: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        for (offsets, number) in [(&self.number_offsets, number), (&self.person_offsets, number / EVENTS_PER_PERSON)] {
            let digits = digits(number);
            for at in offsets {
                out[*at..at + DIGITS].copy_from_slice(&digits);
            }
        }
    }
}

fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

impl Workload {
    /// Leads about a few persons.
    pub(super) fn new(sender: Sender, body_bytes: usize) -> Result<Workload, Error> {
        Workload::with_emails(sender, body_bytes, None)
    }

    /// Leads about ever new persons, each of whom has a few.
    pub(super) fn of_new_persons(sender: Sender, body_bytes: usize) -> Result<Workload, Error> {
        let place = "$".repeat(DIGITS);
        Workload::with_emails(sender, body_bytes, Some(&format!("lead-{place}@example.com")))
    }

    fn with_emails(sender: Sender, body_bytes: usize, email: Option<&str>) -> Result<Workload, Error> {
        let traffic = Traffic::plan(TrafficSettings { leads: VARIETY, body_bytes, ..TrafficSettings::default() });
        let bodies = (0..VARIETY).map(|lead| {
            let mut lead = traffic.lead(lead);
            let place = "#".repeat(DIGITS);
            lead.event_id = format!("evt_{place}");
            lead.lead_id = format!("L-{place}");
            lead.email = email.map_or(lead.email, str::to_owned);
            let bytes = serde_json::to_vec(&lead).map_err(|error| Error::Failed(error.to_string()))?;
            let offsets = |byte: u8| {
                let places = bytes.windows(DIGITS).enumerate().filter(|(_, window)| *window == [byte; DIGITS]);
                places.map(|(at, _)| at).collect()
            };
            let (number_offsets, person_offsets) = (offsets(b'#'), offsets(b'$'));
            Ok(Body { bytes, number_offsets, person_offsets })
        });
        let bodies = bodies.collect::<Result<Arc<[Body]>, Error>>()?;
        Ok(Workload { sender, bodies, next: Arc::default() })
    }

    /// An event as a node writes it.
    pub(super) fn sample(&self) -> Result<NewEvent, Error> {
        let mut body = Vec::new();
        self.bodies[0].with_number(0, &mut body);
        self.sender.prepare(&body)
    }

    /// Requests that are unique within this run.
    pub(super) fn requests(&self) -> Arc<WriteRequest> {
        let (sender, bodies, next) = (self.sender.clone(), self.bodies.clone(), self.next.clone());
        Arc::new(move |_, request| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let mut body = Vec::with_capacity(1024);
            bodies[(number % u64::from(VARIETY)) as usize].with_number(number, &mut body);
            sender.write(&body, request);
        })
    }

    /// Writes the events with these numbers, with one waiting job each. Their bodies are short: only keys and jobs matter here.
    pub(super) async fn fill(&self, ledger: &Ledger, numbers: Range<u64>) -> Result<(), Error> {
        let mut sample = self.sample()?;
        sample.body = Arc::new(EventBody {
            headers: "{}".into(),
            raw: b"{}".to_vec(),
            normalized: "{}".into(),
            ..EventBody::default()
        });
        sample.expires_at = Time::from(jiff::Timestamp::now()) + Duration::from_secs(30 * 86_400);
        let (sample, next) = (Arc::new(sample), Arc::new(AtomicU64::new(numbers.start)));
        let mut fillers = JoinSet::new();
        for _ in 0..FILL_IN_FLIGHT {
            let (sample, next, ledger) = (sample.clone(), next.clone(), ledger.clone());
            fillers.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return Ok(());
                    }
                    let key_text = format!("fill-{number:012}");
                    let key = KeyDigest::new(TENANT, &sample.flow, &key_text);
                    ledger.accept(NewEvent { key, key_text, entity: number, ..(*sample).clone() }).await?;
                }
            });
        }
        while let Some(filled) = fillers.join_next().await {
            filled
                .map_err(|error| Error::Failed(error.to_string()))?
                .map_err(|error: sluice_ledger::Error| Error::from(error))?;
        }
        Ok(())
    }
}
