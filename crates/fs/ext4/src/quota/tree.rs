//! Finding and adding entries of a quota file, block by block.
//!
//! Invariant: block numbers from the file are checked before they are followed, so that a damaged file leads to an
//! error.
//! Source: Linux `fs/quota/quota_tree.c` `find_tree_dqentry`, `do_insert_tree`, `find_free_dqentry`,
//! `remove_free_dqentry`, `get_free_dqblk`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, FromZeros, IntoBytes};
use obento_base::{Corrupt, Error, Ino, Result, Structure};

use super::{BLOCK, PER_BLOCK, QuotaKind, ROOT, RawEntriesHeader, RawEntry, RawHeader, VERSION, entry};

/// A block of a quota file. It is too large for the stack of a kernel.
pub(crate) type QuotaBlock = Box<[u8; BLOCK]>;

/// Returns a copy of the block at the start of `bytes`. Fails with `Invalid` if there are fewer bytes, or with `NoMemory`.
pub(crate) fn copy_of(bytes: &[u8]) -> Result<QuotaBlock> {
    let bytes = bytes.get(..BLOCK).ok_or(Error::Invalid)?;
    let mut copy = Vec::new();
    copy.try_reserve_exact(BLOCK)?;
    copy.extend_from_slice(bytes);
    copy.into_boxed_slice().try_into().map_err(|_| Error::Invalid)
}

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The place of an entry in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryPlace {
    pub(crate) block: u32,
    /// Byte offset within the block.
    pub(crate) offset: usize,
}

/// The changed blocks of a file that gets an entry.
#[derive(Debug)]
pub(crate) struct Insertion {
    pub(crate) blocks: Vec<(u32, QuotaBlock)>,
    /// Number of blocks of the file afterwards.
    pub(crate) len: u32,
    pub(crate) place: EntryPlace,
}

/// Returns the header in block 0. Fails with `Corrupt` for a file of another kind or version.
pub(crate) fn header(kind: QuotaKind, ino: Ino, block: &[u8; BLOCK]) -> Result<RawHeader> {
    let (header, _) = RawHeader::read_from_prefix(block.as_slice()).map_err(|_| Error::Invalid)?;
    let (structure, found, expected) = (Structure::Quota(ino), header.dqh_magic.get(), kind.magic());
    if found != expected {
        let (found, expected) = (found.into(), expected.into());
        return Err(Corrupt::Magic { structure, block: 0, found, expected }.into());
    }
    if header.dqh_version.get() != VERSION {
        return Err(damage(ino, "dqh_version", 0, header.dqh_version.get()));
    }
    Ok(header)
}

/// Returns the place of the entry of `id`, if the file has one. `read` returns a block of the file. Fails with
/// `Corrupt`, or with an error of `read`.
pub(crate) fn find(
    kind: QuotaKind,
    (ino, id): (Ino, u32),
    mut read: impl FnMut(u32) -> Result<QuotaBlock>,
) -> Result<Option<EntryPlace>> {
    let blocks = header(kind, ino, &*read(0)?)?.dqi_blocks.get();
    let mut node = ROOT;
    for digit in id.to_be_bytes() {
        let below = number_at(&*read(node)?, digit);
        if below == 0 {
            return Ok(None);
        }
        node = checked(ino, "quota tree", below, blocks)?;
    }
    let bytes = read(node)?;
    let has_id = |raw: &RawEntry| !is_unused(raw) && raw.dqb_id.get() == id;
    Ok(slots(&bytes).find(|(_, raw)| has_id(raw)).map(|(offset, _)| EntryPlace { block: node, offset }))
}

/// Returns the changes that add an entry without usage and limits for `id`, which has none. Fails with `Corrupt`, with
/// `FileTooBig`, or with an error of `read`.
#[inline(never)]
pub(crate) fn insert(
    kind: QuotaKind,
    (ino, id): (Ino, u32),
    read: impl FnMut(u32) -> Result<QuotaBlock>,
) -> Result<Insertion> {
    let mut file = ChangedFile { ino, read, blocks: Vec::new(), header: RawHeader::new_zeroed() };
    file.header = header(kind, ino, file.block(0)?)?;
    let mut path = [(ROOT, 0); size_of::<u32>()];
    let (mut node, mut is_missing) = (ROOT, false);
    for (at, digit) in path.iter_mut().zip(id.to_be_bytes()) {
        *at = (node, digit);
        let below = if is_missing { 0 } else { number_at(file.block(node)?, digit) };
        is_missing = below == 0;
        node = if is_missing { 0 } else { file.checked("quota tree", below)? };
    }
    if !is_missing {
        // It leads to a block of entries that does not contain the one of `id`.
        return Err(damage(ino, "quota tree", 0, node));
    }
    let entries = file.block_with_room()?;
    let place = file.fill_slot(entries, id)?;
    // From the lowest level up, each missing node leads to the level below it.
    let mut below = entries;
    for (node, digit) in path.into_iter().rev() {
        let node = match node {
            0 => file.free_block()?,
            node if number_at(file.block(node)?, digit) == below => break,
            node => node,
        };
        set_number(file.block(node)?, digit, below);
        below = node;
    }
    let header = file.header;
    file.block(0)?
        .get_mut(..size_of::<RawHeader>())
        .into_iter()
        .for_each(|to| to.copy_from_slice(header.as_bytes()));
    Ok(Insertion { blocks: file.blocks, len: header.dqi_blocks.get(), place })
}

