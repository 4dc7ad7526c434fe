//! What the host knows of inodes: where each is named, whether the guest holds it, and its attributes.
//!
//! The guest finds an inode by a name in a directory that it holds, so every inode that was ever shown has a place here, as long
//! as it has a name. A listing shows thousands of inodes and holds none of them.
//!
//! Invariant: the recorded place of an inode that the guest does not hold leads to it; whoever takes that name away has the
//! guest hold the inode first, or forgets the place.

use std::collections::{HashMap, HashSet, VecDeque};

use obento_base::{Attr, Error, Generation, Ino, Result};
use obento_linux_wire::{Place, Step};

/// Directories that lie in each other, at most: more are a circle of a damaged volume.
const DEPTH_MAX: usize = 4096;

/// Of how many inodes the attributes are known at most: they are larger than all that is known of an inode besides.
const LEARNT_MAX: usize = 1 << 16;

/// How many inodes the guest holds that it could find again: each takes memory there, and a descriptor.
const HELD_MAX: usize = 4096;

/// One inode.
#[derive(Clone, Debug)]
pub struct Known {
    /// The directory that names it. A directory's is its parent, for ever.
    pub parent: Ino,
    /// Its name there; `None` once that was taken away.
    pub name: Option<Box<[u8]>>,
    /// Whether it has no name left at all, so that its last use ends it.
    pub nameless: bool,
    /// Whether the guest holds it.
    pub held: bool,
    /// Its attributes, while nothing changes them.
    pub attr: Option<Box<Attr>>,
    /// The file that follows it in the listing of its directory.
    pub follower: Option<Ino>,
}

/// All that are known.
#[derive(Debug)]
pub struct Nodes {
    known: HashMap<Ino, Known>,
    /// Those that the guest holds, the one held longest ago first; some that it holds no longer.
    held: VecDeque<Ino>,
    /// Those whose attributes were learnt, the one longest ago first; of some they are known no longer.
    learnt: VecDeque<Ino>,
    forgotten: Vec<u64>,
    /// How often a number was freed here: Linux tells no generations, and gives numbers away again.
    lives: HashMap<Ino, u32>,
    /// Numbers that were freed here, and that nothing has got since.
    gone: HashSet<Ino>,
}

