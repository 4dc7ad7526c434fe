//! Adds and removes quota files, and the features `quota` and `project`.
//!
//! The files of users and groups are in reserved inodes; the file of projects is in a new inode.
//! Source: e2fsprogs misc/tune2fs.c `handle_quota_options`, `update_feature_set`; lib/support/mkquota.c
//! `quota_write_inode`, `quota_remove_inode`.

use alloc::sync::Arc;

use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice, Overlay};
use obento_driver::CheckOptions;

use super::commit::{Target, unfinished};
use super::edits::Edits;
use super::tune::{change_copies, usable};
use crate::allocator::InodeClass;
use crate::feature::RoCompat;
use crate::inode::InodeFlags;
use crate::locate;
use crate::quota::QuotaKind;
use crate::raw::RawSuperBlock;
use crate::super_block::SuperBlock;
use crate::writer::{Writer, cost};

/// The inode of the root directory, near which the file of projects is.
const ROOT: Ino = Ino(2);
/// `EXT4_USR_QUOTA_INO` and `EXT4_GRP_QUOTA_INO`.
const USER_INO: u32 = 3;
const GROUP_INO: u32 = 4;
const FEATURES: RoCompat = RoCompat::QUOTA.union(RoCompat::PROJECT);

/// A change of quotas. `None` preserves the present state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QuotaChange {
    /// The feature `quota`.
    pub quota: Option<bool>,
    /// The feature `project`.
    pub project: Option<bool>,
    /// The quota files of users, groups and projects.
    pub files: [Option<bool>; 3],
}

/// The features and the quota files of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotaState {
    quota: bool,
    pub project: bool,
    /// The inodes of the files of users, groups and projects.
    files: [bool; 3],
}

impl QuotaState {
    fn of(sb: &SuperBlock) -> Self {
        let quota = sb.ro_compat.contains(RoCompat::QUOTA);
        let raw = &sb.raw;
        let numbers = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        let files = numbers.map(|number| quota && number.get() != 0);
        Self { quota, project: sb.ro_compat.contains(RoCompat::PROJECT), files }
    }

    /// Returns the state of a volume after a change.
    pub(crate) fn after(sb: &SuperBlock, change: QuotaChange) -> Self {
        let before = Self::of(sb);
        let project = change.project.unwrap_or(before.project);
        let [mut user, mut group, mut of_projects] = before.files;
        match change.quota {
            Some(true) if !before.quota => (user, group, of_projects) = (true, true, project),
            Some(false) => (user, group, of_projects) = (false, false, false),
            _ => {}
        }
        // As in tune2fs, a new feature `project` includes the file of projects.
        if project && !before.project && change.quota != Some(false) {
            of_projects = true;
        }
        let mut files = [user, group, of_projects && project];
        for (file, wanted) in files.iter_mut().zip(change.files) {
            *file = wanted.unwrap_or(*file);
        }
        // As in tune2fs, the feature `project` comes and goes with the file.
        let [.., had_file] = before.files;
        let [.., has_file] = files;
        let project = change.project.unwrap_or(if had_file == has_file { project } else { has_file });
        Self { quota: files.contains(&true), project, files }
    }

    fn features(self) -> RoCompat {
        let mut features = RoCompat::empty();
        features.set(RoCompat::QUOTA, self.quota);
        features.set(RoCompat::PROJECT, self.project);
        features
    }
}

/// Changes quotas, and updates the backups of the super block. Without a journal, the volume is marked as having errors
/// until the change is complete; a check completes or reverts a change that was interrupted.
///
/// # Errors
///
/// - `Invalid`: the primary super block or the journal is damaged; a check repairs them first.
/// - `NoSpace`: the volume has no space for the quota files. Nothing was changed.
/// - The device failed.
pub(crate) fn change_quotas(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    change: QuotaChange,
) -> Result<()> {
    let sb = usable(device)?;
    let (before, after) = (QuotaState::of(&sb), QuotaState::after(&sb, change));
    if before == after {
        return Ok(());
    }
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    let mut edits = Edits::open(&copy, options)?;
    let files = before.files.into_iter().zip(after.files);
    for ((was, is), ino) in files.clone().zip(edits.view.quota_inodes()) {
        if was && !is {
            edits.remove_quota_file(ino, options)?;
        }
    }
    let mut added = [None; 3];
    for (((was, is), kind), added) in files.zip(QuotaKind::ALL).zip(&mut added) {
        if is && !was {
            *added = Some(edits.quota_inode(kind, options)?);
        }
    }
    edits.super_block(|raw| {
        let features = raw.s_feature_ro_compat.get() & !FEATURES.bits() | after.features().bits();
        raw.s_feature_ro_compat.set(features);
        for (number, added) in numbers(raw).into_iter().zip(added) {
            number.set(added.unwrap_or(number.get()));
        }
    })?;
    // The usage is counted with the new features.
    let mut edits = Edits::open(&copy, options)?;
    for ino in added.into_iter().flatten() {
        // A previous record may refer to blocks of another file.
        edits.begin_file(ino)?;
        if !edits.make_quota_file(ino, &options.clock)? {
            return Err(Error::NoSpace);
        }
        let immutable = InodeFlags::IMMUTABLE.bits();
        edits.inode(ino, |raw| raw.i_flags.set(raw.i_flags.get() | immutable))?;
    }
    let features = before.features() | after.features();
    let after = locate::find(&*copy)?.super_block;
    let mut target = Target::new(device, options);
    if added != [None; 3] {
        if !target.is_atomic(&copy) {
            announce(&mut target, device, options, added, features)?;
        }
        // A check that must use a backup, because the super block is torn, then also completes these files.
        change_copies(&**device, &sb, &|_: &SuperBlock, raw: &mut RawSuperBlock| {
            name_files(raw, added, features);
            Ok::<(), Error>(())
        })?;
    }
    target.commit_at_once(&copy)?;
    change_copies(&**device, &after, &|sb: &SuperBlock, raw: &mut RawSuperBlock| {
        copy_quota_fields(&sb.raw, raw);
        Ok::<(), Error>(())
    })
}

