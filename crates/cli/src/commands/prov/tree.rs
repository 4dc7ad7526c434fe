//! The files of the volume to which a log belongs, as the volume is now: in an image, or in a mount.
//!
//! The server of a mount has its image open for changes, so that no other process can read a consistent state from the
//! image. The files of a mount are found through the kernel, by their inode numbers. The mount shows no generations: the
//! log contains the last one of each inode number that it names.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use obento::address::FileSelector;
use obento::base::{FileKind, Generation, Ino};
use obento::driver::{Cookie, DirEntry};
use obento::host::HostError;
use obento::provenance::{Entries, FileId, Location, Segments};
use obento::vfs::Symlinks;
use obento::volume::Owners;
use obento::walk::{Step, Walk};
use obento::{Result, Volume};
use rustix::fs::{Mode, OFlags};

/// The files of a volume.
pub enum Tree {
    Image(Rc<Volume>),
    Mount(Box<MountedTree>),
}

/// The names that a file has in the volume.
pub enum Links {
    None,
    Directory,
    File(usize),
}

/// The names of files by their inode numbers. A path is much longer than a name, if a hostile volume has deep directories.
pub type FileNames = HashMap<Ino, Vec<Location>>;

/// The files of a mount.
pub struct MountedTree {
    /// The mount point.
    at: PathBuf,
    /// The number of the mounted device. Other mounts below the mount point have other numbers.
    device: u64,
    root: Ino,
    /// The UUID or the serial number of the volume; empty if it has none.
    id: String,
    owners: Owners,
    segments: Rc<Segments>,
    names: OnceCell<Names>,
    generations: OnceCell<HashMap<Ino, Generation>>,
    /// The first reason why a file could not be examined although it may exist.
    failure: RefCell<Option<String>>,
}

/// The directories and files of a mount.
#[derive(Default)]
struct Names {
    directories: HashMap<Ino, Location>,
    files: FileNames,
}

impl MountedTree {
    /// Returns the files of the mount at `at`, whose root has the inode number `root`, and whose log is `segments`.
    ///
    /// # Errors
    ///
    /// Those of stat(2).
    pub fn new(at: &Path, root: Ino, id: String, segments: Rc<Segments>) -> io::Result<Self> {
        let device = fs::metadata(at)?.dev();
        let read = |path: &str| read_owners(&at.join(path), device).unwrap_or_default();
        let owners = Owners::from_files(&read("etc/passwd"), &read("etc/group"));
        let (at, names, generations) = (at.to_owned(), OnceCell::new(), OnceCell::new());
        let failure = RefCell::default();
        Ok(Self { at, device, root, id, owners, segments, names, generations, failure })
    }

    /// Returns the place of a path of the volume on the host.
    fn place(&self, path: &[u8]) -> PathBuf {
        let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
        self.at.join(OsStr::from_bytes(path.get(start..).unwrap_or_default()))
    }

    fn is_own(&self, meta: &fs::Metadata) -> bool {
        meta.dev() == self.device
    }

    /// Stores why the file at `path` could not be examined, unless it does not exist.
    fn note(&self, path: &Path, error: &io::Error) {
        if !is_missing(error) {
            let text = || HostError::of_io("examine", path, error).to_string();
            self.failure.borrow_mut().get_or_insert_with(text);
        }
    }

