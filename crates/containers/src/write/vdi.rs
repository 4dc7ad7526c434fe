//! Dynamic VDI images. The header and the map of blocks are written last.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, le, to_usize};

use super::{Content, Identity, Patch, TooLarge, Writer, at_most, units};
use crate::vdi::{FREE, NORMAL, RawVdiHeader, SIGNATURE, VERSION_1_1};

/// The size of a block and the alignment of the data area.
const UNIT: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// The largest disk that qemu opens: 1 PiB less a few blocks. Ours has 16 TiB, whose map has 64 MiB.
const MAX: u64 = 16 << 40;
const TEXT: &[u8] = b"<<< Oracle VM VirtualBox Disk Image >>>\n";

pub(super) struct Vdi {
    len: u64,
    identity: Identity,
    map: Vec<u32>,
    placed: usize,
    allocated: u32,
}

impl Vdi {
    pub fn new(len: u64, identity: Identity) -> Result<Self, TooLarge> {
        let len = at_most(len, MAX)?.next_multiple_of(SECTOR);
        Ok(Self { len, identity, map: vec![FREE; to_usize(units(len, UNIT))], placed: 0, allocated: 0 })
    }

    /// Returns the start of the data area.
    fn data(&self) -> u64 {
        let map = obento_base::wire::to_u64(self.map.len()).saturating_mul(4);
        map.saturating_add(SECTOR).next_multiple_of(UNIT)
    }

    fn header(&self) -> Vec<u8> {
        let narrow = |value: u64| le::U32::new(u32::try_from(value).unwrap_or(u32::MAX));
        let mut text = [0; 64];
        text.iter_mut().zip(TEXT).for_each(|(to, &from)| *to = from);
        let mut modified = self.identity.id;
        modified.reverse();
        let header = RawVdiHeader {
            text,
            signature: SIGNATURE.into(),
            version: VERSION_1_1.into(),
            // The length from this field on.
            header_size: 0x180.into(),
            image_type: NORMAL.into(),
            flags: 0.into(),
            comment: [0; 256],
            blocks_offset: narrow(SECTOR),
            data_offset: narrow(self.data()),
            geometry: [0.into(); 3],
            sector_size: narrow(SECTOR),
            reserved: 0.into(),
            disk_size: self.len.into(),
            block_size: narrow(UNIT),
            block_extra: 0.into(),
            blocks: narrow(obento_base::wire::to_u64(self.map.len())),
            blocks_allocated: self.allocated.into(),
            uuid_create: self.identity.id,
            uuid_modify: modified,
            uuid_link: [0; 16],
            uuid_parent: [0; 16],
        };
        header.as_bytes().to_vec()
    }
}

impl Writer for Vdi {
    fn unit(&self) -> u64 {
        UNIT
    }

    fn place(&mut self, content: Content, count: u64, _patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let at = self.data().saturating_add(u64::from(self.allocated).saturating_mul(UNIT));
        if content == Content::Data {
            if let Some(entry) = self.map.get_mut(self.placed) {
                *entry = self.allocated;
            }
            self.allocated = self.allocated.saturating_add(1);
        }
        self.placed = self.placed.saturating_add(to_usize(count));
        Ok(at)
    }

    fn finish(&mut self, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        patches.push(Patch { at: 0, bytes: self.header() });
        let bytes = self.map.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        patches.push(Patch { at: SECTOR, bytes });
        Ok(self.data().saturating_add(u64::from(self.allocated).saturating_mul(UNIT)))
    }
}
