//! The boot sectors and the FSInfo sector of a volume whose size changes.

use obento_base::Error;
use obento_base::wire::{FromBytes as _, IntoBytes as _};
use obento_block::BlockDevice;
use obento_driver::ResizeResult;

use crate::raw::{RawBoot, RawBpb16, RawBpb32, RawFsInfo};
use crate::super_block::SuperBlock;
use crate::super_block::{Root, Width};

/// The primary boot sector.
pub struct BootSector(RawBoot);

impl BootSector {
    /// Reads the boot sector. Fails if the device fails.
    pub fn read(device: &dyn BlockDevice) -> ResizeResult<Self> {
        let mut bytes = [0; size_of::<RawBoot>()];
        device.read_at(0, &mut bytes)?;
        Ok(Self(RawBoot::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?))
    }

    /// Returns `BPB_SecPerTrk`.
    pub fn sectors_per_track(&self) -> u16 {
        self.0.BPB_SecPerTrk.get()
    }

    /// Changes the first cluster of the root directory of a FAT32 volume in the primary boot sector.
    pub fn write_root(&mut self, device: &dyn BlockDevice, root: Root) -> ResizeResult<()> {
        if let Root::Chain(root) = root
            && let Ok((bpb, _)) = RawBpb32::mut_from_prefix(&mut self.0.rest)
        {
            bpb.BPB_RootClus = root.0.into();
            device.write_at(0, self.0.as_bytes())?;
        }
        Ok(())
    }

    /// Writes the geometry and the state of `sb` to the backup boot sector and then to the primary one, each of which is
    /// one sector.
    pub fn write_resized(mut self, device: &dyn BlockDevice, sb: &SuperBlock) -> ResizeResult<()> {
        let sectors = sb.len.checked_div(sb.sector_size.into()).unwrap_or(0);
        let sectors = u32::try_from(sectors).map_err(|_| Error::Invalid)?;
        match u16::try_from(sectors) {
            Ok(few) if self.0.BPB_TotSec16.get() != 0 => self.0.BPB_TotSec16 = few.into(),
            _ => {
                self.0.BPB_TotSec16 = 0.into();
                self.0.BPB_TotSec32 = sectors.into();
            }
        }
        self.set_places(sb)?;
        if let Some(sector) = sb.backup.filter(|_| sb.width == Width::Fat32) {
            let at = u64::from(sector).saturating_mul(sb.sector_size.into());
            device.write_at(at, self.0.as_bytes())?;
            device.flush()?;
        }
        device.write_at(0, self.0.as_bytes())?;
        Ok(device.flush()?)
    }
}

impl BootSector {
    /// Changes the places of the FATs and of the root directory, and the state.
    fn set_places(&mut self, sb: &SuperBlock) -> ResizeResult<()> {
        let sectors = |bytes: u64| bytes.checked_div(sb.sector_size.into()).unwrap_or(0);
        let reserved = u16::try_from(sectors(sb.fat_start)).map_err(|_| Error::Invalid)?;
        self.0.BPB_RsvdSecCnt = reserved.into();
        let fat = sectors(sb.fat_len);
        if let Root::Chain(root) = sb.root {
            let (bpb, _) = RawBpb32::mut_from_prefix(&mut self.0.rest).map_err(|_| Error::Invalid)?;
            bpb.BPB_RootClus = root.0.into();
            bpb.BPB_FATSz32 = u32::try_from(fat).map_err(|_| Error::Invalid)?.into();
            bpb.tail.BS_Reserved1 = sb.state;
        } else {
            let (bpb, _) = RawBpb16::mut_from_prefix(&mut self.0.rest).map_err(|_| Error::Invalid)?;
            bpb.BS_Reserved1 = sb.state;
            self.0.BPB_FATSz16 = u16::try_from(fat).map_err(|_| Error::Invalid)?.into();
        }
        Ok(())
    }
}

/// Writes the number of free clusters to the FSInfo sector, and that the place of the next one is unknown.
pub fn write_free_count(device: &dyn BlockDevice, sb: &SuperBlock, free: u32) -> ResizeResult<()> {
    let Some(at) = sb.fs_info else { return Ok(()) };
    let mut bytes = [0; size_of::<RawFsInfo>()];
    device.read_at(at, &mut bytes)?;
    let Ok(raw) = RawFsInfo::mut_from_bytes(&mut bytes) else { return Ok(()) };
    if raw.is_valid() {
        raw.FSI_Free_Count = free.into();
        raw.FSI_Nxt_Free = RawFsInfo::UNKNOWN.into();
        device.write_at(at, &bytes)?;
    }
    Ok(())
}
