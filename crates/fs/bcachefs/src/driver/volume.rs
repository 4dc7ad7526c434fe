//! An open volume.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::{Corrupt, Error, FileKind, Ino, Result, Structure};
use obento_block::{BlockDevice, Slots, check_range};
use obento_driver::{Notice, OpenOptions, Replay};
use obento_env::sync::Mutex;

use super::number::Location;
use crate::btree::id;
use crate::btree::key::{Key, Pos, kind};
use crate::btree::tree::{Ignored, Overlay, Trees};
use crate::file::data::Source;
use crate::file::inode::Inode;
use crate::journal::{self, Journal, Keys};
use crate::layout::bytes::u8_at;
use crate::layout::super_block::{SECTOR, SuperBlock};

use crate::snapshot::{ROOT_SUBVOLUME, Snapshots, Subvolume};

/// Decompressed extents that are cached. The largest has 4 MiB; those of Linux have at most 256 KiB by default.
const PIECES: usize = 4;
/// Inodes that are cached.
const INODES: usize = 256;

/// An open volume.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    pub(super) super_block: SuperBlock,
    trees: Trees,
    pub(super) snapshots: Snapshots,
    pieces: Slots<(u64, u64), Arc<[u8]>>,
    inodes: Slots<u64, Inode>,
    pub(super) root: Location,
    pub(super) notices: Vec<Notice>,
    pub(super) state: State,
    used: Mutex<Option<u64>>,
}

/// How the volume was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It was unmounted.
    Clean,
    /// The journal has changes.
    Dirty,
}

