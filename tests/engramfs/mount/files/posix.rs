//! System calls, one by one.

use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use crate::mount::{Mounted, errno, names, read, rename_with, save, truncate};

/// A mount, and the path of a name in its files.
fn mounted() -> (Mounted, impl Fn(&str) -> std::path::PathBuf) {
    let mount = Mounted::new();
    let root = mount.at("main/files");
    (mount, move |name: &str| root.join(name))
}

#[test]
fn what_is_written_is_read_and_has_its_size() {
    let (_mount, at) = mounted();
    save(at("f"), "hello").unwrap();
    assert_eq!((read(at("f")), fs::metadata(at("f")).unwrap().len()), ("hello".into(), 5));
    let file = File::options().read(true).write(true).open(at("f")).unwrap();
    file.write_all_at(b"ELLO!", 1).unwrap();
    assert_eq!(read(at("f")), "hELLO!");
    save(at("f"), "new").unwrap();
    assert_eq!(read(at("f")), "new");
    assert_eq!(errno(File::create_new(at("f"))), libc::EEXIST);
    assert_eq!(errno(File::open(at("missing"))), libc::ENOENT);
    assert_eq!(errno(File::open(at("f/below"))), libc::ENOTDIR);
    assert_eq!(errno(File::create(at(&"n".repeat(256)))), libc::ENAMETOOLONG);
    save(at(&"n".repeat(255)), "long").unwrap();
    let raw = at("").join(std::ffi::OsStr::from_bytes(b"\xff\xfe no text"));
    save(&raw, "any bytes").unwrap();
    assert_eq!(read(&raw), "any bytes");
    let nameless = File::options().write(true).custom_flags(libc::O_TMPFILE).open(at(""));
    assert_eq!(errno(nameless), libc::EOPNOTSUPP);
}

