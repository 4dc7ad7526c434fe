//! Files below a directory of the host, accessed by system calls.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FallocateFlags, OFlags};

use super::{Files, OpenFile, OpenMode, Tree, TreeFile, TreeFileKind};

/// Files below a directory of the host.
#[derive(Clone, Debug)]
pub struct HostFiles {
    root: PathBuf,
}

impl HostFiles {
    /// Returns the files below `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn below(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }
}

impl Tree for HostFiles {
    fn visit(&self, found: &mut dyn FnMut(TreeFile)) -> io::Result<()> {
        let device = fs::metadata(&self.root)?.dev();
        let mut pending = vec![Vec::new()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(self.below(&directory))? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                let mut path = directory.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(entry.file_name().as_bytes());
                let kind = kind_of(&metadata, device, &self.below(&path));
                if kind == TreeFileKind::Directory {
                    pending.push(path.clone());
                }
                found(TreeFile { path, kind, len: metadata.len() });
            }
        }
        Ok(())
    }

    fn list_attributes(&self, directory: &[u8]) -> io::Result<u64> {
        let mut count = 0;
        for entry in fs::read_dir(self.below(directory))? {
            // As `ls` does. The standard library also requests the time of creation, which a lookup through FUSE does
            // not return.
            rustix::fs::lstat(entry?.path())?;
            count += 1;
        }
        Ok(count)
    }

    fn look_up(&self, path: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::lstat(self.below(path)).map(drop)?)
    }

    fn open_file(&self, path: &[u8]) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(File::open(self.below(path))?))
    }
}

/// Returns the type of a file at `path`, in a tree on `device`.
fn kind_of(metadata: &Metadata, device: u64, path: &Path) -> TreeFileKind {
    let may = |access| metadata.dev() == device && rustix::fs::access(path, access).is_ok();
    match metadata.file_type() {
        kind if kind.is_dir() && may(Access::READ_OK | Access::EXEC_OK) => TreeFileKind::Directory,
        kind if kind.is_file() && may(Access::READ_OK) => TreeFileKind::Regular,
        _ => TreeFileKind::Other,
    }
}

impl Files for HostFiles {
    fn open(&self, path: &str, how: OpenMode) -> io::Result<Box<dyn OpenFile>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(how != OpenMode::Read)
            .create(how == OpenMode::Create)
            .truncate(how == OpenMode::Create);
        if how == OpenMode::Direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        Ok(Box::new(options.open(self.at(path))?))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.at(path))
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn stat(&self, path: &str) -> io::Result<u64> {
        fs::symlink_metadata(self.at(path)).map(|metadata| metadata.len())
    }

    fn list(&self, path: &str) -> io::Result<u64> {
        let mut count = 0;
        for entry in fs::read_dir(self.at(path))? {
            entry?;
            count += 1;
        }
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        // syncfs(2) does not send a request to a FUSE server, but fsync(2) of a directory does.
        let root = File::open(&self.root)?;
        rustix::fs::syncfs(&root)?;
        root.sync_all()
    }
}

impl OpenFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        Ok(rustix::fs::fallocate(
            self,
            FallocateFlags::empty(),
            range.start,
            range.end.saturating_sub(range.start),
        )?)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}
