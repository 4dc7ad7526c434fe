//! Walks a tree of an image.
//!
//! The walk is iterative. It has one frame for each directory on the current path, and reads a directory in portions.
//! Its memory is bounded by the depth of the tree, the size of a portion, and the number of directories.
//!
//! Invariant: if links are not followed, every directory is entered only once. A directory with two names exists only
//! on a damaged volume. It would double the work at each level.
//! Invariant: if links are followed, a directory that contains itself is not entered again. The walk therefore ends.
//! Invariant: the walk is never deeper than `MAX_DEPTH`.
//! Invariant: damage is returned as an item, and the walk continues with the rest of the tree.

use std::collections::HashSet;
use std::ops::ControlFlow;

use obento_base::{Attr, Error, FileKind, Ino, NameBuf};
use obento_driver::{Cookie, DirEntry};
use obento_vfs::{Caller, Node, Symlinks};

/// Maximum depth of the walk. It exceeds the longest path of Linux, and it bounds memory for a hostile image.
pub const MAX_DEPTH: usize = 1 << 14;
/// Bytes of entries that are read at once in the order of the format.
const PORTION: usize = 64 << 10;
/// Bytes of entries that are held in all directories of the current path together: about 300,000 entries. A larger
/// directory is returned in sorted portions.
const HELD: usize = 32 << 20;
/// Bytes of entries that are read at once if the directories of the current path hold [`HELD`] bytes.
const PORTION_MIN: usize = 4 << 10;

/// The order of the entries of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The order of the bytes of the names. Exception: the directories of the current path use at most 32 MiB for
    /// entries that were read, which is about 300,000 entries. A directory that exceeds this limit is returned in
    /// portions, each of which is sorted.
    #[default]
    Name,
    /// The order in which the driver lists the entries.
    Directory,
}

/// The step of the walk that returns an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A directory, before its contents.
    Enter,
    /// The same directory, after its contents.
    Leave,
    /// Any other file.
    File,
}

/// One entry of a tree.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The path below the start, without a leading `/`. The path of the start is empty.
    pub path: Vec<u8>,
    /// The depth of the entry. The start has depth 0, and its entries have depth 1.
    pub depth: usize,
    /// The file.
    pub node: Node,
    /// The attributes of the file. With [`Step::Leave`], these are the attributes at the time of
    /// [`Step::Enter`].
    pub attr: Attr,
    /// The step of the walk.
    pub step: Step,
}

impl Entry {
    /// Returns the last component of the path, which is empty for the start.
    pub fn name(&self) -> &[u8] {
        let start = self.path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        &self.path[start..]
    }
}

/// A part of the tree that cannot be read. The walk continues after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The path of the entry below the start. For a damaged listing, the path of the directory.
    pub path: Vec<u8>,
    /// The reason.
    pub error: Error,
    /// Whether this is the path of a directory that was entered, and a part of its entries is missing.
    pub in_listing: bool,
}

/// An iterator over the entries and the damage of a tree.
///
/// ```
/// use std::sync::Arc;
/// use obento::{Volume, tmpfs};
/// use obento::env::SystemClock;
/// use obento::walk::Walk;
///
/// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
/// for entry in Walk::new(volume.root()) {
///     match entry {
///         Ok(entry) => println!("{} bytes", entry.attr.size),
///         // Damage affects only the file that it belongs to; the walk continues.
///         Err(damage) => eprintln!("{}", damage.error),
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Walk {
    start: Option<Node>,
    order: Order,
    symlinks: Symlinks,
    max_depth: usize,
    stack: Vec<Frame>,
    /// The directories that the walk does not enter: the directories on the current path. If links are not
    /// followed, also all directories that the walk entered before.
    entered: HashSet<Ino>,
    /// Path of the directory on top of the stack.
    path: Vec<u8>,
    /// The directory that was returned last, if the walk enters it next.
    entering: Option<(Node, Attr)>,
}

/// A directory that is being read.
#[derive(Debug)]
struct Frame {
    node: Node,
    attr: Attr,
    /// Length of the path of this directory.
    path_len: usize,
    /// Entries that were read and not yet returned, in reverse order.
    entries: Vec<Listed>,
    /// Damage of the listing, which is returned after the entries that were read with it.
    damage: Vec<Error>,
    /// Bytes of the portion that is being returned.
    held: usize,
    from: Cookie,
    finished: bool,
}

/// A listed entry. Its inode is looked up only when the entry is returned.
#[derive(Debug)]
struct Listed {
    name: NameBuf,
    ino: Ino,
    kind: Option<FileKind>,
    next: Cookie,
}

impl Walk {
    /// Creates a walk that returns `start` first.
    pub fn new(start: Node) -> Self {
        Self {
            start: Some(start),
            order: Order::default(),
            symlinks: Symlinks::Keep,
            max_depth: MAX_DEPTH,
            stack: Vec::new(),
            entered: HashSet::new(),
            path: Vec::new(),
            entering: None,
        }
    }

