//! Lending a file of an image to a program of the host: the file is copied out, and copied back if the program changed it.
//!
//! The copy is in a [`PrivateFolder`], under the file's own name if that name is harmless. The changed contents are
//! written to a new file beside the old one, with its owner, mode and extended attributes. A rename replaces the old
//! file by the new one. After a crash, the file is therefore the old or the new one. A file with further names, which
//! would keep the old contents, is overwritten in place where it differs. The part by which it grows is written first,
//! so that a full volume costs nothing of the old contents. After a crash it may have a mixture of old and new blocks,
//! and the copy stays on the host.
//! Invariant: the copy is read in the open folder, so that no other user can give it other contents by replacing a
//! directory of its path.
//! Invariant: the copy is removed only when the changes are on stable storage in the image.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento::base::{Attr, FileKind};
use obento::copy::Shortage;
use obento::driver::{RenameFlags, SetAttr, TimeChange, XattrMode};
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use crate::change::place::{NameInDirectory, creation_mode, new_node};
use crate::open::Location;
use crate::private::PrivateFolder;
use crate::report::{Report, subject};

/// The number of bytes that are moved at once; that many zeros become a hole.
const CHUNK: usize = 64 << 10;

/// A copy of a file on the host.
pub struct Borrowed {
    /// The folder of the copy.
    folder: PrivateFolder,
    path: PathBuf,
    spot: NameInDirectory,
    shown: Vec<u8>,
    /// The file; `None` if it is to be created.
    node: Option<Node>,
}

/// Whether a missing file is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfMissing {
    Fail,
    Make,
}

impl Borrowed {
    /// Copies the file at `location` out, following symbolic links.
    pub fn new(location: &Location, missing: IfMissing) -> Result<Self, Report> {
        let shown = location.shown();
        let failed = |error: &dyn std::fmt::Display| Report::on("cannot create a copy of", &shown, error);
        let node = match location.volume.resolve(&location.place, Symlinks::Follow) {
            Err(error) if error == Error::NotFound && missing == IfMissing::Make => None,
            found => Some(found.map_err(|error| failed(&error))?),
        };
        match node.as_ref().map(Node::kind).transpose().map_err(|error| failed(&error))? {
            None | Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(failed(&Error::IsDirectory)),
            Some(kind) => return Err(failed(&crate::format::mode::not_regular(kind))),
        }
        let spot = location.end().map_err(|error| failed(&error))?;
        let on_host = |error: io::Error| failed(&error);
        let folder = PrivateFolder::new().map_err(on_host)?;
        let (mut file, path) = folder.create(host_name(spot.name.as_bytes())).map_err(on_host)?;
        if let Some(node) = &node {
            copy_out(node, &mut file).map_err(|error| failed(&error))?;
        }
        Ok(Self { folder, path, spot, shown, node })
    }

    /// Returns the path of the copy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Copies the changes back.
    pub fn give_back(self) -> Result<(), Report> {
        let on_host = |error: io::Error| Report::on("cannot read the copy of", &self.shown, error);
        // A program may replace the copy by another file, but not by a symbolic link.
        let copy = self.folder.open(host_name(self.spot.name.as_bytes())).map_err(on_host)?;
        let Some(mut file) = copy else {
            return Err(Report::on("cannot read the copy of", &self.shown, "no longer a regular file"));
        };
        if self.is_same(&mut file).map_err(on_host)? {
            return Ok(());
        }
        let written = match self.shared() {
            Ok(Some((node, size))) => overwrite(node, size, &mut file),
            Ok(None) => self.replace(&mut file),
            Err(error) => Err(error.into()),
        };
        written.map_err(|error| {
            let shortage = match error {
                Failure::Image(error) => Shortage::find(self.spot.dir.vfs(), error),
                Failure::Host(_) => None,
            };
            let report = match shortage {
                Some(shortage) => Report::on("cannot write back", &self.shown, shortage),
                None => Report::on("cannot write back", &self.shown, error),
            };
            // The changes may be the work of hours.
            self.folder.keep();
            report.help(format!("the changed copy is {}", subject(self.path.as_os_str().as_bytes())))
        })
    }

    /// Returns whether the copy equals the file in the image.
    fn is_same(&self, file: &mut File) -> io::Result<bool> {
        let len = file.metadata()?.len();
        let Some(node) = &self.node else { return Ok(len == 0) };
        if node.attr().map_err(io::Error::other)?.size != len {
            return Ok(false);
        }
        let (mut ours, mut theirs, mut at) = (vec![0; CHUNK], vec![0; CHUNK], 0);
        while at < len {
            let count = read_full(file, &mut theirs)?;
            let wanted = &mut ours[..count];
            if count == 0 || read_exact(node, at, wanted).is_err() || *wanted != theirs[..count] {
                return Ok(false);
            }
            at += count as u64;
        }
        Ok(true)
    }

    /// Returns the file and its size, if it has other names.
    fn shared(&self) -> Result<Option<(&Node, u64)>, Error> {
        let Some(node) = &self.node else { return Ok(None) };
        let attr = node.attr()?;
        Ok((attr.nlink > 1).then_some((node, attr.size)))
    }

