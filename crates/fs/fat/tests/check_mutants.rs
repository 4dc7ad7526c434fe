//! Randomly damaged volumes: boot sectors, FATs and entries. One `check -y` repairs them for obento and for
//! `fsck.fat`, and loses no name that `fsck.fat -a` keeps. `cargo xtask check-mutants` is the long campaign.
//! `OBENTO_MUTANTS=1 OBENTO_SEED=n OBENTO_ONLY=base` repeats one mutant, and `OBENTO_KEEP=folder` keeps its image.

mod common;
#[path = "common/damage.rs"]
mod damage;

use std::path::Path;

use damage::Volume;
use obento_base::FileKind;
use obento_testkit::changes::{close, create};
use obento_testkit::mutants::Random;
use obento_testkit::oracle::{program, run};
use obento_testkit::repairs::{Base, Repairs, Which};
use obento_vfs::Vfs;

/// Bases: arguments of `mkfs.fat`, and KiB.
const BASES: &[(&str, &[&str], u64)] = &[
    ("fat12", &["-F", "12", "-s", "1", "-r", "64", "-n", "TWELVE"], 100),
    ("fat12-one", &["-F", "12", "-s", "2", "-f", "1", "-r", "32"], 200),
    ("fat16", &["-F", "16", "-s", "1", "-r", "64"], 2200),
    ("fat32", &["-F", "32", "-s", "1", "-n", "THIRTY-TWO"], 800),
];

/// Mutants on which the repair once was not enough, or lost a name: their base and seed.
const KNOWN: &[(&str, u64)] = &[
    ("fat12", 20_356),
    ("fat12", 25_372),
    ("fat12", 27_179),
    ("fat12", 38_514),
    ("fat12-one", 24_478),
    ("fat16", 20_332),
    ("fat32", 20_356),
    // A chain of the root directory that continues in another directory in one copy of the FAT.
    ("fat32", 23_119),
    // The second FAT is not in use any more.
    ("fat32", 26_283),
    ("fat32", 29_436),
    ("fat32", 21_796),
    // Four bits after the last entry of the FATs.
    ("fat12", 31_369),
];

fn bases() -> Vec<Base> {
    let make = |&(name, args, kib): &(&'static str, &[&str], u64)| {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("base.img");
        std::fs::File::create(&image).and_then(|file| file.set_len(kib << 10)).unwrap();
        run(program("mkfs.fat").args(["-i", "1234abcd", "--invariant"]).args(args).arg(&image)).unwrap();
        let fs = common::open_to_write(&image);
        let vfs = Vfs::new(fs.clone());
        let put = |path: &str, kind: FileKind, len: usize| {
            let (dir, name) = path.rsplit_once('/').unwrap();
            let ino = create(&*fs, common::resolve(&*fs, dir).unwrap(), name, kind).unwrap();
            assert_eq!(vfs.node(ino).unwrap().write_at(0, &vec![b'x'; len]), Ok(len));
        };
        for dir in [
            "/gap",
            "/A long directory",
            "/A long directory/below",
            "/A long directory/below/deeper",
            "/SIZES",
        ] {
            let (parent, name) = dir.rsplit_once('/').unwrap();
            create(&*fs, common::resolve(&*fs, parent).unwrap(), name, FileKind::Directory).unwrap();
        }
        let put = |path: &str, len: usize| put(path, FileKind::Regular, len);
        for n in 0..6 {
            put(&format!("/gap/{n}"), 600);
            put(&format!("/A long directory/a long name, number {n}.text"), 300 * n);
        }
        for (path, len) in [("below/FILE", 2000), ("below/deeper/file", 10)] {
            put(&format!("/A long directory/{path}"), len);
        }
        for (name, len) in [("NONE", 0), ("ONE", 512), ("MORE", 5000)] {
            put(&format!("/SIZES/{name}"), len);
        }
        // The next files are placed between the remaining ones.
        let dir = common::resolve(&*fs, "/gap").unwrap();
        for n in ["0", "2", "4"] {
            let ino = common::resolve(&*fs, &format!("/gap/{n}")).unwrap();
            fs.writable().unwrap().unlink(dir, obento_testkit::changes::name(n)).unwrap();
            fs.forget(ino);
        }
        fs.writable().unwrap().sync().unwrap();
        put("/in pieces", 4000);
        close(&*fs);
        Base { name, bytes: std::fs::read(image).unwrap() }
    };
    BASES.iter().map(make).collect()
}

