//! Targets that open whole images through the facade: layers, partition tables and volumes of all formats.

use std::path::Path;
use std::sync::Arc;

use obento::address::PartSelector;
use obento::registry::Engine;
use obento::{Image, Options, Registry};
use obento_base::crc::crc32c;
use obento_base::wire::to_usize;
use obento_block::{BlockDevice, MemDevice};
use obento_env::NO_CLOCK;
use obento_host::compressed::{self, Compression, UnpackLimits, decompress};
use obento_host::container;
use obento_host::qcow2::change::{open_snapshot, snapshots};
use obento_host::qcow2::{Qcow2Device, References};
use obento_testkit::walk::open_and_walk;

/// The length to which a shorter image is extended with zeros.
const LEAST: usize = 256 << 10;
/// The greatest size of a decompressed image.
const UNPACKED: u64 = 8 << 20;
const LIMITS: UnpackLimits = UnpackLimits { bytes: Some(UNPACKED), memory: 64 << 20 };

/// Opens an image of any kind. Checks and reads each volume that a driver recognises, and reads the owners that the
/// volume names.
pub fn any_image(data: &[u8]) {
    let mut bytes = data.to_vec();
    if bytes.len() >= 1024 {
        bytes.resize(bytes.len().max(LEAST), 0);
    }
    let registry = Registry::default().with_engine(Engine::Native, None);
    let options =
        Options { cache: 256 << 10, unpack: LIMITS, clock: Arc::new(NO_CLOCK), ..Options::default() };
    let device = Arc::new(MemDevice::read_only(bytes));
    let Ok(image) = Image::on_device(Path::new("image"), device, &registry, &options) else { return };
    let _ = (image.probe_all(), image.notices().len());
    let numbers =
        image.partitions().iter().take(8).map(|partition| Some(PartSelector::Number(partition.number)));
    for part in [None].into_iter().chain(numbers) {
        if let Ok((device, _)) = image.part_to_overwrite(part.as_ref()) {
            let knows =
                |device: &dyn BlockDevice| registry.probe(device).ok().flatten().map(|found| found.0.clone());
            if let Some(driver) = knows(&*device).filter(|_| device.len() <= 2 * UNPACKED) {
                open_and_walk(&*driver, device);
            }
        }
        if let Ok(volume) = image.volume(part.as_ref()) {
            let _ = (volume.info(), volume.owners().user(0));
        }
    }
}

/// The part of a qcow2 image that short inputs replace. It begins with the incompatible features, and contains the
/// header extensions and the name of the backing file. The size, the tables and the clusters stay sound, because
/// otherwise few inputs would pass the first checks. Source: qcow2.txt, "Header".
pub const QCOW2_HEADER: std::ops::Range<usize> = 72..72 + 512;

/// Opens a qcow2 image with a correct magic number and version: its header, its tables, some clusters, and its
/// snapshots. A short input replaces the later part of the header of a sound image.
pub fn qcow2(data: &[u8]) {
    let mut bytes = data.to_vec();
    if data.len() <= QCOW2_HEADER.len() {
        bytes = crate::seeds::sound_qcow2();
        let header = bytes.get_mut(QCOW2_HEADER).unwrap_or_default();
        header.iter_mut().zip(data).for_each(|(to, &from)| *to = from);
    }
    if let Some(start) = bytes.first_chunk_mut::<8>() {
        let version = 2 + (start[7] & 1);
        *start = [b'Q', b'F', b'I', 0xfb, 0, 0, 0, version];
    }
    let (device, path): (Arc<dyn BlockDevice>, _) =
        (Arc::new(MemDevice::read_only(bytes)), Path::new("image"));
    if let Ok(disk) = Qcow2Device::open(device.clone(), path, References::Refuse) {
        read_samples(&disk);
    }
    for snapshot in snapshots(&*device, path).unwrap_or_default().iter().take(4) {
        if let Ok(Some(disk)) = open_snapshot(&device, path, References::Refuse, &snapshot.id) {
            read_samples(&*disk.device);
        }
    }
}

/// Reads at both ends and at offsets in between.
fn read_samples(device: &dyn BlockDevice) {
    let (len, mut buf) = (device.len(), vec![0; 4096]);
    for place in 0..=16 {
        let at = len / 16 * place;
        let part = to_usize(len.saturating_sub(at)).min(buf.len());
        let _ = device.read_at(at, &mut buf[..part]);
    }
}

