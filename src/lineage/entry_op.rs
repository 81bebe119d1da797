//! What steps of the lineage there are: the code of each, what lines of entries show of it, and what it does to branches.

use crate::object::stored_codes;

stored_codes! {
    /// Says what an entry did; a code is given to no other word later.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum EntryOp {
        /// A root branch was made.
        Root = 1,
        /// A branch was forked; the label is the checkpoint where it began, if that was one.
        Fork = 2,
        /// Records were written or deleted.
        Commit = 3,
        /// A checkpoint was taken, which the label names.
        Checkpoint = 4,
        /// A checkpoint was deleted, which the label names.
        Uncheckpoint = 5,
        /// A branch went back to a checkpoint or an earlier state.
        Rollback = 6,
        /// The parent's present state was merged into a branch.
        Pull = 7,
        /// A branch was merged into its parent and lives on.
        Promote = 8,
        /// A branch was merged into its parent and is gone.
        Merge = 9,
        /// A branch was thrown away; `config/keep` says how long it can be brought back.
        Discard = 10,
        /// A branch got another name: the label is the one before, the text the one after.
        Rename = 11,
        /// A setting or a mode changed: the label names it, the text is its value.
        Config = 12,
        /// A conflict was resolved manually: the label is the record or file, the text the side.
        Resolve = 13,
        /// A merge was refused, or a write to files that a rule forbids.
        Refuse = 14,
        /// A user was seen for the first time: the name its entries carry.
        User = 15,
        /// Files were written, made, moved or deleted by operations since the last such entry.
        Files = 16,
        /// The clock had been wrong: times follow it again.
        Clock = 17,
        /// A branch was given to another user, whose uid is the text.
        Owner = 18,
        /// Records or files went for good, with all their versions.
        Purge = 19,
        /// Older entries were moved out of the store, into a file: label and text are number and hash of the last.
        Archive = 20,
        /// The embedder whose vectors branches have has changed, or is the first.
        Embedder = 21,
        /// What entries did to a branch was taken back.
        Revert = 22,
        /// Earlier states went, since the disk was full or their files took too much memory.
        KeptDropped = 23,
        /// A branch got something that it had in the store that it comes from.
        Import = 28,
        /// Entries were appended to a shared log.
        Append = 32,
        /// Entries of a shared log were archived; the label is the number of the last.
        ArchiveLog = 33,
        /// Nobody holds the lease of a branch any longer.
        LeaseLost = 48,
        /// A name of an agent is nobody's any longer.
        FreeAgent = 49,
        /// Nobody may use a name of an agent.
        BarAgent = 50,
        /// A branch proposed its state to its parent.
        Propose = 56,
        /// A branch took back what it proposed.
        Withdraw = 57,
        /// An approver approved of what a branch below proposed.
        Approve = 58,
        /// An approver was against what a branch below proposed.
        Reject = 59,
    }
}

/// What lines of `lineage` and `events.jsonl` show of a kind of step, and what it does to branches.
struct OpSpec {
    name: &'static str,
    /// The key under which an entry's label stands there.
    label_key: &'static str,
    /// Whether the parent's `events.jsonl` shows it, too.
    is_parent_event: bool,
    /// Whether that line leaves out the head: it is that of a child, and says whether two branches have the same content.
    hides_head: bool,
    event_text: EventText,
    effect: OpEffect,
}

/// What a kind of step does to branches. [`OpSpec::new`] asks for it, so that no kind is added without.
#[derive(Clone, Copy)]
struct OpEffect {
    /// Which branches have another state behind the step than before it. A purge gives none a new state: it changes the states
    /// that there are, earlier ones included.
    new_state: NewState,
    /// Whether users take the step back as a whole, however much it changed: the state before it is then kept as long as any other.
    is_taken_back_whole: bool,
    /// Whether the step itself puts other content in the place of a branch's, which users may have open. One that records what
    /// users wrote does not: they wrote to what was open.
    replaces_content: bool,
    /// What changes of where the branch belongs and who may enter it.
    access: AccessChange,
}

