//! Conversion of a tree to bytes and back. Bytes from a device are not trusted: each field is checked, or every value
//! is valid.
//!
//! Link counts and parents are not stored, because they follow from the entries.

use std::collections::{BTreeMap, BTreeSet};

use obento::{Error, Result};
use obento::base::{Corrupt, DeviceNumber, FileFlags, FileKind, Ino, Mode, NameBuf, Structure, Timestamp};
use obento::block::BlockDevice;
use obento::driver::NewNode;
use obento_base::crc::crc32c;
use zerocopy::{FromBytes, FromZeros as _, IntoBytes as _};

use crate::file::SIZE_MAX;
use crate::raw::{MAGIC, PAGE, ROOTS, RawEntry, RawInode, RawPage, RawRoot};
use crate::tree::{Body, Directory, Inode, ROOT, TARGET_MAX, Tree};

/// Returns the error for a wrong `field` of a root or of the contents.
fn wrong(field: &'static str, found: u64) -> Error {
    Corrupt::Field { structure: Structure::SuperBlock, field, block: 0, offset: 0, found }.into()
}

/// Returns the root with the valid contents. Fails with `Corrupt`, or with the errors of the device.
pub(crate) fn read_root(device: &dyn BlockDevice) -> Result<RawRoot> {
    let mut best: Option<RawRoot> = None;
    for (slot, at) in ROOTS.into_iter().enumerate() {
        let mut bytes = [0; size_of::<RawRoot>()];
        if device.len() < at + bytes.len() as u64 {
            continue;
        }
        device.read_at(at, &mut bytes)?;
        let root = RawRoot::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?;
        let is_sound = root.magic == MAGIC && root.checksum.get() == root.sum() && root.slot() == slot;
        if is_sound && best.is_none_or(|best| best.sequence.get() < root.sequence.get()) {
            best = Some(root);
        }
    }
    let root = best.ok_or_else(|| wrong("magic", 0))?;
    if root.len.get() > device.len() || root.state_len.get() > root.slot_len() {
        return Err(wrong("len", root.len.get()));
    }
    Ok(root)
}

/// Returns the contents that `root` describes. Fails with `Corrupt`, or with the errors of the device.
pub(crate) fn read_tree(device: &dyn BlockDevice, root: &RawRoot) -> Result<Tree> {
    let mut bytes = vec![0; root.state_len.get() as usize];
    device.read_at(root.state_at(), &mut bytes)?;
    let (found, expected) = (root.state_checksum.get(), crc32c(!0, &bytes));
    if found != expected {
        let block = root.state_at() / PAGE as u64;
        return Err(Corrupt::Checksum { structure: Structure::SuperBlock, block, found, expected }.into());
    }
    decode(&bytes, root)
}

/// Writes the contents to the slot that is not in use, and then the root that makes the slot valid.
pub(crate) fn write(device: &dyn BlockDevice, old: &RawRoot, tree: &Tree) -> Result<RawRoot> {
    let bytes = encode(tree);
    let mut root = RawRoot { sequence: (old.sequence.get() + 1).into(), last: tree.last.into(), ..*old };
    root.state_len.set(bytes.len() as u64);
    root.state_checksum.set(crc32c(!0, &bytes));
    root.checksum.set(root.sum());
    device.write_at(root.state_at(), &bytes)?;
    // Until the slot is written, a reader must see the old root.
    device.flush()?;
    device.write_at(ROOTS[root.slot()], root.as_bytes())?;
    device.flush()?;
    Ok(root)
}

fn encode(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A crash removes files that are in use without a name.
    for inode in tree.inodes.values().filter(|inode| inode.attr.nlink > 0) {
        bytes.extend_from_slice(raw_of(inode).as_bytes());
        match &inode.body {
            Body::Directory(directory) => directory.names.iter().for_each(|(name, (_, ino))| {
                let raw = RawEntry { ino: ino.0.into(), len: (name.as_bytes().len() as u16).into() };
                bytes.extend_from_slice(raw.as_bytes());
                bytes.extend_from_slice(name.as_bytes());
            }),
            Body::File(pages) => pages.iter().for_each(|(index, page)| {
                bytes.extend_from_slice(&index.to_le_bytes());
                bytes.extend_from_slice(&page[..]);
            }),
            Body::Symlink(target) => bytes.extend_from_slice(target),
            Body::Node => {}
        }
    }
    bytes
}

fn raw_of(inode: &Inode) -> RawInode {
    let attr = &inode.attr;
    let count = match &inode.body {
        Body::Directory(directory) => directory.names.len(),
        Body::File(pages) => pages.len(),
        Body::Symlink(target) => target.len(),
        Body::Node => 0,
    };
    let times = [attr.atime, attr.mtime, attr.ctime, attr.btime.unwrap_or(Timestamp::EPOCH)];
    RawInode {
        ino: attr.ino.0.into(),
        size: attr.size.into(),
        change: attr.change.into(),
        count: (count as u64).into(),
        seconds: times.map(|time| time.secs().into()),
        nanos: times.map(|time| time.nanos().into()),
        mode: (attr.kind.mode_bits() | attr.mode.bits()).into(),
        uid: attr.uid.into(),
        gid: attr.gid.into(),
        rdev: [attr.rdev.major.into(), attr.rdev.minor.into()],
        flags: attr.flags.bits().into(),
        ..RawInode::new_zeroed()
    }
}

