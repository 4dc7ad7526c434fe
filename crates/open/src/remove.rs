//! Removes a tree.
//!
//! The removal is iterative. It has one frame for each directory on the current path, and reads a directory in
//! portions. A directory is removed after its contents, so a crash leaves a valid tree.
//! Invariant: the removal enters a directory only once, unless the directory was removed since. Only a damaged volume
//! has directories with several names. Without this rule, the removal would not end if a directory contains itself, and
//! each directory with two names on the way to a file that stays would double the visits of this file.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::ControlFlow;

use obento_base::{Error, FileKind, Ino, Name, NameBuf, Result};
use obento_driver::{Cookie, DirEntry};
use obento_vfs::{Caller, Node};

/// Entries that are read at once.
const PORTION: usize = 4096;

/// The next step for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// Enter a directory, to remove its contents.
    Enter,
    /// Remove the file, or the empty directory.
    Remove,
}

/// Selects the files of a tree to remove, and receives the results. Paths are relative to the top of the tree, whose
/// path is empty.
pub trait RemoveObserver {
    /// Returns whether to take the step `what` for the file at `path`. If a file is skipped, its parent
    /// directories are not removed either.
    fn wants(&mut self, _what: Removal, _path: &[u8], _kind: FileKind) -> bool {
        true
    }

    /// Receives a file that was removed.
    fn removed(&mut self, _path: &[u8], _kind: FileKind) {}

    /// Receives a file that could not be removed, and the reason. The removal continues, but does not remove
    /// the parent directories of the file.
    fn failed(&mut self, path: &[u8], error: Error);
}

/// Removes `name` in `dir` with everything below it. Does not follow symbolic links. Returns whether all files were
/// removed.
///
/// ```
/// use std::sync::Arc;
/// use obento::{Error, Volume, tmpfs};
/// use obento::base::{FileKind, Mode, Name};
/// use obento::driver::NewNode;
/// use obento::env::SystemClock;
/// use obento::remove::{RemoveObserver, remove_tree};
/// use obento::vfs::Caller;
///
/// struct Print;
/// impl RemoveObserver for Print {
///     fn failed(&mut self, path: &[u8], error: Error) {
///         eprintln!("{}: {error}", obento::text::escaped(path));
///     }
/// }
///
/// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
/// let (root, name) = (volume.root(), Name::new(b"dir").unwrap());
/// let new = NewNode {
///     kind: FileKind::Directory, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: Default::default(), target: b"",
/// };
/// volume.vfs().create(&Caller::Owner, &root, name, &new)?;
/// assert!(remove_tree(&root, name, &mut Print));
/// assert_eq!(root.lookup(name).unwrap_err(), Error::NotFound);
/// # Ok::<(), Error>(())
/// ```
pub fn remove_tree(dir: &Node, name: &Name, observer: &mut dyn RemoveObserver) -> bool {
    let mut remover = Remover::new(observer);
    let removed = remover.meet(dir, name, None);
    remover.finish(dir, removed)
}

/// Removes the contents of `dir`, but not `dir` itself. Returns whether all files were removed.
pub fn remove_children(dir: &Node, observer: &mut dyn RemoveObserver) -> bool {
    let mut remover = Remover::new(observer);
    remover.push(dir.clone(), None);
    remover.finish(dir, RemovalOutcome::Entered)
}

struct Remover<'a> {
    observer: &'a mut dyn RemoveObserver,
    /// The path of the current file.
    path: Vec<u8>,
    stack: Vec<Frame>,
    /// The directories on the stack, and those that stay.
    entered: HashSet<Ino>,
}

/// A directory that is being emptied.
struct Frame {
    node: Node,
    /// The name, or `None` for a directory that is not removed itself.
    name: Option<NameBuf>,
    path_len: usize,
    /// The entries that were read, the highest inode first.
    entries: Vec<Result<Listed>>,
    from: Cookie,
    is_read: bool,
    /// Whether one of its entries remains.
    is_spoiled: bool,
}

struct Listed {
    ino: Ino,
    name: NameBuf,
    kind: Option<FileKind>,
}

/// The result of handling one file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RemovalOutcome {
    Gone,
    Stays,
    /// The file is a directory, which is on the stack now.
    Entered,
}

