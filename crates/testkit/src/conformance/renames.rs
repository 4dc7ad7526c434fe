//! Renames.

use obento_base::{Error, FileKind, Ino, Mode, Result};
use obento_driver::{FileSystem, NewNode, RenameFlags, StoredProperties};

use super::{
    attr, dir, file, keeps, links, lookup, name, names_besides, names_in, needs, new_node, writable,
};
use crate::outcome::{DIRECTORIES, HARD_LINKS, Lacks, Outcome, SUBDIRECTORIES, WHITEOUTS};

const PLAIN: RenameFlags = RenameFlags::empty();

fn rename(fs: &dyn FileSystem, from: (Ino, &str), to: (Ino, &str), flags: RenameFlags) -> Result<()> {
    writable(fs).rename(from.0, name(from.1), to.0, name(to.1), flags)
}

/// Moves a name.
pub fn rename_moves_a_name_within_and_between_directories(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let (root, sub) = (fs.root(), dir(fs, fs.root(), "d"));
    let plain = file(fs, root, "a");
    let mut at = (root, "a");
    for to in [(root, "b"), (sub, "b"), (sub, "c"), (root, "a")] {
        rename(fs, at, to, PLAIN).expect("the new name is free");
        assert_eq!((lookup(fs, at.0, at.1), lookup(fs, to.0, to.1)), (Err(Error::NotFound), Ok(plain)));
        assert_eq!(attr(fs, plain).nlink, 1);
        at = to;
    }
    Ok(())
}

/// The old name is free, and a new file with that name is found.
pub fn a_rename_that_makes_its_directory_grow_leaves_nothing_of_the_old_name(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let parent = dir(fs, fs.root(), "parent");
    let long = "l".repeat(fs.limits().name_max.min(200) as usize);
    file(fs, parent, "first");
    rename(fs, (parent, "first"), (parent, &long), PLAIN).expect("the new name is free");
    assert_eq!(lookup(fs, parent, "first"), Err(Error::NotFound));
    writable(fs).unlink(parent, name(&long)).expect("it exists");
    let second = file(fs, parent, "second");
    rename(fs, (parent, "second"), (parent, &long), PLAIN).expect("the new name is free");
    rename(fs, (parent, &long), (parent, "first"), PLAIN).expect("the old name is free");
    assert_eq!(lookup(fs, parent, "first"), Ok(second));
    assert_eq!(names_in(fs, parent), [b"first"]);
    Ok(())
}

/// The replaced inode is removed as by `unlink` or `rmdir`.
pub fn rename_replaces_the_file_at_the_new_name(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let (a, b) = (file(fs, root, "a"), file(fs, root, "b"));
    rename(fs, (root, "a"), (root, "b"), PLAIN).expect("a file replaces a file");
    assert_eq!((lookup(fs, root, "b"), attr(fs, b).nlink), (Ok(a), 0));
    let links = attr(fs, root).nlink;
    let (c, d) = (dir(fs, root, "c"), dir(fs, root, "d"));
    rename(fs, (root, "c"), (root, "d"), PLAIN).expect("a directory replaces an empty one");
    assert_eq!((lookup(fs, root, "d"), attr(fs, d).nlink), (Ok(c), 0));
    assert_eq!(attr(fs, root).nlink, links + u32::from(keeps(fs, StoredProperties::SUBDIRECTORIES)));
    for gone in [b, d] {
        fs.forget(gone);
        assert_eq!(fs.getattr(gone).map(drop), Err(Error::Stale));
    }
    Ok(())
}

/// `NO_REPLACE`: `Exists` if the new name exists.
pub fn rename_without_replacing_returns_exists_if_the_name_exists(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let a = file(fs, root, "a");
    file(fs, root, "b");
    dir(fs, root, "d");
    for to in ["b", "d"] {
        assert_eq!(rename(fs, (root, "a"), (root, to), RenameFlags::NO_REPLACE), Err(Error::Exists));
    }
    rename(fs, (root, "a"), (root, "c"), RenameFlags::NO_REPLACE).expect("the new name is free");
    assert_eq!(lookup(fs, root, "c"), Ok(a));
    Ok(())
}

