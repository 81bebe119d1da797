//! Negotiates capabilities with the kernel when a mount begins.

use fuser::{InitFlags, KernelConfig};

/// The kernel capabilities that this file system uses. No other is asked for.
const CAPABILITIES: [InitFlags; 7] = [
    // Open carries O_TRUNC, so that emptying is the matter of one handle.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // Generated files are read past the page cache, and mapped nevertheless.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Look-ups in one directory do not wait for each other.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Pages go when they are said to be stale: what is written here through the kernel is not.
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    // A listing brings the attributes of what is in files/, so that nobody asks for each of them.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    // Setuid and setgid are cleared here: the kernel would ask for the capabilities of a file
    // before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];
/// Requests that the kernel sends ahead of those who wait, such as reading ahead.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// The first release known to drop cached pages after a direct write to them, and the first of the series before it that has
/// the fix backported.
const PAGE_DROP_RELEASE: (u32, u32) = (6, 19);
const PAGE_DROP_BACKPORT: (u32, u32, u32) = (6, 18, 10);

/// Negotiates capabilities with the kernel; returns whether it drops the cached pages that a direct write covers.
pub(super) fn negotiate(config: &mut KernelConfig) -> bool {
    // An older kernel lacks some of them; what is missing then is said where it is used.
    CAPABILITIES
        .iter()
        .filter_map(|flag| config.add_capabilities(*flag).err())
        .for_each(|flag| log::info!("this kernel lacks {flag:?}"));
    // The kernel accepts any number but 0.
    let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
    direct_write_invalidates(&rustix::system::uname().release().to_string_lossy())
}

/// Returns whether a kernel of that release drops the cached pages that a direct write covers after the write, too.
/// Older ones drop them before it alone, so that a page that is read in between keeps the old bytes.
fn direct_write_invalidates(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    (major, minor) >= PAGE_DROP_RELEASE
        || ((major, minor) == (PAGE_DROP_BACKPORT.0, PAGE_DROP_BACKPORT.1) && patch >= PAGE_DROP_BACKPORT.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for new in ["6.18.10", "6.18.44-fc-v669", "6.19.0-rc1", "6.100", "7.0.1", "10.2"] {
            assert!(direct_write_invalidates(new), "{new}");
        }
        for old in ["6.6.0", "6.18.9", "6.18.0-44", "6.12.90", "5.19.20", "6.9.12", "", "odd"] {
            assert!(!direct_write_invalidates(old), "{old}");
        }
    }
}
