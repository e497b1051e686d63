//! Workers in safe mode: a cache of the ledger shared by the components.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use sluice_domain::safe_mode::{ErrorRate, Modes, Trigger};
use sluice_domain::time::Time;
use sluice_domain::worker::Worker;
use sluice_ledger::{Ledger, SetSafeMode};

/// Safe-mode state of workers, and its automatic rules. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SafeModes {
    ledger: Ledger,
    modes: Arc<ArcSwap<Modes>>,
    rates: Arc<Mutex<HashMap<String, ErrorRate>>>,
}

/// Wait code of a job held by safe mode.
pub(crate) const SAFE_MODE_HOLDS: &str = "safe-mode";

/// Actor of automatic rules.
const RULE: &str = "sluice";

impl SafeModes {
    pub async fn load(ledger: Ledger) -> Result<SafeModes, sluice_ledger::Error> {
        let modes = SafeModes { ledger, modes: Arc::default(), rates: Arc::default() };
        modes.refresh().await?;
        Ok(modes)
    }

    /// Reloads from the ledger.
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

    /// End of safe mode of a worker; `None` if it is off.
    pub fn until(&self, worker: &str, now: Time) -> Option<Time> {
        self.modes.load().until(worker, now)
    }

    /// Turns on safe mode for workers whose rule names the opened breaker.
    pub(crate) async fn breaker_opened(&self, workers: Vec<Arc<Worker>>, destination: &str, now: Time) {
        let opens = |trigger: &Trigger| matches!(trigger, Trigger::Breaker(name) if name == destination);
        for worker in workers.iter().filter(|worker| worker.safe_mode.when.iter().any(opens)) {
            self.turn_on(worker, format!("the breaker of {destination} opened"), now).await;
        }
    }

    /// Counts an attempt for the error-rate rule.
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

    /// Does nothing if it is already on for longer.
    async fn turn_on(&self, worker: &Worker, reason: String, now: Time) {
        let until = now + worker.safe_mode.duration;
        let soon = until - Duration::from_secs(1);
        if self.modes.load().workers.get(&worker.name).is_some_and(|known| *known >= soon) {
            return;
        }
        tracing::warn!(worker = %worker.name, %until, "safe mode on: {reason}");
        let set =
            SetSafeMode { worker: Some(worker.name.clone()), until: Some(until), actor: RULE.into(), reason, at: now };
        if let Err(error) = self.ledger.set_safe_mode(set).await {
            tracing::error!(worker = %worker.name, %error, "safe mode not turned on");
        }
    }
}