/// `EXCHANGE`: the two names are exchanged.
pub fn exchange_swaps_two_names_of_any_types(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let (sub, plain) = (dir(fs, root, "d"), file(fs, root, "f"));
    let inner = dir(fs, sub, "inner");
    file(fs, inner, "x");
    let before = attr(fs, root).nlink;
    rename(fs, (root, "f"), (sub, "inner"), RenameFlags::EXCHANGE).expect("both names exist");
    assert_eq!((lookup(fs, root, "f"), lookup(fs, sub, "inner")), (Ok(inner), Ok(plain)));
    let counted = u32::from(keeps(fs, StoredProperties::SUBDIRECTORIES));
    assert_eq!((attr(fs, root).nlink, attr(fs, sub).nlink), (before + counted, links(fs, 0)));
    assert_eq!(fs.parent(inner), Ok(root));
    assert_eq!(rename(fs, (root, "f"), (sub, "missing"), RenameFlags::EXCHANGE), Err(Error::NotFound));
    Ok(())
}

/// `Invalid` for both flags together.
pub fn both_flags_at_once_are_invalid(fs: &dyn FileSystem) -> Outcome {
    file(fs, fs.root(), "a");
    file(fs, fs.root(), "b");
    for to in ["b", "missing"] {
        assert_eq!(rename(fs, (fs.root(), "a"), (fs.root(), to), RenameFlags::all()), Err(Error::Invalid));
    }
    Ok(())
}

/// `rename_leaving`: the old name refers to a new inode with the given attributes, unless both names refer to one
/// inode; nothing changes if it fails; `Invalid` with `EXCHANGE`.
pub fn a_rename_that_leaves_a_whiteout_gives_the_old_name_to_it(fs: &dyn FileSystem) -> Outcome {
    needs(fs, WHITEOUTS)?;
    let root = fs.root();
    let whiteouts = fs.whiteouts().expect("the capability is present");
    let node = NewNode { mode: Mode::new(0), ..new_node(fs, FileKind::CharDevice) };
    let leave = |from: (Ino, &str), to: (Ino, &str), flags| {
        whiteouts.rename_leaving(from.0, name(from.1), to.0, name(to.1), flags, &node)
    };
    let (plain, sub, links) = (file(fs, root, "f"), dir(fs, root, "d"), attr(fs, root).nlink);
    leave((root, "f"), (sub, "f"), PLAIN).expect("the new name is free");
    assert_eq!(lookup(fs, sub, "f"), Ok(plain));
    let left = attr(fs, lookup(fs, root, "f").expect("a whiteout"));
    assert_eq!(
        (left.kind, left.mode, left.nlink, left.uid, left.gid),
        (node.kind, node.mode, 1, node.uid, node.gid)
    );
    assert_eq!(left.rdev, node.rdev);
    leave((root, "d"), (root, "e"), PLAIN).expect("a directory moves, too");
    assert_eq!((lookup(fs, root, "e"), fs.parent(sub)), (Ok(sub), Ok(root)));
    assert_eq!(attr(fs, root).nlink, links);
    leave((sub, "f"), (root, "f"), PLAIN).expect("a file replaces a whiteout");
    assert_eq!(attr(fs, left.ino).nlink, 0);
    fs.forget(left.ino);
    let second = writable(fs).link(plain, root, name("second"));
    if second.is_ok() {
        leave((root, "second"), (root, "f"), PLAIN).expect("both names refer to one file");
        assert_eq!((lookup(fs, root, "second"), lookup(fs, root, "f")), (Ok(plain), Ok(plain)));
    }
    let before = names_in(fs, root);
    assert_eq!(leave((root, "missing"), (root, "x"), PLAIN), Err(Error::NotFound));
    assert_eq!(leave((root, "e"), (root, "f"), RenameFlags::NO_REPLACE), Err(Error::Exists));
    assert_eq!(leave((root, "e"), (root, "f"), RenameFlags::EXCHANGE), Err(Error::Invalid));
    assert_eq!(names_in(fs, root), before);
    Ok(())
}

