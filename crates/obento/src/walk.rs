//! Walking a tree of an image.
//!
//! Iterative: one frame for each directory on the way down. A directory is read in portions, so that memory is bounded
//! by depth, portion and the number of directories.
//!
//! Invariants: without following links every directory is entered once, because a directory with two names, which only a
//! damaged volume has, would double the walk at each level; while following them, a directory that lies in itself is not
//! entered again. So the walk ends; it is never deeper than [`MAX_DEPTH`]. Damage is an item like any other: the rest of
//! the tree follows.

use std::collections::HashSet;
use std::ops::ControlFlow;

use obento_base::{Attr, Error, FileKind, Ino, NameBuf};
use obento_driver::{Cookie, DirEntry};
use obento_vfs::{Caller, Node, Symlinks};

/// Deeper than Linux can name in one path; a hostile image could be deeper than memory.
pub(crate) const MAX_DEPTH: usize = 1 << 14;
/// Bytes of entries that are read at once where their order is the format's own.
const PORTION: usize = 64 << 10;
/// Bytes of entries that are held to be sorted, in all directories on the way down together: some 300,000. What has
/// more comes in sorted portions.
const SORTED: usize = 32 << 20;

/// In which order the entries of a directory come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// By the bytes of their names.
    #[default]
    Name,
    /// As the format has them.
    Directory,
}

/// Where in the walk an entry is met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A directory, before what is in it.
    Enter,
    /// The same directory, after what is in it.
    Leave,
    /// Anything else.
    File,
}

/// One entry of a tree.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path below the start, without a leading `/`; empty for the start itself.
    pub path: Vec<u8>,
    /// How many directories it lies below the start: 0 for the start itself.
    pub depth: usize,
    /// The file.
    pub node: Node,
    /// Its attributes, when it was met.
    pub attr: Attr,
    /// Where in the walk.
    pub step: Step,
}

impl Entry {
    /// The last component of the path; empty for the start.
    pub fn name(&self) -> &[u8] {
        let start = self.path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        &self.path[start..]
    }
}

/// Something in the tree that cannot be read; the walk goes on after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where, below the start: the entry, or the directory whose listing is damaged.
    pub path: Vec<u8>,
    /// What is wrong.
    pub error: Error,
}

/// A walk through a tree: an iterator over entries and damage.
///
/// ```
/// use std::sync::Arc;
/// use obento::{SystemClock, Volume, Walk, tmpfs};
///
/// let volume = Volume::new(Arc::new(tmpfs::Tmpfs::new(tmpfs::Options::new(Arc::new(SystemClock)))));
/// for entry in Walk::new(volume.root()) {
///     match entry {
///         Ok(entry) => println!("{} bytes", entry.attr.size),
///         // Damage costs the file it belongs to; the rest follows.
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
    /// Directories that are not to be entered: those above, and without following links all that were.
    entered: HashSet<Ino>,
    /// Path of the directory on top of the stack.
    path: Vec<u8>,
    /// The entry handed out last was a directory that is to be entered.
    entering: Option<(Node, Attr)>,
}

/// A directory being read.
#[derive(Debug)]
struct Frame {
    node: Node,
    attr: Attr,
    /// Length of the path up to here.
    path_len: usize,
    /// What was read and not handed out yet, the next one last.
    entries: Vec<Listed>,
    /// Damage of the listing, which comes after the entries read with it.
    damage: Vec<Error>,
    /// Bytes of the portion that is being handed out.
    held: usize,
    from: Cookie,
    finished: bool,
}

/// An entry as it was listed. Its inode is taken into use only when it is handed out.
#[derive(Debug)]
struct Listed {
    name: NameBuf,
    ino: Ino,
    kind: Option<FileKind>,
    next: Cookie,
}

impl Walk {
    /// Starts at `start`, which is the first entry.
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

    /// In which order the entries of a directory come.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What to do with symbolic links: with `Follow` an entry is what its link leads to, a link that leads nowhere is
    /// itself, and one that leads to itself is damage. The start is followed by whoever found it.
    #[must_use]
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }

    /// Does not enter directories at this depth; 0 is the start.
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth.min(MAX_DEPTH);
        self
    }

    /// Does not enter the directory that was handed out last. Its [`Step::Leave`] still comes.
    pub fn prune(&mut self) {
        if let Some((node, attr)) = self.entering.take() {
            let ino = node.ino();
            self.push(node, attr, true);
            // Under another name it may still be wanted.
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

    /// Steps into the directory that was handed out last.
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

    /// What comes next in the directory on top of the stack.
    fn next_listed(&mut self) -> Option<Result<Listed, Error>> {
        let order = self.order;
        let held: usize = self.stack.iter().map(|frame| frame.held).sum();
        let frame = self.stack.last_mut()?;
        if frame.entries.is_empty() && frame.damage.is_empty() && !frame.finished {
            let limit = match order {
                Order::Name => SORTED.saturating_sub(held).max(PORTION),
                Order::Directory => PORTION,
            };
            frame.read(order, limit);
        }
        let listed = frame.entries.pop().map(Ok);
        listed.or_else(|| frame.damage.pop().map(Err))
    }

    /// What an entry of the directory on top of the stack leads to.
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

    /// Hands out `node`, which is called as `self.path` says.
    fn meet(&mut self, node: Node) -> Result<Entry, Damage> {
        let attr = node.attr().map_err(|error| Damage { path: self.path.clone(), error })?;
        let step = if attr.kind == FileKind::Directory { Step::Enter } else { Step::File };
        if step == Step::Enter {
            if self.entered.contains(&node.ino()) {
                return Err(Damage { path: self.path.clone(), error: Error::Loop });
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
            Some(Err(error)) => Some(Err(Damage { path: self.path.clone(), error })),
            Some(Ok(listed)) => {
                if path_len > 0 {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(listed.name.as_bytes());
                let node = self.find(&listed);
                Some(match node {
                    Ok(node) => self.meet(node),
                    Err(error) => Err(Damage { path: self.path.clone(), error }),
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
        // A driver whose cookies do not move on must not keep the walk here.
        self.finished = !broken || listed.is_err() || from == self.from;
        (self.from, self.held) = (from, held);
        match order {
            Order::Name => entries.sort_unstable_by(|a, b| b.name.cmp(&a.name)),
            Order::Directory => entries.reverse(),
        }
        damage.reverse();
    }
}

/// What an allocation costs beside its bytes.
const ALLOCATION: usize = 16;

#[cfg(test)]
mod tests;
