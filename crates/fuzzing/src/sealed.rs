//! Targets for ext4 volumes with checksums, which are corrected after each change, so that the code after the
//! comparison of a checksum is reached.
//!
//! Positions and checksums are calculated from offsets of the format, as in the tests of the driver. Source:
//! Documentation/filesystems/ext4/checksums.rst; `include/linux/jbd2.h`.

/// The functions by which the tests of ext4 find structures and calculate checksums.
#[path = "../../fs/ext4/tests/lab"]
mod lab {
    #![allow(dead_code, reason = "a part of it is used")]
    pub mod disk;
    mod edit;
    mod seal;
}

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use obento_base::wire::to_usize;
use obento_block::{BlockDevice as _, MemDevice};
use obento_ext4::Ext4Driver;
use obento_ext4::raw::{RawDirEntry, RawExtentHeader};
use obento_journal::{Tid, checksum, raw};
use obento_testkit::walk::{open_and_change, open_and_walk, repair_and_walk};

use self::lab::disk::{Bits, Disk, EXTENTS_FL, I_BLOCK, INLINE_DATA_FL};
use crate::damage::small_plan;
use crate::seeds::Seeds;
use crate::volumes::{CLOSED, OPEN};

const DIRECTORY: u16 = 0x4000;
const INDEX_FL: u32 = 0x1000;
/// The inode of the journal.
const JOURNAL: u32 = 8;

/// A byte range, and the kind of its structure.
type Place = (Range<usize>, Kind);

/// The kind of a structure with a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    SuperBlock,
    Group(u32),
    Bitmap(Bits, u32),
    Inode(u32),
    /// A node of an extent tree of this inode.
    Extents(u32),
    /// Entries of the directory with this inode.
    Entries(u32),
    /// A node of the index of the directory with this inode, and the offset of the table.
    Index(u32, usize),
    Attributes,
    /// A block of the log.
    Log(Part),
}

/// A sound image and the positions of its structures.
struct Sound {
    disk: Disk,
    /// The super block and the descriptors are last, because they contain the positions of the rest.
    places: Vec<Place>,
}

/// The closed volume, with all its structures in place.
static STRUCTURES: LazyLock<Sound> = LazyLock::new(|| Sound::new(&CLOSED, structures));
/// The volume before it is closed, with its log.
static LOG: LazyLock<Sound> = LazyLock::new(|| Sound::new(&OPEN, logged));

impl Sound {
    fn new(device: &MemDevice, places: fn(&Disk) -> Vec<Place>) -> Self {
        let mut bytes = vec![0; to_usize(device.len())];
        device.read_at(0, &mut bytes).expect("memory does not fail");
        let disk = Disk::new(bytes);
        assert!(disk.checked, "it has checksums");
        let places = places(&disk);
        assert!(places.len() <= 256, "a byte names each");
        Self { places, disk }
    }

    /// Changes bytes and corrects all checksums. Each four bytes of `data` are a structure, an offset in it (16 bits)
    /// and a value.
    fn changed(&self, data: &[u8]) -> MemDevice {
        let mut disk = self.disk.clone();
        let where_things_are = |kind: Kind| matches!(kind, Kind::SuperBlock | Kind::Group(_));
        for last in [false, true] {
            for change in data.chunks_exact(4) {
                let (place, kind) = &self.places[usize::from(change[0]) % self.places.len()];
                let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % place.len();
                if where_things_are(*kind) == last {
                    disk.bytes[place.start + at] = change[3];
                }
            }
            let now = self.places.iter().filter(|(_, kind)| where_things_are(*kind) == last);
            now.for_each(|(place, kind)| seal(&mut disk, place, *kind));
        }
        MemDevice::new(disk.bytes)
    }
}

/// Corrects the checksum of one structure.
fn seal(disk: &mut Disk, place: &Range<usize>, kind: Kind) {
    let at = place.start;
    match kind {
        Kind::SuperBlock => disk.seal_super_block(),
        Kind::Group(group) => disk.seal_group(group),
        Kind::Bitmap(bits, group) => disk.seal_bitmap(bits, group),
        Kind::Inode(ino) => disk.seal_inode(ino),
        Kind::Extents(ino) => {
            // A node whose header claims more entries than fit into a block has no room for a checksum.
            let room = disk.block / size_of::<RawExtentHeader>();
            if usize::from(disk.read::<RawExtentHeader>(at).eh_max.get()) < room {
                disk.seal_extent_node(ino, at);
            }
        }
        Kind::Entries(dir) => disk.seal_entries(dir, at),
        Kind::Index(dir, table) => disk.seal_index(dir, at + table),
        Kind::Attributes => disk.seal_xattr_block((at / disk.block) as u32),
        Kind::Log(part) => seal_logged(disk, place, part),
    }
}

