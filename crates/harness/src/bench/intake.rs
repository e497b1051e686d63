//! CPU cost of a request before it is written: verification, key and encryption, beside plain HMAC and JSON parsing.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::Value;
use sluice_domain::time::Time;
use sluice_domain::verify::{self, HeaderSource, SecretValue, UnsignedRequest, sign};
use sluice_ledger::bench::{BareMac, Sealing};

use crate::Error;
use sluice_server::config::{Files, SecretSource, compile};
use sluice_server::intake::{RequestMeta, prepare};
use sluice_server::revisions::LoadedRevision;

/// Size of a body.
const BODY_BYTES: usize = 1_024;
/// Upper bound of verification, key and encryption together.
const SUM_MAX_US: f64 = 15.0;
/// Slices of a measurement; the median counts, since other processes may use the machine.
const SLICES: usize = 21;
const SCHEMES: [&str; 4] = ["stripe", "standard-webhooks", "github", "hmac"];
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// CPU cost of a request before it is written, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Intake {
    pub body_bytes: usize,
    /// HMAC-SHA256 over the body.
    pub bare_hmac_us: f64,
    /// JSON parse of the body.
    pub bare_json_us: f64,
    pub schemes: Vec<SchemeCost>,
    /// Upper bound of each sum.
    pub sum_max_us: f64,
}

/// CPU cost of a request of one verification scheme, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SchemeCost {
    pub scheme: &'static str,
    pub verify_us: f64,
    /// Parsing, key, fingerprint and normalized event.
    pub key_us: f64,
    /// Encryption of the stored data, with a new key for a new contact.
    pub seal_us: f64,
    pub sum_us: f64,
}

#[derive(Debug)]
struct Secrets;

impl SecretSource for Secrets {
    fn lookup(&self, _: &str) -> io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from(SECRET)))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

fn live() -> Result<LoadedRevision, Error> {
    let mut flows = String::from("queues: [leads]\n");
    for scheme in SCHEMES {
        let more = if scheme == "hmac" { ", header: X-Signature" } else { "" };
        flows.push_str(&format!(
            "---\nname: {scheme}\ntriggers: [{{ http: {{ path: /in/{scheme}, verify: {{ scheme: {scheme}, secret: \"${{secrets.KEY}}\"{more} }}, idempotency: {{ key_from: body.id }} }} }}]\n\
             event: {{ type: lead.created, id: body.id, identity: {{ email: \"{{{{ body.email | lower | trim }}}}\" }}, attributes: [last_name, company] }}\nsteps: [{{ queue: leads }}]\n"
        ));
    }
    let mut compiled = compile(&Files::from_texts([("bench.yml", flows)]), &Secrets);
    let config = compiled.config.take().ok_or_else(|| Error::Failed(format!("{:?}", compiled.problems)))?;
    LoadedRevision::new(config, compiled.secrets).map_err(|error| Error::Failed(error.to_string()))
}

fn body() -> Vec<u8> {
    let lead = |note: &str| {
        format!(
            r#"{{"id":"lead-4711","type":"lead.created","created":1790000000,"email":"Ada.Lovelace@Example.com","last_name":"Lovelace","company":"Analytical Engines","note":"{note}"}}"#
        )
    };
    let note = "x".repeat(BODY_BYTES.saturating_sub(lead("").len()));
    lead(&note).into_bytes()
}

/// Measures every scheme; `time` is the total.
pub(crate) fn intake(time: Duration) -> Result<Intake, Error> {
    let live = live()?;
    let body = body();
    let slice = time / (SCHEMES.len() * 3 + 2) as u32 / SLICES as u32;
    let mac = BareMac::new(SECRET.as_bytes());
    let bare_hmac_us = micros(slice, || usize::from(mac.of(black_box(&body))));
    let parse = || {
        serde_json::from_slice::<Value>(black_box(&body))
            .map_or(0, |value| value.as_object().map_or(0, |members| members.len()))
    };
    let bare_json_us = micros(slice, parse);
    let mut schemes = Vec::new();
    for scheme in SCHEMES {
        schemes.push(measure(&live, scheme, &body, slice)?);
    }
    Ok(Intake { body_bytes: body.len(), bare_hmac_us, bare_json_us, schemes, sum_max_us: SUM_MAX_US })
}

