//! Orphans: inodes without a name count as free, and interrupted truncations are completed.
//!
//! An inode without a name only gets a time of deletion, since the check counts none of its blocks as used. The
//! driver truncates an inode with a name, which must be on the list for that.
//! Source: e2fsprogs `e2fsck/super.c` `release_orphan_inodes`; Linux `Documentation/filesystems/ext4/orphan.rst`.

use alloc::sync::Arc;

use obento_base::wire::FromBytes;
use obento_base::{Ino, Result};
use obento_env::Clock;

use super::super::orphans::{clear, list_and_file};
use super::edits::Edits;
use crate::feature::RoCompat;
use crate::raw::RawInode;

impl Edits {
    /// Processes all orphans.
    pub(super) fn release_orphans(&mut self, clock: &Arc<dyn Clock>) -> Result<()> {
        let (orphans, blocks) = list_and_file(&self.view)?;
        let links = |this: &Self, ino: u32| -> Result<u16> {
            let record = this.record(ino)?;
            Ok(RawInode::ref_from_prefix(&record).map_or(0, |(raw, _)| raw.i_links_count.get()))
        };
        for &ino in &orphans {
            if links(self, ino)? > 0 {
                // Damage may prevent the truncation; it is reported separately.
                let _ = self.with_writer(clock, |writer| writer.end_truncation(Ino(ino.into())));
            }
        }
        let now = self.now();
        for &ino in &orphans {
            let time = if links(self, ino)? == 0 { now } else { 0 };
            self.inode(ino, |raw| raw.i_dtime.set(time))?;
        }
        for (block, seed) in blocks {
            let sealed = self.view.sb.has_metadata_csum().then_some(seed);
            self.block(block, |bytes| clear(bytes, block, sealed))?;
        }
        self.super_block(|raw| {
            raw.s_last_orphan.set(0);
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits());
        })
    }
}
