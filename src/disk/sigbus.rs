//! SIGBUS: the one way in which the kernel can say that a mapped page can't be read.
//!
//! Files are measured before they are mapped, so this is a file that was cut short since, or a disk that fails. Nobody
//! can go on after it; what can be done is to say which file it was.

use std::ffi::c_void;

/// The longest line of the table of mappings that is looked at, in bytes.
const LINE_BYTES_MAX: usize = 1024;

/// From now on a process that is ended by SIGBUS says on standard error which mapped file could not be read.
pub fn install_sigbus_handler() {
    // SAFETY: all zeros is a valid sigaction; the handler is async-signal-safe and has the form that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        // RESETHAND: a second fault, in the handler too, ends the process at once and can't come back here.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// The handler: system calls and the stack only. The signal has its default action again when this begins.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a siginfo of a SIGBUS, which has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    write_stderr(b"engramfs: the file ");
    if !with_mapped_file(address, write_stderr) {
        write_stderr(b"of a mapping");
    }
    write_stderr(b" can't be read any longer: it was cut short, or its disk fails. The server ends; check the disk, then run engramfs verify\n");
    // SAFETY: raise is async-signal-safe. It ends the process as soon as the handler has returned.
    unsafe { libc::raise(signal) };
}

fn write_stderr(text: &[u8]) {
    // SAFETY: write is async-signal-safe, and the bytes are there for as long as the call. There is nobody to tell a failure.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Calls `look` with the path of the file that is mapped at an address; returns false if there is none.
fn with_mapped_file(address: usize, look: impl Fn(&[u8])) -> bool {
    let (mut line, mut length, mut buffer, mut found) = ([0; LINE_BYTES_MAX], 0, [0; 4096], false);
    // SAFETY: open, read and close are async-signal-safe; the name ends in a NUL, and the buffer is as long as is said.
    unsafe {
        let table = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        while !found
            && let Ok(count @ 1..) = usize::try_from(libc::read(table, buffer.as_mut_ptr().cast(), buffer.len()))
        {
            for byte in &buffer[..count] {
                if *byte != b'\n' {
                    // The rest of a line that is too long is left out.
                    line[length.min(LINE_BYTES_MAX - 1)] = *byte;
                    length = (length + 1).min(LINE_BYTES_MAX);
                } else {
                    if let Some(path) = mapped_file_in_line(&line[..length], address) {
                        look(path);
                        found = true;
                    }
                    length = 0;
                }
            }
        }
        libc::close(table);
    }
    found
}

/// Returns the path in a line of the table of mappings, if it is of a file and an address lies in it.
///
/// Fields: first address, `-`, last; permissions, offset, device, inode; blanks, path.
fn mapped_file_in_line(line: &[u8], address: usize) -> Option<&[u8]> {
    let dash = line.iter().position(|byte| *byte == b'-')?;
    let blank = line.iter().position(|byte| *byte == b' ')?;
    let path = line.iter().position(|byte| *byte == b'/')?;
    let number = |digits: &[u8]| usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let range = number(line.get(..dash)?)?..number(line.get(dash + 1..blank)?)?;
    range.contains(&address).then(|| &line[path..])
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_line_tells_the_file_of_its_addresses_alone() {
        let line = b"7f00001000-7f00003000 r--s 00000000 fe:01 1234                       /data/my store/segments/ab";
        assert_eq!(mapped_file_in_line(line, 0x7f_0000_2fff), Some(&b"/data/my store/segments/ab"[..]));
        assert_eq!(mapped_file_in_line(line, 0x7f_0000_3000), None);
        assert_eq!(mapped_file_in_line(b"7f00001000-7f00003000 rw-p 00000000 00:00 0", 0x7f_0000_1000), None);
        assert_eq!(mapped_file_in_line(b"", 0), None);
    }

    #[test]
    fn the_file_of_a_mapped_address_is_found() {
        let found = RefCell::new(Vec::new());
        let look = |path: &[u8]| found.borrow_mut().extend_from_slice(path);
        // The code of this test is mapped from the program.
        assert!(with_mapped_file(install_sigbus_handler as *const () as usize, look));
        let own = std::env::current_exe().unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&found.borrow()), own.to_string_lossy());
        assert!(!with_mapped_file(0, |_| {}));
    }
}
