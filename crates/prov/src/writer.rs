//! Segments that are written at once, outside of a mounted volume: compacted edges, and the sources of a new volume.

use alloc::vec::Vec;

use obento_base::{FileKind, Ino, Mode, Timestamp};
use obento_driver::history::Actor;

use crate::actor::ActorId;
use crate::block::{BLOCK, BlockBuilder};
use crate::log::micros;
use crate::record::{FileId, Mark, Record};
use crate::segment::Header;

/// Length of a segment of a new volume in bytes.
const SEGMENT: usize = 4 << 20;

/// A segment to which records are added.
pub(crate) struct SegmentWriter {
    bytes: Vec<u8>,
    block: BlockBuilder,
    next: u64,
}

impl SegmentWriter {
    pub(crate) fn new(header: &Header) -> Self {
        Self { bytes: header.encode(), block: BlockBuilder::default(), next: header.first }
    }

    /// Returns the sequence number of the next record.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns the length of the full blocks in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether one more block would exceed `max` bytes.
    fn is_full(&self, max: usize) -> bool {
        self.bytes.len().saturating_add(BLOCK.saturating_mul(2)) > max
    }

    pub(crate) fn push(&mut self, time: i64, record: &Record<'_>) {
        if !self.block.push(self.next, time, record) {
            self.block.encode(&mut self.bytes);
            self.block.clear();
            self.block.push(self.next, time, record);
        }
        self.next = self.next.saturating_add(1);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if !self.block.is_empty() {
            self.block.encode(&mut self.bytes);
        }
        self.bytes
    }
}

/// A name of a file in a new volume.
#[derive(Clone, Copy, Debug)]
pub struct BuiltName<'a> {
    /// The directory.
    pub parent: Ino,
    /// The name in the directory.
    pub name: &'a [u8],
    /// The file.
    pub file: FileId,
    /// The type of the file.
    pub kind: FileKind,
    /// The permissions of the file.
    pub mode: Mode,
    /// The target of a symbolic link.
    pub target: &'a [u8],
    /// The name of the file outside of the volume; `None` if the name is not the first one of its file, or if the file
    /// has no source.
    pub source: Option<&'a [u8]>,
    /// Whether an earlier name refers to the same file.
    pub is_link: bool,
}

/// The log of a new volume: the first records name the sources of its files.
///
/// Invariant: the bytes depend on the arguments only. A larger inode number or generation never makes a segment
/// shorter.
pub struct BuiltLog {
    segments: Vec<Vec<u8>>,
    current: SegmentWriter,
    volume: [u8; 16],
    actor: Actor,
    time: i64,
}

impl core::fmt::Debug for BuiltLog {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BuiltLog").field("segments", &self.segments.len()).finish_non_exhaustive()
    }
}

impl BuiltLog {
    /// Begins the log of the volume with the UUID `volume`. All records have the time `time` and belong to `program`,
    /// which has no process ID: the log contains no identity of the host.
    pub fn new(volume: [u8; 16], time: Timestamp, program: &[u8]) -> Self {
        let (actor, time) = (Actor::default().with_comm(program), micros(time));
        let header = Header { volume, number: 1, first: 1, boot: [0; 16] };
        let mut log =
            Self { segments: Vec::new(), current: SegmentWriter::new(&header), volume, actor, time };
        log.begin(Mark::Mount { boot: [0; 16] });
        log
    }

    fn begin(&mut self, mark: Mark) {
        self.current.push(self.time, &Record::Mark(mark));
        self.define_actor();
    }

    fn define_actor(&mut self) {
        self.current.push(self.time, &Record::Actor { id: ActorId(0), actor: self.actor });
    }

    /// Adds a name. The directory of the name was added before, except for the root.
    pub fn add(&mut self, name: &BuiltName<'_>) {
        if self.current.is_full(SEGMENT) {
            self.end_segment();
        }
        let BuiltName { parent, name, file, kind, mode, target, source, is_link } = *name;
        let actor = ActorId(0);
        self.current.push(
            self.time,
            &match is_link {
                true => Record::Link { actor, parent, name, file },
                false => Record::Create { actor, parent, name, file, kind, mode: mode.bits(), target },
            },
        );
        if let Some(source) = source {
            self.current.push(self.time, &Record::Source { actor, file, name: source });
        }
    }

    fn end_segment(&mut self) {
        let number = u32::try_from(self.segments.len()).unwrap_or(u32::MAX).saturating_add(2);
        let first = self.current.next_sequence();
        let header = Header { volume: self.volume, number, first, boot: [0; 16] };
        let ended = core::mem::replace(&mut self.current, SegmentWriter::new(&header));
        self.segments.push(ended.finish());
        self.define_actor();
    }

    /// Ends the log. Returns the segments, the first of which has the number 1.
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        self.current.push(self.time, &Record::Mark(Mark::Unmount));
        self.segments.push(self.current.finish());
        self.segments
    }
}