impl<'a> Remover<'a> {
    fn new(observer: &'a mut dyn RemoveObserver) -> Self {
        Self { observer, path: Vec::new(), stack: Vec::new(), entered: HashSet::new() }
    }

    /// Empties the stack. `top` is the directory that contains the lowest frame. Returns whether everything
    /// was removed.
    fn finish(mut self, top: &Node, first: RemovalOutcome) -> bool {
        let mut last = first;
        while let Some(frame) = self.stack.last_mut() {
            self.path.truncate(frame.path_len);
            let met = match frame.next() {
                Some(Ok(Listed { name, kind, .. })) => {
                    let dir = frame.node.clone();
                    if frame.path_len > 0 {
                        self.path.push(b'/');
                    }
                    self.path.extend_from_slice(name.as_bytes());
                    self.meet(&dir, &name, kind)
                }
                Some(Err(error)) => self.fail(error),
                None => self.leave(top),
            };
            match self.stack.last_mut() {
                Some(frame) if met == RemovalOutcome::Stays => frame.is_spoiled = true,
                _ => {}
            }
            last = met;
        }
        last == RemovalOutcome::Gone
    }

    fn fail(&mut self, error: Error) -> RemovalOutcome {
        self.observer.failed(&self.path, error);
        RemovalOutcome::Stays
    }

    /// Removes `name` in `dir`, or enters it.
    fn meet(&mut self, dir: &Node, name: &Name, kind: Option<FileKind>) -> RemovalOutcome {
        let kind = match kind {
            Some(kind) => Ok(kind),
            None => dir.lookup(name).and_then(|node| node.kind()),
        };
        match kind {
            Ok(FileKind::Directory) => self.enter(dir, name),
            Ok(kind) if !self.observer.wants(Removal::Remove, &self.path, kind) => RemovalOutcome::Stays,
            Ok(kind) => match dir.vfs().unlink(&Caller::Owner, dir, name) {
                Ok(()) => self.gone(kind),
                Err(error) => self.fail(error),
            },
            Err(error) => self.fail(error),
        }
    }

    fn gone(&mut self, kind: FileKind) -> RemovalOutcome {
        self.observer.removed(&self.path, kind);
        RemovalOutcome::Gone
    }

    fn enter(&mut self, dir: &Node, name: &Name) -> RemovalOutcome {
        let node = match dir.lookup(name) {
            Ok(node) if self.entered.contains(&node.ino()) => return self.fail(Error::Loop),
            Ok(node) => node,
            Err(error) => return self.fail(error),
        };
        if !self.observer.wants(Removal::Enter, &self.path, FileKind::Directory) {
            return RemovalOutcome::Stays;
        }
        self.push(node, Some(name.to_buf()));
        RemovalOutcome::Entered
    }

    fn push(&mut self, node: Node, name: Option<NameBuf>) {
        self.entered.insert(node.ino());
        let path_len = self.path.len();
        self.stack.push(Frame {
            node,
            name,
            path_len,
            entries: Vec::new(),
            from: Cookie::START,
            is_read: false,
            is_spoiled: false,
        });
    }

    /// Removes the directory on top of the stack, whose contents were handled.
    fn leave(&mut self, top: &Node) -> RemovalOutcome {
        let Some(frame) = self.stack.pop() else { return RemovalOutcome::Stays };
        if frame.is_spoiled {
            return RemovalOutcome::Stays;
        }
        let ino = frame.node.ino();
        let Some(name) = frame.name else { return RemovalOutcome::Gone };
        // The inode is freed with its last reference, so this reference must be dropped before the removal.
        drop(frame.node);
        if !self.observer.wants(Removal::Remove, &self.path, FileKind::Directory) {
            return RemovalOutcome::Stays;
        }
        let dir = self.stack.last().map_or(top, |frame| &frame.node).clone();
        match dir.vfs().rmdir(&Caller::Owner, &dir, &name) {
            Ok(()) => {
                // A new directory may get the number, and a damaged directory another name.
                self.entered.remove(&ino);
                self.gone(FileKind::Directory)
            }
            Err(error) => self.fail(error),
        }
    }
}

impl Frame {
    fn next(&mut self) -> Option<Result<Listed>> {
        if self.entries.is_empty() && !self.is_read {
            self.read();
        }
        self.entries.pop()
    }

