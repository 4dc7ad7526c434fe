//! Randomly damaged volumes with correct checksums: boot regions, FAT, bitmap, up-case table and sets. One `check -y`
//! repairs them for obento and for `fsck.exfat`, and loses no name that `fsck.exfat -y` keeps. `cargo xtask
//! check-mutants` is the long campaign. `OBENTO_MUTANTS=1 OBENTO_SEED=n OBENTO_ONLY=base` repeats one mutant, and
//! `OBENTO_KEEP=folder` keeps its image.

mod common;

use std::path::Path;

use obento_base::FileKind;
use obento_testkit::changes::{close, name, resolve};
use obento_testkit::mutants::Random;
use obento_testkit::oracle::program;
use obento_testkit::repairs::{Base, Repairs, Which};
use obento_vfs::Vfs;

use common::{Shape, open_to_write, put};

const SHAPES: &[Shape] = &[
    Shape { name: "sector", mkfs: &["-c", "512", "-b", "4096", "-L", "SECTOR"], kib: 500 },
    Shape { name: "page", mkfs: &["-c", "4K", "-b", "4K"], kib: 800 },
];

/// Mutants on which the repair once was not enough, or lost a name: their base and seed.
const KNOWN: &[(&str, u64)] = &[
    ("sector", 22_459),
    ("sector", 22_959),
    ("sector", 28_725),
    ("sector", 30_075),
    ("page", 20_356),
    ("page", 25_347),
    ("page", 28_940),
];

fn bases() -> Vec<Base> {
    let make = |shape: &Shape| {
        let folder = tempfile::tempdir().unwrap();
        let image = shape.make(folder.path());
        let fs = open_to_write(&image);
        let vfs = Vfs::new(fs.clone());
        for dir in ["gap", "a directory", "a directory/below", "a directory/below/deeper", "SIZES"] {
            put(&*fs, &vfs, dir, FileKind::Directory, &[]);
        }
        for n in 0..8 {
            put(&*fs, &vfs, &format!("gap/{n}"), FileKind::Regular, &[b'x'; 700]);
            let path = format!("a directory/a name of some length, number {n}.text");
            put(&*fs, &vfs, &path, FileKind::Regular, &vec![b'y'; 300 * n]);
        }
        put(&*fs, &vfs, "a directory/below/FILE", FileKind::Regular, &[1; 2000]);
        put(&*fs, &vfs, "a directory/below/deeper/file", FileKind::Regular, &[1; 10]);
        for (path, len) in [("NONE", 0), ("ONE", 512), ("MORE", 9000)] {
            put(&*fs, &vfs, &format!("SIZES/{path}"), FileKind::Regular, &vec![b'z'; len]);
        }
        // The next files are placed between the remaining ones.
        let dir = resolve(&*fs, "/gap").unwrap();
        for n in ["0", "2", "4"] {
            let ino = resolve(&*fs, &format!("/gap/{n}")).unwrap();
            fs.writable().unwrap().unlink(dir, name(n)).unwrap();
            fs.forget(ino);
        }
        fs.writable().unwrap().sync().unwrap();
        put(&*fs, &vfs, "in pieces", FileKind::Regular, &[b'p'; 20_000]);
        close(&*fs);
        Base { name: shape.name, bytes: std::fs::read(image).unwrap() }
    };
    SHAPES.iter().map(make).collect()
}

/// The places of the parts of an intact volume.
struct Places {
    sector: usize,
    fat: usize,
    heap: usize,
    root: usize,
    up_case: usize,
}

impl Places {
    fn of(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let sector = 1 << bytes[108];
        let (fat, heap, cluster) = (word(80) * sector, word(88) * sector, sector << bytes[109]);
        let at = |number: usize| heap + (number - 2) * cluster;
        let root = at(word(96));
        let entry = (root..).step_by(32).find(|&at| bytes[at] == 0x82).unwrap();
        Self { sector, fat, heap, root, up_case: at(word(entry + 20)) }
    }

    /// Returns the offsets of the sets.
    fn sets(&self, bytes: &[u8]) -> Vec<usize> {
        let is_set = |&at: &usize| bytes[at] == 0x85 && bytes[at + 32] == 0xc0;
        (self.heap..bytes.len() - 640).step_by(32).filter(is_set).collect()
    }
}

