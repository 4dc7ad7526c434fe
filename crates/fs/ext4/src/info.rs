//! Descriptions of volumes.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use obento_base::wire::join;
use obento_driver::{Fact, Notice, Probe, VolumeInfo, for_commands};

use crate::feature::{Compat, Incompat, names};
use crate::super_block::{SuperBlock, until_nul};
use crate::volume::Volume;

/// `s_state`.
const STATE_CLEAN: u16 = 1;
const STATE_ERRORS: u16 = 2;
const STATE_ORPHANS: u16 = 4;

impl SuperBlock {
    /// Returns the result of a probe.
    pub fn probe(&self) -> Probe {
        Probe {
            fs_type: self.fs_type(),
            label: self.label().to_vec(),
            uuid: Some(self.raw.s_uuid),
            len: self.volume_len(),
            ..Probe::default()
        }
    }

    /// Returns whether the error flag is set.
    pub fn is_marked_with_errors(&self) -> bool {
        self.raw.s_state.get() & STATE_ERRORS != 0
    }

    /// Returns the state in the terms of `dumpe2fs`, and whether the journal needs recovery.
    fn state(&self, notices: &[Notice]) -> String {
        let state = self.raw.s_state.get();
        let mut words = Vec::from([if state & STATE_CLEAN != 0 { "clean" } else { "not clean" }]);
        let dirty = |notice: &Notice| matches!(notice, Notice::NotReplayed | Notice::ReplayFailed(_));
        if self.incompat.contains(Incompat::NEEDS_RECOVERY) || notices.iter().any(dirty) {
            words.push("needs recovery");
        }
        if state & STATE_ERRORS != 0 {
            words.push("with errors");
        }
        if state & STATE_ORPHANS != 0 {
            words.push("orphans being recovered");
        }
        words.join(", ")
    }
}

impl Volume {
    /// Returns the complete description.
    #[inline(never)]
    pub(crate) fn describe(&self) -> VolumeInfo {
        let sb = self.super_block();
        let notices = self.notices();
        VolumeInfo {
            probe: sb.probe(),
            features: for_commands(|| names(sb.compat, sb.incompat, sb.ro_compat)),
            state: for_commands(|| sb.state(&notices)),
            facts: for_commands(|| facts(sb)),
            notices,
        }
    }
}

fn facts(sb: &SuperBlock) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &'static str, value: String| facts.push(Fact { name, value });
    add("block size", sb.block_size.to_string());
    if sb.has_bigalloc() {
        add("cluster size", sb.cluster.len(sb.block_size.into()).to_string());
    }
    add("blocks", sb.blocks_count.to_string());
    add("reserved blocks", sb.reserved_blocks().to_string());
    add("groups", sb.groups.to_string());
    add("blocks per group", sb.blocks_per_group.to_string());
    add("inodes", sb.inodes_count.to_string());
    add("inodes per group", sb.inodes_per_group.to_string());
    add("inode size", sb.inode_size.to_string());
    add("first inode", sb.first_ino.to_string());
    add("descriptor size", sb.desc_size.to_string());
    add("revision", format!("{}.{}", sb.raw.s_rev_level, sb.raw.s_minor_rev_level));
    add("creator", creator(sb.raw.s_creator_os.get()).into());
    add("journal", journal(sb));
    add("on errors", on_errors(sb.raw.s_errors.get()).into());
    if let Some(hash) = hash_name(sb.raw.s_def_hash_version) {
        add("directory hash", hash.into());
    }
    let last_mounted = until_nul(&sb.raw.s_last_mounted);
    if !last_mounted.is_empty() {
        add("last mounted on", printable(last_mounted));
    }
    use_facts(sb, &mut add);
    facts
}

/// Adds the times and counts of use, and the recorded errors.
fn use_facts(sb: &SuperBlock, add: &mut impl FnMut(&'static str, String)) {
    let raw = &sb.raw;
    let times = [
        ("created", raw.s_mkfs_time.get(), raw.s_mkfs_time_hi),
        ("last mount", raw.s_mtime.get(), raw.s_mtime_hi),
        ("last write", raw.s_wtime.get(), raw.s_wtime_hi),
        ("last check", raw.s_lastcheck.get(), raw.s_lastcheck_hi),
    ];
    for (name, low, high) in times {
        let secs = join(low, high.into());
        if secs != 0 {
            add(name, utc(secs));
        }
    }
    add("mounts since check", raw.s_mnt_count.to_string());
    if raw.s_kbytes_written.get() != 0 {
        add("KiB ever written", raw.s_kbytes_written.to_string());
    }
    if raw.s_error_count.get() != 0 {
        add("errors", raw.s_error_count.to_string());
        let first = join(raw.s_first_error_time.get(), raw.s_first_error_time_hi.into());
        let last = join(raw.s_last_error_time.get(), raw.s_last_error_time_hi.into());
        let (first_at, last_at) = (&raw.s_first_error_func, &raw.s_last_error_func);
        let line = raw.s_first_error_line.get();
        add("first error", error_text(first, first_at, line, raw.s_first_error_ino.get()));
        let line = raw.s_last_error_line.get();
        add("last error", error_text(last, last_at, line, raw.s_last_error_ino.get()));
    }
    if sb.incompat.contains(Incompat::MMP) {
        add("multiple mount protection block", raw.s_mmp_block.to_string());
    }
}

fn error_text(secs: u64, function: &[u8], line: u32, ino: u32) -> String {
    let function = printable(until_nul(function));
    match ino {
        0 => format!("{} in {function}:{line}", utc(secs)),
        _ => format!("{} in {function}:{line}, inode {ino}", utc(secs)),
    }
}

fn journal(sb: &SuperBlock) -> String {
    if !sb.compat.contains(Compat::HAS_JOURNAL) {
        return "none".into();
    }
    match sb.raw.s_journal_inum.get() {
        0 => "on another device".into(),
        inum => format!("inode {inum}"),
    }
}

fn creator(os: u32) -> &'static str {
    match os {
        0 => "Linux",
        1 => "Hurd",
        2 => "Masix",
        3 => "FreeBSD",
        4 => "Lites",
        _ => "unknown",
    }
}

fn on_errors(behaviour: u16) -> &'static str {
    match behaviour {
        1 => "continue",
        2 => "remount read-only",
        3 => "panic",
        _ => "unknown",
    }
}

/// `DX_HASH_*`.
fn hash_name(version: u8) -> Option<&'static str> {
    Some(match version {
        0 | 3 => "legacy",
        1 | 4 => "half_md4",
        2 | 5 => "tea",
        6 => "siphash",
        _ => return None,
    })
}

/// Escapes bytes that are not printable ASCII as `\xNN`.
pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Formats a time as `2026-11-21 13:42:22 UTC`, in the proleptic Gregorian calendar (Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
#[allow(clippy::arithmetic_side_effects, reason = "a number of days is below 2^48")]
pub(crate) fn utc(secs: u64) -> String {
    let (days, second) = (secs / 86_400, secs % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let leap_days = year_of_era / 4 - year_of_era / 100;
    let day_of_year = day_of_era - (year_of_era * 365 + leap_days);
    let month_from_march = (day_of_year * 5 + 2) / 153;
    let day = day_of_year - (month_from_march * 153 + 2) / 5 + 1;
    let (month, next_year) =
        if month_from_march < 10 { (month_from_march + 3, 0) } else { (month_from_march - 9, 1) };
    let year = era * 400 + year_of_era + next_year;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_shown_as_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_268_542), "2026-11-21 13:42:22 UTC");
        assert_eq!(utc(15_032_385_535), "2446-05-10 22:38:55 UTC");
    }
}
