//! The length of a UDF volume, from the descriptors after its first bytes.
//!
//! Source: ECMA-167 3/10.2 (the anchor, in sector 256, with the place of the main sequence of descriptors), 3/10.5 (a partition:
//! its first sector and its length), 3/10.6 (the volume: its maps of partitions); UDF 2.60, 2.2.8 (the virtual map).

use obento_base::wire::to_usize;
use obento_block::BlockDevice;

use super::first_bytes::{u16_at, u32_at, utf16_be};

/// Kinds of descriptors: `TAG_IDENT_*` of Linux 6.1, fs/udf/ecma_167.h.
const PRIMARY: u16 = 1;
const ANCHOR: u16 = 2;
const PARTITION: u16 = 5;
const LOGICAL_VOLUME: u16 = 6;
const END: u16 = 8;

/// A write-once disc has its newest table in the last written block, where Linux searches for it. The end of the image
/// is therefore the end of the volume, independently of the length of the partition.
const VIRTUAL: &[u8] = b"*UDF Virtual Partition";

/// Sizes of sectors, the most likely size first.
const SIZES: [u64; 4] = [2048, 512, 1024, 4096];
const ANCHOR_AT: u64 = 256;
/// The limit of a valid sequence.
const DESCRIPTORS: u64 = 64;

/// The size of a sector and the descriptors of the main sequence.
fn descriptors(device: &dyn BlockDevice) -> Option<(u64, Vec<Vec<u8>>)> {
    let (size, anchor) = SIZES.iter().find_map(|size| Some((*size, anchor(device, *size)?)))?;
    let (bytes, first) = (u64::from(u32_at(&anchor, 16)?), u64::from(u32_at(&anchor, 20)?));
    let sectors = (first..).take(to_usize((bytes / size).min(DESCRIPTORS)));
    let descriptors = sectors.map_while(|number| sector(device, number, size));
    Some((size, descriptors.take_while(|bytes| !is(bytes, END)).collect()))
}

/// Returns the identifier of the volume set, a field of 128 bytes (ECMA-167 3/10.1.6).
pub(super) fn volume_set(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let (_, descriptors) = descriptors(device)?;
    let primary = descriptors.iter().find(|bytes| is(bytes, PRIMARY))?;
    primary.get(72..200).map(<[u8]>::to_vec)
}

/// Returns the label: the identifier of the logical volume (ECMA-167 3/10.6.4), a string of OSTA compressed Unicode (UDF 2.60, 2.1.1
/// and 2.1.3). Its last byte is the number of bytes in use, and its first is the number of bits of a character.
pub(super) fn label(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let (_, descriptors) = descriptors(device)?;
    let volume = descriptors.iter().find(|bytes| is(bytes, LOGICAL_VOLUME))?;
    let field = volume.get(84..212)?;
    let used = usize::from(*field.last()?).min(127);
    let (bits, text) = field.get(..used)?.split_first()?;
    let units: Vec<u16> = match bits {
        8 => text.iter().map(|byte| u16::from(*byte)).collect(),
        16 => utf16_be(text),
        _ => return None,
    };
    Some(String::from_utf16_lossy(&units).into_bytes())
}

/// Returns the end of the last partition; `None` if it is unknown.
pub(super) fn len(device: &dyn BlockDevice) -> Option<u64> {
    let (size, descriptors) = descriptors(device)?;
    let of_kind = |kind| descriptors.iter().filter(move |bytes| is(bytes, kind));
    let is_virtual = |bytes: &Vec<u8>| bytes.windows(VIRTUAL.len()).any(|part| part == VIRTUAL);
    if of_kind(LOGICAL_VOLUME).any(is_virtual) {
        return None;
    }
    let end =
        |bytes: &Vec<u8>| Some((u64::from(u32_at(bytes, 188)?) + u64::from(u32_at(bytes, 192)?)) * size);
    of_kind(PARTITION).filter_map(end).max()
}

fn anchor(device: &dyn BlockDevice, size: u64) -> Option<Vec<u8>> {
    let bytes = sector(device, ANCHOR_AT, size)?;
    (is(&bytes, ANCHOR) && u32_at(&bytes, 12)? == 256).then_some(bytes)
}

/// The first bytes of a sector, which contain all fields that are read here.
fn sector(device: &dyn BlockDevice, number: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 512];
    device.read_at(number.checked_mul(size)?, &mut bytes).ok()?;
    Some(bytes)
}

fn is(bytes: &[u8], kind: u16) -> bool {
    u16_at(bytes, 0) == Some(kind)
}

#[cfg(test)]
mod tests {
    use obento_block::MemDevice;

    use super::*;

    /// An anchor that refers to three descriptors in sector 20: a partition of 400 sectors from 300 on, a volume, the end.
    fn described(map: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 257 * 2048];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        put(256 * 2048, &words(&[2, 0, 0, 256, 3 * 2048, 20]));
        put(20 * 2048, &words(&[5]));
        put(20 * 2048 + 188, &words(&[300, 400]));
        put(21 * 2048, &words(&[6]));
        put(21 * 2048 + 440, map);
        put(22 * 2048, &words(&[8]));
        bytes
    }

    #[test]
    fn a_volume_ends_with_its_partition_unless_it_is_written_once() {
        let len_of = |bytes: Vec<u8>| len(&MemDevice::read_only(bytes));
        assert_eq!(len_of(described(b"")), Some(700 * 2048));
        assert_eq!(len_of(described(VIRTUAL)), None);
        assert_eq!(len_of(vec![0; 4096]), None);
        let mut wild = described(b"");
        wild[256 * 2048 + 16..256 * 2048 + 24].fill(0xff);
        assert_eq!(len_of(wild), None, "the descriptors are past the end");
    }
}
