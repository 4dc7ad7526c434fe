//! Wrong descriptors and features, and blocks that cannot be read.

use std::sync::Arc;

use obento_base::{DeviceError, Error, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::CheckOptions;
use obento_env::NO_CLOCK;
use obento_ext4::{CheckEvent, check_volume, issues};

use crate::case::cases;
use crate::lab::Disk;
use crate::lab::bases::{self, oracles};
use crate::lab::judge::{contents, e2fsck_is_clean, repaired};

cases! {
    a_checksum_of_the_only_super_block(LARGE, ["super-block-checksum"], |disk| {
        disk.put(1024 + 0x3fc, &[1, 2, 3, 4]);
    });
    flags_that_mean_nothing_without_checksums(PLAIN, ["descriptor-flags group=1"], |disk| {
        disk.edit_group(1, |group| group.bg_flags = 2.into());
    });
    more_unused_inodes_than_a_group_has(UNINIT, ["unused-inodes group=1"], |disk| {
        disk.edit_group(1, |group| group.bg_itable_unused_lo = 30_000.into());
    });
    the_only_group_said_never_to_have_been_used(LARGE, [
        "no-root", "last-group-uninit group=0", "group-free-blocks group=0", "group-free-inodes group=0", "group-directories group=0", "free-blocks",
        "free-inodes"
    ], |disk| {
        disk.edit_group(0, |group| group.bg_flags = 3.into());
    });
    a_block_bitmap_of_the_last_group_said_never_to_have_been_written(EXT4, [
        "group-uninit group=1", "last-group-uninit group=1"
    ], |disk| {
        disk.edit_group(1, |group| group.bg_flags = (group.bg_flags.get() | 2).into());
    });
    a_large_file_without_the_feature(EXT4, ["missing-feature"], |disk| {
        disk.edit_inode("file", |inode| inode.i_size_high = 1.into());
        disk.edit_super_block(|sb| sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() & !2).into());
    });
    an_encrypted_file_without_a_context(EXT4, ["encryption ino=<file>"], |disk| {
        disk.edit_super_block(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x10000).into());
        disk.edit_inode("file", |inode| inode.i_flags = (inode.i_flags.get() | 0x800).into());
    });
}

/// Returns all reported codes, including notes.
fn reported(device: Arc<dyn BlockDevice>) -> Vec<&'static str> {
    let mut codes = Vec::new();
    check_volume(device, &CheckOptions::new(Arc::new(NO_CLOCK)), &mut |event| {
        if let CheckEvent::Found(issue, _) = event {
            codes.push(issue.code());
        }
    })
    .unwrap();
    codes
}

#[test]
fn no_file_is_lost_where_the_root_is_said_never_to_have_been_used() {
    if oracles() {
        let sound = bases::LARGE.disk();
        let mut disk = sound.clone();
        disk.edit_group(0, |group| group.bg_flags = 3.into());
        assert_eq!(contents(&repaired(&disk.bytes).unwrap()), contents(&sound.bytes));
    }
}

#[test]
fn a_bitmap_is_not_moved_into_files_in_inodes_said_to_be_unused() {
    if !oracles() {
        return;
    }
    for base in [&bases::LARGE, &bases::BIGALLOC] {
        let sound = base.disk();
        let but_the_first = u16::try_from(sound.inodes_per_group - 11).unwrap();
        let own = sound.group_of(0).bg_itable_unused_lo.get();
        // `EXT4_BG_INODE_UNINIT` is flag 1.
        for (unused, flag) in [(30_000, 0), (but_the_first, 0), (own, 1)] {
            let mut disk = sound.clone();
            disk.edit_group(0, |group| {
                group.bg_itable_unused_lo = unused.into();
                group.bg_flags = (group.bg_flags.get() | flag).into();
                group.bg_block_bitmap_lo = 0x7fff_0000.into();
            });
            let fixed = repaired(&disk.bytes).unwrap();
            assert_eq!(contents(&fixed), contents(&sound.bytes), "{} {unused} {flag}", base.name);
            assert!(e2fsck_is_clean(&fixed).is_clean());
        }
    }
}

#[test]
fn a_bit_of_the_number_of_reserved_descriptor_blocks_costs_no_file() {
    if !oracles() {
        return;
    }
    let sound = bases::LARGE.disk();
    // e2fsck does not open a volume that reserves more blocks than one block lists.
    for bit in 0..10 {
        let mut disk = sound.clone();
        disk.edit_super_block(|sb| {
            sb.s_reserved_gdt_blocks = (sb.s_reserved_gdt_blocks.get() ^ 1 << bit).into();
        });
        let fixed = repaired(&disk.bytes).unwrap();
        assert_eq!(contents(&fixed), contents(&sound.bytes), "bit {bit}");
        assert!(e2fsck_is_clean(&fixed).is_clean(), "bit {bit}");
    }
}

