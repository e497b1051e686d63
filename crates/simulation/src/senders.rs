//! Senders: they repeat themselves, come late, come all at once, and do not always hear the answer.

use std::cell::OnceCell;
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use sluice_domain::event::EventId;
use sluice_domain::event::{Audit, Event};
use sluice_domain::key::KeyDigest;
use sluice_domain::mutant::Mutant;
use sluice_domain::random::Random;
use sluice_domain::record::{EventDraft, NewEvent, NewJob};
use sluice_domain::run::first_route;
use sluice_domain::template::Scope;
use sluice_domain::time::Time;

use super::coverage::Fault;
use super::node::Waiter;
use super::ops::SimOp;
use super::people::{PersonRequest, person_event};
use super::plan::{ACCOUNTS, ENTITIES, KEY_LIFETIME, PROFILES, SWEEP, attributes};
use super::trace::About;
use super::watching::with_clock;
use super::world::{SimEvent, Simulation};

/// How often a sender tries before it gives up.
const SENDS_MAX: u8 = 40;
/// New events are turned away when so many operations wait for the writer.
const QUEUE_ACCEPTS_MAX: usize = 400;

/// One thing that a sender wants to tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Webhook {
    pub key: u32,
    entity: u64,
    source: usize,
    /// The sender has heard that it is taken.
    heard: bool,
    sends: u8,
}

/// Everybody who sends.
#[derive(Debug)]
pub(super) struct Senders {
    pub webhooks: Vec<Webhook>,
    gap_ms: u64,
    sources: [Arc<str>; 2],
    flow: Arc<str>,
    /// Events about each entity, with and without a note, from their first request on.
    drafts: Vec<[OnceCell<Draft>; 2]>,
}

/// An event about an entity without its key and times.
#[derive(Debug)]
struct Draft {
    event: NewEvent,
    /// What its expressions see.
    scope: Scope,
}

impl Senders {
    pub(crate) fn new(random: &mut Random) -> Senders {
        let sources = ["website", "shop"].map(Arc::from);
        let drafts = DRAFTS.iter().map(|_| Default::default()).collect();
        Senders { webhooks: Vec::new(), gap_ms: 40 + random.below(1_500), sources, flow: Arc::from(FLOW), drafts }
    }

    /// Mean gap between two events.
    #[cfg(test)]
    pub(crate) fn set_gap(&mut self, gap_ms: u64) {
        self.gap_ms = gap_ms;
    }

    /// How many different events there are so far.
    pub(crate) fn made(&self) -> u32 {
        self.webhooks.len() as u32
    }

    /// A world shares nothing with others, which may run on other threads. The value of the event lacks the references to its stored
    /// request, which no simulated expression reads.
    fn draft(&self, entity: u64, with_note: bool) -> &Draft {
        let place = usize::from(!with_note);
        self.drafts[entity as usize][place].get_or_init(|| {
            let (event, value) = &DRAFTS[entity as usize][place];
            let (body, value) = (Arc::new((*event.body).clone()), Arc::new(value.clone()));
            let mut scope = Scope::new();
            scope.set_shared("event", value.clone());
            body.decoded.put_scope(value);
            Draft { event: NewEvent { body, ..event.clone() }, scope }
        })
    }

    /// The key of a webhook as it is derived from its request.
    fn key_text(&self, key: u32, received_at: i64) -> String {
        if Mutant::KeyWithReceiverTimestamp.is_on() {
            return format!("k{key}@{received_at}");
        }
        format!("k{key}")
    }
}

impl Simulation {
    /// A sender comes up with something new, or with many things about one entity at once.
    pub(super) fn arrive(&mut self) {
        let left = self.options.events - self.senders.made();
        if left == 0 {
            let rest = 1_000 + self.some_ms(900_000);
            self.plan_in(rest, SimEvent::Heal);
            return;
        }
        let burst = self.random.chance(self.rates.sender * 0.02);
        let count = if burst { (10 + self.random.below(120) as u32).min(left) } else { 1 };
        if burst {
            self.happened(Fault::SenderBurst);
        }
        let entity = self.random.below(ENTITIES);
        for _ in 0..count {
            self.new_webhook(entity);
        }
        let gap = self.some_ms(2 * self.senders.gap_ms);
        self.plan_in(gap, SimEvent::Arrive);
    }

    fn new_webhook(&mut self, entity: u64) {
        let webhook = self.senders.made();
        let source = self.random.below(2) as usize;
        self.senders.webhooks.push(Webhook { key: webhook, entity, source, heard: false, sends: 0 });
        self.promises.new_key();
        let delay = if self.random.chance(self.rates.sender * 0.2) {
            self.coverage.fault(Fault::SenderReorders);
            self.some_ms(5_000)
        } else {
            0
        };
        self.plan_in(delay, SimEvent::Request { webhook, variant: false });
        if self.random.chance(self.rates.sender) {
            for _ in 0..1 + self.random.below(4) {
                let after = delay + if self.random.chance(0.5) { self.some_ms(5) } else { self.some_ms(120_000) };
                let variant = self.random.chance(0.1);
                self.coverage.fault(if variant { Fault::SenderClash } else { Fault::SenderRepeats });
                self.plan_in(after, SimEvent::Request { webhook, variant });
            }
            if self.random.chance(0.03) {
                self.coverage.fault(Fault::SenderLate);
                let after = KEY_LIFETIME.as_millis() as i64 + self.some_ms(3_600_000);
                self.plan_in(after, SimEvent::Request { webhook, variant: false });
            }
        }
    }

