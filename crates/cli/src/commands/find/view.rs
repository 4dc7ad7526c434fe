//! A file in an image, as an expression sees it.

use std::io::{Seek, SeekFrom, Write};

use obento::base::{Attr, FileKind};
use obento::driver::Cookie;
use obento::host::UnpackLimits;
use obento::vfs::{Caller, Symlinks};
use obento::volume::Owners;
use obento::{Error, Node};

use super::{Start, owner_id};
use crate::find::{CopyFailure, EvaluationError, File, Owner};
use crate::json::Line;
use crate::limit::DataLimit;

/// A file that the walk found.
pub struct View<'a> {
    pub met: &'a obento::walk::Entry,
    pub start: &'a Start,
    /// Whether the walk follows symbolic links.
    pub symlinks: Symlinks,
    /// For copies of files.
    pub limits: UnpackLimits,
}

impl View<'_> {
    fn node(&self) -> &Node {
        &self.met.node
    }

    /// Returns the target of a symbolic link, or the file itself; `None` for a link to nothing.
    fn target(&self) -> Result<Option<Node>, Error> {
        if self.met.attr.kind != FileKind::Symlink {
            return Ok(Some(self.node().clone()));
        }
        match self.resolve(Symlinks::Follow) {
            Ok(node) => Ok(Some(node)),
            Err(Error::NotFound | Error::NotDirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the file that the path refers to.
    fn resolve(&self, symlinks: Symlinks) -> Result<Node, Error> {
        let (vfs, root) = (self.node().vfs(), self.node().vfs().root());
        let (from, path) = match self.met.path.as_slice() {
            [] => (&root, self.start.path.as_slice()),
            below => (&self.start.node, below),
        };
        vfs.resolve(from, path, symlinks, &Caller::Owner)
    }

    fn owners(&self) -> &Owners {
        self.start.volume.owners()
    }
}

impl File for View<'_> {
    fn kind(&self) -> Result<FileKind, Error> {
        Ok(self.met.attr.kind)
    }

    fn attr(&self) -> Result<Attr, Error> {
        Ok(self.met.attr)
    }

    fn target_attr(&self) -> Result<Option<Attr>, Error> {
        self.target()?.map(|node| node.attr()).transpose()
    }

    fn other_kind(&self) -> Result<FileKind, Error> {
        match self.symlinks {
            Symlinks::Follow => self.resolve(Symlinks::Keep)?.kind(),
            Symlinks::Keep => Ok(self.target_kind()?.unwrap_or(FileKind::Symlink)),
        }
    }

    fn link_target(&self) -> Result<Option<Vec<u8>>, Error> {
        match self.kind()? {
            FileKind::Symlink => self.node().read_link().map(Some),
            _ => Ok(None),
        }
    }

    fn is_empty_dir(&self) -> Result<bool, Error> {
        let mut first = None;
        self.node().read_dir(Cookie::START, &mut |entry| {
            first = Some(entry.map(|_| ()));
            std::ops::ControlFlow::Break(())
        })?;
        first.transpose().map(|entry| entry.is_none())
    }

    fn context(&self) -> Result<Option<Vec<u8>>, Error> {
        match self.node().get_xattr(b"security.selinux") {
            Ok(mut value) => {
                value.pop_if(|last| *last == 0);
                Ok(Some(value))
            }
            Err(Error::NoData | Error::NotSupported) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn user_name(&self, uid: u32) -> Option<&[u8]> {
        self.owners().user(uid)
    }

    fn group_name(&self, gid: u32) -> Option<&[u8]> {
        self.owners().group(gid)
    }

    fn owner_id(&self, owner: Owner, name: &[u8]) -> Option<u32> {
        owner_id(self.start.volume.owners(), owner, name)
    }

    fn fs_type(&self) -> &str {
        self.start.fs_type
    }

    fn volume(&self) -> usize {
        self.start.number
    }

    fn write_json(
        &self,
        address: &[u8],
        name: &[u8],
        mut out: &mut dyn Write,
    ) -> Result<(), EvaluationError> {
        let line = Line::new("entry").bytes("path", address).bytes("name", name);
        let line = line.attr(&self.met.attr, self.owners());
        let line = match self.link_target()? {
            Some(target) => line.bytes("target", &target),
            None => line,
        };
        Ok(line.write(&mut out)?)
    }

    fn copy_out(&self, to: std::fs::File) -> Result<u64, CopyFailure> {
        let node = self.target().map_err(CopyFailure::Source)?.ok_or(CopyFailure::NoContents(None))?;
        copy_contents(&node, to, DataLimit::of(&self.start.volume, self.limits))
    }
}

/// Copies the contents of `node` to the empty host file `file`. Holes stay holes.
fn copy_contents(node: &Node, mut file: std::fs::File, limit: DataLimit) -> Result<u64, CopyFailure> {
    const CHUNK: usize = 256 << 10;
    let size = node.attr().map_err(CopyFailure::Source)?.size;
    let mut buffer = vec![0; CHUNK];
    let (mut at, mut copied) = (0, 0);
    while let Some(run) = node.run(at, size - at).map_err(CopyFailure::Source)? {
        let end = at + run.len();
        while at < end && !run.span().is_zeros() {
            let len = run.read(at - run.offset(), &mut buffer).map_err(CopyFailure::Source)?;
            if len == 0 {
                break;
            }
            copied += len as u64;
            limit.check(copied).map_err(CopyFailure::Limit)?;
            file.write_all(&buffer[..len]).map_err(CopyFailure::Target)?;
            at += len as u64;
        }
        at = end;
        file.seek(SeekFrom::Start(at)).map_err(CopyFailure::Target)?;
    }
    file.set_len(size).map_err(CopyFailure::Target)?;
    Ok(size)
}
