//! The command line of `obento mkfs`, with the letters of mke2fs(8), and the options that a driver gets.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use obento::base::Timestamp;
use obento::driver::FormatOptions;
use obento::env::{Clock, FixedClock, SystemClock, SystemRandom};

use super::refused::GivenOptions;
use crate::parse::settings::{split, value_for_driver};
use crate::parse::size::{is_too_large, size_in};
use crate::parse::time::source_date_epoch;
use crate::parse::uuid::{is_volume_id, uuid_or_volume_id};
use crate::report::{Report, shell_word, subject};

const AFTER_HELP: &str = "\
SIZE is the size of the file system, such as 10G, 10MB or 100s (sectors of 512 bytes). A number without a unit counts KiB, or blocks of \
the size that -b sets. Without SIZE, the file system fills the file, device or partition; a new file requires SIZE.

With -U, -E hash_seed and SOURCE_DATE_EPOCH, the same options produce the same bytes.";

/// Create an empty file system
#[derive(clap::Args, Debug, Default)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The file, device or partition; a missing file is created
    #[arg(value_name = "IMAGE[@PART]")]
    pub image: OsString,
    /// Size of the file system
    #[arg(value_name = "SIZE")]
    pub size: Option<String>,
    /// Type, such as ext4, vfat, exfat or, if its program is installed, xfs; 'obento types' lists all
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    pub fs_type: String,
    /// Settings whose values may contain commas
    #[arg(skip)]
    pub settings: Vec<(String, String)>,
    /// The current time in seconds, instead of the clock and SOURCE_DATE_EPOCH
    #[arg(skip)]
    pub epoch: Option<i64>,
    /// Block size in bytes; for vfat and exfat the cluster size
    #[arg(short, long, value_name = "BYTES")]
    pub block_size: Option<String>,
    /// Features to add, or with ^ to remove, separated by commas
    #[arg(short = 'O', long, value_name = "[^]FEATURE", allow_hyphen_values = true)]
    pub features: Vec<String>,
    /// Further settings, separated by commas. ext2, ext3, ext4: stride, stripe_width, resize, lazy_itable_init, lazy_journal_init,
    /// packed_meta_blocks, root_owner, num_backup_sb, hash_seed, encoding, encoding_flags, quotatype, desc_size,
    /// mmp_update_interval, orphan_file_size, assume_storage_prezeroed, no_copy_xattrs, test_fs. vfat:
    /// fat, sectors_per_cluster, sector_size, reserved_sectors, fats, root_entries, no_align, hidden_sectors, media,
    /// drive_number, geometry, backup_boot_sector, volume_id, codepage, message, bad_blocks,
    /// check_blocks, mbr. exfat: cluster_size, sector_size, boundary_align,
    /// pack_bitmap, full_format, volume_id. jffs2: eraseblock, pagesize, little-endian, big-endian, cleanmarker, no-cleanmarkers,
    /// pad, compressor. Every type: offset, discard, nodiscard
    #[arg(short = 'E', long = "extended", value_name = "NAME=VALUE")]
    pub extended: Vec<String>,
    /// Label
    #[arg(short = 'L', long, value_name = "TEXT")]
    pub label: Option<OsString>,
    /// UUID, random, or clear (zeros); for vfat and exfat also a volume ID such as 1234-ABCD
    #[arg(short = 'U', long, value_name = "UUID")]
    pub uuid: Option<String>,
    /// Cluster size in bytes, for exfat, and for ext4 with the feature bigalloc
    #[arg(short = 'C', long, value_name = "BYTES")]
    pub cluster_size: Option<String>,
    /// Number of blocks per group
    #[arg(short = 'g', long, value_name = "N")]
    pub blocks_per_group: Option<String>,
    /// Number of groups whose metadata is stored together
    #[arg(short = 'G', long, value_name = "N")]
    pub flex_bg_size: Option<String>,
    /// Bytes of the file system for each inode
    #[arg(short = 'i', long, value_name = "BYTES")]
    pub inode_ratio: Option<String>,
    /// Inode size in bytes
    #[arg(short = 'I', long, value_name = "BYTES")]
    pub inode_size: Option<String>,
    /// Number of inodes
    #[arg(short = 'N', long, value_name = "N")]
    pub inodes: Option<String>,
    /// Percentage of blocks reserved for the super user
    #[arg(short = 'm', long, value_name = "PERCENT")]
    pub reserved_percent: Option<String>,
    /// Last mount point
    #[arg(short = 'M', long, value_name = "PATH")]
    pub last_mounted: Option<String>,
    /// Usage: floppy, small, news, largefile, largefile4, big, huge
    #[arg(short = 'T', long, value_name = "USAGE")]
    pub usage: Option<String>,
    /// Revision: 0 for the oldest systems
    #[arg(short, long, value_name = "N")]
    pub revision: Option<String>,
    /// Behaviour on errors: continue, remount-ro, panic
    #[arg(short, long, value_name = "WORD")]
    pub errors: Option<String>,
    /// Operating system that the super block names as the creator
    #[arg(short = 'o', long, value_name = "OS")]
    pub creator_os: Option<String>,
    /// Create a journal
    #[arg(short = 'j', long = "with-journal")]
    pub with_journal: bool,
    /// Options of the journal: size=MIB, location=, fast_commit_size=, device=FILE
    #[arg(short = 'J', long = "journal-options", value_name = "NAME=VALUE")]
    pub journal_options: Vec<String>,
    /// Overwrite existing contents
    #[arg(short, long, short_alias = 'F')]
    pub force: bool,
    /// The option of `mkfs.fat` or `mkfs.exfat` that corresponds to `force`.
    #[arg(skip)]
    pub force_option: Option<&'static str>,
    /// The settings that options of `mkfs.fat` or `mkfs.exfat` select, and these options.
    #[arg(skip)]
    pub named: &'static [(&'static str, &'static str)],
    /// Print what would be created, and write nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Do not print a summary
    #[arg(short, long)]
    pub quiet: bool,
    /// Ignored, for compatibility
    #[arg(short = 'D', hide = true)]
    pub direct: bool,
    #[arg(short = 'v', hide = true)]
    pub verbose: bool,
    /// Options of mke2fs that obento rejects with an explanation.
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

