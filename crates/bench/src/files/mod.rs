//! The file operations of the workloads.
//!
//! A workload is written once, for [`Files`]. A target with a path is accessed by system calls, and a driver of obento
//! in this process by library calls. Paths are relative to the root of the file system, without a leading slash.

mod host;
mod image;
mod tree;

use std::io;
use std::ops::Range;

pub use host::HostFiles;
pub use image::ImageFiles;
pub use tree::{Tree, TreeFile, TreeFileKind};

/// The mode in which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Change,
    /// A new file, to read and write. An existing file is truncated.
    Create,
    /// As `Change`, and bypasses the caches of the host if they exist. Offsets, lengths and buffers are multiples of a
    /// sector.
    Direct,
}

/// Files of the file system under test.
pub trait Files: Tree {
    /// Opens a file. Fails with the errors of open(2).
    fn open(&self, path: &str, how: OpenMode) -> io::Result<Box<dyn OpenFile>>;
    /// Creates a directory in an existing directory.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Removes the name of a file.
    fn remove_file(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Returns the length of the file with this name.
    fn stat(&self, path: &str) -> io::Result<u64>;
    /// Returns the number of names in a directory, without `.` and `..`.
    fn list(&self, path: &str) -> io::Result<u64>;
    /// Flushes the whole file system to stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// An open file of the file system under test.
pub trait OpenFile: Send + Sync {
    /// Reads from byte `offset` on. Returns the number of bytes, which is 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf` from byte `offset` on.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Returns the length.
    fn len(&self) -> io::Result<u64>;
    /// Returns whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Allocates space for `range`, and extends the file to the end of `range`.
    fn allocate(&self, range: Range<u64>) -> io::Result<()>;
    /// Flushes the file to stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// Reads a whole file, `buf.len()` bytes a call. Returns the length.
pub fn read_whole(file: &dyn OpenFile, buf: &mut [u8]) -> io::Result<u64> {
    let mut done = 0;
    loop {
        match file.read_at(buf, done)? {
            0 => return Ok(done),
            count => done += count as u64,
        }
    }
}

/// Writes `len` bytes from byte `start` on, `data.len()` bytes a call.
pub fn write_span(file: &dyn OpenFile, start: u64, len: u64, data: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let count = usize::try_from(len - done).map_or(data.len(), |left| left.min(data.len()));
        file.write_at(&data[..count], start + done)?;
        done += count as u64;
    }
    Ok(())
}

/// Creates a directory and its missing parents.
pub fn create_dirs(files: &dyn Files, path: &str) -> io::Result<()> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for end in ends.filter(|end| *end > 0) {
        match files.create_dir(&path[..end]) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use obento::Volume;

    fn both() -> Vec<(Box<dyn Files>, Option<tempfile::TempDir>)> {
        let folder = tempfile::tempdir().unwrap();
        let host = HostFiles::new(folder.path().to_owned());
        vec![(Box::new(host), Some(folder)), (Box::new(ImageFiles::new(Volume::in_memory())), None)]
    }

    #[test]
    fn system_calls_and_calls_of_the_library_do_the_same() {
        for (files, _folder) in both() {
            create_dirs(&*files, "a/b/c").unwrap();
            let file = files.open("a/b/c/file", OpenMode::Create).unwrap();
            write_span(&*file, 0, 10_000, &[7; 4096]).unwrap();
            assert_eq!(file.len().unwrap(), 10_000);
            file.allocate(0..20_000).unwrap();
            file.sync().unwrap();
            assert_eq!(files.stat("a/b/c/file").unwrap(), 20_000);
            files.rename("a/b/c/file", "a/b/other").unwrap();
            let read = files.open("a/b/other", OpenMode::Read).unwrap();
            let mut buf = [0; 3000];
            assert_eq!(read_whole(&*read, &mut buf).unwrap(), 20_000);
            assert_eq!(read.read_at(&mut buf, 9_990).unwrap(), 3000);
            assert_eq!((buf[9], buf[10]), (7, 0));
            assert_eq!((files.list("a/b").unwrap(), files.list("a/b/c").unwrap()), (2, 0));
            files.remove_dir("a/b/c").unwrap();
            files.remove_file("a/b/other").unwrap();
            files.sync().unwrap();
            assert_eq!(files.list("a/b").unwrap(), 0);
            assert_eq!(files.open("a/none", OpenMode::Read).err().unwrap().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn both_visit_every_file_of_a_tree_with_names_in_any_encoding() {
        let name: &[u8] = b"d/\xff\xfe";
        let (host, image) = (tempfile::tempdir().unwrap(), Volume::in_memory());
        std::fs::create_dir(host.path().join("d")).unwrap();
        std::fs::write(host.path().join(std::ffi::OsStr::from_bytes(name)), "12345").unwrap();
        std::os::unix::fs::symlink("none", host.path().join("link")).unwrap();
        image.create_dir("d").unwrap();
        image.write(name, "12345").unwrap();
        image.symlink("none", "link").unwrap();
        let all: [Box<dyn Files>; 2] =
            [Box::new(HostFiles::new(host.path().to_owned())), Box::new(ImageFiles::new(image))];
        for files in all {
            let mut found = Vec::new();
            files.visit(&mut |file| found.push((file.path, file.kind))).unwrap();
            found.sort_by(|a, b| a.0.cmp(&b.0));
            let expected = [
                (b"d".to_vec(), TreeFileKind::Directory),
                (name.to_vec(), TreeFileKind::Regular),
                (b"link".to_vec(), TreeFileKind::Other),
            ];
            assert_eq!(found, expected);
            assert_eq!((files.list_attributes(b"").unwrap(), files.list_attributes(b"d").unwrap()), (2, 1));
            files.look_up(b"link").unwrap();
            assert_eq!(read_whole(&*files.open_file(name).unwrap(), &mut [0; 3]).unwrap(), 5);
            assert_eq!(files.look_up(b"none").unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }
}
