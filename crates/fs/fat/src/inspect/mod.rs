//! Showing the on-disk structures, field by field.
//!
//! An inode is shown as its entry with the parts of its long name, and the runs of its clusters. A block is a
//! cluster, by its number on the volume.

mod entries;
mod locate;

use alloc::string::ToString as _;

use obento_base::wire::{FromBytes as _, to_usize};
use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice as _;
use obento_clusters::inspect::{cluster_bytes, root_record, runs};
use obento_clusters::{Cluster, Links as _, ROOT, Volume as _};
use obento_driver::record::Builder;
use obento_driver::{ByteUse, FieldValue, Inspect, Record, Target, fields};

use crate::dir::{Directory, Scan};
use crate::inode::Kind;
use crate::raw::{RawBoot, RawBpb16, RawBpb32, RawFsInfo};
use crate::super_block::{Root, Width, raw_of};
use crate::unit::Slot;
use crate::volume::Volume;

type Sink<'s> = &'s mut dyn FnMut(Result<Record>);

/// Number of bytes of a boot sector and of FSInfo that are used.
const SECTOR: usize = 512;
/// Offset in a boot sector of the part that depends on the FAT type, and of the common tail of FAT12 and FAT16.
const REST: u64 = 0x24;
const TAIL_32: u64 = 0x40;

