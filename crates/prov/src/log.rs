//! The writer: gathers records in blocks, and blocks in a buffer of 64 KiB that is written when it is full
//! and before a sync.
//!
//! Invariant: the only durable version of a block is never overwritten. A block that is not full is written
//! before a sync to one of two places, and its next version to the other.
//! Invariant: an error never reaches a user. The records of a failed write are counted as lost, and the
//! count is recorded when writing succeeds again.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use hashbrown::HashMap;
use obento_base::wire::to_u64;
use obento_base::{Error, Ino, Result, Timestamp};
use obento_driver::history::Actor;
use obento_driver::{FileSystem, Size};
use obento_vfs::Node;

use crate::actor::{ACTORS_MAX, ActorId};
use crate::block::{BLOCK, BlockBuilder};
use crate::compaction::Compaction;
use crate::files::{Files, SEGMENT_MAX, VOLUME_PART};
use crate::index::index_name;
use crate::indexes::{Indexes, segment_with_index};
use crate::log_files::LogFiles;
use crate::opens::{Opens, PendingWrite};
use crate::owned::OwnedInodes;
use crate::record::{Mark, Record};
use crate::segment::{Entries, Header, segment_name, segment_number};

/// Size of the buffer in bytes.
const BUFFER: usize = 64 << 10;
/// Age at which merged writes are recorded.
const PENDING_AGE: i64 = 1_000_000;
/// Sequence numbers that are skipped after a crash: more than the records that a crash can lose, so that no
/// number is used twice.
const CRASH_GAP: u64 = 1 << 20;
const BLOCK_LEN: u64 = to_u64(BLOCK);
/// The name of the compacted edges of removed segments.
pub(crate) const EDGES: &str = "00000000.prv";
const NEW_EDGES: &str = "edges.new";

/// The layer that reports writes of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteSource {
    /// The operations of the contract.
    #[default]
    Driver,
    /// The host, through [`OpenRecorder::wrote`](obento_driver::history::OpenRecorder::wrote). Between the host and the
    /// driver, writes are gathered and lose their process.
    Host,
}

/// Bounds and identity of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Length of a segment in bytes.
    pub segment: u64,
    /// Number of segments.
    pub segments: u32,
    /// Identifies the boot of the system.
    pub boot: [u8; 16],
    /// Whether the directory of the log is visible. It cannot be changed in any case.
    pub shown: bool,
    /// The layer that reports writes of data.
    pub writes: WriteSource,
    /// Whether another process passed the open volume on. Its log continues, and nothing is written until the first
    /// sync.
    pub adopts: bool,
}

impl Default for LogOptions {
    /// Returns the defaults: 16 segments of 4 MiB, hidden. The segments and their indexes never use more than a
    /// sixteenth of a volume of at least 8 MiB. They always have the minimum length, which is 512 KiB for 16 segments.
    fn default() -> Self {
        let (shown, writes) = (false, WriteSource::Driver);
        Self { segment: 4 << 20, segments: 16, boot: [0; 16], shown, writes, adopts: false }
    }
}

/// The state of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStatus {
    /// Sequence number of the next record.
    pub next: u64,
    /// Number of records that were lost and not marked yet.
    pub lost: u64,
}

/// The places of the block that is not full.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    /// The first of the two places, as a block number.
    base: u64,
    /// The place with the newest version.
    newest: Option<u64>,
    /// The number of the write that wrote the newest version.
    version: u64,
    /// Whether a sync has covered the newest version.
    is_durable: bool,
    /// Number of places in use.
    places: u64,
}