impl Volume {
    /// Opens a volume.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        super_block: SuperBlock,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut notices = Vec::new();
        let (journal, state) = match super_block.clean.as_ref().filter(|_| super_block.is_clean()) {
            Some(clean) => {
                let mut roots = BTreeMap::new();
                journal::collect_roots(clean.roots.iter().cloned(), &mut roots);
                let ignored = Ignored::new(super_block.blacklist.clone());
                let overlay = Overlay { ignored, ..Overlay::default() };
                (Journal { roots, overlay, applied: 0 }, State::Clean)
            }
            None => {
                let keys = if options.replay == Replay::Skip { Keys::Skip } else { Keys::Apply };
                let journal = journal::read(&*device, &super_block, keys)?;
                notices.push(match keys {
                    Keys::Skip => Notice::NotReplayed,
                    Keys::Apply => Notice::Replayed { transactions: journal.applied },
                });
                (journal, State::Dirty)
            }
        };
        let trees = Trees::new(device.clone(), &super_block, &journal.roots, journal.overlay, options.cache)?;
        let (snapshots, damage) = Snapshots::read(&trees, &super_block)?;
        notices.extend(damage.map(Notice::Damaged));
        if super_block.has_errors() {
            notices.push(Notice::MarkedWithErrors);
        }
        let number = match options.shown.subvolume {
            None => ROOT_SUBVOLUME,
            Some(number) => u32::try_from(number).map_err(|_| Error::NotFound)?,
        };
        let root = match snapshots.subvolume(number) {
            Some(found) => Location { subvolume: number, number: found.root },
            None if number == ROOT_SUBVOLUME => {
                let structure = Structure::Tree(id::name(id::SUBVOLUMES));
                let missing = Corrupt::Field { structure, field: "subvolume", block: 0, offset: 0, found: 1 };
                return Err(damage.unwrap_or_else(|| missing.into()));
            }
            None => return Err(Error::NotFound),
        };
        let (pieces, inodes) = (Slots::new(PIECES), Slots::new(INODES));
        let used = Mutex::new(None);
        Ok(Self { device, super_block, trees, snapshots, pieces, inodes, root, notices, state, used })
    }

    /// Returns the device.
    pub(super) fn shared_device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the cache of decompressed extents.
    pub fn pieces(&self) -> &Slots<(u64, u64), Arc<[u8]>> {
        &self.pieces
    }

    /// Returns the number of the device in pointers.
    pub fn device_number(&self) -> u8 {
        self.super_block.device
    }

    /// Returns the block of a sector.
    pub fn block_of(&self, sector: u64) -> u64 {
        sector.checked_div(self.super_block.block_sectors.into()).unwrap_or(0)
    }

    /// Reads bytes of the device.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }

    /// Checks that data lies on the device.
    pub fn expect_range(&self, ino: Ino, at: u64, offset: u64, len: u64) -> Result<()> {
        check_range(self.device.len(), offset, len).map_err(|_| {
            let unit = u64::from(self.super_block.block_size());
            let blocks = |bytes: u64| bytes.checked_div(unit).unwrap_or(0);
            let (at, start, len) = (blocks(at), blocks(offset), blocks(len));
            Corrupt::BlockRange { structure: Structure::ExtentTree(ino), at, start, len }.into()
        })
    }

    /// Passes the keys that a snapshot sees to `f`.
    pub fn walk(
        &self,
        tree: u8,
        from: Pos,
        snapshot: u32,
        f: &mut dyn FnMut(Result<Key<'_>>) -> ControlFlow<()>,
    ) {
        self.snapshots.walk(&self.trees, &self.super_block, tree, from, snapshot, f);
    }

    /// Passes the keys of a tree without snapshots to `f`.
    pub fn walk_all(&self, tree: u8, from: Pos, f: &mut dyn FnMut(Result<Key<'_>>) -> ControlFlow<()>) {
        self.trees.walk(&self.super_block, tree, from, f);
    }

    /// Returns a subvolume.
    ///
    /// # Errors
    ///
    /// - `Stale`: it does not exist.
    pub fn subvolume(&self, number: u32) -> Result<Subvolume> {
        self.snapshots.subvolume(number).ok_or(Error::Stale)
    }

    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode is not in use.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        if let Some(inode) = self.inodes.get(&ino.0) {
            return Ok(inode);
        }
        let location = Location::of(ino);
        let snapshot = self.subvolume(location.subvolume)?.snapshot;
        let mut found = Err(Error::Stale);
        self.walk(id::INODES, Pos::new(0, location.number, 0), snapshot, &mut |key| {
            match key {
                Err(error) => found = Err(error),
                Ok(key) if key.pos.offset == location.number && key.pos.inode == 0 => {
                    let is_inode = matches!(key.kind, kind::INODE | kind::INODE_V2 | kind::INODE_V3);
                    if is_inode {
                        let damaged = Corrupt::Field {
                            structure: Structure::Inode(ino),
                            field: "fields",
                            block: 0,
                            offset: 0,
                            found: key.kind.into(),
                        };
                        found = Inode::decode(key).ok_or_else(|| damaged.into());
                    }
                }
                Ok(_) => {}
            }
            ControlFlow::Break(())
        });
        found.map(|inode| self.inodes.put(ino.0, inode))
    }

    /// Returns a directory.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: the inode is not a directory.
    pub fn directory(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        if inode.kind == FileKind::Directory { Ok(inode) } else { Err(Error::NotDirectory) }
    }

    /// Returns the data of an inode.
    pub fn source(&self, ino: Ino, inode: &Inode) -> Result<Source> {
        let location = Location::of(ino);
        let snapshot = self.subvolume(location.subvolume)?.snapshot;
        Ok(Source { ino, number: location.number, snapshot, size: inode.size })
    }

    /// Returns the parent of a directory. The root of a subvolume has its name in another one.
    pub fn parent_of(&self, ino: Ino, inode: &Inode) -> Result<Ino> {
        let location = Location::of(ino);
        if location == self.root {
            return Ok(ino);
        }
        let subvolume = if inode.subvolume == location.subvolume {
            let stored = self.subvolume(location.subvolume)?.parent;
            stored.unwrap_or(inode.parent_subvolume)
        } else {
            location.subvolume
        };
        Location { subvolume, number: inode.parent }.ino()
    }

    /// Checks that a directory lies in `dir` by its own account. Each directory then has one parent, and no directory is
    /// below itself.
    pub fn expect_child(&self, dir: Ino, child: Ino) -> Result<()> {
        let inode = match self.inode(child) {
            Err(Error::Stale) => return Err(Corrupt::UnusedInode { ino: child }.into()),
            inode => inode?,
        };
        if inode.kind != FileKind::Directory {
            return Ok(());
        }
        let parent = self.parent_of(child, &inode)?;
        if parent == dir && Location::of(child) != self.root {
            return Ok(());
        }
        let (structure, found) = (Structure::Inode(child), parent.0);
        Err(Corrupt::Field { structure, field: "bi_dir", block: 0, offset: 0, found }.into())
    }

    /// Returns the number of buckets that contain something.
    pub fn used_buckets(&self) -> Result<u64> {
        let mut known = self.used.lock();
        if let Some(used) = *known {
            return Ok(used);
        }
        let (mut used, mut damage) = (u64::from(self.super_block.member.first_bucket), None);
        let device = u64::from(self.super_block.device);
        self.walk_all(id::ALLOC, Pos::new(device, 0, 0), &mut |key| {
            match key {
                Err(error) => damage = Some(error),
                Ok(key) if key.pos.inode != device => return ControlFlow::Break(()),
                Ok(key) => used = used.saturating_add(u64::from(is_used(key))),
            }
            ControlFlow::Continue(())
        });
        damage.map_or(Ok(()), Err)?;
        *known = Some(used);
        Ok(used)
    }

    /// Returns the bytes of a bucket.
    pub fn bucket_size(&self) -> u64 {
        u64::from(self.super_block.member.bucket_sectors).saturating_mul(SECTOR)
    }

    /// Returns the length of the volume, for a notice about a truncated image.
    pub fn missing(&self) -> Option<Notice> {
        let (expected, found) = (self.super_block.len(), self.device.len());
        (expected > found).then_some(Notice::Truncated { expected, found })
    }
}

/// Returns whether a bucket contains something (Linux `fs/bcachefs/alloc_background_format.h`; the types of data are in
/// `bcachefs_format.h`, `BCH_DATA_TYPES`).
fn is_used(key: Key<'_>) -> bool {
    let at = match key.kind {
        kind::ALLOC_V2 => 3,
        kind::ALLOC_V3 => 15,
        kind::ALLOC_V4 => 14,
        _ => return false,
    };
    // free, cached, need_gc_gens, need_discard
    !matches!(u8_at(key.value, at), None | Some(0 | 5 | 8 | 9))
}
