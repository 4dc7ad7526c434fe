//! The paths of files in records: from the names in the log, and from the volume for directories that are older.

use std::collections::HashMap;
use std::rc::Rc;

use obento::base::Ino;
use obento::provenance::{FileId, Graph, Lineage, Location, SegmentNames, entry_path};

use super::tree::{FileNames, Links, Tree};

/// The names that a log contains.
pub trait KnownNames {
    /// Returns the last name of a file.
    fn file(&mut self, file: FileId) -> Option<Location>;

    /// Returns the location of a directory.
    fn directory(&mut self, ino: Ino) -> Option<Location>;
}

impl KnownNames for &Graph {
    fn file(&mut self, file: FileId) -> Option<Location> {
        self.location(file).map(|(parent, name)| Location { parent, name: name.into() })
    }

    fn directory(&mut self, ino: Ino) -> Option<Location> {
        self.directories().get(ino).cloned()
    }
}

impl KnownNames for Lineage {
    fn file(&mut self, file: FileId) -> Option<Location> {
        self.location(file)
    }

    fn directory(&mut self, ino: Ino) -> Option<Location> {
        self.directory(ino)
    }
}

impl KnownNames for SegmentNames<'_> {
    fn file(&mut self, file: FileId) -> Option<Location> {
        self.name(file)
    }

    fn directory(&mut self, ino: Ino) -> Option<Location> {
        self.directory(ino)
    }
}

/// Names no file, so that names come from the volume.
struct VolumeOnly;

impl KnownNames for VolumeOnly {
    fn file(&mut self, _: FileId) -> Option<Location> {
        None
    }

    fn directory(&mut self, _: Ino) -> Option<Location> {
        None
    }
}

/// Finds paths.
pub struct Paths {
    tree: Rc<Tree>,
    root: Ino,
    /// The directories of the volume that were found.
    found: HashMap<Ino, Option<Location>>,
    /// The names of the files of the volume; `None` until they are needed.
    files: Option<FileNames>,
    is_cut: bool,
}

impl Paths {
    pub fn new(tree: &Rc<Tree>) -> Self {
        Self { tree: tree.clone(), root: tree.root(), found: HashMap::new(), files: None, is_cut: false }
    }

    /// Returns the path of the entry `name` in `parent`.
    pub fn path(&mut self, known: &mut dyn KnownNames, parent: Ino, name: &[u8]) -> Vec<u8> {
        let root = self.root;
        let path =
            entry_path(root, parent, name, &mut |dir| known.directory(dir).or_else(|| self.look_up(dir)));
        self.is_cut |= path.is_cut;
        path.bytes
    }

    /// Returns whether a path since the last call starts with an inode number because it was too long.
    pub fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.is_cut)
    }

    /// Returns the last path of a file; `#12` if the file with inode number 12 has no known name.
    pub fn of_file(&mut self, known: &mut dyn KnownNames, file: FileId) -> Vec<u8> {
        match known.file(file) {
            Some(Location { parent, name }) => self.path(known, parent, &name),
            None => self.of_unnamed(known, file),
        }
    }

    /// Returns a path of a file that the log does not name.
    pub fn of_unnamed(&mut self, known: &mut dyn KnownNames, file: FileId) -> Vec<u8> {
        if file.ino == self.root {
            return b"/".to_vec();
        }
        match known.directory(file.ino).or_else(|| self.look_up(file.ino)) {
            Some(Location { parent, name }) => self.path(known, parent, &name),
            None => {
                let name = self.names_in_volume(file).first().cloned();
                let path = name.map(|name| self.path_in_volume(&name));
                path.unwrap_or_else(|| format!("#{}", file.ino).into_bytes())
            }
        }
    }

    /// Returns the names that a file has in the volume. The whole volume is walked once.
    pub fn names_in_volume(&mut self, file: FileId) -> &[Location] {
        if matches!(self.tree.links(file), Links::None) {
            return &[];
        }
        let files = self.files.get_or_insert_with(|| self.tree.names());
        files.get(&file.ino).map_or(&[], Vec::as_slice)
    }

    /// Returns the path of a name in the volume.
    pub fn path_in_volume(&mut self, name: &Location) -> Vec<u8> {
        self.path(&mut VolumeOnly, name.parent, &name.name)
    }

    /// Returns the entry of a directory of the volume.
    fn look_up(&mut self, dir: Ino) -> Option<Location> {
        if let Some(known) = self.found.get(&dir) {
            return known.clone();
        }
        // Entries of the parent directory are remembered, so that a directory is listed once.
        self.found.insert(dir, None);
        for (ino, location) in self.tree.locations(dir) {
            self.found.insert(ino, Some(location));
        }
        self.found.get(&dir).cloned().flatten()
    }
}