/// The kind of a block of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    SuperBlock,
    /// A descriptor or a revocation block.
    Control,
    /// A block to replay: its transaction, and the position of its tag.
    Data(Tid, usize),
    Commit,
}

fn seal_logged(disk: &mut Disk, place: &Range<usize>, part: Part) {
    const SUPER_BLOCK_SUM: usize = 0xfc;
    const COMMIT_SUM: usize = 0x10;
    const TAG_SUM: usize = 0xc;
    let block = &disk.bytes[place.clone()];
    let seed = checksum::seed(&journal_of(disk).s_uuid);
    let (at, sum) = match part {
        Part::SuperBlock => (place.start + SUPER_BLOCK_SUM, checksum::super_block(&block[..1024])),
        Part::Control => (place.end - 4, checksum::control_block(seed, block)),
        Part::Data(tid, tag) => (tag + TAG_SUM, checksum::data_block(seed, tid, block)),
        Part::Commit => (place.start + COMMIT_SUM, checksum::commit_block(seed, block)),
    };
    disk.put(at, &sum.to_be_bytes());
}

fn journal_of(disk: &Disk) -> raw::RawSuperBlock {
    disk.read(disk.range(disk.file_block(JOURNAL, 0)).start)
}

/// Returns the structures of a volume.
fn structures(disk: &Disk) -> Vec<Place> {
    let mut places = Vec::new();
    for ino in
        (1..=disk.super_block().s_inodes_count.get()).filter(|&ino| disk.inode_of(ino).i_mode.get() != 0)
    {
        let (at, inode) = (disk.inode_at(ino), disk.inode_of(ino));
        places.push((at..at + disk.inode_size, Kind::Inode(ino)));
        let attributes = inode.i_file_acl_lo.get();
        if attributes != 0 {
            places.push((disk.range(attributes), Kind::Attributes));
        }
        if inode.i_flags.get() & EXTENTS_FL != 0 && inode.i_flags.get() & INLINE_DATA_FL == 0 {
            let root: RawExtentHeader = disk.read(at + I_BLOCK);
            let below = (0..root.eh_entries.get().into()).map(|step| disk.node_at(ino, &[step]));
            let nodes = below.filter(|_| root.eh_depth.get() > 0);
            places.extend(nodes.map(|at| (at..at + disk.block, Kind::Extents(ino))));
        }
        if inode.i_mode.get() & 0xf000 == DIRECTORY {
            places.extend(disk.file_blocks(ino).into_iter().enumerate().map(|(number, block)| {
                let range = disk.range(block);
                let first: RawDirEntry = disk.read(range.start);
                let is_node = first.inode.get() == 0 && usize::from(first.rec_len.get()) == disk.block;
                let kind = match inode.i_flags.get() & INDEX_FL != 0 {
                    true if number == 0 => Kind::Index(ino, 32),
                    true if is_node => Kind::Index(ino, 8),
                    _ => Kind::Entries(ino),
                };
                (range, kind)
            }));
        }
    }
    for group in 0..disk.groups() {
        for (bits, len) in [(Bits::Blocks, disk.clusters_per_group), (Bits::Inodes, disk.inodes_per_group)] {
            let at = disk.bitmap_at(bits, group);
            places.push((at..at + len as usize / 8, Kind::Bitmap(bits, group)));
        }
    }
    let groups = (0..disk.groups()).map(|group| (disk.group_at(group), Kind::Group(group)));
    places.extend(groups.map(|(at, kind)| (at..at + disk.desc, kind)));
    places.push((1024..2048, Kind::SuperBlock));
    places
}

/// Returns the blocks of the log from start to end, each before the block that contains its checksum.
fn logged(disk: &Disk) -> Vec<Place> {
    let journal = journal_of(disk);
    let block_at = |number: u32| disk.range(disk.file_block(JOURNAL, number));
    let (mut places, mut number) = (Vec::new(), journal.s_start.get());
    assert!(number != 0, "it has something to replay");
    loop {
        let range = block_at(number);
        let header: raw::RawHeader = disk.read(range.start);
        if header.h_magic.get() != raw::MAGIC {
            break;
        }
        let tid = Tid(header.h_sequence.get());
        let kind = match header.h_blocktype.get() {
            raw::DESCRIPTOR_BLOCK => {
                for tag in tags(disk, &range) {
                    number += 1;
                    places.push((block_at(number), Kind::Log(Part::Data(tid, tag))));
                }
                Part::Control
            }
            raw::COMMIT_BLOCK => Part::Commit,
            _ => Part::Control,
        };
        places.push((range, Kind::Log(kind)));
        number += 1;
    }
    places.push((block_at(0), Kind::Log(Part::SuperBlock)));
    places
}