#[test]
fn a_volume_longer_than_its_device_is_reported() {
    if oracles() {
        let mut disk = bases::LARGE.disk();
        disk.bytes.truncate(disk.bytes.len() - 4096);
        assert_eq!(reported(Arc::new(MemDevice::read_only(disk.bytes))), ["truncated"]);
    }
}

#[test]
fn notes_report_an_error_mark_and_a_missing_journal() {
    if oracles() {
        let mut disk = bases::EXT4.disk();
        disk.edit_super_block(|sb| sb.s_state = (sb.s_state.get() | 2).into());
        assert_eq!(reported(Arc::new(MemDevice::read_only(disk.bytes))), ["marked-with-errors"]);
        let mut disk = bases::EXT2.disk();
        disk.edit_super_block(|sb| {
            sb.s_feature_compat = (sb.s_feature_compat.get() | 4).into();
            sb.s_journal_uuid = [9; 16];
        });
        assert_eq!(reported(Arc::new(MemDevice::read_only(disk.bytes))), ["journal-missing"]);
    }
}

#[test]
fn a_volume_that_needs_a_missing_journal_is_reported_and_not_repaired() {
    if oracles() {
        let mut disk = bases::EXT2.disk();
        disk.edit_super_block(|sb| {
            sb.s_feature_compat = (sb.s_feature_compat.get() | 4).into();
            sb.s_feature_incompat = (sb.s_feature_incompat.get() | 4).into();
            sb.s_journal_uuid = [9; 16];
            sb.s_free_blocks_count_lo = 1.into();
        });
        let found = reported(Arc::new(MemDevice::read_only(disk.bytes.clone())));
        assert_eq!(found, ["journal-not-read", "free-blocks"]);
        assert!(repaired(&disk.bytes).unwrap() == disk.bytes, "a later replay would overwrite a repair");
    }
}

#[test]
fn an_orphan_beyond_the_last_inode_is_reported_and_removed_from_the_list() {
    if oracles() {
        // e2fsck skips the list on a read-only device.
        let mut disk = bases::EXT2.disk();
        disk.edit_super_block(|sb| sb.s_last_orphan = 99_999.into());
        assert_eq!(reported(Arc::new(MemDevice::read_only(disk.bytes.clone()))), ["orphan-list"]);
        let fixed = Disk::new(repaired(&disk.bytes).unwrap());
        assert_eq!(fixed.super_block().s_last_orphan.get(), 0);
        assert!(e2fsck_is_clean(&fixed.bytes).is_silent());
    }
}

/// A device on which one block cannot be read.
#[derive(Debug)]
struct Scratched {
    whole: MemDevice,
    at: u64,
}

impl BlockDevice for Scratched {
    fn len(&self) -> u64 {
        self.whole.len()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset <= self.at && self.at < offset + buf.len() as u64 {
            return Err(Error::Device(DeviceError::Read { offset: self.at, len: 1, errno: 5 }));
        }
        self.whole.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Returns the codes that are found if block `block` cannot be read.
fn scratched(disk: &Disk, block: u32) -> Vec<&'static str> {
    let at = disk.range(block).start as u64;
    let device = Arc::new(Scratched { whole: MemDevice::read_only(disk.bytes.clone()), at });
    let mut found = Vec::new();
    let report = check_volume(device, &CheckOptions::new(Arc::new(NO_CLOCK)), &mut |event| {
        if let CheckEvent::Found(issue, _) = event {
            found.push(issue.code());
        }
    });
    // Everything that can be examined is, and then the error of the device is returned.
    assert!(matches!(report, Err(Error::Device(DeviceError::Read { .. }))), "{report:?}");
    found
}

#[test]
fn unreadable_blocks_are_reported_by_their_use() {
    if oracles() {
        let disk = bases::EXT4.disk();
        let group = disk.group_of(1);
        assert_eq!(scratched(&disk, group.bg_block_bitmap_lo.get()), ["bitmap-unreadable"]);
        let dir = disk.file_block(disk.ino("dir"), 0);
        assert_eq!(scratched(&disk, dir).first(), Some(&"directory-unreadable"));
        let table = disk.group_of(0).bg_inode_table_lo.get();
        assert_eq!(scratched(&disk, table + 2).first(), Some(&"inode-unreadable"));
    }
}

#[test]
fn a_group_in_use_that_is_marked_as_never_used_is_reported() {
    if oracles() {
        let mut disk = bases::UNINIT.disk();
        disk.edit_group(0, |group| group.bg_flags = (group.bg_flags.get() | 2).into());
        let found = issues(Arc::new(MemDevice::read_only(disk.bytes))).unwrap();
        assert!(found.iter().any(|issue| issue.code() == "group-uninit"), "{found:?}");
    }
}
