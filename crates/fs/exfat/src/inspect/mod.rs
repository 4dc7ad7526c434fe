//! Showing the on-disk structures, field by field.
//!
//! An inode is shown as its entry set and the runs of its clusters. A block is a cluster, by its number on the
//! volume.

mod entries;
mod locate;

use alloc::string::ToString as _;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice as _;
use obento_clusters::inspect::{cluster_bytes, root_record, runs};
use obento_clusters::{Cluster, Links as _, ROOT, Volume as _};
use obento_driver::record::Builder;
use obento_driver::{ByteUse, FieldValue, Inspect, Record, Target, fields};

use crate::boot::{Region, SECTORS, checksum};
use crate::dir::Scan;
use crate::raw::{RawBoot, kind};
use crate::super_block::raw_of;
use crate::volume::Volume;

type Sink<'s> = &'s mut dyn FnMut(Result<Record>);

impl Inspect for Volume {
    fn inspect(&self, target: Target, sink: &mut dyn FnMut(Result<Record>)) -> Result<()> {
        match target {
            Target::SuperBlock(0) => self.inspect_region(Region::Main, sink),
            Target::SuperBlock(1) => self.inspect_region(Region::Backup, sink),
            Target::SuperBlock(_) => Err(Error::NotFound),
            Target::Inode(ino) => self.inspect_inode(ino, sink),
            Target::Directory(ino) => self.inspect_directory(ino, sink),
            Target::Block(number) => self.inspect_cluster(number, sink),
            Target::Group(_) | Target::Journal => Err(Error::NotSupported),
        }
    }

    fn locate(&self, offset: u64) -> Result<ByteUse> {
        locate::locate(self, offset)
    }
}

impl Volume {
    /// Emits the boot sector and the checksum of its region.
    fn inspect_region(&self, region: Region, sink: Sink<'_>) -> Result<()> {
        let size = u64::from(self.super_block().sector_size);
        let start = region.start().saturating_mul(size);
        let mut bytes = alloc::vec![0; to_usize(size.saturating_mul(SECTORS))];
        self.cache().device().read_at(start, &mut bytes)?;
        let raw = raw_of(&bytes).ok_or(Error::Invalid)?;
        let mut record = Builder::new("boot sector", 0, start);
        fields!(
            record,
            raw,
            RawBoot {
                JumpBoot: Bytes,
                FileSystemName: Bytes,
                PartitionOffset: Number,
                VolumeLength: Number,
                FatOffset: Number,
                FatLength: Number,
                ClusterHeapOffset: Number,
                ClusterCount: Number,
                FirstClusterOfRootDirectory: Number,
                VolumeSerialNumber: Hex,
                FileSystemRevision: Hex,
                VolumeFlags: Hex,
                BytesPerSectorShift: Number,
                SectorsPerClusterShift: Number,
                NumberOfFats: Number,
                DriveSelect: Hex,
                PercentInUse: Number,
                BootSignature: Bytes,
            }
        );
        sink(Ok(record.finish()));
        let sector = to_usize(size);
        let last = bytes.chunks_exact(sector).next_back().and_then(|last| last.first_chunk());
        let found = last.map_or(0, |&word| u32::from_le_bytes(word));
        let at = start.saturating_add(size.saturating_mul(SECTORS.saturating_sub(1)));
        let mut record = Builder::new("boot checksum", 1, at);
        record.hex("Checksum", 0, 4, found.into());
        let verdict = if found == checksum(&bytes, sector) { "correct" } else { "wrong" };
        sink(Ok(record.text("state", 0, 4, verdict).finish()));
        Ok(())
    }

    /// Emits the entries of a set, and the runs of its clusters.
    fn inspect_inode(&self, ino: Ino, sink: Sink<'_>) -> Result<()> {
        let inode =
            self.inode(ino).map_err(|error| if error == Error::Stale { Error::NotFound } else { error })?;
        if ino != ROOT && inode.is_named {
            let (_, dir, first) = self.slot_of(ino).ok_or(Error::NotFound)?;
            let dir = self.directory(dir)?;
            let end = first.saturating_add(inode.entry.count());
            for (index, depth) in (first..end).zip(core::iter::once(0).chain(core::iter::repeat(1))) {
                let Some(slot) = dir.slot(index) else { break };
                sink(self.entry(slot).map(|raw| entries::record(&raw, depth, slot.offset())));
            }
        }
        let sb = self.super_block();
        if ino == ROOT {
            let start = sb.offset_of(sb.root).ok_or(Error::Invalid)?;
            sink(Ok(root_record(start, sb.cluster_size, inode.entry.size())));
        }
        let (mut chain, count) = (self.chain_of(ino, &inode.entry)?, sb.clusters_for(inode.entry.size()));
        runs(&mut chain, &mut self.table(), ino, count, |cluster| sb.offset_of(cluster), sink)
    }

    /// Emits all entries of a directory, up to the end marker.
    fn inspect_directory(&self, ino: Ino, sink: Sink<'_>) -> Result<()> {
        let dir = self.directory(ino).map_err(|error| match error {
            Error::Stale => Error::NotFound,
            Error::NotDirectory => Error::Invalid,
            other => other,
        })?;
        let mut scan = Scan::new(&dir, self.super_block(), self.cache(), 0);
        while let Some(found) = scan.next_entry() {
            let found = found.and_then(|(index, raw)| Ok((dir.slot(index).ok_or(Error::Invalid)?, raw)));
            let is_end = matches!(found, Ok((_, raw)) if raw.EntryType == kind::END);
            sink(found.map(|(slot, raw)| {
                let depth = u8::from(raw.EntryType & kind::SECONDARY != 0);
                entries::record(&raw, depth, slot.offset())
            }));
            if is_end {
                break;
            }
        }
        dir.damage.into_iter().for_each(|error| sink(Err(error)));
        Ok(())
    }

    /// Emits a cluster: its bit in the bitmap, its FAT entry, and its bytes.
    fn inspect_cluster(&self, number: u64, sink: Sink<'_>) -> Result<()> {
        let sb = self.super_block();
        let cluster = u32::try_from(number).ok().map(Cluster).filter(|&cluster| sb.has(cluster));
        let cluster = cluster.ok_or(Error::NotFound)?;
        let start = sb.offset_of(cluster).ok_or(Error::NotFound)?;
        let bytes = cluster_bytes(self.cache(), start, sb.cluster_size)?;
        let used = if locate::is_used(self, cluster)? { "in use" } else { "free" };
        let entry = self.table().entry(cluster)?.to_string();
        let len = bytes.len();
        let mut record = Builder::new("cluster", 0, start);
        record.text("by the bitmap", 0, len, used).text("FAT entry", 0, len, entry);
        sink(Ok(record.add("bytes", 0, len, FieldValue::Bytes(bytes)).finish()));
        Ok(())
    }
}
