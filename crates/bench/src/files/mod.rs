//! The operations that workloads are made of.
//!
//! A workload is written once, against [`Files`]: what has a path is driven by system calls, obento's driver in process by
//! calls of the library. Paths are relative to the root of what is measured, without a slash before.

mod host;
mod image;

use std::io;
use std::ops::Range;

pub use host::HostFiles;
pub use image::ImageFiles;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Change,
    /// A new file, to read and write; one of its name is emptied.
    Create,
    /// As `Change`, past the caches of the host where it has them. Offsets, lengths and buffers are whole sectors.
    Direct,
}

/// Files of the file system under test.
pub trait Files: Send + Sync {
    /// Opens a file. Errors: those of open(2).
    fn open(&self, path: &str, how: How) -> io::Result<Box<dyn OpenFile>>;
    /// Makes a directory whose parent exists.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Removes the name of a file.
    fn remove_file(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Gives a file another name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// The length of a file, by its name.
    fn stat(&self, path: &str) -> io::Result<u64>;
    /// How many names a directory holds; `.` and `..` do not count.
    fn list(&self, path: &str) -> io::Result<u64>;
    /// Brings all of the file system to stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// An open file of the file system under test.
pub trait OpenFile: Send + Sync {
    /// Reads from byte `offset` on; how many bytes, 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf` from byte `offset` on.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// The length.
    fn len(&self) -> io::Result<u64>;
    /// Whether nothing is in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Takes space for `range`, and lets the file grow to its end.
    fn allocate(&self, range: Range<u64>) -> io::Result<()>;
    /// Brings the file to stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// Reads a file from its beginning to its end, `buf.len()` bytes a call; how many bytes it has.
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

/// Makes a directory and those above it that are missing.
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
            let file = files.open("a/b/c/file", How::Create).unwrap();
            write_span(&*file, 0, 10_000, &[7; 4096]).unwrap();
            assert_eq!(file.len().unwrap(), 10_000);
            file.allocate(0..20_000).unwrap();
            file.sync().unwrap();
            assert_eq!(files.stat("a/b/c/file").unwrap(), 20_000);
            files.rename("a/b/c/file", "a/b/other").unwrap();
            let read = files.open("a/b/other", How::Read).unwrap();
            let mut buf = [0; 3000];
            assert_eq!(read_whole(&*read, &mut buf).unwrap(), 20_000);
            assert_eq!(read.read_at(&mut buf, 9_990).unwrap(), 3000);
            assert_eq!((buf[9], buf[10]), (7, 0));
            assert_eq!((files.list("a/b").unwrap(), files.list("a/b/c").unwrap()), (2, 0));
            files.remove_dir("a/b/c").unwrap();
            files.remove_file("a/b/other").unwrap();
            files.sync().unwrap();
            assert_eq!(files.list("a/b").unwrap(), 0);
            assert_eq!(files.open("a/none", How::Read).err().unwrap().kind(), io::ErrorKind::NotFound);
        }
    }
}
