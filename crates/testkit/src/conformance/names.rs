//! Creating, linking and removing.

use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode};
use obento_driver::{FileSystem, NewNode, RemovalKind, StoredProperties, Usage};

use super::{
    attr, dir, file, has, has_links, keeps, links, list, lookup, make, name, names_besides, names_in, needs,
    new_node, read, writable, write,
};
use crate::outcome::{DIRECTORIES, Lacks, Outcome};

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
];

/// `create` creates an inode with a name in `dir`.
pub fn a_new_inode_has_the_requested_properties_and_name(fs: &dyn FileSystem) -> Outcome {
    let root = fs.root();
    for (index, kind) in KINDS.into_iter().enumerate() {
        let text = format!("n{index}");
        let rdev = DeviceNumber { major: 8, minor: 70_000 };
        let node = NewNode { rdev, ..new_node(fs, kind) };
        let made = writable(fs).create(root, name(&text), &node);
        if !has(fs, kind) {
            assert_eq!(
                (made.map(drop), lookup(fs, root, &text)),
                (Err(Error::NotPermitted), Err(Error::NotFound))
            );
            continue;
        }
        let made = made.expect("the name is free");
        assert_eq!(made.kind, kind);
        assert!(made.mode == node.mode || !keeps(fs, StoredProperties::MODES));
        assert!((made.uid, made.gid) == (node.uid, node.gid) || !keeps(fs, StoredProperties::OWNERS));
        let rdev = if kind.is_device() { node.rdev } else { DeviceNumber::default() };
        assert_eq!(made.rdev, rdev);
        assert_eq!(attr(fs, made.ino), made);
        assert_eq!(lookup(fs, root, &text), Ok(made.ino));
        assert!(list(fs, root).iter().any(|entry| entry.ino == made.ino && entry.name == text.as_bytes()));
    }
    if has(fs, FileKind::CharDevice) {
        a_device_number_is_stored_whole_or_refused(fs);
    }
    Ok(())
}

/// A device number that the format cannot store is refused and not shortened.
fn a_device_number_is_stored_whole_or_refused(fs: &dyn FileSystem) {
    let root = fs.root();
    for (index, (major, minor)) in
        [(0xfff, 0xf_ffff), (0x1000, 1), (1, 0x10_0000), (u32::MAX, u32::MAX)].into_iter().enumerate()
    {
        let (text, rdev) = (format!("device{index}"), DeviceNumber { major, minor });
        let node = NewNode { rdev, ..new_node(fs, FileKind::CharDevice) };
        match writable(fs).create(root, name(&text), &node) {
            Ok(made) => assert_eq!((made.rdev, attr(fs, made.ino).rdev), (rdev, rdev)),
            Err(error) => {
                assert_eq!((error, lookup(fs, root, &text)), (Error::OutOfRange, Err(Error::NotFound)));
            }
        }
    }
}

/// If the format counts subdirectories, a new directory has link count 2 and increases the link count of `dir` by 1.
pub fn a_new_directory_has_the_link_count_of_the_format_and_is_counted_in_its_parent(
    fs: &dyn FileSystem,
) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let before = attr(fs, fs.root()).nlink;
    let made = dir(fs, fs.root(), "d");
    let counted = u32::from(keeps(fs, StoredProperties::SUBDIRECTORIES));
    assert_eq!((attr(fs, made).nlink, attr(fs, fs.root()).nlink), (links(fs, 0), before + counted));
    assert_eq!(attr(fs, file(fs, made, "f")).nlink, 1);
    assert_eq!(attr(fs, made).nlink, links(fs, 0));
    assert_eq!(fs.parent(made), Ok(fs.root()));
    assert_eq!(list(fs, dir(fs, made, "e")), []);
    Ok(())
}

