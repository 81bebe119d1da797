//! The kernel's side: the protocol's adapter, and mounting, serving and unmounting by our own means.
//! The only module that names fuser.
//!
//! Around a mount everything fails with a [`MountError`], whose variants say what prevents it and whose `hint`
//! says what to do; requests fail with the error number that [`Filesystem`](crate::fs::Filesystem) gives.

mod adapter;
mod attachment;
mod background;
mod connection;
mod dispatch;
mod doctor;
mod error;
mod fusermount;
mod holders;
mod kernel;
mod mount;
mod mountinfo;
mod notices;
mod probe;
mod process;
mod reply;
mod session;
mod signals;
mod unmount;

pub use adapter::Adapter;
pub use background::{Background, into_background};
pub use doctor::{Finding, examine};
pub use error::MountError;
pub use mount::MountOptions;
pub use mountinfo::{SOURCE_PREFIX, source_name};
pub use notices::{NoticeChannel, connect};
pub use probe::readable_within;
pub use process::{available_memory_bytes, close_at_exec, memory_meter, supplementary_groups, tune_allocator};
pub use session::{SessionEnd, serve};
pub use signals::{INTERRUPTED_EXIT_CODE, Watcher};
pub use unmount::{clear_stale, unmount};
