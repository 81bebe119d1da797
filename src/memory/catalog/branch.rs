//! Branches, their checkpoints and the states that are kept readable.

use std::ops::Deref;
use std::sync::Arc;

use imbl::OrdMap;

use super::Proposal;
use super::agents::AgentNames;
use super::branch_files::without_orphans;
use super::settings::{Setting, Settings};
use super::shared_log::{OWN_LOG, SharedLogCursor, SharedLogTotals};
use super::signals::Signals;
use crate::branch::BranchVersion;
use crate::lineage::Side;
use crate::memory::Error;
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// Names a branch for ever: the `seq` of the entry that made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BranchId(pub u64);

impl BranchId {
    /// Reads the stored form, a varint. [`CodecError::Short`] if the bytes end before, [`CodecError::Number`] beyond 64
    /// bits.
    pub fn read(input: &mut Reader<'_>) -> Result<BranchId, CodecError> {
        Ok(BranchId(input.number()?))
    }
}

/// A state of a branch that stays until it is deleted, whatever `config/keep` says: a checkpoint, or what it proposes.
#[derive(Clone)]
pub struct Checkpoint {
    /// What the branch held, without files that only open handles held.
    pub state: Arc<BranchVersion>,
    /// The branch's base then, which a rollback brings back with the state.
    pub base: Arc<BranchVersion>,
    /// `seq` of the entry that took it; 0 until that entry is applied.
    pub seq: u64,
    /// Time of that entry, which the label's directory in `checkpoints/` has, too.
    pub time: Time,
    /// What was said about it when it was taken; empty for nothing.
    pub text: Arc<str>,
    /// How far the branch had read the shared log, to where a rollback sets it back.
    pub cursor: SharedLogCursor,
}

/// Where a rollback or a fork takes a state from; the log names this, and not the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSource {
    /// The checkpoint with that label, which the branch has to have.
    Checkpoint(Arc<str>),
    /// What the branch was behind the entry with that number: a kept state, of which `config/keep` may have let go, or
    /// the checkpoint that the entry took. Unlike by its label, that takes no cursor along.
    Entry(u64),
    /// The last state of a child that ended by that entry.
    Ended(u64),
}

/// A state that a rollback or a fork takes, looked up in one version of the catalog.
pub struct ResolvedSource {
    /// The state, its files as the branch's present owner has them.
    pub state: Arc<BranchVersion>,
    /// The base that the branch had with it.
    pub base: Arc<BranchVersion>,
    /// The entry that took the checkpoint; of any other source the one behind which the branch had the state.
    pub source_seq: u64,
    /// How far the branch had read the shared log; `None` if the source is not a checkpoint by its label.
    pub cursor: Option<SharedLogCursor>,
}

impl StateSource {
    /// Appends the stored form. Its code is never 0, which stands for no source.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        match self {
            StateSource::Checkpoint(label) => out.byte(1).text(label),
            StateSource::Entry(entry) => out.byte(3).number(*entry),
            StateSource::Ended(entry) => out.byte(4).number(*entry),
        }
    }

    /// Reads the stored form; `None` if there is no source. [`CodecError::Code`] for a sort of source that this version
    /// does not know.
    pub fn read(input: &mut Reader<'_>) -> Result<Option<StateSource>, CodecError> {
        match input.byte()? {
            0 => Ok(None),
            1 => Ok(Some(StateSource::Checkpoint(input.text()?.into()))),
            3 => Ok(Some(StateSource::Entry(input.number()?))),
            4 => Ok(Some(StateSource::Ended(input.number()?))),
            code => Err(CodecError::Code(code)),
        }
    }

    /// Returns the checkpoint's label, which its entry names; `None` for another sort of source.
    pub fn label(&self) -> Option<&Arc<str>> {
        if let StateSource::Checkpoint(label) = self { Some(label) } else { None }
    }
}

impl Checkpoint {
    /// Makes a checkpoint of a branch. It gets its `seq` from its entry.
    pub fn from_branch(branch: &Branch, text: &Arc<str>, time: Time) -> Checkpoint {
        let (state, base) = (without_orphans(&branch.state), branch.base.clone());
        Checkpoint { state, base, seq: 0, time, text: text.clone(), cursor: branch.cursor }
    }
}

impl PartialEq for Checkpoint {
    fn eq(&self, other: &Checkpoint) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
            && Arc::ptr_eq(&self.base, &other.base)
            && (self.seq, self.time, &self.text, self.cursor) == (other.seq, other.time, &other.text, other.cursor)
    }
}

/// A manual choice in a conflict. It holds while both sides are unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The chosen side: child or parent, never both.
    pub side: Side,
    /// The child's version at that time; `None` if it was deleted. With any other version the choice does not hold.
    pub child: Option<Hash>,
    /// The parent's version at that time; `None` if it was deleted.
    pub parent: Option<Hash>,
}

