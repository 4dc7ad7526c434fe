//! Reads tar archives of all programs from a stream: ustar, GNU, pax, v7, and every dialect of sparse files.
//!
//! Layout: see [`super`]. GNU's own headers (types `L`, `K`, `S`) are in the tar manual, "GNU Extensions to the Archive
//! Format", and "Storing Sparse Files" for the maps. `SCHILY.*` is in star(5), and `LIBARCHIVE.*` in libarchive's
//! tar(5).
//!
//! Invariant: an archive is hostile. Memory is bounded by the bytes that were read, never by the sizes in a
//! header, and by [`MAX_RECORDS`], [`MAX_GLOBAL`], [`MAX_NAME`] and [`MAX_RUNS`]. A header with a wrong
//! checksum is not used. The caller limits what all members need together: [`Member::additional`].
//! Invariant: after damage, the reader searches for the next valid header, so that later members are found.

mod acl;
mod field;
mod member;
mod pax;
mod sparse;

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use obento_base::Quantity;
use obento_base::wire::{to_u64, to_usize};

use super::header::BLOCK;
use crate::interrupt;
pub use acl::{ACL_WORDS, AclName, acl_from_words};
pub use member::{FS_BLOCK, Member, MemberKind};
use pax::{GlobalRecords, MemberRecords, PaxRecords};

/// The most bytes of extended headers before one member: hundreds of attributes of 64 KiB.
const MAX_RECORDS: u64 = 16 << 20;
/// The most bytes of the records of all global extended headers together, which count for each member:
/// comments, common owners and times.
const MAX_GLOBAL: usize = 64 << 10;
/// The most bytes of a long name: the longest path that `obento-vfs` resolves.
const MAX_NAME: u64 = 64 << 10;
/// The most data runs of one sparse file.
const MAX_RUNS: usize = 1 << 20;
const TOO_LONG: &str = "the extended header of the member is too long";

type Block = [u8; BLOCK];

/// The reason why an archive, or a part of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The input failed.
    #[error("cannot read: {0}")]
    Input(io::Error),
    /// The archive ends within a member.
    #[error("the archive ends too early, after {} of tar data", Quantity::new(*offset, "byte"))]
    Truncated {
        /// The number of existing bytes.
        offset: u64,
    },
    /// A part of the archive is damaged. Reading can continue.
    #[error("the archive is damaged at byte {offset}: {reason}")]
    Damaged {
        /// The offset.
        offset: u64,
        /// The reason.
        reason: &'static str,
    },
    /// One member cannot be represented or decoded. Reading can continue with the next member.
    #[error("{reason}")]
    Unfit {
        /// The path of the member as stored in the archive.
        path: Vec<u8>,
        /// The reason.
        reason: &'static str,
    },
}

/// The values from headers before a member.
#[derive(Default)]
struct Ahead {
    records: PaxRecords,
    /// GNU's long names.
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    /// The reason why the member cannot be read.
    flaw: Option<&'static str>,
}

impl Ahead {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.path.is_none() && self.link.is_none() && self.flaw.is_none()
    }
}

/// Reads an archive from front to back.
pub struct TarReader<R> {
    input: R,
    /// Bytes read.
    offset: u64,
    /// Remaining bytes of the current member's data.
    left: u64,
    /// Padding after the data.
    padding: u64,
    /// Records for all later members.
    global: Arc<GlobalRecords>,
    /// Whether the last header was damaged, so that the reader searches for the next one.
    is_lost: bool,
    is_ended: bool,
}

impl<R: Read> TarReader<R> {
    /// Reads `input`, which is not compressed.
    pub fn new(input: R) -> Self {
        Self {
            input,
            offset: 0,
            left: 0,
            padding: 0,
            global: Arc::default(),
            is_lost: false,
            is_ended: false,
        }
    }

    /// Returns the input.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Returns the input, to change its state. Reading from it would skip bytes of the archive.
    pub fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    /// Consumes the reader and returns the input.
    pub fn into_input(self) -> R {
        self.input
    }

    /// Returns the number of bytes that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether zeros marked the end of the archive. Without the mark, members may be missing.
    pub fn has_end(&self) -> bool {
        self.is_ended
    }

