//! Directory entries, which are those of UFS: records that do not cross a boundary of 512 bytes.

use alloc::sync::Arc;
use core::ops::ControlFlow;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, FileKind, Ino, Result};

use crate::inode::Inode;
use crate::map::Place;
use crate::volume::Volume;

/// Records do not cross a multiple of this (`LFS_DIRBLKSIZ`).
const CHUNK: usize = 512;
/// Type of an entry that hides one of a lower layer (`DT_WHT`).
const WHITEOUT: u8 = 14;

/// An entry. `.` and `..` are entries, too.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub ino: u64,
    pub name: &'a [u8],
    pub kind: Option<FileKind>,
    /// Position of the next entry in the directory.
    pub next: u64,
    /// Block of the volume in units of 512 bytes, and offset in it.
    pub block: u64,
    pub offset: u32,
}

/// Returns the kind that the type of an entry means (NetBSD `sys/dirent.h`).
fn kind_of(found: u8) -> Option<FileKind> {
    FileKind::from_mode(u16::from(found).checked_shl(12)?)
}

/// Receives entries.
pub type Receiver<'f> = dyn FnMut(Result<Entry<'_>>) -> ControlFlow<()> + 'f;

impl Volume {
    /// Passes the entries of a directory from byte `from` on to `f`, including `.` and `..`.
    pub fn entries(&self, ino: Ino, inode: &Inode, from: u64, f: &mut Receiver<'_>) {
        let block = u64::from(self.super_block.block);
        let mut number = from.checked_div(block).unwrap_or(0);
        while number.saturating_mul(block) < inode.size {
            let start = number.saturating_mul(block);
            match self.place(ino, inode, number) {
                Ok(Place::Hole(len)) => {
                    let gap = Err(Corrupt::DirectoryHole { dir: ino, at: number }.into());
                    if f(gap).is_break() {
                        return;
                    }
                    number = number.saturating_add(len);
                }
                Ok(Place::At(address)) => {
                    let len = self.block_len(inode, number).min(inode.size.saturating_sub(start));
                    match self.block(address, u32::try_from(len).unwrap_or(0)) {
                        Ok(bytes) => {
                            if self.chunks(ino, (&bytes, address), start, from, f).is_break() {
                                return;
                            }
                        }
                        Err(error) => {
                            if f(Err(error)).is_break() {
                                return;
                            }
                        }
                    }
                    number = number.saturating_add(1);
                }
                Err(error) => {
                    if f(Err(error)).is_break() {
                        return;
                    }
                    number = number.saturating_add(1);
                }
            }
        }
    }

    /// Passes the entries of a block, which is at byte `start` of the directory.
    fn chunks(
        &self,
        ino: Ino,
        (bytes, address): (&Arc<[u8]>, u64),
        start: u64,
        from: u64,
        f: &mut Receiver<'_>,
    ) -> ControlFlow<()> {
        let encoding = self.super_block.encoding;
        let head = encoding.dirent_len();
        for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
            let base = index.saturating_mul(CHUNK);
            let block = self.super_block.bytes(address).saturating_add(to_u64(base)) / 512;
            let mut at = 0_usize;
            while at < chunk.len() {
                let offset = u32::try_from(at).unwrap_or(0);
                let wide = if encoding.is_64 { 8 } else { 4 };
                let len = encoding.u16(chunk, at.saturating_add(wide));
                let name_at = at.saturating_add(head);
                let (kind, name_len) = self.type_and_length(chunk, at.saturating_add(wide));
                let end = at.saturating_add(len.into());
                let name = chunk.get(name_at..name_at.saturating_add(name_len));
                let number = encoding.word(chunk, at);
                let fits = name.is_some() && end >= name_at.saturating_add(name_len);
                if usize::from(len) < head
                    || end > chunk.len()
                    || !len.is_multiple_of(4)
                    || (number != 0 && !fits)
                {
                    let damage = Corrupt::RecordLength { dir: ino, block, offset, rec_len: len.into() };
                    f(Err(damage.into()))?;
                    break;
                }
                let next = start.saturating_add(to_u64(base)).saturating_add(to_u64(end));
                // An entry that ends at `from` or before was passed already.
                if let Some(name) = name.filter(|_| number != 0 && kind != WHITEOUT && next > from) {
                    f(Ok(Entry { ino: number, name, kind: kind_of(kind), next, block, offset }))?;
                }
                at = end;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the type and the length of the name. Old entries have a length of 16 bits and no type.
    fn type_and_length(&self, chunk: &[u8], at: usize) -> (u8, usize) {
        let at = at.saturating_add(2);
        if self.super_block.has_old_entries {
            return (0, self.super_block.encoding.u16(chunk, at).into());
        }
        let byte = |at| chunk.get(at).copied().unwrap_or(0);
        (byte(at), byte(at.saturating_add(1)).into())
    }

    /// Returns the inode that a name refers to; `..` is a name.
    ///
    /// # Errors
    ///
    /// 1. `NotFound`: there is no such entry in a directory without damage.
    /// 2. The damage of the directory.
    pub fn find(&self, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Ino> {
        let mut found = Err(Error::NotFound);
        self.entries(ino, inode, 0, &mut |entry| match entry {
            Ok(entry) if entry.name == name => {
                found = Ok(Ino(entry.ino));
                ControlFlow::Break(())
            }
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                if found == Err(Error::NotFound) {
                    found = Err(error);
                }
                ControlFlow::Continue(())
            }
        });
        found
    }

    /// Returns the parent of a directory.
    pub fn parent_of(&self, ino: Ino, inode: &Inode) -> Result<Ino> {
        if ino == crate::volume::ROOT {
            return Ok(ino);
        }
        self.find(ino, inode, b"..").map_err(|error| match error {
            Error::NotFound => {
                Corrupt::EntryName { dir: ino, block: 0, offset: u32::try_from(to_usize(0)).unwrap_or(0) }
                    .into()
            }
            other => other,
        })
    }
}
