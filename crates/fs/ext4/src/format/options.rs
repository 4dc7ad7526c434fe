//! The settings of a new volume: names and values as given, and their parsed form.
//!
//! Names are those of `mke2fs -E` and `-J`, and words for its letters: `inode_size` for `-I`. A size may have a
//! suffix if it may in `mke2fs`.
//! Source: e2fsprogs `misc/mke2fs.c` `PRS`, `parse_extended_opts`; `misc/util.c` `parse_journal_opts`.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use obento_base::Feature;
use obento_driver::{Allowed, FormatError, FormatOptions, Setting};

use super::features::{Features, FormatVersion};
use super::number::{number, percent, power, ranged, switch, uuid};
use crate::feature::{Compat, Incompat, RoCompat};
use crate::quota::QuotaKind;
use crate::size::BlockSize;

/// The types that the driver creates.
pub(crate) const TYPES: &[&str] = &["ext4", "ext3", "ext2"];

const MAX: u64 = 0xffff_ffff;
const SIZE: Allowed = Allowed::Text("a size, with the unit k, M, G or T");
const PERCENT: Allowed = Allowed::Text("a percentage from 0 to 50");
const ERRORS: &[&str] = &["continue", "remount-ro", "panic"];
const SYSTEMS: &[&str] = &["linux", "freebsd", "lites"];
const ENCODINGS: &[&str] = &["utf8", "utf8-12.1"];
const ENCODING_FLAGS: &[&str] = &["strict", "^strict"];
const SWITCH: Allowed = Allowed::Range(0, 1);
const UUID: Allowed = Allowed::Text("a UUID");
const OWNER: Allowed = Allowed::Text("UID:GID");
const QUOTAS: Allowed = Allowed::Text("usrquota, grpquota and prjquota, separated by colons");

/// All settings, in the order of the help text.
pub(crate) const SETTINGS: &[Setting] = &[
    set(
        "usage",
        Allowed::Text(
            "usage types separated by commas: floppy, small, default, big, huge, news, largefile, largefile4",
        ),
    ),
    set("cluster_size", Allowed::PowerOfTwo(2048, 1 << 29)),
    set("blocks_per_group", Allowed::Range(256, 524_288)),
    set("flex_bg_size", Allowed::PowerOfTwo(1, 1 << 31)),
    set("inode_ratio", Allowed::Range(1024, 64 << 20)),
    set("inode_size", Allowed::PowerOfTwo(128, 65_536)),
    set("inodes", Allowed::Range(1, MAX)),
    set("reserved_percent", PERCENT),
    set("last_mounted", Allowed::Text("a path")),
    set("revision", Allowed::Range(0, 1)),
    set("errors", Allowed::Words(ERRORS)),
    set("creator_os", Allowed::Words(SYSTEMS)),
    set("journal_size", Allowed::Text("MiB, or a size with a unit")),
    set("fast_commit_size", Allowed::Text("KiB, or a size with a unit")),
    set("journal_location", SIZE),
    set("stride", Allowed::Range(0, 65_535)),
    set("stripe_width", Allowed::Range(0, MAX)),
    set("resize", SIZE),
    set("lazy_itable_init", SWITCH),
    set("lazy_journal_init", SWITCH),
    set("packed_meta_blocks", SWITCH),
    set("root_owner", OWNER),
    set("num_backup_sb", Allowed::Range(0, 2)),
    set("hash_seed", UUID),
    set("encoding", Allowed::Words(ENCODINGS)),
    set("encoding_flags", Allowed::Words(ENCODING_FLAGS)),
    set("quotatype", QUOTAS),
    set("desc_size", Allowed::PowerOfTwo(64, 1024)),
    set("mmp_update_interval", Allowed::Range(0, 300)),
    set("orphan_file_size", SIZE),
    set("assume_storage_prezeroed", SWITCH),
    set("no_copy_xattrs", Allowed::Nothing),
    set("test_fs", Allowed::Nothing),
];

const fn set(name: &'static str, takes: Allowed) -> Setting {
    Setting { name, takes }
}

