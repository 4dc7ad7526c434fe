//! The target of a copy in an image: a directory to copy into, or the path of the copy.

use obento_base::{Error, FileKind, Name, NameBuf};
use obento_open::Volume;
use obento_open::address::FileSelector as Address;
use obento_vfs::{Caller, Last, Node, Symlinks};

use crate::copy::{CopyError, CopyFrom, CopyOptions, TargetIs};

/// The target of a copy.
#[derive(Clone, Debug)]
pub struct ImageTarget {
    /// The volume, open for change.
    pub volume: Volume,
    /// The path or inode in the volume.
    pub place: Address,
    /// The prefix of the path in messages: `disk.img:`.
    pub prefix: Vec<u8>,
}

/// The resolved target.
#[derive(Clone, Debug)]
pub enum ResolvedTarget {
    /// A directory to copy into, and its address. Each source keeps its own name.
    Into(Node, Vec<u8>),
    /// The directory of the copy, the address of the directory, and the name of the copy.
    As(Node, Vec<u8>, NameBuf),
}

impl ImageTarget {
    /// Returns the address, for messages.
    pub fn shown(&self) -> Vec<u8> {
        let path = match &self.place {
            Address::Path(path) => path.clone(),
            Address::Inode(ino) => format!("#{ino}").into_bytes(),
        };
        [&self.prefix[..], &path].concat()
    }

    fn failed(&self, error: Error) -> CopyError {
        CopyError::Target { path: self.shown(), error }
    }

    /// Returns the directory at this place, if the place is a directory.
    pub fn directory(&self) -> Option<Node> {
        let node = self.volume.resolve(&self.place, Symlinks::Follow).ok()?;
        (node.kind() == Ok(FileKind::Directory)).then_some(node)
    }

    /// Resolves the target for `sources`.
    pub(crate) fn find(
        &self,
        sources: &[CopyFrom],
        options: &CopyOptions,
    ) -> Result<ResolvedTarget, CopyError> {
        let directory = self.directory();
        match (options.target, &directory) {
            (TargetIs::Directory | TargetIs::Either, Some(node)) => {
                return Ok(ResolvedTarget::Into(node.clone(), self.shown()));
            }
            (TargetIs::Directory, None) => {
                let found = self.volume.resolve(&self.place, Symlinks::Follow);
                return Err(self.failed(found.err().unwrap_or(Error::NotDirectory)));
            }
            _ => {}
        }
        let [source] = sources else {
            let exists = self.volume.resolve(&self.place, Symlinks::Follow).is_ok();
            return Err(CopyError::NotDirectory { target: self.shown_path(), exists });
        };
        // The contents of a directory are copied into an existing directory, whatever the options require for the
        // target. As in GNU cp, they are not copied through a link to a directory.
        let is_link = || {
            let node = self.volume.resolve(&self.place, Symlinks::Keep);
            node.is_ok_and(|node| node.kind() == Ok(FileKind::Symlink))
        };
        if let Some(node) = directory.filter(|_| self.is_root() || source.name().is_none() && !is_link()) {
            return Ok(ResolvedTarget::Into(node, self.shown()));
        }
        self.parent()
    }

    fn is_root(&self) -> bool {
        matches!(&self.place, Address::Path(path) if path.iter().all(|&byte| byte == b'/'))
    }

    fn shown_path(&self) -> std::path::PathBuf {
        use std::os::unix::ffi::OsStringExt;
        std::ffi::OsString::from_vec(self.shown()).into()
    }

    /// Returns the directory to write in and the name there. The writer decides whether a symbolic link with
    /// this name is followed.
    fn parent(&self) -> Result<ResolvedTarget, CopyError> {
        let Address::Path(path) = &self.place else { return Err(self.failed(Error::Exists)) };
        let last = self.volume.vfs().resolve_parent(&self.volume.root(), path, &Caller::Owner);
        let Last { dir, name, .. } = last.map_err(|error| match error {
            Error::Invalid => CopyError::BadTarget { target: self.shown_path() },
            error => self.failed(error),
        })?;
        let shown = self.shown();
        let above = shown.strip_suffix(name.as_bytes()).unwrap_or(&shown).to_vec();
        Ok(ResolvedTarget::As(dir, above, name))
    }
}

impl ResolvedTarget {
    /// Returns the directory to write in.
    pub fn node(&self) -> &Node {
        match self {
            Self::Into(node, _) | Self::As(node, ..) => node,
        }
    }

    /// Returns the address of the directory, for messages.
    pub fn address(&self) -> Vec<u8> {
        match self {
            Self::Into(_, shown) | Self::As(_, shown, _) => shown.clone(),
        }
    }

    /// Returns the name of the copy of `source`, or `None` if its contents are copied. Fails if the source has no
    /// valid name.
    pub fn name(&self, source: &CopyFrom) -> Option<Result<NameBuf, obento_base::NameError>> {
        match self {
            Self::As(_, _, name) => Some(Ok(name.clone())),
            Self::Into(..) => source.name().map(|name| Name::new(name).map(Name::to_buf)),
        }
    }
}
