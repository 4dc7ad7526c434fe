//! Randomly damaged images, the same in every run. Our check and e2fsck must agree whether something is wrong, and both
//! must find nothing after a repair. No file may be lost that e2fsck keeps. `-p` must repair nothing that e2fsck
//! refuses to repair without asking. `cargo xtask check-mutants` is the long campaign. `OBENTO_MUTANTS=1 OBENTO_SEED=n
//! OBENTO_ONLY=base OBENTO_HARM=kind` repeats one mutant, and `OBENTO_KEEP=folder` keeps its image. With
//! `OBENTO_SEALED=1` every checksum is corrected after the damage, and names are compared, too.

mod common;
mod lab;

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::bases::{ALL, Base, oracles};
use lab::harm::Harm;
use lab::judge::{
    e2fsck, e2fsck_is_clean, findings, line, lost_to_us_alone, names, names_lost_to_us_alone, repair_copy,
    repaired,
};
use obento_driver::RepairMode;

/// Longer than an image of a few MiB may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Mutants on which our check and e2fsck once differed.
const KNOWN: &[(&str, &str, u64)] = &[
    ("QUOTA", "inodes", 16),
    ("QUOTA", "inodes", 25),
    ("QUOTA", "inodes", 79),
    ("QUOTA", "copied", 85),
    ("LARGE", "metadata", 30),
    ("LARGE", "exchanged", 56),
    ("EXT2", "inodes", 52),
    ("EXT2", "bytes", 63),
    ("EXT3", "trees", 69),
    ("ORPHAN_FILE", "trees", 60),
    ("BIGALLOC", "exchanged", 56),
    ("EXT2", "trees", 132),
    ("EXT2", "trees", 249),
    ("EXT2", "inodes", 232),
    ("EXT3", "trees", 114),
    ("EXT3", "trees", 222),
    ("EXT3", "inodes", 223),
    ("INLINE", "bytes", 117),
    ("INLINE", "inodes", 214),
    ("EA_INODE", "exchanged", 182),
    ("QUOTA", "copied", 193),
    ("QUOTA", "exchanged", 200),
    ("UNINIT", "bytes", 261),
    ("LARGE", "bytes", 279),
    ("EXT3", "exchanged", 272),
    ("LARGE", "trees", 249),
    ("EXT3", "inodes", 304),
    ("EXT3", "bytes", 324),
    ("EA_INODE", "inodes", 3004),
    ("QUOTA", "copied", 5008),
    ("EXT4", "trees", 40_962),
];
/// Mutants with correct checksums on which our check and e2fsck once differed.
const KNOWN_SEALED: &[(&str, u64)] = &[
    ("EXT4", 21_547),
    ("EXT4", 30_127),
    ("EXT3", 10_010),
    ("EXT3", 10_020),
    // A file that grows to an extent behind its end.
    ("EXT4", 40_962),
    // A bitmap in a block of a directory.
    ("EXT4", 41_097),
    ("EXT2", 40_209),
    // A directory that loses its first block.
    ("PLAIN", 40_783),
    ("PLAIN", 41_514),
    // A UUID that differs from that of the backups.
    ("UNINIT", 40_127),
    // The resize inode, whose table is in metadata, copied over a file.
    ("EXT4", 60_112),
    // A table of pointers in the descriptors or the super block.
    ("EXT2", 40_303),
    ("EXT2", 41_455),
    ("EXT2", 41_803),
    // A root directory whose `.` has neither length nor name.
    ("EA_INODE", 40_428),
    // Directories that lose their first block, before which a name would lose its place to `.`.
    ("EXT2", 40_638),
    ("EXT2", 40_663),
    // An extent that grows over most of the volume, and needs a node of the tree when it is split.
    ("EXT4", 40_890),
    ("PLAIN", 40_890),
    ("UNINIT", 40_890),
    // A table of inodes over the doubly indirect block of the resize inode.
    ("EXT4", 41_853),
    ("EA_INODE", 41_853),
    // A block size that only the cluster size and the first data block contradict.
    ("EXT4", 60_491),
    // A device of a journal on a volume without one.
    ("EXT2", 40_367),
    // A journal inode that is longer than its journal.
    ("EXT3", 41_383),
    // The value of an attribute whose only block has the wrong number.
    ("EA_INODE", 40_674),
    ("EA_INODE", 41_035),
    ("EA_INODE", 41_503),
    ("EA_INODE", 41_754),
    // A short symbolic link whose target is in a block.
    ("EXT4", 60_799),
    // An inode of the boot loader without a type, whose size is impossible.
    ("INLINE", 42_158),
    // An orphan file whose link count is 0.
    ("ORPHAN_FILE", 42_055),
    // An orphan file that ends within a block.
    ("ORPHAN_FILE", 42_712),
    // A block of attributes in a table of inodes.
    ("ORPHAN_FILE", 42_117),
    ("ORPHAN_FILE", 43_089),
    // The number of another inode for the orphan file.
    ("ORPHAN_FILE", 42_779),
    ("ORPHAN_FILE", 43_103),
    // A bitmap that moves, and a number of unused inodes that cannot be.
    ("BIGALLOC", 42_081),
    ("BIGALLOC", 42_597),
    ("BIGALLOC", 43_701),
    ("LARGE", 42_177),
    // A bitmap in the cluster of a directory.
    ("BIGALLOC", 43_125),
    // A directory that grows over most of a volume with clusters.
    ("BIGALLOC", 43_387),
    // A journal with unknown features, which neither repairs.
    ("LARGE", 43_644),
    // An owner of the inode of bad blocks.
    ("LARGE", 42_759),
    // The inode of the boot loader with extents and inline data.
    ("LARGE", 42_852),
    // A number of reserved descriptor blocks that includes bitmaps and the inode table.
    ("LARGE", 42_876),
    ("LARGE", 42_911),
    // A journal inode that is longer than its extents.
    ("BIGALLOC", 43_087),
    ("LARGE", 43_519),
    // A quota file that is a symbolic link, and that e2fsck repairs in two runs.
    ("QUOTA", 42_172),
];
/// One of this many mutants is also repaired with `-p`.
const PREEN_SAMPLE: u64 = 4;