impl Nodes {
    /// Knows the root, which the guest holds.
    pub fn new(root: Ino, attr: Attr) -> Self {
        let attr = Some(Box::new(attr));
        let known = Known { parent: root, name: None, nameless: false, held: true, attr, follower: None };
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

    /// What is known of `ino`. Errors: Stale for one that nobody was shown.
    pub fn get(&self, ino: Ino) -> Result<&Known> {
        self.known.get(&ino).ok_or(Error::Stale)
    }

    /// As [`get`](Self::get), to change it.
    pub fn get_mut(&mut self, ino: Ino) -> Result<&mut Known> {
        self.known.get_mut(&ino).ok_or(Error::Stale)
    }

    /// Whether `ino` may have a name, and none is known that leads to it.
    pub fn is_unseen(&self, ino: Ino) -> bool {
        match self.known.get(&ino) {
            Some(known) => known.name.is_none() && !known.held && !known.nameless,
            None => !self.gone.contains(&ino),
        }
    }

    /// Inodes were made that nobody was shown: their numbers may be any.
    pub fn made_unseen(&mut self) {
        self.gone.clear();
    }

    /// Was shown that `name` in `dir` leads to the inode of `attr`.
    pub fn show(&mut self, dir: Ino, name: &[u8], attr: Attr) {
        let ino = attr.ino;
        self.gone.remove(&ino);
        let known = self.known.entry(ino).or_insert_with(|| Known {
            parent: dir,
            name: None,
            nameless: false,
            held: false,
            attr: None,
            follower: None,
        });
        // One name of several is enough; the root has none.
        if known.name.is_none() && ino != dir && !(known.held && known.parent == ino) {
            (known.parent, known.name) = (dir, Some(name.into()));
        }
        self.learn(self.in_its_life(attr));
    }

    /// Of the inode of `attr`, if it is known, these attributes are. What was learnt long ago is asked for again when it is needed.
    pub fn learn(&mut self, attr: Attr) {
        let Some(known) = self.known.get_mut(&attr.ino) else { return };
        if known.attr.replace(Box::new(attr)).is_none() {
            self.learnt.push_back(attr.ino);
        }
        for _ in LEARNT_MAX..self.learnt.len() {
            self.learnt.pop_front().into_iter().for_each(|oldest| self.touch(oldest));
        }
    }

    /// `name` in `dir` leads to `ino` no longer; `is_last` if it was its only one.
    pub fn unname(&mut self, dir: Ino, name: &[u8], ino: Ino, is_last: bool) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.nameless = is_last;
            if known.parent == dir && known.name.as_deref() == Some(name) {
                known.name = None;
            }
            known.attr = None;
        }
    }

    /// The directory and the name in it that lead to `ino`, which the guest does not hold.
    pub fn place(&self, ino: Ino) -> Option<Place> {
        let known = self.known.get(&ino).filter(|known| !known.held)?;
        Some(Place { dir: known.parent.0, name: known.name.as_deref()?.into() })
    }

    /// The way to `inos` for the guest, for those that it does not hold. Errors: Stale where there is none.
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

    /// The guest followed `steps`.
    pub fn hold(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.keep(Ino(step.ino)));
    }

    /// The guest may have followed `steps`, and need not hold what they led to.
    pub fn leave(&mut self, steps: &[Step]) {
        let is_held = |ino: &u64| self.known.get(&Ino(*ino)).is_some_and(|known| known.held);
        let led_to: Vec<u64> = steps.iter().map(|step| step.ino).filter(|ino| !is_held(ino)).collect();
        self.forgotten.extend(led_to);
    }

    /// The guest holds `ino`. It lets go of what it has held longest, if that can be found again by its name.
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

    /// The guest holds nothing but the root, or whatever it holds besides can be found again.
    pub fn let_go(&mut self, root: Ino) {
        self.held.clear();
        self.known.iter_mut().filter(|(ino, _)| **ino != root).for_each(|(_, known)| known.held = false);
    }

    /// Nobody uses `ino` any more. What has a name stays known; what has none is free, unless it has a name that is not known here.
    pub fn forget(&mut self, ino: Ino, root: Ino) {
        let Some(known) = self.known.get_mut(&ino).filter(|_| ino != root) else { return };
        // It has a name that is not known here: only by being held is it found again.
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

    /// `ino` has no name left and is not in use: its number may be another's next.
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

    /// `attr` with the generation that its number is in.
    pub fn in_its_life(&self, attr: Attr) -> Attr {
        Attr { generation: Generation(self.lives.get(&attr.ino).copied().unwrap_or(0)), ..attr }
    }

    /// What the guest may let go of.
    pub fn take_forgotten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.forgotten)
    }

    /// What is known of attributes may be old.
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
    fn a_number_that_was_freed_is_looked_for_once_files_were_made_unseen() {
        let mut nodes = Nodes::new(ROOT, attr(ROOT));
        assert!(nodes.is_unseen(FILE) && !nodes.is_unseen(ROOT));
        nodes.show(ROOT, b"file", attr(FILE));
        assert!(!nodes.is_unseen(FILE));
        nodes.unname(ROOT, b"file", FILE, true);
        nodes.forget(FILE, ROOT);
        assert!(!nodes.is_unseen(FILE), "nobody has it");
        nodes.made_unseen();
        assert!(nodes.is_unseen(FILE), "a new file may have it");
    }

    #[test]
    fn a_file_with_a_name_that_is_not_known_is_looked_for_once_it_is_let_go() {
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
    fn attributes_that_were_learnt_longest_ago_are_let_go_and_names_are_not() {
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
