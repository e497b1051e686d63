//! Cache of credentials that do not cover the body, so that each is accepted for one event only.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;

/// At least the longest validity window of such a credential.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Above this the oldest are evicted; their validity window still limits reuse.
const PROOFS_MAX: usize = 200_000;

/// Maps credentials to events.
#[derive(Debug, Default)]
pub(super) struct ProofCache {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    events: HashMap<KeyDigest, KeyDigest>,
    order: VecDeque<(Time, KeyDigest)>,
}

impl ProofCache {
    /// Whether the credential was not used for another event. A duplicate of the same event passes, because its key
    /// identifies it.
    pub(super) fn take(&self, flow: &str, proof: &str, event: KeyDigest, now: Time) -> bool {
        let Ok(mut inner) = self.inner.lock() else { return false };
        while let Some((at, oldest)) = inner.order.front().copied()
            && (now.since(at) > REMEMBERED || inner.order.len() >= PROOFS_MAX)
        {
            inner.order.pop_front();
            inner.events.remove(&oldest);
        }
        let proof = KeyDigest::new("proof", flow, proof);
        match inner.events.get(&proof) {
            Some(first) => *first == event,
            None => {
                inner.events.insert(proof, event);
                inner.order.push_back((now, proof));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_is_accepted_for_one_event() {
        let proofs = ProofCache::default();
        let (one, other) = (KeyDigest([1; 16]), KeyDigest([2; 16]));
        assert!(proofs.take("f", "t", one, Time(0)));
        assert!(proofs.take("f", "t", one, Time(1)), "a repeat passes");
        assert!(!proofs.take("f", "t", other, Time(2)));
        assert!(proofs.take("g", "t", other, Time(2)), "another flow has secrets of its own");
        assert!(proofs.take("f", "t", other, Time(7_200_000)), "it is forgotten long after its window");
    }
}
