//! Cases that only read a volume.

use std::collections::HashSet;
use std::ops::ControlFlow;

use obento_base::{Error, FileKind, Ino, Name};
use obento_driver::{Cookie, FileSystem, LayoutLock, Span};

use super::{Listed, attr, block, list, list_from, needs, read, xattrs};
use crate::outcome::{Lacks, Outcome, SYMLINKS};

/// The number of inodes that a test examines on a large volume.
const MAX_INODES: usize = 3000;
const MAX_BYTES: u64 = 256 * 1024;

/// Returns every directory with its parent and its entries, root first, up to `MAX_INODES`.
fn directories(fs: &dyn FileSystem) -> Vec<(Ino, Ino, Vec<Listed>)> {
    let mut found = Vec::new();
    let mut todo = vec![(fs.root(), fs.root())];
    let mut seen = HashSet::from([fs.root()]);
    let mut entries = 0;
    while let Some((dir, parent)) = todo.pop() {
        let listed = list(fs, dir);
        entries += listed.len();
        for entry in &listed {
            if entries < MAX_INODES && attr(fs, entry.ino).is_dir() && seen.insert(entry.ino) {
                todo.push((entry.ino, dir));
            }
        }
        found.push((dir, parent, listed));
    }
    found
}

/// Returns each inode once, up to `MAX_INODES`.
pub(super) fn inodes(fs: &dyn FileSystem) -> Vec<(Ino, FileKind)> {
    let mut seen = HashSet::new();
    let listed = directories(fs).into_iter().flat_map(|(_, _, listed)| listed);
    let inodes = std::iter::once(fs.root()).chain(listed.map(|entry| entry.ino));
    inodes.filter(|&ino| seen.insert(ino)).take(MAX_INODES).map(|ino| (ino, attr(fs, ino).kind)).collect()
}

/// Returns what was found, or a refusal if nothing was found, because the case would test nothing.
pub(super) fn some<T>(found: impl IntoIterator<Item = T>, lacks: &'static str) -> Result<Vec<T>, Lacks> {
    let found: Vec<T> = found.into_iter().collect();
    if found.is_empty() { Err(Lacks(lacks)) } else { Ok(found) }
}

/// Returns the regular files that can be read, with their sizes. An encrypted file is left out.
pub(super) fn files(fs: &dyn FileSystem) -> Result<Vec<(Ino, u64)>, Lacks> {
    let lock = LayoutLock::new();
    let regular = inodes(fs).into_iter().filter(|(_, kind)| *kind == FileKind::Regular);
    let sizes = regular.map(|(ino, _)| (ino, attr(fs, ino).size));
    let readable =
        sizes.filter(|(ino, _)| !matches!(fs.map(&lock.shared(), *ino, 0..1), Err(Error::Unsupported(_))));
    some(readable, "no file in the tree")
}

/// Returns the directories, if one of them is not empty.
fn listings(fs: &dyn FileSystem) -> Result<Vec<(Ino, Ino, Vec<Listed>)>, Lacks> {
    let found = directories(fs);
    let is_empty = found.iter().all(|(_, _, listed)| listed.is_empty());
    if is_empty { Err(Lacks("no name in the tree")) } else { Ok(found) }
}

fn as_name(entry: &Listed) -> &Name {
    Name::new(&entry.name).expect("a listing hands over names")
}

/// `lookup` returns the inode that `name` refers to in `dir`.
pub fn a_lookup_of_a_listed_name_returns_the_same_inode(fs: &dyn FileSystem) -> Outcome {
    for (dir, _, listed) in listings(fs)? {
        for entry in listed.iter().take(MAX_INODES) {
            assert_eq!(fs.lookup(dir, as_name(entry)), Ok(entry.ino), "{:?}", as_name(entry));
        }
    }
    Ok(())
}

/// An entry has the kind of its inode, or none.
pub fn an_entry_has_the_kind_of_its_inode_or_no_kind(fs: &dyn FileSystem) -> Outcome {
    for (_, _, listed) in listings(fs)? {
        for entry in listed.iter().take(MAX_INODES) {
            assert!(entry.kind.is_none_or(|kind| kind == attr(fs, entry.ino).kind), "{entry:?}");
        }
    }
    Ok(())
}

/// An entry that exists during the whole listing is listed exactly once.
pub fn a_name_is_listed_once(fs: &dyn FileSystem) -> Outcome {
    for (dir, _, listed) in listings(fs)? {
        let names: HashSet<_> = listed.iter().map(|entry| &entry.name).collect();
        assert_eq!(names.len(), listed.len(), "directory {dir}");
    }
    Ok(())
}

