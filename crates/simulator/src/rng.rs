//! Seeded pseudo-random numbers: the same seed yields the same numbers on every machine and release.

use std::ops::RangeInclusive;

/// SplitMix64. Reproducible, not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }

    /// Independent stream for item `index` under one seed: the number of draws for one item does not affect the others.
    pub(crate) fn stream(seed: u64, index: u64) -> SeededRng {
        let mut outer = SeededRng(seed ^ index.wrapping_mul(0xA24B_AED4_963E_E407));
        SeededRng(outer.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = (*range.start(), *range.end());
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Number in `0.0..1.0`.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.below(choices.len() as u64) as usize;
        &choices[index]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_yields_the_same_numbers() {
        let draw = |seed| {
            let mut rng = SeededRng::new(seed);
            (0..50).map(|_| rng.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(SeededRng::stream(7, 0).next(), SeededRng::stream(7, 1).next());
    }

    #[test]
    fn drawn_numbers_cover_their_range_and_stay_in_it() {
        let mut rng = SeededRng::new(1);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            let drawn = rng.within(3..=7);
            assert!((3..=7).contains(&drawn));
            seen[(drawn - 3) as usize] = true;
            assert!((0.0..1.0).contains(&rng.fraction()));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.within(4..=4), 4);
        assert_eq!(rng.below(0), 0);
    }
}