/// Tests one mutant. The error describes a difference between our check and e2fsck.
fn judge(bytes: &[u8]) -> Result<(), String> {
    let second = e2fsck_is_clean(bytes);
    let found = timed("look", || findings(bytes))?;
    let reported: Vec<String> = match &found {
        Ok(found) => found.iter().map(line).collect(),
        Err(error) => vec![error.to_string()],
    };
    match (second.is_clean(), reported.is_empty()) {
        (false, true) if second.is_one() => {
            return Err(format!("only e2fsck finds something: {}", second.text));
        }
        (true, false) if second.is_silent() && !reported.iter().all(|one| is_unknown(one, &reported)) => {
            return Err(format!("only ours finds something: {reported:?}"));
        }
        (_, true) => return Ok(()),
        _ => {}
    }
    // An image that is no longer a volume cannot be repaired.
    if found.is_err() {
        return Ok(());
    }
    let fixed = timed("repair", || repaired(bytes))?
        .map_err(|error| format!("is not repaired: {error} {reported:?}"))?;
    if reported.iter().any(|reported| reported.starts_with("truncated ")) {
        // Neither repairs an image whose end is missing: e2fsck asks whether to abort, and interprets `-y` as yes.
        return if fixed == bytes {
            Ok(())
        } else {
            Err(format!("is repaired although its end is missing: {reported:?}"))
        };
    }
    let left: Vec<String> = findings(&fixed).map_err(|error| error.to_string())?.iter().map(line).collect();
    if !left.is_empty()
        && left.iter().all(|left| is_of_unknown_journal(left))
        && !e2fsck(bytes, &["-fy"]).0.is_one()
    {
        // Neither discards a journal with unknown features: a newer version may be able to replay it.
        return Ok(());
    }
    if !left.is_empty() {
        return Err(format!("after our repair of {reported:?} we find {left:?}"));
    }
    let second = e2fsck_is_clean(&fixed);
    if !second.is_clean() {
        return Err(format!("after our repair of {reported:?} e2fsck reports {}", second.text));
    }
    let lost = lost_to_us_alone(bytes, &fixed);
    if lost.is_empty() { Ok(()) } else { Err(format!("after our repair of {reported:?} {lost:?} are lost")) }
}

