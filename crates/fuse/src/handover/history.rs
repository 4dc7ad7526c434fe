//! The state of the recorder of a volume's history: the open files.

use obento_base::Ino;
use obento_base::fields::{Fields, Parsed, StateError};
use obento_driver::history::{Actor, OpenFile};

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

impl HandleState {
    fn record(&self) -> [u64; 8] {
        let [pid, start, uid, gid, name, rest] = self.actor.to_numbers();
        [self.number, self.ino.0, pid, start, uid, gid, name, rest]
    }

    fn of([number, ino, pid, start, uid, gid, name, rest]: [u64; 8]) -> Option<Self> {
        Some(Self { number, actor: Actor::from_numbers([pid, start, uid, gid, name, rest])?, ino: Ino(ino) })
    }
}

impl HistoryState {
    /// Encodes the state.
    pub(super) fn encode(&self) -> Vec<u8> {
        Fields::default()
            .with_records(FILES, self.files.iter().map(OpenFile::to_numbers))
            .with_records(HANDLES, self.handles.iter().map(HandleState::record))
            .with_number(NEXT, self.next)
            .into_bytes()
    }

    /// Decodes a state. Fails for bytes that [`encode`](Self::encode) does not produce.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::of(bytes)?;
        let files = fields.records(FILES)?.into_iter().map(OpenFile::from_numbers).collect::<Option<_>>();
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
