//! Conversion of an inode's raw fields to [`Attr`].

use core::mem::offset_of;

use obento_base::wire::join;
use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Mode, Timestamp};

use super::decode::{Format, reaches};
use super::{Inode, InodeFlags};
use crate::feature::RoCompat;
use crate::raw::{RawInode, RawInodeExtra};
use crate::super_block::SuperBlock;

impl Inode {
    /// Returns the attributes for `stat`.
    pub fn attr(&self, sb: &SuperBlock) -> Attr {
        let Some((raw, extra)) = self.raw() else { return self.bare_attr(sb) };
        let reach = extra.map_or(0, Self::extra_isize);
        let field =
            |end: usize, get: fn(&RawInodeExtra) -> u32| extra.filter(|_| reaches(reach, end)).map(get);
        let ctime = timestamp(raw.i_ctime.get(), field(0x88, |e| e.i_ctime_extra.get()));
        let crtime = field(0x94, |e| e.i_crtime.get());
        let crtime_extra = field(0x98, |e| e.i_crtime_extra.get());
        Attr {
            nlink: self.links.into(),
            uid: wide(raw.i_uid.get(), raw.l_i_uid_high.get()),
            gid: wide(raw.i_gid.get(), raw.l_i_gid_high.get()),
            rdev: if self.kind.is_device() { device_number(raw) } else { DeviceNumber::default() },
            blocks: self.sectors(sb).saturating_add(self.inline_sectors()),
            atime: timestamp(raw.i_atime.get(), field(0x90, |e| e.i_atime_extra.get())),
            mtime: timestamp(raw.i_mtime.get(), field(0x8c, |e| e.i_mtime_extra.get())),
            ctime,
            btime: crtime.map(|secs| timestamp(secs, crtime_extra)),
            change: match (raw.l_i_version.get(), field(0x9c, |e| e.i_version_hi.get())) {
                // A small version number cannot be derived from a time.
                (version, None) => nanoseconds(ctime).saturating_add(version.into()),
                // The version was never set: by a file system without `i_version`, or by `mke2fs -d`.
                (0, Some(0)) => nanoseconds(ctime),
                (low, Some(high)) => join(low, high),
            },
            project: field(0xa0, |e| e.i_projid.get())
                .filter(|_| sb.ro_compat.contains(RoCompat::PROJECT))
                .unwrap_or(0),
            ..self.bare_attr(sb)
        }
    }

    /// Returns the times of the last change of the data and of the inode.
    pub(crate) fn data_times(&self) -> (Timestamp, Timestamp) {
        let Some((raw, extra)) = self.raw() else { return (Timestamp::EPOCH, Timestamp::EPOCH) };
        let reach = extra.map_or(0, Self::extra_isize);
        let field =
            |end: usize, get: fn(&RawInodeExtra) -> u32| extra.filter(|_| reaches(reach, end)).map(get);
        (
            timestamp(raw.i_mtime.get(), field(0x8c, |e| e.i_mtime_extra.get())),
            timestamp(raw.i_ctime.get(), field(0x88, |e| e.i_ctime_extra.get())),
        )
    }

    /// Returns the attributes from the decoded fields alone.
    fn bare_attr(&self, sb: &SuperBlock) -> Attr {
        Attr {
            ino: self.ino,
            generation: Generation(self.generation),
            kind: self.kind,
            mode: Mode::new(self.mode),
            nlink: self.links.into(),
            uid: 0,
            gid: 0,
            rdev: DeviceNumber::default(),
            size: self.size,
            blocks: 0,
            block_size: sb.block_size.bytes(),
            atime: Timestamp::EPOCH,
            mtime: Timestamp::EPOCH,
            ctime: Timestamp::EPOCH,
            btime: None,
            flags: FileFlags::from_bits_retain((self.flags & InodeFlags::VISIBLE).bits()),
            change: 0,
            project: 0,
        }
    }

    /// Returns the sectors that Linux adds for inline data, so that a small file does not appear sparse:
    /// `ext4_file_getattr`.
    fn inline_sectors(&self) -> u64 {
        let is_inline = self.kind == FileKind::Regular && self.has(InodeFlags::INLINE_DATA);
        if is_inline { self.size.div_ceil(512) } else { 0 }
    }

