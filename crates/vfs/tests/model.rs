//! Random operations on a volume and on a model of maps; after each, both answered the same and hold the same tree.

mod common;

use std::collections::BTreeMap;

use common::{Short, name, new_node, volume, volume_on_device};
use obento_base::{Error, FileKind};
use obento_driver::{FileSystem, NewNode, RenameFlags};
use obento_vfs::{Caller, Node, Vfs};
use proptest::prelude::*;

const OWNER: Caller = Caller::Owner;
/// Few names and directories, so that operations meet each other.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Op {
    Create(Vec<usize>, FileKind),
    Link(Vec<usize>, Vec<usize>),
    Unlink(Vec<usize>),
    Rmdir(Vec<usize>),
    Rename(Vec<usize>, Vec<usize>, RenameFlags),
    Write(Vec<usize>, u16, u16, u8),
    Append(Vec<usize>, u16, u8),
    Truncate(Vec<usize>, u16),
    Punch(Vec<usize>, u16, u16),
    SetXattr(Vec<usize>, u8),
}

fn path() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..NAMES.len(), 1..4)
}

fn data_op(path: impl Strategy<Value = Vec<usize>> + Clone) -> impl Strategy<Value = Op> {
    let at = 0..20_000_u16;
    let len = 0..9000_u16;
    prop_oneof![
        4 => (path.clone(), at.clone(), len.clone(), 1..255_u8).prop_map(|(p, at, len, byte)| Op::Write(p, at, len, byte)),
        1 => (path.clone(), len, 1..255_u8).prop_map(|(p, len, byte)| Op::Append(p, len, byte)),
        2 => (path.clone(), at.clone()).prop_map(|(p, size)| Op::Truncate(p, size)),
        2 => (path, at.clone(), at).prop_map(|(p, from, to)| Op::Punch(p, from, to)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        3 => Just(FileKind::Regular), 4 => Just(FileKind::Directory),
        1 => Just(FileKind::Symlink), 1 => Just(FileKind::Fifo)
    ];
    let flags = prop_oneof![
        3 => Just(RenameFlags::empty()), 1 => Just(RenameFlags::NO_REPLACE), 1 => Just(RenameFlags::EXCHANGE)
    ];
    prop_oneof![
        6 => (path(), kind).prop_map(|(path, kind)| Op::Create(path, kind)),
        2 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => path().prop_map(Op::Unlink),
        1 => path().prop_map(Op::Rmdir),
        4 => (path(), path(), flags).prop_map(|(from, to, flags)| Op::Rename(from, to, flags)),
        9 => data_op(path().boxed()),
        1 => (path(), any::<u8>()).prop_map(|(path, value)| Op::SetXattr(path, value)),
    ]
}

/// A file system of maps, in which an inode is a number.
struct Model {
    inodes: BTreeMap<u32, Inode>,
    last: u32,
}

#[derive(Clone)]
struct Inode {
    kind: FileKind,
    bytes: Vec<u8>,
    entries: BTreeMap<usize, u32>,
    parent: u32,
    xattr: Option<u8>,
}

type Answer = Result<(), Error>;

impl Model {
    fn new() -> Self {
        let mut model = Self { inodes: BTreeMap::new(), last: 0 };
        model.add(FileKind::Directory, 1);
        model
    }

    fn add(&mut self, kind: FileKind, parent: u32) -> u32 {
        self.last += 1;
        let inode = Inode { kind, bytes: vec![], entries: BTreeMap::new(), parent, xattr: None };
        self.inodes.insert(self.last, inode);
        self.last
    }

    fn walk(&self, path: &[usize]) -> Result<u32, Error> {
        path.iter().try_fold(1, |at, name| {
            let inode = &self.inodes[&at];
            match inode.kind {
                FileKind::Directory => inode.entries.get(name).copied().ok_or(Error::NotFound),
                // All links dangle, because their targets are never created.
                FileKind::Symlink => Err(Error::NotFound),
                _ => Err(Error::NotDirectory),
            }
        })
    }

    /// The directory of the last name, and what that name leads to.
    fn place(&self, path: &[usize]) -> Result<(u32, usize, Option<u32>), Error> {
        let (last, dirs) = path.split_last().unwrap();
        let dir = self.walk(dirs)?;
        match self.inodes[&dir].kind {
            FileKind::Directory => Ok((dir, *last, self.inodes[&dir].entries.get(last).copied())),
            FileKind::Symlink => Err(Error::NotFound),
            _ => Err(Error::NotDirectory),
        }
    }

    fn file(&mut self, path: &[usize]) -> Result<&mut Inode, Error> {
        let (_, _, at) = self.place(path)?;
        let inode = self.inodes.get_mut(&at.ok_or(Error::NotFound)?).unwrap();
        match inode.kind {
            FileKind::Regular => Ok(inode),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    fn is_dir(&self, ino: u32) -> bool {
        self.inodes[&ino].kind == FileKind::Directory
    }

    fn set(&mut self, dir: u32, name: usize, ino: Option<u32>) {
        let entries = &mut self.inodes.get_mut(&dir).unwrap().entries;
        match ino {
            Some(ino) => entries.insert(name, ino),
            None => entries.remove(&name),
        };
        if let Some(ino) = ino.filter(|&ino| self.is_dir(ino)) {
            self.inodes.get_mut(&ino).unwrap().parent = dir;
        }
    }

    fn below(&self, mut dir: u32, ancestor: u32) -> bool {
        while dir != ancestor && dir != 1 {
            dir = self.inodes[&dir].parent;
        }
        dir == ancestor
    }

    fn rename(&mut self, from: &[usize], to: &[usize], flags: RenameFlags) -> Answer {
        let ((from, name, moved), (to, new_name, target)) = (self.place(from)?, self.place(to)?);
        let moved = moved.ok_or(Error::NotFound)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let cycle = |moved, to| self.is_dir(moved) && self.below(to, moved);
        if from != to && (cycle(moved, to) || exchange && target.is_some_and(|target| cycle(target, from))) {
            return Err(Error::Invalid);
        }
        match target {
            Some(_) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Error::Exists),
            None if exchange => return Err(Error::NotFound),
            Some(target) if target == moved => return Ok(()),
            Some(target) if !exchange => match (self.is_dir(moved), self.is_dir(target)) {
                (false, true) => return Err(Error::IsDirectory),
                (true, false) => return Err(Error::NotDirectory),
                (true, true) if !self.inodes[&target].entries.is_empty() => return Err(Error::NotEmpty),
                _ => {}
            },
            _ => {}
        }
        self.set(from, name, target.filter(|_| exchange));
        self.set(to, new_name, Some(moved));
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Answer {
        match op {
            Op::Create(path, kind) => match self.place(path)? {
                (_, _, Some(_)) => return Err(Error::Exists),
                (dir, name, None) => {
                    let made = self.add(*kind, dir);
                    self.set(dir, name, Some(made));
                }
            },
            Op::Link(from, to) => {
                let (_, _, ino) = self.place(from)?;
                let ino = ino.ok_or(Error::NotFound)?;
                let (dir, name, target) = self.place(to)?;
                match target {
                    _ if self.is_dir(ino) => return Err(Error::NotPermitted),
                    Some(_) => return Err(Error::Exists),
                    None => self.set(dir, name, Some(ino)),
                }
            }
            Op::Unlink(path) => match self.place(path)? {
                (_, _, None) => return Err(Error::NotFound),
                (_, _, Some(ino)) if self.is_dir(ino) => return Err(Error::IsDirectory),
                (dir, name, _) => self.set(dir, name, None),
            },
            Op::Rmdir(path) => match self.place(path)? {
                (_, _, None) => return Err(Error::NotFound),
                (_, _, Some(ino)) if !self.is_dir(ino) => return Err(Error::NotDirectory),
                (_, _, Some(ino)) if !self.inodes[&ino].entries.is_empty() => return Err(Error::NotEmpty),
                (dir, name, _) => self.set(dir, name, None),
            },
            Op::Rename(from, to, flags) => return self.rename(from, to, *flags),
            Op::Write(path, at, len, byte) => write(&mut self.file(path)?.bytes, *at as usize, *len, *byte),
            Op::Append(path, len, byte) => {
                let bytes = &mut self.file(path)?.bytes;
                write(bytes, bytes.len(), *len, *byte);
            }
            Op::Truncate(path, size) => self.file(path)?.bytes.resize(*size as usize, 0),
            Op::Punch(path, from, to) => {
                let bytes = &mut self.file(path)?.bytes;
                let end = bytes.len().min(*to as usize);
                bytes.get_mut(*from as usize..end).into_iter().for_each(|range| range.fill(0));
            }
            Op::SetXattr(path, value) => {
                let (_, _, ino) = self.place(path)?;
                self.inodes.get_mut(&ino.ok_or(Error::NotFound)?).unwrap().xattr = Some(*value);
            }
        }
        Ok(())
    }
}

fn write(bytes: &mut Vec<u8>, at: usize, len: u16, byte: u8) {
    if len != 0 {
        bytes.resize(bytes.len().max(at + len as usize), 0);
        bytes[at..at + len as usize].fill(byte);
    }
}

fn text(path: &[usize]) -> String {
    path.iter().map(|&index| NAMES[index]).collect::<Vec<_>>().join("/")
}

fn place(vfs: &Vfs, path: &[usize]) -> Result<(Node, String), Error> {
    let last = vfs.resolve_parent(&vfs.root(), text(path).as_bytes(), &OWNER)?;
    Ok((last.dir, last.name.to_string()))
}

fn last(vfs: &Vfs, path: &[usize]) -> Result<Node, Error> {
    let (dir, name) = place(vfs, path)?;
    dir.get(&name)
}

fn apply(vfs: &Vfs, op: &Op) -> Answer {
    match op {
        Op::Create(path, kind) => {
            let (dir, file) = place(vfs, path)?;
            let new = NewNode { target: b"nowhere", ..new_node(*kind, 0o755) };
            vfs.create(&OWNER, &dir, name(&file), &new).map(drop)
        }
        Op::Link(from, to) => {
            let node = last(vfs, from)?;
            let (dir, file) = place(vfs, to)?;
            vfs.link(&OWNER, &node, &dir, name(&file))
        }
        Op::Unlink(path) => place(vfs, path).and_then(|(dir, file)| vfs.unlink(&OWNER, &dir, name(&file))),
        Op::Rmdir(path) => place(vfs, path).and_then(|(dir, file)| vfs.rmdir(&OWNER, &dir, name(&file))),
        Op::Rename(from, to, flags) => {
            let (from, to) = (place(vfs, from)?, place(vfs, to)?);
            vfs.rename(&OWNER, (&from.0, name(&from.1)), (&to.0, name(&to.1)), *flags)
        }
        Op::Write(path, at, len, byte) => {
            let len = *len as usize;
            let done = last(vfs, path)?.write_at((*at).into(), &vec![*byte; len])?;
            assert_eq!(done, len);
            Ok(())
        }
        Op::Append(path, len, byte) => last(vfs, path)?.append(&vec![*byte; *len as usize]).map(drop),
        Op::Truncate(path, size) => last(vfs, path)?.truncate((*size).into()),
        Op::Punch(path, from, to) => last(vfs, path)?.punch((*from).into()..(*to).into()),
        Op::SetXattr(path, value) => {
            let mode = obento_driver::XattrMode::Set;
            let node = last(vfs, path)?;
            node.vfs().set_xattr(&OWNER, &node, b"trusted.x", &[*value], mode)
        }
    }
}

/// Compares the trees, and with them what each inode holds.
fn compare(vfs: &Vfs, model: &Model) {
    let mut numbers = BTreeMap::new();
    let mut todo = vec![(vfs.root(), 1)];
    while let Some((node, ino)) = todo.pop() {
        let (attr, inode) = (node.attr().unwrap(), &model.inodes[&ino]);
        assert_eq!(attr.kind, inode.kind);
        if let Some(before) = numbers.insert(ino, attr.ino) {
            assert_eq!(before, attr.ino, "names of one inode lead to one inode");
            continue;
        }
        let xattr = node.get_xattr(b"trusted.x").ok();
        assert_eq!(xattr, inode.xattr.map(|value| vec![value]));
        match inode.kind {
            FileKind::Regular => {
                let names =
                    model.inodes.values().flat_map(|dir| dir.entries.values()).filter(|&&to| to == ino);
                assert_eq!(attr.nlink as usize, names.count());
                assert!(node.bytes() == inode.bytes, "contents of {}", attr.ino);
            }
            FileKind::Directory => {
                let subdirs = inode.entries.values().filter(|&&child| model.is_dir(child)).count();
                assert_eq!(attr.nlink as usize, 2 + subdirs);
                let mut names = node.names();
                names.sort();
                assert_eq!(names, inode.entries.keys().map(|&name| NAMES[name]).collect::<Vec<_>>());
                for (&name, &child) in &inode.entries {
                    let child_node = node.get(NAMES[name]).unwrap();
                    if model.is_dir(child) {
                        assert_eq!(child_node.parent().unwrap(), node);
                    }
                    todo.push((child_node, child));
                }
            }
            _ => {}
        }
    }
}

fn run((fs, vfs): (std::sync::Arc<obento_tmpfs::Tmpfs>, Vfs), ops: &[Op]) {
    let mut model = Model::new();
    for op in ops {
        assert_eq!(apply(&vfs, op), model.apply(op), "{op:?}");
        compare(&vfs, &model);
    }
    vfs.drop_names();
    let mut live: Vec<u32> = model.inodes.values().flat_map(|dir| dir.entries.values().copied()).collect();
    live.sort_unstable();
    live.dedup();
    assert_eq!(fs.inodes_in_use(), live.len() as u64 + 1, "what has no name is freed");
    let stat = fs.statfs().unwrap();
    assert!(stat.free <= stat.blocks);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_leaves_the_tree_that_the_model_has(
        ops in prop::collection::vec(op(), 1..60)
    ) {
        run(volume(), &ops);
    }

    #[test]
    fn it_does_so_too_when_bytes_go_through_a_device(ops in prop::collection::vec(op(), 1..60)) {
        run(volume_on_device(), &ops);
    }

    #[test]
    fn one_file_matches_the_model_however_it_grows_and_shrinks(
        ops in prop::collection::vec(data_op(Just(vec![0])), 1..30)
    ) {
        let create = Op::Create(vec![0], FileKind::Regular);
        let ops: Vec<Op> = std::iter::once(create).chain(ops).collect();
        run(volume(), &ops);
        run(volume_on_device(), &ops);
    }
}
