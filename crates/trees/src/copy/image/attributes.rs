//! Sets the metadata of an entry after it was created.

use obento_base::{Attr, Error, FileKind, Mode, Name};
use obento_driver::{SetAttr, StoredProperties, TimeChange, XattrMode};
use obento_host::Metadata;
use obento_host::tree::{Keep, Loss, NewMode, Trust};
use obento_vfs::Node;

use super::{ImageWriter, Inherits, OWNER};
use crate::acls;
use crate::copy::{ProblemReason, Shortage};

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// The attributes of both access control lists that an entry may have.
const LISTS: [&[u8]; 2] = [ACCESS_ACL, DEFAULT_ACL];

/// An entry that was just created.
pub(super) struct CreatedEntry<'a> {
    pub node: &'a Node,
    /// The file that it replaces.
    pub replaces: Option<&'a (Node, Attr)>,
    /// The properties that it inherited from its directory.
    pub inherits: Inherits,
}

impl ImageWriter {
    /// Returns the mode of a new entry.
    pub(super) fn final_mode(&self, meta: &Metadata<'_>, kind: FileKind) -> Mode {
        let bits = meta.mode.bits();
        if !self.options.keep.contains(Keep::MODE) {
            // A default list replaces the umask.
            let is_list = self.top().inherits.acl && self.options.new_mode == NewMode::Source;
            let umask = if is_list { 0 } else { self.umask };
            return Mode::new(self.options.new_mode.of(kind, meta.mode).bits() & !umask);
        }
        match self.options.trust {
            Trust::Full => Mode::new(bits),
            Trust::Untrusted => Mode::new(bits & 0o1777),
        }
    }