/// A disk image of another hypervisor. The first byte chooses a sound image; each further 4 bytes are an offset and a value, which replace
/// a byte of its structures. The checksums are corrected afterwards.
pub fn containers(data: &[u8]) {
    let Some((&choice, changes)) = data.split_first() else { return };
    let images = crate::seeds::containers_whole();
    let mut bytes = images[usize::from(choice) % images.len()].clone();
    for change in changes.as_chunks::<4>().0.iter().take(256) {
        let offset = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let at = match change[2] {
            // Tables are in the first 64 KiB and at the end, those of VHDX at multiples of 64 KiB.
            255 => bytes.len().saturating_sub(offset % 2048 + 1),
            page => offset + (usize::from(page) << 16),
        };
        if let Some(byte) = bytes.get_mut(at) {
            *byte = change[3];
        }
    }
    correct_checksums(&mut bytes);
    let device = Arc::new(MemDevice::read_only(bytes));
    let Ok(Some(format)) = container::detect_on(&*device) else { return };
    if let Ok(disk) = container::open(format, device, Path::new("image")) {
        read_samples(&*disk);
    }
}

/// Corrects the checksums of the structures of VHD and VHDX.
fn correct_checksums(bytes: &mut [u8]) {
    let last = bytes.len().saturating_sub(512);
    for (at, magic, len, field) in
        [(0, "conectix", 512, 64), (last, "conectix", 512, 64), (512, "cxsparse", 1024, 36)]
    {
        let Some(part) = bytes.get_mut(at..at + len).filter(|part| part.starts_with(magic.as_bytes())) else {
            continue;
        };
        part[field..field + 4].fill(0);
        let sum: u32 = part.iter().map(|&byte| u32::from(byte)).sum();
        part[field..field + 4].copy_from_slice(&(!sum).to_be_bytes());
    }
    for (at, magic, len) in [
        (64 << 10, "head", 4096),
        (128 << 10, "head", 4096),
        (192 << 10, "regi", 64 << 10),
        (256 << 10, "regi", 64 << 10),
    ] {
        let Some(part) = bytes.get_mut(at..at + len).filter(|part| part.starts_with(magic.as_bytes())) else {
            continue;
        };
        part[4..8].fill(0);
        let sum = !crc32c(!0, part);
        part[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Decompresses a stream. The first byte chooses the method.
pub fn packed(data: &[u8]) {
    let Some((&choice, stream)) = data.split_first() else { return };
    let compression =
        [Compression::Gzip, Compression::Xz, Compression::Zstd, Compression::Bzip2, Compression::Lzma]
            [usize::from(choice % 5)];
    let device = MemDevice::read_only(stream.to_vec());
    let options = compressed::Options { limits: LIMITS, ..Default::default() };
    if let Ok(unpacked) = decompress(&device, Path::new("image"), compression, options) {
        assert!(unpacked.device.len() <= UNPACKED);
        read_samples(&unpacked.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    /// Returns whether `qcow2` opens these bytes, with a changed word in the first header extension.
    fn opens_with(length: Option<u32>) -> bool {
        let mut image = seeds::sound_qcow2();
        let at = usize::try_from(u32::from_be_bytes(image[100..104].try_into().unwrap())).unwrap();
        assert_ne!(image[at..at + 4], [0; 4], "the seed has a header extension");
        assert!(QCOW2_HEADER.contains(&(at + 8)));
        if let Some(length) = length {
            image[at + 4..at + 8].copy_from_slice(&length.to_be_bytes());
        }
        let device = Arc::new(MemDevice::read_only(image));
        Qcow2Device::open(device, Path::new("image"), References::Refuse).is_ok()
    }

    #[test]
    fn short_inputs_of_qcow2_reach_the_header_extensions() {
        assert!(opens_with(None));
        assert!(!opens_with(Some(u32::MAX)));
        let header = seeds::qcow2().into_iter().find(|seed| seed.len() == QCOW2_HEADER.len()).unwrap();
        qcow2(&header);
    }

    #[test]
    fn the_seed_with_a_snapshot_has_contents_of_its_own() {
        let (image, path) = (seeds::qcow2_with_snapshot(), Path::new("image"));
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(image));
        let found = snapshots(&*device, path).unwrap();
        assert_eq!((found.len(), &*found[0].name, found[0].disk_len), (1, "before", Some(1 << 20)));
        let disk = open_snapshot(&device, path, References::Refuse, "1").unwrap().unwrap().device;
        let mut bytes = [0; 12];
        disk.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"the contents");
    }

    #[test]
    fn every_seed_is_an_image_with_a_volume_that_opens() {
        let registry = Registry::default().with_engine(Engine::Native, None);
        for mut seed in seeds::images() {
            // The seeds contain all structures of the volumes, but not their full length.
            seed.resize(seed.len().max(LEAST), 0);
            let device = Arc::new(MemDevice::read_only(seed));
            let image = Image::on_device(Path::new("image"), device, &registry, &Options::default()).unwrap();
            assert!(image.volume(None).is_ok(), "{image:?}");
        }
    }
}