/// A cookie is not 0 except at the start, and below 2^63.
pub fn a_cookie_is_never_0_and_stays_below_2_to_the_63(fs: &dyn FileSystem) -> Outcome {
    for (_, _, listed) in listings(fs)? {
        assert!(listed.iter().all(|entry| (1..1 << 63).contains(&entry.next.0)));
    }
    Ok(())
}

/// A cookie is a position from which the listing can continue.
pub fn a_listing_continues_after_any_entry_with_the_next_one(fs: &dyn FileSystem) -> Outcome {
    for (dir, _, listed) in listings(fs)? {
        for step in 0..listed.len().min(40) {
            // All entries of a small directory, some of a large one, and always the last entry.
            let index = listed.len() - 1 - step * (listed.len() / 40).max(1);
            let rest = list_from(fs, dir, listed[index].next, 100);
            let expected: Vec<_> = listed[index + 1..].iter().take(100).cloned().collect();
            assert_eq!(rest, expected, "directory {dir}, after entry {index}");
        }
    }
    Ok(())
}

/// The order is the same each time while nothing changes.
pub fn a_listing_is_in_the_same_order_each_time_while_nothing_changes(fs: &dyn FileSystem) -> Outcome {
    for (dir, _, listed) in listings(fs)? {
        assert_eq!(list(fs, dir), listed);
    }
    Ok(())
}

/// A listing ends when the sink breaks or no entries are left.
pub fn a_sink_that_breaks_gets_no_more_entries(fs: &dyn FileSystem) -> Outcome {
    for (dir, _, listed) in listings(fs)? {
        for max in [1, 2, 3].into_iter().filter(|&max| max <= listed.len()) {
            assert_eq!(list_from(fs, dir, Cookie::START, max), listed[..max]);
        }
    }
    Ok(())
}

/// The sink may call the file system, because a driver holds no lock.
pub fn the_sink_may_call_the_file_system(fs: &dyn FileSystem) -> Outcome {
    for (dir, parent, listed) in listings(fs)? {
        let mut count = 0;
        let mut sink = |entry: obento_base::Result<obento_driver::DirEntry<'_>>| {
            let entry = entry.expect("the directory is not damaged");
            assert_eq!(fs.lookup(dir, entry.name), Ok(entry.ino));
            assert_eq!(fs.parent(dir), Ok(parent));
            count += 1;
            ControlFlow::Continue(())
        };
        fs.read_dir(dir, Cookie::START, &mut sink).expect("a directory lists");
        assert_eq!(count, listed.len());
    }
    Ok(())
}

/// The errors are `NotDirectory` and `NotFound`. A name longer than `Limits::name_max` is `NotFound`.
pub fn a_missing_name_is_not_found(fs: &dyn FileSystem) -> Outcome {
    let long = vec![b'x'; Name::MAX];
    for (dir, _, listed) in directories(fs) {
        let missing = b"a name that no tree has";
        assert!(listed.iter().all(|entry| entry.name != missing));
        for bytes in [&missing[..], &long] {
            let name = Name::new(bytes).expect("a name");
            assert_eq!(fs.lookup(dir, name), Err(Error::NotFound), "directory {dir}");
        }
    }
    Ok(())
}

/// `lookup`, `parent` and `read_dir`: `NotDirectory`.
pub fn other_files_than_directories_return_not_directory(fs: &dyn FileSystem) -> Outcome {
    let name = Name::new(b"x").expect("a name");
    let others = inodes(fs).into_iter().filter(|(_, kind)| *kind != FileKind::Directory);
    for (ino, _) in some(others, "nothing but directories in the tree")? {
        assert_eq!(fs.lookup(ino, name), Err(Error::NotDirectory));
        assert_eq!(fs.parent(ino), Err(Error::NotDirectory));
        let mut sink = |_: obento_base::Result<obento_driver::DirEntry<'_>>| ControlFlow::Continue(());
        assert_eq!(fs.read_dir(ino, Cookie::START, &mut sink), Err(Error::NotDirectory));
    }
    Ok(())
}

/// `parent` returns the directory that contains `dir`, and the root for the root.
pub fn the_parent_of_a_directory_contains_it_and_the_parent_of_the_root_is_the_root(
    fs: &dyn FileSystem,
) -> Outcome {
    for (dir, parent, _) in directories(fs) {
        assert_eq!(fs.parent(dir), Ok(parent));
    }
    Ok(())
}