impl Tail {
    /// Returns a block without a version whose first place is `base`.
    fn at(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// Returns the place for the next version. This is never the place of the newest durable version, or of a version
    /// that a sync may be making durable.
    fn next_place(&self) -> u64 {
        match self.newest {
            None => self.base,
            Some(newest) if self.is_durable && newest != self.base => self.base,
            Some(_) if self.is_durable => self.base.saturating_add(1),
            Some(_) => self.base.saturating_add(self.places),
        }
    }

    /// Returns the number of places if `place` is used, too.
    fn places_with(&self, place: u64) -> u64 {
        place.saturating_sub(self.base).saturating_add(1).max(self.places)
    }
}

/// The result of a flush.
#[derive(Clone, Debug)]
pub(crate) struct Flushed {
    /// The segments that a sync must cover.
    pub(crate) segments: Vec<Ino>,
    version: u64,
}

/// The writer of a log.
#[derive(Debug)]
pub(crate) struct Log {
    files: Files,
    options: LogOptions,
    volume: [u8; 16],
    /// The current segment; `None` until there is room for it.
    segment: Option<(u32, Node)>,
    /// Bytes from the start of the current segment for which space is allocated.
    reserved: u64,
    last_number: u32,
    /// The segments in the volume, in ascending order.
    kept: Vec<u32>,
    indexes: Indexes,
    /// The inodes that users may not reach.
    inos: OwnedInodes,
    block: BlockBuilder,
    /// Number of lost records that marks in the current block report.
    block_lost: u64,
    tail: Tail,
    /// Full blocks that are not written, and the place of the first one.
    full: Vec<u8>,
    full_at: u64,
    full_records: u64,
    next: u64,
    actors: HashMap<Actor, ActorId>,
    next_actor: u32,
    /// Number of writes.
    writes: u64,
    /// The sequence number up to which the current block is written.
    written_to: u64,
    last_time: i64,
    pub(crate) opens: Opens,
    pending_since: Option<i64>,
    lost: u64,
    /// Segments with data that no sync has covered.
    unsynced: Vec<Ino>,
}

/// The files of a log that is not open yet. A kernel has little stack, and a [`Log`] is large: no step that uses the volume
/// has one on the stack.
#[derive(Debug)]
pub(crate) struct LogParts {
    files: Files,
    options: LogOptions,
    volume: [u8; 16],
    kept: Vec<u32>,
    indexes: Indexes,
    pub(crate) inos: OwnedInodes,
}

impl LogParts {
    /// Finds the files of the log of `fs`, and creates its directory if it does not exist.
    pub(crate) fn of(fs: &Arc<dyn FileSystem>, directory: &str, options: LogOptions) -> Result<Self> {
        let files = Files::open(Arc::clone(fs), directory)?;
        let kept = files.numbers(segment_number)?;
        let inos = OwnedInodes::default();
        inos.insert(files.dir());
        for &number in &kept {
            inos.insert(files.find(&segment_name(number))?.ino());
        }
        let indexes = Indexes::of(&files, &kept, &inos)?;
        let (_, size) = files.room()?;
        let each = size.checked_div(VOLUME_PART.saturating_mul(options.segments.max(1).into())).unwrap_or(0);
        let segment = options.segment.min(segment_with_index(each)).max(BLOCK_LEN.saturating_mul(4));
        let options = LogOptions { segment, segments: options.segments.max(2), ..options };
        Ok(Self { files, options, volume: fs.info().probe.uuid.unwrap_or_default(), kept, indexes, inos })
    }

    pub(crate) fn dir(&self) -> Ino {
        self.files.dir()
    }
}

impl Log {
    /// Returns a log that records nothing before [`begin`](Self::begin).
    pub(crate) fn new(parts: LogParts) -> Self {
        let LogParts { files, options, volume, kept, indexes, inos } = parts;
        Self {
            files,
            options,
            volume,
            segment: None,
            reserved: 0,
            last_number: kept.last().copied().unwrap_or(0),
            kept,
            indexes,
            inos,
            block: BlockBuilder::default(),
            block_lost: 0,
            tail: Tail::at(1),
            full: Vec::new(),
            full_at: 1,
            full_records: 0,
            next: 1,
            actors: HashMap::new(),
            next_actor: 0,
            writes: 0,
            written_to: 0,
            last_time: 0,
            opens: Opens::default(),
            pending_since: None,
            lost: 0,
            unsynced: Vec::new(),
        }
    }

