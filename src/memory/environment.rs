//! What a store takes from outside: the time and chance.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

use super::Actor;
use crate::journal::Salt;
use crate::object::Time;

type WallClock = Box<dyn Fn() -> Time + Send + Sync>;
type Uptime = Box<dyn Fn() -> Duration + Send + Sync>;
type Entropy = Box<dyn Fn(&mut [u8]) + Send + Sync>;

/// From so many rows on a walk through the graph of a single segment is cheaper than a scan.
const GRAPH_ROWS: u32 = 8192;

/// So long after a seal a graph is begun: the next commit of an import comes sooner.
const INDEX_DELAY: Duration = Duration::from_secs(5);

/// So long the maintenance thread has nothing to do before it tidies up; files that have outlived their rule go as often.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// So soon after a write files are indexed: most are written in more than one piece.
const FILE_INDEX_DELAY: Duration = Duration::from_millis(200);

/// What a seal and a collection need beside what they give back, and the deletes before them.
const RESERVE_BYTES: u64 = 8 << 20;

/// The clock and the source of randomness that a store is given, and its maker.
pub struct Environment {
    /// Returns the present time. It jumps if somebody sets the system's clock.
    pub clock: WallClock,
    /// Returns how long the machine has been running, sleep included. Setting the clock does not change it.
    pub uptime: Uptime,
    /// Fills a buffer with random bytes; the signing key and the salts of journal files come from here.
    pub entropy: Entropy,
    /// How many rows a segment needs for a neighbour graph, by default 8,192; a quarter of that beside a segment that
    /// has one. Smaller segments are scanned.
    pub graph_rows: u32,
    /// How long after the last seal a graph is begun, by default 5 s. Small segments are merged in that time.
    pub index_delay: Duration,
    /// How long the maintenance thread must be idle before it seals small amounts, too, and how often it looks for
    /// expired files. By default 60 s.
    pub idle_interval: Duration,
    /// How long after a write to files indexing waits for more writes, by default 200 ms.
    pub file_index_delay: Duration,
    /// Bytes set aside for deletes, seals and collections on a full disk, by default 8 MiB, and at most an eighth of
    /// the disk. 0 for none.
    pub reserve_bytes: u64,
    /// Who makes a new store, and in whose name background threads write entries.
    pub owner: Actor,
}

impl Environment {
    /// Returns an environment with the system's clock and randomness, for `owner`. Nothing else in this crate reads
    /// either. `entropy` panics if getrandom(2) fails, as keys and salts must come from it.
    pub fn real(owner: Actor) -> Environment {
        let clock = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
        };
        let entropy = |mut buffer: &mut [u8]| {
            while !buffer.is_empty() {
                match getrandom(&mut *buffer, GetRandomFlags::empty()) {
                    Ok(filled) => buffer = &mut buffer[filled..],
                    Err(Errno::INTR) => {}
                    // Every kernel since 3.17 has it, and it needs no descriptor and no memory; a filter of system calls may refuse it.
                    Err(error) => panic!("the system gave no random bytes, getrandom(2) failed: {error}"),
                }
            }
        };
        Environment {
            clock: Box::new(clock),
            uptime: Box::new(|| {
                let time = clock_gettime(ClockId::Boottime);
                Duration::try_from(time).unwrap_or_default()
            }),
            entropy: Box::new(entropy),
            graph_rows: GRAPH_ROWS,
            index_delay: INDEX_DELAY,
            idle_interval: IDLE_INTERVAL,
            file_index_delay: FILE_INDEX_DELAY,
            reserve_bytes: RESERVE_BYTES,
            owner,
        }
    }

    /// Returns a new salt for a journal file.
    pub(super) fn salt(&self) -> Salt {
        let mut salt = Salt::default();
        (self.entropy)(&mut salt);
        salt
    }
}

/// Returns a UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds since 1970, then 74 random ones beside version and variant.
pub(super) fn uuid_v7(millis: u64, random: [u8; 10]) -> String {
    const VERSION: u128 = 0x7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    let random = random.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    let bits = u128::from(millis) << 80 | VERSION | random & !(0xf << 76) & !(0b11 << 62) | VARIANT;
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_that_of_the_example_in_rfc_9562() {
        let random = [0xfc, 0xc3, 0xd8, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f];
        assert_eq!(uuid_v7(0x017f_22e2_79b0, random), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
    }
}

/// A clock for tests: how much time went by, and by how much the clock is wrong.
#[cfg(test)]
#[derive(Clone, Default)]
pub(in crate::memory) struct TestClock(std::sync::Arc<[std::sync::atomic::AtomicI64; 2]>);

#[cfg(test)]
impl TestClock {
    const START: i64 = 1_800_000_000_000_000_000;

    /// Returns an environment with this clock.
    pub fn environment(&self, owner: Actor) -> Environment {
        let (clock, uptime) = (self.clone(), self.clone());
        Environment {
            clock: Box::new(move || Time(TestClock::START + clock.get(0) + clock.get(1))),
            uptime: Box::new(move || Duration::from_nanos(uptime.get(0).cast_unsigned())),
            ..Environment::real(owner)
        }
    }

    /// Lets time go by.
    pub fn advance(&self, nanos: i64) {
        self.0[0].fetch_add(nanos, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets the clock to the present time and so many nanoseconds.
    pub fn set_wrong_by(&self, nanos: i64) {
        self.0[1].store(nanos, std::sync::atomic::Ordering::Relaxed);
    }

    fn get(&self, place: usize) -> i64 {
        self.0[place].load(std::sync::atomic::Ordering::Relaxed)
    }
}
