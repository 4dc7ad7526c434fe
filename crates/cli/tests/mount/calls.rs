//! System calls beyond names and bytes: file handles, birth times, ioctl(2), and programs with set-user-ID.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// The start of every script: `libc`, and `fails(number, call)`.
const PRELUDE: &str = "import ctypes, errno, fcntl, os, struct, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def fails(number, call):\n\
    \x20   try: call()\n\
    \x20   except OSError as error: assert error.errno == number, error\n\
    \x20   else: assert False, 'no error'\n\
    def check(result):\n\
    \x20   if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n\
    \x20   return result\n";

/// Runs a script of Python whose first argument is `path`. Panics if an assertion in it fails.
#[track_caller]
fn python(script: &str, path: &Path) {
    run(program("python3").args(["-c", &format!("{PRELUDE}{script}")]).arg(path)).unwrap();
}

/// Runs a test on a mount of obento, and on a mount by the kernel.
fn each_side(test: impl Fn(&Path)) {
    let Some(disk) = mounted("rw") else { return };
    test(&disk.at());
    disk.umount();
    let Some(disk) = Some(()).filter(|()| require(&[Oracle::LoopMount])).and_then(|()| Disk::new(&[])) else {
        return;
    };
    let kernel = LoopMount::new(&disk.image(), "").unwrap();
    test(kernel.path());
    kernel.unmount().unwrap();
}

fn mounted(options: &str) -> Option<Disk> {
    let disk = Disk::mounted(options)?;
    if require(&[Oracle::Program("python3"), Oracle::Root]) {
        return Some(disk);
    }
    disk.umount();
    None
}

#[test]
fn a_file_handle_opens_its_file_after_the_caches_are_dropped_and_no_other_file() {
    each_side(|at| {
        fs::create_dir_all(at.join("a/b")).unwrap();
        fs::write(at.join("a/b/f"), "contents").unwrap();
        python(HANDLES, at);
    });
}

/// Keeps handles of directories and a file while their inodes leave the cache, and while the number of the file is used
/// again.
const HANDLES: &str = "root = os.open(sys.argv[1], os.O_RDONLY)\n\
        def handle(path):\n\
        \x20   found, mount = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128), 136), ctypes.c_int()\n\
        \x20   check(libc.name_to_handle_at(-100, (sys.argv[1] + path).encode(), found, ctypes.byref(mount), 0))\n\
        \x20   return found\n\
        def opened(found): return check(libc.open_by_handle_at(root, found, os.O_RDONLY))\n\
        def drop():\n\
        \x20   os.sync()\n\
        \x20   open('/proc/sys/vm/drop_caches', 'w').write('2')\n\
        handles = {path: handle(path) for path in ['/a', '/a/b', '/a/b/f']}\n\
        inode = os.stat(sys.argv[1] + '/a/b/f').st_ino\n\
        drop()\n\
        file = opened(handles['/a/b/f'])\n\
        assert os.read(file, 100) == b'contents'\n\
        os.close(file)\n\
        assert os.listdir(opened(handles['/a'])) == ['b'] and os.listdir(opened(handles['/a/b'])) == ['f']\n\
        os.unlink(sys.argv[1] + '/a/b/f')\n\
        drop()\n\
        fails(errno.ESTALE, lambda: opened(handles['/a/b/f']))\n\
        names = ['%s/a/b/new%d' % (sys.argv[1], n) for n in range(50)]\n\
        for name in names: open(name, 'w').write('another')\n\
        assert inode in [os.stat(name).st_ino for name in names], 'the number is used again'\n\
        fails(errno.ESTALE, lambda: opened(handles['/a/b/f']))\n";

