//! The paths of files in records: from the names in the log, and from the volume for directories that are older.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use obento::provenance::{Directories, FileId, Graph, Location};
use obento::{Cookie, DirEntry, FileKind, Ino, Result, Step, Volume, Walk};

/// Finds paths.
pub struct Paths {
    volume: Rc<Volume>,
    root: Ino,
    /// The directories of the volume that were found.
    found: HashMap<Ino, Option<Location>>,
    /// The paths of the files of the volume; `None` until they are needed.
    files: Option<HashMap<Ino, Vec<Vec<u8>>>>,
}

impl Paths {
    pub fn new(volume: &Rc<Volume>) -> Self {
        Self { volume: volume.clone(), root: volume.root().ino(), found: HashMap::new(), files: None }
    }

    /// Returns the path of the entry `name` in `parent`.
    pub fn path(&mut self, directories: &Directories, parent: Ino, name: &[u8]) -> Vec<u8> {
        let root = self.root;
        directories.path(root, parent, name, &mut |dir| self.look_up(dir))
    }

    /// Returns the last path of a file; `#12` if the file with inode number 12 has no known name.
    pub fn of_file(&mut self, graph: &Graph, file: FileId) -> Vec<u8> {
        if let Some((parent, name)) = graph.location(file) {
            return self.path(graph.directories(), parent, name);
        }
        self.of_unnamed(graph.directories(), file)
    }

    /// Returns a path of a file that the log does not name.
    pub fn of_unnamed(&mut self, directories: &Directories, file: FileId) -> Vec<u8> {
        if file.ino == self.root {
            return b"/".to_vec();
        }
        let known = directories.get(file.ino).cloned().or_else(|| self.look_up(file.ino));
        match known {
            Some(Location { parent, name }) => self.path(directories, parent, &name),
            None => {
                self.in_volume(file).first().cloned().unwrap_or_else(|| format!("#{}", file.ino).into_bytes())
            }
        }
    }

    /// Returns the paths that a file has in the volume. The whole volume is walked once.
    pub fn in_volume(&mut self, file: FileId) -> &[Vec<u8>] {
        let attr = self.volume.vfs().node(file.ino).and_then(|node| node.attr());
        if !attr.is_ok_and(|attr| attr.generation == file.generation && attr.nlink > 0) {
            return &[];
        }
        let volume = &self.volume;
        let files = self.files.get_or_insert_with(|| {
            let mut files: HashMap<Ino, Vec<Vec<u8>>> = HashMap::new();
            for entry in Walk::new(volume.root()).flatten().filter(|entry| entry.step == Step::File) {
                files.entry(entry.attr.ino).or_default().push([b"/", &*entry.path].concat());
            }
            files
        });
        files.get(&file.ino).map_or(&[], Vec::as_slice)
    }

    /// Returns the entry of a directory of the volume.
    fn look_up(&mut self, dir: Ino) -> Option<Location> {
        if let Some(known) = self.found.get(&dir) {
            return known.clone();
        }
        // Entries of the parent directory are remembered, so that a directory is listed once.
        self.found.insert(dir, None);
        for (ino, location) in self.list_parent(dir).unwrap_or_default() {
            self.found.insert(ino, Some(location));
        }
        self.found.get(&dir).cloned().flatten()
    }

    /// Returns the directories in the parent of the directory `dir`.
    fn list_parent(&self, dir: Ino) -> Option<Vec<(Ino, Location)>> {
        let node = self.volume.vfs().node(dir).ok()?;
        let parent = node.parent().ok()?;
        let mut found = Vec::new();
        let listed = parent.read_dir(Cookie::START, &mut |entry: Result<DirEntry<'_>>| {
            if let Ok(entry) = entry
                && (entry.ino == dir || entry.kind == Some(FileKind::Directory))
            {
                let name = entry.name.as_bytes().to_vec();
                found.push((entry.ino, Location { parent: parent.ino(), name }));
            }
            ControlFlow::Continue(())
        });
        listed.ok()?;
        Some(found)
    }
}
