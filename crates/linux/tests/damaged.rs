//! Volumes that are damaged at random, opened and walked: each ends within bounds, whatever the kernel makes of it.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use obento_base::{DeviceNumber, FileKind, Mode, Name};
use obento_block::{BlockDevice, MemDevice, Overlay};
use obento_driver::{Access, Driver, LayoutLock, NewNode, OpenOptions};
use obento_env::SystemClock;
use obento_linux::LinuxDriver;
use obento_testkit::mutants::{Random, mutate};
use obento_testkit::oracle::{Oracle, call, require};
use obento_testkit::walk::open_and_walk;
use tempfile::NamedTempFile;

/// How long one may take: the watchdog's minute, the start, and as much for a machine that is busy.
const BOUND: Duration = Duration::from_secs(120);
/// How many there are of each type.
const MUTANTS: u64 = 67;
const SECTOR: usize = 512;

struct Kind {
    name: &'static str,
    megabytes: u64,
    maker: (&'static str, &'static str),
}

const KINDS: [Kind; 3] = [
    Kind { name: "xfs", megabytes: 310, maker: ("mkfs.xfs", "-q") },
    Kind { name: "f2fs", megabytes: 64, maker: ("mkfs.f2fs", "-q") },
    Kind { name: "minix", megabytes: 16, maker: ("mkfs.minix", "-3") },
];

fn node(kind: FileKind) -> NewNode<'static> {
    let rdev = DeviceNumber::default();
    NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev, target: b"" }
}

impl Kind {
    fn driver(&self) -> LinuxDriver {
        LinuxDriver::all().find(|driver| driver.names().contains(&self.name)).unwrap()
    }

    /// A volume with folders and files in it.
    fn filled(&self) -> MemDevice {
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(self.megabytes << 20).unwrap();
        call(self.maker.0, [self.maker.1.as_ref(), image.path().as_os_str()]).unwrap();
        let device = Arc::new(MemDevice::new(fs::read(image.path()).unwrap()));
        let options = OpenOptions::new(Arc::new(SystemClock));
        let options = OpenOptions { access: Access::ReadWrite, ..options };
        let fs = self.driver().open(device.clone(), &options).unwrap();
        let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
        for folder in 0..3 {
            let name = format!("d{folder}");
            let name = Name::new(name.as_bytes()).unwrap();
            let made = writable.create(fs.root(), name, &node(FileKind::Directory)).unwrap();
            for file in 0..40 {
                let name = format!("file{file}");
                let name = Name::new(name.as_bytes()).unwrap();
                let ino = writable.create(made.ino, name, &node(FileKind::Regular)).unwrap().ino;
                writable.write(&lock.shared(), ino, 0, &vec![b'x'; file * 300]).unwrap();
            }
        }
        writable.close().unwrap();
        drop(fs);
        let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        MemDevice::read_only(bytes)
    }

    /// Opens and walks damaged copies. Answers how many there were.
    fn survives(&self) -> u64 {
        let device = Arc::new(self.filled());
        let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        let is_used = |at: &usize| bytes[*at..*at + SECTOR] != [0; SECTOR];
        let used: Vec<usize> = (0..bytes.len()).step_by(SECTOR).filter(is_used).collect();
        let sectors: Vec<u8> = used.iter().flat_map(|at| &bytes[*at..*at + SECTOR]).copied().collect();
        for seed in 0..MUTANTS {
            let mut damaged = sectors.clone();
            mutate(&mut damaged, &mut Random::new(seed));
            let overlay = Overlay::new(device.clone());
            let both = damaged.chunks(SECTOR).zip(sectors.chunks(SECTOR));
            for (at, (new, _)) in used.iter().zip(both).filter(|(_, (new, old))| new != old) {
                overlay.write_at(*at as u64, new).unwrap();
            }
            let start = Instant::now();
            open_and_walk(&self.driver(), Arc::new(overlay));
            assert!(start.elapsed() < BOUND, "{} {seed}: {:?}", self.name, start.elapsed());
        }
        MUTANTS
    }
}

#[test]
#[ignore = "a campaign of minutes"]
fn two_hundred_damaged_volumes_are_answered_within_bounds() {
    let programs = ["linux.uml", "mkfs.xfs", "mkfs.f2fs", "mkfs.minix"].map(Oracle::Program);
    if require(&programs) {
        assert_eq!(KINDS.iter().map(Kind::survives).sum::<u64>(), 3 * MUTANTS);
    }
}
