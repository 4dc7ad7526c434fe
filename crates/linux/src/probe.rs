//! Recognises a volume by its signature, without starting a kernel.

use obento_base::Result;
use obento_base::wire::to_usize;
use obento_block::BlockDevice;
use obento_driver::Probe;

use crate::types::{Id, Label, Length, Type, WINDOW};

/// Returns the properties of the volume on `device`, if it has the type `kind`.
pub fn probe(kind: &Type, device: &dyn BlockDevice) -> Result<Option<Probe>> {
    let start = first_bytes(device)?;
    let has = |at: u64, bytes: &[u8]| start.get(to_usize(at)..).is_some_and(|rest| rest.starts_with(bytes));
    let is_it = kind.marks.iter().any(|mark| has(mark.at, mark.bytes)) && (kind.also)(&start);
    if !is_it {
        return Ok(None);
    }
    let id = kind.id.and_then(|read| read(device));
    let (of_id, serial, text_id) = match id {
        Some(Id::Uuid(uuid)) => (Some(uuid), None, None),
        Some(Id::Serial(serial)) => (None, Some(serial), None),
        Some(Id::Text(text)) => (None, None, Some(text)),
        None => (None, None, None),
    };
    let uuid = kind.uuid.and_then(|at| array(&start, at)).filter(|uuid| *uuid != [0; 16]);
    Ok(Some(Probe {
        fs_type: kind.names.first().copied().unwrap_or_default(),
        label: label(kind.label, &start, device),
        uuid: uuid.or(of_id),
        serial,
        text_id,
        len: len(kind.len, &start, device).unwrap_or(device.len()),
        ..Probe::default()
    }))
}

/// Reads the bytes at the start of `device` that identify the type of a volume, and that its programs need.
pub fn first_bytes(device: &dyn BlockDevice) -> Result<Vec<u8>> {
    let mut start = vec![0; to_usize(device.len().min(WINDOW))];
    device.read_at(0, &mut start)?;
    Ok(start)
}

fn array<const N: usize>(start: &[u8], at: u64) -> Option<[u8; N]> {
    start.get(to_usize(at)..)?.first_chunk().copied()
}

fn len(length: Length, start: &[u8], device: &dyn BlockDevice) -> Option<u64> {
    match length {
        Length::Device => None,
        Length::Bytes(at) => array(start, at).map(u64::from_le_bytes),
        Length::BigBlocks(blocks, size) => {
            let size = u64::from(u32::from_be_bytes(array(start, size)?));
            u64::from_be_bytes(array(start, blocks)?).checked_mul(size)
        }
        Length::By(of) => of(start),
        Length::On(of) => of(device),
    }
}