/// A file whose changed blocks are in memory.
struct ChangedFile<R> {
    ino: Ino,
    read: R,
    blocks: Vec<(u32, QuotaBlock)>,
    header: RawHeader,
}

impl<R: FnMut(u32) -> Result<QuotaBlock>> ChangedFile<R> {
    /// Returns a block for reading or for a change.
    fn block(&mut self, number: u32) -> Result<&mut [u8; BLOCK]> {
        let at = match self.blocks.iter().position(|(known, _)| *known == number) {
            Some(at) => at,
            None => {
                let block = (self.read)(number)?;
                self.add(number, block)?
            }
        };
        self.blocks.get_mut(at).map(|(_, block)| &mut **block).ok_or(Error::Invalid)
    }

    /// Adds a changed block, and returns its index.
    fn add(&mut self, number: u32, block: QuotaBlock) -> Result<usize> {
        self.blocks.try_reserve(1)?;
        self.blocks.push((number, block));
        Ok(self.blocks.len().saturating_sub(1))
    }

    fn checked(&self, field: &'static str, number: u32) -> Result<u32> {
        checked(self.ino, field, number, self.header.dqi_blocks.get())
    }

    fn entries_header(&mut self, number: u32) -> Result<RawEntriesHeader> {
        RawEntriesHeader::read_from_prefix(self.block(number)?.as_slice())
            .map(|(header, _)| header)
            .map_err(|_| Error::Invalid)
    }

    fn set_entries_header(&mut self, number: u32, header: &RawEntriesHeader) -> Result<()> {
        let target = self.block(number)?.get_mut(..size_of::<RawEntriesHeader>());
        target.into_iter().for_each(|to| to.copy_from_slice(header.as_bytes()));
        Ok(())
    }

    /// Returns an unused block, which is zeroed: the first free one, or a new one at the end.
    fn free_block(&mut self) -> Result<u32> {
        let number = match self.header.dqi_free_blk.get() {
            0 => {
                let number = self.header.dqi_blocks.get();
                self.header.dqi_blocks.set(number.checked_add(1).ok_or(Error::FileTooBig)?);
                number
            }
            free => {
                let number = self.checked("dqi_free_blk", free)?;
                self.header.dqi_free_blk = self.entries_header(number)?.dqdh_next_free;
                number
            }
        };
        let zeros = copy_of(&ZEROS)?;
        self.blocks.retain(|(known, _)| *known != number);
        self.add(number, zeros)?;
        Ok(number)
    }

    /// Returns a block of entries that has room for one.
    fn block_with_room(&mut self) -> Result<u32> {
        match self.header.dqi_free_entry.get() {
            0 => {
                let number = self.free_block()?;
                self.header.dqi_free_entry.set(number);
                Ok(number)
            }
            number => self.checked("dqi_free_entry", number),
        }
    }

    /// Writes the new entry of `id` into a block, which leaves the list of blocks with room if it is full then.
    fn fill_slot(&mut self, number: u32, id: u32) -> Result<EntryPlace> {
        let mut header = self.entries_header(number)?;
        let used = header.dqdh_entries.get().saturating_add(1);
        let full = || damage(self.ino, "dqdh_entries", number, header.dqdh_entries.get().into());
        if usize::from(used) > PER_BLOCK {
            return Err(full());
        }
        let full = full();
        header.dqdh_entries.set(used);
        if usize::from(used) == PER_BLOCK {
            self.unlink(&mut header)?;
        }
        self.set_entries_header(number, &header)?;
        let bytes = self.block(number)?;
        let offset = slots(bytes).find(|(_, raw)| is_unused(raw)).map(|(offset, _)| offset).ok_or(full)?;
        let mut raw = entry(id, 0, 0);
        raw.mark_used();
        let target = bytes.get_mut(offset..offset.saturating_add(size_of::<RawEntry>()));
        target.into_iter().for_each(|to| to.copy_from_slice(raw.as_bytes()));
        Ok(EntryPlace { block: number, offset })
    }

    /// Removes the block of `header` from the list of blocks with room.
    fn unlink(&mut self, header: &mut RawEntriesHeader) -> Result<()> {
        let (next, before) = (header.dqdh_next_free, header.dqdh_prev_free);
        if next.get() != 0 {
            let number = self.checked("dqdh_next_free", next.get())?;
            let mut after = self.entries_header(number)?;
            after.dqdh_prev_free = before;
            self.set_entries_header(number, &after)?;
        }
        if before.get() == 0 {
            self.header.dqi_free_entry = next;
        } else {
            let number = self.checked("dqdh_prev_free", before.get())?;
            let mut previous = self.entries_header(number)?;
            previous.dqdh_next_free = next;
            self.set_entries_header(number, &previous)?;
        }
        header.dqdh_next_free.set(0);
        header.dqdh_prev_free.set(0);
        Ok(())
    }
}

