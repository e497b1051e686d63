//! A Bloom filter over key prefixes. The prefixes are digests already, so no further hashing is needed.

/// Says "surely not here" or "perhaps here".
#[derive(Clone, Debug)]
pub(super) struct BloomFilter {
    words: Vec<u64>,
}

/// With 12 bits a key and 6 probes about 0.4 % of absent keys are looked for in vain.
const BITS_PER_KEY: usize = 12;
const PROBES: u64 = 6;

impl BloomFilter {
    pub(super) fn with_capacity(keys: usize) -> BloomFilter {
        BloomFilter { words: vec![0; (keys * BITS_PER_KEY).div_ceil(64).max(1)] }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> BloomFilter {
        BloomFilter {
            words: bytes
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight")))
                .collect(),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn probes(&self, prefix: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let bits = self.words.len() as u64 * 64;
        let step = prefix.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..PROBES).map(move |i| {
            let spread = prefix.wrapping_add(i.wrapping_mul(step));
            let bit = ((u128::from(spread) * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1u64 << (bit % 64))
        })
    }

    pub(super) fn insert(&mut self, prefix: u64) {
        for (word, bit) in self.probes(prefix) {
            self.words[word] |= bit;
        }
    }

    pub(super) fn may_contain(&self, prefix: u64) -> bool {
        !self.words.is_empty() && self.probes(prefix).all(|(word, bit)| self.words[word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::random::Random;

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let mut random = Random::seeded(5);
        let keys: Vec<u64> = (0..20_000).map(|_| random.next_u64()).collect();
        let mut filter = BloomFilter::with_capacity(keys.len());
        keys.iter().for_each(|key| filter.insert(*key));
        let filter = BloomFilter::from_bytes(&filter.to_bytes());
        assert!(keys.iter().all(|key| filter.may_contain(*key)));
        let wrong = (0..100_000).filter(|_| filter.may_contain(random.next_u64())).count();
        assert!(wrong < 1_500, "{wrong} of 100000 absent keys are looked for in vain");
    }
}