struct Headers<'a>(&'a HeaderMap);

impl HeaderSource for Headers<'_> {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|value| value.as_bytes())
    }
}

fn measure(live: &LoadedRevision, scheme: &'static str, body: &[u8], slice: Duration) -> Result<SchemeCost, Error> {
    let failed = |problem: String| Error::Failed(format!("{scheme}: {problem}"));
    let flow = live.config.flows.get(scheme).ok_or_else(|| failed("there is no such flow".into()))?;
    let verifier = flow.verify.as_ref().ok_or_else(|| failed("it has no verifier".into()))?;
    let now = jiff::Timestamp::now();
    let unsigned = UnsignedRequest { method: "POST", id: "msg_1", content_type: "application/json", body };
    let signed = sign(verifier, &unsigned, now).map_err(|problem| failed(problem.to_string()))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &signed.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value.expose()))
        {
            headers.insert(name, value);
        }
    }
    let proof = Headers(&headers);
    let request = verify::Request { method: "POST", path_and_query: &flow.path, headers: &proof, body };
    verify::verify(verifier, &request, now).map_err(|refusal| failed(refusal.to_string()))?;
    let arrival = RequestMeta {
        received_at: Time::from(now),
        verified_by: Some("KEY"),
        trace: "00000000000000000000000000000001",
        ..RequestMeta::default()
    };
    let prepared = prepare(live, flow, &headers, body, arrival).map_err(|problem| failed(problem.detail))?;
    let sealing = Sealing::default();
    let verify_us = micros(slice, || usize::from(verify::verify(verifier, black_box(&request), now).is_ok()));
    let key_us = micros(slice, || {
        prepare(live, flow, &headers, black_box(body), arrival).map_or(0, |prepared| prepared.key.text.len())
    });
    let seal_us = micros(slice, || sealing.seal(black_box(&prepared.new), 7));
    Ok(SchemeCost { scheme, verify_us, key_us, seal_us, sum_us: verify_us + key_us + seal_us })
}

/// Microseconds per call: median of the slices.
fn micros(slice: Duration, mut call: impl FnMut() -> usize) -> f64 {
    const CALLS: u32 = 16;
    let mut slices: Vec<f64> = (0..SLICES)
        .map(|_| {
            let (started, mut calls) = (Instant::now(), 0);
            while calls == 0 || started.elapsed() < slice {
                for _ in 0..CALLS {
                    black_box(call());
                }
                calls += CALLS;
            }
            started.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
        })
        .collect();
    slices.sort_by(f64::total_cmp);
    slices[SLICES / 2]
}

impl Intake {
    /// True if every sum is below its bound.
    pub(crate) fn all_reached(&self) -> bool {
        self.schemes.iter().all(|cost| cost.sum_us < self.sum_max_us)
    }
}

impl fmt::Display for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "What a request of {} bytes costs before it is written, in microseconds\n", self.body_bytes)?;
        writeln!(f, "{:<20}{:>8}{:>8}{:>8}{:>8}", "", "proof", "key", "seal", "sum")?;
        for SchemeCost { scheme, verify_us, key_us, seal_us, sum_us } in &self.schemes {
            let word = if *sum_us < self.sum_max_us { "" } else { "  too much" };
            writeln!(f, "{scheme:<20}{verify_us:>8.2}{key_us:>8.2}{seal_us:>8.2}{sum_us:>8.2}{word}")?;
        }
        writeln!(f, "\n{:<20}{:>8.2}", "bare HMAC-SHA256", self.bare_hmac_us)?;
        writeln!(f, "{:<20}{:>8.2}", "bare JSON parse", self.bare_json_us)?;
        writeln!(f, "\nProof, key and seal together should stay below {:.0} microseconds.", self.sum_max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_measured_with_one_kilobyte() {
        let measured = intake(Duration::from_millis(20)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((measured.body_bytes, measured.schemes.len()), (BODY_BYTES, SCHEMES.len()));
        assert!(measured.schemes.iter().all(|cost| cost.verify_us > 0.0 && cost.key_us > 0.0 && cost.seal_us > 0.0));
        assert!(measured.to_string().contains("standard-webhooks"));
    }
}