impl Inspect for Volume {
    fn inspect(&self, target: Target, sink: &mut dyn FnMut(Result<Record>)) -> Result<()> {
        match target {
            Target::SuperBlock(0) => self.inspect_boot(0, sink),
            Target::SuperBlock(1) => {
                self.inspect_boot(self.super_block().backup.ok_or(Error::NotFound)?, sink)
            }
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
    fn sector_at(&self, offset: u64) -> Result<[u8; SECTOR]> {
        let mut bytes = [0; SECTOR];
        self.cache().device().read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Emits boot sector `number`, and for the first one also FSInfo.
    fn inspect_boot(&self, number: u16, sink: Sink<'_>) -> Result<()> {
        let sb = self.super_block();
        let start = u64::from(number).saturating_mul(sb.sector_size.into());
        let bytes = self.sector_at(start)?;
        let raw = raw_of(&bytes).ok_or(Error::Invalid)?;
        let mut record = Builder::new("boot sector", 0, start);
        fields!(
            record,
            raw,
            RawBoot {
                BS_jmpBoot: Bytes,
                BS_OEMName: Bytes,
                BPB_BytsPerSec: Number,
                BPB_SecPerClus: Number,
                BPB_RsvdSecCnt: Number,
                BPB_NumFATs: Number,
                BPB_RootEntCnt: Number,
                BPB_TotSec16: Number,
                BPB_Media: Hex,
                BPB_FATSz16: Number,
                BPB_SecPerTrk: Number,
                BPB_NumHeads: Number,
                BPB_HiddSec: Number,
                BPB_TotSec32: Number,
                signature: Bytes,
            }
        );
        sink(Ok(record.finish()));
        let rest = start.saturating_add(REST);
        if sb.width != Width::Fat32 {
            let (tail, _) = RawBpb16::read_from_prefix(&raw.rest).map_err(|_| Error::Invalid)?;
            sink(Ok(tail_record(&tail, rest)));
            return Ok(());
        }
        let (bpb, _) = RawBpb32::read_from_prefix(&raw.rest).map_err(|_| Error::Invalid)?;
        let mut record = Builder::new("FAT32 part", 1, rest);
        fields!(
            record,
            bpb,
            RawBpb32 {
                BPB_FATSz32: Number,
                BPB_ExtFlags: Hex,
                BPB_FSVer: Number,
                BPB_RootClus: Number,
                BPB_FSInfo: Number,
                BPB_BkBootSec: Number,
                BPB_Reserved: Bytes,
            }
        );
        sink(Ok(record.finish()));
        sink(Ok(tail_record(&bpb.tail, start.saturating_add(TAIL_32))));
        match sb.fs_info.filter(|_| number == 0) {
            Some(at) => self.inspect_fs_info(at, sink),
            None => Ok(()),
        }
    }

    fn inspect_fs_info(&self, start: u64, sink: Sink<'_>) -> Result<()> {
        let bytes = self.sector_at(start)?;
        let raw = RawFsInfo::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?;
        let mut record = Builder::new("FSInfo", 1, start);
        fields!(
            record,
            raw,
            RawFsInfo {
                FSI_LeadSig: Hex,
                FSI_StrucSig: Hex,
                FSI_Free_Count: Number,
                FSI_Nxt_Free: Number,
                FSI_TrailSig: Hex,
            }
        );
        sink(Ok(record.finish()));
        Ok(())
    }

    /// Emits the entries of a file, and the runs of its clusters.
    fn inspect_inode(&self, ino: Ino, sink: Sink<'_>) -> Result<()> {
        let stale = |error| if error == Error::Stale { Error::NotFound } else { error };
        let (inode, parent) = self.inode_and_parent(ino).map_err(stale)?;
        if ino == ROOT {
            return self.inspect_root(sink);
        }
        if inode.is_named {
            let (slot, _) = self.slot_of(ino).ok_or(Error::NotFound)?;
            self.inspect_entries(&*self.directory(parent)?, slot, sink)?;
        }
        let size = if inode.is_dir() { self.directory_len(ino) } else { inode.entry.size() };
        let sb = self.super_block();
        let count = u32::try_from(sb.clusters_for(size)).unwrap_or(u32::MAX);
        let chain = self.chain(&inode);
        let mut chain = chain.lock();
        runs(&mut chain, &mut self.table(), ino, count, |cluster| sb.offset_of(cluster), sink)
    }

    /// Emits the root directory, which has no entry.
    fn inspect_root(&self, sink: Sink<'_>) -> Result<()> {
        let sb = self.super_block();
        match sb.root {
            Root::Region { start, len } => {
                let mut record = Builder::new("root directory", 0, start);
                sink(Ok(record.number("bytes", 0, to_usize(len), len).finish()));
                Ok(())
            }
            Root::Chain(first) => {
                let len = self.directory_len(ROOT);
                let count = u32::try_from(sb.clusters_for(len)).unwrap_or(u32::MAX);
                let start = sb.offset_of(first).ok_or(Error::Invalid)?;
                sink(Ok(root_record(start, sb.cluster_size, len)));
                let mut chain = obento_clusters::Chain::new(Some(first));
                runs(&mut chain, &mut self.table(), ROOT, count, |cluster| sb.offset_of(cluster), sink)
            }
        }
    }

    /// Emits the entry in `slot` of `dir`, after the parts of its long name.
    fn inspect_entries(&self, dir: &Directory, slot: Slot, sink: Sink<'_>) -> Result<()> {
        let mut scan = Scan::new(dir, self.cache(), 0);
        while let Some(found) = scan.next() {
            let Ok(found) = found else { continue };
            if found.slot != slot {
                continue;
            }
            for index in found.start..=found.index {
                let Some(slot) = dir.slot(index) else { break };
                sink(self.entry(slot).map(|raw| entries::record(&raw, 0, slot.offset())));
            }
            return Ok(());
        }
        Ok(())
    }

    /// Emits all entries of a directory, up to the end marker.
    fn inspect_directory(&self, ino: Ino, sink: Sink<'_>) -> Result<()> {
        let dir = self.directory(ino).map_err(|error| match error {
            Error::Stale => Error::NotFound,
            Error::NotDirectory => Error::Invalid,
            other => other,
        })?;
        for slot in (0..dir.slots).map_while(|index| dir.slot(index)) {
            let raw = self.entry(slot);
            let is_end = matches!(&raw, Ok(raw) if raw.kind() == Kind::End);
            sink(raw.map(|raw| entries::record(&raw, 0, slot.offset())));
            if is_end {
                break;
            }
        }
        dir.damage.into_iter().for_each(|error| sink(Err(error)));
        Ok(())
    }

    /// Emits a cluster: its FAT entry, and its bytes.
    fn inspect_cluster(&self, number: u64, sink: Sink<'_>) -> Result<()> {
        let sb = self.super_block();
        let cluster = Cluster(u32::try_from(number).map_err(|_| Error::NotFound)?);
        let start = sb.offset_of(cluster).ok_or(Error::NotFound)?;
        let bytes = cluster_bytes(self.cache(), start, sb.cluster_size)?;
        let entry = self.table().entry(cluster)?.to_string();
        let len = bytes.len();
        let mut record = Builder::new("cluster", 0, start);
        record.text("FAT entry", 0, len, entry);
        sink(Ok(record.add("bytes", 0, len, FieldValue::Bytes(bytes)).finish()));
        Ok(())
    }
}

/// Returns the record of the tail that all boot sectors share.
fn tail_record(tail: &RawBpb16, start: u64) -> Record {
    let mut record = Builder::new("extended boot record", 1, start);
    fields!(
        record,
        tail,
        RawBpb16 {
            BS_DrvNum: Hex,
            BS_Reserved1: Hex,
            BS_BootSig: Hex,
            BS_VolID: Hex,
            BS_VolLab: Bytes,
            BS_FilSysType: Bytes,
        }
    );
    record.finish()
}