/// Which branches get another state by a step.
#[derive(Clone, Copy)]
pub(super) enum NewState {
    Nobody,
    Branch,
    Parent,
    Both,
}

/// What a step changes of where its branch belongs and who may enter it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// It changes nothing of that.
    Nothing,
    /// The branch begins, with its parent, its owner and the mode that new branches have.
    All,
    /// The branch gets the owner whose uid is the text.
    Owner,
    /// Its mode becomes the text, in octal, if the label is `mode`; with any other label nothing changes.
    Mode,
}

impl OpEffect {
    /// No branch gets another state, other content or another owner or mode.
    const NONE: OpEffect = OpEffect {
        new_state: NewState::Nobody,
        is_taken_back_whole: false,
        replaces_content: false,
        access: AccessChange::Nothing,
    };
    /// A branch begins.
    const BEGINS: OpEffect = OpEffect { access: AccessChange::All, ..OpEffect::WRITES };
    /// The branch has what users wrote.
    const WRITES: OpEffect = OpEffect { new_state: NewState::Branch, ..OpEffect::NONE };

    /// The branches of `new_state` get what another branch has, or what they had earlier.
    const fn replaces(new_state: NewState) -> OpEffect {
        OpEffect { new_state, is_taken_back_whole: true, replaces_content: true, access: AccessChange::Nothing }
    }
}

/// What of an entry's text its line of `events.jsonl` shows. The branch and its parent have the same line, and who reads
/// the parent may not read the branch.
#[derive(Clone, Copy)]
enum EventText {
    Whole,
    /// The word before the first colon: that a merge was refused, and not what it would have changed.
    Code,
    Nothing,
}

impl OpSpec {
    const fn new(name: &'static str, effect: OpEffect) -> OpSpec {
        let event_text = EventText::Whole;
        OpSpec { name, label_key: "checkpoint", is_parent_event: false, hides_head: false, event_text, effect }
    }

    const fn label(self, label_key: &'static str) -> OpSpec {
        OpSpec { label_key, ..self }
    }

    const fn parent_event(self) -> OpSpec {
        OpSpec { is_parent_event: true, ..self }
    }

    const fn parent_event_without_head(self, event_text: EventText) -> OpSpec {
        OpSpec { hides_head: true, event_text, ..self.parent_event() }
    }
}

