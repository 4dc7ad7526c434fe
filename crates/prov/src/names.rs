//! The names of files at the time of a record.

use hashbrown::HashMap;
use obento_base::{FileKind, Ino};

use crate::directories::Location;
use crate::indexed::{IndexedLog, each_name_change};
use crate::record::{FileId, Record};

/// The location of an inode that may be a directory.
#[derive(Clone, Debug)]
enum Place {
    /// The location of a directory; `None` if the log does not contain its creation.
    Directory(Option<Location>),
    /// The location if the inode is a directory.
    Moved(Location),
}

/// The names of files and directories, up to the records of one segment that were added.
#[derive(Debug)]
pub struct SegmentNames<'a> {
    log: &'a mut IndexedLog,
    at: usize,
    directories: HashMap<Ino, Place>,
    names: HashMap<FileId, Option<Location>>,
}

impl<'a> SegmentNames<'a> {
    /// Returns the names before the first record of the segment at the position `at`.
    pub fn new(log: &'a mut IndexedLog, at: usize) -> Self {
        Self { log, at, directories: HashMap::new(), names: HashMap::new() }
    }

    /// Adds the next record of the segment.
    pub fn add(&mut self, record: &Record<'_>) {
        if let Record::Create { parent, name, file, kind: FileKind::Directory, .. } = *record {
            let location = Location { parent, name: name.into() };
            self.directories.insert(file.ino, Place::Directory(Some(location)));
        }
        let is_rename = matches!(record, Record::Rename { .. });
        each_name_change(record, &mut |file, parent, name, exists| {
            if !exists || name.is_empty() {
                return;
            }
            let location = Location { parent, name: name.into() };
            if is_rename {
                self.moves(file.ino, location.clone());
            }
            self.names.insert(file, Some(location));
        });
        if let Record::Remove { file, links: 0, .. } = *record {
            self.names.insert(file, None);
        }
    }

    fn moves(&mut self, ino: Ino, location: Location) {
        match self.directories.get_mut(&ino) {
            Some(Place::Directory(Some(known)) | Place::Moved(known)) => *known = location,
            Some(Place::Directory(None)) => {}
            None => drop(self.directories.insert(ino, Place::Moved(location))),
        }
    }

    /// Returns the last name of a file, unless the file was removed.
    pub fn name(&mut self, file: FileId) -> Option<Location> {
        if let Some(known) = self.names.get(&file) {
            return known.clone();
        }
        let found = self.log.name(file, self.at);
        self.names.insert(file, found.clone());
        found
    }

    /// Returns the location of a directory whose creation the log contains.
    pub fn directory(&mut self, ino: Ino) -> Option<Location> {
        let moved = match self.directories.get(&ino) {
            Some(Place::Directory(known)) => return known.clone(),
            Some(Place::Moved(location)) => Some(location.clone()),
            None => None,
        };
        let older = self.log.directory(ino, self.at);
        let found = older.map(|older| moved.unwrap_or(older));
        self.directories.insert(ino, Place::Directory(found.clone()));
        found
    }
}