/// The options of `-J`, which all have a value.
const JOURNAL_OPTIONS: [&str; 4] = ["device", "size", "location", "fast_commit_size"];

/// The options that concern the host and not the driver.
#[derive(Debug, Default)]
pub struct HostOptions {
    /// The offset of the file system.
    pub offset: u64,
    /// Whether existing contents are overwritten without being discarded first.
    pub keep: bool,
    /// The file of an external journal.
    pub journal: Option<PathBuf>,
}

impl Args {
    /// The length of the file system in bytes, if it was given.
    pub fn len(&self) -> Result<Option<u64>, Report> {
        let unit = self.block_bytes()?.map_or(1024, u64::from);
        let parse = |text: &String| {
            size_in(text, unit).filter(|&len| len > 0).ok_or_else(|| {
                let what = format!("invalid size {}", subject(text));
                if is_too_large(text) {
                    return Report::new(what, "the size is too large");
                }
                let report = Report::plain(what);
                match self.image.to_str().filter(|image| size_in(image, unit).is_some()) {
                    // `obento mkfs 10M disk.img`
                    Some(size) if !std::path::Path::new(size).exists() => {
                        let image = shell_word(text);
                        report.help(format!("the image comes first: obento mkfs {image} {size}"))
                    }
                    _ => report.help("write a size of at least 1 byte, such as 10G"),
                }
            })
        };
        self.size.as_ref().map(parse).transpose()
    }

    fn block_bytes(&self) -> Result<Option<u32>, Report> {
        let parse = |text: &String| {
            let size = size_in(text, 1);
            let exact = size.and_then(|size| u32::try_from(size).ok()).filter(|size| size.is_power_of_two());
            exact.ok_or_else(|| {
                let what = format!("invalid block size {}", subject(text));
                let cause = if size.is_some() { "not a power of two" } else { "not a number" };
                Report::new(what, cause).help("use a power of two, such as 4096")
            })
        };
        self.block_size.as_ref().map(parse).transpose()
    }

    /// Returns the current time, or the time of an option or of `SOURCE_DATE_EPOCH`.
    fn clock(&self) -> Result<Arc<dyn Clock>, Report> {
        Ok(match self.epoch.map_or_else(source_date_epoch, |secs| Ok(Some(secs)))? {
            Some(secs) => Arc::new(FixedClock(Timestamp::new(secs, 0))),
            None => Arc::new(SystemClock),
        })
    }

