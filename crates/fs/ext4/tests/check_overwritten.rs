//! Random bytes over metadata blocks. One repair is enough, e2fsck finds nothing after it, and it loses neither names
//! nor contents that `e2fsck -fy` keeps. `OBENTO_SEED=n OBENTO_MUTANTS=count` select the random bytes of the campaign, and
//! `OBENTO_ONLY=base` the image.

mod common;
mod lab;

use std::collections::BTreeSet;
use std::iter;
use std::ops::Range;
use std::panic::catch_unwind;

use lab::Disk;
use lab::bases::{BIGALLOC, Base, EXT2, EXT3, EXT4, LARGE, PLAIN, UNINIT, oracles};
use lab::judge::{Contents, contents, e2fsck, e2fsck_is_clean, findings, line, lost, names, repaired};
use obento_testkit::mutants::Random;

/// Groups whose structures are not together.
static NO_FLEX: Base =
    Base { name: "NO_FLEX", mke2fs: "-t ext4 -b 1024 -g 4096 -J size=1 -O ^flex_bg", debugfs: "" };
/// Large blocks, and backups of the super block.
static GROUPS: Base = Base { name: "GROUPS", mke2fs: "-t ext4 -b 4096 -g 2048 -J size=4", debugfs: "" };
/// The images of the campaign.
static BASES: &[&Base] = &[&EXT4, &EXT2, &EXT3, &BIGALLOC, &LARGE, &PLAIN, &UNINIT, &NO_FLEX, &GROUPS];
/// Number of groups whose bitmaps are overwritten, and of blocks at the start of the first inode table.
const GROUPS_HIT: u32 = 2;
const TABLE_BLOCKS: u32 = 4;
/// Maximum number of blocks at the start of the volume that are overwritten.
const MOST_FIRST: u32 = 256;

/// Blocks that are overwritten.
#[derive(Clone, Debug)]
struct Hit {
    name: String,
    blocks: Vec<Range<u32>>,
}

impl Hit {
    fn one(name: impl Into<String>, block: u32) -> Self {
        Self { name: name.into(), blocks: iter::once(block..block + 1).collect() }
    }

    fn first(count: u32) -> Self {
        Self { name: format!("the first {count} blocks"), blocks: iter::once(0..count).collect() }
    }

    fn and(&self, other: &Self) -> Self {
        let blocks = [&self.blocks[..], &other.blocks].concat();
        Self { name: format!("{} and {}", self.name, other.name), blocks }
    }

    /// Returns the bytes of an image with random bytes in the blocks.
    fn apply(&self, sound: &Disk, seed: u64) -> Vec<u8> {
        let (mut bytes, mut random) = (sound.bytes.clone(), Random::new(seed));
        for block in self.blocks.iter().cloned().flatten() {
            bytes[sound.range(block)].fill_with(|| random.below(256) as u8);
        }
        bytes
    }
}

/// Returns the single structures of a volume: descriptors, bitmaps, blocks of the first inode table.
fn structures(sound: &Disk) -> Vec<Hit> {
    let mut hits = vec![Hit::one("the descriptors", (sound.group_at(0) / sound.block) as u32)];
    for number in 0..sound.groups().min(GROUPS_HIT) {
        let group = sound.group_of(number);
        hits.push(Hit::one(format!("block bitmap {number}"), group.bg_block_bitmap_lo.get()));
        hits.push(Hit::one(format!("inode bitmap {number}"), group.bg_inode_bitmap_lo.get()));
    }
    let table = sound.group_of(0).bg_inode_table_lo.get();
    hits.extend((0..TABLE_BLOCKS).map(|n| Hit::one(format!("inode table block {n}"), table + n)));
    hits
}

fn pairs(single: &[Hit]) -> Vec<Hit> {
    let pairs =
        single.iter().enumerate().flat_map(|(at, one)| single[at + 1..].iter().map(|other| one.and(other)));
    pairs.collect()
}

/// An intact image and what is in it.
struct Sound {
    disk: Disk,
    contents: Contents,
    names: BTreeSet<Vec<u8>>,
    /// Arguments with which e2fsck uses the first backup of the super block, if there is one.
    backup: Option<[String; 4]>,
}

impl Sound {
    fn of(base: &'static Base) -> Self {
        let disk = base.disk();
        let first = disk.first + disk.per_group;
        let backup = (disk.groups() > 1)
            .then(|| ["-b".into(), first.to_string(), "-B".into(), disk.block.to_string()]);
        let (contents, names) = (contents(&disk.bytes), names(&disk.bytes).expect("an intact image").0);
        Self { disk, contents, names, backup }
    }

    /// Repairs with e2fsck, which may need a second run. Returns `None` if e2fsck cannot repair the image.
    fn repaired_by_e2fsck(&self, damaged: &[u8]) -> Option<Vec<u8>> {
        let has_super_block = damaged[1024..2048] == self.disk.bytes[1024..2048];
        let mut arguments = vec!["-fy"];
        if !has_super_block {
            arguments.extend(self.backup.as_ref()?.iter().map(String::as_str));
        }
        let (first, once) = e2fsck(damaged, &arguments);
        let (second, twice) = e2fsck(&once, &["-fy"]);
        (first.is_one() && second.is_one() && e2fsck_is_clean(&twice).is_clean()).then_some(twice)
    }

