//! Repairs that need space: the root, `lost+found`, names for unconnected inodes.
//!
//! The driver itself makes them on the copy, without a journal, once bitmaps and counts are right.
//! Source: e2fsprogs `e2fsck/pass3.c` `e2fsck_get_lost_and_found`, `e2fsck_reconnect_file`; `pass4.c`
//! `disconnect_inode`; `super.c` `release_orphan_inodes`.

use alloc::format;
use alloc::sync::Arc;
use core::time::Duration;

use obento_base::wire::FromBytes;
use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{Journalling, NewNode, RenameFlags};
use obento_env::Clock;
use obento_journal::Log;

use super::edits::{Copy, Edits};
use crate::feature::Incompat;
use crate::inode::InodeFlags;
use crate::ops::RenameEnd;
use crate::raw::{RawDirEntry, RawInode};
use crate::volume::Volume;
use crate::writer::Writer;

const LOST_FOUND: &[u8] = b"lost+found";
const ROOT: u32 = 2;
/// Cache size of the volume that is changed.
const CACHE: usize = 8 << 20;

impl Edits {
    /// Restores the root: a hidden root exists, with everything below it.
    pub(super) fn find_root(&mut self) -> Result<()> {
        match self.view.group_that_hides(ROOT) {
            Some(group) => self.mark_used(group),
            None => self.make_root(),
        }
    }

    /// Gives a directory that cannot be reached a name. A directory that is its own ancestor loses the name that it has
    /// in `parent`.
    pub(super) fn connect(&mut self, dir: u32, parent: u32, clock: &Arc<dyn Clock>) -> Result<()> {
        self.clear_named(parent, dir)?;
        self.adopt(dir, clock)
    }

    /// Gives an inode without a name one, or frees the inode if it contains nothing of value.
    pub(super) fn name_or_clear(&mut self, ino: u32, clock: &Arc<dyn Clock>) -> Result<()> {
        if self.is_empty(ino)? { self.clear_inode(ino) } else { self.adopt(ino, clock) }
    }

    /// Returns whether an inode contains nothing of value.
    fn is_empty(&self, ino: u32) -> Result<bool> {
        let record = self.record(ino)?;
        let Ok((raw, _)) = RawInode::ref_from_prefix(&record) else { return Ok(false) };
        let is_value = self.is_value(ino)?;
        let is_inline = raw.i_flags.get() & InodeFlags::INLINE_DATA.bits() != 0;
        let has_blocks = raw.i_blocks_lo.get() != 0 || raw.l_i_blocks_high.get() != 0;
        let is_file = FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Regular);
        Ok(is_value || is_file && !has_blocks && !is_inline)
    }

    /// Gives inode `ino` a name in `lost+found`.
    fn adopt(&mut self, ino: u32, clock: &Arc<dyn Clock>) -> Result<()> {
        let name = format!("#{ino}");
        self.with_writer(clock, |writer| {
            let home = match lost_found(writer) {
                // As in e2fsck, if there is no space for a directory.
                Err(Error::NoSpace) => Ino(ROOT.into()),
                home => home?,
            };
            writer.adopt(Ino(ino.into()), home, Name::new(name.as_bytes()).map_err(|_| Error::Invalid)?)
        })
    }

    /// Calls a function with a writer for the copy.
    pub(super) fn with_writer<T>(
        &mut self,
        clock: &Arc<dyn Clock>,
        change: impl FnOnce(&Writer) -> Result<T>,
    ) -> Result<T> {
        let device: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&self.device);
        let volume = Arc::new(Volume::new(device, self.view.sb.clone(), CACHE)?);
        let journalling = Journalling { commit_interval: Duration::ZERO, ..Journalling::default() };
        let writer = Writer::new(
            volume,
            Log::None,
            Arc::clone(clock),
            &journalling,
            None,
            crate::writer::QuotaUpdates::Off,
        )?;
        let changed = change(&writer);
        writer.txns().close()?;
        changed
    }

    /// Turns inode 2 into a directory again: with its blocks, if the first begins as that of the root. With an empty
    /// root, all its entries are found as unconnected.
    fn make_root(&mut self) -> Result<()> {
        let (extents, now) = (self.view.sb.incompat.contains(Incompat::EXTENT), self.now());
        self.inode(ROOT, |raw| {
            raw.i_mode.set(0o040_755);
            raw.i_links_count.set(2);
            raw.i_dtime.set(0);
            raw.i_flags.set(if extents { InodeFlags::EXTENTS.bits() } else { 0 });
            for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
                time.set(now);
            }
        })?;
        if self.begins_as_root() {
            return Ok(());
        }
        self.inode(ROOT, |raw| raw.i_block = [0; 60])?;
        if extents { self.empty_root(ROOT) } else { Ok(()) }
    }

    /// Returns whether the first block of inode 2 is that of a directory with the number 2.
    fn begins_as_root(&self) -> bool {
        let first = self.dir_blocks(ROOT).ok().and_then(|blocks| blocks.first().copied());
        let bytes = first.and_then(|block| self.view.read(block, 1).ok()).unwrap_or_default();
        let head = RawDirEntry::ref_from_prefix(&bytes).ok();
        head.is_some_and(|(raw, rest)| {
            raw.inode.get() == ROOT && raw.name_len == 1 && rest.first() == Some(&b'.')
        })
    }
}

/// Returns `lost+found`, which is created if necessary. Another file of that name is renamed, and so is an encrypted
/// directory, in which no names can be created without its key.
fn lost_found(writer: &Writer) -> Result<Ino> {
    let (root, name) = (Ino(ROOT.into()), Name::new(LOST_FOUND).map_err(|_| Error::Invalid)?);
    let volume = writer.volume();
    let takes_names = |ino| volume.inode(ino).map(|inode| inode.is_dir() && !inode.has(InodeFlags::ENCRYPT));
    match volume.inode(root).and_then(|dir| volume.lookup(&dir, name)) {
        Ok(ino) if takes_names(ino)? => Ok(ino),
        Ok(ino) => {
            let other = format!("#{}", ino.0);
            let to = Name::new(other.as_bytes()).map_err(|_| Error::Invalid)?;
            writer.rename(
                RenameEnd { dir: root, name },
                RenameEnd { dir: root, name: to },
                RenameFlags::NO_REPLACE,
            )?;
            lost_found(writer)
        }
        Err(Error::NotFound) => {
            let (kind, mode) = (FileKind::Directory, Mode::new(0o700));
            let node = NewNode { kind, mode, uid: 0, gid: 0, rdev: DeviceNumber::default(), target: &[] };
            writer.create(root, name, &node).map(|attr| attr.ino)
        }
        Err(error) => Err(error),
    }
}