/// Returns whether the finding is a journal with unknown features.
fn is_of_unknown_journal(reported: &str) -> bool {
    reported.starts_with("journal-damaged ") && reported.contains("is not supported")
}

/// Tests the names of a mutant. After one repair the volume opens and can be read, and a second run changes nothing. No
/// name is lost that e2fsck keeps.
fn judge_names(sound: &BTreeSet<Vec<u8>>, bytes: &[u8]) -> Result<(), String> {
    // An image that is no longer a volume cannot be repaired.
    let Ok(fixed) = repaired(bytes) else { return Ok(()) };
    let (ours, unreadable) = names(&fixed).map_err(|error| format!("after our repair: {error}"))?;
    if !unreadable.is_empty() {
        return Err(format!("after our repair {unreadable:?} cannot be read"));
    }
    if repaired(&fixed).as_ref() != Ok(&fixed) {
        return Err("a second repair changes something".into());
    }
    let lost = names_lost_to_us_alone(sound, bytes, &ours);
    if lost.is_empty() { Ok(()) } else { Err(format!("our repair loses the names {lost:?}")) }
}

/// Returns whether `e2fsck -fn` does not report a finding. `all` are the findings of the image.
fn is_unknown(reported: &str, all: &[String]) -> bool {
    // `__ext4_ext_check` of Linux refuses a node whose depth does not match its level in the tree; e2fsck uses only
    // the levels.
    let is_depth = reported.starts_with("extent-header ") && reported.contains("eh_depth");
    // e2fsck sets these silently (`PR_2_SET_FILETYPE` has no message with `-n`). It checks only the first quarter of
    // the reserved descriptor blocks (`check_resize_inode` stops at `s_reserved_gdt_blocks / 4`). Linux does not grow a
    // volume with a block that does not refer to its backups (`reserve_backup_gdb`).
    let is_kept =
        reported.starts_with("resize-inode ") && reported.contains("does not refer to a reserved block");
    // Linux opens no file or directory with the flag of attribute values.
    let is_value_flag = reported.starts_with("inode-flag ") && reported.contains("ea_inode");
    // Only Linux compares the contents of a value with its size and its hash. e2fsck marks such an inode with an
    // impossible block of attributes as bad, and then ignores it. It repairs bad inodes only if a name refers to them
    // (`process_bad_inode`).
    let of_values = ["value-hash ", "value-size ", "xattr-value-size "];
    let is_content = of_values.iter().any(|code| reported.starts_with(code));
    let ino = reported.split(' ').find(|word| word.starts_with("ino=")).unwrap_or("ino=none");
    let same = ["value-hash", "value-size"].map(|code| format!("{code} {ino} "));
    let is_value_field = reported.starts_with("inode-field ")
        && reported.contains("i_file_acl")
        && all.iter().any(|other| same.iter().any(|same| other.starts_with(same)));
    let is_value = is_content || is_value_field;
    // e2fsck ignores these fields in the format's own inodes. Linux opens no inode with such an extra size, and a
    // change of the size moves the block of attributes.
    let of_own = ["inode-field", "extra-size"].iter().any(|code| reported.starts_with(&format!("{code} ")));
    let is_own = (1..=12).any(|own| own != 2 && ino == format!("ino={own}"));
    let is_own_field = of_own && is_own || reported.starts_with("bad-blocks-inode ");
    // 1.47.0 does not check the feature.
    let is_feature = reported.starts_with("feature ") && reported.contains("ea_inode");
    // With `-n` it does not read the orphan list.
    let is_orphan_list = reported.starts_with("orphan-list ");
    // It compares only features and the UUID with the backups, and does not report a second journal. It examines the
    // orphan file of a volume without the feature only if that inode is in use.
    let is_value = is_value || reported.starts_with("super-block-value ");
    // e2fsck uses the UUID of the primary super block for the checksums of descriptors; our check uses that of the backups.
    let is_of_uuid = reported.starts_with("descriptor-checksum ")
        && all.iter().any(|other| other.starts_with("super-block-value ") && other.contains("s_uuid"));
    is_orphan_list
        || is_of_uuid
        || is_depth
        || is_kept
        || is_value_flag
        || is_own_field
        || is_value
        || is_feature
        || reported.starts_with("entry-type-missing ")
}