    fn read(&mut self) {
        let (mut from, mut is_full) = (self.from, false);
        let entries = &mut self.entries;
        let listed = self.node.read_dir(from, &mut |entry| {
            entries.push(entry.map(|DirEntry { ino, name, kind, next }| {
                from = next;
                Listed { ino, name: name.to_buf(), kind }
            }));
            is_full = entries.len() >= PORTION;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        entries.extend(listed.err().map(Err));
        // In the probable order of creation: such inodes and their blocks are often neighbours on disk.
        entries.sort_unstable_by_key(|entry| Reverse(entry.as_ref().map_or(Ino(0), |listed| listed.ino)));
        // A driver whose cookies do not advance must not cause an endless loop.
        self.is_read = !is_full || listed.is_err() || from == self.from;
        self.from = from;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use obento_base::Mode;
    use obento_driver::NewNode;
    use obento_env::SystemClock;

    use super::*;
    use crate::Volume;
    use obento_tmpfs as tmpfs;

    #[derive(Default)]
    struct Log {
        keep: &'static [u8],
        lines: Vec<String>,
    }

    impl RemoveObserver for Log {
        fn wants(&mut self, what: Removal, path: &[u8], _kind: FileKind) -> bool {
            what == Removal::Enter || path != self.keep || self.keep.is_empty()
        }

        fn removed(&mut self, path: &[u8], _kind: FileKind) {
            self.lines.push(String::from_utf8_lossy(path).into_owned());
        }

        fn failed(&mut self, path: &[u8], error: Error) {
            self.lines.push(format!("{}: {error}", String::from_utf8_lossy(path)));
        }
    }

    fn name(text: &str) -> &Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn make(dir: &Node, text: &str, kind: FileKind) -> Node {
        let new =
            NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: Default::default(), target: b"" };
        dir.vfs().create(&Caller::Owner, dir, name(text), &new).unwrap()
    }

    /// Creates `/top` with a file, a directory of two files, and an empty directory.
    fn tree() -> Node {
        let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
        let root = volume.root();
        let top = make(&root, "top", FileKind::Directory);
        make(&top, "file", FileKind::Regular);
        let sub = make(&top, "sub", FileKind::Directory);
        make(&sub, "a", FileKind::Regular);
        make(&sub, "b", FileKind::Fifo);
        make(&top, "void", FileKind::Directory);
        root
    }

    #[test]
    fn a_tree_goes_from_the_bottom_up_and_its_inodes_with_it() {
        let root = tree();
        let mut log = Log::default();
        assert!(remove_tree(&root, name("top"), &mut log));
        assert_eq!(log.lines.last().map(String::as_str), Some(""));
        let at = |path: &str| log.lines.iter().position(|line| line == path).unwrap();
        assert!(at("sub/a") < at("sub") && at("sub/b") < at("sub") && log.lines.len() == 6);
        assert_eq!(root.lookup(name("top")).unwrap_err(), Error::NotFound);
        assert_eq!(root.vfs().nodes_in_use(), 1);
    }

    #[test]
    fn a_kept_file_keeps_its_parent_directories_and_the_rest_is_removed() {
        let root = tree();
        let mut log = Log { keep: b"sub/a", ..Log::default() };
        assert!(!remove_tree(&root, name("top"), &mut log));
        log.lines.sort();
        assert_eq!(log.lines, ["file", "sub/b", "void"]);
        let sub = root.lookup(name("top")).unwrap().lookup(name("sub")).unwrap();
        assert!(sub.lookup(name("a")).is_ok());
    }

    #[test]
    fn the_contents_of_a_directory_can_be_removed_without_it() {
        let root = tree();
        let mut log = Log::default();
        assert!(remove_children(&root, &mut log));
        assert_eq!(log.lines.len(), 6);
        assert!(log.lines.contains(&"top/sub/a".to_owned()));
        assert!(remove_children(&root, &mut Log::default()), "an empty directory stays empty");
    }

    #[test]
    fn missing_files_are_reported() {
        let mut log = Log::default();
        assert!(!remove_tree(&tree(), name("none"), &mut log));
        assert_eq!(log.lines, [": no such file or directory"]);
    }
}
