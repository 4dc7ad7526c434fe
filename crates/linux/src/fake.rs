//! A guest that is a thread of a test: it speaks the wire, and answers what the test has it answer.
//!
//! It reads and writes the area as a file, so that nothing here is taken from the host's side.

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

/// The root, and the file that is in it.
pub const ROOT: u64 = 128;
pub const FILE: u64 = 200;

/// Kinds and permissions.
pub const DIRECTORY: u16 = 0o040_755;
pub const REGULAR: u16 = 0o100_644;
pub const SYMLINK: u16 = 0o120_777;

/// What the guest says is in its file, in each of the first bytes.
pub const GUESTS: u8 = 7;
const BYTES: usize = 128 << 10;

/// What a guest does with a request.
pub enum Reply {
    /// What one with a small file in its root does.
    Usual,
    /// This.
    Is(Answer),
    /// Has these bytes be the answer, and says that it has so many.
    Bytes(Vec<u8>, u32),
    /// Nothing.
    Never,
    /// Rings, and nothing else.
    Rings,
    /// Ends.
    Ends,
}

/// The guest's side.
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

    /// The next request; `None` once the line is cut.
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

    /// Answers; an error once the line is cut.
    fn reply(&mut self, bytes: &[u8], len: u32) -> std::io::Result<()> {
        let kept = &bytes[..bytes.len().min(REPLY_MAX)];
        self.area.write_all_at(kept, REPLY_AT as u64).unwrap();
        self.set(Word::ReplyLen, len);
        self.set(Word::Answered, self.word(Word::Asked));
        self.bell.write_all(b".")
    }

    fn serve(mut self, mut guest: impl FnMut(&Request) -> Reply) {
        while let Some(request) = self.request() {
            let done = match guest(&request) {
                Reply::Usual => self.say(&usual(&request)),
                Reply::Is(answer) => self.say(&answer),
                Reply::Bytes(bytes, len) => self.reply(&bytes, len),
                Reply::Never => self.bell.read_to_end(&mut Vec::new()).map(drop),
                // Until nobody is there to hear it.
                Reply::Rings => loop {
                    if let Err(error) = self.bell.write_all(b".") {
                        break Err(error);
                    }
                },
                Reply::Ends => return,
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

/// The attributes of an inode.
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

/// What a guest with a small file in its root answers.
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

/// What there is before a guest answers.
pub struct Start {
    /// What it has printed.
    pub console: File,
    /// Whether it asks for its disk, as one does that starts.
    pub asks: bool,
    /// What its disk is.
    pub kind: &'static Type,
}

impl Default for Start {
    fn default() -> Self {
        let console = memfd_create(c"console", MemfdFlags::CLOEXEC).unwrap().into();
        // One that is known to tell places.
        Self { console, asks: true, kind: kind("xfs") }
    }
}

/// The type of this name.
pub fn kind(name: &str) -> &'static Type {
    TYPES.iter().find(|kind| kind.names == [name]).unwrap()
}

/// The volume that `guest` has mounted.
pub fn open(guest: impl FnMut(&Request) -> Reply + Send + 'static) -> Result<Volume> {
    open_after(Start::default(), guest)
}

/// [`open`], after such a start.
pub fn open_after(start: Start, guest: impl FnMut(&Request) -> Reply + Send + 'static) -> Result<Volume> {
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

fn run(start: Start, guest: impl FnMut(&Request) -> Reply + Send + 'static) -> Starter {
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
