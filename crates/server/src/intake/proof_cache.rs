//! Proofs that cover no more than themselves, remembered while they could be used again.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;

/// At least as long as any window in which such a proof is taken.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// A flood beyond this forgets the oldest, which the window then protects.
const PROOFS_MAX: usize = 200_000;

/// Which proof came with which event.
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
    /// Whether a proof may stand for this event: it has not come with another one. A repeat of the same event passes, since
    /// it is recognised by its key.
    pub fn take(&self, flow: &str, proof: &str, event: KeyDigest, now: Time) -> bool {
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
    fn a_proof_stands_for_one_event() {
        let proofs = ProofCache::default();
        let (one, other) = (KeyDigest([1; 16]), KeyDigest([2; 16]));
        assert!(proofs.take("f", "t", one, Time(0)));
        assert!(proofs.take("f", "t", one, Time(1)), "a repeat passes");
        assert!(!proofs.take("f", "t", other, Time(2)));
        assert!(proofs.take("g", "t", other, Time(2)), "another flow has secrets of its own");
        assert!(proofs.take("f", "t", other, Time(7_200_000)), "it is forgotten long after its window");
    }
}
