//! The tables of `vfs`: inodes in use, names, guards of directories and files, gathered bytes.
#![cfg(obento_env = "shuttle")]

use std::sync::Arc;

use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name, Result};
use obento_block::MemDevice;
use obento_driver::{NewNode, RenameFlags};
use obento_env::NO_CLOCK;
use obento_env::thread::{Thread, spawn};
use obento_schedules::explore;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Config, Node, Vfs};

const OWNER: Caller = Caller::Owner;

struct World {
    fs: Arc<Tmpfs>,
    vfs: Vfs,
}

impl World {
    fn new() -> Self {
        let device = Arc::new(MemDevice::new(vec![0xdd; 1 << 20]));
        let fs = Arc::new(Tmpfs::new(Options { device: Some(device), ..Options::new(Arc::new(NO_CLOCK)) }));
        // Four names, so that the cache evicts some.
        let vfs = Vfs::with(Arc::clone(&fs) as _, Config { names: 4, ..Config::default() });
        Self { fs, vfs }
    }

    /// Runs `work` in parallel threads. Afterwards only the root is in use.
    fn at_once(self, work: &[fn(&Vfs)]) -> Self {
        let start = |&work: &fn(&Vfs)| {
            let vfs = self.vfs.clone();
            spawn("worker", move || work(&vfs)).expect("there are threads")
        };
        let threads: Vec<Thread> = work.iter().map(start).collect();
        threads.into_iter().for_each(Thread::join);
        self.vfs.drop_names();
        assert_eq!(self.vfs.nodes_in_use(), 1, "no other node is in use");
        self
    }
}

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn make(vfs: &Vfs, dir: &Node, text: &str, kind: FileKind) -> Result<Node> {
    let (mode, rdev) = (Mode::new(0o755), DeviceNumber::default());
    vfs.create(&OWNER, dir, name(text), &NewNode { kind, mode, uid: 0, gid: 0, rdev, target: b"" })
}

fn walk(vfs: &Vfs, path: &str) -> Result<Node> {
    path.split('/').try_fold(vfs.root(), |dir, part| dir.lookup(name(part)))
}

fn rename(vfs: &Vfs, from: (&str, &str), to: (&str, &str)) -> Result<()> {
    let (source, target) = (walk(vfs, from.0)?, walk(vfs, to.0)?);
    vfs.rename(&OWNER, (&source, name(from.1)), (&target, name(to.1)), RenameFlags::empty())
}

/// Expects success, or an error because another thread was first.
#[track_caller]
fn expect_one_of<T>(done: Result<T>, others: &[Error]) {
    if let Err(error) = done {
        assert!(others.contains(&error), "{error:?}");
    }
}

#[test]
fn a_number_belongs_to_one_file_while_files_are_created_looked_up_and_removed() {
    explore(|| {
        let make_file = |vfs: &Vfs| {
            let file = make(vfs, &vfs.root(), "f", FileKind::Regular);
            let written = file.and_then(|file| file.write_at(0, b"first"));
            expect_one_of(written, &[Error::Exists]);
        };
        let look = |vfs: &Vfs| {
            for _ in 0..2 {
                let Ok(node) = vfs.root().lookup(name("f")) else { continue };
                // The node is the file that was found, even after its name was removed.
                assert_eq!(node.attr().expect("it is in use").kind, FileKind::Regular);
                let mut bytes = [0; 5];
                let len = node.read_at(0, &mut bytes).expect("it reads");
                assert!(len == 0 || &bytes == b"first", "{bytes:?}");
            }
        };
        let unlink = |vfs: &Vfs| {
            expect_one_of(vfs.unlink(&OWNER, &vfs.root(), name("f")), &[Error::NotFound]);
            expect_one_of(make(vfs, &vfs.root(), "d", FileKind::Directory), &[]);
        };
        let world = World::new().at_once(&[make_file, look, unlink]);
        let left = usize::from(world.vfs.root().lookup(name("f")).is_ok());
        assert_eq!(world.fs.inodes_in_use(), 2 + left as u64, "the root, d, and f if it was made last");
    });
}

#[test]
fn renames_between_two_directories_in_both_directions_end() {
    explore(|| {
        let world = World::new();
        for dir in ["a", "b"] {
            let dir = make(&world.vfs, &world.vfs.root(), dir, FileKind::Directory).expect("it is made");
            drop(make(&world.vfs, &dir, "x", FileKind::Directory).expect("it is made"));
        }
        let there = |vfs: &Vfs| rename(vfs, ("a", "x"), ("b", "y")).expect("no other rename interferes");
        let back = |vfs: &Vfs| rename(vfs, ("b", "x"), ("a", "y")).expect("no other rename interferes");
        let look = |vfs: &Vfs| {
            expect_one_of(walk(vfs, "a/x"), &[Error::NotFound]);
            expect_one_of(walk(vfs, "a/y").and_then(|node| node.parent()), &[Error::NotFound]);
        };
        let world = world.at_once(&[there, back, look]);
        for path in ["a/y", "b/y"] {
            assert!(walk(&world.vfs, path).is_ok(), "{path}");
        }
    });
}

