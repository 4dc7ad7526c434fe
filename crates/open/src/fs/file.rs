//! An open file.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use obento_base::{Error, FileKind, Mode};
use obento_driver::{SetAttr, Size, TimeChange};
use obento_vfs::{Caller, Node};

use super::metadata::timestamp;
use super::{FsError, Metadata, Result};

/// An open file of a volume, like `std::fs::File`.
///
/// The file remains usable after its last name is removed, until it is dropped. Dropping a file closes it, and does not
/// write its data to stable storage. [`sync_all`](Self::sync_all) writes the data to stable storage.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom, Write};
/// use obento::Volume;
///
/// let volume = Volume::in_memory();
/// let mut file = volume.create("/numbers")?;
/// file.write_all(b"0123456789")?;
/// file.write_all_at(b"xy", 4)?;
/// file.set_len(8)?;
/// file.sync_all()?;
///
/// let mut file = volume.open("/numbers")?;
/// file.seek(SeekFrom::End(-4))?;
/// let mut end = String::new();
/// file.read_to_string(&mut end)?;
/// assert_eq!((end.as_str(), file.metadata()?.len()), ("xy67", 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct File {
    file: obento_vfs::File,
    path: Vec<u8>,
    position: Mutex<u64>,
}

impl File {
    pub(super) fn new(file: obento_vfs::File, path: Vec<u8>) -> Self {
        Self { file, path, position: Mutex::new(0) }
    }

    /// Returns the inode.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "")?;
    /// let file = volume.open("/file")?;
    /// volume.rename("/file", "/other")?;
    /// assert_eq!(file.node().ino(), volume.metadata("/other")?.ino());
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn node(&self) -> &Node {
        self.file.node()
    }

