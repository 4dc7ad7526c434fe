//! A guest that is a thread of a test: it uses the wire protocol, and returns the answers that the test defines.
//!
//! It reads and writes the area as a file, so that it shares no code with the host's side.

mod hostile;
mod unproved;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::Probe;
use obento_env::SystemClock;
use obento_linux_wire::{
    Answer, DATA_AT, Entry, Envelope, Fill, REPLY_AT, REPLY_MAX, REQUEST_AT, Request, Stat, Usage, Word,
    decode, encode,
};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::area::Area;
use crate::engine::Shared;
use crate::starter::Starter;
use crate::types::{TYPES, Type};
use crate::volume::{Opening, Volume};

/// The root, and the file in it.
pub const ROOT: u64 = 128;
pub const FILE: u64 = 200;

/// Kinds and permissions.
pub const DIRECTORY: u16 = 0o040_755;
pub const REGULAR: u16 = 0o100_644;
pub const SYMLINK: u16 = 0o120_777;

/// The value of each of the first bytes of the guest's file.
pub const GUESTS: u8 = 7;
const BYTES: usize = 128 << 10;

/// The guest's reaction to a request.
pub enum GuestReply {
    /// The answer of a guest with a small file in its root.
    Usual,
    /// This answer.
    Is(Answer),
    /// These bytes as the answer, with this length.
    Bytes(Vec<u8>, u32),
    /// No answer.
    Never,
    /// A notification without an answer.
    Rings,
    /// The guest ends.
    Ends,
}

/// The guest's side of the connection.
struct Line {
    area: File,
    bell: UnixStream,
}

impl Line {
    fn word(&self, word: Word) -> u32 {
        let mut bytes = [0; 4];
        self.area.read_exact_at(&mut bytes, word.at() as u64).unwrap();
        u32::from_le_bytes(bytes)
    }

    fn set(&self, word: Word, number: u32) {
        self.area.write_all_at(&number.to_le_bytes(), word.at() as u64).unwrap();
    }

    /// Returns the next request; `None` after the socket was closed.
    fn request(&mut self) -> Option<Request> {
        while self.word(Word::Asked) == self.word(Word::Answered) {
            if !matches!(self.bell.read(&mut [0; 64]), Ok(1..)) {
                return None;
            }
        }
        let mut bytes = vec![0; self.word(Word::RequestLen) as usize];
        self.area.read_exact_at(&mut bytes, REQUEST_AT as u64).unwrap();
        decode::<Envelope>(&bytes).unwrap().request
    }

    /// Sends an answer. Fails after the socket was closed.
    fn reply(&mut self, bytes: &[u8], len: u32) -> std::io::Result<()> {
        let kept = &bytes[..bytes.len().min(REPLY_MAX)];
        self.area.write_all_at(kept, REPLY_AT as u64).unwrap();
        self.set(Word::ReplyLen, len);
        self.set(Word::Answered, self.word(Word::Asked));
        self.bell.write_all(b".")
    }

    fn serve(mut self, mut guest: impl FnMut(&Request) -> GuestReply) {
        while let Some(request) = self.request() {
            let done = match guest(&request) {
                GuestReply::Usual => self.say(&usual(&request)),
                GuestReply::Is(answer) => self.say(&answer),
                GuestReply::Bytes(bytes, len) => self.reply(&bytes, len),
                GuestReply::Never => self.bell.read_to_end(&mut Vec::new()).map(drop),
                // Until the other side is closed.
                GuestReply::Rings => loop {
                    if let Err(error) = self.bell.write_all(b".") {
                        break Err(error);
                    }
                },
                GuestReply::Ends => return,
            };
            if done.is_err() {
                return;
            }
        }
    }

    fn say(&mut self, answer: &Answer) -> std::io::Result<()> {
        let bytes = encode(answer);
        self.reply(&bytes, u32::try_from(bytes.len()).unwrap())
    }
}

/// Returns the attributes of an inode.
pub fn stat(ino: u64, mode: u16) -> Stat {
    Stat { ino, mode, nlink: 1, size: 5, blocks: 8, block_size: 4096, ..Stat::default() }
}

