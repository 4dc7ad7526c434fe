//! The calls of a driver that a write request makes, and the data that an open sends, with a socket in place of
//! `/dev/fuse`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread::JoinHandle;

use obento_base::{DeviceNumber, FileKind, Mode, Name, Timestamp};
use obento_block::MemDevice;
use obento_driver::{Access, Driver, FileSystem, FormatOptions, NewNode, OpenOptions};
use obento_env::{FixedClock, FixedRandom};
use obento_exfat::ExFatDriver;
use obento_ext4::Ext4Driver;
use obento_fat::FatDriver;
use obento_fuse::{Pauser, Processes, RingChoice, Server, ServerOptions, SessionOptions, open_session};
use obento_prov::{LogOptions, Recorded, WriteSource};
use obento_testkit::counting::Counting;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Vfs};

const BLOCK: u64 = 4096;
const TWO: [&str; 2] = ["begin_write", "end_write"];
/// More than the space that the kernel's cache needs.
const VOLUME: usize = 256 << 20;

/// Opcodes and flags. Source: Linux include/uapi/linux/fuse.h.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const MKNOD: u32 = 8;
const OPEN: u32 = 14;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const NOTIFY_STORE: i32 = 4;
const WRITE_CACHE: u32 = 1;
const FATTR_SIZE: u32 = 8;
/// The minor version of Linux 6.18.
const MINOR: u32 = 45;
/// `S_IFREG | 0644`.
const REGULAR: u32 = 0o100_644;

fn clock() -> Arc<FixedClock> {
    Arc::new(FixedClock(Timestamp::new(1_000_000, 5)))
}

/// Returns a server that records no history.
fn plain(vfs: Vfs) -> Server {
    Server::new(vfs, ServerOptions::default())
}

/// Returns an empty volume.
fn volume(driver: &dyn Driver) -> Arc<dyn FileSystem> {
    let device = Arc::new(MemDevice::new(vec![0; VOLUME]));
    let made = FormatOptions::new(driver.names()[0], clock(), Arc::new(FixedRandom(1)));
    driver.format().unwrap().format(&*device, &made).unwrap();
    let open = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock()) };
    driver.open(device, &open).unwrap()
}

/// A server of one volume with one empty file.
struct Served {
    fs: Arc<Counting>,
    kernel: UnixDatagram,
    thread: Option<JoinHandle<()>>,
    asked: u64,
    file: u64,
    /// The notifications before the last reply: the code and the body.
    notices: Vec<(i32, Vec<u8>)>,
}

impl Served {
    fn new(fs: Arc<dyn FileSystem>, writeback: bool) -> Self {
        let mut this = Self::greeted(Counting::new(fs), writeback, MINOR, plain);
        let mut file = [REGULAR, 0, 0, 0].map(u32::to_ne_bytes).concat();
        file.extend(b"file\0");
        let entry = this.ask(MKNOD, 1, &file);
        this.file = u64::from_ne_bytes(entry[..8].try_into().unwrap());
        this
    }

    /// Returns the server of a volume, of which nothing is known yet.
    fn greeted(
        fs: Arc<Counting>,
        writeback: bool,
        minor: u32,
        build: impl FnOnce(Vfs) -> Server + Send + 'static,
    ) -> Self {
        let (kernel, server) = UnixDatagram::pair().unwrap();
        let vfs = Vfs::new(fs.clone());
        let thread = std::thread::spawn(move || {
            let served = Arc::new(build(vfs));
            let (threads, io_uring) = (1, RingChoice::Off);
            let options = SessionOptions { threads, io_uring, writeback, ..SessionOptions::default() };
            let session = open_session(OwnedFd::from(server), served, options, Pauser::new().unwrap());
            session.unwrap().serve().unwrap();
        });
        let mut this = Self { fs, kernel, thread: Some(thread), asked: 0, file: 0, notices: Vec::new() };
        // Every flag.
        let mut init = [7, minor, 1 << 17, u32::MAX].map(u32::to_ne_bytes).concat();
        init.resize(64, 0);
        this.ask(INIT, 0, &init);
        this
    }

    /// Returns an empty volume of each format that maps data when it is written.
    fn all(writeback: bool) -> Vec<Self> {
        let drivers: [&dyn Driver; 3] = [&Ext4Driver, &FatDriver::default(), &ExFatDriver::default()];
        let formatted = drivers.map(volume);
        let device = Some(Arc::new(MemDevice::new(vec![0; VOLUME])) as _);
        let options = Options { device, ..Options::new(clock()) };
        let memory: Arc<dyn FileSystem> = Arc::new(Tmpfs::new(options));
        formatted.into_iter().chain([memory]).map(|fs| Self::new(fs, writeback)).collect()
    }