#[test]
fn a_file_has_the_time_of_its_birth_whatever_changes_it() {
    for options in ["rw", "no_writeback_cache"] {
        let Some(disk) = mounted(options) else { return };
        let birth = |name: &str| {
            let output = run(program("stat").args(["-c", "%W %w"]).arg(disk.path(name))).unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        fs::write(disk.path("f"), "x").unwrap();
        fs::create_dir(disk.path("d")).unwrap();
        let born = [birth("f"), birth("d")];
        assert!(born.iter().all(|time| !time.starts_with("0 ") && !time.starts_with('?')), "{born:?}");
        run(program("touch").args(["-d", "2001-02-03"]).arg(disk.path("f"))).unwrap();
        fs::set_permissions(disk.path("f"), Permissions::from_mode(0o600)).unwrap();
        assert_eq!([birth("f"), birth("d")], born);
        disk.umount();
        disk.mount(options);
        assert_eq!([birth("f"), birth("d")], born);
        disk.umount();
    }
}

#[test]
fn free_space_is_discarded_and_the_label_read_and_set_by_ioctl() {
    let Some(disk) = Disk::new(&["-L", "a label"]) else { return };
    if !require(&[Oracle::Program("python3"), Oracle::Root]) {
        return;
    }
    disk.mount("allow_other");
    let script = "root = os.open(sys.argv[1], os.O_RDONLY)\n\
        label = bytearray(256)\n\
        fcntl.ioctl(root, 0x81009431, label)\n\
        assert label.rstrip(bytes(1)) == b'a label', label\n\
        def trim(start, length):\n\
        \x20   found = bytearray(struct.pack('QQQ', start, length, 0))\n\
        \x20   fcntl.ioctl(root, 0xc0185879, found)\n\
        \x20   return struct.unpack('QQQ', found)[1]\n\
        assert 100 << 20 < trim(0, 2**64 - 1) < 256 << 20\n\
        fails(errno.EOPNOTSUPP, lambda: trim(0, 4096))\n\
        fails(errno.EOPNOTSUPP, lambda: trim(4096, 2**63))\n\
        def set_label(text):\n\
        \x20   fcntl.ioctl(root, 0x41009432, text.ljust(256, bytes(1)))\n\
        fails(errno.EINVAL, lambda: set_label(b'x' * 17))\n\
        set_label(b'')\n\
        set_label(b'sixteen bytes!!!')\n\
        fcntl.ioctl(root, 0x81009431, label)\n\
        assert label.rstrip(bytes(1)) == b'sixteen bytes!!!', label\n\
        os.setresuid(1007, 1007, 1007)\n\
        fails(errno.EPERM, lambda: set_label(b'other'))\n\
        fails(errno.EPERM, lambda: trim(0, 2**64 - 1))\n";
    python(script, &disk.at());
    disk.umount();
    disk.mount("allow_other");
    let script = "root = os.open(sys.argv[1], os.O_RDONLY)\n\
        label = bytearray(256)\n\
        fcntl.ioctl(root, 0x81009431, label)\n\
        assert label.rstrip(bytes(1)) == b'sixteen bytes!!!', label\n";
    python(script, &disk.at());
    disk.umount();
}

#[test]
fn flags_are_stored_or_refused_and_protection_ends_by_either_ioctl() {
    if require(&[Oracle::Program("chattr")]) {
        each_side(|at| flags_are_stored_or_refused(&at.join("f")));
    }
}

fn flags_are_stored_or_refused(path: &Path) {
    fs::write(path, "x").unwrap();
    let flags = || {
        let output = run(program("lsattr").arg(path)).unwrap();
        text(&output.stdout).split(' ').next().unwrap().to_owned()
    };
    run(program("chattr").arg("+xd").arg(path)).unwrap();
    assert!(flags().contains('x') && flags().contains('d'), "{}", flags());
    let before = flags();
    // Btrfs has this flag, ext4 has not.
    let refused = program("chattr").arg("+C").arg(path).output().unwrap();
    assert!(text(&refused.stderr).contains("not supported"), "{refused:?}");
    assert_eq!(flags(), before);
    let script = "f = os.open(sys.argv[1], os.O_RDONLY)\n\
        found = bytearray(28)\n\
        for bit in [0x8, 0x10]:\n\
        \x20   fcntl.ioctl(f, 0x801c581f, found)\n\
        \x20   fcntl.ioctl(f, 0x401c5820, struct.pack('I', bit) + bytes(24))\n\
        \x20   fails(errno.EPERM, lambda: os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC) and os.write(1, b''))\n\
        \x20   fcntl.ioctl(f, 0x401c5820, bytes(28))\n\
        \x20   os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC))\n";
    python(script, path);
}

#[test]
fn a_program_that_another_user_has_written_to_does_not_run_as_its_owner() {
    for options in ["allow_other", "allow_other,no_writeback_cache"] {
        let Some(disk) = mounted(options) else { return };
        if !require(&[Oracle::Program("setpriv")]) {
            return;
        }
        fs::set_permissions(disk.folder(), Permissions::from_mode(0o755)).unwrap();
        for change in
            ["echo x >> z", "fallocate -l 200K z", "dd if=/dev/zero of=z bs=4k count=1 seek=40 oflag=direct"]
        {
            let path = disk.path("z");
            let _ = fs::remove_file(&path);
            fs::copy("/usr/bin/id", &path).unwrap();
            std::os::unix::fs::chown(&path, Some(1007), Some(1007)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o4777)).unwrap();
            let mut user = program("setpriv");
            user.args(["--reuid=1008", "--regid=1008", "--clear-groups", "sh", "-c"]);
            let script = format!("./z -u; ({change}) 2>/dev/null; ./z -u");
            let output = run(user.arg(script).current_dir(disk.at())).unwrap();
            // The mount is nosuid for a user, and not for root: the first line shows that the bit counted.
            assert_eq!(text(&output.stdout), "1007\n1008\n", "{options}, {change}");
        }
        disk.umount();
    }
}