/// Allocates and clears the inodes of added quota files, and stores their numbers in the super block, on a
/// volume that is marked as having errors. If the rest of the change is interrupted, a check thus completes
/// these files: a complete file without a name in the super block would be a lost file.
fn announce(
    target: &mut Target<'_>,
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    added: [Option<u32>; 3],
    features: RoCompat,
) -> Result<()> {
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    let mut edits = Edits::open(&copy, options)?;
    for (kind, ino) in QuotaKind::ALL.into_iter().zip(added) {
        let Some(ino) = ino else { continue };
        // The choice of an inode may depend on space that the change frees.
        if edits.quota_inode(kind, options)? != ino {
            return Ok(());
        }
        edits.clear_inode(ino)?;
    }
    edits.super_block(|raw| {
        unfinished(raw);
        name_files(raw, added, features);
    })?;
    target.commit_at_once(&copy)
}

/// Adds the features, and stores the numbers of added quota files.
fn name_files(raw: &mut RawSuperBlock, added: [Option<u32>; 3], features: RoCompat) {
    raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | features.bits());
    for (number, added) in numbers(raw).into_iter().zip(added) {
        number.set(added.unwrap_or(number.get()));
    }
}

/// Returns the fields with the numbers of the quota files.
fn numbers(raw: &mut RawSuperBlock) -> [&mut obento_base::wire::le::U32; 3] {
    [&mut raw.s_usr_quota_inum, &mut raw.s_grp_quota_inum, &mut raw.s_prj_quota_inum]
}

/// Copies the fields of quotas to a backup of the super block.
fn copy_quota_fields(from: &RawSuperBlock, to: &mut RawSuperBlock) {
    let bits = FEATURES.bits();
    let features = to.s_feature_ro_compat.get() & !bits | from.s_feature_ro_compat.get() & bits;
    to.s_feature_ro_compat.set(features);
    to.s_usr_quota_inum = from.s_usr_quota_inum;
    to.s_grp_quota_inum = from.s_grp_quota_inum;
    to.s_prj_quota_inum = from.s_prj_quota_inum;
}

impl Edits {
    /// Frees the blocks of a quota file, and its inode, unless that is reserved.
    fn remove_quota_file(&mut self, ino: u32, options: &CheckOptions) -> Result<()> {
        let is_reserved = ino < self.view.sb.first_ino;
        self.with_writer(&options.clock, |writer| {
            writer.drop_blocks(&mut writer.lock_inode(Ino(ino.into()))?)?;
            if is_reserved { Ok(()) } else { free(writer, Ino(ino.into())) }
        })?;
        self.drop_quota_file(ino)?;
        if is_reserved { self.clear_inode(ino) } else { Ok(()) }
    }

    /// Returns the inode of a new quota file, which is allocated for the file of projects.
    fn quota_inode(&mut self, kind: QuotaKind, options: &CheckOptions) -> Result<u32> {
        match kind {
            QuotaKind::User => return Ok(USER_INO),
            QuotaKind::Group => return Ok(GROUP_INO),
            QuotaKind::Project => {}
        }
        let ino = self.with_writer(&options.clock, |writer| {
            let mut txn = writer.begin(cost::NEW_INODE)?;
            let new = writer.allocator().allocate_inode(&mut txn, ROOT, InodeClass::Other)?;
            txn.commit();
            Ok(new.ino)
        })?;
        u32::try_from(ino.0).map_err(|_| Error::Invalid)
    }
}

/// Frees an inode without blocks.
fn free(writer: &Writer, ino: Ino) -> Result<()> {
    let inode = writer.lock_inode(ino)?;
    let mut txn = writer.begin(cost::FREE_INODE)?;
    let mut edit = writer.edit_inode(&mut txn, inode.view())?;
    writer.free_inode(&mut txn, &mut edit)?;
    txn.commit();
    Ok(())
}
