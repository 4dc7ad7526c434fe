//! Changing the settings of a volume: the fields of the super block that tune2fs changes in place, the journal, and
//! quotas.
//!
//! Invariant: all values are checked before anything is written. Space for a journal or quota files is not.
//! Source: e2fsprogs misc/tune2fs.c, lib/e2p/mntopts.c, lib/e2p/parse_num.c; kernel fs/ext4/ext4.h.

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_block::BlockDevice;
use obento_driver::{CheckOptions, RepairMode, Tune, TuneError, TuneOptions};

use crate::Ext4Driver;
use crate::check::{JournalChange, QuotaChange, QuotaState, change_journal, change_quotas, change_settings};
use crate::feature::{self, Compat, Incompat, RoCompat, Word};
use crate::format::JournalSize;
use crate::raw::RawSuperBlock;
use crate::super_block::{SuperBlock, raw_label};

type Result<T> = core::result::Result<T, TuneError>;

/// `s_default_mount_opts` (`EXT4_DEFM_*`).
const MOUNT_OPTIONS: &[(&str, u32, u32)] = &[
    ("debug", 1, 1),
    ("bsdgroups", 2, 2),
    ("user_xattr", 4, 4),
    ("acl", 8, 8),
    ("uid16", 0x10, 0x10),
    ("journal_data", 0x20, 0x60),
    ("journal_data_ordered", 0x40, 0x60),
    ("journal_data_writeback", 0x60, 0x60),
    ("nobarrier", 0x100, 0x100),
    ("block_validity", 0x200, 0x200),
    ("discard", 0x400, 0x400),
    ("nodelalloc", 0x800, 0x800),
];

/// The features that quotas need.
const QUOTA: &str = "quota";
const PROJECT: &str = "project";
/// The names of the quota files.
const QUOTA_FILES: [&str; 3] = ["usrquota", "grpquota", "prjquota"];

/// The feature that a volume with a journal has.
const HAS_JOURNAL: &str = "has_journal";

/// The smallest size of inodes that have a project.
const EXTRA_INODE_SIZE: u16 = 256;

/// `s_def_hash_version` for half MD4.
const HALF_MD4: u8 = 1;

impl Tune for Ext4Driver {
    fn tune(&self, device: Arc<dyn BlockDevice>, options: &TuneOptions) -> Result<Vec<String>> {
        let checking =
            CheckOptions { repair_mode: RepairMode::Safe, ..CheckOptions::new(Arc::clone(&options.clock)) };
        if options.serial.is_some() {
            return Err(TuneError::refused("serial", "ext2, ext3 and ext4 have a UUID instead"));
        }
        let mut notes = Vec::new();
        let seeded = core::cell::Cell::new(false);
        let quotas = quota_change(options);
        change_settings(&device, &checking, |sb, raw| {
            if let Some(label) = &options.label {
                set_label(raw, label)?;
            }
            if let Some(uuid) = options.uuid {
                seeded.set(set_uuid(sb, raw, uuid)?);
            }
            options.settings.iter().try_for_each(|(name, value)| set(sb, raw, name, value))?;
            expect_quotas_possible(sb, quotas)
        })?;
        if let Some(change) = journal_change(options) {
            change_journal(&device, &checking, change)?;
        }
        if quotas != QuotaChange::default() {
            change_quotas(&device, &checking, quotas)?;
        }
        if seeded.get() {
            notes.push(
                "the feature metadata_csum_seed was enabled, so that the checksums stay valid; Linux supports it from 4.4 on"
                    .into(),
            );
        }
        Ok(notes)
    }
}

/// Returns the last change of the journal in the list of features.
fn journal_change(options: &TuneOptions) -> Option<JournalChange> {
    let features = options.settings.iter().filter(|(name, _)| name == "features");
    let words = features.flat_map(|(_, value)| value.split(','));
    let mut changes = words.filter_map(|word| match word {
        HAS_JOURNAL => Some(JournalChange::Add),
        _ if word.strip_prefix('^') == Some(HAS_JOURNAL) => Some(JournalChange::Remove),
        _ => None,
    });
    changes.next_back()
}