    /// Returns all names. The whole mount is walked once.
    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let mut found = Names::default();
            let mut left = vec![(Rc::<Path>::from(&*self.at), OsString::new(), self.root)];
            while let Some((above, name, parent)) = left.pop() {
                let at: Rc<Path> = if name.is_empty() { above } else { above.join(name).into() };
                let listed = fs::read_dir(&at).inspect_err(|error| self.note(&at, error));
                for entry in listed.into_iter().flatten() {
                    let known = entry.and_then(|entry| Ok((entry.metadata()?, entry)));
                    let known = known.inspect_err(|error| self.note(&at, error));
                    let Some((meta, entry)) = known.ok().filter(|(meta, _)| self.is_own(meta)) else {
                        continue;
                    };
                    let ino = Ino(meta.ino());
                    let location = Location { parent, name: entry.file_name().into_vec() };
                    if meta.is_dir() {
                        found.directories.insert(ino, location);
                        left.push((at.clone(), entry.file_name(), ino));
                    } else {
                        found.files.entry(ino).or_default().push(location);
                    }
                }
            }
            found
        })
    }

    /// Returns the last generation of an inode number in the log. The whole log is read once.
    fn generation(&self, ino: Ino) -> Option<Generation> {
        let generations = self.generations.get_or_init(|| {
            let mut last = HashMap::new();
            for segment in
                self.segments.numbers().iter().filter_map(|&number| self.segments.read(number).ok())
            {
                let files = Entries::new(&segment).flatten().filter_map(|entry| entry.record.file());
                last.extend(files.map(|file| (file.ino, file.generation)));
            }
            last
        });
        generations.get(&ino).copied()
    }
}

impl Tree {
    pub fn root(&self) -> Ino {
        match self {
            Self::Image(volume) => volume.root().ino(),
            Self::Mount(mount) => mount.root,
        }
    }

    /// Returns the file at `path`. Follows symbolic links.
    pub fn find(&self, path: &[u8]) -> Option<FileId> {
        match self {
            Self::Image(volume) => {
                let node = volume.resolve(&FileSelector::Path(path.to_vec()), Symlinks::Follow);
                let attr = node.and_then(|node| node.attr()).ok()?;
                Some(FileId { ino: attr.ino, generation: attr.generation })
            }
            Self::Mount(mount) => {
                let place = mount.place(path);
                let meta = fs::metadata(&place).inspect_err(|error| mount.note(&place, error));
                let meta = meta.ok().filter(|meta| mount.is_own(meta))?;
                let is_root = path.iter().all(|&byte| byte == b'/');
                let ino = if is_root { mount.root } else { Ino(meta.ino()) };
                Some(FileId { ino, generation: mount.generation(ino).unwrap_or_default() })
            }
        }
    }

    /// Returns whether the path exists, or may exist. Does not follow a symbolic link at its end.
    pub fn has(&self, path: &[u8]) -> bool {
        match self {
            Self::Image(volume) => volume.resolve(&FileSelector::Path(path.to_vec()), Symlinks::Keep).is_ok(),
            Self::Mount(mount) => {
                let place = mount.place(path);
                match fs::symlink_metadata(&place) {
                    Ok(meta) => mount.is_own(&meta),
                    Err(error) => {
                        mount.note(&place, &error);
                        !is_missing(&error)
                    }
                }
            }
        }
    }

    /// Returns which names a file has.
    pub fn links(&self, file: FileId) -> Links {
        match self {
            Self::Image(volume) => {
                let attr = volume.vfs().node(file.ino).and_then(|node| node.attr());
                match attr.ok().filter(|attr| attr.generation == file.generation && attr.nlink > 0) {
                    None => Links::None,
                    Some(attr) if attr.is_dir() => Links::Directory,
                    Some(attr) => Links::File(usize::try_from(attr.nlink).unwrap_or(usize::MAX)),
                }
            }
            Self::Mount(mount) => {
                let names = mount.names();
                match names.files.get(&file.ino) {
                    _ if mount.generation(file.ino).is_some_and(|last| last != file.generation) => {
                        Links::None
                    }
                    Some(found) => Links::File(found.len()),
                    None if file.ino == mount.root || names.directories.contains_key(&file.ino) => {
                        Links::Directory
                    }
                    None => Links::None,
                }
            }
        }
    }