/// `Stale` if the volume contains no inode with the number.
pub fn an_inode_that_does_not_exist_is_stale(fs: &dyn FileSystem) -> Outcome {
    for ino in [Ino(0), Ino(u64::MAX), Ino(1 << 40)] {
        assert_eq!(fs.getattr(ino).map(|attr| attr.ino), Err(Error::Stale), "inode {ino}");
    }
    Ok(())
}

/// The attributes contain the number of the inode.
pub fn attributes_contain_the_requested_inode_number(fs: &dyn FileSystem) -> Outcome {
    for (ino, kind) in inodes(fs) {
        let attr = attr(fs, ino);
        assert_eq!((attr.ino, attr.kind), (ino, kind));
        assert!(attr.nlink > 0 && attr.nlink <= fs.limits().link_max.max(1), "{attr:?}");
        assert!(attr.size <= fs.limits().file_size_max || kind != FileKind::Regular, "{attr:?}");
        assert!(kind.is_device() || attr.rdev == Default::default(), "{attr:?}");
    }
    Ok(())
}

/// A run has at least one byte, and at most the requested length.
pub fn a_run_is_not_empty_and_no_longer_than_requested(fs: &dyn FileSystem) -> Outcome {
    let lock = LayoutLock::new();
    for (ino, size) in files(fs)? {
        for range in
            [0..1, 0..size.max(1), size / 2..size + 1, size.saturating_sub(1)..size + 5000, 1..u64::MAX]
        {
            let asked = range.end - range.start;
            let extent = fs.map(&lock.shared(), ino, range.clone()).expect("a sound file is mapped");
            assert!((1..=asked).contains(&extent.len), "inode {ino}, {range:?}: {extent:?}");
        }
    }
    Ok(())
}

/// Past the end of the file is a hole.
pub fn a_range_past_the_end_of_a_file_is_a_hole(fs: &dyn FileSystem) -> Outcome {
    let lock = LayoutLock::new();
    for (ino, size) in files(fs)? {
        for start in [size, size + 1, size + (1 << 20)] {
            let extent = fs.map(&lock.shared(), ino, start..start + 10).expect("a sound file is mapped");
            assert_eq!(extent.span, Span::Hole, "inode {ino}, {start} of {size}");
        }
    }
    Ok(())
}

/// A hole or unwritten run starts and ends at multiples of a block, or at the end of the requested range or of the
/// file.
pub fn a_run_of_zeros_ends_with_a_block_or_with_the_requested_range(fs: &dyn FileSystem) -> Outcome {
    let (lock, block) = (LayoutLock::new(), block(fs));
    assert!(block.is_power_of_two());
    for (ino, size) in files(fs)? {
        let (mut at, mut runs) = (0, 0);
        while at < size && runs < 100 {
            let extent = fs.map(&lock.shared(), ino, at..size).expect("a sound file is mapped");
            let end = at + extent.len;
            assert!(
                !extent.span.is_zeros() || end % block == 0 || end == size,
                "inode {ino}: {extent:?} at {at}"
            );
            (at, runs) = (end, runs + 1);
        }
    }
    Ok(())
}

/// An empty range is `Invalid`.
#[expect(clippy::reversed_empty_ranges, reason = "the case tests an empty range")]
pub fn an_empty_range_is_invalid(fs: &dyn FileSystem) -> Outcome {
    let lock = LayoutLock::new();
    for (ino, _) in files(fs)?.into_iter().take(100) {
        assert_eq!(fs.map(&lock.shared(), ino, 0..0), Err(Error::Invalid));
        assert_eq!(fs.map(&lock.shared(), ino, 7..3), Err(Error::Invalid));
    }
    Ok(())
}

/// `map`: `IsDirectory`, and `Invalid` for other inodes that are not regular files.
pub fn only_a_regular_file_is_mapped(fs: &dyn FileSystem) -> Outcome {
    let lock = LayoutLock::new();
    for (ino, kind) in inodes(fs) {
        let expected = match kind {
            FileKind::Regular => continue,
            FileKind::Directory => Error::IsDirectory,
            _ => Error::Invalid,
        };
        assert_eq!(fs.map(&lock.shared(), ino, 0..1), Err(expected), "{kind:?} {ino}");
    }
    Ok(())
}