    /// Sets the order of the entries of a directory.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets whether symbolic links are followed. With `Follow`, the target of a link is returned as the entry. A
    /// dangling link is returned as a link, and a link to itself is returned as damage. A link at the start is not
    /// followed: the caller resolves it.
    #[must_use]
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }

    /// Sets the maximum depth of returned entries, at most 16,384. The walk does not enter a directory at
    /// this depth. The start has depth 0. By default, the walk reports a directory at depth 16,384 as damage
    /// (`Loop`).
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth.min(MAX_DEPTH);
        self
    }

    /// Skips the contents of the directory that was returned last. The walk still returns its
    /// [`Step::Leave`].
    pub fn prune(&mut self) {
        if let Some((node, attr)) = self.entering.take() {
            let ino = node.ino();
            self.push(node, attr, true);
            // The directory may still be entered by another name.
            self.entered.remove(&ino);
        }
    }

    fn push(&mut self, node: Node, attr: Attr, finished: bool) {
        self.entered.insert(node.ino());
        let path_len = self.path.len();
        self.stack.push(Frame {
            node,
            attr,
            path_len,
            entries: Vec::new(),
            damage: Vec::new(),
            held: 0,
            from: Cookie::START,
            finished,
        });
    }

    /// Enters the directory that was returned last.
    fn enter(&mut self) {
        let Some((node, attr)) = self.entering.take() else { return };
        let too_deep = self.stack.len() >= self.max_depth;
        self.push(node, attr, too_deep);
        if too_deep && self.max_depth == MAX_DEPTH {
            self.top().damage.push(Error::Loop);
        }
    }

    fn top(&mut self) -> &mut Frame {
        self.stack.last_mut().expect("called with a directory on the stack")
    }

    /// Returns the next entry of the directory on top of the stack.
    fn next_listed(&mut self) -> Option<Result<Listed, Error>> {
        let order = self.order;
        let held: usize = self.stack.iter().map(|frame| frame.held).sum();
        let frame = self.stack.last_mut()?;
        if frame.entries.is_empty() && frame.damage.is_empty() && !frame.finished {
            let limit = match order {
                Order::Name => HELD,
                Order::Directory => PORTION,
            };
            frame.read(order, limit.min(HELD.saturating_sub(held)).max(PORTION_MIN));
        }
        let listed = frame.entries.pop().map(Ok);
        listed.or_else(|| frame.damage.pop().map(Err))
    }

    /// Returns the file of an entry of the directory on top of the stack.
    fn find(&mut self, listed: &Listed) -> Result<Node, Error> {
        let symlinks = self.symlinks;
        let dir = &self.top().node;
        let node = dir.child(&listed.entry())?;
        if symlinks == Symlinks::Keep || node.kind()? != FileKind::Symlink {
            return Ok(node);
        }
        match dir.vfs().resolve(dir, listed.name.as_bytes(), Symlinks::Follow, &Caller::Owner) {
            Err(Error::Loop) => Err(Error::Loop),
            target => Ok(target.unwrap_or(node)),
        }
    }

    /// Returns the damage of the entry at `self.path`.
    fn unread(&self, error: Error) -> Damage {
        Damage { path: self.path.clone(), error, in_listing: false }
    }

    /// Returns the entry for `node`, whose path is `self.path`.
    fn meet(&mut self, node: Node) -> Result<Entry, Damage> {
        let attr = node.attr().map_err(|error| self.unread(error))?;
        let step = if attr.kind == FileKind::Directory { Step::Enter } else { Step::File };
        if step == Step::Enter {
            if self.entered.contains(&node.ino()) {
                return Err(self.unread(Error::Loop));
            }
            self.entering = Some((node.clone(), attr));
        }
        Ok(Entry { path: self.path.clone(), depth: self.stack.len(), node, attr, step })
    }

    fn leave(&mut self) -> Option<Entry> {
        let frame = self.stack.pop()?;
        self.path.truncate(frame.path_len);
        if self.symlinks == Symlinks::Follow {
            self.entered.remove(&frame.node.ino());
        }
        let (path, depth) = (self.path.clone(), self.stack.len());
        let entry = Entry { path, depth, node: frame.node, attr: frame.attr, step: Step::Leave };
        let above = self.stack.last().map_or(0, |frame| frame.path_len);
        self.path.truncate(above);
        Some(entry)
    }
}

impl Iterator for Walk {
    type Item = Result<Entry, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(self.meet(start));
        }
        self.enter();
        let path_len = self.stack.last()?.path_len;
        self.path.truncate(path_len);
        match self.next_listed() {
            None => self.leave().map(Ok),
            Some(Err(error)) => Some(Err(Damage { in_listing: true, ..self.unread(error) })),
            Some(Ok(listed)) => {
                if path_len > 0 {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(listed.name.as_bytes());
                let node = self.find(&listed);
                Some(match node {
                    Ok(node) => self.meet(node),
                    Err(error) => Err(self.unread(error)),
                })
            }
        }
    }
}

impl Listed {
    fn entry(&self) -> DirEntry<'_> {
        DirEntry { name: &self.name, ino: self.ino, kind: self.kind, next: self.next }
    }
}

impl Frame {
    /// Reads the next portion of the directory, of at most `limit` bytes.
    fn read(&mut self, order: Order, limit: usize) {
        let (mut from, mut held, mut broken) = (self.from, 0, false);
        let (entries, damage) = (&mut self.entries, &mut self.damage);
        let listed = self.node.read_dir(from, &mut |entry| {
            match entry {
                Ok(DirEntry { name, ino, kind, next }) => {
                    from = next;
                    held += size_of::<Listed>() + name.as_bytes().len() + ALLOCATION;
                    entries.push(Listed { name: name.to_buf(), ino, kind, next });
                }
                Err(error) => {
                    held += size_of::<Error>();
                    damage.push(error);
                }
            }
            broken = held >= limit;
            if broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        damage.extend(listed.err());
        // A driver whose cookies do not advance must not cause an endless loop.
        self.finished = !broken || listed.is_err() || from == self.from;
        (self.from, self.held) = (from, held);
        match order {
            Order::Name => entries.sort_unstable_by(|a, b| b.name.cmp(&a.name)),
            Order::Directory => entries.reverse(),
        }
        damage.reverse();
    }
}

/// Bytes of overhead of an allocation.
const ALLOCATION: usize = 16;

#[cfg(test)]
mod tests;
