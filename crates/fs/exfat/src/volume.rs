//! The mounted volume.
//!
//! The format has no inode numbers: the number of a file is the place of its first entry. The volume records which
//! clusters belong to directories that have been read, so that an arbitrary number is not taken for a file.
//! Locking: `known` and the indexes of directories are leaves.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Corrupt, Error, Generation, Ino, Result};
use obento_block::BlockDevice;
use obento_clusters::unit::{ENTRY, ENTRY_LEN};
use obento_clusters::{Chain, Cluster, DirWrite, DirectoryOwners, MountState, ROOT, Slot, Volume as _};
use obento_driver::Notice;
use obento_env::sync::{Mutex, RwLock};

use crate::dir::{Directory, MAX_SLOTS, Scan};
use crate::inode::Inode;
use crate::options::ExFatOptions;
use crate::raw::{RawEntry, kind};
use crate::set::EntrySet;
use crate::super_block::SuperBlock;
use crate::table::Reader;
use crate::tables::Tables;
use crate::up_case::UpCase;

/// Owner of the clusters of the bitmap and the up-case table.
pub const SYSTEM: Ino = Ino(0);
/// Maximum number of indexed names, which take about 64 MiB. Beyond it indexes are dropped.
const MAX_INDEXED: usize = 4 << 20;

/// An open volume.
pub struct Volume {
    sb: SuperBlock,
    mount_state: MountState<EntrySet>,
    options: ExFatOptions,
    tables: Tables,
    owners: RwLock<DirectoryOwners<Directory>>,
    /// Number of names in all indexes when these were created.
    indexed: Mutex<usize>,
}

