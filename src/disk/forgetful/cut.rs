//! What a power cut leaves of changes that were not durable.

use std::ops::Range;

use super::content::overwrite;

/// The unit a disk writes whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;

/// Decides which unsynced changes survive a power cut.
pub(super) enum CutOutcome {
    /// None do.
    Nothing,
    /// All do.
    Everything,
    /// Chance decides, the same way for the same seed.
    Chance {
        /// What decides; seeded, so that a seed repeats its cut.
        random: SplitMix64,
        /// Of four unsynced writes so many are kept whole, 0 to 3. Drawn once a cut, so that among many
        /// seeds there are cuts that lose nearly all and cuts that lose a single write.
        kept_of_four: u64,
    },
}

impl CutOutcome {
    /// Returns a cut of which chance decides.
    pub(super) fn seeded(seed: u64) -> Self {
        let mut random = SplitMix64(seed);
        let kept_of_four = random.next_below(4);
        Self::Chance { random, kept_of_four }
    }

    /// Returns how many of `count` changes survive, where only a prefix can.
    pub(super) fn prefix(&mut self, count: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Everything => count,
            Self::Chance { random, .. } => random.next_below(count as u64 + 1) as usize,
        }
    }

    /// Returns whether a change that cannot be torn survives.
    pub(super) fn survives(&mut self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Chance { random, kept_of_four } => random.next_below(4) < *kept_of_four || random.next_bool(),
        }
    }

    /// Lets a write of `bytes` at `offset` reach `target` whole, in part or not at all.
    pub(super) fn apply(&mut self, target: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Everything => overwrite(target, offset, bytes),
            Self::Chance { random, kept_of_four } => {
                if random.next_below(4) < *kept_of_four {
                    overwrite(target, offset, bytes);
                } else if random.next_bool() {
                    write_torn(random, target, offset, bytes);
                }
            }
        }
    }
}

/// Writes only some sectors of `bytes`: the first few, or any.
fn write_torn(random: &mut SplitMix64, target: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let sectors: Vec<_> = sectors(offset, bytes.len()).collect();
    let in_order = random.next_bool();
    let first = random.next_below(sectors.len() as u64 + 1) as usize;
    // A file system may log the new length before the data arrive; the gap then reads as zeros.
    let end = offset + bytes.len();
    if random.next_bool() && target.len() < end {
        target.resize(end, 0);
    }
    for (number, sector) in sectors.into_iter().enumerate() {
        if if in_order { number < first } else { random.next_bool() } {
            overwrite(target, sector.start, &bytes[sector.start - offset..sector.end - offset]);
        }
    }
}

/// Splits `offset..offset + len` at the sector boundaries of the file.
fn sectors(offset: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = offset + len;
    (offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES))
        .map(move |sector| (sector * SECTOR_BYTES).max(offset)..((sector + 1) * SECTOR_BYTES).min(end))
}

/// The generator splitmix64 (Steele, Lea and Flood 2014): one word of state, every seed is good.
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// Returns a number below `bound`, which is never 0; the bias of the remainder does not matter here.
    fn next_below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn next_bool(&mut self) -> bool {
        self.next_below(2) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_numbers() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn sectors_follow_the_file_and_not_the_write() {
        let cut = |offset, len| sectors(offset, len).collect::<Vec<_>>();
        assert_eq!(cut(0, 512), vec![0..512]);
        assert_eq!(cut(500, 24), vec![500..512, 512..524]);
        assert_eq!(cut(512, 1025), vec![512..1024, 1024..1536, 1536..1537]);
    }
}