/// Returns the positions of the tags of a descriptor: `journal_block_tag3_s`. A UUID follows the first tag.
fn tags(disk: &Disk, descriptor: &Range<usize>) -> Vec<usize> {
    const SAME_UUID: u32 = 2;
    const LAST: u32 = 8;
    let (mut tags, mut at) = (Vec::new(), descriptor.start + size_of::<raw::RawHeader>());
    loop {
        let flags = disk.read::<raw::RawTag3>(at).t_flags.get();
        tags.push(at);
        at += size_of::<raw::RawTag3>() + if flags & SAME_UUID == 0 { 16 } else { 0 };
        if flags & LAST != 0 {
            return tags;
        }
    }
}

/// Changes structures of a volume, and then reads, repairs and changes the volume.
pub fn structures_changed(data: &[u8]) {
    all_of(&STRUCTURES, data);
}

/// Changes the log of a volume, and then replays and repairs it.
pub fn log_changed(data: &[u8]) {
    all_of(&LOG, data);
}

fn all_of(sound: &Sound, data: &[u8]) {
    open_and_walk(&Ext4Driver, Arc::new(sound.changed(data)));
    repair_and_walk(&Ext4Driver, Arc::new(sound.changed(data)));
    open_and_change(&Ext4Driver, Arc::new(sound.changed(data)), small_plan());
}

/// Returns inputs that change nothing: some existing bytes of each structure.
pub fn seeds_of_structures() -> Seeds {
    seeds(&STRUCTURES)
}

/// Returns inputs that change nothing in the log.
pub fn seeds_of_log() -> Seeds {
    seeds(&LOG)
}

fn seeds(sound: &Sound) -> Seeds {
    let seed = |(number, (place, _)): (usize, &Place)| {
        let bytes = &sound.disk.bytes[place.clone()];
        let set = (0..bytes.len()).filter(|&at| bytes[at] != 0).take(8);
        set.flat_map(|at| [number as u8, at as u8, (at >> 8) as u8, bytes[at]]).collect()
    };
    sound.places.iter().enumerate().take(256).map(seed).collect()
}

#[cfg(test)]
mod tests {
    use obento_driver::{FileSystem as _, Notice, OpenOptions};
    use obento_env::NO_CLOCK;
    use obento_ext4::{Ext4, issues, open_volume};

    use super::*;

    #[test]
    fn the_computed_checksums_equal_those_of_an_undamaged_volume() {
        for (sound, seeds) in [(&*STRUCTURES, seeds_of_structures()), (&*LOG, seeds_of_log())] {
            for seed in seeds {
                let device = sound.changed(&seed);
                let mut bytes = vec![0; sound.disk.bytes.len()];
                device.read_at(0, &mut bytes).unwrap();
                assert!(bytes == sound.disk.bytes, "{:?}", sound.places[usize::from(seed[0])]);
            }
        }
    }

    #[test]
    fn each_kind_of_structure_occurs_and_no_checksum_is_wrong() {
        let kinds = STRUCTURES.places.iter().map(|(_, kind)| format!("{kind:?}"));
        let kinds: std::collections::BTreeSet<_> =
            kinds.map(|kind| kind.replace(|c: char| !c.is_alphabetic(), "")).collect();
        let all = [
            "Attributes",
            "BitmapBlocks",
            "BitmapInodes",
            "Entries",
            "Extents",
            "Group",
            "Index",
            "Inode",
            "SuperBlock",
        ];
        assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), all);
        let said = |device: MemDevice| format!("{:?}", issues(Arc::new(device)));
        for (number, (place, kind)) in STRUCTURES.places.iter().enumerate().take(256) {
            let reported = said(STRUCTURES.changed(&[number as u8, 7, 0, 0x55]));
            assert!(!reported.contains("Checksum"), "{kind:?}: {reported}");
            if matches!(kind, Kind::Inode(_) | Kind::Attributes | Kind::Group(_)) {
                let mut bytes = STRUCTURES.disk.bytes.clone();
                bytes[place.start + 7] ^= 0x55;
                let reported = said(MemDevice::new(bytes));
                assert!(reported.contains("Checksum"), "{kind:?} without it: {reported}");
            }
        }
    }

    #[test]
    fn a_log_is_replayed_completely_whatever_its_blocks_contain() {
        let replayed = |data: &[u8]| {
            let volume = open_volume(Arc::new(LOG.changed(data)), &OpenOptions::new(Arc::new(NO_CLOCK)));
            let notices = Ext4::new(volume.unwrap()).info().notices;
            notices
                .iter()
                .map(|notice| if let Notice::Replayed { transactions } = notice { *transactions } else { 0 })
                .sum::<u64>()
        };
        let all = replayed(&[]);
        assert!(all > 1);
        let of_files = |(_, (_, kind)): &(usize, &Place)| matches!(kind, Kind::Log(Part::Data(..)));
        let last = LOG.places.iter().enumerate().rfind(of_files).unwrap().0;
        assert_eq!(replayed(&[last as u8, 0xff, 3, 0x55]), all);
    }
}
