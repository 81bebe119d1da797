//! The first byte of a log record.

use crate::object::stored_codes;

stored_codes! {
    /// Says which command a log record holds; merges of each kind and reverts have codes of their own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CommandCode {
        /// A root branch is made.
        Root = 1,
        /// A branch is forked.
        Fork = 2,
        /// Records change.
        Commit = 3,
        /// Many records change; they are in a segment.
        Bulk = 4,
        /// A checkpoint is taken.
        Checkpoint = 5,
        /// A checkpoint is deleted.
        Uncheckpoint = 6,
        /// A branch goes back.
        Rollback = 7,
        /// A branch is merged into its parent and ends.
        Merge = 8,
        /// A branch is merged into its parent and lives on.
        Promote = 9,
        /// The parent's state is merged into a branch.
        Pull = 10,
        /// A branch is thrown away.
        Discard = 11,
        /// A branch is renamed.
        Rename = 12,
        /// A setting changes.
        Config = 13,
        /// Permission bits change.
        Mode = 14,
        /// A conflict is resolved.
        Resolve = 15,
        /// A merge is refused.
        Refuse = 16,
        /// A user is seen for the first time.
        User = 17,
        /// Operations on files are committed.
        Files = 18,
        /// Some files go back.
        RollbackFiles = 19,
        /// Times follow the clock again.
        Clock = 20,
        /// A branch gets another owner.
        Owner = 21,
        /// Entries are moved out of the store.
        Archive = 22,
        /// Records and files go for good.
        Purge = 23,
        /// A root branch has another embedder.
        Embedder = 25,
        /// What entries did is taken back.
        Revert = 26,
        /// Earlier states go, since the disk is full.
        KeptDropped = 27,
        /// A branch gets something of another store.
        Import = 28,
        /// A shared log grows.
        Append = 32,
        /// Entries of a shared log are archived.
        ArchiveLog = 33,
        /// A lease ends.
        LeaseLost = 48,
        /// An agent's name is free or barred.
        AgentName = 49,
        /// A branch proposes its state.
        Propose = 56,
        /// A proposal is taken back.
        Withdraw = 57,
        /// A proposal is reviewed.
        Review = 58,
    }
}
