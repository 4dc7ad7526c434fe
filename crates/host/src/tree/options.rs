//! The options and the report of writing a tree.

use std::collections::BTreeMap;
use std::path::PathBuf;

use obento_base::{FileKind, Mode};
use rustix::io::Errno;

use super::Backup;
use crate::Xattr;
use crate::meta::is_acl_name;

/// What happens if the name exists. Directories are merged in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// Fails for this name.
    Fail,
    /// Removes the existing file first.
    #[default]
    Replace,
    /// Keeps the existing file.
    Keep,
    /// Keeps the existing file unless it is older.
    Update,
}

/// How far the image is trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// As far as permissions allow.
    #[default]
    Full,
    /// No set-user-ID and set-group-ID bits, no `security.*` and `trusted.*` attributes, no device nodes.
    Untrusted,
}

/// The mode of a new file if modes are not kept, before the umask is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NewMode {
    /// The permission bits of the source.
    #[default]
    Source,
    /// The mode of a file that a program creates, 0666, or 0777 for a directory: `cp --no-preserve=mode`.
    Plain,
}

impl NewMode {
    /// Returns the permission bits of a new entry of `kind` whose source has `mode`.
    pub fn of(self, kind: FileKind, mode: Mode) -> Mode {
        match (self, kind) {
            (Self::Source, _) => Mode::new(mode.bits() & 0o777),
            (Self::Plain, FileKind::Directory) => Mode::new(0o777),
            (Self::Plain, _) => Mode::new(0o666),
        }
    }
}

bitflags::bitflags! {
    /// The metadata to set. Other metadata has the values of newly created files.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Keep: u8 {
        /// Owner and group.
        const OWNER = 1;
        /// Permission bits, without the umask.
        const MODE = 2;
        /// Access and modification times.
        const TIMES = 4;
        /// Extended attributes and ACLs.
        const XATTRS = 8;
    }
}

impl Keep {
    /// Returns whether this includes `xattr`. An access control list is part of the permissions.
    pub fn includes(self, xattr: &Xattr) -> bool {
        self.includes_name(&xattr.name)
    }

    /// Returns whether this includes the extended attribute `name`.
    pub fn includes_name(self, name: &[u8]) -> bool {
        self.contains(if is_acl_name(name) { Self::MODE } else { Self::XATTRS })
    }
}

/// The options of writing a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeOptions {
    /// The treatment of existing names.
    pub existing: Existing,
    /// How far the image is trusted.
    pub trust: Trust,
    /// The metadata to set.
    pub keep: Keep,
    /// The mode of new files, if modes are not kept.
    pub new_mode: NewMode,
    /// The most bytes of data and of extended attributes to write, without holes.
    pub max_bytes: u64,
    /// The maximum number of files and directories that are written, including those that exist on the host.
    /// Each takes space there, also without data.
    pub max_files: u64,
    /// The backup of replaced files.
    pub backup: Backup,
}

impl TreeOptions {
    /// Returns whether `xattr` is set on a file for which `keep` applies.
    pub fn sets(&self, xattr: &Xattr, keep: Keep) -> bool {
        let is_risky = xattr.name.starts_with(b"security.") || xattr.name.starts_with(b"trusted.");
        keep.includes(xattr) && !(is_risky && self.trust == Trust::Untrusted)
    }
}

/// Keeps everything and replaces existing files: `cp -a`.
impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            existing: Existing::Replace,
            trust: Trust::Full,
            keep: Keep::all(),
            new_mode: NewMode::Source,
            max_bytes: u64::MAX,
            max_files: u64::MAX,
            backup: Backup::None,
        }
    }
}

/// The result for an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// The entry was created.
    Created,
    /// The existing entry stays, depending on [`Existing`].
    Skipped,
    /// The entry could not be created, and the report counts it.
    Dropped,
}

/// A property that could not be kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// Owner or group.
    Owner,
    /// A set-user-ID or set-group-ID bit.
    SpecialBits,
    /// Permission bits.
    Mode,
    /// An extended attribute.
    Xattr,
    /// An ACL.
    Acl,
    /// Attribute flags, such as that of an immutable file.
    Flags,
    /// The number of a project.
    Project,
    /// A time.
    Times,
    /// A hard link: the name became a separate file.
    HardLink,
    /// A device node.
    Device,
    /// A FIFO or socket.
    Special,
    /// A symbolic link.
    Symlink,
    /// A file, or a directory with its contents, because of its name.
    Name,
}

impl Loss {
    /// Returns whether a whole entry is missing, and not only a property of it.
    pub fn is_entry(self) -> bool {
        matches!(self, Self::Device | Self::Special | Self::Symlink | Self::Name)
    }
}

/// The losses of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// The number of losses.
    pub count: u64,
    /// The first few with their reasons. The list is empty if [`Trust::Untrusted`] was the reason, or if the
    /// owner could not be kept either.
    pub examples: Vec<(PathBuf, Option<Errno>)>,
}

impl Lost {
    /// The most examples.
    pub const EXAMPLES: usize = 3;
}

/// The result of writing a tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Regular files created.
    pub files: u64,
    /// Directories created.
    pub directories: u64,
    /// Other entries created: symbolic links, nodes, further hard links.
    pub others: u64,
    /// Bytes of data written.
    pub bytes: u64,
    /// The properties that could not be kept.
    pub lost: BTreeMap<Loss, Lost>,
}

impl Report {
    /// Counts a property of `path` that could not be kept.
    pub fn lose(&mut self, loss: Loss, errno: Option<Errno>, path: impl FnOnce() -> PathBuf) {
        let lost = self.lost.entry(loss).or_default();
        lost.count += 1;
        if lost.examples.len() < Lost::EXAMPLES {
            lost.examples.push((path(), errno));
        }
    }

    /// Counts a property of `path` that a volume refused to store.
    pub fn refused(&mut self, loss: Loss, error: obento_base::Error, path: impl FnOnce() -> PathBuf) {
        self.lose(loss, Some(Errno::from_raw_os_error(error.errno().0)), path);
    }

    /// Adds the report of another cursor.
    pub(super) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.others += other.others;
        self.bytes += other.bytes;
        for (loss, more) in other.lost {
            let lost = self.lost.entry(loss).or_default();
            lost.count += more.count;
            let room = Lost::EXAMPLES.saturating_sub(lost.examples.len());
            lost.examples.extend(more.examples.into_iter().take(room));
        }
    }
}
