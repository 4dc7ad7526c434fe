//! Files of a volume, accessed by library calls in this process.

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use obento::Volume;
use obento::base::FileKind;
use obento::fs::{File, OpenOptions};
use obento::text::escaped;
use obento::walk::Step;

use super::{Files, OpenFile, OpenMode, Tree, TreeFile, TreeFileKind};

/// Files of an open volume.
#[derive(Clone)]
pub struct ImageFiles {
    volume: Volume,
    /// The directory that contains the files, with a slash at the end.
    folder: String,
}

impl ImageFiles {
    /// Returns the files of `volume`.
    pub fn new(volume: Volume) -> Self {
        Self { volume, folder: String::new() }
    }

    /// Returns the files of a directory of `volume`.
    pub fn within(volume: Volume, folder: &str) -> Self {
        Self { volume, folder: format!("{folder}/") }
    }

    fn at<'a>(&self, path: &'a str) -> Cow<'a, str> {
        if self.folder.is_empty() { path.into() } else { [&self.folder, path].concat().into() }
    }

    fn below(&self, path: &[u8]) -> Vec<u8> {
        [b"/", self.folder.trim_start_matches('/').as_bytes(), path].concat()
    }
}

impl Tree for ImageFiles {
    fn visit(&self, found: &mut dyn FnMut(TreeFile)) -> io::Result<()> {
        for entry in self.volume.walk_from(self.below(b""))? {
            let entry = entry.map_err(|damage| {
                io::Error::other(format!("cannot read '{}': {}", escaped(&damage.path), damage.error))
            })?;
            let kind = match (entry.step, entry.attr.kind) {
                (Step::Leave, _) => continue,
                (Step::Enter, _) => TreeFileKind::Directory,
                (Step::File, FileKind::Regular) => TreeFileKind::Regular,
                (Step::File, _) => TreeFileKind::Other,
            };
            if !entry.path.is_empty() {
                found(TreeFile { path: entry.path, kind, len: entry.attr.size });
            }
        }
        Ok(())
    }

    fn list_attributes(&self, directory: &[u8]) -> io::Result<u64> {
        let mut count = 0;
        for entry in self.volume.read_dir(self.below(directory))? {
            entry?.metadata()?;
            count += 1;
        }
        Ok(count)
    }

    fn look_up(&self, path: &[u8]) -> io::Result<()> {
        self.volume.symlink_metadata(self.below(path)).map(drop).map_err(Into::into)
    }

    fn open_file(&self, path: &[u8]) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(OpenOptions::new().read(true).open(&self.volume, self.below(path))?))
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
        Ok(Box::new(options.open(&self.volume, self.at(path).as_bytes())?))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        Ok(self.volume.create_dir(self.at(path).as_bytes())?)
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        Ok(self.volume.remove_file(self.at(path).as_bytes())?)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        Ok(self.volume.remove_dir(self.at(path).as_bytes())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(self.volume.rename(self.at(from).as_bytes(), self.at(to).as_bytes())?)
    }

    fn stat(&self, path: &str) -> io::Result<u64> {
        Ok(self.volume.symlink_metadata(self.at(path).as_bytes())?.len())
    }

    fn list(&self, path: &str) -> io::Result<u64> {
        let mut count = 0;
        for entry in self.volume.read_dir(self.at(path).as_bytes())? {
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