/// Returns the changes of quotas in the lists of features and of quota files.
fn quota_change(options: &TuneOptions) -> QuotaChange {
    let mut change = QuotaChange::default();
    for (setting, value) in &options.settings {
        for (word, is_on) in value.split(',').map(switch) {
            match (setting.as_str(), word) {
                ("features", QUOTA) => change.quota = Some(is_on),
                ("features", PROJECT) => change.project = Some(is_on),
                ("quota", word) => {
                    let file = QUOTA_FILES.iter().position(|known| *known == word);
                    if let Some(file) = file.and_then(|at| change.files.get_mut(at)) {
                        *file = Some(is_on);
                    }
                }
                _ => {}
            }
        }
    }
    change
}

/// Returns a word without its mark, and whether it is switched on.
fn switch(word: &str) -> (&str, bool) {
    word.strip_prefix('^').map_or((word, true), |name| (name, false))
}

/// Refuses quotas of projects on a volume whose inodes have no project.
fn expect_quotas_possible(sb: &SuperBlock, change: QuotaChange) -> Result<()> {
    let after = QuotaState::after(sb, change);
    let adds_project = after.project && !sb.ro_compat.contains(RoCompat::PROJECT);
    if adds_project && sb.inode_size < EXTRA_INODE_SIZE {
        let setting = if change.project.is_some() { "features" } else { "quota" };
        return Err(TuneError::refused(setting, "inodes of 128 bytes have no project"));
    }
    if change.files.last() == Some(&Some(true)) && !after.project {
        return Err(TuneError::refused("quota", "prjquota requires the feature 'project'"));
    }
    Ok(())
}

fn set_label(raw: &mut RawSuperBlock, label: &[u8]) -> Result<()> {
    let label =
        raw_label(label).ok_or(TuneError::refused("label", "must have at most 16 bytes, and no NUL"))?;
    raw.s_volume_name = label;
    Ok(())
}

/// Sets the UUID. Returns whether the seed of the checksums was stored, so that they do not depend on the UUID.
fn set_uuid(sb: &SuperBlock, raw: &mut RawSuperBlock, uuid: [u8; 16]) -> Result<bool> {
    if sb.compat.contains(Compat::HAS_JOURNAL) && sb.raw.s_journal_inum.get() == 0 {
        return Err(TuneError::unavailable("uuid", "the external journal contains the UUID of this volume"));
    }
    let has_groups = sb.ro_compat.contains(RoCompat::UNINIT_BG);
    if has_groups && !sb.has_metadata_csum() {
        return Err(TuneError::unavailable(
            "uuid",
            "the checksums of the groups depend on the UUID (feature uninit_bg)",
        )
        .with_step("use 'tune2fs -U'"));
    }
    let is_seeded = sb.has_metadata_csum() && !sb.incompat.contains(Incompat::METADATA_CSUM_SEED);
    if is_seeded {
        raw.s_checksum_seed.set(sb.checksum_seed);
        raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::METADATA_CSUM_SEED.bits());
    }
    raw.s_uuid = uuid;
    Ok(is_seeded)
}