/// The requested settings, each checked by itself.
#[derive(Clone, Debug)]
pub(crate) struct RequestedSettings {
    pub features: Features,
    pub usage: Option<String>,
    pub block_size: Option<BlockSize>,
    pub cluster_size: Option<u32>,
    pub blocks_per_group: Option<u32>,
    pub flex_bg_size: Option<u32>,
    pub inode_ratio: Option<u64>,
    pub inode_size: Option<u32>,
    pub inodes: Option<u32>,
    /// In millionths of a percent.
    pub reserved: u64,
    pub last_mounted: Vec<u8>,
    pub revision: u32,
    pub errors: u16,
    pub creator_os: u32,
    /// In bytes.
    pub journal_size: Option<u64>,
    /// In bytes.
    pub fast_commit_size: Option<u64>,
    pub journal_location: Option<String>,
    pub journal_room: JournalRoom,
    pub stride: u16,
    pub stripe_width: u32,
    pub resize: Option<String>,
    pub lazy_inode_tables: bool,
    pub lazy_journal: bool,
    pub packed: bool,
    pub root_owner: (u32, u32),
    pub backups: u8,
    pub hash_seed: Option<[u8; 16]>,
    pub is_encoded: bool,
    pub strict_encoding: Option<bool>,
    pub desc_size: Option<u16>,
    pub mmp_interval: u16,
    pub orphan_file_size: Option<String>,
    pub is_zeroed: bool,
    pub is_test: bool,
    /// The kinds of quotas, with the feature `quota`.
    pub quotas: BTreeSet<QuotaKind>,
}

/// The part of the free blocks that a journal of a given size may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JournalRoom {
    /// Half: the rest is for files.
    Half,
    /// All: the caller counts the blocks of files.
    All,
}

impl RequestedSettings {
    /// Parses `options`. Fails with the first error: `BadValue` for the type; `UnknownFeature`; for each setting in
    /// turn `UnknownSetting`, `BadValue` or `Unsupported`.
    pub fn new(options: &FormatOptions) -> Result<Self, FormatError> {
        let kind = FormatVersion::named(&options.fs_type).ok_or_else(|| FormatError::BadValue {
            name: "type",
            value: options.fs_type.clone(),
            allowed: Allowed::Words(TYPES),
        })?;
        let mut this = Self::defaults(kind);
        if let Some(size) = options.block_size {
            this.block_size = BlockSize::new(power_32("block size", &size.to_string(), 1024, 65_536)?);
        }
        // Revision 0 has no features, so those of the type are not requested.
        if options.settings.iter().any(|(name, value)| name == "revision" && number(value) == Some(0)) {
            this.features = Features::NONE;
        }
        for names in &options.features {
            this.features.edit(names)?;
        }
        for (name, value) in &options.settings {
            this.set(name, value)?;
        }
        Ok(this)
    }

    /// Applies the consequences of combined settings. Fails with `Needs` or `Excludes`.
    pub fn settle(&mut self, options: &FormatOptions) -> Result<(), FormatError> {
        let needs = |what, needs| Err(FormatError::Needs { what, needs });
        if self.is_encoded {
            self.features.incompat.insert(Incompat::CASEFOLD);
        }
        if self.strict_encoding.is_some() && !self.features.needs(Incompat::CASEFOLD) {
            return needs("encoding_flags", "encoding");
        }
        if self.flex_bg_size.is_some() && !self.features.needs(Incompat::FLEX_BG) {
            return needs("flex_bg_size", "flex_bg");
        }
        if self.features.keeps(RoCompat::METADATA_CSUM) {
            // `metadata_csum` has its own checksums of descriptors.
            self.features.ro_compat.remove(RoCompat::UNINIT_BG);
        }
        let asks_journal = self.journal_size.is_some() || options.journal.is_some();
        if asks_journal {
            self.features.compat.insert(Compat::HAS_JOURNAL);
        }
        if self.revision == 0 && self.features != Features::NONE {
            return Err(FormatError::Excludes {
                what: "revision 0",
                other: "all features, including journals",
            });
        }
        Ok(())
    }