    /// Sets the metadata of the source that creation did not set.
    pub(super) fn apply(
        &mut self,
        made: &CreatedEntry<'_>,
        meta: &Metadata<'_>,
        name: Option<&Name>,
    ) -> Result<(), ProblemReason> {
        let keep = self.options.keep;
        self.count_lacking(made.node, meta, name)?;
        if made.inherits.acl && (self.sets_mode(made) || made.replaces.is_some()) {
            // With a plain mode, a directory still passes its default list on, as in GNU cp.
            let is_kept = keep.contains(Keep::MODE) || made.replaces.is_some();
            self.remove_lists(made.node, if is_kept { &LISTS } else { &LISTS[..1] }, name)?;
        }
        let kept = meta.xattrs.iter().filter(|xattr| keep.includes(xattr));
        let mut lost_list = None;
        for xattr in kept {
            let is_stored = self.set_xattr(made.node, &xattr.name, &xattr.value, name)?;
            if !is_stored && xattr.name == ACCESS_ACL {
                lost_list = Some(&xattr.value);
            }
        }
        let is_file = made.node.kind() == Ok(FileKind::Regular);
        if let Some((before, _)) = made.replaces.filter(|(_, attr)| is_file && attr.kind == FileKind::Regular)
        {
            let mut left = before.list_xattrs().unwrap_or_default();
            left.retain(|attribute| !keep.includes_name(attribute));
            left.sort_unstable();
            for attribute in left {
                if let Ok(value) = before.get_xattr(&attribute) {
                    self.set_xattr(made.node, &attribute, &value, name)?;
                }
            }
        }
        self.set_attr(made, meta, name)?;
        match lost_list {
            // Last, because the mode of the source shows the mask where it would show the group.
            Some(value) if self.limits.keeps.contains(StoredProperties::MODES) => {
                self.narrow_mode(made.node, value, name)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the entry gets a mode that does not depend on its directory.
    fn sets_mode(&self, made: &CreatedEntry<'_>) -> bool {
        let is_plain = made.replaces.is_none() && self.options.new_mode == NewMode::Plain;
        self.options.keep.contains(Keep::MODE) || is_plain
    }

    /// Returns the set-group-ID bit that a new directory inherits, if modes are not kept.
    fn inherited_bits(&self, made: &CreatedEntry<'_>, kind: FileKind) -> Mode {
        let is_kept = self.options.keep.contains(Keep::MODE);
        let inherits = made.inherits.group && kind == FileKind::Directory && !is_kept;
        if inherits { Mode::SET_GID } else { Mode::new(0) }
    }

    /// Removes the access control lists of `node`, so that the mode alone defines its permissions.
    fn remove_lists(&self, node: &Node, lists: &[&[u8]], name: Option<&Name>) -> Result<(), ProblemReason> {
        for list in lists {
            match self.vfs.remove_xattr(OWNER, node, list) {
                Ok(()) | Err(Error::NoData | Error::NotSupported) => {}
                Err(error) => return Err(self.failed(name, error)),
            }
        }
        Ok(())
    }

    /// Counts an owner or mode that the format cannot store. The root directory is not counted.
    fn count_lacking(
        &mut self,
        node: &Node,
        meta: &Metadata<'_>,
        name: Option<&Name>,
    ) -> Result<(), ProblemReason> {
        let lacks = |asked, kept| self.options.keep.contains(asked) && !self.limits.keeps.contains(kept);
        let is_large = !self.limits.fits_owner(meta.uid, meta.gid) && self.options.keep.contains(Keep::OWNER);
        let (owner, mode) = (
            lacks(Keep::OWNER, StoredProperties::OWNERS) || is_large,
            lacks(Keep::MODE, StoredProperties::MODES),
        );
        if node.is_root() || !owner && !mode {
            return Ok(());
        }
        let attr = node.attr().map_err(|error| self.failed(name, error))?;
        let lost = [
            (owner && (attr.uid, attr.gid) != (meta.uid, meta.gid), Loss::Owner, Error::NotPermitted),
            (mode && attr.mode != self.final_mode(meta, attr.kind), Loss::Mode, Error::NotSupported),
        ];
        for (_, loss, error) in lost.into_iter().filter(|(is_lost, ..)| *is_lost) {
            let path = self.host_path(name);
            self.report.refused(loss, error, || path);
        }
        Ok(())
    }

    fn set_attr(
        &mut self,
        made: &CreatedEntry<'_>,
        meta: &Metadata<'_>,
        name: Option<&Name>,
    ) -> Result<(), ProblemReason> {
        let (keep, mut change) = (self.options.keep, SetAttr::default());
        // Replaces the properties that the entry inherited from its directory.
        let before = made.replaces.map(|(_, attr)| attr);
        if made.inherits.group {
            let owner = if keep.contains(Keep::OWNER) {
                Some((meta.uid, meta.gid))
            } else {
                before.map(|before| (before.uid, before.gid))
            };
            (change.uid, change.gid) = owner.unzip();
        }
        let kind = made.node.kind().map_err(|error| self.failed(name, error))?;
        if (made.inherits.group || made.inherits.acl) && kind != FileKind::Symlink {
            change.mode = match self.sets_mode(made) {
                true => Some(Mode::new(
                    self.final_mode(meta, kind).bits() | self.inherited_bits(made, kind).bits(),
                )),
                false => before.map(|before| before.mode),
            };
        }
        if keep.contains(Keep::TIMES) {
            change.atime = Some(TimeChange::At(meta.atime));
            change.mtime = Some(TimeChange::At(meta.mtime));
        }
        self.change(made.node, change, name)
    }

    /// Changes attributes. Counts a time or owner that the format cannot store.
    pub(super) fn change(
        &mut self,
        node: &Node,
        change: SetAttr,
        name: Option<&Name>,
    ) -> Result<(), ProblemReason> {
        if change == SetAttr::default() {
            return Ok(());
        }
        match self.vfs.set_attr(OWNER, node, &change) {
            Ok(held) => {
                // The root directory is not counted, as in `count_lacking`.
                if !node.is_root() && self.is_other_time(&held, &change) {
                    let path = self.host_path(name);
                    self.report.refused(Loss::Times, Error::OutOfRange, || path);
                }
                Ok(())
            }
            Err(error @ Error::OutOfRange) if change.atime.is_some() || change.mtime.is_some() => {
                let path = self.host_path(name);
                self.report.refused(Loss::Times, error, || path);
                self.change(node, SetAttr { atime: None, mtime: None, ..change }, name)
            }
            Err(error @ Error::OutOfRange) if change.uid.is_some() => {
                let path = self.host_path(name);
                self.report.refused(Loss::Owner, error, || path);
                self.change(node, SetAttr { uid: None, gid: None, ..change }, name)
            }
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// Returns whether a stored time differs from the requested one, because the format has a coarser
    /// resolution or a smaller range.
    fn is_other_time(&self, held: &Attr, change: &SetAttr) -> bool {
        let is_other = |held, asked: Option<TimeChange>| matches!(asked, Some(TimeChange::At(asked)) if !self.limits.is_same_time(held, asked));
        let keeps_atime = self.limits.keeps.contains(StoredProperties::ATIME);
        is_other(held.mtime, change.mtime) || keeps_atime && is_other(held.atime, change.atime)
    }

    /// Removes from the group of `node` the permissions that only the mask of the lost list `value` allowed.
    fn narrow_mode(&mut self, node: &Node, value: &[u8], name: Option<&Name>) -> Result<(), ProblemReason> {
        let mode = node.attr().map_err(|error| self.failed(name, error))?.mode;
        let mode = Some(acls::mode_without(mode, value));
        self.change(node, SetAttr { mode, ..SetAttr::default() }, name)
    }

    /// Sets an attribute. Returns whether the volume stored it; a loss is counted.
    fn set_xattr(
        &mut self,
        node: &Node,
        attribute: &[u8],
        value: &[u8],
        name: Option<&Name>,
    ) -> Result<bool, ProblemReason> {
        let loss = if attribute == ACCESS_ACL || attribute == DEFAULT_ACL { Loss::Acl } else { Loss::Xattr };
        let guarded = attribute.starts_with(b"security.") || attribute.starts_with(b"trusted.");
        if guarded && self.options.trust == Trust::Untrusted {
            let path = self.host_path(name);
            self.report.lose(loss, None, || path);
            return Ok(false);
        }
        match self.vfs.set_xattr(OWNER, node, attribute, value, XattrMode::Set) {
            Ok(()) => Ok(true),
            Err(error @ (Error::NotSupported | Error::OutOfRange | Error::NotPermitted | Error::Invalid)) => {
                let path = self.host_path(name);
                self.report.refused(loss, error, || path);
                Ok(false)
            }
            // The inode has no room for the attribute.
            Err(error) if Shortage::of_attribute(&self.vfs, error, value.len()).is_some() => {
                let path = self.host_path(name);
                self.report.refused(loss, error, || path);
                Ok(false)
            }
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// Sets the metadata of the current directory.
    pub(super) fn complete(&mut self) -> Result<(), ProblemReason> {
        let level = self.top_mut();
        let Some(owned) = level.meta.take() else { return self.restore() };
        let (node, inherits) = (level.node.clone(), level.inherits);
        let meta = Metadata { xattrs: &owned.xattrs, ..owned.meta };
        let fresh = matches!(level.names, super::Names::Fresh);
        if fresh {
            return self.apply(&CreatedEntry { node: &node, replaces: None, inherits }, &meta, None);
        }
        self.apply_over(&node, &meta, None)
    }

    /// Sets the kept metadata of the source on an entry that existed before.
    pub(super) fn apply_over(
        &mut self,
        node: &Node,
        meta: &Metadata<'_>,
        name: Option<&Name>,
    ) -> Result<(), ProblemReason> {
        let (keep, mut change) = (self.options.keep, SetAttr::default());
        if keep.contains(Keep::OWNER) && self.limits.keeps.contains(StoredProperties::OWNERS) {
            (change.uid, change.gid) = (Some(meta.uid), Some(meta.gid));
        }
        if keep.contains(Keep::MODE) {
            self.remove_lists(node, &LISTS, name)?;
            let kind = node.kind().map_err(|error| self.failed(name, error))?;
            change.mode = Some(self.final_mode(meta, kind));
        }
        self.change(node, change, name)?;
        self.apply(&CreatedEntry { node, replaces: None, inherits: Inherits::default() }, meta, name)
    }

    fn restore(&mut self) -> Result<(), ProblemReason> {
        let level = self.top_mut();
        let Some((atime, mtime)) = level.restored.take() else { return Ok(()) };
        let (node, at) = (level.node.clone(), |time| Some(TimeChange::At(time)));
        self.change(&node, SetAttr { atime: at(atime), mtime: at(mtime), ..SetAttr::default() }, None)
    }
}