    /// Continues the newest segment, or creates one, and adds the first records.
    pub(crate) fn begin(&mut self, now: i64) -> Result<()> {
        let had_crashed = self.resume()?;
        self.last_time = now;
        if self.options.adopts {
            self.push(now, &Record::Mark(Mark::Upgrade));
            return Ok(());
        }
        if !self.has_no_room() && self.segment.is_none() {
            // Without a segment the first records wait, as on a full volume.
            let _ = self.begin_segment();
        }
        if had_crashed {
            self.push(now, &Record::Mark(Mark::Crash));
        }
        self.push(now, &Record::Mark(Mark::Mount { boot: self.options.boot }));
        Ok(())
    }

    /// Continues the newest segment. Returns whether the log has no end.
    fn resume(&mut self) -> Result<bool> {
        let Some(&number) = self.kept.iter().rev().find(|&&number| number != 0) else { return Ok(false) };
        let node = self.files.find(&segment_name(number))?;
        let bytes = Files::read(&node, SEGMENT_MAX)?;
        let mut entries = Entries::new(&bytes);
        let mut ended = false;
        for entry in entries.by_ref() {
            ended = entry.is_ok_and(|entry| entry.record == Record::Mark(Mark::Unmount));
        }
        let first = Header::decode(&bytes).map_or(1, |header| header.first);
        self.next = entries.next_sequence().max(first);
        if !ended && !self.options.adopts {
            self.next = self.next.saturating_add(CRASH_GAP);
        }
        // Blocks of zeros were allocated and never written.
        let blocks = bytes.chunks(BLOCK).rposition(|block| block.iter().any(|&byte| byte != 0));
        self.tail = Tail::at(to_u64(blocks.map_or(1, |last| last.saturating_add(1))));
        self.full_at = self.tail.base;
        if self.options.adopts {
            let allocated = node.attr().map_or(0, |attr| attr.blocks.saturating_mul(512));
            self.reserved = allocated.min(self.options.segment);
        } else {
            self.reserve(&node);
        }
        self.segment = Some((number, node));
        Ok(!ended)
    }

    /// Allocates space for the whole segment, so that its records have room on a volume that becomes full. A format
    /// without holes gives space to a file of this size. Other formats that cannot allocate space in advance take it with
    /// each write.
    fn reserve(&mut self, node: &Node) {
        self.reserved = 0;
        let segment = self.options.segment;
        let grows = || {
            self.files.has_no_holes()
                && (node.attr().is_ok_and(|attr| attr.size >= segment) || node.truncate(segment).is_ok())
        };
        let allocated = node.attr().map_or(0, |attr| attr.blocks.saturating_mul(512));
        if self.files.has_room_for(segment.saturating_sub(allocated))
            && (node.allocate(0..segment, Size::Keep).is_ok() || grows())
        {
            self.reserved = segment;
        }
    }

    pub(crate) fn status(&self) -> LogStatus {
        LogStatus { next: self.next, lost: self.lost }
    }

    /// Records something that `actor` did.
    pub(crate) fn record<'a>(&mut self, time: i64, actor: Actor, record: impl Fn(ActorId) -> Record<'a>) {
        if self.pending_since.is_some_and(|since| time.saturating_sub(since) >= PENDING_AGE) {
            self.settle_all(time);
        }
        self.add(time, actor, record);
    }

