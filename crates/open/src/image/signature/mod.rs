//! Describes data that no driver recognises. A message can then contain the name of its format.

mod table;

use std::fmt;

use obento_base::Result;
use obento_base::wire::to_usize;
use obento_block::BlockDevice;

use crate::partition::PartitionType;
use table::{CLAIMING, FILES, Signature, SignaturePosition};

/// The description of unrecognised data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataDescription {
    /// The name of the format.
    pub name: &'static str,
    /// A description that completes the phrase "looks like".
    pub like: &'static str,
    /// The relation of the data to the bytes of a disk.
    pub form: DataForm,
    /// Advice, as a sentence without its full stop. Empty if no advice is known.
    pub advice: &'static str,
}

/// The relation of unrecognised data to the bytes of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataForm {
    /// Compressed data or an archive, which may contain the image of a disk.
    Packed,
    /// A disk image in a format that obento does not decode.
    DiskImage,
    /// A type that claims a device, and that obento does not open.
    Unsupported,
    /// An encrypted or protected volume, which another program opens as a device of its own.
    Mapped,
    /// Other data.
    Other,
}

/// The number of bytes from the start that are read at once.
const WINDOW: u64 = 68 << 10;

const ZEROS: DataDescription = DataDescription {
    name: "",
    like: "zeros",
    form: DataForm::Other,
    advice: "create a file system with 'obento mkfs IMAGE'",
};
const TEXT: DataDescription =
    DataDescription { name: "text", like: "text", form: DataForm::Other, advice: "name a disk image" };
const BOOT: DataDescription = DataDescription {
    name: "",
    like: "a boot sector without a known file system",
    form: DataForm::Other,
    advice: "if a file system starts at another byte, use IMAGE@+OFFSET",
};
const NOTHING: DataDescription = DataDescription {
    name: "",
    like: "unrecognised format",
    form: DataForm::Other,
    advice: "if the file system starts at another byte, use IMAGE@+OFFSET; if the super block of an ext volume is \
             lost, use a copy: --superblock 32768",
};

/// The bytes of a device.
pub struct Bytes<'d> {
    device: &'d dyn BlockDevice,
    start: Vec<u8>,
}

impl<'d> Bytes<'d> {
    fn of(device: &'d dyn BlockDevice) -> Result<Self> {
        let mut start = vec![0; to_usize(device.len().min(WINDOW))];
        device.read_at(0, &mut start)?;
        Ok(Self { device, start })
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    /// Returns whether `bytes` are at offset `at`. If the device fails after the first bytes, returns false.
    fn has(&self, at: u64, bytes: &[u8]) -> bool {
        if let Some(rest) = self.start.get(to_usize(at)..).filter(|rest| rest.len() >= bytes.len()) {
            return rest.starts_with(bytes);
        }
        let mut found = vec![0; bytes.len()];
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= self.len());
        end.is_some() && self.device.read_at(at, &mut found).is_ok() && found == bytes
    }

    /// Returns the little-endian number of `len` bytes at offset `at`, near the start.
    fn number(&self, at: usize, len: usize) -> Option<u64> {
        let bytes = self.start.get(at..)?.get(..len)?;
        Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    /// Returns the first eight bytes of each of `count` pieces of `step` bytes from `at`. Returns nothing if
    /// the device ends before the last piece.
    fn every(&self, at: u64, step: usize, count: usize) -> Vec<[u8; 8]> {
        let mut found = vec![0; step.saturating_mul(count)];
        let end = at.checked_add(found.len() as u64).filter(|end| *end <= self.len());
        if end.is_none() || self.device.read_at(at, &mut found).is_err() {
            return Vec::new();
        }
        found.chunks_exact(step).filter_map(|piece| piece.first_chunk().copied()).collect()
    }

    fn matches(&self, signature: &Signature) -> bool {
        let is_there = |(at, bytes): &(SignaturePosition, &[u8])| {
            let at = match *at {
                SignaturePosition::Start(at) => Some(at),
                SignaturePosition::End(before) => self.len().checked_sub(before),
                SignaturePosition::Of(place) => place(self.len()),
            };
            at.is_some_and(|at| self.has(at, bytes))
        };
        let places = signature.places;
        (places.is_empty() || places.iter().any(is_there)) && (signature.also)(self)
    }
}

/// Returns the types whose signatures are on `device`: their names in libblkid, and their descriptions.
/// Fails with the errors of the device.
pub(super) fn found(device: &dyn BlockDevice) -> Result<Vec<(&'static str, DataDescription)>> {
    let bytes = Bytes::of(device)?;
    let found = CLAIMING.iter().filter(|signature| bytes.matches(signature));
    Ok(found.map(|signature| (signature.name, signature.looks)).collect())
}

/// Returns the names of all types that claim a device.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CLAIMING.iter().map(|signature| signature.name)
}