/// Takes a structure from the front.
fn next<T: FromBytes>(bytes: &mut &[u8]) -> Result<T> {
    let (raw, rest) = T::read_from_prefix(bytes).map_err(|_| wrong("state_len", bytes.len() as u64))?;
    *bytes = rest;
    Ok(raw)
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or_else(|| wrong("len", len as u64))?;
    *bytes = rest;
    Ok(taken)
}

fn decode(mut bytes: &[u8], root: &RawRoot) -> Result<Tree> {
    let mut tree = Tree {
        last: root.last.get(),
        used: bytes.len() as u64,
        room: root.slot_len(),
        inodes: BTreeMap::new(),
    };
    while !bytes.is_empty() {
        let raw: RawInode = next(&mut bytes)?;
        let inode = inode_of(&raw, &mut bytes)?;
        let ino = inode.attr.ino;
        if !(1..=tree.last).contains(&ino.0) || tree.inodes.insert(ino, inode).is_some() {
            return Err(wrong("ino", ino.0));
        }
    }
    connect(&mut tree)?;
    Ok(tree)
}

fn inode_of(raw: &RawInode, bytes: &mut &[u8]) -> Result<Inode> {
    let ino = Ino(raw.ino.get());
    let kind = FileKind::from_mode(raw.mode.get()).ok_or_else(|| wrong("mode", raw.mode.get().into()))?;
    let mut node = NewNode {
        kind,
        mode: Mode::new(raw.mode.get()),
        uid: raw.uid.get(),
        gid: raw.gid.get(),
        rdev: DeviceNumber { major: raw.rdev[0].get(), minor: raw.rdev[1].get() },
        target: b"",
    };
    let count = raw.count.get();
    if kind == FileKind::Symlink {
        node.target = take(bytes, count as usize)?;
        if node.target.is_empty() || node.target.len() > TARGET_MAX || node.target.contains(&0) {
            return Err(wrong("target", ino.0));
        }
    }
    let mut inode = Inode::new(ino, &node, ROOT, Timestamp::EPOCH);
    match &mut inode.body {
        Body::Directory(directory) => (0..count).try_for_each(|_| entry(directory, ino, bytes))?,
        Body::File(pages) => {
            inode.attr.size = raw.size.get();
            let end = inode.attr.size.div_ceil(PAGE as u64);
            for _ in 0..count {
                let page: RawPage = next(bytes)?;
                let index = page.index.get();
                if index >= end || pages.insert(index, Box::new(page.bytes)).is_some() {
                    return Err(wrong("index", index));
                }
            }
        }
        Body::Symlink(_) => {}
        Body::Node if count > 0 => return Err(wrong("count", count)),
        Body::Node => {}
    }
    if inode.attr.size > SIZE_MAX || inode.attr.size != raw.size.get() {
        return Err(wrong("size", raw.size.get()));
    }
    let [atime, mtime, ctime, btime] =
        std::array::from_fn(|at| Timestamp::new(raw.seconds[at].get(), raw.nanos[at].get()));
    let attr = &mut inode.attr;
    (attr.atime, attr.mtime, attr.ctime, attr.btime) = (atime, mtime, ctime, Some(btime));
    (attr.flags, attr.change) = (FileFlags::from_bits_retain(raw.flags.get()), raw.change.get());
    Ok(inode)
}

fn entry(directory: &mut Directory, dir: Ino, bytes: &mut &[u8]) -> Result<()> {
    let raw: RawEntry = next(bytes)?;
    let name = take(bytes, raw.len.get().into())?.to_vec();
    let bad = Corrupt::EntryName { dir, block: 0, offset: 0 };
    let name = NameBuf::new(name).map_err(|_| bad)?;
    if directory.names.contains_key(&name) {
        return Err(bad.into());
    }
    directory.set(&name, Ino(raw.ino.get()));
    Ok(())
}

/// Walks the directories from the root on, counts links and records parents. Fails with `Corrupt` for a name without an
/// inode, for a directory with two names, and for an inode without a name.
fn connect(tree: &mut Tree) -> Result<()> {
    tree.get(ROOT).and_then(|root| root.directory().map(drop)).map_err(|_| wrong("root", ROOT.0))?;
    tree.inodes.values_mut().filter(|inode| !inode.is_dir()).for_each(|inode| inode.attr.nlink = 0);
    let (mut left, mut reached) = (vec![ROOT], BTreeSet::from([ROOT]));
    while let Some(dir) = left.pop() {
        let children: Vec<Ino> = tree.get(dir)?.directory()?.names.values().map(|(_, ino)| *ino).collect();
        for ino in children {
            let child = tree.get_mut(ino).map_err(|_| Corrupt::UnusedInode { ino })?;
            if child.is_dir() {
                if !reached.insert(ino) {
                    return Err(wrong("ino", ino.0));
                }
                child.parent = dir;
                left.push(ino);
                tree.get_mut(dir)?.attr.nlink += 1;
            } else {
                child.attr.nlink += 1;
            }
        }
    }
    let is_lost = |inode: &&Inode| match inode.is_dir() {
        true => !reached.contains(&inode.attr.ino),
        false => inode.attr.nlink == 0,
    };
    match tree.inodes.values().find(is_lost) {
        Some(lost) => Err(wrong("ino", lost.attr.ino.0)),
        None => Ok(()),
    }
}
