//! The mounted volume.
//!
//! The format has no inode numbers: the number of a file is the place of its entry. The volume records which clusters
//! belong to directories that have been read, so that an arbitrary number is not taken for a file.
//! Locking: `known` and the indexes are leaves.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::convert::Infallible;

use hashbrown::HashMap;
use obento_base::{Corrupt, Error, FileKind, Generation, Ino, Result, Structure};
use obento_block::BlockDevice;
use obento_clusters::{
    Bits, Chain, DirWrite, DirectoryOwners, FileEntry as _, MountState, ROOT, Run, Volume as _, cut_at_return,
};
use obento_driver::Notice;
use obento_env::sync::{Mutex, RwLock};

use crate::dir::{Directory, Index, LARGE, MAX_INDEXES, MAX_NAMES, MAX_SLOTS, Place};
use crate::inode::{Inode, Kind};
use crate::options::FatOptions;
use crate::raw::RawEntry;
use crate::super_block::{Root, SuperBlock};
use crate::table::{self, Reader};
use crate::unit::{Cluster, ENTRY, ENTRY_LEN, Slot};

/// Which FAT contains the chain of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainSource {
    /// The active FAT.
    Active,
    /// The first FAT in which the chain is complete, or the active FAT if the chain is complete in none. Only for reading.
    Complete,
}

/// The share of impossible entries from which on a FAT shows nothing: one of this number.
const TOLERATED: u32 = 64;

/// An open volume.
pub struct Volume {
    sb: SuperBlock,
    mount_state: MountState<RawEntry>,
    options: FatOptions,
    chain_source: ChainSource,
    owners: RwLock<DirectoryOwners<Directory>>,
    /// The indexes of large directories.
    indexes: Mutex<HashMap<Ino, Index>>,
    /// The FAT that replaces the active one, because the active one was found to be damaged.
    substitute: Mutex<Option<u8>>,
}

