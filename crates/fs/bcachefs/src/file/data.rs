//! Reading data: from copies of extents, from keys, and from shared extents.
//!
//! Data with a checksum is read as a whole, verified, decompressed, and cached. If a copy is damaged, the next one is read.
//! Source: Linux `fs/bcachefs/io_read.c` (`__bch2_read_extent`, `__bch2_read_endio`).

use alloc::sync::Arc;
use alloc::vec;
use core::ops::{ControlFlow, Range};

use obento_base::wire::{split, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_driver::{Extent, Span};

use super::extent::{Coding, Contents, Pointer};
use crate::btree::id;
use crate::btree::key::{Key, OwnedKey, Pos};
use crate::driver::volume::Volume;
use crate::layout::super_block::SECTOR;

/// A file, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its number, for errors.
    pub ino: Ino,
    /// Number within its subvolume.
    pub number: u64,
    /// Snapshot.
    pub snapshot: u32,
    /// Size in bytes.
    pub size: u64,
}

/// An extent that covers a position, or the hole there. Positions are sectors of the file.
enum Piece {
    /// A hole up to this sector.
    Hole(u64),
    /// An extent.
    Extent(OwnedKey),
}

/// Returns the first sector of an extent.
fn start_of(pos: Pos, size: u32) -> u64 {
    pos.offset.saturating_sub(size.into())
}

impl Source {
    fn damaged(&self, field: &'static str, found: u64) -> Error {
        Corrupt::Field { structure: Structure::ExtentTree(self.ino), field, block: 0, offset: 0, found }
            .into()
    }

    /// Returns the extent or the hole at a sector.
    fn piece(&self, volume: &Volume, sector: u64) -> Result<Piece> {
        let from = Pos::new(self.number, sector.saturating_add(1), 0);
        let mut found = Ok(Piece::Hole(u64::MAX));
        volume.walk(id::EXTENTS, from, self.snapshot, &mut |key| {
            match key {
                Err(error) => found = Err(error),
                Ok(key) if key.pos.inode != self.number => {}
                Ok(key) => {
                    let start = start_of(key.pos, key.size);
                    found = Ok(if start <= sector { Piece::Extent(owned(key)) } else { Piece::Hole(start) });
                }
            }
            ControlFlow::Break(())
        });
        found
    }

    /// Returns the shared extent at a sector of its tree.
    fn shared(&self, volume: &Volume, sector: u64) -> Result<OwnedKey> {
        let mut found = Err(self.damaged("reflink_p", sector));
        volume.walk_all(id::REFLINK, Pos::new(0, sector.saturating_add(1), 0), &mut |key| {
            match key {
                Err(error) => found = Err(error),
                Ok(key) if key.pos.inode == 0 && start_of(key.pos, key.size) <= sector => {
                    found = Ok(owned(key))
                }
                Ok(_) => {}
            }
            ControlFlow::Break(())
        });
        found
    }

    /// Finds the extent at a byte, and follows a reference to a shared one. Returns the extent, the byte of it, and how
    /// many bytes of it follow.
    fn locate(&self, volume: &Volume, offset: u64) -> Result<Place> {
        let sector = offset >> 9;
        match self.piece(volume, sector)? {
            Piece::Hole(end) => {
                Ok(Place { extent: None, skip: 0, len: end.saturating_mul(SECTOR).saturating_sub(offset) })
            }
            Piece::Extent(key) => {
                let skip = offset.saturating_sub(start_of(key.pos, key.size).saturating_mul(SECTOR));
                let len = key.pos.offset.saturating_mul(SECTOR).saturating_sub(offset);
                let shared = match Contents::decode(key.borrow(), volume.device_number())? {
                    Some(Contents::Shared(first)) => first,
                    _ => return Ok(Place { extent: Some(key), skip, len }),
                };
                let target = shared.saturating_add(skip >> 9);
                let key = self.shared(volume, target)?;
                let start = start_of(key.pos, key.size);
                let inside =
                    target.saturating_sub(start).saturating_mul(SECTOR).saturating_add(skip & (SECTOR - 1));
                let rest = u64::from(key.size).saturating_mul(SECTOR).saturating_sub(inside);
                Ok(Place { skip: inside, len: len.min(rest), extent: Some(key) })
            }
        }
    }

