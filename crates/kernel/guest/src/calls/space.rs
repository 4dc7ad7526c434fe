//! The space of files, extended attributes, and ioctl(2).

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};

use super::{Log, error};

/// Calls fallocate(2), lseek(2), setxattr(2) and ioctl(2).
pub fn all(log: &mut Log) {
    space(log);
    attributes(log);
}

/// fallocate(2), lseek(2) and FIEMAP.
fn space(log: &mut Log) {
    log.result("mkdir space", fs::create_dir(log.path("space")));
    let path = log.path("space/file");
    let Ok(file) = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path) else {
        return log.add("create", "failed");
    };
    log.result("write", file.write_all_at(&[1; 50_000], 0));
    let (keep, punch, collapse, zero, insert, unshare) = (1, 2, 8, 16, 32, 64);
    let block = fs::metadata(&path).map_or(4096, |stat| stat.blksize()) as i64;
    let calls = [
        (0, 0, 0),
        (0, -1, 10),
        (0, 0, i64::MAX),
        (keep, 60_000, 10_000),
        (0, 100_000, 10_000),
        (punch, 0, block),
        (punch | keep, 0, block),
        (punch | keep, 1 << 30, block),
        (collapse, 0, 1),
        (collapse, block, block),
        (collapse, block, 1 << 30),
        (collapse | keep, 0, block),
        (insert, 0, block),
        (insert, 1, block),
        (insert, 1 << 30, block),
        (insert | keep, 0, block),
        (zero, 5, 20_000),
        (zero | keep, 120_000, 20_000),
        (zero | punch, 0, block),
        (unshare, 0, block),
        (128, 0, block),
    ];
    for (mode, at, len) in calls {
        // SAFETY: the call has no memory.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, at, len) };
        log.call(&format!("fallocate {mode} {at} {len}"), result.into());
        log.attributes("space/file");
        log.add("extents", extents(&file));
    }
    log.result("sync", file.sync_all());
    for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
        for at in [-1, 0, block, 49_999, 60_000, 110_000, 1 << 40] {
            // SAFETY: the call has no memory.
            let found = unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
            let shown = if found < 0 { error(&io::Error::last_os_error()) } else { found.to_string() };
            log.add(&format!("lseek {at} {whence}"), shown);
        }
    }
    for (name, flags) in [("space", libc::O_RDONLY | libc::O_DIRECTORY), ("space/file", libc::O_RDONLY)] {
        let path = log.c_path(name);
        // SAFETY: the path ends with NUL, and the descriptor is used here only.
        let result = unsafe {
            let fd = libc::open(path.as_ptr(), flags);
            let result = libc::fallocate(fd, 0, 0, block);
            log.call(&format!("fallocate of {name}"), result.into());
            libc::close(fd)
        };
        log.call("close", result.into());
    }
}

/// The extents that FIEMAP reports up to the end of the file: start, length and flags. The positions of blocks may
/// differ. The module does not report blocks behind the end.
fn extents(file: &File) -> String {
    const ROOM: usize = 16;
    let mut request = [0_u64; 4 + ROOM * 7];
    request[1] = u64::MAX;
    // FIEMAP_FLAG_SYNC, and the room in the upper half of the next word but one.
    request[2] = 1;
    request[3] = ROOM as u64;
    // SAFETY: FS_IOC_FIEMAP writes at most as many extents as the request has room for.
    let got = unsafe { libc::ioctl(file.as_raw_fd(), 0xc020_660b, request.as_mut_ptr()) };
    if got != 0 {
        return error(&io::Error::last_os_error());
    }
    let mut joined: Vec<(u64, u64, u64)> = Vec::new();
    let end = file.metadata().map_or(0, |stat| stat.size().next_multiple_of(stat.blksize()));
    for extent in request[4..].chunks_exact(7).take((request[2] >> 32) as usize) {
        // Without FIEMAP_EXTENT_LAST and FIEMAP_EXTENT_MERGED; blocks that are not adjacent are separate extents.
        let (start, flags) = (extent[0], extent[5] & 0xffff_ffff & !0x1001);
        let len = extent[2].min(end.saturating_sub(start));
        match joined.last_mut() {
            Some(last) if last.0 + last.1 == start && last.2 == flags => last.1 += len,
            _ if len > 0 => joined.push((start, len, flags)),
            _ => {}
        }
    }
    format!("{joined:?}")
}

/// Extended attributes and ioctl(2).
fn attributes(log: &mut Log) {
    log.result("create", fs::write(log.path("attributes"), ""));
    log.result("symlink", symlink("attributes", log.path("attributes-link")));
    let long = format!("user.{}", "n".repeat(251));
    let names =
        ["user.a", "trusted.a", "security.a", "system.a", "other.a", "user.", "user", &long, &long[..255]];
    for name in names {
        for (len, flags) in [(0, 2), (10, 1), (10, 1), (20, 2), (5000, 0), (70_000, 0)] {
            for (path, target) in [("attributes", 0), ("attributes-link", 1)] {
                let shown = &name[..name.len().min(20)];
                let result = set(log, path, name, len, flags, target == 1);
                log.call(&format!("setxattr {path} {shown} {len} {flags}"), result.into());
            }
        }
    }
    let (path, name) = (log.c_path("attributes"), c"user.a");
    for room in [0, 5, 20, 6000] {
        let mut value = vec![0_u8; room];
        // SAFETY: the buffer has this length.
        let got =
            unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), room) } as i64;
        let shown = if got < 0 { error(&io::Error::last_os_error()) } else { got.to_string() };
        log.add(&format!("getxattr {room}"), shown);
    }
    for request in [0x5401, 0x8008_6601] {
        let mut room = [0_u64; 8];
        let file = File::open(&log.root);
        // SAFETY: unknown requests use no memory, and the others write at most 8 bytes.
        let got =
            file.map_or(-1, |file| unsafe { libc::ioctl(file.as_raw_fd(), request, room.as_mut_ptr()) });
        log.call(&format!("ioctl {request:x}"), got.into());
    }
}

fn set(log: &Log, path: &str, name: &str, len: usize, flags: i32, is_link: bool) -> i32 {
    let (path, name) = (log.c_path(path), CString::new(name).expect("a name without NUL"));
    let value = vec![7_u8; len];
    let call = if is_link { libc::lsetxattr } else { libc::setxattr };
    // SAFETY: the path and the name end with NUL, and the value has this length.
    unsafe { call(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), len, flags) }
}
