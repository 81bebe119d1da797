//! Opening what is generated: each kind of file behaves in a way of its own.

use super::ControlNodeOps;
use super::fixed::refuse_writing;
use crate::fs::config::{SettingFile, with_line_end};
use crate::fs::errno::{Errno, Failure};
use crate::fs::handle::{File, Handle, Open};
use crate::fs::line_session::LineSession;
use crate::fs::mount_context::{Caller, OpenContext};
use crate::fs::node::{FsNode, SharedNode};
use crate::fs::open_flags::OpenFlags;
use crate::fs::record_file::RecordFile;
use crate::fs::search;
use crate::fs::shared_events::SharedEventsFile;
use crate::fs::shared_log::{self, CursorFile, EntriesFile, cursor_text};
use crate::fs::signal_file::SignalFile;
use crate::fs::static_file::{ExportFile, StaticFile};
use crate::fs::temporary::TemporaryFile;

impl ControlNodeOps<'_> {
    /// Returns the view of a handle of the node; `None` for the mount's own directory. ESTALE if the branch has gone.
    pub(super) fn open_context(&self, caller: Caller) -> Result<Option<OpenContext>, Failure> {
        self.node.view().map(|view| self.fs.mount.open_context(&view, caller)).transpose()
    }

    /// Opens the file, which the kernel knows by `number` and `errors` shows at `path`.
    pub(super) fn open_at(&self, caller: Caller, number: u64, path: String, flags: OpenFlags) -> Result<u64, Failure> {
        let node = self.node;
        let context = self.open_context(caller)?.ok_or(Errno::EISDIR)?;
        context.check_enter()?;
        let file = self.file(&context, flags)?;
        if flags.truncate {
            file.truncate(0)?;
        }
        if node.needs_own_inode() {
            // Only once nothing can fail any more: the release of the handle is what takes this back.
            self.fs.nodes.count_open(number);
        }
        let open = Open::File(file);
        Ok(self.fs.handles.add(Handle { node: node.clone(), number, path, caller, context: Some(context), open }))
    }

    /// The one place that says how each kind of file behaves when it is open.
    fn file(&self, context: &OpenContext, flags: OpenFlags) -> Result<Box<dyn File>, Failure> {
        let memory = context.memory();
        let frozen = |bytes: Vec<u8>| -> Result<Box<dyn File>, Failure> {
            Ok(Box::new(StaticFile(context.count_buffer(bytes)?)))
        };
        Ok(match self.node {
            // None of these is a file with a behaviour of its own; those below `files/` never come here but go to
            // `files/open.rs`.
            FsNode::Mount
            | FsNode::Branch(_)
            | FsNode::Checkpoint { .. }
            | FsNode::At { .. }
            | FsNode::Proposal { .. }
            | FsNode::Directory(..)
            | FsNode::File(..) => return Err(Errno::EISDIR.into()),
            FsNode::Control(_, file) => file.open(context, &self.fs.handles, flags)?,
            FsNode::Shared(_, shared) => shared_file(shared, context, flags)?,
            FsNode::Record(_, id) if flags.write => Box::new(RecordFile::open(context.clone(), id, flags)?),
            FsNode::Record(view, id) => frozen(memory.snapshot(view)?.get(id)?.ok_or(Errno::ENOENT)?.to_document())?,
            FsNode::Temporary(_, number) => {
                let file = context.state.temporaries.get_by_number(*number).ok_or(Errno::ENOENT)?;
                if flags.write {
                    context.check_writable()?;
                }
                Box::new(TemporaryFile { context: context.clone(), file, append: flags.append })
            }
            FsNode::Setting(_, setting) if flags.write => {
                Box::new(SettingFile::open(context.clone(), *setting, flags.append)?)
            }
            FsNode::Setting(view, setting) => frozen(with_line_end(&memory.setting(view, *setting)?).into_bytes())?,
            FsNode::Signal(_, key, created) if flags.write => {
                Box::new(SignalFile::open(context.clone(), key, *created, flags.append)?)
            }
            FsNode::Signal(_, key, created) => frozen(context.signal(key, *created)?.value.to_vec())?,
            FsNode::Query(..) | FsNode::Export(..) if flags.write => return Err(refuse_writing(context)),
            FsNode::Query(_, text) => frozen(search::answer(context, text)?)?,
            FsNode::Export(view, export) => Box::new(ExportFile { snapshot: memory.snapshot(view)?, export: *export }),
        })
    }
}

fn shared_file(node: &SharedNode, context: &OpenContext, flags: OpenFlags) -> Result<Box<dyn File>, Failure> {
    Ok(match node {
        SharedNode::Append => {
            if flags.write {
                context.check_writable()?;
            }
            Box::new(LineSession::new(context.clone(), shared_log::AppendFile))
        }
        SharedNode::Cursor if flags.write => Box::new(CursorFile::open(context.clone())?),
        _ if flags.write => return Err(refuse_writing(context)),
        SharedNode::Cursor => {
            Box::new(StaticFile(context.count_buffer(cursor_text(context.memory(), context.branch())?.into_bytes())?))
        }
        SharedNode::Events => Box::new(SharedEventsFile::open(context.clone())?),
        SharedNode::Entries => Box::new(EntriesFile::open(context.clone(), None)?),
        SharedNode::ClosedEntries(log) => Box::new(EntriesFile::open(context.clone(), Some(log))?),
        SharedNode::Unread | SharedNode::After(_) | SharedNode::Last(_) => {
            Box::new(StaticFile(context.log_lines(node)?))
        }
        SharedNode::Log
        | SharedNode::AfterDirectory
        | SharedNode::LastDirectory
        | SharedNode::ClosedDirectory
        | SharedNode::Signals
        | SharedNode::Closed(_) => return Err(Errno::EISDIR.into()),
    })
}
