//! The structures of a sound volume that refer to clusters.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Error;
use obento_base::wire::{FromBytes as _, to_u64, to_usize};
use obento_block::BlockDevice;
use obento_clusters::undelete::append;
use obento_clusters::unit::ENTRY_LEN;
use obento_clusters::{Bits, Cluster, Portions};
use obento_driver::ResizeResult;

use super::entries::{self, Allocation, Contents};
use super::fat::{Fat, collected, zeros};
use crate::raw::RawEntry;
use crate::super_block::SuperBlock;

/// A directory.
pub struct Folder {
    /// The index of the directory that contains it. The index is smaller than its own. `None` for the root directory.
    pub parent: Option<usize>,
    pub clusters: Vec<Cluster>,
    /// The smallest first cluster to which an entry refers.
    lowest: u32,
    /// The largest cluster to which an entry refers: the first one, or the last one of contiguous clusters.
    highest: u32,
}

impl Folder {
    /// Returns whether an entry changes if the first or the last clusters of the volume move.
    pub fn refers_to(&self, clusters: &Range<u32>) -> bool {
        self.lowest < clusters.end && self.highest >= clusters.start && !clusters.is_empty()
    }
}

/// The structures of a volume.
pub struct Structures {
    pub sb: SuperBlock,
    pub fat: Fat,
    /// The clusters that the bitmap marks as used.
    pub used: Bits,
    /// The directories; each follows its parent. The first one is the root directory.
    pub folders: Vec<Folder>,
    pub bitmap: Vec<Cluster>,
    pub up_case: Vec<Cluster>,
}

impl Structures {
    /// Reads the structures of a sound volume, and the FAT for `clusters` clusters. Fails with `NoMemory`, or if the
    /// device fails.
    pub fn read(device: &dyn BlockDevice, sb: &SuperBlock, clusters: u32) -> ResizeResult<Self> {
        let fat = Fat::read(device, sb, clusters.max(sb.clusters))?;
        let root = Folder::new(None, collected(fat.chain(sb.root, sb.clusters))?);
        let mut this = Self {
            sb: sb.clone(),
            fat,
            used: Bits::default(),
            folders: Vec::from([root]),
            bitmap: Vec::new(),
            up_case: Vec::new(),
        };
        let mut at = 0;
        while at < this.folders.len() {
            this.read_folder(device, at)?;
            at = at.saturating_add(1);
        }
        this.read_bitmap(device)?;
        Ok(this)
    }

    /// Returns the entries of a directory.
    pub fn entries(&self, device: &dyn BlockDevice, clusters: &[Cluster]) -> ResizeResult<Vec<RawEntry>> {
        let mut entries = Vec::new();
        let mut bytes = zeros(self.sb.cluster_size.into())?;
        for &cluster in clusters {
            device.read_at(self.sb.offset_of(cluster).ok_or(Error::Invalid)?, &mut bytes)?;
            let found = bytes.chunks_exact(to_usize(ENTRY_LEN));
            entries.try_reserve(found.len()).map_err(|_| Error::NoMemory)?;
            entries.extend(found.filter_map(|entry| RawEntry::read_from_bytes(entry).ok()));
        }
        Ok(entries)
    }

    /// Returns the clusters of an allocation. Fails with `NoMemory`.
    fn read_clusters(&self, of: &Allocation) -> ResizeResult<Vec<Cluster>> {
        let count = self.sb.clusters_for(of.len);
        match of.is_contiguous {
            true => collected((of.first.0..of.first.0.saturating_add(count)).map(Cluster)),
            false => collected(self.fat.chain(of.first, count)),
        }
    }

    /// Returns the clusters of an allocation.
    pub fn clusters_of(&self, of: &Allocation) -> Vec<Cluster> {
        let count = self.sb.clusters_for(of.len);
        match of.is_contiguous {
            true => (of.first.0..of.first.0.saturating_add(count)).map(Cluster).collect(),
            false => self.fat.chain(of.first, count).collect(),
        }
    }

    /// Reads one directory, and adds the directories in it.
    fn read_folder(&mut self, device: &dyn BlockDevice, at: usize) -> ResizeResult<()> {
        let clusters = self.folders.get(at).map(|folder| folder.clusters.as_slice()).unwrap_or_default();
        let mut entries = self.entries(device, clusters)?;
        let (mut lowest, mut highest) = (u32::MAX, 0);
        entries::change(&mut entries, &mut |found| {
            let count = if found.is_contiguous { self.sb.clusters_for(found.len) } else { 1 };
            lowest = lowest.min(found.first.0);
            highest = highest.max(found.first.0.saturating_add(count.saturating_sub(1)));
            match found.contents {
                Contents::Bitmap => {
                    let of = Allocation { len: self.sb.bitmap_len(), ..found };
                    self.bitmap = self.read_clusters(&of)?;
                }
                Contents::UpCase => self.up_case = self.read_clusters(&found)?,
                Contents::Directory => {
                    // Each cluster has one owner. The bound holds also if the volume changes meanwhile.
                    if to_u64(self.folders.len()) > self.sb.clusters.into() {
                        return Err(Error::Invalid.into());
                    }
                    let clusters = self.read_clusters(&found)?;
                    self.folders.try_reserve(1).map_err(|_| Error::NoMemory)?;
                    self.folders.push(Folder::new(Some(at), clusters));
                }
                Contents::File => {}
            }
            Ok(None)
        })?;
        if let Some(folder) = self.folders.get_mut(at) {
            (folder.lowest, folder.highest) = (lowest, highest);
        }
        Ok(())
    }

    fn read_bitmap(&mut self, device: &dyn BlockDevice) -> ResizeResult<()> {
        let size = u64::from(self.sb.cluster_size);
        let mut pieces = Vec::new();
        self.bitmap.iter().for_each(|&cluster| append(&mut pieces, cluster));
        let mut before = 0_u64;
        for (first, count) in pieces {
            let start = self.sb.offset_of(first).ok_or(Error::Invalid)?;
            let len = u64::from(count).saturating_mul(size);
            let mut portions = Portions::new(device, start..start.saturating_add(len));
            while let Some((range, bytes)) = portions.next_portion() {
                let byte = before.saturating_add(range.start.saturating_sub(start));
                let first = u32::try_from(byte.saturating_mul(8).saturating_add(2)).unwrap_or(u32::MAX);
                self.used.load(Cluster(first), bytes?)?;
            }
            before = before.saturating_add(len);
        }
        self.used.unset_run(Cluster(self.sb.numbers().end), u32::MAX)?;
        Ok(())
    }
}

impl Folder {
    fn new(parent: Option<usize>, clusters: Vec<Cluster>) -> Self {
        Self { parent, clusters, lowest: u32::MAX, highest: 0 }
    }
}
