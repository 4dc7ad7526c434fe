//! Stable storage, the end of changes, and discards.

use obento_base::{Attr, Error, FileKind};
use obento_driver::{FileSystem, Trim, XattrMode};

use super::{attr, block, file, has, lookup, make, name, names_in, new_node, read, writable, write};
use crate::outcome::{Lacks, Outcome};

/// `sync_files` does `sync_file` for all of `inos`.
pub fn files_of_any_type_are_synced_in_one_call(fs: &dyn FileSystem) -> Outcome {
    let root = fs.root();
    let mut inos = vec![root];
    let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Fifo];
    for kind in kinds.into_iter().filter(|kind| has(fs, *kind)) {
        inos.push(make(fs, root, &format!("{kind:?}"), kind));
    }
    write(fs, inos[1], 0, &vec![1; block(fs) as usize]).expect("space");
    // An inode without a name is in use, and can be synced.
    let gone = file(fs, root, "gone");
    write(fs, gone, 0, &vec![2; block(fs) as usize]).expect("space");
    writable(fs).unlink(root, name("gone")).expect("a name");
    inos.push(gone);
    assert_eq!(writable(fs).sync_files(&inos), Ok(()));
    assert_eq!(writable(fs).sync_files(&inos), Ok(()), "nothing is left to do");
    assert_eq!(writable(fs).sync_files(&[]), Ok(()));
    assert_eq!(read(fs, inos[1], 0, 3, 3), Ok(vec![1; 3]));
    fs.forget(gone);
    Ok(())
}

/// After `close` the volume can be read, and `writable` is `None`.
pub fn a_closed_volume_can_be_read_and_not_changed(fs: &dyn FileSystem) -> Outcome {
    let (root, bytes) = (fs.root(), vec![5; 3 * block(fs) as usize]);
    let ino = file(fs, root, "f");
    write(fs, ino, 0, &bytes).expect("space");
    // Space that was allocated ahead may be freed.
    let known = || Attr { blocks: 0, ..attr(fs, ino) };
    let (names, before, changes) = (names_in(fs, root), known(), writable(fs));
    assert_eq!(changes.close(), Ok(()));
    assert!(fs.writable().is_none() && fs.nameless().is_none() && fs.trim().is_none());
    assert_eq!((lookup(fs, root, "f"), known(), names_in(fs, root)), (Ok(ino), before, names.clone()));
    assert!(read(fs, ino, 0, bytes.len(), 1000) == Ok(bytes.clone()));
    // A caller that still has the capability cannot use it.
    let made = changes.create(root, name("g"), &new_node(fs, FileKind::Regular)).map(drop);
    assert_eq!(made, Err(Error::ReadOnly));
    assert_eq!(changes.unlink(root, name("f")), Err(Error::ReadOnly));
    if let Some(xattrs) = fs.xattrs() {
        assert_eq!(xattrs.set_xattr(ino, b"user.a", b"1", XattrMode::Set), Err(Error::ReadOnly));
    }
    assert_eq!((names_in(fs, root), known()), (names, before));
    Ok(())
}

const NO_TRIM: Lacks = Lacks("no discarding of free space");

/// The largest unit in which a tested volume allocates space. `statfs` can have smaller blocks.
const UNIT_MAX: u64 = 32 << 10;

/// Both halves of a volume contain all of its free space, except for a unit that the border between them cuts.
fn halves(fs: &dyn FileSystem, trim: &dyn Trim) {
    let half = fs.statfs().expect("use").blocks * block(fs) / 2;
    let first = match trim.trim_within(0..half, 1) {
        Err(Error::NotSupported) => return,
        first => first.expect("a sound device"),
    };
    let second = trim.trim_within(half..u64::MAX, 1).expect("a sound device");
    let whole = trim.trim(1).expect("a sound device");
    assert!(first > 0 || second > 0, "{whole} bytes are free");
    assert!((first + second..=first + second + UNIT_MAX).contains(&whole), "{first} + {second}, not {whole}");
    assert_eq!(trim.trim_within(half..half, 1), Ok(0), "nothing is within an empty range");
}

/// `trim` discards the free space on the device in runs of at least `min_len` bytes, and returns the number of bytes.
pub fn free_space_is_discarded_and_nothing_else(fs: &dyn FileSystem) -> Outcome {
    let trim = fs.trim().ok_or(NO_TRIM)?;
    let (root, block) = (fs.root(), block(fs));
    let bytes: Vec<u8> = (0..64 * block).map(|n| (n / 11) as u8).collect();
    let (kept, gone) = (file(fs, root, "kept"), file(fs, root, "gone"));
    for ino in [kept, gone] {
        write(fs, ino, 0, &bytes).expect("space");
    }
    writable(fs).unlink(root, name("gone")).expect("a name");
    fs.forget(gone);
    let trimmed = match trim.trim(1) {
        Err(Error::NotSupported) => return Err(NO_TRIM),
        trimmed => trimmed.expect("a sound device"),
    };
    let free = fs.statfs().expect("use").free * block;
    assert!((64 * block..=free).contains(&trimmed), "{trimmed} of {free} bytes");
    assert_eq!(trim.trim(u64::MAX), Ok(0), "no run is as long");
    halves(fs, trim);
    assert!(read(fs, kept, 0, bytes.len(), 5000).as_ref() == Ok(&bytes));
    write(fs, file(fs, root, "new"), 0, &bytes).expect("free space can be allocated");
    assert!(read(fs, kept, 0, bytes.len(), 5000) == Ok(bytes));
    Ok(())
}