    fn send(&mut self, opcode: u32, node: u64, body: &[u8]) {
        self.asked += 1;
        let len = u32::try_from(40 + body.len()).unwrap();
        let mut request = [len, opcode].map(u32::to_ne_bytes).concat();
        request.extend([self.asked, node].map(u64::to_ne_bytes).concat());
        request.extend([0; 16]);
        request.extend(body);
        self.kernel.send(&request).unwrap();
    }

    /// Sends a request. Returns the body of the reply.
    fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        self.try_ask(opcode, node, body).unwrap_or_else(|_| panic!("the request {opcode} failed"))
    }

    /// Sends a request. Returns the body of the reply, or the negative number of the error.
    fn try_ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        self.send(opcode, node, body);
        let mut reply = vec![0; 128 << 10];
        self.notices.clear();
        loop {
            let len = self.kernel.recv(&mut reply).unwrap();
            let unique = u64::from_ne_bytes(reply[8..16].try_into().unwrap());
            let (code, body) = (i32::from_ne_bytes(reply[4..8].try_into().unwrap()), reply[16..len].to_vec());
            // A notification has number 0.
            match code {
                0 if unique == self.asked => return Ok(body),
                error if unique == self.asked => return Err(error),
                code => self.notices.push((code, body)),
            }
        }
    }

    /// Writes one block. Returns the calls.
    fn write(&mut self, offset: u64, flags: u32) -> Vec<&'static str> {
        self.fs.take();
        let mut body = [0, offset].map(u64::to_ne_bytes).concat();
        body.extend([BLOCK as u32, flags, 0, 0, 0, 0].map(u32::to_ne_bytes).concat());
        body.extend([7; BLOCK as usize]);
        let written = self.ask(WRITE, self.file, &body);
        assert_eq!(written[..4], (BLOCK as u32).to_ne_bytes());
        self.fs.take()
    }
}

/// The contents of a file with this many bytes.
fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// A new regular file.
const NEW: NewNode<'_> = NewNode {
    kind: FileKind::Regular,
    mode: Mode::new(0o644),
    uid: 0,
    gid: 0,
    rdev: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

/// A volume with recorded history, for a kernel of this minor version. It has files with these numbers of bytes, which are
/// their names.
struct RecordedFiles(Served);

impl RecordedFiles {
    fn new(sizes: &[usize], minor: u32) -> Self {
        let clock = Arc::new(FixedClock(Timestamp::new(1_000_000, 5)));
        let fs: Arc<dyn FileSystem> = Arc::new(Tmpfs::new(Options::new(clock.clone())));
        let vfs = Vfs::new(Arc::clone(&fs));
        for &size in sizes {
            let name = size.to_string();
            let name = Name::new(name.as_bytes()).unwrap();
            let node = vfs.create(&Caller::Owner, &vfs.root(), name, &NEW).unwrap();
            node.write_at(0, &contents(size)).unwrap();
        }
        vfs.sync().unwrap();
        let processes = Arc::new(Processes::open().unwrap());
        let options = LogOptions { writes: WriteSource::Host, ..LogOptions::default() };
        let recorded = Recorded::open(fs, processes.clone(), clock, options).unwrap();
        let counting = Counting::new(recorded.clone());
        Self(Served::greeted(counting, true, minor, |vfs| plain(vfs).with_recorder(recorded, processes)))
    }

    fn look_up(&mut self, size: usize) -> u64 {
        let entry = self.0.ask(LOOKUP, 1, format!("{size}\0").as_bytes());
        u64::from_ne_bytes(entry[..8].try_into().unwrap())
    }

    /// Opens a file. Returns the bytes that the kernel received before the reply.
    fn open(&mut self, id: u64, flags: i32) -> Option<Vec<u8>> {
        let opened = self.0.ask(OPEN, id, &[flags, 0].map(i32::to_ne_bytes).concat());
        assert_eq!(opened[8..12], 2u32.to_ne_bytes(), "FOPEN_KEEP_CACHE");
        let notices = std::mem::take(&mut self.0.notices);
        let stored = notices.into_iter().find(|&(code, _)| code == NOTIFY_STORE);
        stored.map(|(_, body)| {
            let (head, data) = body.split_at(24);
            let size = u32::try_from(data.len()).unwrap();
            let expected = [&id.to_ne_bytes()[..], &[0; 8], &size.to_ne_bytes(), &[0; 4]].concat();
            assert_eq!(head, expected);
            data.to_vec()
        })
    }

    fn resize(&mut self, id: u64, size: u64) {
        let mut change = vec![0; 88];
        change[..4].copy_from_slice(&FATTR_SIZE.to_ne_bytes());
        change[16..24].copy_from_slice(&size.to_ne_bytes());
        self.0.ask(SETATTR, id, &change);
    }

