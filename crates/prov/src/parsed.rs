//! A block in memory whose records are found without decoding the others. A query decodes each block for many files and
//! processes, and most records of a block are of others.

use alloc::vec::Vec;

use crate::block::Block;
use crate::record::{FileId, Record};
use crate::segment::Entry;

/// A block whose checksum was verified.
#[derive(Debug)]
pub(crate) struct ParsedBlock {
    bytes: Vec<u8>,
    /// Sequence number of the first record.
    first: u64,
    heads: Vec<Head>,
}

/// A record that is not decoded.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// Time in microseconds since 1970.
    time: i64,
    /// A hash of the file; `None` if the record has none, or several.
    file: Option<u16>,
    /// Offset of the record from the end of the block.
    from_end: u16,
    kinds: u8,
}

impl ParsedBlock {
    /// Returns the records of a block up to the first record that is damaged; `None` if its header is damaged.
    pub(crate) fn new(bytes: Vec<u8>) -> Option<Self> {
        let Block { count, first, start, records } = Block::decode_verified(&bytes)?;
        // Zeros follow the records in the block.
        let after = bytes.len().saturating_sub(crate::block::HEADER).saturating_sub(records.len());
        let (mut rest, mut time) = (records, start);
        let mut heads = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (Some(kinds), Some((elapsed, next))) = (Record::kinds(rest), Record::skip(rest)) else {
                break;
            };
            let Ok(from_end) = u16::try_from(rest.len().saturating_add(after)) else { break };
            time = time.saturating_add_unsigned(elapsed);
            heads.push(Head { time, file: Record::peek_file(rest).map(hash), from_end, kinds });
            rest = next;
        }
        heads.shrink_to_fit();
        Some(Self { bytes, first, heads })
    }

    /// Returns the size of the block in memory.
    pub(crate) fn size(&self) -> usize {
        self.heads.len().saturating_mul(size_of::<Head>()).saturating_add(self.bytes.len())
    }

    /// Returns the records of these kinds up to the first one that is damaged. With `file`, may leave out records of other
    /// files.
    pub(crate) fn entries(&self, kinds: u8, file: Option<FileId>) -> impl Iterator<Item = Entry<'_>> {
        let file = file.map(hash);
        let is_meant = move |head: &Head| {
            head.kinds & kinds != 0 && (file.is_none() || head.file.is_none() || head.file == file)
        };
        let heads = (0..).zip(&self.heads).filter(move |(_, head)| is_meant(head));
        heads.map_while(move |(number, head)| {
            let sequence = self.first.saturating_add(number);
            let start = self.bytes.len().checked_sub(head.from_end.into())?;
            let (record, ..) = Record::decode(self.bytes.get(start..)?)?;
            Some(Entry { sequence, time: head.time, record })
        })
    }
}

