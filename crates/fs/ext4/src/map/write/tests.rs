//! Files compared with bytes in memory: after any operation a file reads back as the model, e2fsck finds nothing, and
//! the kernel reads the same.

use std::fs;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use obento_base::Name;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Journalling, OpenOptions, Size, Span, TimeChange, WriteTicket};
use obento_env::NO_CLOCK;
use obento_testkit::oracle::{LoopMount, Oracle, call, program, require};

use super::*;
use crate::map::Blocks;
use crate::super_block::ROOT_INO;
use crate::writer::open_writer;

const LEN: usize = 48 << 20;
/// Maximum size of the files of the tests.
const MOST: u64 = 3 << 20;

/// Pseudo-random numbers from a seed: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) % end.max(1)
    }
}

/// A volume that is open for changes, with the model of one of its files.
struct Rig {
    device: Arc<MemDevice>,
    writer: Writer,
    ino: Ino,
    model: Vec<u8>,
}

impl Rig {
    /// Returns a volume that mke2fs created with `args`, and its file `f` with `contents`.
    fn new(args: &[&str], mode: DataMode, contents: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, image) = (folder.path().join("source"), folder.path().join("image"));
        fs::create_dir(&source).unwrap();
        fs::write(source.join("f"), contents).unwrap();
        fs::File::create(&image).unwrap().set_len(LEN as u64).unwrap();
        let fixed = ["-q", "-F", "-d", source.to_str().unwrap()];
        call("mke2fs", fixed.iter().chain(args).copied().chain([image.to_str().unwrap()])).unwrap();
        let device = Arc::new(MemDevice::new(fs::read(&image).unwrap()));
        let journalling = Journalling { mode, ..Journalling::default() };
        let options =
            OpenOptions { access: Access::ReadWrite, journalling, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
        let writer = open_writer(Arc::<MemDevice>::clone(&device), &options).unwrap();
        let volume = writer.volume();
        let root = volume.inode(ROOT_INO).unwrap();
        let ino = volume.current_lookup(&root, Name::new(b"f").unwrap()).unwrap();
        Self { device, writer, ino, model: contents.to_vec() }
    }

    fn block(&self) -> u64 {
        self.writer.block_bytes()
    }

    fn inode(&self) -> Inode {
        self.writer.volume().inode(self.ino).unwrap()
    }

