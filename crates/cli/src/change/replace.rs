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

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use obento::base::{Attr, FileKind};
use obento::copy::Shortage;
use obento::driver::{RenameFlags, SetAttr, TimeChange, XattrMode};
use obento::host::{UnpackError, UnpackLimits, interrupt};
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use crate::cause::Cause;
use crate::change::data_ranges::DataRanges;
use crate::change::place::{NameInDirectory, creation_mode, new_node};
use crate::limit::DataLimit;
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
    /// The file may have as much data as `limits` permit for the volume.
    pub fn new(location: &Location, missing: IfMissing, limits: UnpackLimits) -> Result<Self, Report> {
        let shown = location.shown();
        let failed = |error: &dyn Cause| Report::on("cannot create a copy of", &shown, error);
        let node = match location.volume.resolve(&location.place, Symlinks::Follow) {
            Err(error) if error == Error::NotFound && missing == IfMissing::Make => None,
            found => Some(found.map_err(|error| location.with_cause(failed(&error), error))?),
        };
        match node.as_ref().map(Node::kind).transpose().map_err(|error| failed(&error))? {
            None | Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(failed(&Error::IsDirectory)),
            Some(kind) => return Err(failed(&crate::format::mode::not_regular(kind))),
        }
        let spot = location.end().map_err(|error| location.with_cause(failed(&error), error))?;
        let on_host = |error: io::Error| failed(&error);
        let folder = PrivateFolder::new().map_err(on_host)?;
        let (file, path) = folder.create(host_name(spot.name.as_bytes())).map_err(on_host)?;
        if let Some(node) = &node {
            let limit = DataLimit::of(&location.volume, limits);
            copy_out(node, &file, limit).map_err(|error| match error {
                Failure::Host(error) if error.kind() == io::ErrorKind::StorageFull => {
                    failed(&error).help("set TMPDIR to a directory with more free space")
                }
                Failure::Host(error) => failed(&error),
                error => failed(&error),
            })?;
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
        let Some(file) = copy else {
            return Err(Report::on("cannot read the copy of", &self.shown, "no longer a regular file"));
        };
        let stop = Stop::new();
        self.write_changes(&file, &stop).map_err(|error| {
            let shortage = match error {
                Failure::Image(error) => Shortage::find(self.spot.dir.vfs(), error),
                Failure::Host(_) | Failure::Stopped | Failure::Limit(_) => None,
            };
            let report = match shortage {
                Some(shortage) => Report::on("cannot write back", &self.shown, shortage),
                None => Report::on("cannot write back", &self.shown, error),
            };
            // The changes may be the work of hours.
            self.folder.keep();
            let help = format!("the changed copy is {}", subject(self.path.as_os_str().as_bytes()));
            report.help(help).indispensable()
        })
    }

    fn write_changes(&self, file: &File, stop: &Stop) -> Result<(), Failure> {
        if self.is_same(file, stop)? {
            return Ok(());
        }
        match self.shared()? {
            Some((node, size)) => overwrite(node, size, file, stop),
            None => self.replace(file, stop),
        }
    }

    /// Returns whether the copy equals the file in the image.
    fn is_same(&self, file: &File, stop: &Stop) -> Result<bool, Failure> {
        let len = file.metadata()?.len();
        let Some(node) = &self.node else { return Ok(len == 0) };
        if node.attr()?.size != len {
            return Ok(false);
        }
        let (mut ours, mut theirs, mut at) = (vec![0; CHUNK], vec![0; CHUNK], 0);
        let mut ranges = DataRanges::of(Some(file), Some(node));
        while let Some(data) = ranges.next::<Failure>(at)? {
            stop.check()?;
            let count = read_full(file, data.start, &mut theirs[..part_of(&data)])?;
            let wanted = &mut ours[..count];
            if count == 0 || read_exact(node, data.start, wanted).is_err() || *wanted != theirs[..count] {
                return Ok(false);
            }
            at = data.start + count as u64;
        }
        Ok(true)
    }

    /// Returns the file and its size, if it has other names.
    fn shared(&self) -> Result<Option<(&Node, u64)>, Error> {
        let Some(node) = &self.node else { return Ok(None) };
        let attr = node.attr()?;
        Ok((attr.nlink > 1).then_some((node, attr.size)))
    }

    fn replace(&self, file: &File, stop: &Stop) -> Result<(), Failure> {
        let temporary = self.spot.temporary()?;
        let vfs = self.spot.dir.vfs();
        let old = self.node.as_ref().map(|node| node.attr().map(|attr| (node, attr))).transpose()?;
        let mode = creation_mode(&self.spot.dir, 0o666);
        let new = temporary.create(&new_node(FileKind::Regular, mode))?;
        let written = copy_in(file, &new, stop).and_then(|()| {
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
    #[error("stopped")]
    Stopped,
    #[error(transparent)]
    Limit(#[from] UnpackError),
}

impl Cause for Failure {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Image(error) => Some(error),
            Self::Host(error) => Some(error),
            Self::Limit(error) => Some(error),
            Self::Stopped => None,
        }
    }

    fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped)
    }
}

/// Ends work when a signal arrives. The program that changed the copy has ended by then, and a signal that arrived before
/// was meant for the program.
struct Stop {
    was_requested: bool,
    is_requested: Box<dyn Fn() -> bool>,
}

impl Stop {
    fn new() -> Self {
        Self { was_requested: interrupt::is_requested(), is_requested: Box::new(interrupt::is_requested) }
    }

    fn check(&self) -> Result<(), Failure> {
        match (self.is_requested)() && !self.was_requested {
            true => Err(Failure::Stopped),
            false => Ok(()),
        }
    }
}

