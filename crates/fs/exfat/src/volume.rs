//! The mounted state.
//!
//! The format has no inode numbers: the number of a file is the place of its first entry. So that a number which somebody
//! made up is not taken for one, the volume knows which clusters belong to directories that were looked at since it was opened.
//! Locking: `known` and the indexes of directories are leaves.

use alloc::sync::Arc;

use obento_base::{Corrupt, Error, Generation, Ino, Result};
use obento_block::BlockDevice;
use obento_clusters::unit::{ENTRY, ENTRY_LEN};
use obento_clusters::{Chain, Cluster, Kept, Known, ROOT, Slot, Volume as _};
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

/// Whose the clusters of the bitmap and the up-case table are.
pub const SYSTEM: Ino = Ino(0);
/// How many names may be indexed before indexes are dropped: about 64 MiB of them.
const MAX_INDEXED: usize = 4 << 20;

/// An open volume.
pub struct Volume {
    sb: SuperBlock,
    kept: Kept<EntrySet>,
    options: ExFatOptions,
    tables: Tables,
    known: RwLock<Known<Directory>>,
    /// Names in all indexes, as they were when they were made.
    indexed: Mutex<usize>,
}

impl Volume {
    /// Opens the volume that `sb` describes. Fails with `Corrupt` for a root directory or a bitmap that cannot be
    /// had.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        sb: SuperBlock,
        options: ExFatOptions,
        cache: usize,
    ) -> Result<Self> {
        let mut volume = Self {
            kept: Kept::new(device, sb.sector_size, cache),
            sb,
            options,
            tables: Tables { up_case: UpCase::standard()?, ..Tables::default() },
            known: RwLock::default(),
            indexed: Mutex::default(),
        };
        let root = volume.load(ROOT, ROOT, &EntrySet::root(&volume.sb, 0))?;
        let (tables, mut notices) = volume.read_tables(&root)?;
        volume.tables = tables;
        volume.kept.notices.append(&mut notices);
        let claimed = {
            let mut known = volume.known.write();
            let of_tables = known.claim(SYSTEM, &volume.tables.bitmap);
            of_tables.and_then(|()| known.claim(SYSTEM, &volume.tables.up_case_runs))
        };
        if let Err(error) = claimed {
            volume.kept.notices.push(Notice::Damaged(error));
        }
        volume.learn(root)?;
        Ok(volume)
    }

    /// Returns the checked boot sector.
    pub fn super_block(&self) -> &SuperBlock {
        &self.sb
    }

    /// What every mounted volume keeps.
    pub fn kept(&self) -> &Kept<EntrySet> {
        &self.kept
    }

    /// How it is shown.
    pub fn options(&self) -> &ExFatOptions {
        &self.options
    }

    /// Notes something that a person should know.
    pub fn notice(&mut self, notice: Notice) {
        self.kept.notices.push(notice);
    }

    /// What the root directory says of the volume.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What names are compared by.
    pub fn up_case(&self) -> &UpCase {
        &self.tables.up_case
    }

    /// Returns a reader of the FAT.
    pub fn table(&self) -> Reader<'_> {
        Reader::new(&self.sb, &self.kept.cache)
    }

    /// Returns where the first entry of `ino` is, if it lies in a directory that is known: its place, which, and its
    /// index there.
    pub fn slot_of(&self, ino: Ino) -> Option<(Slot, Ino, u32)> {
        let slot = self.kept.numbers.read().slot_of(ino)?;
        if slot.0.checked_mul(ENTRY_LEN).is_none_or(|offset| offset >= self.sb.len) {
            return None;
        }
        let (cluster, within) = self.sb.cluster_at(slot.offset())?;
        let (dir, at) = self.known.read().owner(cluster).filter(|&(dir, _)| dir != SYSTEM)?;
        let before = at.checked_mul(self.sb.cluster_size / ENTRY)?;
        Some((slot, dir, before.checked_add(within / ENTRY)?))
    }

    /// The inode of this number, and what it lies in or lay in. Fails with `Stale` if it is not in use.
    pub fn inode_and_parent(&self, ino: Ino) -> Result<(Inode, Ino)> {
        if ino == ROOT {
            let len = self.known.read().directory(ROOT).map_or(0, |dir| dir.len());
            let entry = EntrySet::root(&self.sb, len);
            return Ok((Inode { ino, entry, generation: Generation(0), is_named: true }, ROOT));
        }
        let (orphan, generation) = {
            let numbers = self.kept.numbers.read();
            (numbers.orphan(ino), numbers.generation(ino))
        };
        if let Some((set, dir)) = orphan {
            return Ok((Inode { ino, entry: set, generation, is_named: false }, dir));
        }
        let (slot, dir, index) = self.slot_of(ino).ok_or(Error::Stale)?;
        // The number of a place that now has another is nobody's.
        if self.entry(slot)?.EntryType != kind::FILE || self.ino_at(slot) != ino {
            return Err(Error::Stale);
        }
        let known = self.known.read().directory(dir).cloned().ok_or(Error::Stale)?;
        let (_, set) = self.set_at(&known, index)?;
        Ok((Inode { ino, entry: set, generation, is_named: true }, dir))
    }

    /// Returns the bytes of an entry.
    pub fn entry(&self, slot: Slot) -> Result<RawEntry> {
        self.kept.entry(slot)
    }

    /// Returns the set that begins with entry `index` of `dir`. Fails with `Corrupt`, or with `Stale` if none does.
    pub fn set_at(&self, dir: &Directory, index: u32) -> Result<(Slot, EntrySet)> {
        let slot = dir.slot(index).ok_or(Error::Stale)?;
        let raw = self.entry(slot)?;
        if raw.EntryType != kind::FILE {
            return Err(Error::Stale);
        }
        let entries = Scan::new(dir, &self.sb, &self.kept.cache, index).gather(index, raw)?;
        let set = EntrySet::decode(&entries, &self.sb);
        set.map(|set| (slot, set)).map_err(|flaw| dir.corrupt(slot, flaw, self.sb.sector_size))
    }

    /// Returns the directory of this number. Fails with `Stale`, `NotDirectory`, or with `Corrupt` for one whose
    /// clusters belong to another.
    pub fn directory(&self, ino: Ino) -> Result<Arc<Directory>> {
        if let Some(dir) = self.known.read().directory(ino) {
            return Ok(dir.clone());
        }
        let (inode, parent) = self.inode_and_parent(ino)?;
        if !inode.is_dir() {
            return Err(Error::NotDirectory);
        }
        self.learn(self.load(ino, parent, &inode.entry)?)
    }

    /// Follows the clusters of a directory. Fails with `Corrupt` if not even its first cluster can be had.
    pub fn load(&self, ino: Ino, parent: Ino, set: &EntrySet) -> Result<Directory> {
        let per_cluster = self.sb.cluster_size / ENTRY;
        let most = MAX_SLOTS.checked_div(per_cluster).unwrap_or(1).max(1);
        // Only the root has no entry that says how long it is.
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
            damage =
                Some(Corrupt::Chain { ino, at: clusters, what: "ends before the directory does" }.into());
        }
        if let Some(error) = damage.filter(|_| runs.is_empty()) {
            return Err(error);
        }
        let slots = clusters.saturating_mul(per_cluster).min(MAX_SLOTS);
        let data_start = self.sb.data_start;
        Ok(Directory { ino, parent, runs, per_cluster, data_start, slots, damage, index: Mutex::default() })
    }

    /// Notes which clusters are the directory's. Fails with `NoMemory`, or with `Corrupt` if one of them is
    /// another's.
    pub fn learn(&self, dir: Directory) -> Result<Arc<Directory>> {
        self.known.write().learn(dir)
    }

    /// Another look at a directory: it grew, moved or is gone. What was known of its names stays known.
    pub fn relearn(&self, ino: Ino, dir: Option<Directory>) -> Result<()> {
        let old = self.known.write().forget(ino);
        let Some(dir) = dir else { return Ok(()) };
        *dir.index.lock() = old.and_then(|old| old.index.lock().take());
        self.learn(dir).map(drop)
    }

    /// Whose a cluster is, if it is a known directory's or a table's.
    pub fn owner_of(&self, cluster: Cluster) -> Option<Ino> {
        self.known.read().owner(cluster).map(|(ino, _)| ino)
    }

    /// Returns whether a run has clusters of a directory that is known, or of a table.
    pub fn is_metadata(&self, start: Cluster, len: u32) -> bool {
        self.known.read().overlaps(start, len)
    }

    /// Sees to it that indexes take no more memory than they may, after that of `ino` got `names`.
    pub fn bound_indexes(&self, ino: Ino, names: usize) {
        let mut indexed = self.indexed.lock();
        *indexed = indexed.saturating_add(names);
        if *indexed <= MAX_INDEXED {
            return;
        }
        for dir in self.known.read().directories().filter(|dir| dir.ino != ino) {
            *dir.index.lock() = None;
        }
        *indexed = names;
    }

    /// The chain of a set's clusters, of which nothing is known yet if the FAT says it. Fails with `Corrupt` for
    /// contiguous clusters outside the volume.
    pub fn chain_of(&self, ino: Ino, set: &EntrySet) -> Result<Chain> {
        let len = set.stream.DataLength.get();
        if !set.is_contiguous() {
            let first = set.first().filter(|_| len > 0 || ino == ROOT);
            return Ok(Chain::new(first));
        }
        let count = self.sb.clusters_for(len);
        match set.first() {
            Some(first) if count > 0 && !self.sb.has_run(first, count) => {
                let what = "is contiguous and leaves the volume";
                Err(Corrupt::Chain { ino, at: 0, what }.into())
            }
            first => Ok(Chain::contiguous(first, count)),
        }
    }

    /// What is known of the chain of a file. Fails in the same cases as [`Volume::chain_of`].
    pub fn chain(&self, inode: &Inode) -> Result<Arc<Mutex<Chain>>> {
        self.kept.chain(inode.ino, || self.chain_of(inode.ino, &inode.entry))
    }

    /// Counts the clusters that are free. Fails if the device fails.
    pub fn count_free(&self) -> Result<u32> {
        let mut used = 0_u32;
        self.each_bitmap_byte(|byte| used = used.saturating_add(byte.count_ones()))?;
        Ok(self.sb.clusters.saturating_sub(used))
    }
}
