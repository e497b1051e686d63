//! Lookups at destinations: the cache, the gate, the call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_connectors::Call;
use sluice_domain::action::Action;
use sluice_domain::destination::GateSettings;
use sluice_domain::enrich::{HttpLookup, LookupAdmission, LookupGate, LookupResult};
use sluice_domain::event::LossCode;
use sluice_domain::outcome::Outcome;
use sluice_domain::random::Random;
use sluice_domain::run::timed_out;
use sluice_domain::schedule::PauseTarget;
use sluice_domain::schedule::gate::GateChange;
use sluice_domain::time::Time;
use tokio::sync::Notify;

use super::cache::{CacheKey, LookupCache};
use crate::clock::Clock;
use crate::pauses::AppliedPauses;
use crate::revisions::Revisions;

#[derive(Debug)]
pub(super) struct HttpLookups {
    revisions: Revisions,
    clock: Clock,
    paused: AppliedPauses,
    state: Mutex<State>,
    /// A lookup has ended.
    ended: Notify,
}

#[derive(Debug)]
struct State {
    cache: LookupCache,
    gates: HashMap<Arc<str>, (GateSettings, LookupGate)>,
    random: Random,
}

/// A lookup that has begun. Its place in the gate is given back when it ends, also if it is abandoned.
struct Begun<'a> {
    lookups: &'a HttpLookups,
    destination: Arc<str>,
    started: Time,
    outcome: Option<Outcome>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| Outcome::Unsure { failure: timed_out(Duration::ZERO) });
        self.lookups.finish(&self.destination, self.started, &outcome);
    }
}

impl HttpLookups {
    pub(super) fn new(revisions: Revisions, clock: Clock, paused: AppliedPauses) -> HttpLookups {
        let random = Random::seeded(clock.wall().0 as u64);
        let state = Mutex::new(State { cache: LookupCache::default(), gates: HashMap::new(), random });
        HttpLookups { revisions, clock, paused, state, ended: Notify::new() }
    }

    pub(super) async fn look_up(&self, lookup: &HttpLookup, revision: &Arc<str>) -> LookupResult {
        let key = cache_key(lookup, revision);
        if let Some(known) = self.state().cache.get(&key, self.clock.now()) {
            return known;
        }
        let target = PauseTarget::Destination(lookup.destination.clone());
        if self.paused.lock().await.contains(&target) {
            return LookupResult::failed(LossCode::LookupSkipped, "the destination is paused");
        }
        let deadline = self.clock.now() + lookup.timeout;
        let mut begun = match self.begin(lookup, deadline).await {
            Ok(begun) => begun,
            Err(result) => return result,
        };
        let left = deadline.since(self.clock.now());
        let outcome = match tokio::time::timeout(left, self.call(lookup, revision, left)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Unsure { failure: timed_out(lookup.timeout) },
        };
        begun.outcome = Some(outcome.clone());
        drop(begun);
        let (result, lifetime) = lookup.judge(outcome);
        self.state().cache.put(key, result.clone(), lifetime, self.clock.now());
        result
    }

    /// Waits for a place in the gate of the destination, as long as the deadline allows.
    async fn begin(&self, lookup: &HttpLookup, deadline: Time) -> Result<Begun<'_>, LookupResult> {
        loop {
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            let now = self.clock.now();
            match self.admit(&lookup.destination, now, deadline) {
                LookupAdmission::Go => {
                    let destination = lookup.destination.clone();
                    return Ok(Begun { lookups: self, destination, started: now, outcome: None });
                }
                LookupAdmission::Skip(result) => return Err(result),
                _ if now >= deadline => {
                    let message = "no free place at the destination within the deadline";
                    return Err(LookupResult::failed(LossCode::LookupSkipped, message));
                }
                LookupAdmission::Wait(until) => tokio::time::sleep_until(self.clock.instant(until).into()).await,
                LookupAdmission::Full => {
                    let _ = tokio::time::timeout_at(self.clock.instant(deadline).into(), ended).await;
                }
            }
        }
    }

    /// The gate has the limits of the active configuration.
    fn admit(&self, destination: &Arc<str>, now: Time, deadline: Time) -> LookupAdmission {
        let current = self.revisions.current();
        let settings = current.config.destinations.get(&**destination).map(|found| found.gate.clone());
        let settings = settings.unwrap_or_default();
        let mut state = self.state();
        let (known, gate) = state
            .gates
            .entry(destination.clone())
            .or_insert_with(|| (settings.clone(), LookupGate::new(settings.clone())));
        if *known != settings {
            gate.configure(settings.clone());
            *known = settings;
        }
        gate.admit(now, deadline)
    }

    async fn call(&self, lookup: &HttpLookup, revision: &Arc<str>, timeout: Duration) -> Outcome {
        let connectors = self.revisions.connectors(revision, &lookup.destination);
        let call = Call {
            action: Action::HttpRequest,
            destination: &lookup.destination,
            with: &lookup.request,
            effect_key: &lookup.effect_key,
            message_key: None,
            record: None,
            attempt: 1,
            traceparent: Some(&lookup.traceparent),
            timeout,
            now: self.clock.wall(),
        };
        connectors.call(call).await
    }

    fn finish(&self, destination: &Arc<str>, started: Time, outcome: &Outcome) {
        let now = self.clock.now();
        let change = {
            let mut state = self.state();
            let State { gates, random, .. } = &mut *state;
            gates.get_mut(destination).and_then(|(_, gate)| gate.finish(now, started, outcome, random))
        };
        match change {
            Some(GateChange::Opened(until)) => {
                let until = self.clock.to_wall(until);
                tracing::warn!(%destination, %until, "lookups fail: breaker open, jobs continue without them");
            }
            Some(GateChange::Closed) => tracing::info!(%destination, "lookups work again: breaker closed"),
            _ => {}
        }
        self.ended.notify_waiters();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two lookups with the same key have the same answer. Another revision may name another address or other credentials.
fn cache_key(lookup: &HttpLookup, revision: &str) -> CacheKey {
    let mut hasher = blake3::Hasher::new();
    let mut part = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(revision);
    part(&lookup.destination);
    part(&lookup.request.to_string());
    for (name, path) in &lookup.fields {
        part(name);
        part(&format!("{path:?}"));
    }
    *hasher.finalize().as_bytes()
}
