//! The start of compressed data, which shows whether the data is a disk image.

use std::ops::Range;
use std::sync::Arc;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::{BlockDevice, check_range};
use obento_host::compressed::decode_start;

use super::Options;
use super::layer::Layer;

/// The number of bytes to unpack: more than the signatures of file systems and containers need, except those at the
/// end.
const START: usize = 512 << 10;
/// The length of the device: more than that of any disk, so that no partition ends after it.
const LEN: u64 = 1 << 50;

/// Bytes with zeros after them.
struct StartOfDisk(Vec<u8>);

/// Returns the first bytes of the data on `device`, followed by zeros, if the data is compressed and can be unpacked.
pub(super) fn start_of_packed(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
) -> Option<Arc<dyn BlockDevice>> {
    let Ok(Some(Layer::Compressed(compression))) = Layer::find(&**device) else { return None };
    let mut start = vec![0; START];
    let len = decode_start(&**device, compression, &options.unpack, &mut start);
    start.truncate(len);
    (len > 0).then(|| Arc::new(StartOfDisk(start)) as Arc<dyn BlockDevice>)
}

impl BlockDevice for StartOfDisk {
    fn len(&self) -> u64 {
        LEN
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(LEN, offset, to_u64(buf.len()))?;
        let start = self.0.get(to_usize(offset.min(to_u64(self.0.len())))..).unwrap_or_default();
        let len = start.len().min(buf.len());
        let (known, zeros) = buf.split_at_mut(len);
        known.copy_from_slice(start.get(..len).unwrap_or_default());
        zeros.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        Err(obento_base::DeviceError::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        if range.start < to_u64(self.0.len()) { 0 } else { range.end.saturating_sub(range.start) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use obento_block::MemDevice;
    use obento_driver::FormatOptions;
    use obento_env::{SystemClock, SystemRandom};

    use super::*;
    use crate::Registry;
    use crate::image::ImageFile;

    /// Returns whether the first bytes of a compressed file are those of a type that claims a device.
    fn is_claimed(bytes: &[u8]) -> bool {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut packed = GzEncoder::new(file.as_file(), Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap();
        let file = ImageFile::open(file.path(), &Options::default()).unwrap();
        file.with_start_of_packed().decode(&Registry::default()).unwrap().is_claimed()
    }

    #[test]
    fn the_start_of_compressed_data_shows_whether_it_is_a_volume() {
        let registry = Registry::default();
        for name in ["ext4", "vfat", "exfat"] {
            let format = registry.find(name).unwrap().format().unwrap();
            let device = MemDevice::new(vec![0; 8 << 20]);
            let options = FormatOptions::new(name, Arc::new(SystemClock), Arc::new(SystemRandom));
            format.format(&device, &options).unwrap();
            let mut bytes = vec![0; 8 << 20];
            device.read_at(0, &mut bytes).unwrap();
            assert!(is_claimed(&bytes), "{name}");
        }
        let mut luks = vec![0; 1 << 20];
        luks[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        assert!(is_claimed(&luks));
        assert!(!is_claimed(b"text\n"));
        assert!(!is_claimed(&[0; 100]));
    }
}