    fn defaults(kind: FormatVersion) -> Self {
        Self {
            features: Features::of(kind),
            usage: None,
            block_size: None,
            cluster_size: None,
            blocks_per_group: None,
            flex_bg_size: None,
            inode_ratio: None,
            inode_size: None,
            inodes: None,
            reserved: 5_000_000,
            last_mounted: Vec::new(),
            revision: 1,
            errors: 1,
            creator_os: 0,
            journal_size: None,
            fast_commit_size: None,
            journal_location: None,
            journal_room: JournalRoom::Half,
            stride: 0,
            stripe_width: 0,
            resize: None,
            lazy_inode_tables: true,
            lazy_journal: false,
            packed: false,
            root_owner: (0, 0),
            backups: 2,
            hash_seed: None,
            is_encoded: false,
            strict_encoding: None,
            desc_size: None,
            mmp_interval: 0,
            orphan_file_size: None,
            is_zeroed: false,
            is_test: false,
            quotas: BTreeSet::from([QuotaKind::User, QuotaKind::Group]),
        }
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), FormatError> {
        match name {
            "usage" => self.usage = Some(text.to_string()),
            "cluster_size" => self.cluster_size = Some(power_32("cluster_size", text, 2048, 1 << 29)?),
            "blocks_per_group" => self.blocks_per_group = Some(blocks_per_group(text)?),
            "flex_bg_size" => self.flex_bg_size = Some(power_32("flex_bg_size", text, 1, 1 << 31)?),
            "inode_ratio" => self.inode_ratio = Some(ranged("inode_ratio", text, 1024, 64 << 20)?),
            "inode_size" => self.inode_size = Some(power_32("inode_size", text, 128, 65_536)?),
            "inodes" => self.inodes = Some(ranged_32("inodes", text, 1, MAX)?),
            "reserved_percent" => {
                const HALF: u64 = 50_000_000;
                let value = percent(text).filter(|&percent| percent <= HALF);
                self.reserved = value.ok_or_else(|| bad("reserved_percent", text, PERCENT))?;
            }
            "last_mounted" => self.last_mounted = text.as_bytes().to_vec(),
            "revision" => self.revision = ranged_32("revision", text, 0, 1)?,
            "errors" => self.errors = word("errors", text, ERRORS)?.saturating_add(1),
            "creator_os" => self.creator_os = creator_os(text)?,
            "journal_size" => self.journal_size = Some(size("journal_size", text, 20)?),
            "fast_commit_size" => self.fast_commit_size = Some(size("fast_commit_size", text, 10)?),
            "journal_location" => self.journal_location = Some(text.to_string()),
            _ => return self.set_extended(name, text),
        }
        Ok(())
    }

    /// Applies a setting of `-E`.
    fn set_extended(&mut self, name: &str, text: &str) -> Result<(), FormatError> {
        match name {
            "stride" => self.stride = narrow(ranged("stride", text, 0, 65_535)?),
            "stripe_width" | "stripe-width" => self.stripe_width = ranged_32("stripe_width", text, 0, MAX)?,
            "resize" => self.resize = Some(text.to_string()),
            "lazy_itable_init" => self.lazy_inode_tables = switch("lazy_itable_init", text)?,
            "lazy_journal_init" => self.lazy_journal = switch("lazy_journal_init", text)?,
            "packed_meta_blocks" => {
                self.packed = switch("packed_meta_blocks", text)?;
                self.journal_room = if self.packed { JournalRoom::All } else { JournalRoom::Half };
            }
            "root_owner" => self.root_owner = owner(text)?,
            "num_backup_sb" => self.backups = narrow(ranged("num_backup_sb", text, 0, 2)?),
            "hash_seed" => self.hash_seed = Some(uuid(text).ok_or_else(|| bad("hash_seed", text, UUID))?),
            "encoding" => {
                word("encoding", text, ENCODINGS)?;
                self.is_encoded = true;
            }
            "encoding_flags" => {
                self.strict_encoding = Some(word("encoding_flags", text, ENCODING_FLAGS)? == 0);
            }
            "quotatype" => self.set_quotas(text)?,
            "desc_size" | "desc-size" => self.desc_size = Some(narrow(power("desc_size", text, 64, 1024)?)),
            "mmp_update_interval" => self.mmp_interval = narrow(ranged("mmp_update_interval", text, 0, 300)?),
            "orphan_file_size" => self.orphan_file_size = Some(text.to_string()),
            "assume_storage_prezeroed" => self.is_zeroed = switch("assume_storage_prezeroed", text)?,
            // This setting concerns copying a tree, which is not done here.
            "no_copy_xattrs" => {}
            "test_fs" => self.is_test = true,
            _ => return Err(FormatError::UnknownSetting { name: name.to_string() }),
        }
        Ok(())
    }

    /// Project quotas also need the feature `project`.
    fn set_quotas(&mut self, text: &str) -> Result<(), FormatError> {
        self.quotas.clear();
        for quota in text.split(':') {
            match quota {
                "usr" | "usrquota" => {
                    self.quotas.insert(QuotaKind::User);
                }
                "grp" | "grpquota" => {
                    self.quotas.insert(QuotaKind::Group);
                }
                "prj" | "prjquota" => self.features.edit("project")?,
                _ => return Err(bad("quotatype", text, QUOTAS)),
            }
        }
        Ok(())
    }
}

