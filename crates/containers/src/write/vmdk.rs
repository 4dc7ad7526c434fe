//! Stream-optimised VMDK images: compressed grains, each grain table after its grains, the grain directory and a
//! footer at the end.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, to_u64, to_usize};

use super::{Content, Identity, Packing, Patch, TooLarge, Writer, at_most, units};
use crate::vmdk::{
    AT_END, DEFLATE, FLAG_COMPRESSED, FLAG_MARKERS, MAGIC, MARKER_LEN, RawMarker, RawVmdkHeader, SECTOR_BYTES,
};

/// The size of a grain.
const UNIT: u64 = 64 << 10;
const TABLE_ENTRIES: u32 = 512;
/// The flag for valid line ends in the header.
const FLAG_NEW_LINES: u32 = 1;
/// The largest disk of a VMDK in one file.
const MAX: u64 = 2 << 40;
const DESCRIPTOR_SECTORS: u64 = 20;
/// The sectors before the first grain.
const OVERHEAD: u64 = 128;
/// Types of markers.
const GRAIN_TABLE: u32 = 1;
const GRAIN_DIRECTORY: u32 = 2;
const FOOTER: u32 = 3;

pub(super) struct Vmdk {
    sectors: u64,
    identity: Identity,
    /// The next free sector.
    next: u64,
    table: Vec<u32>,
    /// The entry of the next grain in the table.
    column: usize,
    directory: Vec<u32>,
}

impl Vmdk {
    pub fn new(len: u64, identity: Identity) -> Result<Self, TooLarge> {
        // A capacity of 0 marks a file of which only the descriptor is used.
        let sectors = units(at_most(len, MAX)?.max(1), SECTOR_BYTES);
        let table = vec![0; to_usize(TABLE_ENTRIES.into())];
        Ok(Self { sectors, identity, next: OVERHEAD, table, column: 0, directory: Vec::new() })
    }

    fn sector(&self) -> Result<u32, TooLarge> {
        u32::try_from(self.next).map_err(|_| TooLarge { max: MAX })
    }

    /// Appends a marker and the sectors that it describes. Returns the first of these sectors.
    fn append(&mut self, kind: u32, bytes: &[u8], patches: &mut Vec<Patch>) -> Result<u32, TooLarge> {
        let sectors = units(to_u64(bytes.len()), SECTOR_BYTES);
        let mut marker = [sectors.to_le_bytes().as_slice(), &[0; 4], &kind.to_le_bytes()].concat();
        marker.resize(to_usize(SECTOR_BYTES), 0);
        marker.extend_from_slice(bytes);
        patches.push(Patch { at: self.next.saturating_mul(SECTOR_BYTES), bytes: marker });
        self.next = self.next.saturating_add(1);
        let first = self.sector()?;
        self.next = self.next.saturating_add(sectors);
        Ok(first)
    }

    /// Completes the present grain table, if any grain was placed since the last table.
    fn close_table(&mut self, patches: &mut Vec<Patch>) -> Result<(), TooLarge> {
        let mut at = 0;
        if self.table.iter().any(|&entry| entry != 0) {
            let bytes: Vec<u8> = self.table.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            at = self.append(GRAIN_TABLE, &bytes, patches)?;
        }
        self.directory.push(at);
        self.table.fill(0);
        self.column = 0;
        Ok(())
    }

    fn header(&self, directory: u64) -> RawVmdkHeader {
        RawVmdkHeader {
            magic: *MAGIC,
            version: 3.into(),
            flags: (FLAG_NEW_LINES | FLAG_COMPRESSED | FLAG_MARKERS).into(),
            capacity: self.sectors.into(),
            grain_size: (UNIT >> 9).into(),
            descriptor_offset: 1.into(),
            descriptor_size: DESCRIPTOR_SECTORS.into(),
            table_entries: TABLE_ENTRIES.into(),
            redundant_directory: 0.into(),
            directory: directory.into(),
            overhead: OVERHEAD.into(),
            unclean: 0,
            line_ends: *b"\n \r\n",
            compression: DEFLATE.into(),
            reserved: [0; 433],
        }
    }

    fn descriptor(&self) -> String {
        let id = self.identity.id.first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes));
        // All ones mean that there is no parent.
        let id = id & 0x7fff_ffff;
        let cylinders = self.sectors.checked_div(255 * 63).unwrap_or(0).min(65_535);
        format!(
            "# Disk DescriptorFile\nversion=1\nCID={id:08x}\nparentCID=ffffffff\ncreateType=\"streamOptimized\"\n\n\
             # Extent description\nRW {sectors} SPARSE \"disk.vmdk\"\n\n\
             # The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\nddb.geometry.cylinders = \"{cylinders}\"\n\
             ddb.geometry.heads = \"255\"\nddb.geometry.sectors = \"63\"\nddb.adapterType = \"lsilogic\"\n",
            sectors = self.sectors,
        )
    }
}

impl Writer for Vmdk {
    fn unit(&self) -> u64 {
        UNIT
    }

    fn packing(&self) -> Packing {
        Packing::Zlib
    }

    fn place(&mut self, content: Content, count: u64, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        let mut location = 0;
        for _ in 0..count {
            if let Content::Packed(size) = content {
                let sector = self.sector()?;
                let grain = to_u64(self.directory.len())
                    .saturating_mul(TABLE_ENTRIES.into())
                    .saturating_add(to_u64(self.column));
                let marker = RawMarker { sector: grain.saturating_mul(UNIT >> 9).into(), size: size.into() };
                let at = self.next.saturating_mul(SECTOR_BYTES);
                patches.push(Patch { at, bytes: marker.as_bytes().to_vec() });
                location = at.saturating_add(MARKER_LEN);
                let len = MARKER_LEN.saturating_add(size.into());
                self.next = self.next.saturating_add(units(len, SECTOR_BYTES));
                if let Some(entry) = self.table.get_mut(self.column) {
                    *entry = sector;
                }
            }
            self.column = self.column.saturating_add(1);
            if self.column == self.table.len() {
                self.close_table(patches)?;
            }
        }
        Ok(location)
    }

    fn finish(&mut self, patches: &mut Vec<Patch>) -> Result<u64, TooLarge> {
        if self.column > 0 || self.directory.is_empty() {
            self.close_table(patches)?;
        }
        let mut directory: Vec<u8> = self.directory.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        directory.resize(directory.len().next_multiple_of(to_usize(SECTOR_BYTES)), 0);
        let directory = self.append(GRAIN_DIRECTORY, &directory, patches)?;
        let footer = self.header(directory.into());
        self.append(FOOTER, footer.as_bytes(), patches)?;
        // The marker of the end: a sector of zeros.
        self.next = self.next.saturating_add(1);
        patches.push(Patch { at: 0, bytes: self.header(AT_END).as_bytes().to_vec() });
        patches.push(Patch { at: SECTOR_BYTES, bytes: self.descriptor().into_bytes() });
        Ok(self.next.saturating_mul(SECTOR_BYTES))
    }
}
