//! Random paths through one tree, resolved by vfs and by the kernel below a root of its own (`openat2(2)` with
//! `RESOLVE_IN_ROOT`). Both find the same file, or return the same error.
#![cfg(target_os = "linux")]

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{Short, volume};
use obento_vfs::{Caller, Node, Symlinks};
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags};

const DIRS: [&str; 4] = ["a", "a/b", "a/b/c", "d"];
const FILES: [&str; 3] = ["f", "a/f", "a/b/c/f"];
const LINKS: [(&str, &str); 10] = [
    ("l", "a"),
    ("a/up", ".."),
    ("a/root", "/"),
    ("a/b/l", "../../d"),
    ("d/abs", "/a/b/../b/c/"),
    ("d/file", "../f"),
    ("d/slash", "../f/"),
    ("d/dangling", "nowhere/x"),
    ("d/loop", "loop"),
    ("a/b/c/long", "../../../l/./b//c"),
];

fn component() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => prop::sample::select(&["a", "b", "c", "d"][..]),
        3 => prop::sample::select(&["l", "up", "root", "abs", "long"][..]),
        2 => prop::sample::select(&["f", "file", "slash", "dangling", "loop", "missing"][..]),
        6 => prop::sample::select(&[".", "..", ""][..]),
    ]
}

/// Something that is there, and a few steps on from it.
fn path() -> impl Strategy<Value = String> {
    let known: Vec<&str> = DIRS.into_iter().chain(FILES).chain(LINKS.map(|(link, _)| link)).collect();
    let steps = prop::collection::vec(component(), 0..6);
    (any::<bool>(), prop::sample::select(known), steps).prop_map(|(absolute, known, steps)| {
        let root = if absolute { "/" } else { "" };
        let components: Vec<&str> = std::iter::once(known).chain(steps).collect();
        format!("{root}{}", components.join("/"))
    })
}

/// The same tree below a folder of the host.
fn write(folder: &Path) {
    DIRS.iter().for_each(|dir| fs::create_dir(folder.join(dir)).unwrap());
    FILES.iter().for_each(|file| fs::write(folder.join(file), "").unwrap());
    LINKS.iter().for_each(|(link, target)| symlink(target, folder.join(link)).unwrap());
}

fn place<'p>(root: &Node, path: &'p str) -> (Node, &'p str) {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("/", path));
    (root.walk(dir).unwrap(), name)
}

fn fill(root: &Node) {
    for (paths, make) in [(&DIRS[..], Short::dir as fn(&Node, &str) -> Node), (&FILES[..], Short::file)] {
        for path in paths {
            let (dir, name) = place(root, path);
            make(&dir, name);
        }
    }
    for (link, target) in LINKS {
        let (dir, name) = place(root, link);
        dir.symlink(name, target);
    }
}

fn kernel_inode(root: &OwnedFd, path: &str, symlinks: Symlinks) -> Result<u64, i32> {
    let no_follow = if symlinks == Symlinks::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::PATH | OFlags::CLOEXEC | no_follow;
    rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
        .and_then(rustix::fs::fstat)
        .map(|stat| stat.st_ino)
        .map_err(rustix::io::Errno::raw_os_error)
}

#[test]
fn a_path_leads_where_the_kernel_says_it_leads() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let open = OFlags::DIRECTORY | OFlags::RDONLY;
    let host = rustix::fs::open(folder.path(), open, Mode::empty()).unwrap();
    let (_, vfs) = volume();
    let root = vfs.root();
    fill(&root);

    // What is called the same is the same.
    let links = LINKS.iter().map(|(link, _)| link);
    let numbers: BTreeMap<u64, u64> = DIRS
        .iter()
        .chain(&FILES)
        .chain(links)
        .chain(&["."])
        .map(|path| {
            let node = vfs.resolve(&root, path.as_bytes(), Symlinks::Keep, &Caller::Owner).unwrap();
            (kernel_inode(&host, path, Symlinks::Keep).unwrap(), node.ino().0)
        })
        .collect();
    let follow = prop_oneof![Just(Symlinks::Follow), Just(Symlinks::Keep)];
    let config = ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() };
    let arrived = Cell::new(0);
    proptest!(config, |(path in path(), symlinks in follow)| {
        let ours = vfs.resolve(&root, path.as_bytes(), symlinks, &Caller::Owner);
        let ours = ours.map(|node| node.ino().0).map_err(|error| error.errno().0);
        let theirs = kernel_inode(&host, &path, symlinks).map(|ino| numbers[&ino]);
        arrived.set(arrived.get() + u32::from(ours.is_ok()));
        prop_assert_eq!(ours, theirs, "{}", path);
    });
    assert!(arrived.get() > 800, "only {} of 4000 paths led anywhere", arrived.get());
}