/// Sets one setting by its name.
fn set(sb: &SuperBlock, raw: &mut RawSuperBlock, name: &str, value: &str) -> Result<()> {
    let wrong = |why: &str| TuneError::refused(name, why);
    let number = || value.parse::<u16>().map_err(|_| wrong("must be a number from 0 to 65535"));
    match name {
        "reserved_percent" => {
            let blocks =
                percent(sb.blocks_count, value).ok_or_else(|| wrong("must be a percentage from 0 to 50"))?;
            set_reserved(raw, blocks);
        }
        "reserved_blocks" => {
            let blocks = value.parse::<u64>().map_err(|_| wrong("must be a number"))?;
            if blocks > sb.blocks_count / 2 {
                return Err(wrong("must not exceed half of the volume"));
            }
            set_reserved(raw, blocks);
        }
        // Linux before 6.17 ignores the upper half, and would give the blocks to another user.
        "reserved_uid" => {
            (raw.s_def_resuid, raw.s_def_resuid_hi) = (number()?.into(), 0.into());
        }
        "reserved_gid" => {
            (raw.s_def_resgid, raw.s_def_resgid_hi) = (number()?.into(), 0.into());
        }
        "max_mount_count" => {
            let count = value.parse::<i16>().ok().filter(|count| *count >= -1);
            let count = count.ok_or_else(|| wrong("must be a number from -1 to 32767"))?;
            // 0 and -1 disable the check.
            let [low, high] = if count == 0 { (-1_i16).to_le_bytes() } else { count.to_le_bytes() };
            raw.s_max_mnt_count.set(u16::from_le_bytes([low, high]));
        }
        "mount_count" => {
            raw.s_mnt_count.set(value.parse().map_err(|_| wrong("must be a number from 0 to 65535"))?);
        }
        "check_interval" => {
            let seconds = interval(value);
            raw.s_checkinterval
                .set(seconds.ok_or_else(|| wrong("must be an interval such as 30d, 4w, 6m or 0"))?);
        }
        "errors" => raw.s_errors.set(match value {
            "continue" => 1,
            "remount-ro" => 2,
            "panic" => 3,
            _ => return Err(wrong("must be continue, remount-ro or panic")),
        }),
        "mount_options" => mount_options(raw, value)?,
        // Quota files are changed after the other settings.
        "quota" => {
            let mut words = value.split(',').filter(|word| !word.is_empty()).map(switch);
            if let Some((word, _)) = words.find(|(word, _)| !QUOTA_FILES.contains(word)) {
                return Err(wrong(&alloc::format!(
                    "unknown quota file '{word}' (must be usrquota, grpquota or prjquota)"
                )));
            }
        }
        "features" => {
            for word in value.split(',').filter(|word| !word.is_empty()) {
                match word.strip_prefix('^') {
                    Some(name) => clear_feature(sb, raw, name)?,
                    None => set_feature(sb, raw, word)?,
                }
            }
        }
        _ => return Err(TuneError::unavailable(name, "ext2, ext3 and ext4 do not have this setting")),
    }
    Ok(())
}

fn set_reserved(raw: &mut RawSuperBlock, blocks: u64) {
    let (low, high) = obento_base::wire::split(blocks);
    raw.s_r_blocks_count_lo.set(low);
    raw.s_r_blocks_count_hi.set(high);
}

/// Returns this many percent of `blocks`, with at most six digits after the point.
fn percent(blocks: u64, text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok().filter(|whole| *whole <= 50)?;
    let mut millionths = whole;
    for place in 0..6 {
        let digit = part.as_bytes().get(place).map_or(0, |digit| digit.saturating_sub(b'0'));
        millionths = millionths.checked_mul(10)?.checked_add(digit.into())?;
    }
    let product = u128::from(blocks).checked_mul(millionths.into())?;
    (millionths <= 50_000_000).then(|| u64::try_from(product / 100_000_000).ok())?
}

/// Parses days, or a number with `s`, `d`, `w` or `m` (months of 30 days).
fn interval(text: &str) -> Option<u32> {
    let (digits, unit) = match text.strip_suffix(['s', 'd', 'w', 'm']) {
        Some(digits) => (digits, text.bytes().next_back()?),
        None => (text, b'd'),
    };
    let seconds: u32 = match unit {
        b's' => 1,
        b'd' => 86_400,
        b'w' => 7 * 86_400,
        _ => 30 * 86_400,
    };
    digits.parse::<u32>().ok()?.checked_mul(seconds)
}

fn mount_options(raw: &mut RawSuperBlock, value: &str) -> Result<()> {
    let mut bits = raw.s_default_mount_opts.get();
    for word in value.split(',').filter(|word| !word.is_empty()) {
        let (name, is_set) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
        let found = MOUNT_OPTIONS.iter().find(|(known, ..)| *known == name);
        let Some((_, value, mask)) = found else {
            let known: Vec<&str> = MOUNT_OPTIONS.iter().map(|&(known, ..)| known).collect();
            let why = alloc::format!("'{name}' is not one of {}", known.join(", "));
            return Err(TuneError::refused("mount_options", why));
        };
        bits = if is_set { bits & !mask | value } else { bits & !mask };
    }
    raw.s_default_mount_opts.set(bits);
    Ok(())
}