    /// Returns the allocated space in units of 512 bytes: `ext4_inode_blocks`.
    pub fn sectors(&self, sb: &SuperBlock) -> u64 {
        self.raw().map_or(0, |(raw, _)| sectors_of(sb.into(), raw))
    }
}

/// Returns the allocated space of a record in units of 512 bytes.
pub(crate) fn sectors_of(format: Format, raw: &RawInode) -> u64 {
    if !format.has_huge_files {
        return raw.i_blocks_lo.get().into();
    }
    let count = join(raw.i_blocks_lo.get(), raw.l_i_blocks_high.get().into());
    let is_in_blocks = InodeFlags::from_bits_retain(raw.i_flags.get()).contains(InodeFlags::HUGE_FILE);
    if is_in_blocks { count.saturating_mul(format.block_size.sectors().into()) } else { count }
}

impl InodeFlags {
    /// The flags that Linux shows: `EXT4_FL_USER_VISIBLE`.
    const VISIBLE: Self = Self::from_bits_retain(0x725b_dfff);
}

/// Returns the nanoseconds since 1970 as a number that increases with time.
pub(crate) fn nanoseconds(time: Timestamp) -> u64 {
    let secs = time.secs().max(0).cast_unsigned();
    secs.saturating_mul(1_000_000_000).saturating_add(time.nanos().into())
}

