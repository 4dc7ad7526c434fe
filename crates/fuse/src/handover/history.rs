//! The state of the recorder of a volume's history: the open files.

use obento::base::Ino;
use obento::provenance::{Actor, OpenFile, OpenMode, Transferred};

use super::fields::{Fields, Parsed, StateError};

/// A number that the kernel uses for an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleState {
    /// The number.
    pub number: u64,
    /// The process that opened the file.
    pub actor: Actor,
    /// The file.
    pub ino: Ino,
}

/// The open files of a mount whose history is recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HistoryState {
    /// The files that processes have open, and what the processes transferred.
    pub files: Vec<OpenFile>,
    /// The numbers of open files.
    pub handles: Vec<HandleState>,
    /// The number of the next file that is opened.
    pub next: u64,
}

const FILES: u16 = 1;
const HANDLES: u16 = 2;
const NEXT: u16 = 3;

/// Bits of the mode of an open file.
const READ: u64 = 1;
const WRITE: u64 = 2;

/// An actor as numbers: process ID, start time, user, group, and the name of the program.
type ActorNumbers = [u64; 6];

fn numbers_of(actor: &Actor) -> ActorNumbers {
    let (name, _) = actor.comm.as_chunks::<8>();
    let name = [0, 1].map(|half| name.get(half).copied().map_or(0, u64::from_le_bytes));
    [actor.pid.into(), actor.start, actor.uid.into(), actor.gid.into(), name[0], name[1]]
}

fn actor_of([pid, start, uid, gid, name @ ..]: ActorNumbers) -> Option<Actor> {
    let narrow = |number: u64| u32::try_from(number).ok();
    let actor = Actor { pid: narrow(pid)?, start, uid: narrow(uid)?, gid: narrow(gid)?, comm: [0; 16] };
    Some(actor.with_comm(name.map(u64::to_le_bytes).as_flattened()))
}

fn record_of(file: &OpenFile) -> [u64; 15] {
    let OpenFile { ino, actor, count, mode, read, written } = file;
    let [pid, start, uid, gid, name, rest] = numbers_of(actor);
    let mode = if mode.read { READ } else { 0 } | if mode.write { WRITE } else { 0 };
    let (read, written) = (transfer_numbers(read), transfer_numbers(written));
    let ([r0, r1, r2], [w0, w1, w2]) = (read, written);
    [ino.0, pid, start, uid, gid, name, rest, (*count).into(), mode, r0, r1, r2, w0, w1, w2]
}

fn transfer_numbers(transferred: &Transferred) -> [u64; 3] {
    [transferred.bytes, transferred.start, transferred.end]
}

fn transfer_of([bytes, start, end]: [u64; 3]) -> Option<Transferred> {
    (start <= end).then_some(Transferred { bytes, start, end })
}

fn file_of(record: [u64; 15]) -> Option<OpenFile> {
    let [ino, pid, start, uid, gid, name, rest, count, mode, r0, r1, r2, w0, w1, w2] = record;
    let count = u32::try_from(count).ok().filter(|&count| count > 0)?;
    if mode & !(READ | WRITE) != 0 {
        return None;
    }
    Some(OpenFile {
        ino: Ino(ino),
        actor: actor_of([pid, start, uid, gid, name, rest])?,
        count,
        mode: OpenMode { read: mode & READ != 0, write: mode & WRITE != 0 },
        read: transfer_of([r0, r1, r2])?,
        written: transfer_of([w0, w1, w2])?,
    })
}

impl HandleState {
    fn record(&self) -> [u64; 8] {
        let [pid, start, uid, gid, name, rest] = numbers_of(&self.actor);
        [self.number, self.ino.0, pid, start, uid, gid, name, rest]
    }

    fn of([number, ino, pid, start, uid, gid, name, rest]: [u64; 8]) -> Option<Self> {
        Some(Self { number, actor: actor_of([pid, start, uid, gid, name, rest])?, ino: Ino(ino) })
    }
}

impl HistoryState {
    /// Encodes the state.
    pub(super) fn encode(&self) -> Vec<u8> {
        Fields::default()
            .with_records(FILES, self.files.iter().map(record_of))
            .with_records(HANDLES, self.handles.iter().map(HandleState::record))
            .with_number(NEXT, self.next)
            .into_bytes()
    }

    /// Decodes a state. Fails for bytes that [`encode`](Self::encode) does not produce.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        let files = fields.records(FILES)?.into_iter().map(file_of).collect::<Option<_>>();
        let handles = fields.records(HANDLES)?.into_iter().map(HandleState::of).collect::<Option<_>>();
        let state = Self {
            files: files.ok_or(StateError::Invalid(FILES))?,
            handles: handles.ok_or(StateError::Invalid(HANDLES))?,
            next: fields.number(NEXT)?,
        };
        fields.finish()?;
        Ok(state)
    }
}
