//! The last answer that each user got from a control file, for `cat` after `echo`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::counted_buffer::CountedBuffer;
use super::errno::Failure;
use super::refusal::SpaceRefusal;
use crate::memory::{BranchId, View};
use crate::sync::Mutex;

/// Bytes that are appended while others read them.
pub(super) type QueuedAnswer = Arc<Mutex<CountedBuffer>>;

/// Bytes of the last answers of one user, and so of the longest one that is kept.
const USER_BYTES_MAX: usize = 8 << 20;
/// Bytes of those of all users.
const BYTES_MAX: usize = 64 << 20;
/// What an answer counts beside its bytes.
const ANSWER_BYTES: usize = 512;

/// A file that is written to and read for the answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum AnsweringFile {
    Query,
    Ctl,
    Ingest,
    /// `shared/log/append`.
    LogAppend,
}

/// A file of a branch or checkpoint that answers, and who read it.
type AnswerKey = (View, AnsweringFile, u32);

/// The last answers of all branches. Beyond its limits the oldest one goes, of the user with the most.
#[derive(Default)]
pub(super) struct LastAnswers(Mutex<AnswerStore>);

#[derive(Default)]
struct AnswerStore {
    answers: HashMap<AnswerKey, StoredAnswer>,
    /// Their keys by user, oldest first.
    by_serial: BTreeMap<(u32, u64), AnswerKey>,
    users: HashMap<u32, usize>,
    bytes: usize,
    last_serial: u64,
}

struct StoredAnswer {
    /// `None` if it was too long to be kept.
    answer: Option<QueuedAnswer>,
    weight_bytes: usize,
    serial: u64,
}

impl LastAnswers {
    /// Notes the last answer that `uid` got from a control file. Of an answer over 8 MiB it keeps only that it was too
    /// long.
    pub fn insert(&self, view: &View, file: AnsweringFile, uid: u32, answer: &QueuedAnswer) {
        let length = answer.lock().len();
        let answer = (length <= USER_BYTES_MAX - ANSWER_BYTES).then(|| answer.clone());
        let weight_bytes = ANSWER_BYTES + answer.as_ref().map_or(0, |_| length);
        let dropped = self.0.lock().insert((view.clone(), file, uid), answer, weight_bytes);
        drop(dropped);
    }

    /// Returns a copy of the last answer to the user `uid`, empty if there is none. EFBIG if it was over 8 MiB.
    pub fn get(&self, view: &View, file: AnsweringFile, uid: u32) -> Result<Vec<u8>, Failure> {
        let answer = match self.0.lock().answers.get(&(view.clone(), file, uid)) {
            None => return Ok(Vec::new()),
            Some(last) => last.answer.clone(),
        };
        let answer = answer.ok_or(SpaceRefusal::AnswerNotKept(USER_BYTES_MAX >> 20))?;
        let bytes = answer.lock().to_vec();
        Ok(bytes)
    }

    /// Forgets all answers, as any may quote purged items.
    pub fn forget_all(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }

    /// Forgets the answers of a branch and its checkpoints.
    pub fn forget(&self, branch: BranchId) {
        let mut kept = self.0.lock();
        let keys: Vec<AnswerKey> = kept.answers.keys().filter(|(view, ..)| view.branch() == branch).cloned().collect();
        let dropped: Vec<_> = keys.iter().map(|key| kept.remove(key)).collect();
        drop(kept);
        drop(dropped);
    }
}

impl AnswerStore {
    /// Returns what had to go, to be dropped with no lock held.
    fn insert(
        &mut self,
        key: AnswerKey,
        answer: Option<QueuedAnswer>,
        weight_bytes: usize,
    ) -> Vec<Option<StoredAnswer>> {
        let mut dropped = vec![self.remove(&key)];
        let uid = key.2;
        self.last_serial += 1;
        self.by_serial.insert((uid, self.last_serial), key.clone());
        self.answers.insert(key, StoredAnswer { answer, weight_bytes, serial: self.last_serial });
        self.bytes += weight_bytes;
        *self.users.entry(uid).or_default() += weight_bytes;
        while let Some(uid) = self.user_over_limit() {
            let oldest = self.by_serial.range((uid, 0)..).next().map(|(_, key)| key.clone());
            dropped.extend(oldest.map(|key| self.remove(&key)));
        }
        dropped
    }