    /// A request reaches the door.
    pub(super) fn request(&mut self, index: u32, variant: bool) {
        self.promises.requests += 1;
        let webhook = &mut self.senders.webhooks[index as usize];
        webhook.sends = webhook.sends.saturating_add(1);
        let Webhook { key, entity, source, .. } = *webhook;
        self.trace.note(self.now, "request", About::Key(key), u64::from(variant));
        let patience = 5_000 + self.some_ms(5_000);
        self.plan_in(patience, SimEvent::Impatience { webhook: index });
        let Some(node) = &self.node else {
            self.coverage.fault(Fault::SenderMeetsClosedDoor);
            return;
        };
        if node.waiting_ops() >= QUEUE_ACCEPTS_MAX {
            self.coverage.fault(Fault::SenderTurnedAway);
            return;
        }
        let received_at = self.ledger_time();
        let Draft { event: draft, scope } = self.senders.draft(entity, key % 97 != 0);
        let revision = self.plan.active();
        let job = |worker: usize| {
            let worker = revision.worker(worker);
            worker.new_job().routed(first_route(worker, scope))
        };
        let jobs: Vec<NewJob> = match (source, key % 53, key % 3) {
            (_, 0, _) => vec![],
            (0, 1..=5, _) => vec![job(3)],
            (_, 6, _) => vec![job(SWEEP)],
            (_, 7..=16, _) => vec![job(PROFILES)],
            (_, 17..=21, _) => vec![job(ACCOUNTS)],
            (0, _, 0) => vec![job(0), job(1)],
            (0, _, _) => vec![job(0)],
            (_, _, 0) => vec![job(2), job(0)],
            (_, _, 1) => vec![job(2)],
            _ => vec![job(1)],
        };
        let senders = &self.senders;
        let key_text = senders.key_text(key, received_at.0);
        let person = (7..=16).contains(&(key % 53)).then(|| {
            let source = &senders.sources[source];
            person_event(PersonRequest { key, key_text: &key_text, source, received_at })
        });
        let event = NewEvent {
            key: KeyDigest::new("default", &senders.flow, &key_text),
            key_text,
            expires_at: received_at + KEY_LIFETIME,
            source: senders.sources[source].clone(),
            received_at,
            revision: revision.run.name.clone(),
            fingerprint: [u8::from(variant); 16],
            jobs,
            ..person.unwrap_or_else(|| draft.clone())
        };
        let event = with_clock(event, key);
        if Mutant::AckBeforeCommit.is_on() {
            let id = EventId::new(event.key, 0);
            self.submit(SimOp::Accept(Box::new(event)), Waiter::Nobody);
            self.answer_sender(index, id);
            return;
        }
        self.submit(SimOp::Accept(Box::new(event)), Waiter::Sender(index));
    }

    /// The node has answered 202 with this id.
    pub(super) fn answer_sender(&mut self, index: u32, id: EventId) {
        let key = self.senders.webhooks[index as usize].key;
        self.trace.note(self.now, "answer", About::Key(key), u64::from(id.0[0]));
        self.promises.answered(self.now, key, id);
        if self.random.chance(self.rates.sender * 0.05) {
            self.coverage.fault(Fault::SenderMissesAnswer);
            return;
        }
        self.senders.webhooks[index as usize].heard = true;
    }

    /// A sender that has not been answered tries again, for a while.
    pub(super) fn impatience(&mut self, index: u32) {
        let webhook = self.senders.webhooks[index as usize];
        if !webhook.heard && webhook.sends < SENDS_MAX {
            let after = self.some_ms(20_000);
            self.plan_in(after, SimEvent::Request { webhook: index, variant: false });
        }
    }
}

pub(super) const FLOW: &str = "all";

/// What every world sends about each entity, with and without a note.
static DRAFTS: LazyLock<Vec<[(NewEvent, Value); 2]>> = LazyLock::new(|| {
    let source = Arc::from("website");
    (0..ENTITIES).map(|entity| [true, false].map(|note| draft(&source, entity, note))).collect()
});

/// An event about an entity, and its value in expressions.
fn draft(source: &Arc<str>, entity: u64, with_note: bool) -> (NewEvent, Value) {
    let attributes = attributes(entity, with_note);
    let event = Event {
        schema_version: "1".into(),
        event_id: String::new(),
        event_type: "simulated".into(),
        source: String::new(),
        occurred_at: None,
        idempotency_key: String::new(),
        identity: serde_json::Map::new(),
        attributes: attributes.as_object().cloned().unwrap_or_default(),
        routing: serde_json::Map::new(),
        audit: Audit { mapping_version: "1".into(), ..Audit::default() },
    };
    let new = NewEvent::new(EventDraft {
        flow: FLOW,
        source,
        expires_at: Time(0),
        revision: &Arc::from(""),
        trace: "",
        fingerprint: [0; 16],
        headers: "{}".to_owned(),
        raw: b"{}".to_vec(),
        event: &event,
        jobs: vec![],
    });
    (NewEvent { entity, contact: None, ..new }, event.to_scope())
}
