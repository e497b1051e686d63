//! The keys of every sender's preset over payloads of the event types that the sender documents: distinct events have distinct
//! keys, and a retry has the key of its first delivery.

use std::collections::{BTreeMap, HashMap};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;
use sluice_domain::time::Time;
use sluice_domain::verify::{Scheme, SecretValue};
use sluice_server::config::{Files, SecretSource, compile};
use sluice_server::intake::{RequestMeta, prepare_all};
use sluice_server::revisions::LoadedRevision;

use crate::senders::{flows, is_general};

/// One delivery: `json` or `form` is its body, `again` that of a retry where it differs.
type Delivery = BTreeMap<String, Value>;

fn body(delivery: &Delivery, name: &str) -> Option<(Vec<u8>, &'static str)> {
    match delivery.get(name)? {
        Value::String(form) => Some((form.clone().into_bytes(), "application/x-www-form-urlencoded")),
        json => Some((json.to_string().into_bytes(), "application/json")),
    }
}

#[derive(Debug)]
struct Listed(Vec<(String, String)>);

impl SecretSource for Listed {
    fn lookup(&self, name: &str) -> std::io::Result<Option<SecretValue>> {
        Ok(self.0.iter().find(|(own, _)| own == name).map(|(_, value)| SecretValue::from(value.as_str())))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

struct Presets(LoadedRevision);

impl Presets {
    fn load() -> Presets {
        let (text, secrets) = flows();
        let files = Files::from_texts(vec![
            ("flows.yml".to_owned(), text),
            ("queues.yml".to_owned(), "queues: [leads]\n".to_owned()),
        ]);
        let compiled = compile(&files, &Listed(secrets));
        Presets(LoadedRevision::new(compiled.config.unwrap(), compiled.secrets).unwrap())
    }

    fn key(&self, scheme: Scheme, delivery: &Delivery, body: (Vec<u8>, &str)) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_str(body.1).unwrap());
        for (name, value) in delivery.get("headers").and_then(Value::as_object).into_iter().flatten() {
            let value = HeaderValue::from_str(value.as_str().unwrap()).unwrap();
            headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        }
        let flow = &self.0.config.flows[scheme.name()];
        let meta = RequestMeta { received_at: Time(1_790_000_000_000), ..RequestMeta::default() };
        let prepared = prepare_all(&self.0, flow, &headers, &body.0, meta).unwrap();
        assert_eq!(prepared.len(), 1, "{scheme} {delivery:?}");
        prepared[0].key.text.clone()
    }
}

#[test]
fn no_preset_swallows_different_events_and_every_repeat_collapses() {
    let senders: BTreeMap<String, Vec<Delivery>> = serde_json::from_str(include_str!("vendor/events.json")).unwrap();
    let presets = Presets::load();
    for scheme in Scheme::ALL.iter().copied().filter(|scheme| !is_general(*scheme)) {
        let deliveries = senders.get(scheme.name()).unwrap_or_else(|| panic!("no payloads of {scheme}"));
        let mut seen: HashMap<String, &Value> = HashMap::new();
        for delivery in deliveries {
            let first = body(delivery, "json").or_else(|| body(delivery, "form")).unwrap();
            let key = presets.key(scheme, delivery, first.clone());
            let again = body(delivery, "again").unwrap_or(first);
            assert_eq!(presets.key(scheme, delivery, again), key, "{scheme}: a retry of {}", delivery["event"]);
            if let Some(other) = seen.insert(key.clone(), &delivery["event"]) {
                panic!("{scheme}: {other} and {} have one key, {key}", delivery["event"]);
            }
            assert!(!key.contains('@'), "{scheme}: {key}");
        }
    }
}