fn wide(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

/// Decodes a timestamp. Seconds are signed; `extra` has 2 bits above them and 30 bits of nanoseconds, for times from
/// 1901 to 2446. Source: Linux `fs/ext4/ext4.h`, "Extended timestamps".
pub(crate) fn timestamp(secs: u32, extra: Option<u32>) -> Timestamp {
    let secs = i64::from(secs.cast_signed());
    match extra {
        Some(extra) => Timestamp::new(secs.saturating_add(i64::from(extra & 3) << 32), extra >> 2),
        None => Timestamp::new(secs, 0),
    }
}

/// Decodes a device number: `i_block[0]` in the old 16-bit form, or if it is 0, `i_block[1]` in the 32-bit form.
/// Source: Linux `fs/ext4/inode.c` `__ext4_iget`, `include/linux/kdev_t.h`.
fn device_number(raw: &RawInode) -> DeviceNumber {
    const _: () = assert!(offset_of!(RawInode, i_block) == 0x28);
    let [a, b, c, d, e, f, g, h, ..] = raw.i_block;
    let (old, new) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if old != 0 {
        DeviceNumber { major: old >> 8 & 0xff, minor: old & 0xff }
    } else {
        DeviceNumber { major: new >> 8 & 0xfff, minor: new & 0xff | new >> 12 & 0xf_ff00 }
    }
}

/// Returns the seconds and the `extra` field of a timestamp, or `None` if it does not fit. The inverse of
/// [`timestamp`].
pub(crate) fn encode_time(time: Timestamp, wide: bool) -> Option<(u32, u32)> {
    let low = i32::from_le_bytes(*time.secs().to_le_bytes().first_chunk()?);
    let epoch = time.secs().checked_sub(low.into())? >> 32;
    let epoch = u32::try_from(epoch).ok().filter(|&epoch| if wide { epoch < 4 } else { epoch == 0 })?;
    Some((low.cast_unsigned(), epoch | time.nanos() << 2))
}

/// Returns [`encode_time`] of `time`, or of the nearest time that such an inode can store. The first and the last second
/// are stored without a fraction. Source: Linux `fs/inode.c` `timestamp_truncate`.
pub(crate) fn encode_nearest_time(time: Timestamp, wide: bool) -> (u32, u32) {
    /// `EXT4_EXTRA_TIMESTAMP_MAX`.
    const WIDE_MAX: i64 = 0x3_7fff_ffff;
    let max = if wide { WIDE_MAX } else { i32::MAX.into() };
    let min = i64::from(i32::MIN);
    let time = match time.secs() {
        secs if secs <= min => Timestamp::new(min, 0),
        secs if secs >= max => Timestamp::new(max, 0),
        _ => time,
    };
    encode_time(time, wide).unwrap_or_default()
}

/// Returns whether a device node can store `number`.
pub(crate) fn fits_device(number: DeviceNumber) -> bool {
    /// `MINORBITS` of Linux, and the other bits of 32.
    const BITS: (u32, u32) = (12, 20);
    number.major >> BITS.0 == 0 && number.minor >> BITS.1 == 0
}

/// Returns the first two words of a device node's `i_block`: the first for numbers of 8 bits each, else the second.
/// Source: Linux `include/linux/kdev_t.h` `old_encode_dev`, `new_encode_dev`.
pub(crate) fn encode_device(number: DeviceNumber) -> [u8; 8] {
    let DeviceNumber { major, minor } = number;
    let (old, new) = if major < 256 && minor < 256 {
        (major << 8 | minor, 0)
    } else {
        (0, minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12)
    };
    let ([a, b, c, d], [e, f, g, h]) = (u32::to_le_bytes(old), u32::to_le_bytes(new));
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::FromZeros;

    #[test]
    fn times_reach_from_1901_to_2446_with_nanoseconds() {
        assert_eq!(timestamp(0x8000_0000, None), Timestamp::new(-0x8000_0000, 0));
        assert_eq!(timestamp(0x8000_0000, Some(1)), Timestamp::new(0x8000_0000, 0));
        assert_eq!(
            timestamp(0x7fff_ffff, Some(3 | 999_999_999 << 2)),
            Timestamp::new(0x3_7fff_ffff, 999_999_999)
        );
        assert_eq!(timestamp(5, Some(!3)), Timestamp::new(5, 999_999_999));
    }

    #[test]
    fn device_numbers_are_read_in_the_old_and_the_new_encoding() {
        let mut raw = RawInode::new_zeroed();
        raw.i_block[..2].copy_from_slice(&[5, 4]);
        assert_eq!(device_number(&raw), DeviceNumber { major: 4, minor: 5 });
        raw.i_block[..8].copy_from_slice(&[0, 0, 0, 0, 0x45, 0x23, 0x61, 0x78]);
        assert_eq!(device_number(&raw), DeviceNumber { major: 0x123, minor: 0x7_8645 });
    }

    #[test]
    fn times_are_encoded_reversibly_or_refused() {
        for secs in [0, 1, -1, -0x8000_0000, 0x7fff_ffff, 0x8000_0000, 0x3_7fff_ffff] {
            let time = Timestamp::new(secs, 999_999_999);
            let (low, extra) = encode_time(time, true).unwrap();
            assert_eq!(timestamp(low, Some(extra)), time);
        }
        assert_eq!(encode_time(Timestamp::new(0x3_8000_0000, 0), true), None);
        assert_eq!(encode_time(Timestamp::new(-0x8000_0001, 0), true), None);
        assert_eq!(encode_time(Timestamp::new(0x8000_0000, 0), false), None);
        assert_eq!(encode_time(Timestamp::new(-5, 7), false).map(|(low, _)| low), Some(!4));
    }

    #[test]
    fn times_beyond_the_first_and_the_last_second_become_these_without_a_fraction() {
        let stored = |secs, nanos, wide| {
            let (low, extra) = encode_nearest_time(Timestamp::new(secs, nanos), wide);
            timestamp(low, Some(extra))
        };
        for (given, expected) in
            [(-0x8000_0001, -0x8000_0000), (-0x8000_0000, -0x8000_0000), (1 << 40, 0x3_7fff_ffff)]
        {
            assert_eq!(stored(given, 7, true), Timestamp::new(expected, 0));
        }
        assert_eq!(stored(0x3_7fff_ffff, 7, true), Timestamp::new(0x3_7fff_ffff, 0));
        assert_eq!(stored(0x8000_0000, 7, false), Timestamp::new(0x7fff_ffff, 0));
        assert_eq!(stored(-0x7fff_ffff, 7, true), Timestamp::new(-0x7fff_ffff, 7));
    }
}
