//! Names, special files and whiteouts.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use super::{Log, OTHER, USER, as_user, error};

/// Calls mknod(2), link(2), rename(2), unlink(2), rmdir(2) and symlink(2).
pub fn all(log: &mut Log) {
    nodes(log);
    names(log);
    whiteouts(log);
}

/// mknod(2) and the special files.
fn nodes(log: &mut Log) {
    log.result("mkdir nodes", fs::create_dir(log.path("nodes")));
    log.chmod("nodes", 0o777);
    let device = libc::makedev;
    let kinds = [
        ("file", libc::S_IFREG, 0),
        ("character", libc::S_IFCHR, device(1, 3)),
        ("large", libc::S_IFCHR, device(0xfff, 0xf_ffff)),
        ("block", libc::S_IFBLK, device(259, 65_537)),
        ("fifo", libc::S_IFIFO, 0),
        ("socket", libc::S_IFSOCK, 0),
        ("whiteout", libc::S_IFCHR, 0),
        ("directory", libc::S_IFDIR, 0),
        ("symlink", libc::S_IFLNK, 0),
        ("none", 0o030_000, 0),
    ];
    for (name, kind, number) in kinds {
        log.mknod(&format!("nodes/{name}"), kind | 0o640, number);
        log.mknod(&format!("nodes/{name}"), kind | 0o640, number);
    }
    let done = as_user(USER, || {
        for (name, kind, number) in kinds {
            log.mknod(&format!("nodes/user-{name}"), kind | 0o644, number);
        }
    });
    log.add("as a user", done.is_ok());
    log.result("open a socket", File::open(log.path("nodes/socket")));
    log.result("truncate a fifo", fs::OpenOptions::new().write(true).read(true).open(log.path("nodes/fifo")));
    // SAFETY: the call has no memory.
    unsafe { libc::umask(0o027) };
    log.mknod("nodes/masked", libc::S_IFREG | 0o777, 0);
    log.result("mkdir", fs::create_dir(log.path("nodes/masked-dir")));
    log.attributes("nodes/masked-dir");
    // SAFETY: the call has no memory.
    unsafe { libc::umask(0) };
}

/// The errors of calls on names.
fn names(log: &mut Log) {
    log.result("mkdir names", fs::create_dir(log.path("names")));
    for name in ["one", "two"] {
        log.result("create", fs::write(log.path(&format!("names/{name}")), name));
        log.result("mkdir", fs::create_dir(log.path(&format!("names/{name}-dir"))));
    }
    log.result("create", fs::write(log.path("names/two-dir/inner"), ""));
    let all = ["one", "two", "one-dir", "two-dir", "none", "one/below", "none/below", "two-dir/inner"];
    for from in all {
        let from_path = log.path(&format!("names/{from}"));
        log.result(&format!("rmdir {from}/."), fs::remove_dir(from_path.join(".")));
        log.result(&format!("mkdir {from}"), fs::create_dir(&from_path));
        for to in all {
            let to_path = log.path(&format!("names/{to}"));
            log.result(&format!("link {from} {to}"), fs::hard_link(&from_path, &to_path));
            if to == "none" {
                log.result("remove", fs::remove_file(&to_path).or_else(|_| fs::remove_dir(&to_path)));
            }
        }
    }
    for (from, to) in [
        ("one", "one-dir"),
        ("one-dir", "one"),
        ("one-dir", "two-dir"),
        ("two-dir", "two-dir/inner"),
        ("two-dir", "two-dir/below"),
        ("none", "one"),
        ("one", "one"),
        ("one", "none/below"),
        ("one", "one/below"),
        ("two-dir", "one-dir"),
    ] {
        let paths = [from, to].map(|name| log.path(&format!("names/{name}")));
        log.result(&format!("rename {from} {to}"), fs::rename(&paths[0], &paths[1]));
    }
    for name in ["one", "two", "one-dir", "two-dir", "none"] {
        let path = log.path(&format!("names/{name}"));
        log.result(&format!("unlink {name}"), fs::remove_file(&path));
        log.result(&format!("rmdir {name}"), fs::remove_dir(&path));
        log.attributes(&format!("names/{name}"));
    }
    for len in [255, 256] {
        let name = format!("names/{}", "n".repeat(len));
        log.result(&format!("a name of {len} bytes"), File::create(log.path(&name)));
        log.result("symlink", symlink("x", log.path(&format!("{name}x"))));
    }
    for len in [0, 1, 59, 60, 61, 1023, 1024, 4095, 4096] {
        let path = log.path(&format!("names/symlink-{len}"));
        log.result(&format!("a target of {len} bytes"), symlink("t".repeat(len), &path));
        let read = fs::read_link(&path)
            .map_or_else(|failed| error(&failed), |target| target.as_os_str().len().to_string());
        log.add("readlink", read);
    }
}

/// `RENAME_WHITEOUT` of renameat2(2), which overlayfs uses.
fn whiteouts(log: &mut Log) {
    const NO_REPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    const WHITEOUT: u32 = 4;
    log.result("mkdir left", fs::create_dir(log.path("left")));
    log.chmod("left", 0o2777);
    log.chown("left", 0, OTHER);
    log.result("mkdir", fs::create_dir(log.path("left/dir")));
    for name in ["one", "two", "three"] {
        log.result("create", fs::write(log.path(&format!("left/{name}")), name));
    }
    let moves = [
        ("one", "moved", WHITEOUT),
        ("two", "three", WHITEOUT | NO_REPLACE),
        ("two", "three", WHITEOUT),
        ("dir", "dir-moved", WHITEOUT),
        ("moved", "dir-moved/inner", WHITEOUT | NO_REPLACE),
        ("three", "dir-moved/inner", WHITEOUT | EXCHANGE),
        ("none", "other", WHITEOUT),
        ("three", "three", WHITEOUT),
        ("three", "other", 8),
    ];
    for (from, to, flags) in moves {
        let (from, to) = (format!("left/{from}"), format!("left/{to}"));
        let paths = (log.c_path(&from), log.c_path(&to));
        // SAFETY: the paths end with NUL.
        let result = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                paths.0.as_ptr(),
                libc::AT_FDCWD,
                paths.1.as_ptr(),
                flags,
            )
        };
        log.call(&format!("renameat2 {from} {to} {flags}"), result);
        log.attributes(&from);
        log.attributes(&to);
    }
    let mut listed: Vec<String> = fs::read_dir(log.path("left"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| {
            format!("{:?} {:?}", entry.file_name(), entry.file_type().map_err(|failed| failed.kind()))
        })
        .collect();
    listed.sort();
    log.add("listed", listed.join(", "));
    log.result("a whiteout is not opened", File::open(log.path("left/one")));
    log.result("a whiteout is removed", fs::remove_file(log.path("left/one")));
}