#[test]
fn truncation_cuts_and_stretches() {
    let (_mount, at) = mounted();
    save(at("f"), "hello").unwrap();
    truncate(&at("f"), 2).unwrap();
    truncate(&at("f"), 4).unwrap();
    assert_eq!(read(at("f")), "he\0\0");
    let file = File::options().write(true).open(at("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    let stat = fs::metadata(at("f")).unwrap();
    assert_eq!(stat.len(), 1 << 20);
    assert!(stat.blocks() <= 128, "a hole takes no room: {}", stat.blocks());
    file.set_len(1).unwrap();
    assert_eq!(read(at("f")), "h");
}

#[test]
fn several_appenders_lose_nothing() {
    let (mount, at) = mounted();
    mount.sh("cd main/files; for w in 1 2 3 4; do (for i in $(seq 200); do echo $w-$i >> log; done) & done; wait");
    let text = read(at("log"));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!((lines.len(), text.lines().count()), (800, 800));
}

#[test]
fn a_rename_replaces_refuses_or_exchanges() {
    let (_mount, at) = mounted();
    save(at("a"), "a").unwrap();
    save(at("b"), "b").unwrap();
    fs::create_dir_all(at("full/d")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    assert_eq!(errno(rename_with(&at("a"), &at("b"), libc::RENAME_NOREPLACE)), libc::EEXIST);
    rename_with(&at("a"), &at("b"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((read(at("a")), read(at("b"))), ("b".into(), "a".into()));
    rename_with(&at("a"), &at("full"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((read(at("full")), names(at("a"))), ("b".into(), vec!["d".to_owned()]));
    let mut open = File::open(at("b")).unwrap();
    fs::rename(at("full"), at("b")).unwrap();
    assert_eq!((read(at("b")), names(at(""))), ("b".into(), ["a", "b", "empty"].map(str::to_owned).to_vec()));
    let mut old = String::new();
    open.read_to_string(&mut old).unwrap();
    assert_eq!(old, "a");
    assert_eq!(errno(fs::rename(at("empty"), at("a"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::rename(at("a"), at("a/d/below"))), libc::EINVAL);
    assert_eq!(errno(fs::rename(at("b"), at("empty"))), libc::EISDIR);
    assert_eq!(errno(fs::rename(at("empty"), at("b"))), libc::ENOTDIR);
    fs::rename(at("a"), at("empty")).unwrap();
    assert_eq!(names(at("empty")), ["d"]);
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let (_mount, at) = mounted();
    save(at("f"), "still here").unwrap();
    let mut open = File::options().read(true).write(true).open(at("f")).unwrap();
    fs::remove_file(at("f")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    save(at("f"), "another").unwrap();
    open.write_all(b"STILL").unwrap();
    open.set_len(7).unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), open.metadata().unwrap().len()), ("STILL h", 7));
    assert_eq!(read(at("f")), "another");
    // A directory that somebody has open can go, too.
    fs::create_dir(at("d")).unwrap();
    let directory = File::open(at("d")).unwrap();
    fs::remove_dir(at("d")).unwrap();
    assert_eq!(directory.metadata().unwrap().nlink(), 0);
}

#[test]
fn a_working_directory_that_is_removed_is_empty() {
    let (mount, _) = mounted();
    let script = "mkdir -p main/files/d/e; cd main/files/d/e; rmdir ../e; [ -z \"$(ls -a)\" ]; [ $(stat -c %h .) = 0 ]; \
                  ! touch x 2>&1; cd ..; ls -a | tr '\n' ' '";
    let said = mount.sh(script);
    assert!(said.contains("No such file or directory") && said.ends_with(". .. "), "{said}");
}

#[test]
fn hard_links_are_one_file_and_symbolic_links_lead_there() {
    let (_mount, at) = mounted();
    save(at("a"), "one").unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::hard_link(at("a"), at("d/b")).unwrap();
    save(at("d/b"), "two").unwrap();
    let (first, second) = (fs::metadata(at("a")).unwrap(), fs::metadata(at("d/b")).unwrap());
    assert_eq!((read(at("a")), first.nlink(), first.ino()), ("two".into(), 2, second.ino()));
    fs::remove_file(at("a")).unwrap();
    assert_eq!((fs::metadata(at("d/b")).unwrap().nlink(), read(at("d/b"))), (1, "two".into()));
    assert_eq!(errno(fs::hard_link(at("d"), at("e"))), libc::EPERM);
    symlink("d/b", at("soft")).unwrap();
    symlink("loop", at("loop")).unwrap();
    assert_eq!((read(at("soft")), fs::read_link(at("soft")).unwrap()), ("two".into(), "d/b".into()));
    assert_eq!(fs::symlink_metadata(at("soft")).unwrap().len(), 3);
    assert_eq!(errno(File::open(at("loop"))), libc::ELOOP);
}

#[test]
fn directories_count_their_directories_and_go_when_they_are_empty() {
    let (_mount, at) = mounted();
    fs::create_dir_all(at("d/e")).unwrap();
    fs::create_dir(at("d/f")).unwrap();
    save(at("d/g"), "").unwrap();
    assert_eq!((fs::metadata(at("d")).unwrap().nlink(), fs::metadata(at("")).unwrap().nlink()), (4, 3));
    assert_eq!(errno(fs::remove_dir(at("d"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_dir(at("d/g"))), libc::ENOTDIR);
    assert_eq!(errno(fs::remove_file(at("d/e"))), libc::EISDIR);
    fs::remove_dir_all(at("d")).unwrap();
    assert_eq!(fs::metadata(at("")).unwrap().nlink(), 2);
}

#[test]
fn pipes_and_sockets_connect_processes() {
    let (mount, at) = mounted();
    mount.sh("cd main/files; mkfifo p; (echo through the pipe > p) & cat p > out; wait");
    assert_eq!(read(at("out")), "through the pipe\n");
    let listener = std::os::unix::net::UnixListener::bind(at("s")).unwrap();
    let mut client = std::os::unix::net::UnixStream::connect(at("s")).unwrap();
    client.write_all(b"x").unwrap();
    assert_eq!(listener.accept().unwrap().0.read(&mut [0; 4]).unwrap(), 1);
    let kind = |name: &str| fs::symlink_metadata(at(name)).unwrap().file_type();
    assert!(kind("p").is_fifo() && kind("s").is_socket());
}

#[test]
fn extended_attributes_are_kept_and_have_their_limits() {
    let (mount, _) = mounted();
    let code = "import os, errno, struct
os.chdir('main/files'); open('f', 'w').close(); os.mkdir('d'); os.symlink('f', 's')
def fails(number, call, *args, **more):
    try: call(*args, **more)
    except OSError as e: assert e.errno == number, (e, args)
    else: raise AssertionError((call, args))
for path in ('f', 'd'):
    os.setxattr(path, 'user.a', b'1'); os.setxattr(path, 'user.b', b'')
    assert os.getxattr(path, 'user.a') == b'1' and os.getxattr(path, 'user.b') == b''
    assert sorted(os.listxattr(path)) == ['user.a', 'user.b'], os.listxattr(path)
    fails(errno.EEXIST, os.setxattr, path, 'user.a', b'2', os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, path, 'user.c', b'2', os.XATTR_REPLACE)
    os.setxattr(path, 'user.a', b'2' * 65536, os.XATTR_REPLACE)
    assert len(os.getxattr(path, 'user.a')) == 65536
    os.removexattr(path, 'user.a')
    fails(errno.ENODATA, os.getxattr, path, 'user.a'); fails(errno.ENODATA, os.removexattr, path, 'user.a')
fails(errno.E2BIG, os.setxattr, 'f', 'user.a', b'2' * 65537)
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', tag, 6, -1) for tag in (1, 4, 32))
fails(errno.ENOTSUP, os.setxattr, 'f', 'system.posix_acl_access', acl)
for name in ('nameless', 'other.a', 'USER.a'):
    fails(errno.ENOTSUP, os.setxattr, 'f', name, b'1'); fails(errno.ENOTSUP, os.removexattr, 'f', name)
    fails(errno.ENOTSUP, os.getxattr, 'f', name)
fails(errno.EINVAL, os.setxattr, 'f', 'user.', b'1')
fails(errno.EPERM, os.setxattr, 's', 'user.a', b'1', follow_symlinks=False)
if os.getuid() == 0:
    os.setxattr('s', 'trusted.t', b'1', follow_symlinks=False)
    assert os.listxattr('s', follow_symlinks=False) == ['trusted.t']
fails(errno.ENOTSUP, os.setxattr, '../status', 'user.a', b'1')
print('kept')";
    assert_eq!(mount.python(code).trim(), "kept");
}

#[test]
fn holes_are_found_made_and_filled() {
    let (mount, _) = mounted();
    let code = "import os, errno, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode, start, length):
    result = libc.fallocate(fd, mode, ctypes.c_long(start), ctypes.c_long(length))
    return 0 if result == 0 else ctypes.get_errno()
KEEP, PUNCH, COLLAPSE, ZERO = 1, 2, 8, 16
M = 1 << 20
os.chdir('main/files'); fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'a' * 1000, 0); os.pwrite(fd, b'b' * 1000, M)
assert os.fstat(fd).st_size == M + 1000 and os.fstat(fd).st_blocks < 300, os.fstat(fd)
hole = os.lseek(fd, 0, os.SEEK_HOLE); assert 1000 <= hole < M, hole
assert os.lseek(fd, hole, os.SEEK_DATA) == M
assert os.lseek(fd, M, os.SEEK_HOLE) == M + 1000
try: os.lseek(fd, M + 1000, os.SEEK_DATA); assert False
except OSError as e: assert e.errno == errno.ENXIO
os.ftruncate(fd, 0); os.pwrite(fd, b'x' * M, 0)
before = os.fstat(fd).st_blocks
assert fallocate(fd, PUNCH | KEEP, M // 4, M // 2) == 0
assert os.pread(fd, M, 0) == b'x' * (M // 4) + bytes(M // 2) + b'x' * (M // 4)
assert os.fstat(fd).st_blocks <= before // 2 + 8, (before, os.fstat(fd))
assert fallocate(fd, ZERO, 10, 10) == 0 and os.pread(fd, 30, 0) == b'x' * 10 + bytes(10) + b'x' * 10
assert fallocate(fd, 0, 0, 2 * M) == 0 and os.fstat(fd).st_size == 2 * M
assert fallocate(fd, KEEP, 0, 3 * M) == 0 and os.fstat(fd).st_size == 2 * M and os.fstat(fd).st_blocks >= 3 * M // 512
assert fallocate(fd, COLLAPSE, 0, 4096) == errno.EOPNOTSUPP
assert fallocate(fd, 0, 0, 1 << 45) in (errno.ENOSPC, errno.EFBIG)
status = os.open('../status', os.O_RDONLY); size = os.fstat(status).st_size
assert os.lseek(status, 0, os.SEEK_DATA) == 0 and os.lseek(status, 0, os.SEEK_HOLE) == size
print('found')";
    assert_eq!(mount.python(code).trim(), "found");
}

#[test]
fn ranges_are_copied_within_the_store() {
    let (mount, at) = mounted();
    let code = "import os
os.chdir('main/files')
data = os.urandom(3 << 20); open('a', 'wb').write(data)
a, b = os.open('a', os.O_RDONLY), os.open('b', os.O_RDWR | os.O_CREAT)
done = 0
while (n := os.copy_file_range(a, b, (4 << 20), done, done)): done += n
assert done == len(data), done
assert os.copy_file_range(a, b, 1000, 5, 10) == 1000
assert open('b', 'rb').read() == data[:10] + data[5:1005] + data[1010:]
status = os.open('../README.md', os.O_RDONLY)
assert os.copy_file_range(status, b, 100, 0, 0) == 100
assert open('b', 'rb').read(100) == open('../README.md', 'rb').read(100)
print('copied')";
    assert_eq!(mount.python(code).trim(), "copied");
    mount.sh("mkdir main/branches/x; cp --reflink=auto main/files/a main/branches/x/files/c; cmp main/files/a main/branches/x/files/c");
    assert_eq!(fs::metadata(at("a")).unwrap().len(), 3 << 20);
}

#[test]
fn mappings_share_what_is_written_either_way() {
    let (mount, at) = mounted();
    let code = "import mmap, os
os.chdir('main/files'); open('f', 'wb').write(b'.' * 10000)
fd = os.open('f', os.O_RDWR)
shared = mmap.mmap(fd, 10000); private = mmap.mmap(fd, 10000, flags=mmap.MAP_PRIVATE)
shared[5000:5005] = b'hello'
assert os.pread(fd, 5, 5000) == b'hello'
os.pwrite(fd, b'back', 100); assert shared[100:104] == b'back'
private[0:3] = b'own'; assert os.pread(fd, 3, 0) == b'...'
shared.flush(); os.close(fd); shared.close()
print('mapped')";
    assert_eq!(mount.python(code).trim(), "mapped");
    let bytes = fs::read(at("f")).unwrap();
    assert_eq!((&bytes[5000..5005], &bytes[100..104], bytes.len()), (&b"hello"[..], &b"back"[..], 10_000));
    // What went through the mapping has left the kernel, or a fork would lack it.
    mount.sh("mkdir main/branches/x; cmp main/files/f main/branches/x/files/f");
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    let (mount, at) = mounted();
    let code = "import os, time
os.chdir('main/files'); open('f', 'w').close()
for ns in ((1, 2), (1_700_000_000_123_456_789, 5_000_000_001), (-1_750_000_000, -1), (2_200_000_000_000_000_007, 4_300_000_000_000_000_000)):
    os.utime('f', ns=ns); s = os.stat('f')
    assert (s.st_atime_ns, s.st_mtime_ns) == ns, (ns, s.st_atime_ns, s.st_mtime_ns)
now = time.time_ns(); assert abs(os.stat('f').st_ctime_ns - now) < 5e9
os.utime('f'); assert abs(os.stat('f').st_mtime_ns - now) < 5e9
os.utime('f', ns=(7, 7)); open('f', 'w').write('x'); s = os.stat('f')
assert s.st_mtime_ns > now and s.st_atime_ns == 7
d = os.stat('.').st_mtime_ns; open('g', 'w').close(); assert os.stat('.').st_mtime_ns > d
print('kept')";
    assert_eq!(mount.python(code).trim(), "kept");
    mount.sh(
        "cd main/files; touch -a -d 2020-01-01 f; touch -m -d 2021-01-01 f; [ $(stat -c %x f | cut -c1-4) = 2020 ]",
    );
    assert_eq!(fs::metadata(at("f")).unwrap().mtime(), 1_609_459_200);
}

#[test]
fn a_time_that_64_bits_of_nanoseconds_do_not_reach_is_refused() {
    let (mount, at) = mounted();
    let code = "import os, errno
os.chdir('main/files'); open('f', 'w').close(); os.utime('f', (5, 5))
for s in (9_223_372_037, -9_223_372_037):
    for times in ((s, 7), (7, s)):
        try: os.utime('f', times)
        except OSError as e: assert e.errno == errno.EINVAL, e
        else: raise AssertionError(s)
print(os.stat('f').st_mtime, os.stat('f').st_atime)
last = 9_223_372_036; os.utime('f', (last, -last)); s = os.stat('f')
assert (s.st_atime, s.st_mtime) == (last, -last), s";
    assert_eq!(mount.python(code).trim(), "5.0 5.0");
    assert!(at("f").is_file());
    let refusal = mount.refusal("main");
    assert_eq!((&refusal["code"], &refusal["path"]), (&"time_out_of_range".into(), &"files/f".into()));
}

#[test]
fn an_fsync_makes_no_entry_of_its_own() {
    let (mount, _) = mounted();
    let entries = |mount: &Mounted| read(mount.at("main/lineage")).lines().count();
    let before = entries(&mount);
    let code = "import os, time
fd = os.open('main/files/f', os.O_WRONLY | os.O_CREAT); start = time.time()
for n in range(400): os.pwrite(fd, b'x', n); os.fsync(fd)
print(int(time.time() - start))";
    let seconds: usize = mount.python(code).trim().parse().unwrap();
    // What gathers within a second is one entry.
    let made = entries(&mount) - before;
    assert!(made <= seconds + 3, "{made} entries for 400 fsyncs within {seconds} s");
}

#[test]
fn permission_bits_are_kept_and_setgid_is_inherited() {
    let (mount, at) = mounted();
    mount.sh("cd main/files; umask 027; echo x > f; mkdir d; chmod 2775 d; mkdir d/e; echo > d/f; chmod 6755 f");
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("d"), mode("d/e") & 0o2000, mode("d/f"), mode("f")), (0o2775, 0o2000, 0o640, 0o6755));
    fs::set_permissions(at("f"), Permissions::from_mode(0o400)).unwrap();
    assert_eq!(mode("f"), 0o400);
    fs::set_permissions(at(""), Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(mode(""), 0o1777);
}

#[test]
fn a_directory_can_be_read_while_it_changes() {
    let (_mount, at) = mounted();
    (0..3_000).for_each(|n| save(at(&format!("f{n:04}")), "").unwrap());
    let mut seen = Vec::new();
    for (n, entry) in fs::read_dir(at("")).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if n % 3 == 0 {
            fs::remove_file(at(&name)).unwrap();
            save(at(&format!("z{name}")), "").unwrap();
        }
        seen.push(name);
    }
    seen.retain(|name| name.starts_with('f'));
    let whole = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), whole), (3_000, 3_000));
    assert_eq!(names(at("")).len(), 3_000);
}

#[test]
fn df_and_du_tell_the_truth() {
    let (mount, at) = mounted();
    mount.sh("cd main/files; head -c 5000000 /dev/urandom > big; truncate -s 1G sparse; mkdir d; echo x > d/small");
    let kib: u64 = mount.sh("du -sk main/files | cut -f1").trim().parse().unwrap();
    assert!((4_880..5_200).contains(&kib), "{kib}");
    let store = mount.sh("df --output=size ../store | tail -1");
    assert_eq!(mount.sh("df --output=size main/files | tail -1"), store);
    assert_eq!(mount.sh("df --output=iused main/files | tail -1").trim(), "4");
    assert_eq!(fs::metadata(at("sparse")).unwrap().blocks(), 0);
}