    /// Returns the path that was used to open the file.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(Error) -> FsError {
        move |error| FsError::new(action, &self.path, error)
    }

    fn position(&self) -> MutexGuard<'_, u64> {
        // A panic of another thread cannot leave the position invalid: any number is valid.
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads bytes from `offset` on into `buf`, and returns their number. The number may be less than
    /// `buf.len()`. It is 0 only at the end of the file or if `buf` is empty.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/digits", "0123456789")?;
    /// let mut two = [0; 2];
    /// assert_eq!(volume.open("/digits")?.read_at(&mut two, 8)?, 2);
    /// assert_eq!(two, *b"89");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(offset, buf).map_err(|error| self.failed("read")(error).into())
    }

    /// Fills `buf` with the bytes from `offset`.
    ///
    /// # Errors
    ///
    /// - `UnexpectedEof`: the file ends before `buf` is full.
    /// - The errors of reading the file.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/digits", "0123456789")?;
    /// let mut four = [0; 4];
    /// let file = volume.open("/digits")?;
    /// file.read_exact_at(&mut four, 3)?;
    /// assert_eq!(four, *b"3456");
    /// assert_eq!(file.read_exact_at(&mut four, 8).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset.saturating_add(done as u64))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Writes bytes at `offset`, or at the end of a file that was opened for appending. Returns their number,
    /// which may be less than `buf.len()`.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// let file = volume.create("/sparse")?;
    /// assert_eq!(file.write_at(b"end", 1 << 20)?, 3);
    /// assert_eq!(file.metadata()?.len(), (1 << 20) + 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(offset, buf).map_err(|error| self.failed("write to")(error).into())
    }

    /// Writes all of `buf` at `offset`.
    ///
    /// # Errors
    ///
    /// The errors of writing the file, and `WriteZero` if no byte can be written. The bytes before the
    /// failure are written.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/digits", "0123456789")?;
    /// let file = obento::fs::OpenOptions::new().write(true).open(&volume, "/digits")?;
    /// file.write_all_at(b"xyz", 4)?;
    /// assert_eq!(volume.read("/digits")?, b"0123xyz789");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.write_at(&buf[done..], offset.saturating_add(done as u64))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Sets the length in bytes. The file must be open for writing. Added bytes read as zeros. They use no
    /// space, unless the format has no holes (FAT, exFAT).
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// let file = volume.create("/file")?;
    /// file.set_len(5)?;
    /// assert_eq!(volume.read("/file")?, [0; 5]);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.file.truncate(len).map_err(self.failed("set the length of"))
    }

    /// Allocates the space for `range`, so that later writes to `range` need no more space. A file that is
    /// shorter grows to the end of `range`. The call does not check whether the file is open for writing.
    /// After an error, a part of the range may be allocated.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// let file = volume.create("/file")?;
    /// file.allocate(0..1 << 20)?;
    /// assert_eq!(file.metadata()?.len(), 1 << 20);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn allocate(&self, range: Range<u64>) -> Result<()> {
        self.node().allocate(range, Size::Grow).map_err(self.failed("allocate space for"))
    }

    /// Makes `range` read as zeros and frees the whole blocks inside it. The length of the file does not
    /// change. The call does not check whether the file is open for writing.
    ///
    /// Fails with `NotSupported` if the format has no holes and `range` contains a whole block. The parts of
    /// blocks at the edges of `range` then read as zeros nevertheless.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "secret")?;
    /// let file = obento::fs::OpenOptions::new().write(true).open(&volume, "/file")?;
    /// file.punch_hole(1..3)?;
    /// assert_eq!(volume.read("/file")?, b"s\0\0ret");
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        self.node().punch(range).map_err(self.failed("punch a hole into"))
    }

    /// Returns once the file, its attributes and its names are on stable storage.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the volume is open for reading, or was closed.
    /// - The errors of the device, including errors of earlier writes.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// let file = volume.create("/file")?;
    /// file.write_all_at(b"kept, whatever happens", 0)?;
    /// file.sync_all()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync_all(&self) -> Result<()> {
        self.node().sync().map_err(self.failed("sync"))
    }

    /// Does the same as [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// Returns the attributes of the file.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// volume.write("/file", "12345")?;
    /// assert_eq!(volume.open("/file")?.metadata()?.len(), 5);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn metadata(&self) -> Result<Metadata> {
        self.node().attr().map(Metadata::from).map_err(self.failed("examine"))
    }

    /// Sets the permission bits.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use obento::base::Mode;
    ///
    /// let file = volume.create("/tool")?;
    /// file.set_permissions(Mode::new(0o755))?;
    /// assert_eq!(file.metadata()?.permissions(), Mode::new(0o755));
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn set_permissions(&self, mode: Mode) -> Result<()> {
        self.change("set the permissions of", SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// Sets the access time and the modification time.
    ///
    /// ```
    /// # let volume = obento::Volume::in_memory();
    /// use std::time::SystemTime;
    ///
    /// let file = volume.create("/file")?;
    /// file.set_times(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH)?;
    /// assert_eq!(file.metadata()?.accessed(), SystemTime::UNIX_EPOCH);
    /// # Ok::<(), obento::fs::FsError>(())
    /// ```
    pub fn set_times(&self, accessed: SystemTime, modified: SystemTime) -> Result<()> {
        let at = |time| Some(TimeChange::At(timestamp(time)));
        let change = SetAttr { atime: at(accessed), mtime: at(modified), ..SetAttr::default() };
        self.change("set the times of", change)
    }

    fn change(&self, action: &'static str, change: SetAttr) -> Result<()> {
        let changed = self.node().vfs().set_attr(&Caller::Owner, self.node(), &change);
        changed.map(drop).map_err(self.failed(action))
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position();
        let count = self.read_at(buf, *position)?;
        *position += count as u64;
        Ok(count)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut position = self.position();
        let count = self.write_at(buf, *position)?;
        *position = if self.file.flags().contains(obento_vfs::OpenFlags::APPEND) {
            self.metadata()?.len()
        } else {
            *position + count as u64
        };
        Ok(count)
    }

    /// Has no effect, since `File` has no buffer. [`File::sync_all`] writes data to stable storage.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position();
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(distance) => position.checked_add_signed(distance),
            SeekFrom::End(distance) => self.metadata()?.len().checked_add_signed(distance),
        };
        let target = target.ok_or_else(|| FsError::new("seek in", &self.path, Error::Invalid))?;
        *position = target;
        Ok(target)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

/// Reads all bytes of `node`.
pub(super) fn read_all(node: &Node) -> std::result::Result<Vec<u8>, Error> {
    match node.kind()? {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Error::IsDirectory),
        _ => return Err(Error::Invalid),
    }
    let mut bytes = Vec::new();
    loop {
        // The loop reads until the end of the file. The size may come from a damaged inode and does not bound
        // memory.
        let (start, step) = (bytes.len(), bytes.len().clamp(STEP, MAX_STEP));
        bytes.try_reserve(step).map_err(|_| Error::NoMemory)?;
        bytes.resize(start + step, 0);
        let count = node.read_at(start as u64, &mut bytes[start..])?;
        bytes.truncate(start + count);
        if count == 0 {
            return Ok(bytes);
        }
    }
}

/// Length of the first read, and maximum length of one read, in bytes.
const STEP: usize = 64 << 10;
const MAX_STEP: usize = 4 << 20;
