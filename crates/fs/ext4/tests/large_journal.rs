//! A journal of the maximum size of `mke2fs`: written past its end, cut, and replayed by all implementations with the
//! same result.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::volumes::{e2fsck_file, open};
use obento_base::{DeviceNumber, FileKind, Mode, Name};
use obento_driver::{DataMode, NewNode};
use obento_env::SystemClock;
use obento_host::FileDevice;
use obento_testkit::oracle::{LoopMount, Oracle, call, program, require};
use obento_testkit::scratch::memory_folder;
use obento_vfs::{Caller, Vfs};

/// Size of the file that is written repeatedly, and of each write.
const FILE: usize = 64 << 20;
const CHUNK: usize = 1 << 20;
/// Number of times that it is written: one and a half journals.
const VERSIONS: u8 = 24;

fn open_vfs(image: &Path) -> Vfs {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    Vfs::new(open(device, Arc::new(SystemClock), DataMode::Journal).unwrap())
}

/// Copies the disk while the volume is open, as a power cut would leave it.
fn cut(image: &Path, name: &str) -> PathBuf {
    let copy = image.with_extension(name);
    call("cp", ["--sparse=always".as_ref(), image.as_os_str(), copy.as_os_str()]).unwrap();
    copy
}

#[test]
fn a_journal_of_a_gibibyte_is_written_past_its_end_and_replayed() {
    let tools = ["mke2fs", "e2fsck", "dumpe2fs", "cp"].map(Oracle::Program);
    if !require(&[&tools[..], &[Oracle::LoopMount]].concat()) {
        return;
    }
    // One and a half GiB pass through the journal.
    let folder = tempfile::tempdir_in(memory_folder()).unwrap();
    let image = folder.path().join("image");
    call("mke2fs", ["-q", "-F", "-t", "ext4", "-J", "size=1024", image.to_str().unwrap(), "4G"]).unwrap();

    let vfs = open_vfs(&image);
    let (me, name) = (Caller::Owner, Name::new(b"file").unwrap());
    let new = NewNode {
        kind: FileKind::Regular,
        mode: Mode::new(0o644),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: b"",
    };
    let file = vfs.create(&me, &vfs.root(), name, &new).unwrap();
    for version in 1..=VERSIONS {
        for at in (0..FILE).step_by(CHUNK) {
            assert_eq!(file.write_at(at as u64, &vec![version; CHUNK]), Ok(CHUNK));
        }
        vfs.sync().unwrap();
    }
    let is_last = |bytes: &[u8]| bytes.len() == FILE && bytes.iter().all(|&byte| byte == VERSIONS);

    let copy = cut(&image, "kernel");
    let header = program("dumpe2fs").arg("-h").arg(&copy).output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&header).contains("needs_recovery"));
    let mount = LoopMount::new(&copy, "").unwrap();
    assert!(is_last(&fs::read(mount.path().join("file")).unwrap()), "the kernel reads other data");
    mount.unmount().unwrap();
    assert_eq!(e2fsck_file(&copy), Ok(()));
    fs::remove_file(copy).unwrap();

    let copy = cut(&image, "e2fsck");
    call("e2fsck", ["-p".as_ref(), copy.as_os_str()]).unwrap();
    assert_eq!(e2fsck_file(&copy), Ok(()));
    let mount = LoopMount::new(&copy, "ro").unwrap();
    assert!(is_last(&fs::read(mount.path().join("file")).unwrap()), "e2fsck left other data");
    mount.unmount().unwrap();
    fs::remove_file(copy).unwrap();

    let copy = cut(&image, "obento");
    let again = open_vfs(&copy);
    let mut bytes = vec![0; FILE];
    let found = again.root().lookup(name).unwrap();
    assert_eq!(found.read_at(0, &mut bytes), Ok(FILE));
    assert!(is_last(&bytes), "obento reads other data");
    drop(found);
    again.close().unwrap();
    assert_eq!(e2fsck_file(&copy), Ok(()));

    drop(file);
    vfs.close().unwrap();
    assert_eq!(e2fsck_file(&image), Ok(()));
}