impl DataDescription {
    /// Describes the data on `device`, which no driver recognises. Fails with the errors of the device.
    pub fn of(device: &dyn BlockDevice) -> Result<Self> {
        let bytes = Bytes::of(device)?;
        let mut signatures = CLAIMING.iter().chain(FILES);
        if let Some(signature) = signatures.find(|signature| bytes.matches(signature)) {
            return Ok(signature.looks);
        }
        let is_text = |&byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
        let start = &bytes.start;
        Ok(match () {
            () if start.iter().all(|&byte| byte == 0) => ZEROS,
            () if start.iter().take(512).all(is_text) => TEXT,
            () if bytes.has(510, b"\x55\xaa") => BOOT,
            () => NOTHING,
        })
    }

    /// Returns the compression of a stream that starts with `start`, if obento reads it only after
    /// decompression.
    pub fn packed(start: &[u8]) -> Option<&'static str> {
        let begins = |place: &(SignaturePosition, &[u8])| {
            matches!(place.0, SignaturePosition::Start(0)) && start.starts_with(place.1)
        };
        let mut packings = FILES.iter().filter(|file| file.looks.form == DataForm::Packed);
        packings.find(|packing| packing.places.iter().any(begins)).map(|packing| packing.looks.like)
    }

    /// Returns whether the bytes are a compressed file, or a disk image in a format that obento does not decode. In
    /// these cases, the bytes are not those of a disk.
    pub fn is_undecoded(&self) -> bool {
        matches!(self.form, DataForm::Packed | DataForm::DiskImage)
    }

    /// Returns whether the bytes may belong to a file system whose first blocks are lost.
    pub fn may_be_anything(&self) -> bool {
        [ZEROS, BOOT, NOTHING].contains(self)
    }

    /// Returns whether a partition of this type with this data may contain files that obento cannot read.
    pub fn may_contain_files(&self, kind: PartitionType) -> bool {
        match self.form {
            DataForm::Unsupported | DataForm::Mapped => true,
            _ => [BOOT, NOTHING].contains(self) && !kind.has_no_files(),
        }
    }

    /// Returns whether no signature matches.
    pub fn is_unrecognised(&self) -> bool {
        *self == NOTHING
    }

    /// Returns whether this type claims a device, and obento does not open it.
    pub fn is_unsupported(&self) -> bool {
        self.form == DataForm::Unsupported
    }
}