impl Resolution {
    /// Appends the stored form; zeros stand for no version.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        out.byte(u8::from(self.side == Side::Parent));
        out.hash(&self.child.unwrap_or(Hash::ZERO)).hash(&self.parent.unwrap_or(Hash::ZERO))
    }

    /// Reads the stored form. [`CodecError::Code`] for a side that is neither the child's nor the parent's.
    pub fn read(input: &mut Reader<'_>) -> Result<Resolution, CodecError> {
        let side = match input.byte()? {
            0 => Side::Child,
            1 => Side::Parent,
            code => return Err(CodecError::Code(code)),
        };
        let version = |hash: Hash| (hash != Hash::ZERO).then_some(hash);
        Ok(Resolution { side, child: version(input.hash()?), parent: version(input.hash()?) })
    }
}

/// Whether somebody holds a branch's lease, by the last frame or entry about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LeaseState {
    /// Nobody ever held it. `config/ttl` counts from the last change.
    #[default]
    Free,
    /// Somebody holds it, or did when the server ended. Such a branch never expires.
    Held,
    /// Nobody has held it since that time. `config/ttl` counts from it, or from a later change.
    Lost(Time),
}

impl LeaseState {
    /// Appends the stored form: a code, and when it was lost.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        match self {
            LeaseState::Free => out.byte(0),
            LeaseState::Held => out.byte(1),
            LeaseState::Lost(time) => out.byte(2).signed(time.0),
        }
    }

    /// Reads the stored form. [`CodecError::Code`] for a state that this version does not know.
    pub fn read(input: &mut Reader<'_>) -> Result<LeaseState, CodecError> {
        match input.byte()? {
            0 => Ok(LeaseState::Free),
            1 => Ok(LeaseState::Held),
            2 => Ok(LeaseState::Lost(Time(input.signed()?))),
            code => Err(CodecError::Code(code)),
        }
    }
}

/// One branch, as one version of the catalog has it; a clone shares records, files and maps.
#[derive(Clone)]
pub struct Branch {
    /// Its number, which no other branch ever has.
    pub id: BranchId,
    /// A small number unique among living branches, part of inode numbers; 0 for none.
    pub number: u32,
    /// Its name among its siblings; forks and renames change no id.
    pub name: Arc<str>,
    /// The names from the root branch down to its own, joined by `/`. Kept, since every answer and entry
    /// tells it, and putting it together at depth 64 takes some 3 µs.
    pub path: Arc<str>,
    /// Its parent; `None` for a root branch. Of a branch that holds a log, the one that has that.
    pub parent: Option<BranchId>,
    /// The root branch above it, or itself. Agents and shared settings are kept there.
    pub root: BranchId,
    /// Uid of its owner.
    pub uid: u32,
    /// Mode bits of its directory, the lower 12; all rights to a branch follow from these and `uid`.
    pub mode: u32,
    /// When it was made: the time of that entry.
    pub created: Time,
    /// When its content last changed: the time of that entry or operation on files.
    pub changed: Time,
    /// `seq` of the last entry that concerns it. Cached documents are outdated once it has grown.
    pub last_entry_seq: u64,
    /// `seq` of the entry that gave it its present state, apart from pending operations on files.
    pub state_entry: u64,
    /// What it holds now, with pending operations on files.
    pub state: Arc<BranchVersion>,
    /// The state of its parent at the fork or at the last merge. Its own edits are the difference from it.
    pub base: Arc<BranchVersion>,
    /// Its settings, including those inherited at the fork.
    pub settings: Settings,
    /// Its checkpoints by label; forks do not inherit them.
    pub checkpoints: OrdMap<Arc<str>, Checkpoint>,
    /// Its child branches by name; the branch that holds its log is not among them.
    pub children: OrdMap<Arc<str>, BranchId>,
    /// Conflicts resolved manually, by record id or `files/PATH`; forgotten with the next base.
    pub resolutions: OrdMap<Arc<str>, Resolution>,
    /// Operations on its files since the store was opened; not stored, so that it begins with 0 again.
    pub file_op_count: u64,
    /// `seq` of the last entry since the opening that changed its state. It stays the same when the state moves into
    /// new segments.
    pub state_seq: u64,
    /// `seq` of the last entry since the opening that changed its base.
    pub base_seq: u64,
    /// Of a root branch: whether a vector was ever written below it, which fixes `dim` and `metric`.
    pub vectors_fixed: bool,
    /// The branch whose shared log it uses: itself, or the nearest one above with a log of its own. Derived, not stored.
    pub log_owner: BranchId,
    /// The branch that holds the entries of its own shared log; `None` before the first entry.
    pub log: Option<BranchId>,
    /// How much it holds, if it is itself a branch that holds a log; `None` for all others.
    pub log_totals: Option<SharedLogTotals>,
    /// The logs of branches below it that have ended, by `NAME@SEQ`, where it has a log of its own.
    pub closed_logs: OrdMap<Arc<str>, BranchId>,
    /// How far it has read the shared log; a fork begins where its parent is.
    pub cursor: SharedLogCursor,
    /// The signals of its own shared log; empty if it has the log of a branch above.
    pub signals: Signals,
    /// Whether somebody works in it; read when the store is opened after a crash.
    pub lease: LeaseState,
    /// Of a root branch: the names of agents below it, each of one user. Empty for all others.
    pub agents: AgentNames,
    /// What it proposes to its parent, frozen; `None` if that is nothing, and after a rename.
    pub proposal: Option<Arc<Proposal>>,
    /// Number of the last entry of its shared log when it got its base. A gate may ask for a later summary.
    pub log_at_base: u64,
}