    /// Returns the location of the data at the start of a range, which is not empty.
    pub fn map(&self, volume: &Volume, range: Range<u64>) -> Result<Extent> {
        let wanted = range.end.saturating_sub(range.start);
        if range.start >= self.size {
            return Ok(Extent { len: wanted, span: Span::Hole });
        }
        let place = self.locate(volume, range.start)?;
        let len = place.len.min(wanted).max(1);
        let Some(key) = &place.extent else { return Ok(Extent { len, span: Span::Hole }) };
        let span = match Contents::decode(key.borrow(), volume.device_number())? {
            Some(Contents::Unwritten) => Span::Unwritten,
            Some(Contents::Copies(copies)) => match copies.as_slice() {
                [Pointer { sector, is_cached: false, coding: None }] => {
                    let offset = sector.saturating_mul(SECTOR).saturating_add(place.skip);
                    volume.expect_range(self.ino, range.start, offset, len)?;
                    Span::Mapped(offset)
                }
                _ => Span::Driver,
            },
            _ => Span::Driver,
        };
        Ok(Extent { len, span })
    }

    /// Reads data of one extent, and returns the number of bytes.
    pub fn read(&self, volume: &Volume, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let wanted = self.size.saturating_sub(offset).min(to_u64(buf.len()));
        if wanted == 0 {
            return Ok(0);
        }
        let place = self.locate(volume, offset)?;
        let len = to_usize(place.len.min(wanted));
        let buf = buf.get_mut(..len).unwrap_or_default();
        let Some(key) = &place.extent else {
            buf.fill(0);
            return Ok(len);
        };
        match Contents::decode(key.borrow(), volume.device_number())? {
            Some(Contents::Unwritten) => buf.fill(0),
            Some(Contents::Inline(data)) => {
                // Only the bytes of the file are stored.
                let data = data.get(to_usize(place.skip)..).unwrap_or_default();
                let (filled, rest) = buf.split_at_mut(data.len().min(len));
                filled.copy_from_slice(data.get(..filled.len()).unwrap_or_default());
                rest.fill(0);
            }
            Some(Contents::Copies(copies)) => self.read_copies(volume, &copies, place.skip, buf)?,
            Some(Contents::Lost) => return Err(self.damaged("data lost to an earlier error", key.pos.offset)),
            Some(Contents::Shared(_)) | None => {
                return Err(self.damaged("type of an extent", key.kind.into()));
            }
        }
        Ok(len)
    }

    /// Reads the first copy that can be read.
    fn read_copies(&self, volume: &Volume, copies: &[Pointer], skip: u64, buf: &mut [u8]) -> Result<()> {
        let mut first = None;
        for copy in copies {
            let done = match copy.coding {
                None => volume.read_at(copy.sector.saturating_mul(SECTOR).saturating_add(skip), buf),
                Some(coding) => self.decoded(volume, copy, &coding).and_then(|data| {
                    let at = u64::from(coding.offset).saturating_mul(SECTOR).saturating_add(skip);
                    let data = data.get(to_usize(at)..).and_then(|data| data.get(..buf.len()));
                    buf.copy_from_slice(data.ok_or_else(|| self.damaged("offset", coding.offset.into()))?);
                    Ok(())
                }),
            };
            match done {
                Ok(()) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| self.damaged("pointers", 0)))
    }

    /// Returns the decompressed data behind a pointer.
    fn decoded(&self, volume: &Volume, copy: &Pointer, coding: &Coding) -> Result<Arc<[u8]>> {
        let key = (
            copy.sector,
            coding.sum ^ u64::from(coding.stored).rotate_left(40) ^ u64::from(coding.len).rotate_left(52),
        );
        if let Some(data) = volume.pieces().get(&key) {
            return Ok(data);
        }
        let bytes = |sectors: u32| to_usize(u64::from(sectors).saturating_mul(SECTOR));
        let mut stored = vec![0; bytes(coding.stored)];
        volume.read_at(copy.sector.saturating_mul(SECTOR), &mut stored)?;
        let (found, expected) = (coding.sum, coding.method.of(&stored) & coding.mask);
        if coding.method != crate::checksum::Method::None && found != expected {
            let ((found, _), (expected, _)) = (split(found), split(expected));
            let (structure, block) = (Structure::ExtentTree(self.ino), volume.block_of(copy.sector));
            return Err(Corrupt::Checksum { structure, block, found, expected }.into());
        }
        let mut data = vec![0; bytes(coding.len)];
        let done = coding.compression.decompress(&stored, &mut data);
        done.ok_or_else(|| self.damaged("compressed data at sector", copy.sector))?;
        Ok(volume.pieces().put(key, Arc::from(data)))
    }
}

/// A place within an extent, or within a hole.
struct Place {
    extent: Option<OwnedKey>,
    /// Byte of the extent.
    skip: u64,
    /// Bytes up to the end of the extent or hole.
    len: u64,
}

fn owned(key: Key<'_>) -> OwnedKey {
    OwnedKey { pos: key.pos, size: key.size, kind: key.kind, value: key.value.to_vec() }
}