/// Prints `a LUKS encrypted volume; open it as root: ...`.
impl fmt::Display for DataDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.like)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::claim::{Verdict, judge};
    use obento_block::MemDevice;
    use obento_driver::{Contents, FormatOptions};
    use obento_env::{SystemClock, SystemRandom};
    use std::sync::Arc;

    /// Returns a device of 8 MiB with these bytes at an offset.
    fn device_with(at: usize, bytes: &[u8]) -> MemDevice {
        let mut all = vec![0; 8 << 20];
        all[at..at + bytes.len()].copy_from_slice(bytes);
        MemDevice::read_only(all)
    }

    #[test]
    fn every_signature_is_found_at_each_of_its_places() {
        let len = 8_u64 << 20;
        for signature in CLAIMING.iter().chain(FILES) {
            for (at, bytes) in signature.places {
                let at = match *at {
                    SignaturePosition::Start(at) => at,
                    SignaturePosition::End(before) => len - before,
                    SignaturePosition::Of(place) => place(len).unwrap(),
                };
                let device = device_with(usize::try_from(at).unwrap(), bytes);
                let bytes = Bytes::of(&device).unwrap();
                let found = signature.places.iter().any(|(_, magic)| bytes.has(at, magic));
                assert!(found, "{} at {at}", signature.name);
            }
        }
    }

    #[test]
    fn a_new_volume_is_not_ambiguous_whatever_signature_was_on_the_device() {
        let (registry, len) = (crate::Registry::default(), 8_u64 << 20);
        let formats = registry.drivers().iter().filter_map(|driver| driver.format());
        let formats: Vec<_> =
            formats.flat_map(|format| format.types().iter().map(move |name| (format, *name))).collect();
        assert!(formats.len() > 4);
        let mut wrong = Vec::new();
        for (signature, (at, bytes)) in CLAIMING
            .iter()
            .chain(FILES)
            .flat_map(|signature| signature.places.iter().map(move |place| (signature, place)))
        {
            let at = match *at {
                SignaturePosition::Start(at) => at,
                SignaturePosition::End(before) => len - before,
                SignaturePosition::Of(place) => place(len).unwrap(),
            };
            for &(format, name) in &formats {
                let device = MemDevice::new(vec![0; to_usize(len)]);
                device.write_at(at, bytes).unwrap();
                let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
                let mut options = FormatOptions::new(name, clock, random);
                options.contents = Contents::Preserved;
                format.format(&device, &options).unwrap();
                match judge(&registry, &device).unwrap() {
                    Verdict::Volume(driver, _)
                        if driver.names().iter().any(|own| format.types().contains(own)) => {}
                    _ => wrong.push((signature.name, at, name)),
                }
                // Some signatures count only with further fields, which this volume lacks.
                let mut left = vec![0; bytes.len()];
                device.read_at(at, &mut left).unwrap();
                if left == *bytes && ![name, "FAT12"].contains(&signature.name) {
                    wrong.push((signature.name, at, name));
                }
                let found = DataDescription::of(&device).unwrap().name;
                // A small FAT volume has this signature itself.
                if found == signature.name && found != "FAT12" {
                    wrong.push((signature.name, at, name));
                }
            }
        }
        assert_eq!(wrong, []);
    }

    #[test]
    fn a_weak_signature_counts_only_if_the_checks_behind_it_hold() {
        let names =
            |device: &MemDevice| found(device).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&device_with(4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0")), ["linux_raid_member"]);
        assert_eq!(names(&device_with(4096, b"\xfc\x4e\x2b\xa9\x07\0\0\0")), Vec::<&str>::new());
        let mut pool = vec![0; 8 << 20];
        pool[16 << 10] = 1;
        for number in 0..4 {
            let at = (128 << 10) + number * 1024;
            pool[at..at + 8].copy_from_slice(b"\x0c\xb1\xba\0\0\0\0\0");
        }
        assert_eq!(names(&MemDevice::read_only(pool.clone())), ["zfs_member"]);
        pool[128 << 10] = 0;
        assert_eq!(names(&MemDevice::read_only(pool)), Vec::<&str>::new(), "three uberblocks are left");
    }

    #[test]
    fn bytes_without_a_signature_are_zeros_text_or_a_boot_sector() {
        let like = |bytes: &[u8]| DataDescription::of(&MemDevice::read_only(bytes.to_vec())).unwrap().like;
        assert!(like(&[0; 100]).contains("zeros"));
        assert_eq!(like(b"hello\n"), "text");
        assert!(like(&[1, 0, 2]).contains("unrecognised format"));
        let mut boot = [0; 512];
        boot[510..].copy_from_slice(b"\x55\xaa");
        assert!(like(&boot).contains("boot sector"));
    }

    #[test]
    fn bcache_is_not_taken_for_bcachefs() {
        let magic = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
        assert_eq!(DataDescription::of(&device_with(4096 + 24, magic)).unwrap().like, "a bcache device");
    }
}
