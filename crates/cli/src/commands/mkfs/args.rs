//! The command line of `obento mkfs`, and the options that a driver gets from it: the letters are those of mke2fs(8).

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use obento::{Clock, FixedClock, FormatOptions, SystemClock, SystemRandom, Timestamp};

use crate::report::Report;

const AFTER_HELP: &str = "\
SIZE is that of the file system: a number with k, M, G, T for the unit or s for sectors of 512 bytes; without
one it counts KiB, or blocks of the size that -b gives. Without SIZE the whole file, partition or device is used; a
new file needs one.

The same options, -U, -E hash_seed and SOURCE_DATE_EPOCH make the same bytes.

Examples:
  obento mkfs disk.img 10G                            ext4 in a new sparse file
  obento mkfs -t ext3 -L data -m 0 disk.img           ext3 over all of disk.img, nothing kept for root
  obento mkfs -F disk.img@2                           over what partition 2 holds
  obento mkfs -O ^has_journal,casefold -E root_owner=1000:1000 disk.img 1G
  obento mkfs -t vfat -L BOOT -E fat=32,sectors_per_cluster=8 esp.img 512M
  obento mkfs -t exfat -L PHOTOS -C 128k -E pack_bitmap card.img 32G
  obento mkfs -t xfs -L data disk.img 1G              by mkfs.xfs, where it is installed
  obento mkfs -O journal_dev log.img 64M && obento mkfs -b 1024 -J device=log.img disk.img 1G";

/// Make an empty file system
#[derive(clap::Args, Debug, Default)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The file, device or partition; a file is made where there is none
    #[arg(value_name = "IMAGE[@PART]")]
    pub image: OsString,
    /// Its size
    #[arg(value_name = "SIZE")]
    pub size: Option<String>,
    /// The type: ext4, ext3, ext2, exfat, vfat, xv6; by a program of its own: xfs, btrfs, f2fs and others that `obento types` lists
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    pub fs_type: String,
    /// Settings whose values may have commas
    #[arg(skip)]
    pub settings: Vec<(String, String)>,
    /// The time, in seconds, whatever clock and environment say
    #[arg(skip)]
    pub epoch: Option<i64>,
    /// Bytes a block
    #[arg(short, long, value_name = "BYTES")]
    pub block_size: Option<String>,
    /// Features to add, or with ^ to take away, with commas between
    #[arg(short = 'O', long, value_name = "[^]FEATURE", allow_hyphen_values = true)]
    pub features: Vec<String>,
    /// More settings, with commas between: stride, stripe_width, resize, lazy_itable_init, lazy_journal_init,
    /// packed_meta_blocks, root_owner, num_backup_sb, hash_seed, encoding, encoding_flags, quotatype, desc_size,
    /// mmp_update_interval, orphan_file_size, assume_storage_prezeroed, offset, discard, nodiscard, test_fs; of vfat:
    /// fat, sectors_per_cluster, sector_size, reserved_sectors, fats, root_entries, no_align, hidden_sectors, media,
    /// drive_number, geometry, backup_boot_sector, codepage, message, bad_blocks,
    /// check_blocks, mbr; of exfat: cluster_size, sector_size, boundary_align,
    /// pack_bitmap, full_format
    #[arg(short = 'E', long = "extended", value_name = "NAME=VALUE")]
    pub extended: Vec<String>,
    /// The label
    #[arg(short = 'L', long, value_name = "TEXT")]
    pub label: Option<OsString>,
    /// The UUID, or random, or clear; for vfat and exfat also a number like 1234-ABCD
    #[arg(short = 'U', long, value_name = "UUID")]
    pub uuid: Option<String>,
    /// Bytes a cluster: of exfat, or with the feature bigalloc
    #[arg(short = 'C', long, value_name = "BYTES")]
    pub cluster_size: Option<String>,
    /// Blocks a group
    #[arg(short = 'g', long, value_name = "N")]
    pub blocks_per_group: Option<String>,
    /// Groups whose metadata lies together
    #[arg(short = 'G', long, value_name = "N")]
    pub flex_bg_size: Option<String>,
    /// Bytes of the file system for each inode
    #[arg(short = 'i', long, value_name = "BYTES")]
    pub inode_ratio: Option<String>,
    /// Bytes an inode
    #[arg(short = 'I', long, value_name = "BYTES")]
    pub inode_size: Option<String>,
    /// How many inodes
    #[arg(short = 'N', long, value_name = "N")]
    pub inodes: Option<String>,
    /// How much is kept for the super user, in percent
    #[arg(short = 'm', long, value_name = "PERCENT")]
    pub reserved_percent: Option<String>,
    /// Where it says that it was mounted last
    #[arg(short = 'M', long, value_name = "PATH")]
    pub last_mounted: Option<String>,
    /// What it is for: floppy, small, news, largefile, largefile4, big, huge
    #[arg(short = 'T', long, value_name = "USAGE")]
    pub usage: Option<String>,
    /// The revision: 0 for the oldest systems
    #[arg(short, long, value_name = "N")]
    pub revision: Option<String>,
    /// What is done about errors: continue, remount-ro, panic
    #[arg(short, long, value_name = "WORD")]
    pub errors: Option<String>,
    /// The system that it says it was made by
    #[arg(short = 'o', long, value_name = "OS")]
    pub creator_os: Option<String>,
    /// With a journal
    #[arg(short = 'j', long = "with-journal")]
    pub with_journal: bool,
    /// The journal: size=MIB, location=, fast_commit_size=, device=FILE
    #[arg(short = 'J', long = "journal-options", value_name = "NAME=VALUE")]
    pub journal_options: Vec<String>,
    /// Over what is there already
    #[arg(short = 'F', long)]
    pub force: bool,
    /// Say what would be made, and make nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Say nothing
    #[arg(short, long)]
    pub quiet: bool,
    /// Accepted and ignored: direct I/O, talking more
    #[arg(short = 'D', hide = true)]
    pub direct: bool,
    #[arg(short = 'v', hide = true)]
    pub verbose: bool,
    /// What `mke2fs` has and obento does not, to be refused by name
    #[arg(short = 'd', hide = true, value_name = "FOLDER")]
    pub from_folder: Option<OsString>,
    #[arg(short = 'c', hide = true)]
    pub check_blocks: bool,
    #[arg(short = 'l', hide = true, value_name = "FILE")]
    pub bad_blocks: Option<OsString>,
    #[arg(short = 'S', hide = true)]
    pub super_only: bool,
    #[arg(short = 'z', hide = true, value_name = "FILE")]
    pub undo: Option<OsString>,
}