/// `create`: `Invalid` for an empty target; `NameTooLong` for a target longer than `symlink_max`.
pub fn a_symbolic_link_has_its_target_and_an_empty_one_is_invalid(fs: &dyn FileSystem) -> Outcome {
    let max = fs.limits().symlink_max as usize;
    let link = |text: &str, target: &[u8]| {
        let node = NewNode { target, ..new_node(fs, FileKind::Symlink) };
        writable(fs).create(fs.root(), name(text), &node).map(|attr| attr.ino)
    };
    assert_eq!(link("e", b""), Err(Error::Invalid));
    if !has(fs, FileKind::Symlink) {
        assert_eq!(link("e", b"target"), Err(Error::NotPermitted));
        return Ok(());
    }
    assert_eq!(link("e", &vec![b'x'; max + 1]), Err(Error::NameTooLong));
    for (text, target) in [("short", &b"/\xff/.."[..]), ("middle", &[b'y'; 100]), ("long", &vec![b'x'; max])]
    {
        let ino = link(text, target).expect("a link");
        assert_eq!(fs.read_link(ino).expect("its target"), target);
        assert_eq!(attr(fs, ino).size, target.len() as u64);
    }
    Ok(())
}

/// `create`: the errors, in order, are `NotDirectory`; `NotFound` if `dir` was removed; `Exists`; and so on.
pub fn create_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let before = names_in(fs, root);
    let plain = file(fs, root, "f");
    let removed = removed_dir(fs);
    let empty_link = NewNode { target: b"", ..new_node(fs, FileKind::Symlink) };
    let create = |dir: Ino| writable(fs).create(dir, name("f"), &empty_link).map(drop);
    assert_eq!(create(plain), Err(Error::NotDirectory));
    assert_eq!(create(removed), Err(Error::NotFound));
    assert_eq!(create(root), Err(Error::Exists));
    assert_eq!(names_besides(fs, root, &before), [b"f"]);
    fs.forget(removed);
    Ok(())
}

/// Returns a directory that was removed and not forgotten.
fn removed_dir(fs: &dyn FileSystem) -> Ino {
    let removed = dir(fs, fs.root(), "gone");
    writable(fs).rmdir(fs.root(), name("gone")).expect("an empty directory");
    removed
}

/// `link` creates another name of `ino`.
pub fn link_adds_a_name_and_counts_it(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let sub = dir(fs, fs.root(), "d");
    let linked = |kind: FileKind| kind != FileKind::Directory && has(fs, kind) && has_links(fs);
    for (index, kind) in KINDS.into_iter().enumerate().filter(|(_, kind)| linked(*kind)) {
        let text = format!("n{index}");
        let ino = make(fs, fs.root(), &text, kind);
        let linked = writable(fs).link(ino, sub, name(&text)).expect("another name");
        assert_eq!((linked.ino, linked.nlink), (ino, 2));
        assert_eq!(lookup(fs, sub, &text), Ok(ino));
        assert_eq!(attr(fs, ino).nlink, 2);
    }
    Ok(())
}

/// `link`: the errors, in order, are `NotDirectory`; `NotPermitted` if `ino` is a directory; `NotFound` if `dir` was
/// removed or `ino` has no name; and so on.
pub fn link_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let (plain, sub, removed) = (file(fs, root, "f"), dir(fs, root, "d"), removed_dir(fs));
    let link = |ino, dir, text| writable(fs).link(ino, dir, name(text)).map(drop);
    assert_eq!(link(sub, plain, "f"), Err(Error::NotDirectory));
    assert_eq!(link(sub, removed, "f"), Err(Error::NotPermitted));
    assert_eq!(link(plain, removed, "f"), Err(Error::NotFound));
    let nameless = file(fs, root, "g");
    writable(fs).unlink(root, name("g")).expect("a file");
    assert_eq!(link(nameless, root, "f"), Err(Error::NotFound));
    assert_eq!(link(plain, root, "d"), Err(Error::Exists));
    assert_eq!(attr(fs, plain).nlink, 1);
    fs.forget(nameless);
    fs.forget(removed);
    Ok(())
}

