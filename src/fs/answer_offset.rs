//! Where the answer begins for a handle that writes and reads in turn.

/// Where the answer begins in the offsets of a handle.
///
/// A handle has one position for writing and reading. Some clients read on from where their write
/// ended (bash, buffered Python), others go back to 0 first (pread, Node, text files). The first
/// read after a write shows which kind this is, and its offset becomes the answer's start; a later
/// read before that start goes back to 0.
#[derive(Default, Debug)]
pub(super) struct AnswerOffset {
    written_to: u64,
    start: Option<u64>,
}

impl AnswerOffset {
    /// Notes a write that ended at offset `end`, and tells whether it is the first one after a
    /// read.
    pub fn note_write(&mut self, end: u64) -> bool {
        self.written_to = end;
        self.start.take().is_some()
    }

    /// Returns the place in the answer for a read at `offset`, in bytes. The first read after a write decides where the
    /// answer begins: at its own offset if it continues after that write, else at 0.
    pub fn position(&mut self, offset: u64) -> u64 {
        let start = match self.start {
            Some(start) if offset >= start => start,
            None if offset == self.written_to => offset,
            _ => 0,
        };
        self.start = Some(start);
        offset - start
    }
}

#[cfg(test)]
mod tests {
    use super::AnswerOffset;

    #[test]
    fn reading_on_from_the_write_finds_the_start() {
        let mut answer_offset = AnswerOffset::default();
        answer_offset.note_write(12);
        assert_eq!(answer_offset.position(12), 0);
        assert_eq!(answer_offset.position(112), 100);
    }

    #[test]
    fn reading_from_zero_finds_the_start_too() {
        let mut answer_offset = AnswerOffset::default();
        answer_offset.note_write(12);
        assert_eq!(answer_offset.position(0), 0);
        assert_eq!(answer_offset.position(12), 12);
        assert_eq!(answer_offset.position(100), 100);
    }

    #[test]
    fn a_pread_in_the_middle_counts_from_zero() {
        let mut answer_offset = AnswerOffset::default();
        answer_offset.note_write(12);
        assert_eq!(answer_offset.position(4), 4);
        assert_eq!(answer_offset.position(500), 500);
    }

    #[test]
    fn going_back_to_zero_rewinds() {
        let mut answer_offset = AnswerOffset::default();
        answer_offset.note_write(12);
        assert_eq!(answer_offset.position(12), 0);
        assert_eq!(answer_offset.position(0), 0);
        assert_eq!(answer_offset.position(20), 20);
    }

    #[test]
    fn each_turn_has_its_own_start() {
        let mut answer_offset = AnswerOffset::default();
        assert!(!answer_offset.note_write(12));
        assert!(!answer_offset.note_write(24));
        assert_eq!(answer_offset.position(24), 0);
        assert_eq!(answer_offset.position(124), 100);
        assert!(answer_offset.note_write(136));
        assert_eq!(answer_offset.position(136), 0);
    }

    #[test]
    fn a_handle_that_never_wrote_reads_from_zero() {
        let mut answer_offset = AnswerOffset::default();
        assert_eq!(answer_offset.position(0), 0);
        assert_eq!(answer_offset.position(10), 10);
    }
}
