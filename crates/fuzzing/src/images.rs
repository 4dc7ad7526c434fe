//! Whole images through the facade: layers, tables, whatever driver knows the bytes.

use std::path::Path;
use std::sync::Arc;

use obento::{Engine, Image, Options, Part, Registry};
use obento_base::wire::to_usize;
use obento_block::{BlockDevice, MemDevice};
use obento_env::NO_CLOCK;
use obento_host::compressed::{self, Compression, UnpackLimits, decompress};
use obento_host::qcow2::{Qcow2Device, References};
use obento_testkit::walk::open_and_walk;

/// An image is at least as long, but for very short ones: what is missing is zeros.
const LEAST: usize = 256 << 10;
/// What a packed one may unfold to.
const UNPACKED: u64 = 8 << 20;
const LIMITS: UnpackLimits = UnpackLimits { bytes: Some(UNPACKED), memory: 64 << 20 };

/// An image of any kind: each volume in it that a driver knows is checked and read, and the owners that it names.
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
    let numbers = image.partitions().iter().take(8).map(|partition| Some(Part::Number(partition.number)));
    for part in [None].into_iter().chain(numbers) {
        if let Ok((device, _)) = image.ground(part.as_ref()) {
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

/// The part of a qcow2 image that short inputs replace: from the incompatible features on, with the header extensions and the name of the
/// backing file. Its size, tables and clusters stay sound, or nearly no input would come that far. Source: qcow2.txt, "Header".
pub const QCOW2_HEADER: std::ops::Range<usize> = 72..72 + 512;

/// A qcow2 image, whose magic and version are put right: its header, its tables, and some of its clusters. A short input is laid over the
/// later part of the header of a sound one.
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
    let device = Arc::new(MemDevice::read_only(bytes));
    if let Ok(disk) = Qcow2Device::open(device, Path::new("image"), References::Refuse) {
        read_samples(&disk);
    }
}

/// Reads at both ends and at places between.
fn read_samples(device: &dyn BlockDevice) {
    let (len, mut buf) = (device.len(), vec![0; 4096]);
    for place in 0..=16 {
        let at = len / 16 * place;
        let part = to_usize(len.saturating_sub(at)).min(buf.len());
        let _ = device.read_at(at, &mut buf[..part]);
    }
}

/// A packed stream: the first byte chooses what it is taken for.
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

    /// Whether `qcow2` of these bytes, with a word of the first header extension changed, opens.
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
    fn every_seed_is_an_image_of_which_a_volume_opens() {
        let registry = Registry::default().with_engine(Engine::Native, None);
        for mut seed in seeds::images() {
            // The starts of volumes are all of their structures, but not all of their length.
            seed.resize(seed.len().max(LEAST), 0);
            let device = Arc::new(MemDevice::read_only(seed));
            let image = Image::on_device(Path::new("image"), device, &registry, &Options::default()).unwrap();
            assert!(image.volume(None).is_ok(), "{image:?}");
        }
    }
}