fn bad(name: &'static str, value: &str, allowed: Allowed) -> FormatError {
    FormatError::BadValue { name, value: value.to_string(), allowed }
}

/// Converts a value that was found in range.
fn narrow<T: TryFrom<u64> + Default>(value: u64) -> T {
    T::try_from(value).unwrap_or_default()
}

fn power_32(name: &'static str, text: &str, min: u64, max: u64) -> Result<u32, FormatError> {
    power(name, text, min, max).map(narrow)
}

fn ranged_32(name: &'static str, text: &str, min: u64, max: u64) -> Result<u32, FormatError> {
    ranged(name, text, min, max).map(narrow)
}

fn blocks_per_group(text: &str) -> Result<u32, FormatError> {
    let value = ranged_32("blocks_per_group", text, 256, 524_288)?;
    let allowed = Allowed::Text("a multiple of 8");
    if value.is_multiple_of(8) { Ok(value) } else { Err(bad("blocks_per_group", text, allowed)) }
}

/// Returns the index of `text` in `words`.
fn word(name: &'static str, text: &str, words: &'static [&'static str]) -> Result<u16, FormatError> {
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(text));
    at.and_then(|at| u16::try_from(at).ok()).ok_or_else(|| bad(name, text, Allowed::Words(words)))
}

/// Parses a size in bytes; without a suffix in units of `1 << log` bytes.
fn size(name: &'static str, text: &str, log: u32) -> Result<u64, FormatError> {
    let value = match number(text) {
        Some(value) => value.checked_mul(1_u64.checked_shl(log).unwrap_or(1)),
        None => super::number::units(text, 0),
    };
    value.ok_or_else(|| bad(name, text, SIZE))
}

fn owner(text: &str) -> Result<(u32, u32), FormatError> {
    let id = |text| number(text).and_then(|id| u32::try_from(id).ok());
    let ids = text.split_once(':').and_then(|(user, group)| id(user).zip(id(group)));
    ids.ok_or_else(|| bad("root_owner", text, OWNER))
}

/// Parses an operating system: `set_os`, except the Hurd, whose inodes use other fields.
fn creator_os(text: &str) -> Result<u32, FormatError> {
    const HURD: [&str; 3] = ["hurd", "gnu", "1"];
    if HURD.iter().any(|name| name.eq_ignore_ascii_case(text)) {
        return Err(FormatError::Unsupported(Feature::Named("a volume for the Hurd")));
    }
    if let Some(code) = number(text).and_then(|code| u32::try_from(code).ok()).filter(|&code| code <= 4) {
        return Ok(code);
    }
    Ok(match word("creator_os", text, SYSTEMS)? {
        0 => 0,
        1 => 3,
        _ => 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use obento_env::{FixedRandom, NO_CLOCK};

    fn wishes(settings: &[(&str, &str)]) -> Result<RequestedSettings, FormatError> {
        let mut options = FormatOptions::new("ext4", Arc::new(NO_CLOCK), Arc::new(FixedRandom(0)));
        options.settings =
            settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        RequestedSettings::new(&options)
    }

    #[test]
    fn settings_are_read_in_their_order_and_a_wrong_one_is_named() {
        let all = wishes(&[("inode_size", "512"), ("reserved_percent", "0.5"), ("root_owner", "1000:100")]);
        let all = all.unwrap();
        assert_eq!((all.inode_size, all.reserved, all.root_owner), (Some(512), 500_000, (1000, 100)));
        let size = wishes(&[("journal_size", "16")]).unwrap().journal_size;
        assert_eq!([size, wishes(&[("journal_size", "16M")]).unwrap().journal_size], [Some(16 << 20); 2]);
        let name = |settings| match wishes(settings) {
            Err(FormatError::BadValue { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(name(&[("inode_size", "300")]), "inode_size");
        assert_eq!(name(&[("stride", "x")]), "stride");
        assert_eq!(name(&[("errors", "weep")]), "errors");
        assert_eq!(name(&[("blocks_per_group", "257")]), "blocks_per_group");
        let unknown = FormatError::UnknownSetting { name: "strid".to_string() };
        assert_eq!(wishes(&[("strid", "1")]).unwrap_err(), unknown);
        assert!(matches!(wishes(&[("creator_os", "HURD")]), Err(FormatError::Unsupported(_))));
    }

    #[test]
    fn every_setting_of_the_list_is_known() {
        for setting in SETTINGS {
            let known = !matches!(wishes(&[(setting.name, "?")]), Err(FormatError::UnknownSetting { .. }));
            assert!(known, "{}", setting.name);
        }
    }
}
