//! A replaced file. The copy takes over its metadata where that of the source is not kept, because cp(1)
//! writes into the old file.

use obento_base::{Mode, Name};
use rustix::fs::{FileType, OFlags, Stat};

use super::Keep;
use super::dir::{Dir, OwnedMetadata, open_at};
use crate::{Metadata, Xattr};

/// The metadata of a regular file before it was replaced.
pub(super) struct Replaced {
    mode: Mode,
    owner: (u32, u32),
    xattrs: Vec<Xattr>,
}

impl Replaced {
    /// Returns the metadata of the file `name` with status `stat`, or `None` if it is not a regular file.
    pub fn of(dir: &Dir, name: &Name, stat: &Stat) -> Option<Self> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let file = open_at(dir, name, OFlags::WRONLY | OFlags::NONBLOCK, 0);
        let mut xattrs = file.ok().and_then(|file| crate::source::xattrs_of(&file).ok()).unwrap_or_default();
        // A write removes capabilities.
        xattrs.retain(|xattr| xattr.name != b"security.capability");
        // The bits of a mode are the low ones.
        let mut mode = Mode::new((stat.st_mode & 0o7777) as u16);
        if !rustix::process::geteuid().is_root() {
            // A write by a user other than root also clears these bits.
            mode = mode.without(Mode::SET_UID).without(Mode::SET_GID);
        }
        Some(Self { mode, owner: (stat.st_uid, stat.st_gid), xattrs })
    }

    /// Returns `meta` with the values of the old file where `keep` excludes those of the source, and the
    /// metadata to set.
    pub fn complete(&self, meta: &Metadata<'_>, keep: Keep) -> (OwnedMetadata, Keep) {
        let (uid, gid) = if keep.contains(Keep::OWNER) { (meta.uid, meta.gid) } else { self.owner };
        let mode = if keep.contains(Keep::MODE) { meta.mode } else { self.mode };
        let xattrs = if keep.contains(Keep::XATTRS) { meta.xattrs } else { &self.xattrs };
        let whole = Metadata { mode, uid, gid, xattrs, ..*meta };
        (OwnedMetadata::new(&whole), keep | Keep::OWNER | Keep::MODE | Keep::XATTRS)
    }
}
