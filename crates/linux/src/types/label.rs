//! Labels that are not at a fixed place, as blkid prints them.

use obento_base::wire::to_usize;
use obento_block::BlockDevice;

use super::first_bytes::utf16_be;
use crate::probe::first_bytes;

/// Escape sequences of a Joliet descriptor (Joliet specification, "Specification of Coded Graphic Character Set").
const JOLIET: [&[u8]; 3] = [b"%/@", b"%/C", b"%/E"];

fn read(device: &dyn BlockDevice, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut bytes).ok()?;
    Some(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes).into())
}

/// Returns the volume identifier of ISO 9660 (ECMA-119 8.4.6), or that of Joliet. A Joliet identifier has at most 16
/// characters. If they equal the start of the 32 characters of ISO 9660, except for case and `_` as a substitute, the
/// remaining 16 are appended.
pub(super) fn of_iso(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let start = first_bytes(device).ok()?;
    let primary = start.get(0x8028..0x8048)?.to_vec();
    let descriptors = (0x8800..start.len()).step_by(2048).map_while(|at| start.get(at..at + 2048));
    let mut descriptors =
        descriptors.take_while(|bytes| bytes.starts_with(b"\x02CD001") || bytes.starts_with(b"\0CD001"));
    let joliet = descriptors.find(|bytes| {
        bytes.starts_with(b"\x02") && bytes.get(88..91).is_some_and(|escape| JOLIET.contains(&escape))
    });
    let Some(joliet) = joliet else { return Some(primary) };
    let mut units = utf16_be(joliet.get(40..72)?);
    let is_same = |(unit, byte): (&u16, &u8)| {
        let unit = u8::try_from(*unit).ok();
        *byte == b'_' || unit.is_some_and(|unit| unit.eq_ignore_ascii_case(byte))
    };
    if units.iter().zip(&primary).all(is_same) {
        units.extend(primary.iter().skip(16).map(|byte| u16::from(*byte)));
    }
    let units: Vec<u16> = units.into_iter().take_while(|unit| *unit != 0).collect();
    Some(String::from_utf16_lossy(&units).trim_ascii_end().as_bytes().to_vec())
}

/// Returns the name of the root directory. It is in the first record of the first leaf of the catalog (Apple Technical
/// Note TN1150, "Catalog File", "B-Trees"). Supports only a catalog whose first leaf is in its first extent.
pub(super) fn of_hfsplus(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let header = read(device, 1024, 512)?;
    let catalog = u32_at(&header, 288)?.checked_mul(u32_at(&header, 40)?)?;
    let tree = read(device, catalog, 64)?;
    let (leaf, size) = (u32_at(&tree, 14 + 10)?, tree.get(14 + 18..)?.first_chunk()?);
    let leaf = leaf.checked_mul(u16::from_be_bytes(*size).into())?;
    let node = read(device, catalog.checked_add(leaf)?, 14 + 8 + 510)?;
    // A node of kind -1 is a leaf; the parent of the root directory is 1.
    let is_root = node.get(8) == Some(&0xff) && u32_at(&node, 14 + 2) == Some(1);
    let len = u16::from_be_bytes(*node.get(14 + 6..)?.first_chunk()?);
    let name = node.get(22..)?.get(..to_usize(u64::from(len).min(255) * 2))?;
    is_root.then(|| String::from_utf16_lossy(&utf16_be(name)).into_bytes())
}

/// Returns the label in the boot sector, if the boot sector has one (libblkid, superblocks/hpfs.c `struct hpfs_boot_block`).
pub(super) fn of_hpfs(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let boot = read(device, 0, 512)?;
    let is_labelled = boot.get(510..) == Some(b"\x55\xaa") && boot.get(0x26) == Some(&0x28);
    boot.get(0x2b..0x36).filter(|_| is_labelled).map(<[u8]>::to_vec)
}
