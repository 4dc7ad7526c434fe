//! Reading tar archives from a stream, whoever wrote them: ustar, GNU, pax, v7; every dialect of sparse files.
//!
//! Layout: see [`super`]; GNU's own headers (types `L`, `K`, `S`) in the tar manual, "GNU Extensions to the Archive
//! Format", and "Storing Sparse Files" for the maps; star(5) for `SCHILY.*`, libarchive's tar(5) for `LIBARCHIVE.*`.
//!
//! Invariant: an archive is hostile. Memory is bounded by what was read, never by what a header claims, and that by
//! [`MAX_RECORDS`], [`MAX_GLOBAL`], [`MAX_NAME`] and [`MAX_RUNS`]; nothing is done with a header whose checksum is wrong.
//! Invariant: after damage the next sound header is looked for, so that the members behind it are found.

mod acl;
mod field;
mod member;
mod pax;
mod sparse;

use std::io::{self, ErrorKind, Read};

use obento_base::wire::{to_u64, to_usize};

use super::header::BLOCK;
pub use acl::{ACL_WORDS, AclName, acl_from_words};
pub use member::{Member, MemberKind};
use pax::Records;

/// Bytes of extended headers before one member: attributes of 64 KiB, hundreds of them.
const MAX_RECORDS: u64 = 16 << 20;
/// Bytes of the records of all global extended headers together, which count for each member: comments, common owners and times.
const MAX_GLOBAL: usize = 64 << 10;
/// Bytes of a long name: what `obento-vfs` walks at most.
const MAX_NAME: u64 = 64 << 10;
/// Runs of data of one sparse file.
const MAX_RUNS: usize = 1 << 20;
const TOO_LONG: &str = "its extended header is longer than any that a file needs";

type Block = [u8; BLOCK];

/// Why an archive cannot be read further, or a part of it cannot be.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The stream below failed.
    #[error("cannot read: {0}")]
    Input(io::Error),
    /// The archive ends within a member.
    #[error("the archive ends too early, after {offset} bytes")]
    Truncated {
        /// Bytes that are there.
        offset: u64,
    },
    /// Something in it is not as it should be. What follows can be read.
    #[error("the archive is damaged at byte {offset}: {reason}")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// One member cannot be represented or decoded. The members after it can be read.
    #[error("{reason}")]
    Unfit {
        /// The path of the member, as the archive has it.
        path: Vec<u8>,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// What headers before a member say about it.
#[derive(Default)]
struct Ahead {
    records: Records,
    /// GNU's long names.
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    /// Why the member cannot be read.
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
    /// Bytes of the current member's data that are left.
    left: u64,
    /// Padding that follows them.
    padding: u64,
    /// Records for all members that follow.
    global: Records,
    /// Whether the last header was damaged, so that the next is looked for.
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
            global: Records::default(),
            is_lost: false,
            is_ended: false,
        }
    }

    /// Returns where the archive is read from.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Returns what the archive is read from.
    pub fn into_input(self) -> R {
        self.input
    }

    /// Bytes of the archive that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the end that was reached is marked as such, by zeros; if not, nobody knows whether members are missing.
    pub fn has_end(&self) -> bool {
        self.is_ended
    }

    /// Reads what follows the end, which means nothing; a packed stream is compared with its checksum there. Errors: Input.
    pub fn finish(&mut self) -> Result<(), TarError> {
        io::copy(&mut self.input, &mut io::sink()).map(drop).map_err(TarError::Input)
    }

    /// Returns the next member; skips what was not read of the one before. `None` at the end.
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
                return Err(self.lost("a size that is none"));
            };
            match block[156] {
                // A later extended header replaces an earlier one, as in GNU tar.
                b'x' | b'X' => ahead.records = self.records(size, &mut ahead.flaw)?,
                b'g' => {
                    let bytes = self.extended(size, MAX_RECORDS)?;
                    let bytes = bytes.ok_or_else(|| self.damaged(TOO_LONG))?;
                    self.global.read(&bytes).map_err(|reason| self.damaged(reason))?;
                    if self.global.bytes() > MAX_GLOBAL {
                        self.global = Records::default();
                        return Err(self.damaged("global extended headers longer than any archive needs"));
                    }
                }
                b'L' => ahead.path = self.long_name(size, &mut ahead.flaw)?,
                b'K' => ahead.link = self.long_name(size, &mut ahead.flaw)?,
                // A label of the volume, and names that GNU tar kept in the past.
                b'V' | b'N' => {
                    self.expect(size);
                    self.skip()?;
                }
                _ => return self.member(&block, size, ahead).map(Some),
            }
        }
    }

    /// Reads an extended header. A malformed one costs the member that it describes, which is read under its short name otherwise.
    fn records(&mut self, size: u64, flaw: &mut Option<&'static str>) -> Result<Records, TarError> {
        let mut records = Records::default();
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
        let records = self.global.with(ahead.records);
        let names = member::Names::new(block, &records, ahead.path, ahead.link);
        let size = match records.number("size") {
            None => size,
            Some(Some(size)) => size,
            Some(None) => return Err(self.lost("a size that is none")),
        };
        let kind = names.kind(block);
        let stored = if member::has_data(block, kind, &records) { size } else { 0 };
        self.expect(stored);
        let path = names.path.clone();
        let unfit = |reason| TarError::Unfit { path: path.clone(), reason };
        let is_long = names.lengths().any(|len| to_u64(len) > MAX_NAME);
        if let Some(flaw) = ahead.flaw.or(is_long.then_some("its path, or that of its original, is too long"))
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

    /// Reads the next bytes of the current member's data, without holes; 0 at their end. Errors: Input; Truncated.
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

    /// The next header that is none of zeros. `None` at the end.
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
                // Two of them end an archive; whoever wrote one alone meant that too.
                self.is_ended = true;
                return Ok(None);
            }
            if field::is_sound(&block) {
                self.is_lost = false;
                return Ok(Some(block));
            }
            if !std::mem::replace(&mut self.is_lost, true) {
                return Err(TarError::Damaged { offset: at, reason: "a header whose checksum is wrong" });
            }
        }
    }

    /// Reads the data of a header that belongs to the next member; skips it and returns `None` if it is longer than `max`.
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

    /// The archive has ended, which is told once.
    fn truncated(&mut self) -> TarError {
        (self.left, self.padding, self.is_ended) = (0, 0, true);
        TarError::Truncated { offset: self.offset }
    }

    /// Damage in a member whose data can be skipped.
    fn damaged(&self, reason: &'static str) -> TarError {
        TarError::Damaged { offset: self.offset, reason }
    }

    /// Damage in a header: where its data ends is not known.
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
