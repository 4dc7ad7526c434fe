//! A tree as programs see it, to compare two mounts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::mount::MountFlags;

use crate::machine::{Machine, mount_as, umount};

/// What is compared of one file.
type Seen = String;

/// Reads the tree at `root`. Errors of single files are part of the result.
pub fn read(root: &Path) -> Result<BTreeMap<PathBuf, Seen>> {
    let mut seen = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(path) = rest.pop() {
        let name = path.strip_prefix(root)?.to_owned();
        seen.insert(name, describe(&path, &mut rest).unwrap_or_else(|error| format!("error: {error:#}")));
    }
    Ok(seen)
}

fn describe(path: &Path, rest: &mut Vec<PathBuf>) -> Result<Seen> {
    let stat = fs::symlink_metadata(path)?;
    let kind = stat.file_type();
    let size = if kind.is_dir() { 0 } else { stat.size() };
    let mut text = format!(
        "{:o} {} {} {} {size} {} {}.{} {}.{}",
        stat.mode(),
        stat.nlink(),
        stat.uid(),
        stat.gid(),
        stat.rdev(),
        stat.mtime(),
        stat.mtime_nsec(),
        stat.ctime(),
        stat.ctime_nsec()
    );
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            rest.push(entry?.path());
        }
    } else if kind.is_symlink() {
        text.push_str(&format!(" -> {}", fs::read_link(path)?.display()));
    } else if kind.is_file() {
        text.push_str(&format!(" {:016x}", hash(path)?));
    }
    for name in xattrs(path) {
        text.push_str(&format!(" {name}"));
    }
    Ok(text)
}

fn hash(path: &Path) -> Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = DefaultHasher::new();
    let mut buf = vec![0; 1 << 16];
    loop {
        match file.read(&mut buf)? {
            0 => return Ok(hasher.finish()),
            len => hasher.write(&buf[..len]),
        }
    }
}

/// The extended attributes with their values, in order of their names.
fn xattrs(path: &Path) -> Vec<String> {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut found: Vec<String> = names
        .map(|name| {
            let mut value = vec![0; 65536];
            let len = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or(0);
            format!("{}={:?}", String::from_utf8_lossy(name), &value[..len])
        })
        .collect();
    found.sort();
    found
}

/// Fails at the first difference between two trees.
pub fn compare(ours: &BTreeMap<PathBuf, Seen>, theirs: &BTreeMap<PathBuf, Seen>) -> Result<()> {
    for (path, seen) in theirs {
        let found = ours.get(path).with_context(|| format!("{} is missing", path.display()))?;
        ensure!(found == seen, "{}: '{found}', expected '{seen}'", path.display());
    }
    let more = ours.keys().find(|path| !theirs.contains_key(*path));
    ensure!(more.is_none(), "{} is not expected", more.unwrap_or(&PathBuf::new()).display());
    Ok(())
}

/// Compares a volume through the module with the same volume through the kernel's own ext4.
pub fn equals_the_kernels_own(machine: &Machine) -> Result<()> {
    let root = Path::new("/m");
    machine.mount(0, "/m", MountFlags::RDONLY, "")?;
    let ours = read(root)?;
    umount("/m")?;
    mount_as("ext4", 0, "/m", MountFlags::RDONLY, "")?;
    let theirs = read(root)?;
    umount("/m")?;
    println!("{} files", ours.len());
    ensure!(ours.len() > 500, "the image has {} files only", ours.len());
    compare(&ours, &theirs)
}