fn is_unused(raw: &RawEntry) -> bool {
    raw.as_bytes().iter().all(|&byte| byte == 0)
}

/// Returns all entries of a block, used or not, with their byte offsets.
fn slots(block: &[u8; BLOCK]) -> impl Iterator<Item = (usize, RawEntry)> + '_ {
    let offsets = (size_of::<RawEntriesHeader>()..).step_by(size_of::<RawEntry>()).take(PER_BLOCK);
    offsets.filter_map(|offset| Some((offset, RawEntry::read_from_prefix(block.get(offset..)?).ok()?.0)))
}

fn slot_range(digit: u8) -> core::ops::Range<usize> {
    let start = usize::from(digit).saturating_mul(4);
    start..start.saturating_add(4)
}

fn number_at(node: &[u8; BLOCK], digit: u8) -> u32 {
    let bytes = node.get(slot_range(digit)).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn set_number(node: &mut [u8; BLOCK], digit: u8, number: u32) {
    node.get_mut(slot_range(digit)).into_iter().for_each(|to| to.copy_from_slice(&number.to_le_bytes()));
}

/// Checks that `number` is a block of the file after the root.
fn checked(ino: Ino, field: &'static str, number: u32, blocks: u32) -> Result<u32> {
    if (ROOT.saturating_add(1)..blocks).contains(&number) {
        Ok(number)
    } else {
        Err(damage(ino, field, 0, number))
    }
}

fn damage(ino: Ino, field: &'static str, block: u32, found: u32) -> Error {
    Corrupt::Field {
        structure: Structure::Quota(ino),
        field,
        block: block.into(),
        offset: 0,
        found: found.into(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use obento_base::wire::to_usize;

    use super::super::{Entries, QuotaFile, decode};
    use super::*;

    const INO: Ino = Ino(3);

    fn read_from(file: &[QuotaBlock]) -> impl FnMut(u32) -> Result<QuotaBlock> + '_ {
        |number| file.get(to_usize(number.into())).cloned().ok_or(Error::Invalid)
    }

    fn add(file: &mut Vec<QuotaBlock>, id: u32) {
        let made = insert(QuotaKind::User, (INO, id), read_from(file)).unwrap();
        file.resize(to_usize(made.len.into()), copy_of(&ZEROS).unwrap());
        for (number, bytes) in made.blocks {
            file[to_usize(number.into())] = bytes;
        }
        assert_eq!(find(QuotaKind::User, (INO, id), read_from(file)), Ok(Some(made.place)));
    }

    #[test]
    fn entries_that_are_added_one_by_one_are_found_beside_those_of_a_new_file() {
        for first in [0, 1, 13, 14, 15, 100] {
            let mut all: Entries = (0..first).map(|n| (n * 70_001, entry(n * 70_001, 1, 512))).collect();
            let made = QuotaFile::new(QuotaKind::User, &all).unwrap();
            let mut file: Vec<QuotaBlock> = made.blocks.iter().map(|block| copy_of(block).unwrap()).collect();
            for id in [5, 6, u32::MAX, 0x0100_0000, 7, 0x0101_0101].into_iter().chain(200..260) {
                assert_eq!(find(QuotaKind::User, (INO, id), read_from(&file)), Ok(None));
                add(&mut file, id);
                all.insert(id, entry(id, 0, 0));
            }
            assert_eq!(
                decode(QuotaKind::User, &file.iter().flat_map(|block| block.to_vec()).collect::<Vec<_>>()),
                Ok(all)
            );
        }
    }

    #[test]
    fn the_entry_of_user_0_without_usage_is_not_an_unused_one() {
        let made = QuotaFile::new(QuotaKind::User, &Entries::new()).unwrap();
        let mut file: Vec<QuotaBlock> = made.blocks.iter().map(|block| copy_of(block).unwrap()).collect();
        add(&mut file, 0);
        add(&mut file, 1);
        let place = find(QuotaKind::User, (INO, 0), read_from(&file)).unwrap().unwrap();
        let bytes = &file[to_usize(place.block.into())][place.offset..];
        let (mut raw, _) = RawEntry::read_from_prefix(bytes).unwrap();
        raw.change(2, 1024);
        assert_eq!(raw, entry(0, 2, 1024));
    }

    #[test]
    fn numbers_outside_the_file_are_errors() {
        let all = Entries::from([(5, entry(5, 1, 2))]);
        let made = QuotaFile::new(QuotaKind::User, &all).unwrap();
        let file: Vec<QuotaBlock> = made.blocks.iter().map(|block| copy_of(block).unwrap()).collect();
        for (block, offset) in [(0, 28), (0, 24), (1, 0)] {
            for number in [1_u32, 99, u32::MAX] {
                let mut damaged = file.clone();
                damaged[block][offset..offset + 4].copy_from_slice(&number.to_le_bytes());
                assert!(
                    insert(QuotaKind::User, (INO, 0x0002_0000), read_from(&damaged)).is_err(),
                    "{block} {offset}"
                );
            }
        }
    }
}
