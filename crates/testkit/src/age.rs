//! Changes are written after their greatest age without a sync: tests for drivers without a journal, which share this
//! behaviour.
//!
//! The tests do not sleep. A device reports each flush, and a test waits for the flush after which the change is
//! present.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use obento_base::{DeviceNumber, FileKind, Mode, Name, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Driver, FileSystem, FormatOptions, Journalling, NewNode, OpenOptions};
use obento_env::{FixedRandom, NO_CLOCK};

/// Reports each flush.
struct FlushCounter {
    inner: Arc<MemDevice>,
    flushed: Sender<()>,
}

impl BlockDevice for FlushCounter {
    obento_base::forward! { self.inner;
        fn len(&self) -> u64;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn flush(&self) -> Result<()> {
        // The receiver does not exist at the end.
        let _ = self.flushed.send(());
        self.inner.flush()
    }
}

fn open(
    driver: &dyn Driver,
    device: Arc<dyn BlockDevice>,
    access: Access,
    age: Duration,
) -> Arc<dyn FileSystem> {
    let journalling = Journalling { commit_interval: age, ..Journalling::default() };
    let options = OpenOptions { access, journalling, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    driver.open(device, &options).unwrap()
}

fn empty(driver: &dyn Driver, fs_type: &str) -> Arc<MemDevice> {
    let device = MemDevice::new(vec![0; 4 << 20]);
    let options = FormatOptions::new(fs_type, Arc::new(NO_CLOCK), Arc::new(FixedRandom(7)));
    driver.format().expect("it makes volumes").format(&device, &options).unwrap();
    Arc::new(device)
}

fn create(fs: &dyn FileSystem, name: &Name) {
    let (kind, mode) = (FileKind::Regular, Mode::new(0o644));
    let node = NewNode { kind, mode, uid: 0, gid: 0, rdev: DeviceNumber::default(), target: b"" };
    fs.writable().unwrap().create(fs.root(), name, &node).unwrap();
}

/// A change is on the device after its greatest age, without a sync.
pub fn a_change_is_written_after_a_while(driver: &dyn Driver, fs_type: &str) {
    let memory = empty(driver, fs_type);
    let (flushed, flushes) = channel();
    let device = Arc::new(FlushCounter { inner: memory.clone(), flushed });
    let fs = open(driver, device, Access::ReadWrite, Duration::from_millis(1));
    for text in ["first", "second"] {
        let name = Name::new(text.as_bytes()).unwrap();
        create(&*fs, name);
        loop {
            flushes.recv_timeout(Duration::from_secs(60)).expect("it is written");
            let copy = Arc::new(MemDevice::new(memory.snapshot()));
            let seen = open(driver, copy, Access::ReadOnly, Duration::ZERO);
            if seen.lookup(seen.root(), name).is_ok() {
                break;
            }
        }
    }
    fs.writable().unwrap().close().unwrap();
}

/// Without a maximum age of changes, nothing is written before a sync.
pub fn without_an_age_all_waits(driver: &dyn Driver, fs_type: &str) {
    let memory = empty(driver, fs_type);
    let before = memory.snapshot();
    let fs = open(driver, memory.clone(), Access::ReadWrite, Duration::ZERO);
    let name = Name::new(b"waits").unwrap();
    create(&*fs, name);
    assert!(memory.snapshot() == before);
    fs.writable().unwrap().sync().unwrap();
    assert!(memory.snapshot() != before);
}