fn hash(file: FileId) -> u16 {
    let generation = u64::from(file.generation.0);
    let mixed = (file.ino.0 ^ generation.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [.., low, high] = mixed.to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use obento_base::{FileKind, Generation, Ino};
    use obento_driver::history::{Actor, OpenMode, Transferred};

    use super::*;
    use crate::actor::ActorId;
    use crate::block::{BLOCK, BlockBuilder, HEADER};
    use crate::index_builder::kind_of;
    use crate::kinds;
    use crate::record::{AttrMask, Mark};
    use crate::segment::Entries;

    /// Returns a record of each kind, and opens of each mode.
    fn records() -> Vec<Record<'static>> {
        let (id, parent, name, target) = (ActorId(300), Ino(2), &b"name"[..], &b""[..]);
        let file = FileId { ino: Ino(70_000), generation: Generation(9) };
        let span = Transferred { bytes: 5, start: 1, end: 300 };
        let create = |kind| Record::Create { actor: id, parent, name, file, kind, mode: 0o644, target };
        let open = |read, write| Record::Open { actor: id, file, mode: OpenMode { read, write } };
        vec![
            Record::Actor { id, actor: Actor { pid: 7, ..Actor::default() } },
            Record::Mark(Mark::Mount { boot: [3; 16] }),
            Record::Mark(Mark::Lost(4)),
            open(false, false),
            open(true, false),
            open(false, true),
            open(true, true),
            Record::Close { actor: id, file, read: span, written: span },
            create(FileKind::Regular),
            create(FileKind::Directory),
            Record::Link { actor: id, parent, name, file },
            Record::Remove { actor: id, parent, name, file, links: 1 },
            Record::Rename {
                actor: id,
                from: parent,
                name,
                to: parent,
                new_name: b"new",
                moved: file,
                replaced: Some(file),
                links: 0,
                exchange: false,
            },
            Record::Write { actor: id, file, written: span },
            Record::Truncate { actor: id, file, size: 1 << 40 },
            Record::SetAttr { actor: id, file, mask: AttrMask(3) },
            Record::Xattr { actor: id, file, name, removed: true },
            Record::Used { actor: id, file, version: 3, sequence: 1 << 33 },
            Record::Generated { actor: id, file, version: 3, sequence: 4, parent, name },
            Record::Source { actor: id, file, name },
        ]
    }

    /// Returns a block of a segment with these records.
    fn block_of(records: &[Record<'_>]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (number, record) in (0..).zip(records) {
            assert!(builder.push(50 + number, 1000 * i64::try_from(number).unwrap(), record));
        }
        let mut block = Vec::new();
        builder.encode(&mut block);
        block
    }

    /// Returns a segment with this block.
    fn segment_of(block: &[u8]) -> Vec<u8> {
        [&[0; BLOCK], block].concat()
    }

    fn entries(segment: &[u8]) -> Vec<Entry<'_>> {
        Entries::new(segment).map(Result::unwrap).collect()
    }

    #[test]
    fn records_of_unwanted_kinds_are_left_out_and_no_others() {
        let block = block_of(&records());
        let segment = segment_of(&block);
        let all = entries(&segment);
        assert_eq!(all.iter().map(|entry| entry.record).collect::<Vec<_>>(), records());
        let parsed = ParsedBlock::new(block).unwrap();
        assert!(parsed.entries(kinds::ALL, None).eq(all.iter().copied()));
        for wanted in (0..8).map(|bit| 1 << bit) {
            let found: Vec<_> = parsed.entries(wanted, None).collect();
            assert!(found.iter().all(|entry| all.contains(entry)));
            let missing = all.iter().filter(|entry| !found.contains(entry));
            assert!(missing.clone().all(|entry| kind_of(&entry.record) & wanted == 0));
            assert!(found.len() < all.len());
        }
    }

    #[test]
    fn all_records_of_a_file_are_found_and_most_others_are_left_out() {
        let file = |number: u64| FileId { ino: Ino(number / 2), generation: Generation(number as u32 % 2) };
        let record = |number: u64| {
            let (actor, file) = (ActorId(7), file(number % 20));
            let mode = OpenMode { read: true, write: true };
            match number % 3 {
                0 => Record::Open { actor, file, mode },
                1 => Record::Truncate { actor, file, size: number },
                _ => Record::Remove { actor, parent: Ino(2), name: b"name", file, links: 0 },
            }
        };
        let block = block_of(&(0..120).map(record).collect::<Vec<_>>());
        let segment = segment_of(&block);
        let (parsed, all) = (ParsedBlock::new(block).unwrap(), entries(&segment));
        for wanted in (0..20).map(file) {
            let is_own = |entry: &Entry<'_>| entry.record.file() == Some(wanted);
            let found: Vec<_> = parsed.entries(kinds::ALL, Some(wanted)).collect();
            let own = all.iter().copied().filter(is_own);
            assert!(found.iter().copied().filter(is_own).eq(own), "{wanted:?}");
            assert!(parsed.entries(kinds::USES, Some(wanted)).count() < 5, "{wanted:?}");
        }
    }

    #[test]
    fn records_end_at_the_first_damaged_one() {
        let mut block = block_of(&records());
        let second = HEADER + usize::from(block[HEADER]);
        block[second..second + 2].copy_from_slice(&[0xff; 2]);
        let parsed = ParsedBlock::new(block).unwrap();
        // The checksum of the block is not verified again.
        let found: Vec<_> = parsed.entries(kinds::ALL, None).map(|entry| entry.record).collect();
        assert_eq!(found, records()[..1]);
        assert_eq!(parsed.size(), BLOCK + size_of::<Head>());
    }
}
