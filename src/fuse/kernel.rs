//! What is agreed with the kernel at the beginning of a mount.

use fuser::{InitFlags, KernelConfig};

/// What this file system can do with, of what a kernel offers. Nothing else is asked for.
const WANTED: [InitFlags; 7] = [
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
const BACKGROUND: u16 = 64;

/// The first release of which it is known that it drops pages after a write past them, and of the one before that the first with the mend.
const SINCE: (u32, u32) = (6, 19);
const MENDED: (u32, u32, u32) = (6, 18, 10);

/// Asks for what is wanted of the kernel; returns whether it drops the pages that a write past them covers.
pub(super) fn agree(config: &mut KernelConfig) -> bool {
    // An older kernel lacks some of them; what is missing then is said where it is used.
    WANTED
        .iter()
        .filter_map(|flag| config.add_capabilities(*flag).err())
        .for_each(|flag| log::info!("this kernel lacks {flag:?}"));
    // Any number but 0 is taken.
    let _ = config.set_max_background(BACKGROUND);
    drops_pages(&rustix::system::uname().release().to_string_lossy())
}

/// Tells whether a kernel drops the pages that a write past them covers also after the write. Older ones
/// do so before it alone: who reads a page in between keeps what was there.
fn drops_pages(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    (major, minor) >= SINCE || ((major, minor) == (MENDED.0, MENDED.1) && patch >= MENDED.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for new in ["6.18.10", "6.18.44-fc-v669", "6.19.0-rc1", "6.100", "7.0.1", "10.2"] {
            assert!(drops_pages(new), "{new}");
        }
        for old in ["6.6.0", "6.18.9", "6.18.0-44", "6.12.90", "5.19.20", "6.9.12", "", "odd"] {
            assert!(!drops_pages(old), "{old}");
        }
    }
}
