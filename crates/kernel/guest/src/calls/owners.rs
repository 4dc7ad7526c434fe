//! Permissions, owners and times.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::thread;

use anyhow::Result;

use super::{GROUP, Log, OTHER, USER, as_user};

/// Calls chmod(2), chown(2) and utimensat(2).
pub fn all(log: &mut Log) -> Result<()> {
    modes(log)?;
    owners(log)?;
    times(log);
    Ok(())
}

/// chmod(2), also of files of other users, and the bits that changes of the data remove.
fn modes(log: &mut Log) -> Result<()> {
    log.result("mkdir modes", fs::create_dir(log.path("modes")));
    log.result("create", fs::write(log.path("modes/file"), "data"));
    log.result("mkdir", fs::create_dir(log.path("modes/dir")));
    log.chmod("modes", 0o777);
    for name in ["modes/file", "modes/dir", "modes/none"] {
        for mode in [0, 0o777, 0o4755, 0o2755, 0o1777, 0o7777, 0o107_644] {
            log.chmod(name, mode);
        }
    }
    let before = fs::metadata(log.path("modes/file"))?;
    thread::sleep(std::time::Duration::from_millis(20));
    log.chmod("modes/file", 0o640);
    let after = fs::metadata(log.path("modes/file"))?;
    let ctime = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
    let mtime = |stat: &fs::Metadata| (stat.mtime(), stat.mtime_nsec());
    log.add("chmod changes ctime", ctime(&after) > ctime(&before));
    log.add("chmod changes mtime", mtime(&after) != mtime(&before));
    log.chown("modes/file", USER, OTHER);
    as_user(USER, || {
        log.chmod("modes/file", 0o6755);
        log.chmod("modes/dir", 0o700);
        log.result("write", OpenOptions::new().append(true).open(log.path("modes/file")).map(drop));
    })?;
    log.chmod("modes/file", 0o6777);
    as_user(USER + 1, || {
        log.chmod("modes/file", 0o777);
        let file = OpenOptions::new().append(true).open(log.path("modes/file"));
        log.result("append as another user", file.and_then(|mut file| file.write_all(b"more")));
        log.attributes("modes/file");
    })?;
    for (name, size) in [("shorter", 2), ("longer", 5000), ("too long", i64::MAX as u64)] {
        log.chmod("modes/file", 0o6777);
        as_user(USER + 1, || {
            let file = OpenOptions::new().write(true).open(log.path("modes/file"));
            log.result(name, file.and_then(|file| file.set_len(size)));
            log.attributes("modes/file");
        })?;
    }
    for flag in [rustix::fs::IFlags::IMMUTABLE, rustix::fs::IFlags::APPEND] {
        let file = File::open(log.path("modes/file"))?;
        let old = rustix::fs::ioctl_getflags(&file)?;
        rustix::fs::ioctl_setflags(&file, old | flag)?;
        log.chmod("modes/file", 0o600);
        log.chown("modes/file", 1, 1);
        log.utimes("modes/file", [(1, 0), (1, 0)]);
        log.utimes("modes/file", [(0, libc::UTIME_NOW), (0, libc::UTIME_NOW)]);
        log.result("remove", fs::remove_file(log.path("modes/file")));
        log.result("rename", fs::rename(log.path("modes/file"), log.path("modes/moved")));
        log.result("link", fs::hard_link(log.path("modes/file"), log.path("modes/again")));
        rustix::fs::ioctl_setflags(&file, old)?;
    }
    Ok(())
}