/// `link`: `TooManyLinks` beyond the greatest number of names.
pub fn a_file_has_at_most_as_many_names_as_the_format_supports(fs: &dyn FileSystem) -> Outcome {
    let (plain, max) = (file(fs, fs.root(), "0"), fs.limits().link_max);
    if max > 100_000 {
        return Err(Lacks("no limit of names that a case reaches"));
    }
    // The number of names in one directory is limited, because a plain list is slow to search.
    const EACH: u32 = 2000;
    let mut place = fs.root();
    for n in 1..max {
        if n % EACH == 0 {
            place = dir(fs, fs.root(), &format!("d{n}"));
        }
        writable(fs).link(plain, place, name(&n.to_string())).expect("not yet too many");
    }
    let one_more = writable(fs).link(plain, place, name("one more"));
    assert_eq!(one_more.map(drop), Err(Error::TooManyLinks));
    assert_eq!(attr(fs, plain).nlink, max);
    Ok(())
}

/// `remove`: the name does not exist afterwards, the link count is one less, and an inode in use can be read and
/// written until its `forget`.
pub fn unlink_removes_a_name_and_the_inode_stays_usable_until_forget(fs: &dyn FileSystem) -> Outcome {
    let (root, bytes) = (fs.root(), vec![7; super::block(fs) as usize]);
    let plain = file(fs, root, "f");
    write(fs, plain, 0, &bytes).expect("space");
    let names = if has_links(fs) { &[("f", 1), ("g", 0)][..] } else { &[("f", 0)] };
    if has_links(fs) {
        writable(fs).link(plain, root, name("g")).expect("another name");
    }
    for &(text, left) in names {
        writable(fs).unlink(root, name(text)).expect("a file");
        assert_eq!(lookup(fs, root, text), Err(Error::NotFound));
        assert_eq!(attr(fs, plain).nlink, left);
        assert_eq!(read(fs, plain, 0, bytes.len(), 999), Ok(bytes.clone()));
        write(fs, plain, 0, &bytes).expect("space");
    }
    fs.forget(plain);
    assert_eq!(fs.getattr(plain).map(drop), Err(Error::Stale));
    Ok(())
}

/// `remove`: the errors, in order, are `NotDirectory` for `dir`; `NotFound`; `IsDirectory`.
pub fn unlink_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let plain = file(fs, fs.root(), "f");
    dir(fs, fs.root(), "d");
    let unlink = |dir, text| writable(fs).unlink(dir, name(text));
    assert_eq!(unlink(plain, "f"), Err(Error::NotDirectory));
    assert_eq!(unlink(fs.root(), "g"), Err(Error::NotFound));
    assert_eq!(unlink(fs.root(), "d"), Err(Error::IsDirectory));
    Ok(())
}

/// `remove`: nothing can be created in a removed directory.
pub fn rmdir_removes_an_empty_directory_and_prevents_new_entries(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let before = attr(fs, fs.root()).nlink;
    let removed = removed_dir(fs);
    assert_eq!(lookup(fs, fs.root(), "gone"), Err(Error::NotFound));
    assert_eq!((attr(fs, fs.root()).nlink, attr(fs, removed).nlink), (before, 0));
    let made = writable(fs).create(removed, name("f"), &new_node(fs, FileKind::Regular));
    assert_eq!(made.map(drop), Err(Error::NotFound));
    assert_eq!(list(fs, removed), []);
    fs.forget(removed);
    assert_eq!(fs.getattr(removed).map(drop), Err(Error::Stale));
    Ok(())
}

/// `remove` of a directory: the errors, in order, are `NotDirectory` for `dir`; `NotFound`; `NotDirectory`; `NotEmpty`.
pub fn rmdir_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let plain = file(fs, fs.root(), "f");
    let sub = dir(fs, fs.root(), "d");
    file(fs, sub, "x");
    let rmdir = |dir, text| writable(fs).rmdir(dir, name(text));
    assert_eq!(rmdir(plain, "f"), Err(Error::NotDirectory));
    assert_eq!(rmdir(fs.root(), "f"), Err(Error::NotDirectory));
    assert_eq!(rmdir(fs.root(), "g"), Err(Error::NotFound));
    assert_eq!(rmdir(fs.root(), "d"), Err(Error::NotEmpty));
    assert_eq!(names_in(fs, sub), [b"x"]);
    Ok(())
}