    fn forget(&mut self, id: u64) {
        self.0.send(FORGET, id, &1u64.to_ne_bytes());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.send(DESTROY, 0, &[]);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

#[test]
fn the_kernel_never_receives_a_root_that_is_not_a_directory() {
    let inner = Arc::new(Tmpfs::new(Options::new(Arc::new(FixedClock(Timestamp::EPOCH)))));
    let name = Name::new(b"file").unwrap();
    let file = inner.writable().unwrap().create(inner.root(), name, &NEW).unwrap().ino;
    let mut served = Served::greeted(Counting::with_root(inner, file), false, MINOR, plain);
    assert_eq!(served.try_ask(GETATTR, 1, &[0; 16]), Err(-libc::EUCLEAN));
    assert_eq!(served.try_ask(SETATTR, 1, &[0; 88]), Err(-libc::EUCLEAN));
}

#[test]
fn a_write_of_a_block_is_two_calls_of_the_driver() {
    for mut served in Served::all(false) {
        assert_eq!(served.write(0, 0), TWO, "a new block");
        assert_eq!(served.write(0, 0), TWO, "a block with data");
    }
}

#[test]
fn a_write_from_the_page_cache_is_two_calls_of_the_driver() {
    for mut served in Served::all(true) {
        assert_eq!(served.write(0, WRITE_CACHE), TWO, "a new block");
        assert_eq!(served.write(0, WRITE_CACHE), TWO, "a block with data");
    }
}

#[test]
fn appended_blocks_are_passed_to_the_driver_together() {
    const APPENDED: u64 = 64;
    for mut served in Served::all(false) {
        let mut calls: Vec<_> = (0..APPENDED).flat_map(|n| served.write(n * BLOCK, 0)).collect();
        served.ask(FSYNC, served.file, &[0; 16]);
        calls.extend(served.fs.take());
        // The clock is not a part of the volume.
        calls.retain(|&call| call != "now");
        assert!(calls.len() < APPENDED as usize, "{calls:?}");
    }
}

#[test]
fn the_first_open_of_a_small_file_sends_its_data_before_the_reply() {
    let mut files = RecordedFiles::new(&[1, 0, 65_536, 65_537], MINOR);
    for (size, is_sent) in [(1, true), (0, false), (65_536, true), (65_537, false)] {
        let id = files.look_up(size);
        assert_eq!(files.open(id, libc::O_RDONLY), is_sent.then(|| contents(size)), "{size}");
        assert_eq!(files.open(id, libc::O_RDONLY), None, "the kernel may cache {size}");
    }
}

/// Data that the server sends overwrites pages that a process has changed, and a stale size would grow the file.
#[test]
fn data_is_not_sent_after_a_process_could_have_changed_it() {
    let mut files = RecordedFiles::new(&[10, 20, 30, 40], MINOR);
    for (size, flags) in [(10, libc::O_WRONLY), (20, libc::O_RDWR), (30, libc::O_RDONLY | libc::O_DIRECT)] {
        let id = files.look_up(size);
        assert_eq!(files.open(id, flags), None, "{size}");
        assert_eq!(files.open(id, libc::O_RDONLY), None, "{size}");
    }
    let id = files.look_up(40);
    files.resize(id, 5);
    assert_eq!(files.open(id, libc::O_RDONLY), None);
    // The kernel has dropped all pages of a file that it has forgotten.
    files.forget(id);
    assert_eq!(files.look_up(40), id);
    assert_eq!(files.open(id, libc::O_RDONLY), Some(contents(5)));
}

#[test]
fn data_is_not_sent_to_kernels_that_do_not_clear_the_rest_of_a_page() {
    for (minor, is_sent) in [(40, false), (41, true)] {
        let mut files = RecordedFiles::new(&[100], minor);
        let id = files.look_up(100);
        assert_eq!(files.open(id, libc::O_RDONLY).is_some(), is_sent, "{minor}");
    }
}

/// The kernel takes two spellings for two names. On a mount that is not writable, neither of them becomes stale.
#[test]
fn names_that_are_compared_without_case_are_cached_if_the_mount_is_read_only() {
    for read_only in [false, true] {
        let fs = volume(&FatDriver::default());
        let vfs = Vfs::new(fs.clone());
        vfs.create(&Caller::Owner, &vfs.root(), Name::new(b"file").unwrap(), &NEW).unwrap();
        vfs.sync().unwrap();
        drop(vfs);
        let options = ServerOptions { read_only, ..ServerOptions::default() };
        let build = move |vfs| Server::new(vfs, options);
        let mut served = Served::greeted(Counting::new(fs), false, MINOR, build);
        let entry = served.ask(LOOKUP, 1, b"file\0");
        let seconds = u64::from_ne_bytes(entry[16..24].try_into().unwrap());
        assert_eq!(seconds > 0, read_only);
    }
}