/// Enables a feature that only permits new structures, so that an existing volume has none of them.
fn set_feature(sb: &SuperBlock, raw: &mut RawSuperBlock, name: &str) -> Result<()> {
    let compat = |raw: &mut RawSuperBlock, bit: Compat| {
        raw.s_feature_compat.set(raw.s_feature_compat.get() | bit.bits());
    };
    let ro_compat = |raw: &mut RawSuperBlock, bit: RoCompat| {
        raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | bit.bits());
    };
    match name {
        "dir_index" => {
            if raw.s_hash_seed.iter().all(|word| word.get() == 0) && raw.s_def_hash_version == 0 {
                raw.s_def_hash_version = HALF_MD4;
            }
            compat(raw, Compat::DIR_INDEX);
        }
        // The journal is added after the other changes.
        HAS_JOURNAL if sb.compat.contains(Compat::HAS_JOURNAL) => {}
        HAS_JOURNAL if JournalSize::by_volume(sb.blocks_count).is_none() => {
            return Err(TuneError::refused("features", "the volume is too small for a journal"));
        }
        HAS_JOURNAL => {}
        // Quotas are changed after the other settings.
        QUOTA | PROJECT => {}
        "ext_attr" => compat(raw, Compat::EXT_ATTR),
        "large_file" => ro_compat(raw, RoCompat::LARGE_FILE),
        "huge_file" => ro_compat(raw, RoCompat::HUGE_FILE),
        "dir_nlink" => ro_compat(raw, RoCompat::DIR_NLINK),
        "read-only" => ro_compat(raw, RoCompat::READONLY),
        "metadata_csum_seed" if sb.has_metadata_csum() => {
            raw.s_checksum_seed.set(sb.checksum_seed);
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::METADATA_CSUM_SEED.bits());
        }
        _ if is_enabled(sb, name)? => {}
        _ => return Err(not_in_place(name, true)),
    }
    Ok(())
}

/// Disables a feature if none of its structures remains.
fn clear_feature(sb: &SuperBlock, raw: &mut RawSuperBlock, name: &str) -> Result<()> {
    let is_outside = sb.compat.contains(Compat::HAS_JOURNAL) && sb.raw.s_journal_inum.get() == 0;
    match name {
        HAS_JOURNAL if is_outside => {
            let error = TuneError::refused("features", "the journal is on another device");
            Err(error.with_step("'tune2fs -O ^has_journal' removes it from both"))
        }
        // The journal is removed after the other changes.
        HAS_JOURNAL | QUOTA | PROJECT => Ok(()),
        "read-only" => {
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::READONLY.bits());
            Ok(())
        }
        _ if !is_enabled(sb, name)? => Ok(()),
        _ => Err(not_in_place(name, false)),
    }
}

/// Returns whether the volume has a feature. Fails if there is no feature with this name.
fn is_enabled(sb: &SuperBlock, name: &str) -> Result<bool> {
    match feature::named(name) {
        Some(Word::Compat(bit)) => Ok(sb.compat.contains(bit)),
        Some(Word::Incompat(bit)) => Ok(sb.incompat.contains(bit)),
        Some(Word::RoCompat(bit)) => Ok(sb.ro_compat.contains(bit)),
        None => {
            let why = format_args!("unknown feature '{}'", name.escape_default());
            Err(TuneError::refused("features", why))
        }
    }
}

/// Returns the error of a feature that obento does not change on an existing volume. It names the program that does.
fn not_in_place(name: &str, enables: bool) -> TuneError {
    let how = if enables { "enable" } else { "disable" };
    let program = match (name, enables) {
        ("64bit", true) => "resize2fs -b".to_string(),
        ("64bit", false) => "resize2fs -s".to_string(),
        (_, true) => alloc::format!("tune2fs -O {name}"),
        (_, false) => alloc::format!("tune2fs -O ^{name}"),
    };
    let error = TuneError::refused("features", format_args!("obento cannot {how} '{name}'"));
    error.with_step(format_args!("try '{program}'"))
}
