//! What memory the server's process has, takes and gives back.

use std::fs;
use std::io;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

use crate::sync::{MemoryMeter, TrimHeap};

/// How many arenas the allocator may have: each reserves 64 MiB of address space.
const ARENAS_MAX: i32 = 2;
/// Allocations of at least this size are mapped one by one, and go back to the system when they are freed.
const MAPPED_ALLOCATION_BYTES_MIN: i32 = 1 << 20;

/// Returns how many bytes of memory this process may take at most: the smallest of the machine's memory, the limits of
/// its control groups, and RLIMIT_AS. `u64::MAX` where none of them can be read.
pub fn available_memory_bytes() -> u64 {
    [machine_memory_bytes(), smallest_cgroup_limit_bytes(), address_space_limit_bytes()]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
}

/// Returns the supplementary groups of a process or thread, as long as it lives; `None` if it does not, or is of
/// another PID namespace (0).
pub fn supplementary_groups(pid: u32) -> Option<Vec<u32>> {
    // The kernel tells 0 for a process of a namespace that is not ours.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok().filter(|_| pid > 0)?;
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    groups.split_whitespace().map(|group| group.parse().ok()).collect()
}

/// Has what this process has open, beside the three standard streams, not be open in programs that it starts from now
/// on. Fails if `/proc/self/fd` can't be read; some may be marked then.
pub fn close_at_exec() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if fd > 2 {
            // SAFETY: it sets a flag of a descriptor by its number; one that was closed meanwhile is refused.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Makes the allocator thrifty with address space, and give large buffers back. To be called before the first thread
/// exists.
pub fn tune_allocator() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [(libc::M_ARENA_MAX, ARENAS_MAX), (libc::M_MMAP_THRESHOLD, MAPPED_ALLOCATION_BYTES_MIN)] {
        // SAFETY: mallopt takes any numbers.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Returns the measure of this process's anonymous memory; mapped files do not count.
pub fn memory_meter() -> MemoryMeter {
    Box::new(|trim| {
        if trim == TrimHeap::Yes {
            trim_heap();
        }
        anonymous_memory_bytes().unwrap_or_default()
    })
}

fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only gives back what is free.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Resident pages that are of no file, in bytes.
fn anonymous_memory_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let mut fields = statm.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, of_files) = (fields.next()?, fields.next()?);
    Some(resident.saturating_sub(of_files) * page_size() as u64)
}

fn machine_memory_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

fn address_space_limit_bytes() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// The smallest limit of the control groups that this process is in, of version 2 and of version 1.
fn smallest_cgroup_limit_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(|line| cgroup_limit_bytes(line, |file| fs::read_to_string(file).ok())).min()
}

/// Returns the limit of the group of one line of /proc/self/cgroup, and of those above it.
fn cgroup_limit_bytes(line: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let above = std::iter::successors(Some(path.trim_end_matches('/')), |path| path.rsplit_once('/').map(|(up, _)| up));
    // No limit is the word max, or a number larger than any memory.
    above.filter_map(|path| read(&format!("{root}{path}/{file}"))?.trim().parse().ok()).min()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use rustix::process::{Rlimit, setrlimit};

    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let read = |file: &str| {
            let limit = match file {
                "/sys/fs/cgroup/memory.max" => "max",
                "/sys/fs/cgroup/a/memory.max" => "2000\n",
                "/sys/fs/cgroup/a/b/memory.max" => "3000\n",
                "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => "70",
                _ => return None,
            };
            Some(limit.to_owned())
        };
        assert_eq!(cgroup_limit_bytes("0::/a/b", read), Some(2000));
        assert_eq!(cgroup_limit_bytes("0::/", read), None);
        assert_eq!(cgroup_limit_bytes("4:cpu,memory:/c", read), Some(70));
        assert_eq!(cgroup_limit_bytes("5:cpu:/c", read), None);
    }

    #[test]
    fn a_limit_of_address_space_counts() {
        let before = getrlimit(Resource::As);
        // More than any machine has, so that no other test is refused memory.
        let limit = before.maximum.unwrap_or(u64::MAX).min(1 << 50);
        setrlimit(Resource::As, Rlimit { current: Some(limit), ..before }).unwrap();
        let found = address_space_limit_bytes();
        setrlimit(Resource::As, before).unwrap();
        assert_eq!(found, Some(limit));
        assert!(available_memory_bytes() <= machine_memory_bytes().unwrap());
    }

    #[test]
    fn this_process_takes_something_and_less_than_it_may() {
        let taken = memory_meter()(TrimHeap::No);
        assert!(taken > 0 && taken < available_memory_bytes());
    }
}