impl Branch {
    /// Returns whether its state is the same as in another version of the catalog, wherever it is stored.
    pub fn has_same_state(&self, other: &Branch) -> bool {
        (self.state_seq, self.file_op_count) == (other.state_seq, other.file_op_count)
    }

    /// Mode of a new root branch's directory: everybody may enter.
    pub const ROOT_MODE: u32 = 0o755;
    /// Mode of a new child branch's directory: nobody but its owner may enter.
    pub const CHILD_MODE: u32 = 0o700;

    /// Makes a branch without checkpoints and children, whose base is its state.
    pub fn new(
        id: BranchId,
        name: Arc<str>,
        parent: Option<&Branch>,
        state: Arc<BranchVersion>,
        uid: u32,
        time: Time,
    ) -> Branch {
        Branch {
            id,
            number: 0,
            path: name_path(parent, &name),
            name,
            parent: parent.map(|parent| parent.id),
            root: parent.map_or(id, |parent| parent.root),
            uid,
            mode: if parent.is_some() { Branch::CHILD_MODE } else { Branch::ROOT_MODE },
            created: time,
            changed: time,
            // The id of a branch is the number of the entry that made it.
            last_entry_seq: id.0,
            state_entry: id.0,
            base: state.clone(),
            state,
            settings: parent.map_or_else(Settings::default, |parent| parent.settings.for_fork()),
            checkpoints: OrdMap::new(),
            children: OrdMap::new(),
            resolutions: OrdMap::new(),
            file_op_count: 0,
            state_seq: id.0,
            base_seq: id.0,
            vectors_fixed: false,
            log_owner: parent.map_or(id, |parent| parent.log_owner),
            log: None,
            log_totals: None,
            closed_logs: OrdMap::new(),
            cursor: parent.map_or_else(SharedLogCursor::default, |parent| parent.cursor),
            signals: Signals::new(),
            lease: LeaseState::Free,
            agents: AgentNames::new(),
            proposal: None,
            log_at_base: 0,
        }
    }

    /// Returns the checkpoint with that label, or [`Error::NoCheckpoint`].
    pub fn checkpoint(&self, label: &str) -> Result<&Checkpoint, Error> {
        self.checkpoints.get(label).ok_or_else(|| Error::NoCheckpoint(label.to_string()))
    }

    /// Returns the checkpoint that an entry took, with its label; `None` if that took none, or it was deleted.
    pub fn checkpoint_at(&self, seq: u64) -> Option<(&Arc<str>, &Checkpoint)> {
        self.checkpoints.iter().find(|(_, checkpoint)| checkpoint.seq == seq)
    }
}

/// A branch as a version of the catalog has it. It equals itself alone, so that a comparison of two
/// versions finds the branches that changed, at the cost of what changed.
#[derive(Clone)]
pub struct BranchRef(Arc<Branch>);

impl BranchRef {
    /// Makes a reference that equals itself and its clones alone.
    pub fn new(branch: Branch) -> BranchRef {
        BranchRef(Arc::new(branch))
    }

    /// Returns the branch to change it; other versions of the catalog keep theirs.
    pub fn make_mut(&mut self) -> &mut Branch {
        Arc::make_mut(&mut self.0)
    }
}

impl PartialEq for BranchRef {
    fn eq(&self, other: &BranchRef) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for BranchRef {
    type Target = Branch;

    fn deref(&self) -> &Branch {
        &self.0
    }
}

/// Returns the name path of a branch: that of its parent and its own name with `/` between, or its name alone.
pub(in crate::memory) fn name_path(parent: Option<&Branch>, name: &Arc<str>) -> Arc<str> {
    parent.map_or_else(|| name.clone(), |parent| [&*parent.path, "/", &**name].concat().into())
}

/// Returns the branch whose shared log a branch uses: itself where it has one of its own, else that of its parent.
pub(in crate::memory) fn log_owner(parent: Option<&Branch>, branch: &Branch) -> BranchId {
    let above = parent.filter(|_| &**branch.settings.get(Setting::Log) != OWN_LOG);
    above.map_or(branch.id, |parent| parent.log_owner)
}
