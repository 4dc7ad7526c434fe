//! The tree of a folder of the host, such as a mounted volume, as a snapshot for comparisons.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use obento_base::{FileKind, Timestamp};

use crate::snapshot::{Id, Meta, Object, Snapshot, USER_FLAGS};

/// Reads the tree below `root`.
pub fn read(root: &Path) -> Result<Snapshot> {
    let (mut names, mut objects) = (BTreeMap::new(), HashMap::new());
    for entry in walkdir::WalkDir::new(root).sort_by_file_name() {
        let entry = entry?;
        let path = entry.path();
        let id = Id { ino: entry.metadata()?.ino(), generation: 0 };
        names.insert(path.strip_prefix(root)?.as_os_str().as_bytes().to_vec(), id);
        if let Entry::Vacant(place) = objects.entry(id) {
            place.insert(object(path, id).with_context(|| path.display().to_string())?);
        }
    }
    Ok(Snapshot::of(names, objects))
}

fn object(path: &Path, id: Id) -> Result<Object> {
    let stat = fs::symlink_metadata(path)?;
    let mode = u16::try_from(stat.mode())?;
    let kind = FileKind::from_mode(mode).context("a kind that POSIX does not have")?;
    let (regular, rdev) = (kind == FileKind::Regular, stat.rdev());
    let meta = Meta {
        kind,
        mode: mode & 0o7777,
        uid: stat.uid(),
        gid: stat.gid(),
        nlink: u32::try_from(stat.nlink())?,
        size: if regular { stat.size() } else { 0 },
        rdev: if kind.is_device() { (rustix::fs::major(rdev), rustix::fs::minor(rdev)) } else { (0, 0) },
        target: if kind == FileKind::Symlink {
            fs::read_link(path)?.as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        },
        xattrs: xattrs(path)?,
        flags: if regular || stat.is_dir() { flags(path)? } else { 0 },
        mtime: Timestamp::new(stat.mtime(), u32::try_from(stat.mtime_nsec())?),
        ctime: Timestamp::new(stat.ctime(), u32::try_from(stat.ctime_nsec())?),
    };
    let content = if regular { fs::read(path)?.into() } else { [].into() };
    Ok(Object { meta, content, id })
}

fn flags(path: &Path) -> Result<u32> {
    Ok(rustix::fs::ioctl_getflags(fs::File::open(path)?)?.bits() & USER_FLAGS)
}

fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    /// `XATTR_LIST_MAX` and `XATTR_SIZE_MAX` of Linux.
    const MAX: usize = 65536;
    let (mut names, mut value) = (vec![0; MAX], vec![0; MAX]);
    let len = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut found = BTreeMap::new();
    for name in names[..len].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        found.insert(name.to_vec(), value[..len].to_vec());
    }
    Ok(found)
}
