use std::{ops::RangeInclusive, time::Duration};

/// Random numbers that are the same for the same seed, for ever (SplitMix64).
///
/// ```
/// use karpenter_fake::sim::Rng;
///
/// let (mut one, mut other) = (Rng::new(7), Rng::new(7));
/// assert_eq!(one.next_u64(), other.next_u64());
/// assert!(one.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for one part of a simulation, so that what another part draws does not change it.
    pub fn fork(&self, stream: u64) -> Self {
        Self(Self(self.0 ^ stream.wrapping_mul(0xd134_2543_de82_ef95)).next_u64())
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`, each as likely as the others to within 2^-64; 0 if `bound` is 0.
    ///
    /// # Panics
    /// Never.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the upper half of a 128-bit product has 64 bits")
    }

    /// An index into a list of so many items; 0 if there are none.
    ///
    /// # Panics
    /// Never.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("it is below a usize")
    }

    /// Whether something happens that happens so many times in a million.
    pub fn chance(&mut self, parts_per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(parts_per_million)
    }

    /// A whole number of milliseconds in a range, each as likely as the others; the start if the range is empty.
    pub fn duration(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let millis = |d: &Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX - 1);
        let (from, to) = (millis(range.start()), millis(range.end()));
        Duration::from_millis(from + self.below(to.saturating_sub(from) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn draws_stay_within_their_bounds_and_reach_them() {
        let mut rng = Rng::new(3);
        let range = Duration::from_millis(2)..=Duration::from_millis(5);
        let drawn: std::collections::BTreeSet<u128> = (0..200).map(|_| rng.duration(&range).as_millis()).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(rng.below(0), 0);
        let hits = (0..100_000).filter(|_| rng.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
    }

    #[test]
    fn forks_differ_and_do_not_disturb() {
        let rng = Rng::new(9);
        assert_ne!(rng.fork(1).next_u64(), rng.fork(2).next_u64());
        assert_eq!(rng.fork(1).next_u64(), rng.fork(1).next_u64());
    }
}
