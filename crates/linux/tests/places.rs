//! The bytes of files: where types say that they are on the disk, there they are, and reading finds them in whatever steps.

use std::sync::Arc;

use obento_base::{DeviceNumber, FileKind, Mode, Name};
use obento_block::MemDevice;
use obento_driver::{Access, Driver as _, FileSystem, LayoutLock, NewNode, OpenOptions, Span};
use obento_env::SystemClock;
use obento_linux::LinuxDriver;
use obento_testkit::oracle::{Oracle, call, require};

/// Lengths of files, and that of the parts whose first 64 KiB are holes.
const FILES: [(&str, u64, Option<u64>); 3] =
    [("whole", 9 << 20, None), ("holes", 5 << 20, Some(192 << 10)), ("odd", (2 << 20) + 777, None)];

/// What is written at once, and left out at once.
const STEP: u64 = 64 << 10;

/// What a file holds from `offset` on: each eight bytes tell where they are.
fn bytes_at(offset: u64, len: u64, every: Option<u64>) -> Vec<u8> {
    let byte =
        |at: u64| if is_hole(at, every) { 0 } else { (at / 8 * 31 + 1).to_le_bytes()[(at % 8) as usize] };
    (offset..offset + len).map(byte).collect()
}

fn is_hole(offset: u64, every: Option<u64>) -> bool {
    every.is_some_and(|every| offset % every < STEP)
}

fn open(kind: &str, device: Arc<MemDevice>, access: Access) -> Arc<dyn FileSystem> {
    let driver = LinuxDriver::all().find(|driver| driver.names().contains(&kind)).unwrap();
    let options = OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) };
    driver.open(device, &options).unwrap()
}

fn fill(fs: &dyn FileSystem) {
    let (writable, lock, rdev) = (fs.writable().unwrap(), LayoutLock::new(), DeviceNumber::default());
    let mode = Mode::new(0o644);
    let node = NewNode { kind: FileKind::Regular, mode, uid: 0, gid: 0, rdev, target: b"" };
    for (name, len, every) in FILES {
        let ino = writable.create(fs.root(), Name::new(name.as_bytes()).unwrap(), &node).unwrap().ino;
        for at in (0..len).step_by(STEP as usize).filter(|at| !is_hole(*at, every)) {
            let bytes = bytes_at(at, STEP.min(len - at), every);
            assert_eq!(writable.write(&lock.shared(), ino, at, &bytes).unwrap(), bytes.len());
        }
    }
    writable.sync().unwrap();
}

/// A volume with the files, open for reading.
fn filled(kind: &str, megabytes: u64) -> Arc<dyn FileSystem> {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(megabytes << 20).unwrap();
    call(&format!("mkfs.{kind}"), ["-q".as_ref(), image.path().as_os_str()]).unwrap();
    let device = Arc::new(MemDevice::new(std::fs::read(image.path()).unwrap()));
    // The log is replayed before anything is read, since nobody closed the volume.
    fill(&*open(kind, device.clone(), Access::ReadWrite));
    open(kind, device, Access::ReadOnly)
}

#[test]
fn what_is_mapped_is_what_was_written() {
    if !require(&["linux.uml", "mkfs.xfs", "mkfs.f2fs"].map(Oracle::Program)) {
        return;
    }
    for (kind, megabytes) in [("xfs", 310), ("f2fs", 128)] {
        let fs = filled(kind, megabytes);
        for (name, len, every) in FILES {
            let ino = fs.lookup(fs.root(), Name::new(name.as_bytes()).unwrap()).unwrap();
            let (lock, mut at, mut mapped) = (LayoutLock::new(), 0, 0);
            while at < len {
                let extent = fs.map(&lock.shared(), ino, at..len).unwrap();
                let mut found = vec![0; extent.len as usize];
                match extent.span {
                    Span::Mapped(place) => {
                        fs.device().unwrap().read_at(place, &mut found).unwrap();
                        mapped += extent.len;
                    }
                    Span::Hole => {}
                    other => panic!("{kind}: {name} at {at} is {other:?}"),
                }
                assert!(found == bytes_at(at, extent.len, every), "{kind}: {name}, {extent:?} at {at}");
                at += extent.len;
            }
            assert!(mapped > len / 2, "{kind}: {mapped} bytes of {name} are mapped");
        }
    }
}

#[test]
fn a_file_is_the_same_in_whatever_steps_it_is_read_and_beside_what_else() {
    if !require(&["linux.uml", "mkfs.f2fs"].map(Oracle::Program)) {
        return;
    }
    let (fs, lock) = (filled("f2fs", 128), LayoutLock::new());
    let root = fs.root();
    let files = FILES.map(|(name, len, every)| {
        (fs.lookup(root, Name::new(name.as_bytes()).unwrap()).unwrap(), len, every)
    });
    let read = |(ino, len, every): (_, u64, _), at: u64, step: usize| {
        let mut found = vec![0; step];
        let got = fs.read(&lock.shared(), ino, at, &mut found).unwrap();
        assert_eq!(got as u64, (step as u64).min(len.saturating_sub(at)), "short only at the end");
        assert!(found[..got] == bytes_at(at, got as u64, every), "{step} bytes at {at} of {len}");
    };
    for step in [60_001, 256 << 10, 5 << 20] {
        // From front to back, and a step past the end.
        for file in files {
            (0..file.1 + step as u64).step_by(step).for_each(|at| read(file, at, step));
        }
        // Two at once, and a question between: what the guest read on is of no use then.
        for at in (0..files[0].1).step_by(step) {
            read(files[0], at, step);
            read(files[1], at, step);
            fs.statfs().unwrap();
        }
        // Back to front, and the same bytes again.
        for at in (0..files[2].1).step_by(step).collect::<Vec<_>>().into_iter().rev() {
            read(files[2], at, step);
            read(files[2], at, step);
        }
    }
}
