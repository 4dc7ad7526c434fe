//! The boot regions: twelve sectors, the last of which is the checksum of the others, followed by their backup.
//!
//! Source: specification, 3.1 and 3.4, "Main and Backup Boot Checksum Sub-regions".

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Result, Structure};
use obento_block::BlockDevice;

use crate::super_block::{SuperBlock, raw_of};

/// Number of sectors of a region.
pub const SECTORS: u64 = 12;
/// Offsets of the bytes in the first sector that change while a volume is used. The checksum omits them.
pub const UNSUMMED: [usize; 3] = [106, 107, 112];

/// One of the two boot regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Region {
    /// The main region.
    Main,
    /// The backup region.
    Backup,
}

impl Region {
    /// Returns its first sector.
    pub fn start(self) -> u64 {
        match self {
            Self::Main => 0,
            Self::Backup => SECTORS,
        }
    }
}

/// Adds a byte to a checksum of a boot region or an up-case table.
pub fn add(sum: u32, byte: u8) -> u32 {
    sum.rotate_right(1).wrapping_add(byte.into())
}

/// Returns the checksum of the first eleven sectors of the region at the start of `bytes`.
pub fn checksum(bytes: &[u8], sector_size: usize) -> u32 {
    let summed = bytes.iter().take(sector_size.saturating_mul(11)).enumerate();
    summed.filter(|(at, _)| !UNSUMMED.contains(at)).fold(0, |sum, (_, &byte)| add(sum, byte))
}

/// A region in memory.
#[derive(Clone)]
pub struct BootRegion {
    /// All twelve sectors.
    pub bytes: Vec<u8>,
    /// The decoded first sector.
    pub sb: SuperBlock,
}

impl BootRegion {
    /// Reads a region. Fails with `Corrupt` if its first sector is not a boot sector, or has a sector size other than
    /// `sector_size`.
    pub fn read(device: &dyn BlockDevice, region: Region, sector_size: u32) -> Result<Self> {
        let size = u64::from(sector_size);
        let mut bytes = vec![0; to_usize(size.saturating_mul(SECTORS))];
        device.read_at(region.start().saturating_mul(size), &mut bytes)?;
        let damaged = |found: u8| Corrupt::Field {
            structure: Structure::BootSector,
            field: "BytesPerSectorShift",
            block: region.start(),
            offset: 108,
            found: found.into(),
        };
        let raw = raw_of(&bytes).ok_or_else(|| damaged(0))?;
        let sb = SuperBlock::decode(&raw)?;
        if sb.sector_size != sector_size {
            return Err(damaged(raw.BytesPerSectorShift).into());
        }
        Ok(Self { bytes, sb })
    }

    /// Fails with `Corrupt` if the checksum is wrong.
    pub fn verify(&self, region: Region) -> Result<()> {
        let size = to_usize(self.sb.sector_size.into());
        let expected = checksum(&self.bytes, size);
        let stored = self.bytes.get(size.saturating_mul(11)..).unwrap_or_default();
        let stored = stored.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
        match stored.into_iter().find(|&found| found != expected) {
            None => Ok(()),
            Some(found) => {
                let block = region.start().saturating_add(11);
                Err(Corrupt::Checksum { structure: Structure::BootSector, block, found, expected }.into())
            }
        }
    }

    /// Writes the bytes as `region`, with the right checksum, and waits until they are on stable storage.
    pub fn write(&mut self, device: &dyn BlockDevice, region: Region) -> Result<()> {
        let size = to_usize(self.sb.sector_size.into());
        let sum = checksum(&self.bytes, size).to_le_bytes();
        let sector = self.bytes.get_mut(size.saturating_mul(11)..).unwrap_or_default();
        sector.iter_mut().zip(sum.into_iter().cycle()).for_each(|(to, byte)| *to = byte);
        device.write_at(region.start().saturating_mul(self.sb.sector_size.into()), &self.bytes)?;
        device.flush()
    }

    /// Reads a region and verifies its checksum. Fails with `Corrupt`, or if the device fails.
    pub fn whole(device: &dyn BlockDevice, region: Region, sector_size: u32) -> Result<Self> {
        let this = Self::read(device, region, sector_size)?;
        this.verify(region)?;
        Ok(this)
    }
}

/// Returns the sector size from the first sector, if it is valid.
pub fn sector_size(device: &dyn BlockDevice) -> Option<u32> {
    let mut bytes = [0; 512];
    device.read_at(0, &mut bytes).ok()?;
    let shift = bytes.get(108).copied().filter(|shift| (9..=12).contains(shift))?;
    Some(1 << shift)
}

/// Returns the backup region, for any sector size, if it is intact and its volume fits the device.
pub fn backup(device: &dyn BlockDevice) -> Option<BootRegion> {
    let first = sector_size(device);
    let sizes =
        first.into_iter().chain([512, 4096, 1024, 2048].into_iter().filter(|&size| Some(size) != first));
    sizes
        .filter(|&size| u64::from(size).saturating_mul(SECTORS.saturating_mul(2)) <= device.len())
        .filter_map(|size| BootRegion::whole(device, Region::Backup, size).ok())
        .find(|region| region.sb.len <= device.len())
}
