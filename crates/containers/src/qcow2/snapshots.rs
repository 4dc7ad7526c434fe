//! The table of internal snapshots.

use alloc::string::String;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, Immutable, KnownLayout, Unaligned, be, to_u64};
use obento_block::BlockDevice;

use super::header::Header;
use crate::error::Opening;
use crate::{read_bytes, read_raw};

/// qemu reads at most 65,536 snapshots.
const SNAPSHOTS_MAX: u32 = 65_536;
const EXTRA_MAX: u32 = 1024;
/// qemu stores at most 127 bytes of an identifier and 255 bytes of a name: `QEMUSnapshotInfo` in
/// include/block/snapshot.h.
const NAME_MAX: u64 = 1024;
/// Maximum size of the table in bytes: 256 for each snapshot. qemu accepts four times as many.
const TABLE_MAX: u64 = 16 << 20;
const TABLE: &str = "snapshot table";

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawSnapshot {
    l1_at: be::U64,
    l1_len: be::U32,
    id_len: be::U16,
    name_len: be::U16,
    seconds: be::U32,
    nanoseconds: be::U32,
    clock: be::U64,
    vm_len: be::U32,
    extra_len: be::U32,
}
const ENTRY_LEN: u64 = 40;
const _: () = assert!(to_u64(size_of::<RawSnapshot>()) == ENTRY_LEN);

/// An internal snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The identifier: a number.
    pub id: String,
    /// The name.
    pub name: String,
    /// Seconds since 1970.
    pub seconds: u32,
    /// The part of a second, in nanoseconds.
    pub nanoseconds: u32,
    /// The size of the disk, if the image stores it.
    pub disk_len: Option<u64>,
    /// The size of the state of the virtual machine, or 0 without one.
    pub vm_len: u64,
    pub(super) l1_at: u64,
    pub(super) l1_len: u32,
}

/// Returns the snapshot with the identifier `name`, or otherwise the first one with this name, as qemu does.
pub fn find<'a>(all: &'a [Snapshot], name: &str) -> Option<&'a Snapshot> {
    let by_id = all.iter().find(|snapshot| snapshot.id == name);
    by_id.or_else(|| all.iter().find(|snapshot| snapshot.name == name))
}

pub(super) fn read(file: &dyn BlockDevice, header: &Header) -> Result<Vec<Snapshot>, Opening> {
    if header.snapshots > SNAPSHOTS_MAX {
        return Err(Opening::damaged(TABLE, "the number of snapshots is impossible"));
    }
    let (mut all, mut at) = (Vec::new(), header.snapshots_at);
    for _ in 0..header.snapshots {
        let raw: RawSnapshot = read_raw(file, at, TABLE)?;
        let extra_len = raw.extra_len.get();
        if extra_len > EXTRA_MAX {
            return Err(Opening::damaged(TABLE, "an entry is too long"));
        }
        let (id_len, name_len) = (u64::from(raw.id_len.get()), u64::from(raw.name_len.get()));
        if id_len.max(name_len) > NAME_MAX {
            return Err(Opening::damaged(TABLE, "a name is too long"));
        }
        let rest = u64::from(extra_len).saturating_add(id_len).saturating_add(name_len);
        let bytes = read_bytes(file, at.saturating_add(ENTRY_LEN), rest, TABLE)?;
        let mut cursor = obento_base::Cursor::new(&bytes);
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let extra = cursor.take(crate::to_usize(extra_len.into())).unwrap_or_default();
        let id = text(cursor.take(crate::to_usize(id_len)));
        let name = text(cursor.take(crate::to_usize(name_len)));
        let long =
            |at: usize| extra.get(at..).and_then(<[u8]>::first_chunk).map(|&bytes| u64::from_be_bytes(bytes));
        let vm_len = long(0).unwrap_or_else(|| raw.vm_len.get().into());
        let disk_len = long(8);
        all.push(Snapshot {
            id,
            name,
            seconds: raw.seconds.get(),
            nanoseconds: raw.nanoseconds.get(),
            vm_len,
            disk_len: disk_len.filter(|&len| len > 0),
            l1_at: raw.l1_at.get(),
            l1_len: raw.l1_len.get(),
        });
        at = at.saturating_add(ENTRY_LEN).saturating_add(rest).next_multiple_of(8);
        if at.saturating_sub(header.snapshots_at) > TABLE_MAX {
            return Err(Opening::damaged(TABLE, "too large"));
        }
    }
    Ok(all)
}