/// `read` fills the buffer from byte `offset` on.
pub fn bytes_are_the_same_in_pieces_of_any_length(fs: &dyn FileSystem) -> Outcome {
    for (ino, size) in files(fs)?.into_iter().take(300) {
        let len = size.min(MAX_BYTES) as usize;
        let whole = read(fs, ino, 0, len, usize::MAX).expect("a sound file reads");
        for (offset, piece) in [(0, 1000), (1, 4095), (len / 2, 513), (len.saturating_sub(3), 1)] {
            let part = len.saturating_sub(offset).min(piece * 20);
            let bytes = read(fs, ino, offset as u64, part, piece).expect("a sound file reads");
            assert!(bytes == whole[offset.min(len)..][..part], "inode {ino}: {part} bytes at {offset}");
        }
    }
    Ok(())
}

/// The target of a symbolic link is not empty and has no final NUL.
pub fn the_target_of_a_link_is_as_long_as_its_size_and_has_no_nul(fs: &dyn FileSystem) -> Outcome {
    needs(fs, SYMLINKS)?;
    let links = inodes(fs).into_iter().filter(|(_, kind)| *kind == FileKind::Symlink);
    for (ino, _) in some(links, "no symbolic link in the tree")? {
        match fs.read_link(ino) {
            Err(Error::Unsupported(_)) => {}
            target => {
                let target = target.expect("a sound link has a target");
                assert!(!target.is_empty() && !target.contains(&0));
                assert!(target.len() as u64 <= u64::from(fs.limits().symlink_max));
                assert_eq!(attr(fs, ino).size, target.len() as u64);
            }
        }
    }
    Ok(())
}

/// `read_link`: `Invalid` if `ino` is not a symbolic link.
pub fn only_a_symbolic_link_has_a_target(fs: &dyn FileSystem) -> Outcome {
    for (ino, _) in inodes(fs).into_iter().filter(|(_, kind)| *kind != FileKind::Symlink) {
        assert_eq!(fs.read_link(ino), Err(Error::Invalid));
    }
    Ok(())
}

/// `list_xattrs` passes the name of every attribute to `sink`.
pub fn every_attribute_that_is_listed_has_a_value(fs: &dyn FileSystem) -> Outcome {
    let xattrs = xattrs(fs)?;
    let mut found = 0;
    for (ino, _) in inodes(fs) {
        let mut names = Vec::new();
        xattrs.list_xattrs(ino, &mut |name| names.push(name.to_vec())).expect("attributes list");
        found += names.len();
        for name in names {
            let value = xattrs.get_xattr(ino, &name);
            assert!(value.is_ok(), "inode {ino}, {}: {value:?}", name.escape_ascii());
            assert!(name.contains(&b'.'), "a name has the prefix of its name space, as in Linux");
        }
    }
    if found == 0 { Err(Lacks("no attribute in the tree")) } else { Ok(()) }
}

/// `get_xattr`: `NoData`, or `NotSupported` for a namespace that the format lacks.
pub fn a_missing_attribute_returns_no_data(fs: &dyn FileSystem) -> Outcome {
    let xattrs = xattrs(fs)?;
    for (ino, _) in inodes(fs).into_iter().take(300) {
        assert_eq!(xattrs.get_xattr(ino, b"user.no such attribute"), Err(Error::NoData));
        for name in [&b"nowhere.x"[..], b"x", b""] {
            let value = xattrs.get_xattr(ino, name);
            assert!(
                matches!(value, Err(Error::NoData | Error::NotSupported)),
                "{}: {value:?}",
                name.escape_ascii()
            );
        }
    }
    Ok(())
}

/// `forget` is allowed for an inode that was reached by its number and never looked up.
pub fn forget_accepts_an_inode_that_was_never_looked_up(fs: &dyn FileSystem) -> Outcome {
    let before = inodes(fs);
    before.iter().for_each(|(ino, _)| fs.forget(*ino));
    fs.forget(Ino(u64::MAX));
    assert_eq!(inodes(fs), before);
    Ok(())
}

/// The free space is not greater than the size of the volume.
pub fn free_blocks_and_inodes_never_exceed_the_totals(fs: &dyn FileSystem) -> Outcome {
    let stat = fs.statfs().expect("statfs succeeds");
    assert!(stat.block_size.is_power_of_two());
    assert!(stat.available <= stat.free && stat.free <= stat.blocks, "{stat:?}");
    assert!(stat.inodes == 0 || stat.free_inodes <= stat.inodes, "{stat:?}");
    Ok(())
}
