//! Equal turns on the processors for users who compute at length.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Condvar, Mutex, MutexGuard};

/// How long one computation keeps its turn while others of its user wait.
const SLICE: Duration = Duration::from_millis(5);

/// Lets each user run as many long computations at a time as there are processors; the others of that
/// user take turns with them. So whoever asks 24 queries at once is not more in the way of other
/// users than whoever asks two.
pub struct FairTurns {
    slots: usize,
    lanes: Mutex<HashMap<u32, Lane>>,
    turn: Condvar,
}

/// The computations of one user.
#[derive(Default)]
struct Lane {
    running: usize,
    /// Tickets of those who wait: from `now_serving` on, below `next_ticket`.
    next_ticket: u64,
    now_serving: u64,
}

impl Lane {
    fn has_waiting(&self) -> bool {
        self.now_serving < self.next_ticket
    }
}

/// A turn of one computation; it ends with this.
pub struct Turn {
    turns: Arc<FairTurns>,
    uid: u32,
    since: Mutex<Instant>,
}

impl FairTurns {
    /// Makes turns on `slots` processors, at least one.
    pub fn new(slots: usize) -> Arc<FairTurns> {
        Arc::new(FairTurns { slots: slots.max(1), lanes: Mutex::default(), turn: Condvar::default() })
    }

    /// Waits for a turn of `uid`'s, which comes at once while fewer of that user compute than there are slots.
    pub fn wait_for_turn(self: &Arc<FairTurns>, uid: u32) -> Turn {
        self.take_turn(self.lanes.lock(), uid);
        Turn { turns: self.clone(), uid, since: Mutex::new(Instant::now()) }
    }

    fn take_turn(&self, mut lanes: MutexGuard<'_, HashMap<u32, Lane>>, uid: u32) {
        let lane = lanes.entry(uid).or_default();
        if lane.running < self.slots && !lane.has_waiting() {
            lane.running += 1;
            return;
        }
        let ticket = lane.next_ticket;
        lane.next_ticket += 1;
        let is_waiting = |lanes: &mut HashMap<u32, Lane>| {
            lanes.get(&uid).is_some_and(|lane| lane.now_serving != ticket || lane.running >= self.slots)
        };
        let mut lanes = self.turn.wait_while(lanes, is_waiting);
        if let Some(lane) = lanes.get_mut(&uid) {
            lane.now_serving += 1;
            lane.running += 1;
        }
        drop(lanes);
        // Several may run at a time, so the next waiter may have a turn as well.
        self.turn.notify_all();
    }

    fn end_turn(&self, lanes: &mut HashMap<u32, Lane>, uid: u32) {
        let Some(lane) = lanes.get_mut(&uid) else { return };
        lane.running -= 1;
        if lane.has_waiting() {
            self.turn.notify_all();
        } else if lane.running == 0 {
            lanes.remove(&uid);
        }
    }
}

impl Turn {
    /// Lets waiting requests of the same user have their turn, if this one has taken long.
    ///
    /// Call it from time to time, with no lock held.
    pub fn pause(&self) {
        if self.since.lock().elapsed() < SLICE {
            return;
        }
        self.yield_turn();
        *self.since.lock() = Instant::now();
    }

    fn yield_turn(&self) {
        let mut lanes = self.turns.lanes.lock();
        if lanes.get(&self.uid).is_some_and(Lane::has_waiting) {
            self.turns.end_turn(&mut lanes, self.uid);
            self.turns.take_turn(lanes, self.uid);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.end_turn(&mut self.turns.lanes.lock(), self.uid);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn a_user_has_as_many_turns_as_processors_and_the_others_have_theirs() {
        let turns = FairTurns::new(2);
        let (_one, two) = (turns.wait_for_turn(7), turns.wait_for_turn(7));
        let (tell, told) = channel();
        let waiter = thread::spawn({
            let turns = turns.clone();
            move || {
                let _turn = turns.wait_for_turn(7);
                tell.send(()).unwrap();
            }
        });
        drop(turns.wait_for_turn(8));
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "both turns are taken");
        drop(two);
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        waiter.join().unwrap();
    }

    #[test]
    fn whoever_computes_at_length_lets_all_of_the_same_user_have_turns() {
        let (turns, at_once, most) = (FairTurns::new(1), AtomicUsize::new(0), AtomicUsize::new(0));
        let compute = || {
            let turn = turns.wait_for_turn(7);
            let begun = Instant::now();
            while begun.elapsed() < 8 * SLICE {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                at_once.fetch_sub(1, Ordering::SeqCst);
                turn.pause();
            }
            begun.elapsed()
        };
        let elapsed = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(compute)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).min().unwrap()
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
        assert!(elapsed > SLICE, "{elapsed:?}");
        assert!(turns.lanes.lock().is_empty(), "nothing is kept of users who are done");
    }
}
