//! The host's table of inodes: the name of each inode, whether the guest holds it open, and its attributes.
//!
//! The guest finds an inode by a name in a directory that it holds. So every inode that was ever returned has an entry here
//! as long as it has a name. A listing returns thousands of inodes and holds none of them.
//!
//! Invariant: the recorded name of an inode that the guest does not hold leads to it. A caller that removes that name
//! first lets the guest hold the inode, or forgets the name.

use std::collections::{HashMap, HashSet, VecDeque};

use obento_base::{Attr, Error, Generation, Ino, Result};
use obento_linux_wire::{Place, Step};

/// The largest depth of directories: more are a cycle in a damaged volume.
const DEPTH_MAX: usize = 4096;

/// The largest number of inodes with cached attributes, which are larger than the rest of an entry.
const LEARNT_MAX: usize = 1 << 16;

/// The number of inodes that the guest holds although it could find them again: each takes memory there, and a descriptor.
const HELD_MAX: usize = 4096;

/// An inode.
#[derive(Clone, Debug)]
pub struct KnownInode {
    /// The directory that contains the name. For a directory this is its parent.
    pub parent: Ino,
    /// The name in that directory; `None` after its removal.
    pub name: Option<Box<[u8]>>,
    /// Whether the inode has no name left, so that its last use frees it.
    pub nameless: bool,
    /// Whether the guest holds the inode.
    pub held: bool,
    /// The attributes, as long as no change invalidates them.
    pub attr: Option<Box<Attr>>,
    /// The next file in the listing of its directory.
    pub follower: Option<Ino>,
}

/// All known inodes.
#[derive(Debug)]
pub struct Nodes {
    known: HashMap<Ino, KnownInode>,
    /// The inodes that the guest holds, the one held for the longest time first; some are no longer held.
    held: VecDeque<Ino>,
    /// The inodes with cached attributes, the oldest first; the attributes of some are no longer cached.
    learnt: VecDeque<Ino>,
    forgotten: Vec<u64>,
    /// The number of times that a number was freed here: Linux reports no generations, and reuses numbers.
    lives: HashMap<Ino, u32>,
    /// The numbers that were freed here and not reused since.
    gone: HashSet<Ino>,
}

impl Nodes {
    /// Adds the root, which the guest holds.
    pub fn new(root: Ino, attr: Attr) -> Self {
        let attr = Some(Box::new(attr));
        let known =
            KnownInode { parent: root, name: None, nameless: false, held: true, attr, follower: None };
        let known = HashMap::from([(root, known)]);
        Self {
            known,
            held: VecDeque::new(),
            learnt: VecDeque::new(),
            forgotten: Vec::new(),
            lives: HashMap::new(),
            gone: HashSet::new(),
        }
    }

    /// Returns the entry of `ino`. Fails with `Stale` for an inode that was never returned.
    pub fn get(&self, ino: Ino) -> Result<&KnownInode> {
        self.known.get(&ino).ok_or(Error::Stale)
    }

    /// Like [`get`](Self::get), for changing the entry.
    pub fn get_mut(&mut self, ino: Ino) -> Result<&mut KnownInode> {
        self.known.get_mut(&ino).ok_or(Error::Stale)
    }

    /// Returns whether `ino` may have a name although the table has no name for it.
    pub fn is_unseen(&self, ino: Ino) -> bool {
        match self.known.get(&ino) {
            Some(known) => known.name.is_none() && !known.held && !known.nameless,
            None => !self.gone.contains(&ino),
        }
    }

    /// Records that inodes were created whose numbers are unknown.
    pub fn made_unseen(&mut self) {
        self.gone.clear();
    }