/// What is asked of the host rather than of the driver.
#[derive(Debug, Default)]
pub struct Host {
    /// Where the file system begins.
    pub offset: u64,
    /// Whether what is there is not given back first.
    pub keep: bool,
    /// The file of an external journal.
    pub journal: Option<PathBuf>,
}

impl Args {
    /// The length of the file system in bytes, if it was given.
    pub fn len(&self) -> Result<Option<u64>, Report> {
        let log = self.block_bytes()?.map_or(10, u32::ilog2);
        let parse = |text: &String| {
            size(text, log).filter(|&len| len > 0).ok_or_else(|| {
                Report::new(
                    format!("cannot make a file system of the size '{}'", text.escape_default()),
                    "it is none",
                )
                .help("write a number with k, M, G or T: 10G")
            })
        };
        self.size.as_ref().map(parse).transpose()
    }

    fn block_bytes(&self) -> Result<Option<u32>, Report> {
        let parse = |text: &String| {
            let size = size(text, 0).and_then(|size| u32::try_from(size).ok());
            size.filter(|size| size.is_power_of_two()).ok_or_else(|| {
                Report::new(
                    format!("cannot make blocks of '{}' bytes", text.escape_default()),
                    "it is no power of two",
                )
                .help("sizes from 1024 to 65536 are possible")
            })
        };
        self.block_size.as_ref().map(parse).transpose()
    }

    /// Now, or the moment that is asked for, or that `SOURCE_DATE_EPOCH` names.
    fn clock(&self) -> Result<Arc<dyn Clock>, Report> {
        Ok(match self.epoch.map_or_else(epoch, |secs| Ok(Some(secs)))? {
            Some(secs) => Arc::new(FixedClock(Timestamp::new(secs, 0))),
            None => Arc::new(SystemClock),
        })
    }

    /// What the driver gets, and what the host has to see to. Errors: what obento does not do; a value that is none.
    pub fn options(&self) -> Result<(FormatOptions, Host), Report> {
        self.refuse()?;
        let mut options = FormatOptions::new(&self.fs_type, self.clock()?, Arc::new(SystemRandom));
        options.block_size = self.block_bytes()?;
        options.features.clone_from(&self.features);
        if self.with_journal {
            options.features.push("has_journal".into());
        }
        options.label = self.label.as_ref().map(|label| label.as_bytes().to_vec()).unwrap_or_default();
        match self.uuid.as_deref() {
            Some(text) if is_serial(text) => options.settings.push(("volume_id".into(), text.into())),
            text => options.uuid = text.map(uuid).transpose()?.flatten(),
        }
        let letters = [
            ("usage", &self.usage),
            ("cluster_size", &self.cluster_size),
            ("blocks_per_group", &self.blocks_per_group),
            ("flex_bg_size", &self.flex_bg_size),
            ("inode_ratio", &self.inode_ratio),
            ("inode_size", &self.inode_size),
            ("inodes", &self.inodes),
            ("reserved_percent", &self.reserved_percent),
            ("last_mounted", &self.last_mounted),
            ("revision", &self.revision),
            ("errors", &self.errors),
            ("creator_os", &self.creator_os),
        ];
        let given = letters.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        options.settings.extend(given);
        options.settings.extend(self.settings.iter().cloned());
        let mut host = Host::default();
        for (name, value) in split(&self.journal_options) {
            match name.as_str() {
                "device" => host.journal = Some(value.into()),
                "size" => options.settings.push(("journal_size".into(), value)),
                "location" => options.settings.push(("journal_location".into(), value)),
                _ => options.settings.push((name, value)),
            }
        }
        for (name, value) in split(&self.extended) {
            match name.as_str() {
                "offset" => {
                    let bad = || {
                        Report::new(
                            format!("cannot begin at '{}'", value.escape_default()),
                            "it is no offset",
                        )
                    };
                    host.offset = size(&value, 0).ok_or_else(bad)?;
                }
                "discard" => host.keep = false,
                "nodiscard" => host.keep = true,
                _ => options.settings.push((name, value)),
            }
        }
        Ok((options, host))
    }