/// Returns the result of `act`, unless it takes too long.
fn timed<T>(what: &str, act: impl FnOnce() -> T) -> Result<T, String> {
    let started = Instant::now();
    let answer = act();
    if started.elapsed() > LIMIT { Err(format!("{what} takes {:?}", started.elapsed())) } else { Ok(answer) }
}

/// Compares the effect of `-p` on a mutant with that of e2fsck.
fn judge_preen(bytes: &[u8]) -> Result<(), String> {
    /// Bits of an exit status of fsck(8): nothing was wrong, or everything was repaired.
    const NOTHING_LEFT: i32 = 3;
    let Ok((report, after)) = repair_copy(bytes, RepairMode::Safe) else { return Ok(()) };
    let theirs = e2fsck(bytes, &["-fp"]).0;
    // `e2fsck -p` clears a quota file of another type, and then refuses the block numbers that it had read before. The
    // file is computed again, so that nothing is lost.
    let is_of_quota = theirs.text.contains("Quota inode is not a regular file.  CLEARED.");
    if theirs.is_one() && theirs.code & !NOTHING_LEFT != 0 && report.repaired > 0 && !is_of_quota {
        return Err(format!(
            "-p repairs {} of {}, but e2fsck reports {}",
            report.repaired, report.found, theirs.text
        ));
    }
    if report.repaired == 0 && after != bytes {
        return Err("-p repairs nothing, but writes".into());
    }
    let second = e2fsck_is_clean(&after);
    if report.left() == 0 && !second.is_clean() {
        return Err(format!("-p leaves nothing, and e2fsck says {}", second.text));
    }
    Ok(())
}

/// The mutants to test.
struct Campaign {
    bases: Vec<&'static Base>,
    seeds: Range<u64>,
    /// The kind of damage; `None` lets the seed choose.
    harm: Option<String>,
    /// The folder that keeps mutants.
    keep: Option<PathBuf>,
    /// Whether all checksums are corrected after the damage.
    sealed: bool,
}

impl Campaign {
    /// Returns the number of tested mutants, and the failures.
    fn run(&self) -> (usize, Vec<String>) {
        let (mut judged, mut failures) = (0, Vec::new());
        for base in &self.bases {
            let before = failures.len();
            let sound = self.sealed.then(|| names(&base.disk().bytes).expect("a sound image").0);
            for seed in self.seeds.clone() {
                let harm = Harm::of(self.harm.as_deref(), seed);
                if self.sealed && harm == Harm::Truncated {
                    continue;
                }
                judged += 1;
                let outcome = catch_unwind(|| {
                    let bytes = match self.sealed {
                        true => harm.sealed_mutant(&base.disk(), seed),
                        false => harm.mutant(&base.disk(), seed),
                    };
                    if let Some(folder) = &self.keep {
                        let name = format!("{}-{}-{seed}", base.name, harm.name());
                        std::fs::write(folder.join(name), &bytes).expect("the folder can be written to");
                    }
                    judge(&bytes)?;
                    if let Some(sound) = &sound {
                        judge_names(sound, &bytes)?;
                    }
                    if seed.is_multiple_of(PREEN_SAMPLE) { judge_preen(&bytes) } else { Ok(()) }
                });
                if let Err(reason) = outcome.unwrap_or_else(|_| Err("panics".into())) {
                    println!("{} {} seed {seed}: {reason}\n", base.name, harm.name());
                    failures.push(format!("{} {} seed {seed}: {reason:.200}", base.name, harm.name()));
                }
            }
            println!("{}: {:?}, {} differences", base.name, self.seeds, failures.len() - before);
        }
        (judged, failures)
    }
}

#[test]
fn check_and_e2fsck_agree_on_mutants() {
    if oracles() {
        let short = Campaign { bases: ALL.to_vec(), seeds: 1..5, harm: None, keep: None, sealed: false };
        let (judged, failures) = short.run();
        assert!(failures.is_empty(), "{} of {judged}:\n{}", failures.len(), failures.join("\n"));
    }
}