    /// Records that `name` in `dir` leads to the inode with `attr`.
    pub fn show(&mut self, dir: Ino, name: &[u8], attr: Attr) {
        let ino = attr.ino;
        self.gone.remove(&ino);
        let known = self.known.entry(ino).or_insert_with(|| KnownInode {
            parent: dir,
            name: None,
            nameless: false,
            held: false,
            attr: None,
            follower: None,
        });
        // One name of several is sufficient; the root has none.
        if known.name.is_none() && ino != dir && !(known.held && known.parent == ino) {
            (known.parent, known.name) = (dir, Some(name.into()));
        }
        self.learn(self.in_its_life(attr));
    }

    /// Caches `attr`, if its inode is known. The oldest attributes are dropped, and requested again when they are needed.
    pub fn learn(&mut self, attr: Attr) {
        let Some(known) = self.known.get_mut(&attr.ino) else { return };
        if known.attr.replace(Box::new(attr)).is_none() {
            self.learnt.push_back(attr.ino);
        }
        for _ in LEARNT_MAX..self.learnt.len() {
            self.learnt.pop_front().into_iter().for_each(|oldest| self.touch(oldest));
        }
    }

    /// Records that `name` in `dir` no longer leads to `ino`. `is_last`: it was the only name.
    pub fn unname(&mut self, dir: Ino, name: &[u8], ino: Ino, is_last: bool) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.nameless = is_last;
            if known.parent == dir && known.name.as_deref() == Some(name) {
                known.name = None;
            }
            known.attr = None;
        }
    }

    /// Returns the directory and the name in it that lead to `ino`, which the guest does not hold.
    pub fn place(&self, ino: Ino) -> Option<Place> {
        let known = self.known.get(&ino).filter(|known| !known.held)?;
        Some(Place { dir: known.parent.0, name: known.name.as_deref()?.into() })
    }

    /// Returns the path to `inos` for the guest, for those that it does not hold. Fails with `Stale` if no path
    /// exists.
    pub fn steps(&self, inos: &[Ino]) -> Result<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::new();
        for &ino in inos {
            let (mut at, start) = (ino, steps.len());
            loop {
                let known = self.get(at)?;
                if known.held || steps.iter().any(|step| step.ino == at.0) {
                    break;
                }
                let name = known.name.as_deref().ok_or(Error::Stale)?;
                if steps.len() - start > DEPTH_MAX {
                    return Err(Error::Loop);
                }
                steps.insert(start, Step { dir: known.parent.0, name: name.into(), ino: at.0 });
                at = known.parent;
            }
        }
        Ok(steps)
    }

    /// Records that the guest followed `steps`.
    pub fn hold(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.keep(Ino(step.ino)));
    }

    /// Records that the guest may have followed `steps`. It need not hold the inodes at their ends.
    pub fn leave(&mut self, steps: &[Step]) {
        let is_held = |ino: &u64| self.known.get(&Ino(*ino)).is_some_and(|known| known.held);
        let led_to: Vec<u64> = steps.iter().map(|step| step.ino).filter(|ino| !is_held(ino)).collect();
        self.forgotten.extend(led_to);
    }

    /// Records that the guest holds `ino`. Releases the inode that was held for the longest time, if a name refers to it.
    pub fn keep(&mut self, ino: Ino) {
        let Some(known) = self.known.get_mut(&ino) else { return };
        if !std::mem::replace(&mut known.held, true) {
            self.held.push_back(ino);
        }
        for _ in HELD_MAX..self.held.len() {
            let Some(oldest) = self.held.pop_front() else { return };
            match self.known.get_mut(&oldest) {
                Some(known) if known.held && (known.name.is_none() || known.nameless) => {
                    self.held.push_back(oldest);
                }
                Some(known) if known.held => {
                    known.held = false;
                    self.forgotten.push(oldest.0);
                }
                _ => {}
            }
        }
    }

    /// Returns whether the guest holds only the root and inodes that it can find again.
    pub fn let_go(&mut self, root: Ino) {
        self.held.clear();
        self.known.iter_mut().filter(|(ino, _)| **ino != root).for_each(|(_, known)| known.held = false);
    }

    /// Records that `ino` is not in use. A named inode stays in the table. An inode without names is free, unless it
    /// may have a name that is not in the table.
    pub fn forget(&mut self, ino: Ino, root: Ino) {
        let Some(known) = self.known.get_mut(&ino).filter(|_| ino != root) else { return };
        // The inode has a name that is not in this table, so it can be found again only while the guest holds it.
        if known.name.is_none() && !known.nameless && known.held {
            return;
        }
        if std::mem::take(&mut known.held) {
            self.forgotten.push(ino.0);
        }
        if known.name.is_none() {
            self.free(ino);
        }
    }

    /// Records that `ino` has no name and is not in use: its number may be reused.
    pub fn free(&mut self, ino: Ino) {
        if let Some(known) = self.known.remove(&ino) {
            self.forgotten.extend(known.held.then_some(ino.0));
            if known.nameless {
                self.gone.insert(ino);
            }
        }
        let lives = self.lives.entry(ino).or_default();
        *lives = lives.wrapping_add(1);
    }

    /// Returns `attr` with the generation of its number.
    pub fn in_its_life(&self, attr: Attr) -> Attr {
        Attr { generation: Generation(self.lives.get(&attr.ino).copied().unwrap_or(0)), ..attr }
    }

    /// Takes the inodes that the guest may release.
    pub fn take_forgotten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.forgotten)
    }

    /// Drops cached attributes, which may be outdated.
    pub fn touch(&mut self, ino: Ino) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.attr = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use obento_base::{DeviceNumber, FileFlags, FileKind, Mode, Timestamp};

    use super::*;

    const ROOT: Ino = Ino(1);
    const FILE: Ino = Ino(2);

    fn attr(ino: Ino) -> Attr {
        let time = Timestamp::EPOCH;
        Attr {
            ino,
            generation: Generation(0),
            kind: FileKind::Regular,
            mode: Mode::new(0o644),
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: DeviceNumber::default(),
            size: 0,
            blocks: 0,
            block_size: 512,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            flags: FileFlags::empty(),
            change: 0,
            project: 0,
        }
    }

    #[test]
    fn a_freed_number_is_searched_for_after_unrecorded_files_were_created() {
        let mut nodes = Nodes::new(ROOT, attr(ROOT));
        assert!(nodes.is_unseen(FILE) && !nodes.is_unseen(ROOT));
        nodes.show(ROOT, b"file", attr(FILE));
        assert!(!nodes.is_unseen(FILE));
        nodes.unname(ROOT, b"file", FILE, true);
        nodes.forget(FILE, ROOT);
        assert!(!nodes.is_unseen(FILE), "no file has the number");
        nodes.made_unseen();
        assert!(nodes.is_unseen(FILE), "a new file may have the number");
    }

    #[test]
    fn a_file_without_a_recorded_name_is_searched_for_after_its_release() {
        let mut nodes = Nodes::new(ROOT, attr(ROOT));
        nodes.show(ROOT, b"file", attr(FILE));
        nodes.keep(FILE);
        nodes.unname(ROOT, b"file", FILE, false);
        assert!(!nodes.is_unseen(FILE), "the guest holds it");
        nodes.let_go(ROOT);
        assert!(nodes.is_unseen(FILE));
        nodes.show(ROOT, b"other", attr(FILE));
        assert_eq!(nodes.steps(&[FILE]).map(|steps| steps.len()), Ok(1));
    }

    #[test]
    fn the_oldest_cached_attributes_are_dropped_and_names_are_kept() {
        let mut nodes = Nodes::new(ROOT, attr(ROOT));
        let count = LEARNT_MAX as u64 + 10;
        for number in 0..count {
            nodes.show(ROOT, number.to_string().as_bytes(), attr(Ino(100 + number)));
        }
        let is_known = |number: u64| nodes.get(Ino(100 + number)).unwrap().attr.is_some();
        assert_eq!([0, 9, 10, count - 1].map(is_known), [false, false, true, true]);
        assert!(nodes.get(ROOT).unwrap().attr.is_some() && nodes.place(Ino(100)).is_some());
    }
}
