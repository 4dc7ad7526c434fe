//! Files of a volume, accessed by library calls in this process.

use std::io;
use std::ops::Range;

use obento::Volume;
use obento::fs::{File, OpenOptions};

use super::{Files, OpenFile, OpenMode};

/// Files of an open volume.
#[derive(Clone)]
pub struct ImageFiles {
    volume: Volume,
}

impl ImageFiles {
    /// Returns the files of `volume`.
    pub fn new(volume: Volume) -> Self {
        Self { volume }
    }
}

impl Files for ImageFiles {
    fn open(&self, path: &str, how: OpenMode) -> io::Result<Box<dyn OpenFile>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(how != OpenMode::Read)
            .create(how == OpenMode::Create)
            .truncate(how == OpenMode::Create);
        Ok(Box::new(options.open(&self.volume, path)?))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        Ok(self.volume.create_dir(path)?)
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        Ok(self.volume.remove_file(path)?)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        Ok(self.volume.remove_dir(path)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(self.volume.rename(from, to)?)
    }

    fn stat(&self, path: &str) -> io::Result<u64> {
        Ok(self.volume.symlink_metadata(path)?.len())
    }

    fn list(&self, path: &str) -> io::Result<u64> {
        let mut count = 0;
        for entry in self.volume.read_dir(path)? {
            entry?;
            count += 1;
        }
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        self.volume.sync().map_err(|error| io::Error::other(error.to_string()))
    }
}

impl OpenFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        Ok(File::allocate(self, range)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.sync_all()?)
    }
}