    /// Returns the names of all files but directories.
    pub fn names(&self) -> FileNames {
        match self {
            Self::Image(volume) => {
                let mut files = FileNames::new();
                // The directories from the root to the current entry.
                let mut directories = Vec::new();
                for entry in Walk::new(volume.root()).flatten() {
                    directories.truncate(entry.depth);
                    match (entry.step, directories.last()) {
                        (Step::Enter, _) => directories.push(entry.attr.ino),
                        (Step::File, Some(&parent)) => {
                            let location = Location { parent, name: entry.name().to_vec() };
                            files.entry(entry.attr.ino).or_default().push(location);
                        }
                        (Step::File | Step::Leave, _) => {}
                    }
                }
                files
            }
            Self::Mount(mount) => mount.names().files.clone(),
        }
    }

    /// Returns the location of the directory `dir`, and perhaps those of other directories.
    pub fn locations(&self, dir: Ino) -> Vec<(Ino, Location)> {
        match self {
            Self::Image(volume) => in_parent(volume, dir).unwrap_or_default(),
            Self::Mount(mount) => {
                let found = mount.names().directories.get(&dir);
                found.map(|location| (dir, location.clone())).into_iter().collect()
            }
        }
    }

    /// Returns the name of a user.
    pub fn user(&self, uid: u32) -> Option<&[u8]> {
        match self {
            Self::Image(volume) => volume.owners().user(uid),
            Self::Mount(mount) => mount.owners.user(uid),
        }
    }

    /// Returns the first reason why a file of a mount could not be examined although it may exist.
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::Image(_) => None,
            Self::Mount(mount) => mount.failure.borrow().clone(),
        }
    }

    /// Returns the UUID or the serial number of the volume.
    pub fn id(&self) -> Option<String> {
        match self {
            Self::Image(volume) => obento::text::probe_id_text(&volume.info().probe),
            Self::Mount(mount) => Some(mount.id.clone()).filter(|id| !id.is_empty()),
        }
    }
}

/// Returns whether an error of the lookup of a path means that no file has this path.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a file with names of users or groups on the mounted device, up to the first error. The mount can belong to another
/// user: the file may be a FIFO, on which an open would wait, or have no end.
fn read_owners(path: &Path, device: u64) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok().filter(|meta| meta.is_file() && meta.dev() == device)?;
    let mut bytes = Vec::new();
    // The bytes before an error are used.
    let _ = file.take(Owners::MAX_BYTES as u64).read_to_end(&mut bytes);
    Some(bytes)
}

/// Returns the directories in the parent of the directory `dir`.
fn in_parent(volume: &Volume, dir: Ino) -> Option<Vec<(Ino, Location)>> {
    let node = volume.vfs().node(dir).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_read_only_from_a_regular_file_of_the_device_and_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let device = fs::metadata(folder.path()).unwrap().dev();
        fs::write(at("passwd"), "ann:x:1:1\n").unwrap();
        assert_eq!(read_owners(&at("passwd"), device).unwrap(), b"ann:x:1:1\n");
        assert!(read_owners(&at("passwd"), device + 1).is_none());
        std::os::unix::fs::symlink("passwd", at("link")).unwrap();
        assert!(read_owners(&at("link"), device).is_none());
        // Without NONBLOCK, the open would wait for a writer.
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(read_owners(&at("fifo"), device).is_none());
        File::create(at("long")).unwrap().set_len(Owners::MAX_BYTES as u64 + 1).unwrap();
        assert_eq!(read_owners(&at("long"), device).unwrap().len(), Owners::MAX_BYTES);
    }

    #[test]
    fn a_path_that_cannot_be_examined_may_exist_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::in_memory();
        volume.create_dir(format!("/{}", obento::provenance::DIRECTORY)).unwrap();
        let Some(segments) = Segments::of(volume.vfs()).unwrap() else { panic!("the log has a directory") };
        let mount = MountedTree::new(folder.path(), Ino(1), String::new(), Rc::new(segments)).unwrap();
        let tree = Tree::Mount(Box::new(mount));
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(tree.has(b"/file") && !tree.has(b"/none") && !tree.has(b"/file/below"));
        assert_eq!(tree.failure(), None);
        // A loop of links fails for every user, as a directory without the right to search does for some.
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        assert!(tree.has(b"/loop/file"));
        assert!(tree.failure().unwrap().contains("loop/file"));
    }
}