/// One of the two renames fails. Otherwise two directories would contain each other. The renames share no
/// directory, so only the lock of all renames separates them.
#[test]
fn two_directories_are_never_moved_into_each_other() {
    explore(|| {
        let world = World::new();
        for (parent, dir) in [("x", "a"), ("y", "b")] {
            let parent =
                make(&world.vfs, &world.vfs.root(), parent, FileKind::Directory).expect("it is made");
            drop(make(&world.vfs, &parent, dir, FileKind::Directory).expect("it is made"));
        }
        let first: fn(&Vfs) = |vfs| move_into(vfs, ("x", "a"), "y/b");
        let second: fn(&Vfs) = |vfs| move_into(vfs, ("y", "b"), "x/a");
        let world = world.at_once(&[first, second]);
        let found = ["x/a/in", "y/b/in"].map(|path| walk(&world.vfs, path).is_ok());
        assert!(found[0] != found[1], "exactly one lies in the other: {found:?}");
    });
}

fn move_into(vfs: &Vfs, from: (&str, &str), to: &str) {
    expect_one_of(rename(vfs, from, (to, "in")), &[Error::NotFound, Error::Invalid]);
}

/// Looks up the number of an inode that is being forgotten, while another thread gets the number for a new
/// file.
#[test]
fn a_number_that_was_found_in_use_stays_so_for_who_found_it() {
    const FIRST: Ino = Ino(3);
    explore(|| {
        let world = World::new();
        let file = make(&world.vfs, &world.vfs.root(), "f", FileKind::Regular).expect("it is made");
        assert_eq!(file.ino(), FIRST);
        drop(file);
        let unlink = |vfs: &Vfs| vfs.unlink(&OWNER, &vfs.root(), name("f")).expect("it exists");
        let ask = |vfs: &Vfs| {
            for _ in 0..2 {
                let Ok(node) = vfs.node(FIRST) else { continue };
                let generation = node.attr().expect("it was in use").generation;
                assert_eq!(node.attr().map(|attr| attr.generation), Ok(generation));
            }
        };
        let make_another = |vfs: &Vfs| drop(make(vfs, &vfs.root(), "g", FileKind::Directory));
        let world = world.at_once(&[unlink, ask, make_another]);
        assert_eq!(world.fs.inodes_in_use(), 2);
    });
}

#[test]
fn a_directory_is_removed_or_gets_an_entry_and_not_both() {
    explore(|| {
        let world = World::new();
        drop(make(&world.vfs, &world.vfs.root(), "d", FileKind::Directory).expect("it is made"));
        let fill = |vfs: &Vfs| {
            let made = walk(vfs, "d").and_then(|dir| make(vfs, &dir, "f", FileKind::Regular));
            expect_one_of(made, &[Error::NotFound]);
        };
        let remove = |vfs: &Vfs| {
            expect_one_of(vfs.rmdir(&OWNER, &vfs.root(), name("d")), &[Error::NotEmpty]);
        };
        let world = world.at_once(&[fill, remove]);
        let found = ["d", "d/f"].map(|path| walk(&world.vfs, path).is_ok());
        assert_eq!(found[0], found[1]);
        world.vfs.drop_names();
        assert_eq!(world.fs.inodes_in_use(), if found[0] { 3 } else { 1 });
    });
}

const PIECE: usize = 700;

/// The thread that limits the age of gathered bytes ends with the volume.
#[test]
fn bytes_appended_beside_readers_syncs_and_truncates_are_in_order() {
    explore(|| {
        let world = World::new();
        drop(make(&world.vfs, &world.vfs.root(), "f", FileKind::Regular).expect("it is made"));
        let append = |vfs: &Vfs| {
            let file = walk(vfs, "f").expect("it exists");
            for n in 0..4_u8 {
                assert_eq!(file.append(&[n + 1; PIECE]).expect("there is room").1, PIECE);
            }
        };
        let look = |vfs: &Vfs| {
            let file = walk(vfs, "f").expect("it exists");
            let mut bytes = vec![0; 4 * PIECE];
            let len = file.read_at(0, &mut bytes).expect("it reads");
            assert!(len.is_multiple_of(PIECE), "{len}");
            assert!(bytes[..len].iter().enumerate().all(|(at, &byte)| usize::from(byte) == 1 + at / PIECE));
        };
        let sync = |vfs: &Vfs| {
            vfs.sync().expect("a sound device");
            walk(vfs, "f").and_then(|file| file.sync()).expect("a sound device");
        };
        let world = world.at_once(&[append, look, sync]);
        assert_eq!(
            walk(&world.vfs, "f").and_then(|file| file.attr()).expect("it exists").size,
            4 * PIECE as u64
        );
        look(&world.vfs);
        world.vfs.close().expect("a sound device");
    });
}
