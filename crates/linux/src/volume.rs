//! An open volume: the engine, and the host's knowledge about inodes.
//!
//! Locking: `nodes` is locked before the engine's turn and stays locked during it, so that requests and the knowledge gained
//! from them have one order. No lock is held while a sink runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{
    Attr, DeviceError, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Result, Timestamp,
};
use obento_block::BlockDevice;
use obento_driver::{Probe, StatFs};
use obento_env::Clock;
use obento_linux_wire::{Answer, DATA_MAX, Envelope, Moment, Request, Run, Stat, Usage};

use crate::ahead::{self, SMALL};
use crate::engine::Shared;
use crate::installed::kernel_name;
use crate::nodes::Nodes;
use crate::proofs::{BypassRead, Proofs};
use crate::stream::Stream;
use crate::types::needs::Need;
use crate::types::{LinkTarget, Type};

/// The types that report the location of a file's bytes on the disk, and whose files were verified to be those bytes
/// (`tests/places.rs`).
const WITH_PLACES: &[&str] = &["xfs", "f2fs"];

/// The bits that `stx_attributes` and flags have in common: `STATX_ATTR_COMPRESSED`, `_IMMUTABLE`, `_APPEND`, `_NODUMP`,
/// `_ENCRYPTED`, `_VERITY`. Source: include/uapi/linux/stat.h.
const FLAGS: u32 = 0x4 | 0x10 | 0x20 | 0x40 | 0x800 | 0x10_0000;

/// An open volume.
pub struct Volume {
    pub(crate) engine: Shared,
    pub(crate) kind: &'static Type,
    pub(crate) probe: Probe,
    pub(crate) root: Ino,
    pub(crate) name_max: u32,
    pub(crate) block_size: u32,
    pub(crate) file_size_max: u64,
    pub(crate) clock: Arc<dyn Clock>,
    /// The disk of the guest.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The length of the image in bytes. A truncated volume is longer.
    pub(crate) found: u64,
    /// The parts of the volume that the kernel leaves out.
    pub(crate) hidden: Vec<Need>,
    writable: AtomicBool,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) nodes: Nodes,
    /// Whole small files that were read ahead; only if the volume is read-only.
    pub(crate) ahead: HashMap<Ino, Vec<u8>>,
    /// Data and holes of the file that was asked about last.
    runs: Option<(Ino, u64, Vec<Run>)>,
    /// The file that is read from front to back.
    pub(crate) stream: Stream,
    /// The checksums that prove files that are read past the guest.
    pub(crate) proofs: Proofs,
}

/// The parameters for opening a volume.
pub struct Opening {
    pub kind: &'static Type,
    /// Options of mount(8).
    pub words: String,
    pub probe: Probe,
    pub device: Arc<dyn BlockDevice>,
    /// The length of the image in bytes.
    pub found: u64,
    pub clock: Arc<dyn Clock>,
    pub writable: bool,
    /// The parts of the volume that the kernel leaves out.
    pub hidden: Vec<Need>,
}

impl Volume {
    /// Mounts the disk of `engine`.
    pub fn mount(engine: Shared, opening: Opening) -> Result<Self> {
        let Opening { kind, words, probe, device, found, clock, writable, hidden } = opening;
        let name = kind.names.first().copied().unwrap_or_default();
        let request = Request::Mount {
            kind: kernel_name(name).as_bytes().to_vec(),
            options: words.into_bytes(),
            read_only: !writable,
        };
        let envelope = Envelope { request: Some(request), ..Envelope::default() };
        let answer = engine.turn().mount(&envelope)?;
        let Answer::Mounted { root, usage, file_size_max } = answer else { return Err(nonsense()) };
        let attr = attr_of(kind, &root)?;
        if !attr.is_dir() {
            return Err(nonsense());
        }
        Ok(Self {
            engine,
            kind,
            probe,
            root: attr.ino,
            name_max: usage.name_max,
            block_size: statfs_of(&usage).block_size,
            // `off_t` is signed.
            file_size_max: file_size_max.min(i64::MAX.unsigned_abs()),
            clock,
            device,
            found,
            hidden,
            writable: AtomicBool::new(writable),
            state: Mutex::new(State {
                nodes: Nodes::new(attr.ino, attr),
                ahead: HashMap::new(),
                runs: None,
                stream: Stream::default(),
                proofs: Proofs::default(),
            }),
        })
    }

    /// Returns the longest target of a symbolic link.
    pub(crate) fn symlink_max(&self) -> u32 {
        match self.kind.target {
            LinkTarget::Bytes(max) => max,
            LinkTarget::BlockWith(others) => self.block_size.saturating_sub(others),
        }
    }

    /// Returns whether the volume reports the location of bytes on the disk.
    pub(crate) fn has_places(&self) -> bool {
        self.kind.names.iter().any(|name| WITH_PLACES.contains(name))
    }

    /// Returns whether the volume has checksums that prove where long files are.
    pub(crate) fn has_sums(&self) -> bool {
        self.is_of("btrfs")
    }