    /// Writes as a caller that always writes whole blocks.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let mut at = offset / self.block() * self.block();
        if offset > self.model.len() as u64 {
            // A caller that extends a file zeroes the rest of its last block.
            let last = self.model.len() as u64 / self.block() * self.block();
            if last < self.model.len() as u64 && last < at {
                self.write_blocks(last, self.model.len() as u64)?;
            }
        }
        let old_len = self.model.len();
        let old = self.model[old_len.min(offset as usize)..old_len.min(end as usize)].to_vec();
        self.model.resize(self.model.len().max(end as usize), 0);
        self.model[offset as usize..end as usize].copy_from_slice(bytes);
        while at < end {
            match self.write_blocks(at, end) {
                Ok(next) => at = next,
                Err(error) => {
                    // The part that was not written keeps its contents.
                    let got = at.max(offset).min(end) as usize;
                    self.model.truncate(got.max(old_len));
                    let kept = old.get(got - offset as usize..).unwrap_or_default();
                    self.model[got..got + kept.len()].copy_from_slice(kept);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes one run of the model's blocks from `at` on, up to `end`.
    fn write_blocks(&mut self, at: u64, end: u64) -> Result<u64> {
        let is_inline = self.inode().has(InodeFlags::INLINE_DATA);
        let whole = at..if is_inline { end } else { end.next_multiple_of(self.block()) };
        let begun = self.writer.begin_write(self.ino, &whole)?;
        let extent = begun.detach().extent;
        let end = end.min(at + extent.len);
        let bytes = &self.model[at as usize..end as usize];
        match extent.span {
            Span::Mapped(place) => {
                let mut padded = bytes.to_vec();
                padded.resize(extent.len as usize, 0);
                let tail = &self.model[end as usize..];
                let rest = tail.len().min(padded.len() - bytes.len());
                padded[bytes.len()..bytes.len() + rest].copy_from_slice(&tail[..rest]);
                self.device.write_at(place, &padded).unwrap();
                let ticket = WriteTicket::resumed(self.ino, &(at..end), Some(&self.writer));
                ticket.publish(|ticket| self.writer.end_write(ticket, TimeChange::Now))?;
                Ok(end)
            }
            Span::Driver => Ok(at + self.writer.write(self.ino, at, bytes)? as u64),
            other => panic!("{other:?} cannot be written to"),
        }
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        let last = self.model.len() as u64 / self.block() * self.block();
        if size > self.model.len() as u64 && last < self.model.len() as u64 {
            self.write_blocks(last, self.model.len() as u64)?;
        }
        self.writer.truncate(self.ino, size)?;
        self.model.resize(size as usize, 0);
        Ok(())
    }

    /// Returns the contents of the file, from its blocks or wherever they are.
    fn read(&self) -> Vec<u8> {
        let (inode, volume) = (self.inode(), self.writer.volume());
        let mut bytes = std::vec![0; inode.size() as usize];
        if inode.has(InodeFlags::INLINE_DATA) {
            volume.inline_data(&inode).unwrap().copy(&inode, 0, &mut bytes);
        } else if self.writer.is_journalled(&inode) {
            volume.read_inode_data(&inode, 0, &mut bytes).unwrap();
        } else {
            for (at, chunk) in bytes.chunks_mut(self.block() as usize).enumerate() {
                if let Blocks::Mapped(place) = self.writer.run_at(&inode, at as u64).unwrap().place {
                    self.device.read_at(place.0 * self.block(), chunk).unwrap();
                }
            }
        }
        bytes
    }

    fn check(&self, what: &str) {
        let found = self.read();
        assert_eq!(found.len(), self.model.len(), "size after {what}");
        if let Some(at) = found.iter().zip(&self.model).position(|(a, b)| a != b) {
            panic!("byte {at} of {} after {what}: {} for {}", found.len(), found[at], self.model[at]);
        }
    }

    /// Commits, and checks the volume with e2fsck and the kernel.
    fn judge(&self, what: &str) {
        self.writer.forget_space(self.ino);
        self.writer.txns().sync().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let mut bytes = std::vec![0; LEN];
        self.device.read_at(0, &mut bytes).unwrap();
        fs::write(&image, bytes).unwrap();
        // e2fsck replays the journal.
        let _ = program("e2fsck").args(["-y", "-E", "journal_only"]).arg(&image).output().unwrap();
        if let Err(error) = call("e2fsck", ["-fn", image.to_str().unwrap()]) {
            panic!("after {what}: {error}");
        }
        if require(&[Oracle::LoopMount]) {
            let mount = LoopMount::new(&image, "ro").unwrap();
            let found = fs::read(mount.path().join("f")).unwrap();
            assert!(found == self.model, "the kernel reads other data after {what}");
            mount.unmount().unwrap();
        }
    }

    /// Executes a random operation. Returns its description.
    fn act(&mut self, random: &mut Random, extents: bool) -> String {
        let (block, size) = (self.block(), self.model.len() as u64);
        let aligned = |n: u64| n / block * block;
        let unit = block * u64::from(self.writer.cluster().blocks());
        let whole = |random: &mut Random, unit: u64, most: u64| {
            let start = random.below(MOST / unit) * unit;
            start..start + (1 + random.below(most)) * unit
        };
        let data: Vec<u8> = (0..1 + random.below(3 * block)).map(|_| 1 + random.below(255) as u8).collect();
        match random.below(if extents { 16 } else { 9 }) {
            0..=3 => {
                let at = random.below(MOST);
                self.write(at, &data).unwrap();
                std::format!("write {at}+{}", data.len())
            }
            4 | 5 => {
                self.write(size, &data).unwrap();
                std::format!("append {size}+{}", data.len())
            }
            6 => {
                let size = random.below(MOST);
                self.truncate(size).unwrap();
                std::format!("truncate {size}")
            }
            7 => {
                // Every other block, so that the tree grows.
                let start = aligned(random.below(MOST));
                for n in 0..40 {
                    self.write(start + 2 * n * block, &data[..data.len().min(block as usize)]).unwrap();
                }
                std::format!("stripes from {start}")
            }
            8 => {
                let range = whole(random, block, 60);
                let Some(range) = Some(range.start..range.end.min(size)).filter(|r| r.start < r.end) else {
                    return "nothing".to_string();
                };
                if range.end == size || range.end % block == 0 {
                    self.writer.punch(self.ino, range.clone()).unwrap();
                    self.model[range.start as usize..range.end as usize].fill(0);
                }
                std::format!("punch {range:?}")
            }
            9 | 10 => {
                let range = random.below(MOST)..MOST + random.below(MOST / 4);
                let how = if random.below(2) == 0 { Size::Keep } else { Size::Grow };
                let range = range.start..(range.start + 1 + random.below(50 * block)).min(range.end);
                if how == Size::Grow {
                    let last = aligned(size);
                    if last < size {
                        self.write_blocks(last, size).unwrap();
                    }
                }
                self.writer.allocate(self.ino, range.clone(), how).unwrap();
                self.model.resize(how.after(size, &range) as usize, 0);
                std::format!("allocate {range:?} {how:?}")
            }
            11 | 12 => {
                let range = whole(random, block, 40);
                let last = aligned(size);
                if range.end > size && last < size {
                    self.write_blocks(last, size).unwrap();
                }
                self.writer.zero_range(self.ino, range.clone(), Size::Grow).unwrap();
                self.model.resize(size.max(range.end) as usize, 0);
                self.model[range.start as usize..range.end as usize].fill(0);
                std::format!("zero {range:?}")
            }
            13 => {
                let range = whole(random, unit, 20);
                if range.end < size {
                    self.writer.collapse(self.ino, range.clone()).unwrap();
                    self.model.drain(range.start as usize..range.end as usize);
                }
                std::format!("collapse {range:?}")
            }
            _ => {
                let range = whole(random, unit, 20);
                if range.start < size {
                    self.writer.insert(self.ino, range.clone()).unwrap();
                    let zeros = std::vec![0; (range.end - range.start) as usize];
                    self.model.splice(range.start as usize..range.start as usize, zeros);
                }
                std::format!("insert {range:?}")
            }
        }
    }
}

fn wild(args: &[&str], mode: DataMode, contents: &[u8], seed: u64, steps: u32) {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    std::println!("{args:?}, seed {seed}");
    let mut rig = Rig::new(args, mode, contents);
    let mut random = Random(seed | 1);
    let extents = rig.inode().has(InodeFlags::EXTENTS) || rig.inode().has(InodeFlags::INLINE_DATA);
    for step in 0..steps {
        let what = std::format!("step {step}: {}", rig.act(&mut random, extents));
        rig.check(&what);
        if step % (steps / 3).max(1) == 0 {
            rig.judge(&what);
        }
    }
    rig.judge("everything");
    rig.truncate(0).unwrap();
    rig.judge("emptying");
}

const ORDERED: DataMode = DataMode::Ordered;

#[test]
fn files_with_extents_match_the_operations_on_them() {
    wild(&["-t", "ext4"], ORDERED, b"", 1, 150);
}

#[test]
fn small_blocks_make_deep_trees_that_are_right() {
    wild(&["-t", "ext4", "-b", "1024"], ORDERED, b"", 2, 150);
}

#[test]
fn clusters_are_shared_by_the_blocks_of_one_file() {
    wild(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"], ORDERED, b"", 3, 150);
}

#[test]
fn space_that_ends_in_a_cluster_which_the_file_has_shares_it() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let mut rig = Rig::new(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"], ORDERED, b"");
    // Half of the cluster of blocks 128 to 135 is data, and the allocated space ends before that half.
    rig.write(132 << 10, &[7; 44 << 10]).unwrap();
    rig.writer.allocate(rig.ino, 14 << 10..129 << 10, Size::Keep).unwrap();
    rig.judge("allocated");
    rig.writer.zero_range(rig.ino, 120 << 10..130 << 10, Size::Keep).unwrap();
    rig.judge("zeroed");
}

#[test]
fn a_dropped_write_leaves_the_cluster_to_another_write() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let mut rig = Rig::new(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"], ORDERED, b"");
    let first = rig.writer.begin_write(rig.ino, &(0..1 << 10)).unwrap();
    let second = rig.writer.begin_write(rig.ino, &(1 << 10..2 << 10)).unwrap();
    let Span::Mapped(place) = second.extent().span else { panic!("{:?}", second.extent()) };
    drop(first);
    // Space ahead is given to files that need it.
    assert_eq!(rig.writer.reservations().ahead_blocks(), 0);
    rig.device.write_at(place, &[6; 1 << 10]).unwrap();
    second.publish(|ticket| rig.writer.end_write(ticket, TimeChange::Now)).unwrap();
    rig.model = [[0; 1 << 10], [6; 1 << 10]].concat();
    rig.judge("written");
}

#[test]
fn a_dropped_write_gives_back_whole_clusters() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let rig = Rig::new(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"], ORDERED, b"");
    let free = rig.writer.totals().free_blocks;
    let writes = [0..40 << 10, 3 << 10..4 << 10, 20 << 10..37 << 10].map(|range: Range<u64>| {
        drop(rig.writer.begin_write(rig.ino, &range).unwrap());
        free - rig.writer.totals().free_blocks
    });
    assert_eq!(writes, [0; 3], "no cluster stays reserved");
}

#[test]
fn the_last_dropped_write_of_a_cluster_gives_it_back() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let rig = Rig::new(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"], ORDERED, b"");
    let free = rig.writer.totals().free_blocks;
    let reserved = || free - rig.writer.totals().free_blocks;
    let begin = |blocks: Range<u64>| {
        rig.writer.begin_write(rig.ino, &(blocks.start << 10..blocks.end << 10)).unwrap()
    };
    // The writes have parts of the first two clusters.
    let (first, second, third) = (begin(0..3), begin(3..20), begin(20..21));
    assert_eq!(reserved(), 2);
    drop(second);
    assert_eq!(reserved(), 2);
    drop(third);
    assert_eq!(reserved(), 1);
    drop(first);
    assert_eq!(reserved(), 0);
}

#[test]
fn block_maps_match_the_operations_on_them() {
    wild(&["-t", "ext3", "-b", "1024"], ORDERED, b"", 4, 150);
    wild(&["-t", "ext2", "-b", "4096"], ORDERED, b"", 5, 80);
}

#[test]
fn inline_data_moves_out_when_it_is_too_much() {
    wild(&["-t", "ext4", "-O", "inline_data", "-I", "512"], ORDERED, b"small", 6, 60);
}

#[test]
fn journalled_data_equals_the_written_bytes() {
    wild(&["-t", "ext4", "-b", "1024"], DataMode::Journal, b"", 7, 100);
    wild(&["-t", "ext3", "-b", "4096"], DataMode::Journal, b"", 8, 60);
}

#[test]
fn old_formats_and_large_clusters_are_right_too() {
    wild(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"], DataMode::Journal, b"", 13, 60);
    wild(&["-t", "ext4", "-b", "2048", "-O", "^metadata_csum,^huge_file", "-I", "128"], ORDERED, b"", 15, 60);
    wild(&["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"], ORDERED, b"", 16, 60);
    wild(
        &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "1024"],
        DataMode::Journal,
        b"small",
        14,
        60,
    );
}

#[test]
fn small_writes_stay_in_the_inode() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let mut rig = Rig::new(&["-t", "ext4", "-O", "inline_data", "-I", "512"], ORDERED, b"some words");
    assert!(rig.inode().has(InodeFlags::INLINE_DATA));
    for n in 0..20 {
        rig.write(10 * n, b"0123456789").unwrap();
        rig.check("a write");
    }
    for size in [100, 61, 60, 59, 3, 120, 0, 5] {
        rig.truncate(size).unwrap();
        rig.check("a truncation");
        rig.judge("a truncation");
    }
    assert!(rig.inode().has(InodeFlags::INLINE_DATA));
    rig.write(5, &[7; 5000]).unwrap();
    rig.check("too much");
    assert!(!rig.inode().has(InodeFlags::INLINE_DATA));
    rig.judge("too much");
}

#[test]
fn appends_are_contiguous_beside_other_writers() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let mut rig = Rig::new(&["-t", "ext4"], ORDERED, b"");
    for n in 0..300 {
        rig.write(4096 * n, &[n as u8; 4096]).unwrap();
        // Another file takes the blocks directly after it meanwhile.
        let run = rig.writer.allocator().reserve(rig.writer.home_goal(rig.ino), 1).unwrap();
        let _ = run;
    }
    // The first write reserves nothing ahead: most files have no second write.
    let mut runs = Vec::new();
    let mut at = 0;
    while at < 300 {
        let run = rig.writer.run_at(&rig.inode(), at).unwrap();
        at += u64::from(run.len);
        runs.push(run.len);
    }
    assert!(runs.len() <= 8 && runs.iter().any(|&len| len >= 64), "{runs:?}");
    rig.check("appends");
}

#[test]
fn an_orphan_that_was_never_stored_does_not_cut_the_list_of_those_before_it() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let lost_found = Ino(11);
    let mut rig = Rig::new(&["-t", "ext4", "-O", "^orphan_file"], ORDERED, b"");
    rig.writer.add_orphan(rig.ino).unwrap();
    rig.write(0, b"one").unwrap();
    rig.writer.txns().sync().unwrap();
    // Like a call that fails between this and its first change.
    rig.writer.add_orphan(lost_found).unwrap();
    rig.write(8192, b"two").unwrap();
    rig.writer.txns().sync().unwrap();
    let volume = rig.writer.volume();
    let slot = volume.inode_slot(lost_found).unwrap();
    let table = volume.cache().get(slot.block.0).unwrap();
    let next = u32::from_le_bytes(table[slot.offset + 0x14..][..4].try_into().unwrap());
    assert_eq!(u64::from(next), rig.ino.0);
}

#[test]
fn a_full_volume_stores_what_fits_and_stays_consistent() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext3", "-b", "1024"]] {
        let mut rig = Rig::new(args, ORDERED, b"");
        let mut random = Random(9);
        let mut at = 0;
        // Every other block, so that the map needs much space, too.
        let error = loop {
            let len = 1 + random.below(200_000);
            if let Err(error) = rig.write(at, &std::vec![random.below(256) as u8; len as usize]) {
                break error;
            }
            at += len + 1024 * random.below(3);
        };
        assert_eq!(error, Error::NoSpace);
        rig.check("filling up");
        rig.judge("filling up");
        rig.truncate(0).unwrap();
        rig.judge("emptying");
    }
}

