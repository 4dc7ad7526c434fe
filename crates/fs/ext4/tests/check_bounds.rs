//! Hostile images: checking and repairing each stays within the limits of memory and time.
//!
//! There is one test, since the peak memory of a process includes everything that it does at once.

mod common;
mod lab;

use std::fs;
use std::time::Duration;

use lab::bases::{EXT2, EXT4, LARGE, oracles};
use lab::judge::{e2fsck_is_clean, findings, repaired};
use lab::{Bits, Disk, I_BLOCK};

/// Maximum memory of a check, and maximum processor time for an image of a few MiB.
const MEMORY: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(20);
/// How much longer a check with line counters may take: 4.5 times was measured.
const COUNTED: u32 = 6;
const REGULAR: u16 = 0o100_644;
const DIRECTORY: u16 = 0o040_755;

#[test]
fn images_made_to_cost_much_take_no_more_than_others() {
    if !oracles() {
        return;
    }
    // The variable names the file of the counters.
    let time = if std::env::var_os("LLVM_PROFILE_FILE").is_some() { TIME * COUNTED } else { TIME };
    for (name, sound, bytes) in [
        ("files that all claim all blocks", &EXT2, claimed_by_all(REGULAR)),
        ("directories that all claim all blocks", &EXT2, claimed_by_all(DIRECTORY)),
        ("a tree in which every node is the same block", &EXT4, tree_of_itself()),
        ("a million names for one file", &LARGE, million_names()),
    ] {
        let before = memory("VmRSS:");
        // 5 resets the peak to the current memory.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let started = processor_time();
        assert!(!findings(&bytes).unwrap().is_empty(), "{name}: nothing is found");
        let looked = processor_time() - started;
        let fixed = repaired(&bytes).unwrap();
        let (took, taken) = (processor_time() - started - looked, memory("VmHWM:") - before);
        println!("{name}: {looked:?}, {took:?}, {} MiB", taken >> 20);
        // The image exists four times: as it is read, as it is repaired, as the judge reads it, and the original.
        let images = 4 * bytes.len() as u64;
        assert!(taken < MEMORY + images, "{name}: {} MiB", taken >> 20);
        assert!(looked < time && took < time, "{name}: {looked:?}, {took:?}");
        assert_eq!(findings(&fixed).unwrap(), [], "{name}: damage is left");
        let second = e2fsck_is_clean(&fixed);
        assert!(second.is_clean(), "{name}: e2fsck reports {}", second.text);
        let (sound, fixed) = (sound.disk(), Disk::new(fixed));
        for path in ["file", "twice", "dir/inner", "slow"] {
            assert!(held(&sound, path) == held(&fixed, path), "{name}: {path} has other contents");
        }
    }
}

/// Returns the blocks of a file. Some of the images cannot be read as files, since they have holes of terabytes.
fn held<'d>(disk: &'d Disk, path: &str) -> Vec<&'d [u8]> {
    disk.file_blocks(disk.ino(path)).into_iter().map(|block| &disk.bytes[disk.range(block)]).collect()
}

/// Returns a line of `/proc/self/status` in bytes.
fn memory(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    found.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Returns the processor time of the process, which does not depend on other load. User and system time, in hundredths
/// of a second, are the 12th and 13th word after the name.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let words = text.rsplit(')').next().unwrap().split_whitespace();
    Duration::from_millis(words.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum())
}

/// Every inode has three levels of tables, each of which is the same block full of its own number: 16 million blocks.
fn claimed_by_all(mode: u16) -> Vec<u8> {
    let mut disk = EXT2.disk();
    let table = disk.free_block();
    let words = vec![table.to_le_bytes(); disk.block / 4].concat();
    disk.put(disk.range(table).start, &words);
    for ino in 30..=disk.super_block().s_inodes_count.get() {
        disk.edit_inode(&format!("<{ino}>"), |inode| {
            inode.i_mode = mode.into();
            inode.i_links_count = 1.into();
            inode.i_size_lo = 0x4000_0000.into();
        });
        let at = disk.inode_at(ino) + I_BLOCK + 12 * 4;
        disk.put(at, &[table.to_le_bytes(); 3].concat());
    }
    disk.bytes
}

/// A tree of five levels whose nodes are one block that refers to itself 84 times.
fn tree_of_itself() -> Vec<u8> {
    const MAGIC: u16 = 0xf30a;
    let mut disk = EXT4.disk();
    let (node, ino) = (disk.free_block(), disk.ino("pieces"));
    let entries = |count: u16, max: u16, depth: u16, step: u32| {
        let mut bytes: Vec<u8> =
            [MAGIC, count, max, depth, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        for n in 0..u32::from(count) {
            bytes.extend([n * step, node, 0].iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes
    };
    let root = entries(4, 4, 5, 1 << 28);
    disk.put(disk.inode_at(ino) + I_BLOCK, &root);
    disk.seal_inode(ino);
    let below = entries(84, 84, 4, 1 << 20);
    let at = disk.range(node).start;
    disk.put(at, &below);
    disk.seal_extent_node(ino, at);
    disk.bytes
}

/// Returns a directory of 12 MiB whose entries, 340 per block, all refer to one file.
fn million_names() -> Vec<u8> {
    const BLOCKS: u32 = 3072;
    const RECORD: usize = 12;
    let mut disk = LARGE.disk();
    let (dir, file) = (disk.ino("dir/sub"), disk.ino("file"));
    let is_free = |start: &u32| (*start..start + BLOCKS).all(|block| !disk.bit(Bits::Blocks, block));
    let end = disk.super_block().s_blocks_count_lo.get() - BLOCKS;
    let first = (1..end).find(is_free).expect("half of the image is free");
    let old = disk.range(disk.file_block(dir, 0)).start;
    let dots = disk.bytes[old..old + 2 * RECORD].to_vec();
    let mut names = 0_u32..;
    for block in first..first + BLOCKS {
        let range = disk.range(block);
        let (mut at, end) = (range.start, range.end - RECORD);
        if block == first {
            disk.put(at, &dots);
            // `..` extended to the end of its block.
            disk.put(at + RECORD + 4, &12_u16.to_le_bytes());
            at += 2 * RECORD;
        }
        while at + RECORD <= end {
            let len = if at + 2 * RECORD > end { end - at } else { RECORD };
            disk.put(at, &entry(file, len, names.next().unwrap()));
            at += len;
        }
        disk.put(end, &[0, 0, 0, 0, 12, 0, 0, 0xde, 0, 0, 0, 0]);
        disk.seal_entries(dir, range.start);
    }
    disk.edit_inode("dir/sub", |inode| inode.i_size_lo = (BLOCKS * 4096).into());
    disk.edit_extent("dir/sub", &[], 0, |extent| {
        extent.ee_start_lo = first.into();
        extent.ee_len = u16::try_from(BLOCKS).unwrap().into();
    });
    disk.bytes
}

/// Returns a record of a regular file whose name is a number: four of the 64 bytes from `A` on.
fn entry(ino: u32, len: usize, number: u32) -> Vec<u8> {
    let name: Vec<u8> = (0..4).map(|place| b'A' + (number >> (place * 6) & 63) as u8).collect();
    let mut bytes = ino.to_le_bytes().to_vec();
    bytes.extend(u16::try_from(len).unwrap().to_le_bytes());
    bytes.extend([4, 1]);
    bytes.extend(name);
    bytes
}