#[test]
fn one_repair_of_a_mutant_with_right_checksums_is_enough_and_loses_no_name_that_e2fsck_keeps() {
    if oracles() {
        let short = Campaign {
            bases: ALL[..9].to_vec(),
            seeds: 10_014..10_018,
            harm: None,
            keep: None,
            sealed: true,
        };
        let (judged, failures) = short.run();
        assert!(failures.is_empty(), "{} of {judged}:\n{}", failures.len(), failures.join("\n"));
    }
}

#[test]
fn one_repair_of_a_sealed_mutant_is_enough_where_it_once_was_not() {
    if oracles() {
        for &(name, seed) in KNOWN_SEALED {
            let base = ALL.iter().find(|base| base.name == name).unwrap();
            let sound = names(&base.disk().bytes).unwrap().0;
            let bytes = Harm::of(None, seed).sealed_mutant(&base.disk(), seed);
            let outcome = judge(&bytes).and_then(|()| judge_names(&sound, &bytes));
            let outcome = if seed.is_multiple_of(PREEN_SAMPLE) {
                outcome.and_then(|()| judge_preen(&bytes))
            } else {
                outcome
            };
            assert_eq!(outcome, Ok(()), "{name} seed {seed}");
        }
    }
}

#[test]
fn check_and_e2fsck_agree_on_mutants_on_which_they_differed() {
    if oracles() {
        for &(name, harm, seed) in KNOWN {
            let base = ALL.iter().find(|base| base.name == name).unwrap();
            let bytes = Harm::of(Some(harm), seed).mutant(&base.disk(), seed);
            assert_eq!(judge(&bytes).and_then(|()| judge_preen(&bytes)), Ok(()), "{name} {harm} seed {seed}");
        }
    }
}

/// Writes mutants with correct checksums to the folder `OBENTO_KEEP`, without testing them: `OBENTO_MUTANTS` seeds from
/// `OBENTO_SEED` on, for each base.
#[test]
#[ignore = "writes images: cargo xtask kernel damaged --mutants"]
fn sealed_mutants_are_written_to_a_folder() {
    let number = |name: &str| std::env::var(name).expect(name).parse::<u64>().expect(name);
    let folder = PathBuf::from(std::env::var("OBENTO_KEEP").expect("OBENTO_KEEP"));
    assert!(oracles(), "the programs that create volumes are missing");
    let seeds = number("OBENTO_SEED")..number("OBENTO_SEED") + number("OBENTO_MUTANTS");
    for base in ALL {
        for (seed, harm) in seeds.clone().map(|seed| (seed, Harm::of(None, seed))) {
            if harm != Harm::Truncated {
                let path = folder.join(format!("{}-{}-{seed}.img", base.name, harm.name()));
                write_sparse(&path, &harm.sealed_mutant(&base.disk(), seed)).expect("space for the image");
            }
        }
    }
}

/// Writes an image without its blocks of zeros.
fn write_sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    const BLOCK: usize = 4096;
    let file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    let blocks = bytes.chunks(BLOCK).zip((0..).step_by(BLOCK));
    blocks
        .filter(|(block, _)| block.iter().any(|&byte| byte != 0))
        .try_for_each(|(block, at)| file.write_all_at(block, at))
}

#[test]
#[ignore = "takes minutes: cargo xtask check-mutants"]
fn campaign_over_many_mutants() {
    if !oracles() {
        return;
    }
    let text = |name: &str| std::env::var(name).ok();
    let number = |name: &str| text(name).and_then(|n| n.parse::<u64>().ok());
    let first = number("OBENTO_SEED").unwrap_or(1);
    let seeds = first..first + number("OBENTO_MUTANTS").unwrap_or(1000);
    let only = text("OBENTO_ONLY");
    let bases: Vec<&'static Base> =
        ALL.iter().copied().filter(|base| only.as_ref().is_none_or(|only| base.name == only)).collect();
    println!("seeds {seeds:?}");
    let (harm, keep) = (text("OBENTO_HARM"), text("OBENTO_KEEP").map(PathBuf::from));
    let sealed = text("OBENTO_SEALED").is_some();
    let (judged, failures) = Campaign { bases, seeds, harm, keep, sealed }.run();
    println!("{judged} mutants, {} differences", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