#[test]
fn an_ntfs_volume_is_mounted_for_reading_without_an_option() {
    if !require(&[Oracle::Program("mkntfs"), Oracle::Program("ntfscp"), Oracle::Fuse]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, at) = (folder.path().join("disk.img"), folder.path().join("mnt"));
    fs::create_dir(&at).unwrap();
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run(program("mkntfs").args(["-q", "-F", "-f"]).arg(&image)).unwrap();
    let source = folder.path().join("source");
    fs::write(&source, (0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    run(program("ntfscp").arg("-q").arg(&image).arg(&source).arg("big")).unwrap();
    let obento = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(folder.path()).args(args).output().unwrap()
    };
    let mounted = obento(&["mount", "disk.img", "mnt"]);
    assert!(mounted.status.success(), "{mounted:?}");
    let read = fs::read(at.join("big"));
    let refused = fs::write(at.join("new"), "x").map_err(|error| error.kind());
    let unmounted = obento(&["umount", "mnt"]);
    assert!(unmounted.status.success(), "{unmounted:?}");
    assert!(read.unwrap() == fs::read(&source).unwrap());
    assert_eq!(refused, Err(std::io::ErrorKind::ReadOnlyFilesystem));
    let written = obento(&["touch", "disk.img:/new"]);
    assert!(text(&written.stderr).contains("obento reads ntfs, but does not write it"), "{written:?}");
}

#[test]
fn reads_after_an_asynchronous_direct_write_return_its_data() {
    each_side(|at| {
        fs::write(at.join("f"), vec![0; 4096]).unwrap();
        python(DIRECT, &at.join("f"));
    });
}

/// Writes asynchronously to a file, and reads each time. One thread reads through the cache of the kernel all the time.
const DIRECT: &str = "import mmap, threading\n\
        f = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)\n\
        cached = os.open(sys.argv[1], os.O_RDONLY)\n\
        buffer = mmap.mmap(-1, 4096)\n\
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))\n\
        context = ctypes.c_ulong(0)\n\
        check(libc.syscall(206, 1, ctypes.byref(context)))\n\
        ends = False\n\
        def read():\n\
        \x20   while not ends: os.pread(cached, 4096, 0)\n\
        reader = threading.Thread(target=read)\n\
        reader.start()\n\
        events = ctypes.create_string_buffer(32)\n\
        stale = 0\n\
        for number in range(3000):\n\
        \x20   buffer[:] = struct.pack('<I', number) * 1024\n\
        \x20   block = ctypes.create_string_buffer(struct.pack('QIIHhIQQqQII', 0, 0, 0, 1, 0, f, address, 4096, 0, 0, 0, 0), 64)\n\
        \x20   check(libc.syscall(209, context, 1, (ctypes.c_void_p * 1)(ctypes.addressof(block))))\n\
        \x20   assert check(libc.syscall(208, context, 1, 1, events, None)) == 1\n\
        \x20   stale += os.pread(cached, 4, 0) != struct.pack('<I', number)\n\
        ends = True\n\
        reader.join()\n\
        assert stale == 0, stale\n";