impl Volume {
    /// Opens the volume that `sb` describes. Fails with `Corrupt` for a root directory outside of the clusters.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        sb: SuperBlock,
        options: FatOptions,
        (cache, chain_source): (usize, ChainSource),
    ) -> Result<Self> {
        let volume = Self {
            mount_state: MountState::new(device, sb.sector_size, cache),
            sb,
            options,
            chain_source,
            owners: RwLock::default(),
            indexes: Mutex::default(),
            substitute: Mutex::default(),
        };
        let root = volume.load_root()?;
        volume.learn(root)?;
        Ok(volume)
    }

    /// Returns the checked boot sector.
    pub fn super_block(&self) -> &SuperBlock {
        &self.sb
    }

    /// Returns the state that every mounted volume has.
    pub fn mount_state(&self) -> &MountState<RawEntry> {
        &self.mount_state
    }

    /// Returns the options.
    pub fn options(&self) -> &FatOptions {
        &self.options
    }

    /// Adds a notice for the user.
    pub fn notice(&mut self, notice: Notice) {
        self.mount_state.notices.push(notice);
    }

    /// Returns a reader of the FAT.
    pub fn table(&self) -> Reader<'_> {
        Reader::new(&self.sb, &self.mount_state.cache)
    }

    /// Returns the place of the entry of `ino` and its directory, if the directory has been read.
    pub fn slot_of(&self, ino: Ino) -> Option<(Slot, Ino)> {
        let slot = self.mount_state.numbers().slot_of(ino)?;
        if slot.0.checked_mul(ENTRY.into()).is_none_or(|offset| offset >= self.sb.len) {
            return None;
        }
        if let Root::Region { start, len } = self.sb.root
            && (start..start.saturating_add(len)).contains(&slot.offset())
        {
            return Some((slot, ROOT));
        }
        let (cluster, _) = self.sb.cluster_at(slot.offset())?;
        self.owners.read().owner(cluster).map(|(dir, _)| (slot, dir))
    }

    /// Returns the inode `ino`, and its current or former directory. Fails with `Stale` if it is not in use.
    pub fn inode_and_parent(&self, ino: Ino) -> Result<(Inode, Ino)> {
        if ino == ROOT {
            let entry = RawEntry::new(FileKind::Directory);
            return Ok((Inode { ino, entry, generation: Generation(0), is_named: true }, ROOT));
        }
        let (orphan, generation) = {
            let numbers = self.mount_state.numbers();
            (numbers.orphan(ino), numbers.generation(ino))
        };
        if let Some((raw, dir)) = orphan {
            return Ok((Inode { ino, entry: raw, generation, is_named: false }, dir));
        }
        let (slot, dir) = self.slot_of(ino).ok_or(Error::Stale)?;
        let raw = self.entry(slot)?;
        // The place was reused: its file has another number.
        if raw.kind() != Kind::File || self.ino_at(slot) != ino {
            return Err(Error::Stale);
        }
        Ok((Inode { ino, entry: raw, generation, is_named: true }, dir))
    }

    /// Returns the bytes of an entry.
    pub fn entry(&self, slot: Slot) -> Result<RawEntry> {
        self.mount_state.entry(slot)
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
        let first = inode.entry.first(self.sb.width);
        let first =
            first.ok_or(Corrupt::Chain { ino, at: 0, what: "is missing, but a directory requires it" })?;
        self.learn(self.load(ino, parent, first)?)
    }

    /// Returns the size of a directory in bytes; 0 for one that cannot be read.
    pub fn directory_len(&self, ino: Ino) -> u64 {
        self.directory(ino).map_or(0, |dir| dir.len())
    }

    fn load_root(&self) -> Result<Directory> {
        match self.sb.root {
            Root::Chain(first) => self.load(ROOT, ROOT, first),
            Root::Region { start, len } => {
                let slots = u32::try_from(len / ENTRY_LEN).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
                let place = Place::Region(start);
                Ok(Directory { ino: ROOT, parent: ROOT, place, slots, damage: None })
            }
        }
    }

    /// Reads the chain of a directory. Fails with `Corrupt` if not even its first cluster is usable.
    pub fn load(&self, ino: Ino, parent: Ino, first: Cluster) -> Result<Directory> {
        let per_cluster = self.sb.cluster_size / ENTRY;
        let most = MAX_SLOTS.checked_div(per_cluster).unwrap_or(1).max(1);
        let mut chain = Chain::new(Some(first));
        let mut damage = chain.all(&mut self.table(), ino, most).err();
        if damage.is_some()
            && let Some(complete) = self.other_chain(ino, Some(first), most)
        {
            (chain, damage) = (complete, None);
        }
        let mut runs = chain.runs().to_vec();
        // Clusters past the maximum size of a directory are dropped.
        runs.retain_mut(|run| {
            run.len = run.len.min(most.saturating_sub(run.at));
            run.len > 0
        });
        cut_at_return(&mut runs);
        if let Some(error) = damage.filter(|_| runs.is_empty()) {
            return Err(error);
        }
        let clusters = runs.last().map_or(0, |run: &Run| run.at.saturating_add(run.len));
        let slots = clusters.saturating_mul(per_cluster).min(MAX_SLOTS);
        let place = Place::Runs { runs, per_cluster, data_start: self.sb.data_start };
        Ok(Directory { ino, parent, place, slots, damage })
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

    /// Replaces the known state of a directory that grew, moved or was removed.
    pub fn relearn(dir: &DirWrite<'_, Self>, known: Option<Directory>) -> Result<()> {
        let (this, ino) = (dir.volume(), dir.ino());
        if known.is_none() {
            this.indexes.lock().remove(&ino);
        }
        this.owners.write().forget(ino);
        known.map_or(Ok(()), |known| this.learn(known).map(drop))
    }

    /// Calls `ask` with the index of `dir`, which is created if necessary. Returns `None` if the directory is small
    /// or damaged, or if memory is short.
    pub fn with_index<R>(&self, dir: &Directory, ask: impl FnOnce(&mut Index) -> R) -> Option<R> {
        if dir.slots < LARGE {
            return None;
        }
        let mut indexes = self.indexes.lock();
        if !indexes.contains_key(&dir.ino) {
            let kind = |at| self.entry(dir.slot(at).ok_or(Error::Stale)?).map(|raw| raw.kind());
            let Ok(Some(index)) = Index::read(dir, &self.mount_state.cache, self.options.code_page, kind)
            else {
                return None;
            };
            let names = indexes.values().fold(index.len(), |sum, index| sum.saturating_add(index.len()));
            if names > MAX_NAMES || indexes.len() >= MAX_INDEXES {
                indexes.clear();
            }
            if indexes.try_reserve(1).is_err() {
                return None;
            }
            indexes.insert(dir.ino, index);
        }
        indexes.get_mut(&dir.ino).map(ask)
    }

    /// Drops the index of `dir`.
    pub fn drop_index(&self, dir: Ino) {
        self.indexes.lock().remove(&dir);
    }

    /// Returns the known part of the chain of a file.
    pub fn chain(&self, inode: &Inode) -> Arc<Mutex<Chain>> {
        let start = || Ok::<_, Infallible>(self.new_chain(inode));
        let Ok(chain) = self.mount_state.chain(inode.ino, start);
        chain
    }

    fn new_chain(&self, inode: &Inode) -> Chain {
        let chain = Chain::new(inode.entry.first(self.sb.width));
        if self.chain_source == ChainSource::Active || inode.is_dir() {
            return chain;
        }
        let need = inode.entry.size().div_ceil(u64::from(self.sb.cluster_size).max(1));
        let Ok(need) = u32::try_from(need) else { return chain };
        let is_complete = |chain: &Chain| chain.reached() == need;
        let mut active = chain.clone();
        if active.all(&mut self.table(), inode.ino, need).is_ok() && is_complete(&active) {
            return active;
        }
        let first = inode.entry.first(self.sb.width);
        self.other_chain(inode.ino, first, need).filter(is_complete).unwrap_or(chain)
    }

    /// Returns the chain of at most `most` clusters according to the first FAT, other than the active one, in which the
    /// chain has no error.
    fn other_chain(&self, ino: Ino, first: Option<Cluster>, most: u32) -> Option<Chain> {
        if self.chain_source == ChainSource::Active || self.sb.active_fat.is_some() {
            return None;
        }
        let mut copies = (0..self.sb.fats).filter(|&copy| copy != self.sb.read_fat());
        copies.find_map(|copy| {
            let mut chain = Chain::new(first);
            let mut reader = Reader::of_copy(&self.sb, &self.mount_state.cache, copy);
            chain.all(&mut reader, ino, most).is_ok().then_some(chain)
        })
    }

    /// Returns the clusters that the active FAT does not describe as free. Fails with `NoMemory`, or if the device
    /// fails.
    pub fn used(&self) -> Result<Bits> {
        match table::used(&**self.cache().device(), &self.sb, self.sb.read_fat())? {
            (used, None) => Ok(used),
            (_, Some(error)) => Err(error),
        }
    }

    /// Counts the free clusters. On a device that cannot be written to, uses the FAT with the fewest impossible entries.
    /// Fails as [`used`](Self::used) does, and with `Corrupt` if many entries are impossible.
    pub fn count_free(&self) -> Result<u32> {
        let all = 2..self.sb.clusters.saturating_add(2);
        let used = match self.cache().device().is_read_only() {
            true => self.used_by_best()?,
            false => self.used()?,
        };
        Ok(self.sb.clusters.saturating_sub(used.count(all)))
    }

    fn used_by_best(&self) -> Result<Bits> {
        let (copy, faults) = self.compare_fats();
        if faults > u64::from(self.sb.clusters / TOLERATED).max(1) {
            let block = self.sb.fat_offset(copy).checked_div(self.sb.sector_size.into()).unwrap_or(0);
            let (structure, field) = (Structure::AllocationTable, "number of impossible entries");
            return Err(Corrupt::Field { structure, block, offset: 0, field, found: faults }.into());
        }
        match table::used(&**self.cache().device(), &self.sb, copy)? {
            (used, None) => Ok(used),
            (_, Some(error)) => Err(error),
        }
    }

    /// Returns the FAT with the fewest impossible entries, and their number. Records a FAT that replaces the active one.
    pub fn compare_fats(&self) -> (u8, u64) {
        let best = table::best_copy(&**self.cache().device(), &self.sb);
        *self.substitute.lock() = Some(best.0).filter(|&copy| copy != self.sb.read_fat());
        best
    }

    /// Returns the notices of the volume.
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices = self.mount_state.notices.clone();
        let (damaged, substitute) = (self.sb.read_fat(), *self.substitute.lock());
        notices.extend(substitute.map(|used| Notice::BackupTable { damaged, used }));
        notices
    }

    /// Returns the label in the root directory, if it has one.
    pub fn root_label(&self) -> Option<RawEntry> {
        let root = self.directory(ROOT).ok()?;
        for index in 0..root.slots {
            let raw = self.entry(root.slot(index)?).ok()?;
            match raw.kind() {
                Kind::End => return None,
                Kind::Label => return Some(raw),
                _ => {}
            }
        }
        None
    }
}