    fn replace(&self, file: &mut File) -> Result<(), Failure> {
        let temporary = self.spot.temporary()?;
        let vfs = self.spot.dir.vfs();
        let old = self.node.as_ref().map(|node| node.attr().map(|attr| (node, attr))).transpose()?;
        let mode = creation_mode(&self.spot.dir, 0o666);
        let new = temporary.create(&new_node(FileKind::Regular, mode))?;
        let written = copy_in(file, &new).and_then(|()| {
            if let Some((node, attr)) = &old {
                inherit(node, attr, &new)?;
            }
            // The bytes must be on the disk before the name refers to them.
            new.sync()?;
            let (from, to) = ((&temporary.dir, &*temporary.name), (&self.spot.dir, &*self.spot.name));
            vfs.rename(&Caller::Owner, from, to, RenameFlags::empty())?;
            Ok(vfs.sync()?)
        });
        if written.is_err() {
            // Return the first error.
            let _ = vfs.unlink(&Caller::Owner, &temporary.dir, &temporary.name);
        }
        written
    }
}

/// The reason why a file was not written back.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Image(#[from] Error),
    #[error("reading the copy on the host failed: {0}")]
    Host(#[from] io::Error),
}

/// Returns a file name that programs of the host cannot mistake for an option.
fn host_name(name: &[u8]) -> &OsStr {
    let is_harmless = !name.starts_with(b"-") && name.iter().all(|b| !b.is_ascii_control());
    OsStr::from_bytes(if is_harmless { name } else { b"file" })
}

fn copy_out(node: &Node, file: &mut File) -> Result<(), Failure> {
    let size = node.attr()?.size;
    file.set_len(size)?;
    let (mut buffer, mut at) = (vec![0; CHUNK], 0);
    while at < size {
        at = match node.seek_data(at) {
            Err(error) if error == Error::NoSuchOffset => break,
            data => data?,
        };
        let count = node.read_at(at, &mut buffer)?;
        if count == 0 {
            break;
        }
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&buffer[..count])?;
        at += count as u64;
    }
    Ok(())
}

fn copy_in(file: &mut File, node: &Node) -> Result<(), Failure> {
    file.rewind()?;
    let (mut buffer, mut at) = (vec![0; CHUNK], 0);
    loop {
        let count = read_full(file, &mut buffer)?;
        if count == 0 {
            break;
        }
        let bytes = &buffer[..count];
        if bytes.iter().any(|&byte| byte != 0) {
            write_all(node, at, bytes)?;
        }
        at += count as u64;
    }
    Ok(node.truncate(at)?)
}

/// Writes the contents of `file` over those of `node`, which has `size` bytes, where they differ.
fn overwrite(node: &Node, size: u64, file: &mut File) -> Result<(), Failure> {
    let len = file.metadata()?.len();
    let (mut new, mut old) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut write = |from: u64, to: u64, node: &Node| -> Result<(), Failure> {
        let mut at = from;
        file.seek(SeekFrom::Start(at))?;
        while at < to {
            let part = usize::try_from(to - at).unwrap_or(CHUNK).min(CHUNK);
            let count = read_full(file, &mut new[..part])?;
            if count == 0 {
                break;
            }
            let (new, old) = (&new[..count], &mut old[..count]);
            // Beyond its old end the file reads as zeros once it is extended.
            let is_same = match at < size {
                true => read_exact(node, at, old).is_ok() && new == old,
                false => new.iter().all(|&byte| byte == 0),
            };
            if !is_same {
                write_all(node, at, new)?;
            }
            at += count as u64;
        }
        Ok(())
    };
    if let Err(error) = write(size, len, node) {
        // Return the first error.
        let _ = node.truncate(size);
        return Err(error);
    }
    write(0, size.min(len), node)?;
    node.truncate(len)?;
    // Other processes rely on the length of the file.
    Ok(node.vfs().sync()?)
}

/// Copies the attributes of `old` to `new`. The time of creation is kept too.
fn inherit(old: &Node, attr: &Attr, new: &Node) -> Result<(), Error> {
    let vfs = new.vfs();
    let owner = SetAttr { uid: Some(attr.uid), gid: Some(attr.gid), ..SetAttr::default() };
    vfs.set_attr(&Caller::Owner, new, &owner)?;
    for name in new.list_xattrs()? {
        // An access control list that `new` inherited from the directory.
        vfs.remove_xattr(&Caller::Owner, new, &name)?;
    }
    for name in old.list_xattrs()? {
        let value = old.get_xattr(&name)?;
        vfs.set_xattr(&Caller::Owner, new, &name, &value, XattrMode::Set)?;
    }
    let rest = SetAttr { mode: Some(attr.mode), btime: attr.btime.map(TimeChange::At), ..SetAttr::default() };
    vfs.set_attr(&Caller::Owner, new, &rest)?;
    let flags = SetAttr { flags: Some(attr.flags), ..SetAttr::default() };
    vfs.set_attr(&Caller::Owner, new, &flags).map(drop)
}

fn write_all(node: &Node, mut at: u64, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        let count = node.write_at(at, bytes)?;
        at += count as u64;
        bytes = &bytes[count..];
    }
    Ok(())
}

fn read_exact(node: &Node, mut at: u64, mut buffer: &mut [u8]) -> Result<(), Error> {
    while !buffer.is_empty() {
        match node.read_at(at, buffer)? {
            0 => return Err(Error::Invalid),
            count => {
                at += count as u64;
                buffer = &mut buffer[count..];
            }
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
