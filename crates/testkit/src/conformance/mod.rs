//! The contract of drivers as test cases: one function for each rule, for any driver.
//!
//! [`reading_conformance!`](crate::reading_conformance) creates tests of all cases that only read a volume. The volume
//! may contain any tree; one with many kinds of files tests more.
//! [`writing_conformance!`](crate::writing_conformance) creates tests of the cases that change a volume. Each case gets
//! an empty volume of its own. A case that requires a capability that the volume lacks is refused with the name of the
//! capability, and counted.

pub mod allocation;
pub mod attributes;
pub mod bulk;
mod cases;
pub mod data;
pub mod inspect;
pub mod life;
pub mod listing;
pub mod nameless;
pub mod names;
pub mod open_writes;
pub mod reading;
pub mod renames;
pub mod space;
pub mod threads;
pub mod xattrs;

use std::ops::ControlFlow;

use obento_base::{Attr, DeviceNumber, Error, FileKind, Ino, Mode, Name, Result};
use obento_driver::{
    Cookie, DirEntry, FileSystem, LayoutLock, NewNode, Span, StoredProperties, TimeChange,
    WritableFileSystem, Xattrs,
};

use crate::outcome::{Abilities, Lacks, Need, Outcome};
pub use cases::{Case, WritingCase, reading_cases, writing_cases};

/// One entry, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: Ino,
    /// The kind, if the entry contains it.
    pub kind: Option<FileKind>,
    /// The position after the entry.
    pub next: Cookie,
}

/// Returns at most `max` entries of `dir` after `from`.
pub(crate) fn list_from(fs: &dyn FileSystem, dir: Ino, from: Cookie, max: usize) -> Vec<Listed> {
    let mut entries = Vec::new();
    let mut sink = |entry: Result<DirEntry<'_>>| {
        let entry = entry.expect("the directory is not damaged");
        let DirEntry { ino, kind, next, .. } = entry;
        entries.push(Listed { name: entry.name.as_bytes().to_vec(), ino, kind, next });
        if entries.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    fs.read_dir(dir, from, &mut sink).expect("a directory lists");
    entries
}

pub(crate) fn list(fs: &dyn FileSystem, dir: Ino) -> Vec<Listed> {
    list_from(fs, dir, Cookie::START, usize::MAX)
}

pub(crate) fn names_in(fs: &dyn FileSystem, dir: Ino) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = list(fs, dir).into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// Returns the names in `dir` except those in `before`, because a format may create some names itself.
pub(crate) fn names_besides(fs: &dyn FileSystem, dir: Ino, before: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut names = names_in(fs, dir);
    names.retain(|name| !before.contains(name));
    names
}

/// Converts a valid name.
pub fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).expect("a literal of the test")
}

pub(crate) fn writable(fs: &dyn FileSystem) -> &dyn WritableFileSystem {
    fs.writable().expect("writing cases get a volume that can be written")
}

/// Returns a new inode whose owner and group are as large as the format can store, up to more than 16 bits.
pub(crate) fn new_node(fs: &dyn FileSystem, kind: FileKind) -> NewNode<'static> {
    let limits = fs.limits();
    let target: &[u8] = if kind == FileKind::Symlink { b"target" } else { b"" };
    let rdev = DeviceNumber { major: 8, minor: 7 };
    NewNode {
        kind,
        mode: Mode::new(0o750),
        uid: 1000.min(limits.uid_max),
        gid: 100_000.min(limits.gid_max),
        rdev,
        target,
    }
}

/// Returns whether the format stores all of `what`.
pub(crate) fn keeps(fs: &dyn FileSystem, what: StoredProperties) -> bool {
    fs.limits().keeps.contains(what)
}

/// Returns whether a file may have several names.
pub(crate) fn has_links(fs: &dyn FileSystem) -> bool {
    fs.limits().link_max > 1
}

/// Returns whether the format has files of this kind.
pub(crate) fn has(fs: &dyn FileSystem, kind: FileKind) -> bool {
    match kind {
        FileKind::Regular => true,
        FileKind::Directory => keeps(fs, StoredProperties::DIRECTORIES),
        FileKind::Symlink => keeps(fs, StoredProperties::SYMLINKS),
        _ => keeps(fs, StoredProperties::SPECIAL),
    }
}