    /// Fails with `Invalid` for the name of a file or an attribute that the type cannot store and that Linux would
    /// change.
    pub(crate) fn expect_name(&self, name: &[u8]) -> Result<()> {
        if (self.kind.keeps_name)(name) { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Returns whether the volume has the type `name`.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        self.kind.names.contains(&name)
    }

    /// Returns whether the volume can be changed.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `request`, which is about `inos`.
    pub(crate) fn ask(&self, state: &mut State, inos: &[Ino], request: Request) -> Result<Answer> {
        self.ask_with(state, inos, request, &[])
    }

    pub(crate) fn ask_with(
        &self,
        state: &mut State,
        inos: &[Ino],
        request: Request,
        data: &[u8],
    ) -> Result<Answer> {
        let steps = state.nodes.steps(inos)?;
        let forget = state.nodes.take_forgotten();
        let envelope = Envelope { forget, steps, request: Some(request) };
        let answer = self.engine.turn().ask(&envelope, data);
        match &answer {
            Ok(_) => state.nodes.hold(&envelope.steps),
            Err(_) => state.nodes.leave(&envelope.steps),
        }
        Ok(answer?)
    }

    /// Like [`ask`](Self::ask), for a request whose answer contains nothing but success.
    pub(crate) fn do_it(&self, state: &mut State, inos: &[Ino], request: Request) -> Result<()> {
        match self.ask(state, inos, request)? {
            Answer::Done {} => Ok(()),
            _ => Err(nonsense()),
        }
    }

    /// Like [`ask`](Self::ask), for bytes.
    pub(crate) fn bytes(&self, ino: Ino, request: Request) -> Result<Vec<u8>> {
        match self.ask(&mut self.state(), &[ino], request)? {
            Answer::Bytes { bytes } => Ok(bytes),
            _ => Err(nonsense()),
        }
    }

    /// Like [`ask`](Self::ask), for an inode.
    pub(crate) fn node(&self, state: &mut State, inos: &[Ino], request: Request) -> Result<Attr> {
        match self.ask(state, inos, request)? {
            Answer::Node { stat } => attr_of(self.kind, &stat).map(|attr| state.nodes.in_its_life(attr)),
            _ => Err(nonsense()),
        }
    }

    /// Returns the attributes of `ino`.
    pub(crate) fn attr(&self, state: &mut State, ino: Ino) -> Result<Attr> {
        if let Some(attr) = &state.nodes.get(ino)?.attr {
            return Ok(**attr);
        }
        let attr = self.node(state, &[ino], Request::Stat { ino: ino.0 })?;
        state.nodes.learn(attr);
        Ok(attr)
    }

    /// Returns the size of a regular file. Fails with `IsDirectory` or `Invalid`.
    pub(crate) fn file(&self, state: &mut State, ino: Ino) -> Result<Attr> {
        let attr = self.attr(state, ino)?;
        match attr.kind {
            FileKind::Regular => Ok(attr),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Fails unless `ino` is a directory.
    pub(crate) fn directory(&self, state: &mut State, ino: Ino) -> Result<Attr> {
        self.attr(state, ino).and_then(|attr| if attr.is_dir() { Ok(attr) } else { Err(Error::NotDirectory) })
    }

    pub(crate) fn usage(&self) -> Result<StatFs> {
        match self.ask(&mut self.state(), &[], Request::StatFs {})? {
            Answer::Usage { usage } => Ok(statfs_of(&usage)),
            _ => Err(nonsense()),
        }
    }

    /// Reads from a regular file. Reads less than requested only at the end of the file.
    pub(crate) fn read_file(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let attr = {
            let mut state = self.state();
            let attr = self.file(&mut state, ino)?;
            if !self.is_writable() && attr.size <= SMALL {
                if !state.ahead.contains_key(&ino) {
                    self.read_ahead(&mut state, ino)?;
                }
                if let Some(len) = ahead::serve(&mut state, ino, offset, buf) {
                    return Ok(len);
                }
            }
            attr
        };
        let (asked, mut done) = (buf.len(), 0);
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            match if at < attr.size { self.read_some(&attr, asked, at, rest) } else { Ok(0) } {
                Ok(0) => break,
                Ok(got) => done += got,
                // The bytes that were read are useful; the next call meets the error again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads before the end of a regular file, possibly less than `buf` holds; `asked` is the total length of the request.
    fn read_some(&self, attr: &Attr, asked: usize, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.read_past(attr, asked, offset, buf)? {
            BypassRead::Read(done) => Ok(done),
            BypassRead::Asks(len) => {
                let room = buf.get_mut(..len).unwrap_or_default();
                self.read_on(&mut self.state(), attr, offset, room)
            }
        }
    }

    /// Writes, and returns the number of bytes.
    pub(crate) fn write_file(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut state = self.state();
        self.file(&mut state, ino)?;
        let bytes = bytes.get(..bytes.len().min(DATA_MAX)).unwrap_or_default();
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        let answer = self.ask_with(&mut state, &[ino], Request::Write { ino: ino.0, offset, len }, bytes);
        state.changed(ino);
        match answer? {
            Answer::Count { count } => Ok(to_usize(count).min(bytes.len())),
            _ => Err(nonsense()),
        }
    }

    /// Returns the run at `offset` of a file: its end, and whether it is data.
    pub(crate) fn run(&self, state: &mut State, attr: &Attr, offset: u64) -> Result<Run> {
        let all = Run { end: attr.size, is_data: true, place: None };
        // Small files come in large numbers, and locations that may change are not reported.
        let places = self.has_places() && !self.is_writable() && attr.size > SMALL;
        if !places && attr.blocks.saturating_mul(512) >= attr.size {
            return Ok(all);
        }
        let known = state.runs.as_ref().and_then(|(ino, start, runs)| {
            (*ino == attr.ino && *start <= offset).then(|| run_at(*start, runs, offset))?
        });
        if let Some(run) = known {
            return Ok(run);
        }
        let request = Request::Map { ino: attr.ino.0, offset, end: attr.size, places };
        let runs = match self.ask(state, &[attr.ino], request) {
            Ok(Answer::Runs { runs }) => runs,
            Ok(_) => return Err(nonsense()),
            // For a type without this report, everything is data.
            Err(Error::Refused(_)) => vec![all],
            Err(error) => return Err(error),
        };
        let found = run_at(offset, &runs, offset);
        state.runs = Some((attr.ino, offset, runs));
        found.ok_or_else(nonsense)
    }

    /// Writes all changes to stable storage. The device is flushed here too, since not every type requests a flush.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.do_it(&mut self.state(), &[], Request::Sync {})?;
        self.device.flush()
    }

    /// Ends the changes of the volume.
    pub(crate) fn seal(&self) -> Result<()> {
        let mut state = self.state();
        self.do_it(&mut state, &[], Request::Seal {})?;
        state.nodes.let_go(self.root);
        self.writable.store(false, Ordering::Relaxed);
        self.device.flush()
    }
}

impl State {
    /// Invalidates the knowledge about `ino`.
    pub(crate) fn changed(&mut self, ino: Ino) {
        self.nodes.touch(ino);
        self.runs = None;
    }
}

/// Returns the part of `runs`, which begin at `start`, that begins at `offset`.
fn run_at(start: u64, runs: &[Run], offset: u64) -> Option<Run> {
    let at = runs.iter().position(|run| run.end > offset)?;
    let begin = at.checked_sub(1).and_then(|before| runs.get(before)).map_or(start, |run| run.end);
    let Run { end, is_data, place } = runs.get(at)?.clone();
    let skipped = offset.checked_sub(begin)?;
    Some(Run { end, is_data, place: place.and_then(|place| place.checked_add(skipped)) })
}

/// Returns the error for an answer that only an untrusted guest gives.
pub(crate) fn nonsense() -> Error {
    DeviceError::Engine("sent an invalid reply").into()
}

fn timestamp(moment: &Moment) -> Timestamp {
    Timestamp::new(moment.seconds, moment.nanos)
}

/// Converts attributes to those of the contract. Fails if the kind does not exist, or if the size does not fit `off_t`.
pub(crate) fn attr_of(of: &Type, stat: &Stat) -> Result<Attr> {
    if stat.size > i64::MAX.unsigned_abs() {
        return Err(nonsense());
    }
    let ctime = timestamp(&stat.ctime);
    let kind = FileKind::from_mode(stat.mode).ok_or_else(nonsense)?;
    let folds = of.folds && kind == FileKind::Directory;
    let casefold = if folds { FileFlags::CASEFOLD } else { FileFlags::empty() };
    Ok(Attr {
        ino: Ino(stat.ino),
        generation: Generation(0),
        kind,
        mode: Mode::new(stat.mode),
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: DeviceNumber { major: stat.major, minor: stat.minor },
        size: stat.size,
        blocks: stat.blocks,
        block_size: stat.block_size,
        atime: timestamp(&stat.atime),
        mtime: timestamp(&stat.mtime),
        ctime,
        btime: stat.btime.as_ref().map(timestamp),
        flags: FileFlags::from_bits_retain(stat.flags & FLAGS) | casefold,
        change: ctime.secs().cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(ctime.nanos().into()),
        project: 0,
    })
}

fn statfs_of(usage: &Usage) -> StatFs {
    StatFs {
        // A grain is a power of two, even if the guest reports another value.
        block_size: if usage.block_size.is_power_of_two() { usage.block_size } else { 512 },
        blocks: usage.blocks,
        free: usage.free,
        available: usage.available,
        // Erofs reports the largest number.
        inodes: if usage.inodes == u64::MAX { 0 } else { usage.inodes },
        free_inodes: if usage.inodes == u64::MAX { 0 } else { usage.free_inodes },
    }
}