    /// Reads and ignores the bytes after the end. For a compressed stream, this verifies the checksum. Fails with
    /// `Input`, and with `Damaged` if the end mark is the first block and is not followed by zeros only, as in an
    /// image of a file system, which would otherwise be an empty archive.
    pub fn finish(&mut self) -> Result<(), TarError> {
        let is_empty = self.is_empty();
        let mut buffer = vec![0; 64 << 10];
        loop {
            // A device of zeros has no end.
            if interrupt::is_requested() {
                return Err(TarError::Input(interrupt::stopped()));
            }
            let len = match self.input.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.map_err(TarError::Input)?,
            };
            if len == 0 {
                return Ok(());
            }
            if is_empty && buffer.iter().take(len).any(|&byte| byte != 0) {
                return Err(TarError::Damaged {
                    offset: 0,
                    reason: "other data follows the end mark of an empty archive",
                });
            }
        }
    }

    /// Returns whether nothing was read but the end mark.
    pub fn is_empty(&self) -> bool {
        self.is_ended && self.offset == to_u64(BLOCK)
    }

    /// Returns the next member, and skips the unread data of the previous one. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// `Input` and `Truncated` end the archive. After `Damaged` and `Unfit` the next call continues.
    pub fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        self.skip()?;
        let mut ahead = Ahead::default();
        loop {
            let Some(block) = self.header()? else {
                let is_half = !ahead.is_empty();
                return if is_half { Err(TarError::Truncated { offset: self.offset }) } else { Ok(None) };
            };
            let size = field::number(&block[124..136]);
            let Some(size) = size.and_then(|size| u64::try_from(size).ok()) else {
                return Err(self.lost("an invalid size"));
            };
            match block[156] {
                // A later extended header replaces an earlier one, as in GNU tar.
                b'x' | b'X' => ahead.records = self.records(size, &mut ahead.flaw)?,
                b'g' => {
                    let bytes = self.extended(size, MAX_RECORDS)?;
                    let bytes = bytes.ok_or_else(|| self.damaged(TOO_LONG))?;
                    let global = Arc::make_mut(&mut self.global);
                    let read = global.read(&bytes);
                    if global.bytes() > MAX_GLOBAL {
                        self.global = Arc::default();
                        return Err(self.damaged("the global extended headers are too long"));
                    }
                    read.map_err(|reason| self.damaged(reason))?;
                }
                b'L' => ahead.path = self.long_name(size, &mut ahead.flaw)?,
                b'K' => ahead.link = self.long_name(size, &mut ahead.flaw)?,
                // A volume label, and names in a former format of GNU tar.
                b'V' | b'N' => {
                    self.expect(size);
                    self.skip()?;
                }
                _ => return self.member(&block, size, ahead).map(Some),
            }
        }
    }

    /// Reads an extended header. A malformed one makes its member unreadable; otherwise the member would get
    /// its short name.
    fn records(&mut self, size: u64, flaw: &mut Option<&'static str>) -> Result<PaxRecords, TarError> {
        let mut records = PaxRecords::default();
        let read = match self.extended(size, MAX_RECORDS)? {
            Some(bytes) => records.read(&bytes),
            None => Err(TOO_LONG),
        };
        *flaw = read.err();
        Ok(records)
    }

    fn long_name(&mut self, size: u64, flaw: &mut Option<&'static str>) -> Result<Option<Vec<u8>>, TarError> {
        let bytes = self.extended(size, MAX_NAME)?;
        if bytes.is_none() {
            *flaw = Some(TOO_LONG);
        }
        Ok(bytes.map(|bytes| field::text(&bytes).to_vec()))
    }

    fn member(&mut self, block: &Block, size: u64, ahead: Ahead) -> Result<Member, TarError> {
        let records = MemberRecords { own: ahead.records, global: self.global.clone() };
        let names = member::Names::new(block, &records, ahead.path, ahead.link);
        let size = match records.number("size") {
            None => size,
            Some(Some(size)) => size,
            Some(None) => return Err(self.lost("an invalid size")),
        };
        let kind = names.kind(block);
        let stored = if member::has_data(block, kind, &records) { size } else { 0 };
        self.expect(stored);
        let path = names.path.clone();
        let unfit = |reason| TarError::Unfit { path: path.clone(), reason };
        let is_long = names.lengths().any(|len| to_u64(len) > MAX_NAME);
        if let Some(flaw) =
            ahead.flaw.or(is_long.then_some("the path or the link target of the member is too long"))
        {
            return Err(unfit(flaw));
        }
        let mut member = Member::new(block, &records, names, kind).map_err(unfit)?;
        member.size = if member.kind.is_file() { stored } else { 0 };
        if block[156] == b'S' {
            self.old_map(block, &mut member)?;
        } else if member.kind == MemberKind::File {
            self.pax_map(&records, &mut member)?;
        }
        Ok(member)
    }

    /// Reads the next bytes of the current member's data, without holes. Returns 0 at the end. Fails with `Input` or
    /// `Truncated`.
    pub fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        let len = buf.len().min(to_usize(self.left));
        if len == 0 {
            return Ok(0);
        }
        let read = self.read_some(buf.get_mut(..len).unwrap_or_default())?;
        if read == 0 {
            return Err(self.truncated());
        }
        self.left -= to_u64(read);
        Ok(read)
    }

    /// Returns the next header that does not consist of zeros, or `None` at the end.
    fn header(&mut self) -> Result<Option<Block>, TarError> {
        let mut block = [0; BLOCK];
        loop {
            if self.is_ended {
                return Ok(None);
            }
            let at = self.offset;
            match self.fill(&mut block)? {
                0 => return Ok(None),
                BLOCK => {}
                _ => return Err(self.truncated()),
            }
            if block.iter().all(|&byte| byte == 0) {
                // Two blocks of zeros end an archive. One block alone is also accepted as the end.
                self.is_ended = true;
                return Ok(None);
            }
            if field::is_sound(&block) {
                self.is_lost = false;
                return Ok(Some(block));
            }
            if !std::mem::replace(&mut self.is_lost, true) {
                return Err(TarError::Damaged { offset: at, reason: "the checksum of a header is wrong" });
            }
        }
    }

    /// Reads the data of a header that belongs to the next member. Skips the data and returns `None` if it is
    /// longer than `max`.
    fn extended(&mut self, size: u64, max: u64) -> Result<Option<Vec<u8>>, TarError> {
        self.expect(size);
        if size > max {
            self.skip()?;
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            match self.read_data(&mut part)? {
                0 => break,
                len => bytes.extend_from_slice(part.get(..len).unwrap_or_default()),
            }
        }
        self.skip()?;
        Ok(Some(bytes))
    }

    fn expect(&mut self, size: u64) {
        self.left = size;
        self.padding = size.checked_next_multiple_of(to_u64(BLOCK)).map_or(0, |end| end - size);
    }

    /// Returns the error for a truncated archive. Later calls find the end.
    fn truncated(&mut self) -> TarError {
        (self.left, self.padding, self.is_ended) = (0, 0, true);
        TarError::Truncated { offset: self.offset }
    }

    /// Returns the error for damage in a member whose data can be skipped.
    fn damaged(&self, reason: &'static str) -> TarError {
        TarError::Damaged { offset: self.offset, reason }
    }

    /// Returns the error for damage in a header: the end of its data is unknown.
    fn lost(&mut self, reason: &'static str) -> TarError {
        (self.left, self.padding) = (0, 0);
        self.is_lost = true;
        TarError::Damaged { offset: self.offset.saturating_sub(to_u64(BLOCK)), reason }
    }

    fn skip(&mut self) -> Result<(), TarError> {
        let mut part = [0; 16 << 10];
        self.left = self.left.saturating_add(std::mem::take(&mut self.padding));
        while self.left > 0 {
            self.read_data(&mut part)?;
        }
        Ok(())
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        let mut len = 0;
        while let Some(rest) = buf.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match self.read_some(rest)? {
                0 => break,
                more => len += more,
            }
        }
        Ok(len)
    }

    fn read_some(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        loop {
            match self.input.read(buf) {
                Ok(len) => {
                    self.offset = self.offset.saturating_add(to_u64(len));
                    return Ok(len);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if crate::compressed::is_truncation(&error) => return Err(self.truncated()),
                Err(error) => return Err(TarError::Input(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
