//! `ctl`: one verb a line, done as the line is written.

use crate::fs::counted_buffer::CountedBuffer;
use crate::fs::errno::Failure;
use crate::fs::handle::HandleTable;
use crate::fs::last_answers::AnsweringFile;
use crate::fs::line_session::{LineProtocol, RequestOutcome};
use crate::fs::mount_context::{Caller, MountContext, OpenContext};
use crate::fs::refusal::{InputRefusal, LayoutRefusal};
use crate::fs::rights::{READ, SEARCH, WRITE};
use crate::memory::{BranchError, BranchId, BranchInfo, Credentials, View, Viewer};
use crate::sync::Mutex;
use crate::verb::{self, BranchRight, ParentRight, Rights, Verb, VerbContext};
use std::sync::Arc;

/// Bytes of the largest file that `show` answers with.
const SHOWN_BYTES_MAX: u64 = 16 << 20;

/// Does the lines of `ctl`, each a verb, as far as who wrote it may.
pub(super) struct Ctl {
    /// To see whether a branch that a merge ends still has unwritten bytes.
    pub handles: Arc<HandleTable>,
    /// Who opened the file, by whose rights `show` prints files.
    pub reader: Credentials,
}

impl LineProtocol for Ctl {
    type Request = Verb;
    const FILE: AnsweringFile = AnsweringFile::Ctl;

    fn parse(&self, line: &str) -> Result<Verb, Failure> {
        Verb::parse(line).ok_or_else(|| {
            let shown: String = line.trim().chars().take(200).collect();
            InputRefusal::Verb { line: shown, usage: verb::usage(line) }.into()
        })
    }

    fn changes(&self, verb: &Verb) -> bool {
        verb.changes()
    }

    fn refusal(&self, failure: &Failure) -> Option<String> {
        Some(failure.to_line())
    }

    fn perform(&self, context: &OpenContext, verb: &Verb, _number: usize) -> RequestOutcome {
        self.check(context, verb)?;
        let (memory, branch) = (context.memory(), context.branch());
        let may_read = |info: BranchInfo| context.mount.permits(context.caller, &info, READ | SEARCH);
        let reads = |branch| memory.info(branch).is_ok_and(may_read);
        let viewer = Viewer { may_read: &reads, reader: Some(&self.reader), bytes_max: SHOWN_BYTES_MAX };
        let parent = memory.info(branch)?.parent.filter(|_| verb.ends_branch());
        let line = verb.run(&VerbContext { memory, actor: &context.actor(), branch, viewer })?.to_line();
        if verb.ends_branch() {
            context.mount.states.forget(branch);
        }
        if let Some(parent) = parent {
            // The branch's own `ctl` has gone with it, and whoever reads the answer finds it in the parent's.
            set_ctl_answer(&context.mount, parent, context.caller, line.clone());
        }
        Ok(line)
    }
}

impl Ctl {
    /// Refuses a verb that its caller may not ask for, or not here, or not now.
    fn check(&self, context: &OpenContext, verb: &Verb) -> Result<(), Failure> {
        context.check_alive()?;
        check_caller(context, verb.rights())?;
        if verb.changes() {
            context.check_writable()?;
        }
        if verb.spec().root_only {
            check_root_branch(context, verb)?;
        }
        if verb.ends_branch() {
            self.check_end(context)?;
        }
        Ok(())
    }

    /// Refuses to end the branch that is mounted, and one with bytes that no commit took.
    fn check_end(&self, context: &OpenContext) -> Result<(), Failure> {
        if context.mount.root_branch() == Some(context.branch()) {
            return Err(LayoutRefusal::Mounted.into());
        }
        check_no_uncommitted(&self.handles, &context.memory().info(context.branch())?)
    }
}

/// Has the `ctl` of a branch show its caller a line that was asked for elsewhere.
pub(in crate::fs::control) fn set_ctl_answer(mount: &MountContext, branch: BranchId, caller: Caller, line: String) {
    // What was done is done, whether or not there is room for its answer.
    if let Ok(answer) = CountedBuffer::from_bytes(mount.memory.budget(), caller.uid, line.into_bytes()) {
        mount.answers.insert(&View::Branch(branch), AnsweringFile::Ctl, caller.uid, &Arc::new(Mutex::new(answer)));
    }
}

fn check_caller(context: &OpenContext, rights: Rights) -> Result<(), Failure> {
    match rights.branch {
        BranchRight::Enter => context.check_enter()?,
        BranchRight::Read => {
            context.check_read()?;
        }
        BranchRight::Own => context.check_owner()?,
        BranchRight::OwnBranchOrParent if context.owns_parent()? => {}
        BranchRight::OwnBranchOrParent => context.check_owner()?,
    }
    match rights.parent {
        ParentRight::WriteOrGate if context.gate_decides()? => Ok(()),
        ParentRight::ReadWriteOrGate if context.gate_decides()? => context.check_parent(READ | SEARCH),
        ParentRight::Nothing => Ok(()),
        ParentRight::Read => context.check_parent(READ | SEARCH),
        ParentRight::Write | ParentRight::WriteOrGate => context.check_parent(WRITE | SEARCH),
        ParentRight::ReadWrite | ParentRight::ReadWriteOrGate => context.check_parent(READ | WRITE | SEARCH),
    }
}

/// Refuses a verb that concerns all below a root branch, or the whole store, where the branch is no root branch.
fn check_root_branch(context: &OpenContext, verb: &Verb) -> Result<(), Failure> {
    let info = context.memory().info(context.branch())?;
    if info.parent.is_none() {
        return Ok(());
    }
    Err(BranchError::NotRoot { verb: verb.spec().name, path: info.path.to_string() }.into())
}

/// Returns EBUSY while a handle holds written bytes of the branch that no commit took.
pub(in crate::fs::control) fn check_no_uncommitted(handles: &HandleTable, info: &BranchInfo) -> Result<(), Failure> {
    if !handles.is_pending(info.id) {
        return Ok(());
    }
    Err(LayoutRefusal::Uncommitted(info.path.to_string()).into())
}
