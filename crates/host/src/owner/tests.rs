//! A FUSE mount whose server claims that root owns each file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::*;
use crate::compressed::ReservedFile;
use crate::{HostDir, HostError};

const MOUNTS: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
    36 22 0:45 / /mnt/a\\040b rw,nosuid shared:1 - fuse.x user_id=0\\040- rw,user_id=1000,group_id=7\n\
    361 22 0:46 / /mnt/c rw - fuseblk /dev/vdb rw,user_id=0,group_id=0\n\
    37 22 0:47 / /mnt/d rw shared:2 - virtiofs tag rw\n";

#[test]
fn the_user_of_a_mount_is_found_by_the_number_of_the_mount() {
    let user = |mount: &str| user_of_mount(MOUNTS, mount.as_bytes());
    assert_eq!([user("36"), user("361"), user("22"), user("3")], [Some(1000), Some(0), None, None]);
    assert_eq!(user("37"), Some(0), "the host of the virtual machine");
}

/// Removes the mount at the end of a test.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Mounts a file system of the user `user` at `path`. Returns `None` if this process may not mount.
fn mount(path: &Path, user: u32) -> Option<Mounted<'_>> {
    let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
    let text = |text: String| std::ffi::CString::new(text).unwrap();
    let target = text(path.to_str().unwrap().into());
    let options =
        text(format!("fd={},rootmode=40000,user_id={user},group_id=0,allow_other", device.as_raw_fd()));
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: all strings end with a zero.
    let result = unsafe {
        libc::mount(c"test".as_ptr(), target.as_ptr(), c"fuse".as_ptr(), flags, options.as_ptr().cast())
    };
    (result == 0).then(|| {
        std::thread::spawn(move || serve(device));
        Mounted(path)
    })
}

/// Answers requests until the end of the mount: a directory of root with a link of root to `/`.
/// Source: include/uapi/linux/fuse.h, protocol 7.31.
fn serve(mut device: File) {
    const ROOT: u64 = 1;
    let attr = |node: u64| {
        let (mode, len) = if node == ROOT { (0o40755_u32, 0_u64) } else { (0o120_777, 1) };
        let mut attr = [node, len, 0, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0_u32];
        attr.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        attr
    };
    let mut request = vec![0; 1 << 18];
    while let Ok(len) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let node = u64::from_ne_bytes(request[16..24].try_into().unwrap());
        let (mut body, mut error) = (Vec::new(), 0_i32);
        match word(4) {
            // FORGET and BATCH_FORGET have no reply.
            2 | 42 => continue,
            // LOOKUP
            1 if request[40..len].starts_with(b"link\0") => {
                body.extend([2, 0, 0, 0, 0_u64].iter().flat_map(|word| word.to_ne_bytes()));
                body.extend(attr(2));
            }
            1 => error = -libc::ENOENT,
            // GETATTR
            3 => {
                body.extend([0; 16]);
                body.extend(attr(node));
            }
            // READLINK
            5 => body.extend(b"/"),
            // STATFS
            17 => body.extend([0; 80]),
            // INIT
            26 => {
                let words = [7_u32, 31, 1 << 16, 0, 0, 1 << 16];
                body.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
                body.resize(64, 0);
            }
            // OPENDIR, RELEASEDIR
            27 | 29 => body.extend([0; 16]),
            _ => error = -libc::ENOSYS,
        }
        let mut reply = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend_from_slice(&request[8..16]);
        reply.extend(body);
        if device.write_all(&reply).is_err() {
            return;
        }
    }
}

#[test]
fn the_owners_in_a_fuse_mount_of_another_user_are_not_trusted() {
    if !geteuid().is_root() {
        return println!("skipped: only root can mount a FUSE file system for another user");
    }
    for (user, is_trusted) in [(12345, false), (0, true)] {
        let folder = tempfile::tempdir().unwrap();
        let Some(_mounted) = mount(folder.path(), user) else {
            return println!("skipped: this process may not mount");
        };
        let opened = HostDir::open_trusted(folder.path());
        assert_eq!(opened.is_ok(), is_trusted, "{user}: {opened:?}");
        // The server creates no files.
        let reserved = ReservedFile::within(folder.path()).unwrap_err();
        assert_eq!(matches!(reserved, HostError::Untrusted { .. }), !is_trusted, "{user}: {reserved}");
        let link = folder.path().join("link");
        match HostDir::open(&link) {
            Ok(_) => assert!(is_trusted, "the link of user {user} was followed"),
            Err(error) => {
                assert!(!is_trusted && matches!(error, HostError::ForeignLink { .. }), "{user}: {error}");
            }
        }
    }
}