/// Damages one to three places in different ways, and corrects the checksums.
fn harm(bytes: &mut [u8], random: &mut Random) {
    let places = Places::of(bytes);
    for _ in 0..=random.below(3) {
        match random.below(8) {
            0 => boot(bytes, &places, random),
            1 => {
                let at = places.fat + 4 * random.below(80) as usize;
                let values = [0, u32::MAX, 0xffff_fff7, random.below(80) as u32, random.number() as u32];
                let value = values[random.below(5) as usize];
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            // The bitmap is in the first cluster.
            2 => bytes[places.heap + random.below(16) as usize] ^= 1 << random.below(8),
            3 => {
                // Entries of the volume itself: label, bitmap, up-case table.
                let at = places.root + 32 * random.below(3) as usize + random.below(32) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            4 => {
                let at = places.up_case + random.below(5836) as usize;
                bytes[at] ^= 1 << random.below(8);
                sum_up_case(bytes, &places);
            }
            5 | 6 => set(bytes, &places, random),
            _ => {
                let end = (places.heap + (64 << 10)).min(bytes.len());
                bytes[random.below(end as u64) as usize] ^= 1 << random.below(8);
            }
        }
    }
}

/// Flips a bit of a field of the main boot region, or of both regions.
fn boot(bytes: &mut [u8], places: &Places, random: &mut Random) {
    let (at, bit) = ([0, 3, 11][random.below(12).saturating_sub(9) as usize], random.below(8));
    let at = if at == 0 { 64 + random.below(50) as usize } else { at + random.below(8) as usize };
    let regions = if random.below(4) == 0 { 2 } else { 1 };
    for region in 0..regions {
        bytes[region * 12 * places.sector + at] ^= 1 << bit;
        sum_boot(&mut bytes[region * 12 * places.sector..], places.sector);
    }
}

fn sum_boot(region: &mut [u8], sector: usize) {
    let summed = region[..11 * sector].iter().enumerate().filter(|(at, _)| ![106, 107, 112].contains(at));
    let sum = summed.fold(0_u32, |sum, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
    region[11 * sector..12 * sector]
        .chunks_exact_mut(4)
        .for_each(|word| word.copy_from_slice(&sum.to_le_bytes()));
}

fn sum_up_case(bytes: &mut [u8], places: &Places) {
    let table = bytes[places.up_case..places.up_case + 5836].iter();
    let sum = table.fold(0_u32, |sum, &byte| sum.rotate_right(1).wrapping_add(byte.into()));
    let entry = (places.root..places.root + 128).step_by(32).find(|&at| bytes[at] == 0x82);
    if let Some(at) = entry {
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Changes a field of a set, or copies a set over another.
fn set(bytes: &mut [u8], places: &Places, random: &mut Random) {
    let sets = places.sets(bytes);
    if sets.is_empty() {
        return;
    }
    let pick = |random: &mut Random| sets[random.below(sets.len() as u64) as usize];
    let at = pick(random);
    match random.below(8) {
        0 => {
            let from = pick(random);
            let len = (usize::from(bytes[at + 1]) + 1).min(usize::from(bytes[from + 1]) + 1) * 32;
            bytes.copy_within(from..from + len, at);
        }
        1 => bytes[at + 1] = random.below(6) as u8,
        2 => bytes[at + 33] = random.below(8) as u8,
        3 => bytes[at + 35] = random.number() as u8,
        4 => bytes[at + 52] = random.below(80) as u8,
        5 => bytes[at + 66 + random.below(30) as usize] = b"\0/?*. a"[random.below(7) as usize],
        _ => bytes[at + random.below(96) as usize] ^= 1 << random.below(8),
    }
    let end = (at + 32 * (usize::from(bytes[at + 1]) + 1)).min(bytes.len());
    let summed = bytes[at..end].iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    let sum = summed.fold(0_u16, |sum, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
    bytes[at + 2..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Fails with the output of `fsck.exfat -n` if it finds anything.
fn faults(image: &Path) -> Result<(), String> {
    let output = program("fsck.exfat").arg("-n").arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said + &why) }
}

/// Returns whether the failure is expected: `fsck.exfat` refuses versions 1.01 and later, which Linux mounts and the
/// specification allows.
fn is_excused(said: &str) -> bool {
    said.contains("unsupported exfat version: 1.")
}

static REPAIRS: Repairs = Repairs { format: &common::FORMAT, harm, faults, is_excused };

#[test]
fn one_repair_of_a_mutant_is_enough_and_loses_no_name_that_fsck_exfat_keeps() {
    if common::oracles() {
        REPAIRS.run(&bases(), &Which { only: None, seeds: 1..120 });
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask check-mutants"]
fn campaign_over_every_bit_of_boot_sectors() {
    if common::oracles() {
        REPAIRS.run_bits(&bases(), |_| (0..120).chain(510..512).collect());
    }
}

#[test]
fn one_repair_of_a_mutant_is_enough_where_it_once_was_not() {
    if common::oracles() {
        let bases = bases();
        for &(base, seed) in KNOWN {
            REPAIRS.run(&bases, &Which { only: Some(base.into()), seeds: seed..seed + 1 });
        }
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask check-mutants"]
fn campaign_over_many_mutants() {
    if common::oracles() {
        REPAIRS.run(&bases(), &Which::of_environment());
    }
}
