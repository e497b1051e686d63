//! A small seeded source of numbers: the same seed gives the same numbers on every machine and release.

use std::ops::RangeInclusive;

/// SplitMix64. Not for secrets; its whole point is that anyone can reproduce it.
#[derive(Debug, Clone)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }

    /// An independent stream for the `index`-th thing under one seed, so that drawing more or fewer numbers for one
    /// thing never shifts the numbers of the next.
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

    /// A number below `bound`; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = (*range.start(), *range.end());
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number in `0.0..1.0`.
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
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut dice = SeededRng::new(seed);
            (0..50).map(|_| dice.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(SeededRng::stream(7, 0).next(), SeededRng::stream(7, 1).next());
    }

    #[test]
    fn ranges_are_covered_and_never_left() {
        let mut dice = SeededRng::new(1);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            let drawn = dice.within(3..=7);
            assert!((3..=7).contains(&drawn));
            seen[(drawn - 3) as usize] = true;
            assert!((0.0..1.0).contains(&dice.fraction()));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(dice.within(4..=4), 4);
        assert_eq!(dice.below(0), 0);
    }
}
