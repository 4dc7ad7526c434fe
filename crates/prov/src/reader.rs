//! The segments in a volume that is not recorded at the moment, for reading.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Name, Result};
use obento_driver::{Cookie, DirEntry};
use obento_vfs::{Caller, Node, Vfs};

use crate::block::BLOCK;
use crate::index::{INDEX_MAX, Index, IndexDefect, Stamp, index_name, index_number};
use crate::recorded::DIRECTORY;
use crate::segment::{segment_name, segment_number};

/// Longest segment that is read. A longer file is damaged or hostile.
const SEGMENT_MAX: u64 = 1 << 28;

/// The segments of the log of a volume.
#[derive(Debug)]
pub struct Segments {
    dir: Node,
    /// The numbers in ascending order; 0 contains the compacted edges of removed segments.
    numbers: Vec<u32>,
    /// The numbers of the segments whose indexes exist, in ascending order.
    indexes: Vec<u32>,
}

impl Segments {
    /// Returns the segments of the log in the root of a volume, or `None` if the volume has no log.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: a file has the name of the directory of the log.
    /// 2. The errors of the volume.
    pub fn of(vfs: &Vfs) -> Result<Option<Self>> {
        let name = Name::new(DIRECTORY.as_bytes()).map_err(|_| Error::Invalid)?;
        let dir = match vfs.root().lookup(name) {
            Err(Error::NotFound) => return Ok(None),
            found => found?,
        };
        let (mut numbers, mut indexes) = (Vec::new(), Vec::new());
        dir.read_dir(Cookie::START, &mut |entry: Result<DirEntry<'_>>| {
            if let Ok(entry) = entry {
                numbers.extend(segment_number(entry.name.as_bytes()));
                indexes.extend(index_number(entry.name.as_bytes()));
            }
            core::ops::ControlFlow::Continue(())
        })?;
        for found in [&mut numbers, &mut indexes] {
            found.sort_unstable();
            found.dedup();
        }
        Ok(Some(Self { dir, numbers, indexes }))
    }

    /// Returns the numbers of the segments in ascending order. Segment 0 contains the compacted edges of removed
    /// segments.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Returns the bytes of a segment.
    ///
    /// # Errors
    ///
    /// 1. `FileTooBig`: the file is longer than any segment.
    /// 2. `NoMemory`.
    /// 3. The errors of the volume.
    pub fn read(&self, number: u32) -> Result<Vec<u8>> {
        self.segment(number)?.read()
    }

    pub(crate) fn segment(&self, number: u32) -> Result<Segment> {
        Segment::new(number, self.find(&segment_name(number))?)
    }

    /// Returns the index of a segment; `None` if it is missing, damaged, or older than the segment.
    pub(crate) fn index(&self, segment: &Segment) -> Option<Index> {
        let bytes = self.read_index(segment.number).ok()?;
        Index::decode(&bytes, Stamp::of_file(&segment.file).ok()??).ok()
    }

    fn read_index(&self, number: u32) -> Result<Vec<u8>> {
        let file = self.find(&index_name(number))?;
        read_all(&file, file.attr()?.size, INDEX_MAX)
    }

    /// Returns the numbers of the segments that have an index, in ascending order. The segments may be missing.
    pub fn indexes(&self) -> &[u32] {
        &self.indexes
    }

    /// Returns the defect of the index of segment `number`, if it has one. If the caller passes the bytes of the segment,
    /// which must be undamaged, also compares the index with the records.
    ///
    /// # Errors
    ///
    /// The errors of the volume when the segment or the index is read.
    pub fn index_defect(&self, number: u32, segment: Option<&[u8]>) -> Result<Option<IndexDefect>> {
        // The compacted edges have no index.
        if number == 0 || self.numbers.binary_search(&number).is_err() {
            return Ok(Some(IndexDefect::Orphan));
        }
        let bytes = match self.read_index(number) {
            // An index is much shorter than this.
            Err(Error::FileTooBig) => return Ok(Some(IndexDefect::Damaged)),
            read => read?,
        };
        let stamp = match segment {
            Some(segment) => Stamp::of(segment),
            None => Stamp::of_file(&self.segment(number)?.file)?,
        };
        let Some(stamp) = stamp else { return Ok(Some(IndexDefect::Stale)) };
        Ok(match Index::decode(&bytes, stamp) {
            Err(defect) => Some(defect),
            Ok(index) => segment
                .is_some_and(|segment| Index::of(segment, &mut |_| ()) != index)
                .then_some(IndexDefect::Wrong),
        })
    }

    /// Removes the index of segment `number` from the volume. A reader derives the index from the segment, and the next
    /// recorder writes it again.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume is not open for change.
    /// 2. The errors of the volume.
    pub fn remove_index(&self, vfs: &Vfs, number: u32) -> Result<()> {
        let name = index_name(number);
        vfs.unlink(&Caller::Owner, &self.dir, Name::new(name.as_bytes()).map_err(|_| Error::Invalid)?)
    }

    fn find(&self, name: &str) -> Result<Node> {
        self.dir.lookup(Name::new(name.as_bytes()).map_err(|_| Error::Invalid)?)
    }
}

/// A segment that is open for reading.
#[derive(Debug)]
pub(crate) struct Segment {
    number: u32,
    file: Node,
    len: u64,
}

impl Segment {
    fn new(number: u32, file: Node) -> Result<Self> {
        let len = file.attr()?.size;
        if len > SEGMENT_MAX {
            return Err(Error::FileTooBig);
        }
        Ok(Self { number, file, len })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        read_all(&self.file, self.len, SEGMENT_MAX)
    }

    /// Returns a block, which is shorter at the end of a damaged segment.
    pub(crate) fn block(&self, number: u32) -> Result<Vec<u8>> {
        let mut block = vec![0; BLOCK];
        let len = self.file.read_at(u64::from(number).saturating_mul(to_u64(BLOCK)), &mut block)?;
        block.truncate(len);
        Ok(block)
    }
}

/// Returns the `size` bytes of a file.
fn read_all(file: &Node, size: u64, max: u64) -> Result<Vec<u8>> {
    if size > max {
        return Err(Error::FileTooBig);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(to_usize(size)).map_err(|_| Error::NoMemory)?;
    bytes.resize(to_usize(size), 0);
    let len = file.read_at(0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}
