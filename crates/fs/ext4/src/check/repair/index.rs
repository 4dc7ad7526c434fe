//! Repairs of indexes: a wrong index is rebuilt from the entries, and the directory stays indexed.
//!
//! If that is impossible (one block, names that cannot be hashed, no space for the index), the index is removed: its
//! nodes become blocks without entries, and the directory becomes linear.
//! Invariant: indexes are repaired after everything else in the directory, since the repair relies on the records
//! ([`Stage::Indexes`]).
//!
//! [`Stage::Indexes`]: super::super::issue::Stage
//! Source: e2fsprogs `e2fsck/rehash.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice;
use obento_env::Clock;

use super::edits::{Copy, Edits};
use crate::dir::{DirShape, Rebuild};
use crate::inode::InodeFlags;
use crate::volume::Volume;
use crate::writer::{Writer, cost};

/// Cache size for reading an inode.
const SMALL_CACHE: usize = 1 << 20;

impl Edits {
    /// Repairs an index. One directory may have several issues of its index.
    pub(super) fn repair_index(&mut self, dir: u32, clock: &Arc<dyn Clock>) -> Result<()> {
        if self.rebuilt.insert(dir) && !self.rebuild(dir, clock)? {
            self.drop_index(dir)?;
        }
        Ok(())
    }

    /// Rebuilds the index of a directory. Returns false if that is impossible.
    fn rebuild(&mut self, dir: u32, clock: &Arc<dyn Clock>) -> Result<bool> {
        match self.try_rebuild(dir, clock) {
            Ok(done) => Ok(done),
            // e2fsck, too, makes it linear if there is no space.
            Err(Error::Corrupt(_) | Error::Unsupported(_) | Error::NoSpace | Error::FileTooBig) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn try_rebuild(&mut self, dir: u32, clock: &Arc<dyn Clock>) -> Result<bool> {
        let mut places = self.dir_blocks(dir)?;
        let shape = self.shape(dir)?;
        if shape.new_index.is_none() || places.len() < 2 || places.len() != to_usize(shape.blocks.into()) {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        for place in &places {
            bytes.extend_from_slice(&self.view.read(*place, 1)?);
        }
        let entries = Rebuild::gather(&shape, &bytes)?;
        let mut blocks = shape.blocks.max(entries.fewest_blocks());
        let mut made = entries.build(blocks);
        if made.is_none() {
            // Entries that are packed by size alone may need a little more.
            blocks = blocks.saturating_add(blocks / 8).saturating_add(1);
            made = entries.build(blocks);
        }
        let Some(made) = made else { return Ok(false) };
        let more = blocks.saturating_sub(shape.blocks);
        if more > 0 {
            self.with_writer(clock, |writer| lengthen(writer, Ino(dir.into()), more, &shape))?;
            places = self.dir_blocks(dir)?;
        }
        if places.len() != to_usize(blocks.into()) {
            return Ok(false);
        }
        let size = to_usize(self.view.sb.block_size.into());
        for (place, block) in places.into_iter().zip(made.chunks_exact(size)) {
            self.put(place, block)?;
        }
        self.inode(dir, |raw| raw.i_flags.set(raw.i_flags.get() | InodeFlags::INDEX.bits()))?;
        Ok(true)
    }

    fn shape(&self, dir: u32) -> Result<DirShape> {
        let device: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&self.device);
        let volume = Volume::bare(device, self.view.sb.clone(), SMALL_CACHE);
        volume.shape(&volume.inode(Ino(dir.into()))?)
    }
}

/// Appends blocks without entries to a directory. Fails with `NoSpace` after appending some of them.
fn lengthen(writer: &Writer, dir: Ino, more: u32, shape: &DirShape) -> Result<()> {
    for _ in 0..more {
        let inode = writer.lock_inode(dir)?;
        let mut txn = writer.begin(cost::APPEND + cost::INODE)?;
        let mut edit = writer.edit_inode(&mut txn, inode.view())?;
        let (_, taken) = writer.append_dir_block(&mut txn, &mut edit)?;
        shape.blank_block(&mut txn.edit(&taken));
        writer.store_inode(&mut txn, &edit);
        txn.commit();
    }
    Ok(())
}