/// Fails with the missing capability.
pub(crate) fn needs(fs: &dyn FileSystem, need: Need) -> Outcome {
    let stat = fs.statfs().expect("use");
    let free = stat.free * u64::from(stat.block_size);
    let lists = fs.xattrs().is_some();
    let whiteouts = fs.whiteouts().is_some();
    need.check(&Abilities {
        limits: fs.limits(),
        free,
        lists,
        whiteouts,
        lasts: true,
        repeats: false,
        keeps_removed: true,
        flags: true,
    })
}

/// Returns the extended attributes. Fails if the format has none.
pub(crate) fn xattrs(fs: &dyn FileSystem) -> std::result::Result<&dyn Xattrs, Lacks> {
    fs.xattrs().ok_or(Lacks("no extended attributes"))
}

/// Returns the link count of a directory with this number of subdirectories.
pub(crate) fn links(fs: &dyn FileSystem, subdirectories: u32) -> u32 {
    if keeps(fs, StoredProperties::SUBDIRECTORIES) { subdirectories + 2 } else { 1 }
}

pub(crate) fn make(fs: &dyn FileSystem, dir: Ino, file: &str, kind: FileKind) -> Ino {
    writable(fs).create(dir, name(file), &new_node(fs, kind)).expect("the name is free").ino
}

pub(crate) fn file(fs: &dyn FileSystem, dir: Ino, file: &str) -> Ino {
    make(fs, dir, file, FileKind::Regular)
}

pub(crate) fn dir(fs: &dyn FileSystem, parent: Ino, name: &str) -> Ino {
    make(fs, parent, name, FileKind::Directory)
}

pub(crate) fn attr(fs: &dyn FileSystem, ino: Ino) -> Attr {
    fs.getattr(ino).expect("the inode is in use")
}

pub(crate) fn lookup(fs: &dyn FileSystem, dir: Ino, text: &str) -> Result<Ino> {
    fs.lookup(dir, name(text))
}

pub(crate) fn block(fs: &dyn FileSystem) -> u64 {
    fs.statfs().expect("statfs succeeds").block_size.into()
}

/// Reads `len` bytes at `offset` like `vfs`, in pieces of at most `piece`, without regard to the size.
pub(crate) fn read(fs: &dyn FileSystem, ino: Ino, offset: u64, len: usize, piece: usize) -> Result<Vec<u8>> {
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let mut bytes = vec![0xaa; len];
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let want = piece.min(len - done);
        let extent = fs.map(&layout, ino, at..at + want as u64)?;
        assert!((1..=want as u64).contains(&extent.len), "a run is as long as asked for at most: {extent:?}");
        let buf = &mut bytes[done..done + extent.len as usize];
        done += match extent.span {
            Span::Hole | Span::Unwritten => {
                buf.fill(0);
                buf.len()
            }
            Span::Mapped(from) => {
                let device = fs.device().expect("mapped data is on the device");
                device.read_at(from, buf)?;
                buf.len()
            }
            Span::Driver => match fs.read(&layout, ino, at, buf)? {
                0 => return Err(Error::Invalid),
                len => len,
            },
        };
    }
    Ok(bytes)
}

/// Writes `bytes` at `offset` like `vfs`, for cases about other calls: whole blocks, or over existing data.
pub(crate) fn write(fs: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let mut done = 0;
    while done < bytes.len() {
        let (at, end) = (offset + done as u64, offset + bytes.len() as u64);
        let ticket = writable(fs).begin_write(&layout, ino, at..end)?;
        let extent = ticket.extent();
        let part = &bytes[done..done + extent.len as usize];
        done += match extent.span {
            Span::Driver => {
                drop(ticket);
                writable(fs).write(&layout, ino, at, part)?
            }
            Span::Mapped(to) => {
                fs.device().expect("mapped data is on the device").write_at(to, part)?;
                writable(fs).end_write(ticket, TimeChange::Now)?;
                part.len()
            }
            span => panic!("begin_write returned {span:?}"),
        };
    }
    Ok(())
}

pub(crate) fn truncate(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<()> {
    writable(fs).truncate(&LayoutLock::new().exclusive(), ino, size)
}