/// `remove`: an inode that is not in use and has no other name is free, as after `forget`.
pub fn an_unused_inode_is_free_once_its_last_name_is_removed(fs: &dyn FileSystem) -> Outcome {
    let (root, before) = (fs.root(), fs.statfs().expect("use"));
    let remove = |text, victim| writable(fs).remove(root, name(text), victim, &mut |_| Ok(Usage::Unused));
    for kind in KINDS.into_iter().filter(|&kind| has(fs, kind)) {
        let ino = make(fs, root, "f", kind);
        if kind == FileKind::Regular {
            // The attributes are written in pieces, because an inode may not have room for all.
            for piece in (0..12).filter(|&piece| piece == 0 || keeps(fs, StoredProperties::HOLES)) {
                write(fs, ino, 3 * piece * super::block(fs), &[1; 700]).expect("space");
            }
        }
        let is_directory = kind == FileKind::Directory;
        if !is_directory && has_links(fs) {
            writable(fs).link(ino, root, name("g")).expect("another name");
            assert_eq!(remove("g", RemovalKind::File), Ok(()));
            assert_eq!(attr(fs, ino).nlink, 1, "it has a name");
        }
        assert_eq!(
            remove("f", if is_directory { RemovalKind::EmptyDirectory } else { RemovalKind::File }),
            Ok(())
        );
        assert_eq!(lookup(fs, root, "f"), Err(Error::NotFound));
        assert_eq!(fs.getattr(ino).map(drop), Err(Error::Stale), "{kind:?}");
    }
    writable(fs).sync().expect("a sound device");
    let after = fs.statfs().expect("use");
    assert_eq!((after.free, after.free_inodes), (before.free, before.free_inodes));
    Ok(())
}

/// `remove` calls `ask` after it has found the inode. The errors, in order, are `NotFound`; those of `ask`;
/// `IsDirectory`.
pub fn remove_asks_once_about_the_found_inode_and_a_refusal_changes_nothing(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let (plain, sub) = (file(fs, root, "f"), dir(fs, root, "d"));
    let refused = |text, victim| {
        let mut asked = Vec::new();
        let outcome = writable(fs).remove(root, name(text), victim, &mut |attr| {
            asked.push(attr.ino);
            Err(Error::NotPermitted)
        });
        (outcome, asked)
    };
    assert_eq!(refused("g", RemovalKind::File), (Err(Error::NotFound), Vec::new()));
    for victim in [RemovalKind::File, RemovalKind::EmptyDirectory] {
        assert_eq!(refused("f", victim), (Err(Error::NotPermitted), vec![plain]));
        assert_eq!(refused("d", victim), (Err(Error::NotPermitted), vec![sub]));
    }
    assert_eq!((lookup(fs, root, "f"), attr(fs, plain).nlink), (Ok(plain), 1));
    assert_eq!((lookup(fs, root, "d"), attr(fs, sub).nlink), (Ok(sub), links(fs, 0)));
    Ok(())
}

/// `forget` frees an inode with link count 0.
pub fn forget_frees_inodes_without_names_and_nothing_else(fs: &dyn FileSystem) -> Outcome {
    let before = fs.statfs().expect("use");
    let plain = file(fs, fs.root(), "f");
    write(fs, plain, 0, &vec![1; 20 * before.block_size as usize]).expect("space");
    fs.forget(plain);
    assert_eq!(attr(fs, plain).nlink, 1);
    writable(fs).unlink(fs.root(), name("f")).expect("a file");
    assert!(fs.statfs().expect("use").free < before.free, "it is still in use");
    fs.forget(plain);
    writable(fs).sync().expect("a sound device");
    let after = fs.statfs().expect("use");
    assert_eq!((after.free, after.free_inodes), (before.free, before.free_inodes));
    Ok(())
}

/// The generation differs between two uses of an inode number.
pub fn a_reused_inode_number_has_another_generation(fs: &dyn FileSystem) -> Outcome {
    let mut lives = std::collections::HashSet::new();
    for _ in 0..50 {
        let made =
            writable(fs).create(fs.root(), name("f"), &new_node(fs, FileKind::Regular)).expect("space");
        assert!(lives.insert((made.ino, made.generation)));
        assert!(made.mode == Mode::new(0o750) || !keeps(fs, StoredProperties::MODES));
        writable(fs).unlink(fs.root(), name("f")).expect("a file");
        fs.forget(made.ino);
    }
    Ok(())
}
