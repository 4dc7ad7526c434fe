//! The checksums of a volume that is read without them: which files are doubtful.

use std::ops::ControlFlow;
use std::sync::Arc;

use obento::address::Address;
use obento::base::{Attr, Corrupt, Error, FileKind, Ino, Structure};
use obento::block::BlockDevice;
use obento::driver::{Checksums, Cookie};
use obento::vfs::Node;
use obento::{Image, Options, Volume};

/// The volume, opened once with its checksums and once without them. A recovery reads the second one.
pub struct Verifier {
    verified: Volume,
    read: Volume,
}

impl Verifier {
    /// Opens the volume of `image` on `device`. Returns `None` if the volume does not open with its checksums, or
    /// if its type has a driver that always verifies them.
    pub fn open(
        image: &Image,
        device: &Arc<dyn BlockDevice>,
        read: &Volume,
        options: &Options,
        address: &Address,
    ) -> Option<Self> {
        // Other drivers verify all checksums.
        let fs_type = read.info().probe.fs_type;
        if !matches!(fs_type, "ext2" | "ext3" | "ext4") {
            return None;
        }
        let fs_type = Some(fs_type.to_owned());
        let options = Options { checksums: Checksums::Verify, fs_type, ..options.clone() };
        let image = Image::on_device(image.path(), Arc::clone(device), image.registry(), &options).ok()?;
        let verified = image.volume_to_read(address.part.as_ref()).ok()?;
        Some(Self { verified, read: read.clone() })
    }

    /// Returns the wrong checksum of the inode, the block map, the directory or the symbolic link with these attributes.
    pub fn doubt(&self, attr: &Attr) -> Option<Error> {
        let node = match self.verified.vfs().node(attr.ino) {
            Ok(node) => node,
            Err(error) => return Some(error).filter(|error| is_of_file(error, attr.ino)),
        };
        let failed = match attr.kind {
            FileKind::Directory => listing(&node),
            FileKind::Regular => map(&node, attr.size).err(),
            FileKind::Symlink => node.read_link().err(),
            _ => None,
        };
        failed.filter(|error| is_of_file(error, attr.ino))
    }

    /// Returns the wrong checksum of the extended attributes.
    pub fn doubt_of_xattrs(&self, attr: &Attr) -> Option<Error> {
        let node = self.verified.vfs().node(attr.ino).ok()?;
        node.list_xattrs().err().filter(|error| is_of_file(error, attr.ino))
    }

    /// Returns the length of a doubtful regular file up to its last data, if more than a block of the file follows.
    pub fn shorter_size(&self, attr: &Attr) -> Option<u64> {
        let node = self.read.vfs().node(attr.ino).ok()?;
        let mut end = 0;
        while let Ok(start) = node.seek_data(end) {
            let run = node.run(start, attr.size.checked_sub(start)?).ok()??;
            end = start.checked_add(run.len()).filter(|next| *next > end)?;
        }
        let rest = attr.size.checked_sub(end)?;
        (rest > u64::from(attr.block_size)).then_some(end)
    }
}

/// Returns whether the directory `ino` has an entry that can be listed.
pub fn has_entries(volume: &Volume, ino: Ino) -> bool {
    let Ok(node) = volume.vfs().node(ino) else { return false };
    let mut has_entries = false;
    // An entry before the first damage counts.
    let _ = node.read_dir(Cookie::START, &mut |entry| {
        has_entries |= entry.is_ok_and(|entry| !matches!(entry.name.as_bytes(), b"." | b".."));
        if has_entries { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    has_entries
}

/// Returns whether `error` is a wrong checksum of an inode.
pub fn is_of_inode(error: &Error) -> bool {
    matches!(error, Error::Corrupt(Corrupt::Checksum { structure: Structure::Inode(_), .. }))
}

/// Returns the inode that `error` describes as damaged, if it is an error of an inode itself.
pub fn damaged_inode(error: &Error) -> Option<Ino> {
    let Error::Corrupt(corrupt) = error else { return None };
    match corrupt {
        Corrupt::Checksum { structure: Structure::Inode(ino), .. }
        | Corrupt::Field { structure: Structure::Inode(ino), .. }
        | Corrupt::UnusedInode { ino }
        | Corrupt::RootKind { ino } => Some(*ino),
        _ => None,
    }
}

/// Returns whether `error` is a wrong checksum of a structure of this file.
fn is_of_file(error: &Error, ino: Ino) -> bool {
    let Error::Corrupt(Corrupt::Checksum { structure, .. }) = error else { return false };
    match structure {
        Structure::Inode(owner)
        | Structure::ExtentTree(owner)
        | Structure::IndirectBlock(owner)
        | Structure::Directory(owner)
        | Structure::DirectoryIndex(owner)
        | Structure::InlineData(owner)
        | Structure::Symlink(owner)
        | Structure::Xattr(owner) => *owner == ino,
        _ => false,
    }
}

fn listing(node: &Node) -> Option<Error> {
    let mut failed = None;
    let done = node.read_dir(Cookie::START, &mut |entry| match entry {
        Ok(_) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    });
    failed.or(done.err())
}

/// Reads the block map of a file. Fails with its first error.
fn map(node: &Node, size: u64) -> Result<(), Error> {
    let mut at = 0;
    while let Some(run) = node.run(at, size.saturating_sub(at))? {
        at = at.saturating_add(run.len().max(1));
    }
    Ok(())
}