/// Damages one to three places in different ways.
fn harm(bytes: &mut [u8], random: &mut Random) {
    let volume = Volume::of(bytes.to_vec());
    for _ in 0..=random.below(3) {
        match random.below(6) {
            0 => boot(bytes, &volume, random),
            1 | 2 => entry_of_a_fat(bytes, &volume, random),
            3 => field_of_an_entry(bytes, &volume, random),
            4 => {
                let places = entries(bytes, &volume);
                let pick = |random: &mut Random| places[random.below(places.len() as u64) as usize];
                let (from, to) = (pick(random), pick(random));
                bytes.copy_within(from..from + 32, to);
            }
            _ => {
                let end = (volume.data + 60 * volume.cluster) as u64;
                let at = random.below(end.min(bytes.len() as u64)) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
}

/// Flips a bit of a field of the boot sector, its backup or FSInfo.
fn boot(bytes: &mut [u8], volume: &Volume, random: &mut Random) {
    let start = if volume.width == 32 { [0, 0, 512, 6 * 512][random.below(4) as usize] } else { 0 };
    let at = match start {
        512 => [0, 484, 488, 492, 508][random.below(5) as usize] + random.below(4) as usize,
        _ => random.below(90) as usize,
    };
    bytes[start + at] ^= 1 << random.below(8);
}

/// Changes an entry of the first FAT, of the second, or of both.
fn entry_of_a_fat(bytes: &mut [u8], volume: &Volume, random: &mut Random) {
    let mut changed = Volume { bytes: bytes.to_vec(), ..volume.clone() };
    let cluster = random.below(70) as u32;
    let value = match random.below(5) {
        0 => 0,
        1 => u32::MAX,
        2 => u32::MAX - 8,
        3 => random.below(70) as u32,
        _ => random.number() as u32,
    };
    let copies = usize::from(volume.bytes[16]);
    match random.below(3) as usize {
        copy if copy < copies => changed.link_in(copy, cluster, value),
        _ => (0..copies).for_each(|copy| changed.link_in(copy, cluster, value)),
    }
    let end = (volume.fat + copies * volume.fat_len).min(bytes.len());
    bytes[volume.fat..end].copy_from_slice(&changed.bytes[volume.fat..end]);
}

/// Returns the entries that are in use.
fn entries(bytes: &[u8], volume: &Volume) -> Vec<usize> {
    let mut places: Vec<usize> = (volume.root..volume.data).step_by(32).collect();
    let starts = (volume.data..bytes.len() - volume.cluster).step_by(volume.cluster).take(80);
    let is_dir =
        |&at: &usize| bytes[at..].starts_with(b".          \x10") || volume.width == 32 && at == volume.data;
    places.extend(starts.filter(is_dir).flat_map(|at| (at..at + volume.cluster).step_by(32)));
    places.retain(|&at| bytes[at] != 0);
    places
}

fn field_of_an_entry(bytes: &mut [u8], volume: &Volume, random: &mut Random) {
    let places = entries(bytes, volume);
    let at = places[random.below(places.len() as u64) as usize];
    match random.below(4) {
        0 => bytes[at + random.below(32) as usize] ^= 1 << random.below(8),
        1 => bytes[at + random.below(32) as usize] = random.number() as u8,
        2 => bytes[at] = [0, 0xe5, 0x2e, 0x20][random.below(4) as usize],
        _ => bytes[at + 26] = random.below(70) as u8,
    }
}

/// Fails with the output of `fsck.fat -n`, except its banner and its summary.
fn faults(image: &Path) -> Result<(), String> {
    let output = program("fsck.fat").arg("-n").arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_quiet = said.lines().count() == 2;
    if output.status.success() && is_quiet { Ok(()) } else { Err(said + &why) }
}

/// Returns whether the failure is expected: `fsck.fat` refuses volumes with more than two FATs, which Linux and
/// obento read, and labels that are not ASCII.
fn is_excused(said: &str) -> bool {
    said.contains("only 1 or 2 FATs are supported") || said.contains("stored in root directory is not valid")
}

static REPAIRS: Repairs = Repairs { format: &common::FORMAT, harm, faults, is_excused };

#[test]
fn one_repair_of_a_mutant_is_enough_and_loses_no_name_that_fsck_fat_keeps() {
    if common::oracles() {
        REPAIRS.run(&bases(), &Which { only: None, seeds: 1..60 });
    }
}

#[test]
fn a_bit_of_the_boot_sector_that_is_wrong_costs_no_name() {
    if common::oracles() {
        let bases: Vec<Base> =
            bases().into_iter().filter(|base| ["fat12", "fat32"].contains(&base.name)).collect();
        REPAIRS.run_bits(&bases, |_| (0x0b..0x18).chain(0x20..0x34).collect());
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask check-mutants"]
fn campaign_over_every_bit_of_boot_sectors() {
    if common::oracles() {
        REPAIRS.run_bits(&bases(), |base| match base.name {
            // Including FSInfo and the backup.
            "fat32" => (0..90).chain(510..1024).chain(3072..3072 + 90).chain(3582..3584).collect(),
            _ => (0..64).chain(510..512).collect(),
        });
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