/// chown(2), as root and as other users, and the group of new files.
fn owners(log: &mut Log) -> Result<()> {
    const KEEP: u32 = u32::MAX;
    log.result("mkdir owners", fs::create_dir(log.path("owners")));
    log.chmod("owners", 0o777);
    for name in ["owners/file", "owners/script"] {
        log.result("create", fs::write(log.path(name), "data"));
    }
    log.result("mkdir", fs::create_dir(log.path("owners/dir")));
    log.result("symlink", symlink("file", log.path("owners/symlink")));
    for (uid, gid) in [(1, KEEP), (KEEP, 2), (70_000, 80_000), (u32::MAX - 1, u32::MAX - 1), (0, 0)] {
        for name in ["owners/file", "owners/dir", "owners/symlink"] {
            log.chown(name, uid, gid);
        }
    }
    for mode in [0o6755, 0o6745, 0o2644] {
        for name in ["owners/script", "owners/dir"] {
            log.chmod(name, mode);
            log.chown(name, KEEP, KEEP);
            log.chown(name, USER, OTHER);
        }
    }
    log.chmod("owners/script", 0o6755);
    as_user(USER, || {
        log.chown("owners/script", KEEP, GROUP);
        log.chown("owners/script", KEEP, 5);
        log.chown("owners/script", 5, KEEP);
        log.chown("owners/file", USER, KEEP);
        log.result("create as a user", fs::write(log.path("owners/new"), ""));
        log.attributes("owners/new");
    })?;
    log.chown("owners/dir", KEEP, OTHER);
    log.chmod("owners/dir", 0o2777);
    as_user(USER, || {
        log.result("mkdir in a setgid directory", fs::create_dir(log.path("owners/dir/sub")));
        log.attributes("owners/dir/sub");
        log.mknod("owners/dir/setgid", libc::S_IFREG | 0o2775, 0);
        log.mknod("owners/dir/plain", libc::S_IFREG | 0o2765, 0);
    })?;
    log.chmod("owners/dir", 0o1777);
    as_user(USER + 1, || {
        log.result("remove in a sticky directory", fs::remove_file(log.path("owners/dir/plain")));
    })
}

/// utimensat(2), also with times that the format cannot store.
fn times(log: &mut Log) {
    log.result("mkdir times", fs::create_dir(log.path("times")));
    log.chmod("times", 0o777);
    log.result("create", fs::write(log.path("times/file"), "data"));
    log.result("mkdir", fs::create_dir(log.path("times/dir")));
    log.result("symlink", symlink("file", log.path("times/symlink")));
    log.mknod("times/fifo", libc::S_IFIFO | 0o600, 0);
    let seconds = [
        (0, 0),
        (-1, 999_999_999),
        (1_700_000_000, 123_456_789),
        (i64::from(i32::MAX), 1),
        // At both limits of the format, Linux removes the nanoseconds.
        (i64::from(i32::MIN), 0),
        (i64::from(i32::MIN) - 1, 1),
        (1 << 32, 5),
        ((1 << 34) - (1 << 31) - 1, 0),
        ((1 << 34) - (1 << 31), 7),
        (1 << 40, 9),
        (-(1 << 40), 9),
        (5, 1_000_000_000),
    ];
    for time in seconds {
        log.utimes("times/file", [time, (77, 88)]);
        log.times("times/file");
        log.utimes("times/file", [(99, 11), time]);
        log.times("times/file");
    }
    for name in ["times/dir", "times/symlink", "times/fifo", "times/none"] {
        log.utimes(name, [(1_600_000_000, 1), (1_500_000_000, 2)]);
        log.times(name);
        log.utimes(name, [(1_400_000_000, 3), (0, libc::UTIME_OMIT)]);
        log.times(name);
        log.utimes(name, [(0, libc::UTIME_OMIT), (1_300_000_000, 4)]);
        log.times(name);
    }
    log.utimes("times/file", [(0, libc::UTIME_OMIT), (0, libc::UTIME_OMIT)]);
    log.times("times/file");
    log.chmod("times/file", 0o666);
    let done = as_user(USER, || {
        log.utimes("times/file", [(3, 0), (4, 0)]);
        log.times("times/file");
        log.utimes("times/file", [(0, libc::UTIME_NOW), (0, libc::UTIME_NOW)]);
        log.utimes("times/dir", [(0, libc::UTIME_NOW), (0, libc::UTIME_NOW)]);
    });
    log.add("as a user", done.is_ok());
}