/// The errors, in order, are `Invalid`; `NotDirectory`; `NotFound`; and so on; `IsDirectory` if a file would replace a
/// directory; `NotDirectory` if a directory would replace a file; `NotEmpty`.
pub fn rename_tests_its_errors_in_order(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let before = names_in(fs, root);
    let (plain, full) = (file(fs, root, "f"), dir(fs, root, "full"));
    dir(fs, root, "d");
    file(fs, full, "x");
    let removed = dir(fs, root, "gone");
    writable(fs).rmdir(root, name("gone")).expect("an empty directory");
    assert_eq!(rename(fs, (plain, "x"), (root, "y"), PLAIN), Err(Error::NotDirectory));
    assert_eq!(rename(fs, (root, "missing"), (plain, "y"), PLAIN), Err(Error::NotDirectory));
    assert_eq!(rename(fs, (root, "missing"), (root, "f"), RenameFlags::NO_REPLACE), Err(Error::NotFound));
    assert_eq!(rename(fs, (root, "f"), (removed, "f"), PLAIN), Err(Error::NotFound));
    assert_eq!(rename(fs, (root, "f"), (root, "full"), PLAIN), Err(Error::IsDirectory));
    assert_eq!(rename(fs, (root, "full"), (root, "f"), PLAIN), Err(Error::NotDirectory));
    assert_eq!(rename(fs, (root, "d"), (root, "full"), PLAIN), Err(Error::NotEmpty));
    assert_eq!(names_besides(fs, root, &before), [&b"d"[..], b"f", b"full"]);
    fs.forget(removed);
    Ok(())
}

/// Renaming one name of an inode to another name of it changes nothing.
pub fn a_rename_between_two_names_of_one_inode_changes_nothing(fs: &dyn FileSystem) -> Outcome {
    needs(fs, HARD_LINKS)?;
    let root = fs.root();
    let before = names_in(fs, root);
    let plain = file(fs, root, "a");
    writable(fs).link(plain, root, name("b")).expect("another name");
    for to in ["b", "a"] {
        rename(fs, (root, "a"), (root, to), PLAIN).expect("nothing to do");
    }
    let names = names_besides(fs, root, &before);
    assert_eq!((names, attr(fs, plain).nlink), (vec![b"a".to_vec(), b"b".to_vec()], 2));
    Ok(())
}

/// A moved directory gets its new parent.
pub fn a_moved_directory_has_its_new_parent_and_is_counted_there(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let root = fs.root();
    let (from, to) = (dir(fs, root, "from"), dir(fs, root, "to"));
    let moved = dir(fs, from, "m");
    rename(fs, (from, "m"), (to, "m"), PLAIN).expect("the new name is free");
    assert_eq!(fs.parent(moved), Ok(to));
    assert_eq!((attr(fs, from).nlink, attr(fs, to).nlink), (links(fs, 0), links(fs, 1)));
    // The moved directory replaces an empty directory, so the count stays.
    let other = dir(fs, from, "m");
    rename(fs, (to, "m"), (from, "m"), PLAIN).expect("an empty directory is replaced");
    let counts = (attr(fs, from).nlink, attr(fs, to).nlink);
    assert_eq!((counts, fs.parent(moved)), ((links(fs, 1), links(fs, 0)), Ok(from)));
    fs.forget(other);
    writable(fs)
        .create(moved, name("x"), &new_node(fs, obento_base::FileKind::Regular))
        .expect("it lives on");
    Ok(())
}

/// `create` and `rename`: `TooManyLinks` for a directory whose link count cannot express more subdirectories.
pub fn a_directory_has_no_more_subdirectories_than_its_link_count_allows(fs: &dyn FileSystem) -> Outcome {
    needs(fs, SUBDIRECTORIES)?;
    let (max, stat) = (fs.limits().link_max, fs.statfs().expect("use"));
    if max > 100_000 || u64::from(max) >= stat.free_inodes.min(stat.free) {
        return Err(Lacks("too little space for the maximum number of subdirectories"));
    }
    let (root, full) = (fs.root(), dir(fs, fs.root(), "full"));
    for n in 2..max {
        dir(fs, full, &n.to_string());
    }
    assert_eq!(attr(fs, full).nlink, max);
    let other = dir(fs, root, "other");
    let made = writable(fs).create(full, name("more"), &new_node(fs, obento_base::FileKind::Directory));
    assert_eq!(made.map(drop), Err(Error::TooManyLinks));
    assert_eq!(rename(fs, (root, "other"), (full, "more"), PLAIN), Err(Error::TooManyLinks));
    assert_eq!((lookup(fs, root, "other"), lookup(fs, full, "more")), (Ok(other), Err(Error::NotFound)));
    // A rename within the directory, or one that replaces a directory, does not change the count.
    assert_eq!(rename(fs, (full, "2"), (full, "more"), PLAIN), Ok(()));
    let replaced = lookup(fs, full, "3").expect("it exists");
    assert_eq!(rename(fs, (root, "other"), (full, "3"), PLAIN), Ok(()));
    fs.forget(replaced);
    assert_eq!(attr(fs, full).nlink, max);
    file(fs, full, "plain");
    assert_eq!(attr(fs, full).nlink, max, "a file counts for nothing");
    Ok(())
}