fn label(label: Label, start: &[u8], device: &dyn BlockDevice) -> Vec<u8> {
    let bytes =
        |at: u64, len: usize| start.get(to_usize(at)..).and_then(|rest| rest.get(..len)).unwrap_or_default();
    let text = match label {
        Label::None => Vec::new(),
        Label::On(of) => of(device).unwrap_or_default(),
        Label::Bytes(at, len) => bytes(at, len).to_vec(),
        Label::Utf16(at, len) => {
            let units = bytes(at, len).chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
            let units: Vec<_> = units.take_while(|unit| *unit != 0).collect();
            String::from_utf16_lossy(&units).into_bytes()
        }
        Label::Pascal(at, len) => {
            let reported = bytes(at, 1).first().map_or(0, |len| usize::from(*len));
            bytes(at + 1, reported.min(len)).to_vec()
        }
    };
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.get(..end).unwrap_or_default().trim_ascii_end().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TYPES;
    use obento_block::MemDevice;

    #[test]
    fn every_signature_is_within_the_bytes_that_are_read() {
        for kind in TYPES {
            for mark in kind.marks {
                assert!(mark.at + mark.bytes.len() as u64 <= WINDOW, "{}", kind.names[0]);
            }
        }
    }

    #[test]
    fn zeros_and_short_devices_are_of_no_type() {
        for len in [1, 512, 1 << 20] {
            let device = MemDevice::read_only(vec![0; len]);
            for kind in TYPES {
                assert_eq!(probe(kind, &device).unwrap(), None, "{} of {len} bytes", kind.names[0]);
            }
        }
    }

    /// Returns the types of a device of 128 KiB with these bytes, and zeros elsewhere.
    fn types_of(bytes: &[(usize, &[u8])]) -> Vec<&'static str> {
        let mut start = vec![0; 128 << 10];
        for (at, bytes) in bytes {
            start[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        let device = MemDevice::read_only(start);
        let found = TYPES.iter().filter(|kind| probe(kind, &device).unwrap().is_some());
        found.map(|kind| kind.names[0]).collect()
    }

    #[test]
    fn types_without_a_format_program_are_recognised_by_their_signatures() {
        assert_eq!(types_of(&[(0x1_0000, b"\x01\x16\x19\x70\0\0\0\x01")]), ["gfs2"]);
        assert_eq!(types_of(&[(272, b"\xc2\x99\x3d\x87")]), ["omfs"]);
        // The byte orders of UnixWare and HP-UX. The other combinations are invalid.
        assert_eq!(types_of(&[(1024, b"\xf5\xfc\x01\xa5")]), ["vxfs"]);
        assert_eq!(types_of(&[(8192, b"\xa5\x01\xfc\xf5")]), ["vxfs"]);
        assert_eq!(types_of(&[(1024, b"\xa5\x01\xfc\xf5")]), Vec::<&str>::new());
        assert_eq!(types_of(&[(0x2000 + 1372, b"\0\x09\x50\x14")]), ["ufs-hp"]);
    }

    #[test]
    fn types_in_either_order_of_bytes_are_known_by_their_marks() {
        for mark in [b"\x19\x01\x54\x19", b"\x19\x54\x01\x19"] {
            assert_eq!(types_of(&[(0x1_0000 + 1372, mark)]), ["ufs"]);
        }
        for mark in [b"\x22\x11\x19\x68", b"\x68\x19\x11\x22"] {
            assert_eq!(types_of(&[(0x2000, mark)]), ["qnx6"]);
            assert_eq!(types_of(&[(0, mark)]), ["qnx6"], "without a boot block");
        }
        for mark in [b"1SFB", b"BFS1"] {
            assert_eq!(types_of(&[(512 + 32, mark)]), ["befs"]);
            assert_eq!(types_of(&[(32, mark)]), ["befs"], "of PowerPC");
        }
    }

    #[test]
    fn a_ufs_volume_with_the_shared_magic_number_is_bsd_only_with_its_inode_format() {
        let (little, big) = (&b"\x54\x19\x01\0"[..], &b"\0\x01\x19\x54"[..]);
        assert_eq!(types_of(&[(0x2000 + 1372, little), (0x2000 + 1324, b"\x02\0\0\0")]), ["ufs1"]);
        assert_eq!(types_of(&[(0x2000 + 1372, big), (0x2000 + 1324, b"\0\0\0\x02")]), ["ufs1"]);
        assert_eq!(types_of(&[(0x2000 + 1372, big)]), Vec::<&str>::new(), "of Sun, of NeXT");
        assert_eq!(types_of(&[(0x2000 + 1372, little)]), Vec::<&str>::new());
    }

    #[test]
    fn an_xfs_volume_reports_label_uuid_and_length() {
        let xfs = TYPES.iter().find(|kind| kind.names == ["xfs"]).unwrap();
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(b"XFSB");
        bytes[4..8].copy_from_slice(&4096_u32.to_be_bytes());
        bytes[8..16].copy_from_slice(&1000_u64.to_be_bytes());
        bytes[32..48].fill(7);
        bytes[108..112].copy_from_slice(b"root");
        let found = probe(xfs, &MemDevice::read_only(bytes)).unwrap().unwrap();
        assert_eq!((found.fs_type, &found.label[..], found.len), ("xfs", &b"root"[..], 4_096_000));
        assert_eq!(found.uuid, Some([7; 16]));
    }
}