pub fn entry(name: &[u8], next: u64, stat: Stat) -> Entry {
    Entry { name: name.to_vec(), next, stat: Some(stat), errno: 0 }
}

pub fn usage() -> Usage {
    let (block_size, name_max) = (4096, 255);
    Usage { block_size, blocks: 1000, free: 500, available: 500, inodes: 9, free_inodes: 7, name_max }
}

/// Returns the answer of a guest with a small file in its root.
fn usual(request: &Request) -> Answer {
    let of = |ino| stat(ino, if ino == ROOT { DIRECTORY } else { REGULAR });
    match request {
        Request::Mount { .. } => {
            Answer::Mounted { root: of(ROOT), usage: usage(), file_size_max: i64::MAX.unsigned_abs() }
        }
        Request::List { dir: ROOT, from: 0 } => {
            Answer::Entries { entries: vec![entry(b"file", 5, of(FILE))], is_end: true }
        }
        Request::List { .. } => Answer::Entries { entries: Vec::new(), is_end: true },
        Request::Look { .. } => Answer::Node { stat: of(FILE) },
        Request::Stat { ino } => Answer::Node { stat: of(*ino) },
        Request::StatFs {} => Answer::Usage { usage: usage() },
        Request::ListXattrs { .. } => Answer::Bytes { bytes: Vec::new() },
        Request::Read { pieces } => {
            Answer::Filled { fills: pieces.iter().map(|piece| Fill { len: piece.len, errno: 0 }).collect() }
        }
        // EOPNOTSUPP.
        _ => Answer::Failed { errno: 95 },
    }
}

/// The state of a guest before its first answer.
pub struct GuestStart {
    /// The printed output.
    pub console: File,
    /// Whether the guest requests its disk, as a starting guest does.
    pub asks: bool,
    /// The type of its volume.
    pub kind: &'static Type,
}

impl Default for GuestStart {
    fn default() -> Self {
        let console = memfd_create(c"console", MemfdFlags::CLOEXEC).unwrap().into();
        // A type that reports locations.
        Self { console, asks: true, kind: kind("xfs") }
    }
}

/// Returns the type with this name.
pub fn kind(name: &str) -> &'static Type {
    TYPES.iter().find(|kind| kind.names == [name]).unwrap()
}

/// Returns the volume that `guest` has mounted.
pub fn open(guest: impl FnMut(&Request) -> GuestReply + Send + 'static) -> Result<Volume> {
    open_after(GuestStart::default(), guest)
}

/// Like [`open`], after the given start.
pub fn open_after(
    start: GuestStart,
    guest: impl FnMut(&Request) -> GuestReply + Send + 'static,
) -> Result<Volume> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(vec![0; 1 << 20]));
    let kind = start.kind;
    let starter = run(start, guest);
    let engine = Shared::start_by(&starter, (kind, 128), Arc::clone(&device))?;
    let fs_type = kind.names[0];
    let probe = Probe { fs_type, len: device.len(), ..Probe::default() };
    let (words, clock) = (String::new(), Arc::new(SystemClock));
    Volume::mount(
        engine,
        Opening {
            kind,
            words,
            probe,
            found: device.len(),
            device,
            clock,
            writable: false,
            hidden: Vec::new(),
        },
    )
}

fn run(start: GuestStart, guest: impl FnMut(&Request) -> GuestReply + Send + 'static) -> Starter {
    let (area, kind) = (Area::new().unwrap(), start.kind);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let disk = UnixListener::bind(&path).unwrap();
    let (bell, line) = UnixStream::pair().unwrap();
    bell.set_nonblocking(true).unwrap();
    let (cut, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let shared = area.file().try_clone().unwrap();
    File::from(shared.try_clone().unwrap()).write_all_at(&[GUESTS; BYTES], DATA_AT as u64).unwrap();
    let line = Line { area: shared.try_clone().unwrap().into(), bell: line };
    thread::spawn(move || {
        if start.asks {
            let _disk = UnixStream::connect(&path).unwrap();
            line.serve(guest);
        }
        drop((cut, folder));
    });
    let files: [OwnedFd; 5] = [lifeline, bell.into(), disk.into(), start.console.into(), shared];
    Starter::handing_out(kind, files)
}