    /// Compares our repair of an image with that of e2fsck. Returns `false` if e2fsck cannot repair the image.
    fn judge(&self, damaged: &[u8]) -> Result<bool, String> {
        let Some(theirs) = self.repaired_by_e2fsck(damaged) else { return Ok(false) };
        let ours = repaired(damaged).map_err(|error| format!("our repair fails: {error}"))?;
        let left = findings(&ours).map_err(|error| format!("our check after the repair fails: {error}"))?;
        if !left.is_empty() {
            let lines: Vec<String> = left.iter().take(5).map(line).collect();
            return Err(format!("our repair leaves {} findings: {}", left.len(), lines.join(", ")));
        }
        let after = e2fsck_is_clean(&ours);
        if !after.is_clean() {
            return Err(format!("e2fsck finds after our repair:\n{}", after.text));
        }
        let their_lost = lost(&self.contents, &contents(&theirs));
        let mut our_lost = lost(&self.contents, &contents(&ours));
        our_lost.retain(|ino| !their_lost.contains(ino));
        if !our_lost.is_empty() {
            return Err(format!("our repair alone loses the contents of the inodes {our_lost:?}"));
        }
        let walk =
            |bytes| names(bytes).map(|(names, _)| names).map_err(|error| format!("a walk fails: {error}"));
        let (our_names, their_names) = (walk(&ours)?, walk(&theirs)?);
        let kept = self.names.intersection(&their_names);
        let lost: Vec<String> = kept
            .filter(|name| !our_names.contains(*name))
            .map(|name| name.escape_ascii().to_string())
            .collect();
        if lost.is_empty() {
            Ok(true)
        } else {
            Err(format!("our repair alone loses {} names: {:.5?}", lost.len(), lost))
        }
    }
}

/// Judges each hit with each seed. Returns the number of images that were compared, and the failures.
fn judge_all(
    base: &'static Base,
    hits: impl Fn(&Disk) -> Vec<Hit>,
    seeds: Range<u64>,
) -> (usize, Vec<String>) {
    let sound = Sound::of(base);
    let (mut judged, mut failures) = (0, Vec::new());
    for hit in hits(&sound.disk) {
        for seed in seeds.clone() {
            let outcome =
                catch_unwind(std::panic::AssertUnwindSafe(|| sound.judge(&hit.apply(&sound.disk, seed))));
            match outcome.unwrap_or_else(|_| Err("panics".into())) {
                Ok(is_compared) => judged += usize::from(is_compared),
                Err(reason) => {
                    let failure = format!("{}: {}, seed {seed}: {reason:.1500}", base.name, hit.name);
                    println!("{failure}");
                    failures.push(failure);
                }
            }
        }
    }
    println!("{}: {judged} images compared with the seeds {seeds:?}, {} failures", base.name, failures.len());
    assert!(judged + failures.len() > 0, "{}: e2fsck repairs no image", base.name);
    (judged, failures)
}

fn expect_repaired(bases: &[&'static Base], hits: impl Fn(&Disk) -> Vec<Hit>, seeds: Range<u64>) {
    if !oracles() {
        return;
    }
    let all = bases.iter().map(|base| judge_all(base, &hits, seeds.clone()));
    let (judged, failures) = all.fold((0, Vec::new()), |(count, mut all), (judged, failures)| {
        all.extend(failures);
        (count + judged, all)
    });
    assert!(failures.is_empty(), "{} of {judged}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn one_repair_of_an_overwritten_bitmap_or_inode_table_is_enough() {
    expect_repaired(&[&EXT4, &EXT2, &LARGE], structures, 1..2);
}

#[test]
fn one_repair_of_a_bitmap_and_of_the_root_is_enough() {
    let with_root = |sound: &Disk| {
        let single = structures(sound);
        let root = single.iter().find(|hit| hit.name == "inode table block 0").unwrap();
        single.iter().filter(|hit| hit.name != root.name).map(|hit| hit.and(root)).take(3).collect()
    };
    expect_repaired(&[&EXT4, &EXT2, &BIGALLOC, &NO_FLEX], with_root, 1..2);
}

#[test]
fn one_repair_of_the_overwritten_start_of_a_volume_is_enough() {
    let first = |_: &Disk| [1, 16, 64, 128].map(Hit::first).to_vec();
    expect_repaired(&[&EXT4, &GROUPS], first, 1..2);
}

#[test]
#[ignore = "takes an hour: cargo test --test check_overwritten -- --ignored"]
fn campaign_over_overwritten_metadata() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("OBENTO_SEED").unwrap_or(1);
    let seeds = first..first + number("OBENTO_MUTANTS").unwrap_or(1);
    let only = std::env::var("OBENTO_ONLY").ok();
    let bases: Vec<&'static Base> =
        BASES.iter().copied().filter(|base| only.as_ref().is_none_or(|only| base.name == only)).collect();
    let all = |sound: &Disk| {
        let single = structures(sound);
        let starts = (1..=MOST_FIRST).map(Hit::first);
        [&single[..], &pairs(&single)].concat().into_iter().chain(starts).collect()
    };
    expect_repaired(&bases, all, seeds);
}