/// Returns a file name that programs of the host cannot mistake for an option.
fn host_name(name: &[u8]) -> &OsStr {
    let is_harmless = !name.starts_with(b"-") && name.iter().all(|b| !b.is_ascii_control());
    OsStr::from_bytes(if is_harmless { name } else { b"file" })
}

/// Returns the length of the next part of a range.
fn part_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(CHUNK).min(CHUNK)
}

fn copy_out(node: &Node, file: &File, limit: DataLimit) -> Result<(), Failure> {
    let (size, stop) = (node.attr()?.size, Stop::new());
    file.set_len(size)?;
    let (mut buffer, mut at, mut ranges) = (vec![0; CHUNK], 0, DataRanges::of(None, Some(node)));
    let mut copied = 0;
    while let Some(data) = ranges.next::<Failure>(at)?.filter(|data| data.start < size) {
        stop.check()?;
        let count = node.read_at(data.start, &mut buffer[..part_of(&data)])?;
        copied += count as u64;
        limit.check(copied)?;
        if count == 0 {
            break;
        }
        file.write_all_at(&buffer[..count], data.start)?;
        at = data.start + count as u64;
    }
    Ok(())
}

fn copy_in(file: &File, node: &Node, stop: &Stop) -> Result<(), Failure> {
    let (mut buffer, mut at, mut ranges) = (vec![0; CHUNK], 0, DataRanges::of(Some(file), None));
    while let Some(data) = ranges.next::<Failure>(at)? {
        stop.check()?;
        let count = read_full(file, data.start, &mut buffer[..part_of(&data)])?;
        let bytes = &buffer[..count];
        if bytes.iter().any(|&byte| byte != 0) {
            write_all(node, data.start, bytes)?;
        }
        at = data.start + count as u64;
        if count == 0 {
            break;
        }
    }
    Ok(node.truncate(file.metadata()?.len())?)
}

/// Writes the contents of `file` over those of `node`, which has `size` bytes, where they differ. The work can be stopped
/// only before the first of the old bytes is overwritten.
fn overwrite(node: &Node, size: u64, file: &File, stop: &Stop) -> Result<(), Failure> {
    let len = file.metadata()?.len();
    let (mut new, mut old) = (vec![0; CHUNK], vec![0; CHUNK]);
    let is_torn = Cell::new(false);
    let mut write = |from: u64, to: u64, node: &Node| -> Result<(), Failure> {
        let (mut at, mut ranges) = (from, DataRanges::of(Some(file), Some(node)));
        while let Some(data) = ranges.next::<Failure>(at)?.filter(|data| data.start < to) {
            if !is_torn.get() {
                stop.check()?;
            }
            let data = data.start..data.end.min(to);
            let count = read_full(file, data.start, &mut new[..part_of(&data)])?;
            if count == 0 {
                break;
            }
            let (new, old) = (&new[..count], &mut old[..count]);
            // Beyond its old end the file reads as zeros once it is extended.
            let is_same = match data.start < size {
                true => read_exact(node, data.start, old).is_ok() && new == old,
                false => new.iter().all(|&byte| byte == 0),
            };
            if !is_same {
                is_torn.set(is_torn.get() || data.start < size);
                write_all(node, data.start, new)?;
            }
            at = data.start + count as u64;
        }
        Ok(())
    };
    let written = write(size, len, node).and_then(|()| write(0, size.min(len), node));
    if written.is_err() && !is_torn.get() {
        // Return the first error.
        let _ = node.truncate(size);
    }
    written?;
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

/// Reads from `at` until the buffer is full or the file ends.
fn read_full(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], at + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use obento::base::{Mode, Name};
    use obento::env::SystemClock;
    use obento::tmpfs::{Options, Tmpfs};
    use obento::vfs::Vfs;

    use super::*;

    /// Returns a file of three chunks with the byte 1, and a copy of `chunks` chunks with the byte 2.
    fn changed(chunks: usize) -> (Node, File) {
        let vfs = Vfs::new(Arc::new(Tmpfs::new(Options::new(Arc::new(SystemClock)))));
        let new = new_node(FileKind::Regular, Mode::new(0o600));
        let node = vfs.create(&Caller::Owner, &vfs.root(), Name::new(b"f").unwrap(), &new).unwrap();
        write_all(&node, 0, &[1; 3 * CHUNK]).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![2; chunks * CHUNK]).unwrap();
        (node, file)
    }

    /// Returns a stop that a signal requests after `checks` checks.
    fn after(checks: usize) -> Stop {
        let left = Cell::new(checks);
        let is_requested = move || left.replace(left.get().saturating_sub(1)) == 0;
        Stop { was_requested: false, is_requested: Box::new(is_requested) }
    }

    fn contents(node: &Node) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(node.attr().unwrap().size).unwrap()];
        read_exact(node, 0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_file_that_is_overwritten_in_place_has_its_old_or_its_new_contents_after_a_signal() {
        for (chunks, first) in [(2, 1), (3, 1), (5, 3)] {
            for checks in 0..8 {
                let (node, file) = changed(chunks);
                let result = overwrite(&node, 3 * CHUNK as u64, &file, &after(checks));
                let expected = match result {
                    Err(Failure::Stopped) => vec![1; 3 * CHUNK],
                    result => {
                        result.unwrap();
                        vec![2; chunks * CHUNK]
                    }
                };
                assert_eq!(checks < first, expected[0] == 1, "{chunks} {checks}");
                assert!(contents(&node) == expected, "{chunks} {checks}");
            }
        }
    }
}
