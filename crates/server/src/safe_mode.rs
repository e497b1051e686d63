//! Which workers are in safe mode right now: a window on the ledger, shared by the rooms.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use sluice_domain::safe_mode::{ErrorRate, Modes, Trigger};
use sluice_domain::time::Time;
use sluice_domain::worker::Worker;
use sluice_ledger::{Ledger, SetSafeMode};

/// Knows who is in safe mode, and turns it on by rule. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SafeModes {
    ledger: Ledger,
    modes: Arc<ArcSwap<Modes>>,
    rates: Arc<Mutex<HashMap<String, ErrorRate>>>,
}

/// The code of what a job waits for that safe mode holds.
pub const SAFE_MODE_HOLDS: &str = "safe-mode";

/// Who turns it on when nobody does.
const RULE: &str = "sluice";

impl SafeModes {
    /// Reads what the ledger knows.
    pub async fn load(ledger: Ledger) -> Result<SafeModes, sluice_ledger::Error> {
        let modes = SafeModes { ledger, modes: Arc::default(), rates: Arc::default() };
        modes.refresh().await?;
        Ok(modes)
    }

    /// Reads again what the ledger knows.
    pub async fn refresh(&self) -> Result<(), sluice_ledger::Error> {
        let mut modes = Modes::default();
        for record in self.ledger.safe_modes().await? {
            match record.worker {
                None => modes.all = Some(record.until),
                Some(worker) => drop(modes.workers.insert(worker, record.until)),
            }
        }
        self.modes.store(Arc::new(modes));
        Ok(())
    }

    /// Until when this worker is in safe mode, if it is.
    pub fn until(&self, worker: &str, now: Time) -> Option<Time> {
        self.modes.load().until(worker, now)
    }

    /// Turns it on or off, durably, and then for everybody who asks.
    pub async fn set(&self, set: SetSafeMode) -> Result<(), sluice_ledger::Error> {
        self.ledger.set_safe_mode(set).await?;
        self.refresh().await
    }

    /// The breaker of a destination has opened: workers that say so go into safe mode.
    pub async fn breaker_opened(&self, workers: Vec<Arc<Worker>>, destination: &str, now: Time) {
        let opens = |trigger: &Trigger| matches!(trigger, Trigger::Breaker(name) if name == destination);
        for worker in workers.iter().filter(|worker| worker.safe_mode.when.iter().any(opens)) {
            self.turn_on(worker, format!("the breaker of {destination} opened"), now).await;
        }
    }

    /// An attempt of a worker has ended.
    pub async fn attempted(&self, worker: &Worker, failed: bool, now: Time) {
        for trigger in &worker.safe_mode.when {
            let Trigger::ErrorRate(rule) = trigger else { continue };
            let too_many = match self.rates.lock() {
                Ok(mut rates) => {
                    let rate = rates.entry(worker.name.clone()).or_default();
                    let too_many = rate.count(*rule, now, failed);
                    if too_many {
                        rate.clear();
                    }
                    too_many
                }
                Err(_) => false,
            };
            if too_many {
                self.turn_on(worker, format!("more than {}% of its attempts failed", rule.over_percent), now).await;
            }
        }
    }

    /// Unless it is on for longer already.
    async fn turn_on(&self, worker: &Worker, reason: String, now: Time) {
        let until = now + worker.safe_mode.duration;
        let soon = until - Duration::from_secs(1);
        if self.modes.load().workers.get(&worker.name).is_some_and(|known| *known >= soon) {
            return;
        }
        tracing::warn!(worker = %worker.name, %until, "safe mode is on: {reason}");
        let set =
            SetSafeMode { worker: Some(worker.name.clone()), until: Some(until), actor: RULE.into(), reason, at: now };
        if let Err(error) = self.set(set).await {
            tracing::error!(worker = %worker.name, %error, "safe mode could not be turned on");
        }
    }
}
