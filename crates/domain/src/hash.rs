//! Hash maps and sets. `Map` and `Set` are keyed by internal ids and digests, which senders cannot choose: a fast hash with
//! a fixed seed suffices, and iteration order is the same in every process.

pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

pub type Set<K> = std::collections::HashSet<K, foldhash::fast::FixedState>;

/// Keyed by what senders choose. Randomly seeded, so that a sender cannot provoke collisions.
pub type UntrustedMap<K, V> = std::collections::HashMap<K, V, foldhash::quality::RandomState>;

/// Names chosen by senders. Randomly seeded, so that a sender cannot provoke collisions.
pub type UntrustedNames = std::collections::HashSet<String, foldhash::quality::RandomState>;