impl EntryOp {
    const fn spec(self) -> OpSpec {
        match self {
            EntryOp::Root => OpSpec::new("root", OpEffect::BEGINS),
            EntryOp::Fork => OpSpec::new("fork", OpEffect::BEGINS).parent_event(),
            EntryOp::Commit => OpSpec::new("commit", OpEffect::WRITES),
            EntryOp::Checkpoint => OpSpec::new("checkpoint", OpEffect::NONE),
            EntryOp::Uncheckpoint => OpSpec::new("uncheckpoint", OpEffect::NONE),
            EntryOp::Rollback => OpSpec::new("rollback", OpEffect::replaces(NewState::Branch)),
            EntryOp::Pull => OpSpec::new("pull", OpEffect::replaces(NewState::Branch)),
            EntryOp::Promote => OpSpec::new("promote", OpEffect::replaces(NewState::Both)).parent_event(),
            EntryOp::Merge => OpSpec::new("merge", OpEffect::replaces(NewState::Parent)).parent_event(),
            EntryOp::Discard => OpSpec::new("discard", OpEffect::NONE).parent_event_without_head(EventText::Whole),
            EntryOp::Rename => {
                OpSpec::new("rename", OpEffect::NONE).label("renamed_from").parent_event_without_head(EventText::Whole)
            }
            EntryOp::Config => {
                OpSpec::new("config", OpEffect { access: AccessChange::Mode, ..OpEffect::NONE }).label("setting")
            }
            EntryOp::Resolve => OpSpec::new("resolve", OpEffect::NONE).label("id"),
            EntryOp::Refuse => OpSpec::new("refuse", OpEffect::NONE).parent_event_without_head(EventText::Code),
            EntryOp::User => OpSpec::new("user", OpEffect::NONE),
            EntryOp::Files => OpSpec::new("files", OpEffect::WRITES),
            EntryOp::Clock => OpSpec::new("clock", OpEffect::NONE),
            EntryOp::Owner => OpSpec::new("owner", OpEffect { access: AccessChange::Owner, ..OpEffect::NONE }),
            EntryOp::Purge => OpSpec::new("purge", OpEffect { replaces_content: true, ..OpEffect::NONE }),
            EntryOp::Archive => OpSpec::new("archive", OpEffect::NONE).label("last_archived"),
            EntryOp::Embedder => OpSpec::new("embedder", OpEffect::NONE).label("embedder"),
            EntryOp::Revert => OpSpec::new("revert", OpEffect::replaces(NewState::Branch)),
            EntryOp::KeptDropped => OpSpec::new("kept_dropped", OpEffect::NONE),
            EntryOp::Import => OpSpec::new("import", OpEffect::NONE).label("imported"),
            EntryOp::Append => OpSpec::new("append", OpEffect::NONE),
            EntryOp::ArchiveLog => OpSpec::new("archive_log", OpEffect::NONE).label("last_archived"),
            EntryOp::LeaseLost => OpSpec::new("lease_lost", OpEffect::NONE).parent_event_without_head(EventText::Whole),
            EntryOp::FreeAgent => OpSpec::new("free_agent", OpEffect::NONE).label("agent_name"),
            EntryOp::BarAgent => OpSpec::new("bar_agent", OpEffect::NONE).label("agent_name"),
            EntryOp::Propose => OpSpec::new("propose", OpEffect::NONE).parent_event_without_head(EventText::Nothing),
            EntryOp::Withdraw => OpSpec::new("withdraw", OpEffect::NONE).parent_event_without_head(EventText::Whole),
            EntryOp::Approve => OpSpec::new("approve", OpEffect::NONE).label("proposal"),
            EntryOp::Reject => OpSpec::new("reject", OpEffect::NONE).label("proposal"),
        }
    }

    /// Returns the word that lines of entries show, and that listeners are told.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Returns the key under which lines of `lineage` and `events.jsonl` show an entry's label.
    pub(super) const fn label_key(self) -> &'static str {
        self.spec().label_key
    }

    /// Returns whether `events.jsonl` of the parent of the entry's branch shows it, too.
    pub const fn is_parent_event(self) -> bool {
        self.spec().is_parent_event
    }

    /// Returns whether the line that the parent's `events.jsonl` has of it leaves the head out.
    pub(super) const fn hides_head(self) -> bool {
        self.spec().hides_head
    }

    /// Returns what the line of `events.jsonl` shows of an entry's text; `None` if it leaves the text out.
    pub(super) fn event_text(self, text: &str) -> Option<&str> {
        match self.spec().event_text {
            EventText::Whole => Some(text),
            EventText::Code => text.split(':').next(),
            EventText::Nothing => None,
        }
    }

    /// Returns which branches change their state by such a step.
    pub(super) const fn new_state(self) -> NewState {
        self.spec().effect.new_state
    }

    /// Returns whether users take back such a step as a whole. The state before it is then kept as long as any other.
    pub const fn is_taken_back_whole(self) -> bool {
        self.spec().effect.is_taken_back_whole
    }

    /// Returns whether such a step puts other content in the place of a branch's, which users may have open.
    pub const fn replaces_content(self) -> bool {
        self.spec().effect.replaces_content
    }

    /// Returns what such a step changes of where its branch belongs and who may enter it.
    pub const fn access_change(self) -> AccessChange {
        self.spec().effect.access
    }
}