impl Volume {
    /// Opens the volume that `sb` describes. Fails with `Corrupt` if the root directory or the bitmap cannot be read.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        sb: SuperBlock,
        options: ExFatOptions,
        cache: usize,
    ) -> Result<Self> {
        let mut volume = Self {
            mount_state: MountState::new(device, sb.sector_size, cache),
            sb,
            options,
            tables: Tables { up_case: UpCase::standard()?, ..Tables::default() },
            owners: RwLock::default(),
            indexed: Mutex::default(),
        };
        let root = volume.load(ROOT, ROOT, &EntrySet::root(&volume.sb, 0))?;
        let (tables, mut notices) = volume.read_tables(&root)?;
        volume.tables = tables;
        volume.mount_state.notices.append(&mut notices);
        let claimed = {
            let mut known = volume.owners.write();
            let of_tables = known.claim(SYSTEM, &volume.tables.bitmap);
            of_tables.and_then(|()| known.claim(SYSTEM, &volume.tables.up_case_runs))
        };
        if let Err(error) = claimed {
            volume.mount_state.notices.push(Notice::Damaged(error));
        }
        volume.learn(root)?;
        Ok(volume)
    }

    /// Returns the checked boot sector.
    pub fn super_block(&self) -> &SuperBlock {
        &self.sb
    }

    /// Returns the state that every mounted volume has.
    pub fn mount_state(&self) -> &MountState<EntrySet> {
        &self.mount_state
    }

    /// Returns the options.
    pub fn options(&self) -> &ExFatOptions {
        &self.options
    }

    /// Adds a notice for the user.
    pub fn notice(&mut self, notice: Notice) {
        self.mount_state.notices.push(notice);
    }

    /// Returns the properties of the volume in the root directory.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Returns the up-case table.
    pub fn up_case(&self) -> &UpCase {
        &self.tables.up_case
    }

    /// Returns a reader of the FAT.
    pub fn table(&self) -> Reader<'_> {
        Reader::new(&self.sb, &self.mount_state.cache)
    }

    /// Returns the slot of the first entry of `ino`, its directory, and its index there, if the directory has been
    /// read.
    pub fn slot_of(&self, ino: Ino) -> Option<(Slot, Ino, u32)> {
        let slot = self.mount_state.numbers().slot_of(ino)?;
        if slot.0.checked_mul(ENTRY_LEN).is_none_or(|offset| offset >= self.sb.len) {
            return None;
        }
        let (cluster, within) = self.sb.cluster_at(slot.offset())?;
        let (dir, at) = self.owners.read().owner(cluster).filter(|&(dir, _)| dir != SYSTEM)?;
        let before = at.checked_mul(self.sb.cluster_size / ENTRY)?;
        Some((slot, dir, before.checked_add(within / ENTRY)?))
    }

    /// Returns the inode `ino`, and its current or former directory. Fails with `Stale` if it is not in use.
    pub fn inode_and_parent(&self, ino: Ino) -> Result<(Inode, Ino)> {
        if ino == ROOT {
            let len = self.owners.read().directory(ROOT).map_or(0, |dir| dir.len());
            let entry = EntrySet::root(&self.sb, len);
            return Ok((Inode { ino, entry, generation: Generation(0), is_named: true }, ROOT));
        }
        let (orphan, generation) = {
            let numbers = self.mount_state.numbers();
            (numbers.orphan(ino), numbers.generation(ino))
        };
        if let Some((set, dir)) = orphan {
            return Ok((Inode { ino, entry: set, generation, is_named: false }, dir));
        }
        let (slot, dir, index) = self.slot_of(ino).ok_or(Error::Stale)?;
        // The place was reused: its file has another number.
        if self.entry(slot)?.EntryType != kind::FILE || self.ino_at(slot) != ino {
            return Err(Error::Stale);
        }
        let known = self.owners.read().directory(dir).cloned().ok_or(Error::Stale)?;
        let (_, set) = self.set_at(&known, index)?;
        Ok((Inode { ino, entry: set, generation, is_named: true }, dir))
    }

    /// Returns the bytes of an entry.
    pub fn entry(&self, slot: Slot) -> Result<RawEntry> {
        self.mount_state.entry(slot)
    }

    /// Returns the set that begins with entry `index` of `dir`. Fails with `Corrupt`, or with `Stale` if no set
    /// begins there.
    pub fn set_at(&self, dir: &Directory, index: u32) -> Result<(Slot, EntrySet)> {
        let slot = dir.slot(index).ok_or(Error::Stale)?;
        let raw = self.entry(slot)?;
        if raw.EntryType != kind::FILE {
            return Err(Error::Stale);
        }
        let entries = Scan::new(dir, &self.sb, &self.mount_state.cache, index).gather(index, raw)?;
        let set = EntrySet::decode(&entries, &self.sb);
        set.map(|set| (slot, set)).map_err(|flaw| dir.corrupt(slot, flaw, self.sb.sector_size))
    }

    /// Returns the directory `ino`. Fails with `Stale`, `NotDirectory`, or with `Corrupt` if its clusters belong to
    /// another directory.
    pub fn directory(&self, ino: Ino) -> Result<Arc<Directory>> {
        if let Some(dir) = self.owners.read().directory(ino) {
            return Ok(dir.clone());
        }
        let (inode, parent) = self.inode_and_parent(ino)?;
        if !inode.is_dir() {
            return Err(Error::NotDirectory);
        }
        self.learn(self.load(ino, parent, &inode.entry)?)
    }

    /// Reads the cluster chain of a directory. Fails with `Corrupt` if not even its first cluster is usable.
    pub fn load(&self, ino: Ino, parent: Ino, set: &EntrySet) -> Result<Directory> {
        let per_cluster = self.sb.cluster_size / ENTRY;
        let most = MAX_SLOTS.checked_div(per_cluster).unwrap_or(1).max(1);
        // Only the root has no entry that contains its length.
        let count =
            if ino == ROOT { most } else { self.sb.clusters_for(set.stream.DataLength.get()).min(most) };
        let (mut chain, mut damage) = (self.chain_of(ino, set)?, None);
        if count > 0 {
            damage = chain.reach(&mut self.table(), ino, count).err();
        }
        let mut runs = chain.runs().to_vec();
        runs.retain_mut(|run| {
            run.len = run.len.min(count.saturating_sub(run.at));
            run.len > 0
        });
        let clusters = runs.last().map_or(0, |run| run.at.saturating_add(run.len));
        if clusters < count && ino != ROOT && damage.is_none() {
            damage = Some(
                Corrupt::Chain { ino, at: clusters, what: "ends before the end of the directory" }.into(),
            );
        }
        if let Some(error) = damage.filter(|_| runs.is_empty()) {
            return Err(error);
        }
        let slots = clusters.saturating_mul(per_cluster).min(MAX_SLOTS);
        let data_start = self.sb.data_start;
        Ok(Directory { ino, parent, runs, per_cluster, data_start, slots, damage, index: Mutex::default() })
    }

    /// Returns the directories that have been read, each with its parent.
    pub fn directories(&self) -> Vec<(Ino, Ino)> {
        self.owners.read().directories().map(|dir| (dir.ino, dir.parent)).collect()
    }

    /// Records the clusters of a directory. Fails with `NoMemory`, or with `Corrupt` if one of them belongs to
    /// another directory.
    pub fn learn(&self, dir: Directory) -> Result<Arc<Directory>> {
        self.owners.write().learn(dir)
    }

    /// Replaces the known state of a directory that grew, moved or was removed. Its index is preserved.
    pub fn relearn(dir: &DirWrite<'_, Self>, known: Option<Directory>) -> Result<()> {
        let old = dir.volume().owners.write().forget(dir.ino());
        let Some(known) = known else { return Ok(()) };
        *known.index.lock() = old.and_then(|old| old.index.lock().take());
        dir.volume().learn(known).map(drop)
    }

    /// Returns the owner of a cluster, if that is a known directory or a table.
    pub fn owner_of(&self, cluster: Cluster) -> Option<Ino> {
        self.owners.read().owner(cluster).map(|(ino, _)| ino)
    }

    /// Returns whether a run overlaps a known directory or a table.
    pub fn is_metadata(&self, start: Cluster, len: u32) -> bool {
        self.owners.read().overlaps(start, len)
    }

    /// Enforces the limit on the memory of indexes, after the index of `ino` got `names` names.
    pub fn bound_indexes(&self, ino: Ino, names: usize) {
        let mut indexed = self.indexed.lock();
        *indexed = indexed.saturating_add(names);
        if *indexed <= MAX_INDEXED {
            return;
        }
        for dir in self.owners.read().directories().filter(|dir| dir.ino != ino) {
            *dir.index.lock() = None;
        }
        *indexed = names;
    }

    /// Returns the chain of a set's clusters. If the FAT defines the chain, no part of it is loaded yet. Fails with
    /// `Corrupt` for contiguous clusters outside of the volume.
    pub fn chain_of(&self, ino: Ino, set: &EntrySet) -> Result<Chain> {
        let len = set.stream.DataLength.get();
        if !set.is_contiguous() {
            let first = set.first().filter(|_| len > 0 || ino == ROOT);
            return Ok(Chain::new(first));
        }
        let count = self.sb.clusters_for(len);
        match set.first() {
            Some(first) if count > 0 && !self.sb.has_run(first, count) => {
                let what = "is contiguous and extends past the end of the volume";
                Err(Corrupt::Chain { ino, at: 0, what }.into())
            }
            first => Ok(Chain::contiguous(first, count)),
        }
    }

    /// Returns the known part of the chain of a file. Fails in the same cases as [`Volume::chain_of`].
    pub fn chain(&self, inode: &Inode) -> Result<Arc<Mutex<Chain>>> {
        self.mount_state.chain(inode.ino, || self.chain_of(inode.ino, &inode.entry))
    }

    /// Counts the free clusters. Fails if the device fails.
    pub fn count_free(&self) -> Result<u32> {
        Ok(self.sb.clusters.saturating_sub(self.used()?.count(self.sb.numbers())))
    }
}