    /// Returns whose oldest answer has to go, if one has to.
    fn user_over_limit(&self) -> Option<u32> {
        let (uid, most) = self.users.iter().max_by_key(|(_, bytes)| **bytes)?;
        (*most > USER_BYTES_MAX || self.bytes > BYTES_MAX).then_some(*uid)
    }

    fn remove(&mut self, key: &AnswerKey) -> Option<StoredAnswer> {
        let last = self.answers.remove(key)?;
        self.by_serial.remove(&(key.2, last.serial));
        self.bytes -= last.weight_bytes;
        if let Some(bytes) = self.users.get_mut(&key.2) {
            *bytes -= last.weight_bytes;
            if *bytes == 0 {
                self.users.remove(&key.2);
            }
        }
        Some(last)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::fs::errno::Errno;
    use crate::sync::MemoryBudget;

    fn answer(length: usize) -> QueuedAnswer {
        let counted = CountedBuffer::from_bytes(&Arc::new(MemoryBudget::default()), 7, vec![b'x'; length]);
        Arc::new(Mutex::new(counted.unwrap_or_else(|_| panic!())))
    }

    fn view(branch: u64) -> View {
        View::Branch(BranchId(branch))
    }

    #[test]
    fn an_answer_belongs_to_one_user_of_one_file() {
        let last = LastAnswers::default();
        last.insert(&view(1), AnsweringFile::Query, 7, &answer(5));
        assert_eq!(last.get(&view(1), AnsweringFile::Query, 7).unwrap(), b"xxxxx");
        assert!(last.get(&view(1), AnsweringFile::Query, 8).unwrap().is_empty());
        assert!(last.get(&view(1), AnsweringFile::Ctl, 7).unwrap().is_empty());
        last.forget(BranchId(1));
        assert!(last.get(&view(1), AnsweringFile::Query, 7).unwrap().is_empty());
        assert_eq!(last.0.lock().bytes, 0);
    }

    #[test]
    fn the_oldest_of_the_user_with_the_most_go_first() {
        let last = LastAnswers::default();
        last.insert(&view(9), AnsweringFile::Query, 8, &answer(100));
        for branch in 1..=5 {
            last.insert(&view(branch), AnsweringFile::Query, 7, &answer(3 << 20));
        }
        let there = |branch, uid| !last.get(&view(branch), AnsweringFile::Query, uid).unwrap().is_empty();
        assert_eq!([1, 2, 3, 4, 5].map(|branch| there(branch, 7)), [false, false, false, true, true]);
        assert!(there(9, 8));
    }

    #[test]
    fn all_users_together_have_a_limit_too() {
        let last = LastAnswers::default();
        last.insert(&view(1), AnsweringFile::Query, 7, &answer(4 << 20));
        last.insert(&view(2), AnsweringFile::Query, 7, &answer(3 << 20));
        for uid in 10..20 {
            last.insert(&view(1), AnsweringFile::Query, uid, &answer(6 << 20));
        }
        let there = |branch, uid| !last.get(&view(branch), AnsweringFile::Query, uid).unwrap().is_empty();
        assert!(!there(1, 7), "67 MiB are too many, and this user has the most");
        assert!(there(2, 7) && (10..20).all(|uid| there(1, uid)));
    }

    #[test]
    fn what_was_too_long_is_said() {
        let last = LastAnswers::default();
        last.insert(&view(1), AnsweringFile::Query, 7, &answer(9 << 20));
        assert_eq!(last.get(&view(1), AnsweringFile::Query, 7).unwrap_err().errno(), Errno::EFBIG);
    }
}
