//! Identifiers that are not a UUID at a fixed place, as blkid prints them.
//!
//! Source of all rules: util-linux 2.38, `libblkid/src/superblocks`, in the file that each function names.

use std::fmt::Write as _;

use md5::{Digest as _, Md5};
use obento_block::BlockDevice;

use super::first_bytes::utf16_be;
use crate::probe::first_bytes;

/// An identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Id {
    /// A UUID.
    Uuid([u8; 16]),
    /// A serial number.
    Serial(u32),
    /// Text.
    Text(String),
}

/// The first 16 bytes of the message whose digest is the UUID of an HFS volume (hfs.c `hash_init`).
const HFS: [u8; 16] =
    [0xb3, 0xe2, 0x0f, 0x39, 0xf2, 0x92, 0x11, 0xd6, 0x97, 0xa4, 0x00, 0x30, 0x65, 0x43, 0xec, 0xac];
/// The offsets of the 8-byte identifier in the Finder information of HFS and of HFS+.
const HFS_ID: u64 = 1024 + 92 + 24;
const HFSPLUS_ID: u64 = 1024 + 80 + 24;

/// The identifier of an HFS volume (hfs.c `hfs_set_uuid`).
pub(super) fn of_hfs(device: &dyn BlockDevice) -> Option<Id> {
    of_finder(device, HFS_ID)
}

/// The identifier of an HFS+ volume (hfs.c `hfs_set_uuid`).
pub(super) fn of_hfsplus(device: &dyn BlockDevice) -> Option<Id> {
    of_finder(device, HFSPLUS_ID)
}

fn of_finder(device: &dyn BlockDevice, at: u64) -> Option<Id> {
    let mut id = [0; 8];
    device.read_at(at, &mut id).ok()?;
    if id == [0; 8] {
        return None;
    }
    let mut uuid: [u8; 16] = Md5::new().chain_update(HFS).chain_update(id).finalize().into();
    uuid[6] = 0x30 | uuid[6] & 0x0f;
    uuid[8] = 0x80 | uuid[8] & 0x3f;
    Some(Id::Uuid(uuid))
}

/// The identifier of an HPFS volume, if its boot sector has one (hpfs.c `struct hpfs_boot_block`).
pub(super) fn of_hpfs(device: &dyn BlockDevice) -> Option<Id> {
    let start = first_bytes(device).ok()?;
    let is_reported = start.get(510..512) == Some(b"\x55\xaa") && start.get(0x26) == Some(&0x28);
    let serial = start.get(0x27..)?.first_chunk().filter(|_| is_reported)?;
    Some(Id::Serial(u32::from_le_bytes(*serial)))
}

/// The identifier of ISO 9660: the time of the last change, or else of creation (iso9660.c `probe_iso9660_set_uuid`; ECMA-119 8.4.26.1).
pub(super) fn of_iso(device: &dyn BlockDevice) -> Option<Id> {
    let start = first_bytes(device).ok()?;
    [0x8000 + 830, 0x8000 + 813].into_iter().find_map(|at| date(start.get(at..at + 17)?)).map(Id::Text)
}

/// A time of 16 digits and a time zone; `None` if it is not set.
fn date(bytes: &[u8]) -> Option<String> {
    let (digits, zone) = bytes.split_at_checked(16)?;
    let is_unset = digits.iter().all(|digit| *digit == b'0') && *zone == [0];
    let text = std::str::from_utf8(digits).ok().filter(|_| !is_unset)?;
    let is_digits = text.bytes().all(|digit| digit.is_ascii_digit());
    let parts =
        [0..4, 4..6, 6..8, 8..10, 10..12, 12..14, 14..16].map(|part| text.get(part).unwrap_or_default());
    is_digits.then(|| parts.join("-"))
}

/// The identifier of UDF: from the identifier of the volume set, whose first 16 characters should be hexadecimal (udf.c
/// `gen_uuid_from_volset_id`; UDF 2.60, 2.2.2.5). Each other character is replaced by two digits.
pub(super) fn of_udf(device: &dyn BlockDevice) -> Option<Id> {
    let field = super::udf::volume_set(device)?;
    let used = usize::from(*field.last()?).min(field.len() - 1);
    let (bits, text) = field.get(..used)?.split_first()?;
    let text = match bits {
        8 => text.iter().map(|byte| char::from(*byte)).collect::<String>(),
        16 => String::from_utf16_lossy(&utf16_be(text)),
        _ => return None,
    };
    let bytes = text.as_bytes();
    let bytes = bytes.get(..bytes.len().min(16)).filter(|bytes| bytes.len() >= 8)?;
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // The leading characters are copied, and the following ones are converted to hexadecimal until there are 16 digits.
    let plain = match digits {
        16 => 16,
        8..16 => 8,
        _ => 0,
    };
    let (plain, coded) = bytes.split_at_checked(plain)?;
    let mut id = String::from_utf8(plain.to_ascii_lowercase()).ok()?;
    for at in 0..(16 - plain.len()) / 2 {
        let _ = write!(id, "{:02x}", coded.get(at).copied().unwrap_or(0));
    }
    Some(Id::Text(id))
}
