//! Quota files: the usage of users, groups and projects, which Linux updates from then on.
//!
//! Source: e2fsprogs `lib/support/mkquota.c`; the files are those of [`crate::quota`].
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, to_u64, to_usize};
use obento_driver::FormatError;

use super::draft::Draft;
use super::geometry::FIRST_INO;
use super::inodes::{NewInode, PRIVATE_FILE, ROOT_INO};
use super::options::RequestedSettings;
use crate::feature::RoCompat;
use crate::inode::InodeFlags;
use crate::quota::{BLOCK, Entries, QuotaFile, QuotaKind, entry};
use crate::raw::RawInode;

/// After lost+found.
const PROJECT_INO: u32 = FIRST_INO + 1;

/// Returns `EXT4_USR_QUOTA_INO` or `EXT4_GRP_QUOTA_INO`; the inode of project quotas is not reserved.
fn ino_of(kind: QuotaKind) -> u32 {
    match kind {
        QuotaKind::User => 3,
        QuotaKind::Group => 4,
        QuotaKind::Project => PROJECT_INO,
    }
}

impl Draft {
    /// Creates the quota files, if requested. Fails with `TooSmall`.
    pub fn make_quota_files(&mut self, wishes: &RequestedSettings) -> Result<(), FormatError> {
        if !self.sb.ro_compat.contains(RoCompat::QUOTA) {
            return Ok(());
        }
        let mut kinds = wishes.quotas.clone();
        if self.sb.ro_compat.contains(RoCompat::PROJECT) {
            kinds.insert(QuotaKind::Project);
        }
        // They do not count themselves.
        let files = kinds
            .into_iter()
            .map(|kind| Ok((kind, QuotaFile::new(kind, &self.usages(kind)).map_err(FormatError::from)?)));
        let files: Vec<_> = files.collect::<Result<_, FormatError>>()?;
        files.iter().try_for_each(|(kind, file)| self.make_quota_file(*kind, file))
    }

    /// Updates the usage, once everything is laid out. The set of owners does not change, so that the files keep their
    /// size. Fails with `Device` if memory is short.
    pub fn count_owners(&mut self, owners: [Entries; 3]) -> Result<(), FormatError> {
        self.owners = owners;
        for (kind, places) in core::mem::take(&mut self.quota_places) {
            let file = QuotaFile::new(kind, &self.usages(kind)).map_err(FormatError::from)?;
            self.put_quota_blocks(&file, &places)?;
        }
        Ok(())
    }

    /// Returns the usage of the directories, and the other known owners.
    fn usages(&self, kind: QuotaKind) -> Entries {
        let nth = QuotaKind::ALL.iter().position(|&known| known == kind).unwrap_or(0);
        let mut usages = self.owners.get(nth).cloned().unwrap_or_default();
        for ino in [ROOT_INO, FIRST_INO] {
            let record = self.inodes.get(&ino);
            let Some((inode, _)) = record.and_then(|record| RawInode::read_from_prefix(record).ok()) else {
                continue;
            };
            let id = kind.id(&inode, None);
            let usage = usages.entry(id).or_insert_with(|| entry(id, 0, 0));
            usage.count(u64::from(inode.i_blocks_lo.get()) * 512);
        }
        usages
    }

    fn make_quota_file(&mut self, kind: QuotaKind, file: &QuotaFile) -> Result<(), FormatError> {
        let ino = ino_of(kind);
        let raw = &mut self.sb.raw;
        match kind {
            QuotaKind::User => raw.s_usr_quota_inum.set(ino),
            QuotaKind::Group => raw.s_grp_quota_inum.set(ino),
            QuotaKind::Project => raw.s_prj_quota_inum.set(ino),
        }
        if kind == QuotaKind::Project {
            self.note_inode_search(ino);
            self.take_inode(ino, false);
        }
        let per_block = self.quota_blocks_per_block();
        let order = file.order.iter().map(|block| block.checked_div(per_block).unwrap_or(0));
        let scattered = self.map_in_order(ino, order)?;
        self.put_quota_blocks(file, &scattered.places)?;
        self.quota_places.push((kind, scattered.places));
        self.add_inode(&NewInode {
            ino,
            mode: PRIVATE_FILE,
            owner: (0, 0),
            links: 1,
            size: to_u64(file.blocks.len() * BLOCK),
            blocks: scattered.owned,
            flags: self.map_flags().union(InodeFlags::IMMUTABLE),
            i_block: scattered.i_block,
        })
    }

    fn quota_blocks_per_block(&self) -> u32 {
        u32::try_from(self.block_len().checked_div(BLOCK).unwrap_or(1)).unwrap_or(1).max(1)
    }

    fn put_quota_blocks(&mut self, file: &QuotaFile, places: &BTreeMap<u32, u64>) -> Result<(), FormatError> {
        let per_block = self.quota_blocks_per_block();
        for (&at, &number) in places {
            let mut bytes = self.zeroed()?;
            let first = to_usize((at * per_block).into());
            let content = file.blocks.iter().skip(first).take(to_usize(per_block.into())).flatten();
            bytes.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
            self.blocks.insert(number, bytes);
        }
        Ok(())
    }

    /// Returns the first inode that the format has not used so far.
    pub fn next_ino(&self) -> u32 {
        if self.sb.raw.s_prj_quota_inum.get() == 0 { PROJECT_INO } else { PROJECT_INO + 1 }
    }
}