    /// Returns the options of the driver and those of the host. Fails if an option is not supported, or if a value is invalid.
    pub fn options(&self) -> Result<(FormatOptions, HostOptions), Report> {
        self.refuse()?;
        let mut options = FormatOptions::new(&self.fs_type, self.clock()?, Arc::new(SystemRandom));
        options.block_size = self.block_bytes()?;
        options.features.clone_from(&self.features);
        if self.with_journal {
            options.features.push("has_journal".into());
        }
        options.label = self.label.as_ref().map(|label| label.as_bytes().to_vec()).unwrap_or_default();
        match self.uuid.as_deref() {
            Some(text) if is_volume_id(text) => options.settings.push(("volume_id".into(), text.into())),
            text => options.uuid = text.map(uuid_or_volume_id).transpose()?.flatten(),
        }
        let given = self
            .lettered()
            .into_iter()
            .filter_map(|(_, name, value)| Some((name.to_owned(), value_for_driver(name, value.clone()?))));
        options.settings.extend(given);
        options.settings.extend(self.settings.iter().cloned());
        let mut host = HostOptions::default();
        for (name, value) in split(&self.journal_options) {
            if value.is_empty() && JOURNAL_OPTIONS.contains(&name.as_str()) {
                let report = Report::plain(format!("-J {name} requires a value"));
                return Err(report.help(format!("write -J {name}=VALUE")));
            }
            match name.as_str() {
                "device" => host.journal = Some(value.into()),
                "size" => options.settings.push(("journal_size".into(), value)),
                "location" => options.settings.push(("journal_location".into(), value)),
                "fast_commit_size" => options.settings.push((name, value)),
                _ => {
                    let what = format!("unknown journal option {}", subject(&name));
                    return Err(Report::plain(what).help("use size, location, fast_commit_size or device"));
                }
            }
        }
        for (name, value) in split(&self.extended) {
            match name.as_str() {
                "offset" if value.is_empty() => {
                    return Err(
                        Report::plain("-E offset requires a value").help("write an offset such as offset=1M")
                    );
                }
                "offset" => {
                    let bad = || {
                        Report::plain(format!("invalid offset {}", subject(&value)))
                            .help("write an offset such as 1M")
                    };
                    host.offset = size_in(&value, 1).ok_or_else(bad)?;
                }
                "discard" => host.keep = false,
                "nodiscard" => host.keep = true,
                _ => options.settings.push((name, value)),
            }
        }
        Ok((options, host))
    }

    /// Returns the options with a letter that select a setting, the names of the settings, and the values.
    fn lettered(&self) -> [(&'static str, &'static str, &Option<String>); 12] {
        [
            ("-T", "usage", &self.usage),
            ("-C", "cluster_size", &self.cluster_size),
            ("-g", "blocks_per_group", &self.blocks_per_group),
            ("-G", "flex_bg_size", &self.flex_bg_size),
            ("-i", "inode_ratio", &self.inode_ratio),
            ("-I", "inode_size", &self.inode_size),
            ("-N", "inodes", &self.inodes),
            ("-m", "reserved_percent", &self.reserved_percent),
            ("-M", "last_mounted", &self.last_mounted),
            ("-r", "revision", &self.revision),
            ("-e", "errors", &self.errors),
            ("-o", "creator_os", &self.creator_os),
        ]
    }

    /// Rejects the options of `mke2fs` that obento does not support, by name.
    pub fn refuse(&self) -> Result<(), Report> {
        let lacking = [
            (self.from_folder.is_some(), "-d", "use 'obento build IMAGE --from DIR'"),
            (self.check_blocks, "-c", "use badblocks(8) to test a device"),
            (
                self.bad_blocks.is_some(),
                "-l",
                "obento records no bad blocks: use a device without bad blocks",
            ),
            (self.super_only, "-S", "use 'e2fsck -b BLOCK' to restore the super block from a copy"),
            (self.undo.is_some(), "-z", "copy the image first: cp --reflink=auto IMAGE COPY"),
        ];
        match lacking.iter().find(|(given, ..)| *given) {
            Some((_, letter, help)) => {
                Err(Report::plain(format!("option {letter} of mke2fs is not supported")).help(*help))
            }
            None => Ok(()),
        }
    }
}

impl GivenOptions for Args {
    fn option_of(&self, setting: &str) -> Option<&'static str> {
        if let Some((_, option)) = self.named.iter().find(|(name, _)| *name == setting) {
            return Some(option);
        }
        match setting {
            "label" => self.label.as_ref().map(|_| "-L"),
            "block size" => self.block_size.as_ref().map(|_| "-b"),
            _ => {
                let mut lettered = self.lettered().into_iter();
                lettered
                    .find(|(_, name, value)| *name == setting && value.is_some())
                    .map(|(option, ..)| option)
            }
        }
    }

    fn host_settings(&self) -> &'static [&'static str] {
        &["offset", "discard", "nodiscard"]
    }
}
