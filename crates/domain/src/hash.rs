//! Maps by ids and digests of our own, which nobody outside can choose: a quick hash will do, and it is the same in every process.
//! And one for names that somebody outside does choose.

/// By such a key.
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// Of such keys.
pub type Set<K> = std::collections::HashSet<K, foldhash::fast::FixedState>;

/// Of names that a sender chooses, who cannot know how they are spread.
pub type UntrustedNames = std::collections::HashSet<String, foldhash::quality::RandomState>;
