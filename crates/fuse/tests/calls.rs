//! The calls of a driver that a write request makes, with a socket in place of `/dev/fuse`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread::JoinHandle;

use obento::base::{DeviceNumber, FileKind, Mode, Name, Timestamp};
use obento::block::MemDevice;
use obento::driver::{Access, FileSystem, FormatOptions, NewNode, OpenOptions};
use obento::env::{FixedClock, FixedRandom};
use obento::{Registry, Volume, tmpfs};
use obento_fuse::{Pauser, RingChoice, Server, ServerOptions, SessionOptions, open_session};
use obento_testkit::counting::Counting;

const BLOCK: u64 = 4096;
const TWO: [&str; 2] = ["begin_write", "end_write"];
/// More than the space that the kernel's cache needs.
const VOLUME: usize = 256 << 20;

/// Opcodes and flags. Source: Linux include/uapi/linux/fuse.h.
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const MKNOD: u32 = 8;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const WRITE_CACHE: u32 = 1;
/// `S_IFREG | 0644`.
const REGULAR: u32 = 0o100_644;

/// A server of one volume with one empty file.
struct Served {
    fs: Arc<Counting>,
    kernel: UnixDatagram,
    thread: Option<JoinHandle<()>>,
    asked: u64,
    file: u64,
}

impl Served {
    fn new(fs: Arc<dyn FileSystem>, writeback: bool) -> Self {
        let mut this = Self::greeted(Counting::new(fs), writeback);
        let mut file = [REGULAR, 0, 0, 0].map(u32::to_ne_bytes).concat();
        file.extend(b"file\0");
        let entry = this.ask(MKNOD, 1, &file);
        this.file = u64::from_ne_bytes(entry[..8].try_into().unwrap());
        this
    }

    /// Returns the server of a volume, of which nothing is known yet.
    fn greeted(fs: Arc<Counting>, writeback: bool) -> Self {
        let (kernel, server) = UnixDatagram::pair().unwrap();
        let volume = Volume::new(fs.clone());
        let thread = std::thread::spawn(move || {
            let served = Arc::new(Server::new(&volume, ServerOptions::default()));
            let (threads, io_uring) = (1, RingChoice::Off);
            let options = SessionOptions { threads, io_uring, writeback, ..SessionOptions::default() };
            let session = open_session(OwnedFd::from(server), served, options, Pauser::new().unwrap());
            session.unwrap().serve().unwrap();
        });
        let mut this = Self { fs, kernel, thread: Some(thread), asked: 0, file: 0 };
        // Version 7.45 with every flag.
        let mut init = [7, 45, 1 << 17, u32::MAX].map(u32::to_ne_bytes).concat();
        init.resize(64, 0);
        this.ask(INIT, 0, &init);
        this
    }

    /// Returns an empty volume of each format that maps data when it is written.
    fn all(writeback: bool) -> Vec<Self> {
        let clock = Arc::new(FixedClock(Timestamp::new(1_000_000, 5)));
        let formatted = ["ext4", "vfat", "exfat"].map(|name| -> Arc<dyn FileSystem> {
            let registry = Registry::default();
            let driver = registry.find(name).unwrap();
            let device = Arc::new(MemDevice::new(vec![0; VOLUME]));
            let made = FormatOptions::new(name, clock.clone(), Arc::new(FixedRandom(1)));
            driver.format().unwrap().format(&*device, &made).unwrap();
            let open = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock.clone()) };
            driver.open(device, &open).unwrap()
        });
        let device = Some(Arc::new(MemDevice::new(vec![0; VOLUME])) as _);
        let options = tmpfs::Options { device, ..tmpfs::Options::new(clock.clone()) };
        let memory: Arc<dyn FileSystem> = Arc::new(tmpfs::Tmpfs::new(options));
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
        let mut reply = vec![0; 64 << 10];
        loop {
            let len = self.kernel.recv(&mut reply).unwrap();
            let unique = u64::from_ne_bytes(reply[8..16].try_into().unwrap());
            // A notification has number 0.
            if unique == self.asked {
                return match i32::from_ne_bytes(reply[4..8].try_into().unwrap()) {
                    0 => Ok(reply[16..len].to_vec()),
                    error => Err(error),
                };
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

impl Drop for Served {
    fn drop(&mut self) {
        self.send(DESTROY, 0, &[]);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

#[test]
fn the_kernel_never_receives_a_root_that_is_not_a_directory() {
    let inner = Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(FixedClock(Timestamp::EPOCH)))));
    let name = Name::new(b"file").unwrap();
    let new = NewNode {
        kind: FileKind::Regular,
        mode: Mode::new(0o644),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: b"",
    };
    let file = inner.writable().unwrap().create(inner.root(), name, &new).unwrap().ino;
    let mut served = Served::greeted(Counting::with_root(inner, file), false);
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