    /// Refuses by name what `mke2fs` does and obento does not.
    pub fn refuse(&self) -> Result<(), Report> {
        let lacking = [
            (self.from_folder.is_some(), "-d", "make it and fill it: obento build IMAGE --from FOLDER"),
            (self.check_blocks, "-c", "badblocks(8) tests a device"),
            (self.bad_blocks.is_some(), "-l", "a device with bad blocks is one to replace"),
            (self.super_only, "-S", "e2fsck -b BLOCK repairs by a copy of the super block"),
            (self.undo.is_some(), "-z", "copy the image first: cp --reflink=auto IMAGE COPY"),
        ];
        match lacking.iter().find(|(given, ..)| *given) {
            Some((_, letter, help)) => {
                Err(Report::new(format!("cannot use {letter}"), "mke2fs has it and obento does not")
                    .help(*help))
            }
            None => Ok(()),
        }
    }
}

/// `name=value` between commas.
pub fn split(lists: &[String]) -> impl Iterator<Item = (String, String)> {
    let words = lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty());
    words.map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name.to_owned(), value.to_owned())
    })
}

/// A number of bytes; without a unit it counts units of `1 << log`, as mke2fs(8) says.
pub fn size(text: &str, log: u32) -> Option<u64> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 's' | 'S') => (&text[..at], 9),
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        (at, 't' | 'T') => (&text[..at], 40),
        _ => (text, log),
    };
    let number: u64 = digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())??;
    number.checked_mul(1 << shift)
}

/// Whether it is what a format has for a UUID whose volumes are numbered: `1234-ABCD`.
fn is_serial(text: &str) -> bool {
    let digits = text.split_once('-').filter(|(high, low)| high.len() == 4 && low.len() == 4);
    digits.is_some_and(|(high, low)| high.bytes().chain(low.bytes()).all(|digit| digit.is_ascii_hexdigit()))
}

pub fn uuid(text: &str) -> Result<Option<[u8; 16]>, Report> {
    match text {
        "random" => return Ok(None),
        "clear" | "null" => return Ok(Some([0; 16])),
        _ => {}
    }
    let dashes = text.char_indices().all(|(at, digit)| (digit == '-') == matches!(at, 8 | 13 | 18 | 23));
    let digits: String = text.chars().filter(|&digit| digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| dashes && text.len() == 36);
    number.map(|number| Some(number.to_be_bytes())).ok_or_else(|| {
        Report::new(format!("cannot use '{}'", text.escape_default()), "it is no UUID")
            .help("write one like 01234567-89ab-cdef-0123-456789abcdef, or random, or clear")
    })
}

/// The last second of the year 9999. Super blocks hold more, but not everything: ext4's 40 bits without a sign.
const LAST_SECOND: i64 = 253_402_300_799;

/// The moment that `SOURCE_DATE_EPOCH` names, in seconds.
pub fn epoch() -> Result<Option<i64>, Report> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let secs =
        text.to_str().and_then(|text| text.parse().ok()).filter(|secs| (0..=LAST_SECOND).contains(secs));
    let cause = "it is no number of seconds from 1970 to 9999";
    secs.map(Some).ok_or_else(|| Report::on("cannot use SOURCE_DATE_EPOCH", text.as_bytes(), cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_without_a_unit_counts_kib_or_blocks() {
        assert_eq!(
            [size("64", 10), size("64", 12), size("64k", 12)],
            [Some(65_536), Some(262_144), Some(65_536)]
        );
        assert_eq!([size("8s", 10), size("2T", 10), size("1.5G", 10)], [Some(4096), Some(2 << 40), None]);
        assert_eq!([size("", 10), size("k", 10), size("-1", 10)], [None; 3]);
    }

    #[test]
    fn a_uuid_is_given_random_or_clear() {
        assert_eq!(uuid("clear"), Ok(Some([0; 16])));
        assert_eq!(uuid("random"), Ok(None));
        assert_eq!(
            uuid("00000000-0000-0000-0000-00000000000f").map(|uuid| uuid.map(|uuid| uuid[15])),
            Ok(Some(15))
        );
        assert!(uuid("0000000000000000000000000000000f").is_err());
    }
}