#[test]
fn a_failed_change_keeps_the_blocks_that_a_write_reserved_for_its_map() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let mut rig = Rig::new(&["-t", "ext3", "-b", "1024"], ORDERED, &[7; 12 << 10]);
    // Block 12 is the first one that needs an indirect block.
    let begun = rig.writer.begin_write(rig.ino, &(12 << 10..13 << 10)).unwrap();
    begun.reserve_mapping().unwrap();
    let Span::Mapped(place) = begun.extent().span else { panic!("no place") };
    let goal = rig.writer.home_goal(rig.ino);
    let mut others = Vec::new();
    while let Ok(run) = rig.writer.allocator().reserve_metadata(goal, 1) {
        others.push(run);
    }
    // As for a change that fails before its first edit.
    drop(rig.writer.take_nodes_of(rig.ino, &(12..13), 1).unwrap());
    assert_eq!(rig.writer.allocator().reserve_metadata(goal, 1), Err(Error::NoSpace));
    rig.device.write_at(place, &[8; 1 << 10]).unwrap();
    begun.publish(|ticket| rig.writer.end_write(ticket, TimeChange::Now)).unwrap();
    others.into_iter().for_each(|run| rig.writer.allocator().release(run));
    rig.model.extend([8; 1 << 10]);
    rig.check("the second attempt");
    rig.judge("the second attempt");
}

#[test]
fn a_huge_file_is_cut_in_steps() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let mut rig = Rig::new(&["-t", "ext4", "-b", "1024"], ORDERED, b"");
    for n in 0..10_000 {
        rig.write(2048 * n, &[n as u8; 1024]).unwrap();
    }
    rig.judge("stripes");
    rig.truncate(5000).unwrap();
    rig.check("a cut");
    rig.judge("a cut");
}
