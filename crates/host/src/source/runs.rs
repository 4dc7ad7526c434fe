//! The data and the holes of a file.

use std::fs::File;
use std::iter::FusedIterator;
use std::ops::Range;
use std::path::{Path, PathBuf};

use obento_block::BlockDevice;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::{FileDevice, HostError};

/// A regular file, open for reading. Its bytes are read through [`SourceFile::device`].
#[derive(Debug)]
pub struct SourceFile {
    device: FileDevice,
}

/// A part of a file that is all data or all hole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Run {
    /// Stored bytes.
    Data(Range<u64>),
    /// Bytes that read as zeros and take no space.
    Hole(Range<u64>),
}

impl SourceFile {
    /// Creates a source from the open `file`, whose path in errors is `path`. Fails with `System`.
    pub fn new(file: File, path: &Path) -> Result<Self, HostError> {
        Ok(Self { device: FileDevice::from_file(file, path)? })
    }

    /// Creates a source with the bytes of `device`.
    pub fn of(device: FileDevice) -> Self {
        Self { device }
    }

    /// Returns the bytes as a device.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }

    /// Returns the runs from the first byte to the last. If the file system does not report holes, returns
    /// one run of data.
    pub fn runs(&self) -> Runs<'_> {
        Runs { file: self, path: self.device.path().into(), at: 0 }
    }

    /// Returns the first byte of data from `at` on, or the end if none follows.
    fn next_data(&self, at: u64) -> Result<u64, Errno> {
        self.seek(SeekFrom::Data(at), at)
    }

    fn next_hole(&self, at: u64) -> Result<u64, Errno> {
        self.seek(SeekFrom::Hole(at), self.device.len())
    }

    fn seek(&self, place: SeekFrom, without_holes: u64) -> Result<u64, Errno> {
        match rustix::fs::seek(&**self.device.host_file(), place) {
            Ok(found) => Ok(found.min(self.device.len())),
            Err(Errno::NXIO) => Ok(self.device.len()),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(without_holes),
            Err(errno) => Err(errno),
        }
    }
}

/// The iterator of [`SourceFile::runs`].
#[derive(Debug)]
pub struct Runs<'a> {
    file: &'a SourceFile,
    path: PathBuf,
    at: u64,
}

impl Runs<'_> {
    fn step(&mut self) -> Result<Run, Errno> {
        let start = self.at;
        let data = self.file.next_data(start)?;
        if data > start {
            self.at = data;
            return Ok(Run::Hole(start..data));
        }
        // A file that another process changes must not cause an endless loop.
        self.at = self.file.next_hole(start)?.max(start + 1);
        Ok(Run::Data(start..self.at))
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, HostError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.file.device.len() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.at = u64::MAX;
        }
        Some(step.map_err(|errno| HostError::system("find the holes of", &self.path, errno)))
    }
}

impl FusedIterator for Runs<'_> {}