    fn add<'a>(&mut self, time: i64, actor: Actor, record: impl Fn(ActorId) -> Record<'a>) {
        let id = self.actor(time, actor);
        if self.push_if_it_fits(time, &record(id)) {
            return;
        }
        // The actor is defined again if the record begins a segment.
        self.seal_block();
        let id = self.actor(time, actor);
        self.push(time, &record(id));
    }

    /// Returns the number of `actor`, and defines it first if necessary.
    fn actor(&mut self, time: i64, actor: Actor) -> ActorId {
        if let Some(&id) = self.actors.get(&actor) {
            return id;
        }
        if self.actors.len() >= ACTORS_MAX {
            self.actors.clear();
        }
        let id = ActorId(self.next_actor);
        self.next_actor = self.next_actor.wrapping_add(1);
        self.push(time, &Record::Actor { id, actor });
        self.actors.insert(actor, id);
        id
    }

    /// Adds a write to those that are recorded later.
    pub(crate) fn wrote(&mut self, time: i64, write: PendingWrite) {
        let PendingWrite { actor, file, written } = write;
        let is_full = self.opens.wrote(actor, file, &written);
        let since = *self.pending_since.get_or_insert(time);
        if is_full || time.saturating_sub(since) >= PENDING_AGE {
            self.settle_all(time);
        }
    }

    /// Records the writes to `ino` that are not recorded yet.
    pub(crate) fn settle(&mut self, time: i64, ino: Ino) {
        let writes = self.opens.take(ino);
        writes.for_each(|write| self.push_write(time, write));
    }

    /// Records all writes that are not recorded yet.
    pub(crate) fn settle_all(&mut self, time: i64) {
        self.pending_since = None;
        let writes = self.opens.take_all();
        writes.into_iter().for_each(|write| self.push_write(time, write));
    }

    fn push_write(&mut self, time: i64, write: PendingWrite) {
        let PendingWrite { actor, file, written } = write;
        self.add(time, actor, |actor| Record::Write { actor, file, written });
    }

    /// Adds a record, with the next sequence number.
    fn push(&mut self, time: i64, record: &Record<'_>) {
        if self.push_if_it_fits(time, record) {
            return;
        }
        self.seal_block();
        if !self.push_if_it_fits(time, record) {
            (self.lost, self.next) = (self.lost.saturating_add(1), self.next.saturating_add(1));
        }
    }

    fn push_if_it_fits(&mut self, time: i64, record: &Record<'_>) -> bool {
        let fits = self.block.push(self.next, time, record);
        if fits {
            (self.next, self.last_time) = (self.next.saturating_add(1), time);
        }
        fits
    }

    /// Moves the current block to the full ones, and begins another block.
    fn seal_block(&mut self) {
        let place = self.tail.next_place();
        let expected = self.full_at.saturating_add(to_u64(self.full.len()).div_ceil(BLOCK_LEN));
        if !self.full.is_empty() && expected != place {
            self.write_full();
        }
        if self.full.is_empty() {
            self.full_at = place;
        }
        self.block.encode(&mut self.full);
        self.full_records = self.full_records.saturating_add(self.block_records());
        self.clear_block();
        self.tail = Tail::at(self.tail.base.saturating_add(self.tail.places_with(place)));
        if self.full.len() >= BUFFER || self.is_segment_full() {
            self.write_full();
        }
    }

    fn is_segment_full(&self) -> bool {
        self.tail.base >= self.options.segment.checked_div(BLOCK_LEN).unwrap_or(1)
    }

    /// Writes the full blocks.
    fn write_full(&mut self) {
        let bytes = core::mem::take(&mut self.full);
        let records = core::mem::take(&mut self.full_records);
        if bytes.is_empty() {
            return;
        }
        let written = self.write(self.full_at, &bytes);
        self.full = bytes;
        self.full.clear();
        // The records of a block that is not written refer to actors that this segment defines.
        if self.is_segment_full() && self.block.is_empty() {
            self.end_segment();
        }
        match written {
            Ok(()) => self.note_loss(),
            Err(_) => self.lost = self.lost.saturating_add(records),
        }
    }

    /// Records how many records were lost, if that is possible now. The number is kept while there is no
    /// segment: the block of a mark would not be empty, and only an empty block lets a segment end.
    fn note_loss(&mut self) {
        if self.lost == 0 || self.segment.is_none() {
            return;
        }
        let mark = Record::Mark(Mark::Lost(self.lost));
        if self.push_if_it_fits(self.last_time, &mark) {
            self.block_lost = self.block_lost.saturating_add(core::mem::take(&mut self.lost));
        }
    }

    /// Returns the number of records that are lost if the current block is: its own, and those that its marks report.
    fn block_records(&self) -> u64 {
        self.block.count().saturating_add(self.block_lost)
    }

    fn clear_block(&mut self) {
        self.block.clear();
        self.block_lost = 0;
    }

    fn has_no_room(&self) -> bool {
        !self.files.has_room_for(to_u64(BUFFER))
    }

    /// Writes blocks to the current segment, which is created if necessary.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at.saturating_mul(BLOCK_LEN).saturating_add(to_u64(bytes.len()));
        if (self.segment.is_none() || end > self.reserved) && self.has_no_room() {
            return Err(Error::NoSpace);
        }
        let node = match &self.segment {
            Some((_, node)) => node.clone(),
            None => self.begin_segment()?,
        };
        Files::write(&node, at.saturating_mul(BLOCK_LEN), bytes)?;
        self.writes = self.writes.saturating_add(1);
        if !self.unsynced.contains(&node.ino()) {
            self.unsynced.push(node.ino());
        }
        Ok(())
    }

    /// Creates a segment. Removes the oldest one if there are too many.
    fn begin_segment(&mut self) -> Result<Node> {
        while self.kept.iter().filter(|&&number| number != 0).count() >= to_count(self.options.segments) {
            self.remove_oldest()?;
        }
        let number = self.last_number.saturating_add(1);
        let name = segment_name(number);
        let node = match self.files.create(&name) {
            Err(Error::Exists) => self.files.find(&name)?,
            created => created?,
        };
        self.inos.insert(node.ino());
        self.reserve(&node);
        let header = Header { volume: self.volume, number, first: self.next, boot: self.options.boot };
        Files::write(&node, 0, &header.encode())?;
        self.last_number = number;
        self.kept.push(number);
        self.segment = Some((number, node.clone()));
        Ok(node)
    }

    /// Removes the oldest segment after adding its edges to the compacted ones. Its stack is not in use while a
    /// segment is created.
    #[inline(never)]
    fn remove_oldest(&mut self) -> Result<()> {
        let Some(&number) = self.kept.iter().find(|&&number| number != 0) else { return Ok(()) };
        let node = self.files.find(&segment_name(number))?;
        // If the edges cannot be kept, the segment is removed nevertheless: the bound is more important.
        let _ = self.compacted(&node).and_then(|edges| self.replace_edges(&edges));
        // A crash between the removals leaves a segment without an index, which is valid.
        self.indexes.remove(number, &self.files, &self.inos);
        self.files.remove(&segment_name(number))?;
        self.kept.retain(|&kept| kept != number);
        self.inos.remove(node.ino());
        self.unsynced.retain(|&ino| ino != node.ino());
        Ok(())
    }

    /// Returns the file of edges with those of a segment. Its oldest half is dropped if it exceeds the length of a segment.
    /// The edges are not on the stack while files are changed.
    #[inline(never)]
    fn compacted(&self, segment: &Node) -> Result<Vec<u8>> {
        let limit = obento_base::wire::to_usize(self.options.segment);
        let mut compaction = Compaction::new(limit);
        match self.files.find(EDGES) {
            Err(Error::NotFound) => {}
            found => compact(&mut compaction, &found?, limit.saturating_mul(2))?,
        }
        compact(&mut compaction, segment, SEGMENT_MAX)?;
        let header = Header { volume: self.volume, number: 0, first: 0, boot: [0; 16] };
        Ok(compaction.finish(&header))
    }

    /// Replaces the file of edges.
    #[inline(never)]
    fn replace_edges(&mut self, edges: &[u8]) -> Result<()> {
        if self.files.find(NEW_EDGES).is_ok() {
            self.files.remove(NEW_EDGES)?;
        }
        let node = self.files.create(NEW_EDGES)?;
        self.inos.insert(node.ino());
        Files::write(&node, 0, edges)?;
        // The new edges are durable before their name replaces the old ones.
        node.sync()?;
        if let Ok(old) = self.files.find(EDGES) {
            self.inos.remove(old.ino());
        }
        self.files.rename(NEW_EDGES, EDGES)?;
        if !self.kept.contains(&0) {
            self.kept.insert(0, 0);
        }
        Ok(())
    }

    /// Ends the current segment. The next write begins another one.
    fn end_segment(&mut self) {
        let ended = self.segment.take();
        self.indexes.remove_orphans(&self.files, &self.inos);
        if let Some((number, node)) = ended {
            self.indexes.add(number, &node, &self.files, self.options.segment, &self.inos);
        }
        self.tail = Tail::at(1);
        self.full_at = 1;
        // A segment is decoded without the others.
        self.actors.clear();
    }

    /// Writes all records. Returns what a sync must cover.
    pub(crate) fn flush(&mut self, time: i64) -> Flushed {
        self.settle_all(time);
        self.write_full();
        let is_written = self.written_to == self.next && self.tail.newest.is_some();
        if !self.block.is_empty() && !is_written {
            self.write_tail();
            self.written_to = self.next;
            if self.tail.newest.is_some() {
                // The next sync writes the mark.
                self.note_loss();
            }
        }
        Flushed { segments: self.unsynced.clone(), version: self.writes }
    }

    /// Returns the files of the log as they are now, with all records so far.
    pub(crate) fn files(&mut self, time: i64) -> Result<LogFiles> {
        self.flush(time);
        let current = self.segment.as_ref().map(|(number, _)| *number);
        let mut files = LogFiles::default();
        for &number in &self.kept {
            let name = segment_name(number);
            let file = self.files.find(&name)?;
            match current == Some(number) {
                true => files.current = Some((name, Files::read(&file, SEGMENT_MAX)?)),
                false => files.complete.push((name, file)),
            }
            let index = index_name(number);
            // A reader derives an index that is missing.
            files.complete.extend(self.files.find(&index).ok().map(|file| (index, file)));
        }
        Ok(files)
    }

    /// Writes the current block, which is not full.
    fn write_tail(&mut self) {
        let place = self.tail.next_place();
        let bytes = self.block.take_encoded();
        let written = self.write(place, &bytes);
        self.block.restore(bytes);
        match written {
            Ok(()) => {
                self.tail = Tail {
                    newest: Some(place),
                    version: self.writes,
                    is_durable: false,
                    places: self.tail.places_with(place),
                    ..self.tail
                };
            }
            Err(_) => {
                self.lost = self.lost.saturating_add(self.block_records());
                self.clear_block();
                self.tail = Tail::at(self.tail.base.saturating_add(self.tail.places));
            }
        }
    }

    /// Notes that a sync has covered what `flush` wrote.
    pub(crate) fn synced(&mut self, flushed: &Flushed) {
        if flushed.version == self.writes {
            self.unsynced.retain(|ino| !flushed.segments.contains(ino));
        }
        if flushed.version == self.tail.version {
            self.tail.is_durable = true;
        }
    }

    /// Records the end, and writes everything.
    pub(crate) fn end(&mut self, time: i64) {
        self.settle_all(time);
        self.note_loss();
        self.push(time, &Record::Mark(Mark::Unmount));
        self.flush(time);
    }
}

/// Adds the records of the first `max` bytes of a segment. Its stack is not in use while the result is encoded.
#[inline(never)]
fn compact(compaction: &mut Compaction, segment: &Node, max: usize) -> Result<()> {
    let mut next = 0;
    Files::each_part(segment, max, &mut |blocks| next = compaction.add_blocks(blocks, next))
}

fn to_count(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Returns a time in microseconds since 1970.
pub(crate) fn micros(time: Timestamp) -> i64 {
    let part = Duration::from_nanos(time.nanos().into()).subsec_micros();
    time.secs().saturating_mul(1_000_000).saturating_add(part.into())
}
