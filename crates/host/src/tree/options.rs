//! What a caller asks of a tree, and what it is told in the end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use obento_base::{FileKind, Mode};
use rustix::io::Errno;

use super::Backup;

/// What to do where the target has the name already. Directories are merged, whatever this says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// An error for that name.
    Fail,
    /// The old one is removed first.
    #[default]
    Replace,
    /// The old one stays.
    Keep,
    /// The old one stays unless it is older.
    Update,
}

/// How far the image is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// As far as permissions go.
    #[default]
    Full,
    /// No set-user-ID and set-group-ID bits, no `security.*` and `trusted.*` attributes, no device nodes.
    Untrusted,
}

/// The mode of a new file whose mode is not kept, before the umask takes from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NewMode {
    /// The permission bits of the source.
    #[default]
    Source,
    /// That of a file that a program creates, 0666, or 0777 for a directory: `cp --no-preserve=mode`.
    Plain,
}

impl NewMode {
    /// The permission bits of a new entry of `kind` whose source has `mode`.
    pub fn of(self, kind: FileKind, mode: Mode) -> Mode {
        match (self, kind) {
            (Self::Source, _) => Mode::new(mode.bits() & 0o777),
            (Self::Plain, FileKind::Directory) => Mode::new(0o777),
            (Self::Plain, _) => Mode::new(0o666),
        }
    }
}

bitflags::bitflags! {
    /// What of the metadata to set; the rest is as if the files were made by hand.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Keep: u8 {
        /// Owner and group.
        const OWNER = 1;
        /// Permission bits without regard to the umask.
        const MODE = 2;
        /// Access and modification times.
        const TIMES = 4;
        /// Extended attributes and ACLs.
        const XATTRS = 8;
    }
}

/// How to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeOptions {
    /// Names that are taken.
    pub existing: Existing,
    /// How far the image is believed.
    pub trust: Trust,
    /// What of the metadata to set.
    pub keep: Keep,
    /// The mode of new files, if modes are not kept.
    pub new_mode: NewMode,
    /// The most bytes of data to write; holes are free.
    pub max_bytes: u64,
    /// What becomes of a file that is replaced.
    pub backup: Backup,
}

/// Everything as the source has it, old files replaced: `cp -a`.
impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            existing: Existing::Replace,
            trust: Trust::Full,
            keep: Keep::all(),
            new_mode: NewMode::Source,
            max_bytes: u64::MAX,
            backup: Backup::None,
        }
    }
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It is there now.
    Created,
    /// What was there stays, as [`Existing`] asks.
    Kept,
    /// It could not be made; the report counts it.
    Dropped,
}

/// What could not be kept.
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
    /// A hard link: the file became one of its own.
    HardLink,
    /// A device node.
    Device,
    /// A FIFO or socket.
    Special,
    /// A symbolic link.
    Symlink,
    /// A file or directory with what is in it, for its name.
    Name,
}

impl Loss {
    /// Whether an entry is missing, and not only something of it.
    pub fn is_entry(self) -> bool {
        matches!(self, Self::Device | Self::Special | Self::Symlink | Self::Name)
    }
}

/// How often something could not be kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// How many times.
    pub count: u64,
    /// The first few, with the reason; none where [`Trust::Untrusted`] was the reason or the owner could not be kept
    /// either.
    pub examples: Vec<(PathBuf, Option<Errno>)>,
}

impl Lost {
    /// How many examples are kept.
    pub const EXAMPLES: usize = 3;
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Regular files made.
    pub files: u64,
    /// Directories made.
    pub directories: u64,
    /// Other entries made: symbolic links, nodes, further hard links.
    pub others: u64,
    /// Bytes of data written.
    pub bytes: u64,
    /// What could not be kept.
    pub lost: BTreeMap<Loss, Lost>,
}

impl Report {
    /// Counts something at `path` that could not be kept.
    pub fn lose(&mut self, loss: Loss, errno: Option<Errno>, path: impl FnOnce() -> PathBuf) {
        let lost = self.lost.entry(loss).or_default();
        lost.count += 1;
        if lost.examples.len() < Lost::EXAMPLES {
            lost.examples.push((path(), errno));
        }
    }

    /// Counts something at `path` that a volume refused to keep.
    pub fn refused(&mut self, loss: Loss, error: obento_base::Error, path: impl FnOnce() -> PathBuf) {
        self.lose(loss, Some(Errno::from_raw_os_error(error.errno().0)), path);
    }

    /// Adds what another cursor wrote.
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
