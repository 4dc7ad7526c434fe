//! Full volumes.

use obento_base::{Error, FileKind};
use obento_driver::FileSystem;

use super::{attr, block, file, has, name, names_in, new_node, read, truncate, writable, write};
use crate::outcome::{Lacks, Outcome};

/// `begin_write`: `NoSpace` if no block is free.
pub fn a_full_volume_returns_no_space_and_reuses_freed_space(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    let bytes = vec![4; block as usize];
    let blocks = fs.statfs().expect("use").blocks;
    let full = (0..=blocks).find(|n| write(fs, ino, n * block, &bytes) == Err(Error::NoSpace));
    let full = full.expect("a volume contains no more than its blocks");
    assert_eq!(attr(fs, ino).size, full * block, "a refused write leaves the size");
    assert_eq!(read(fs, ino, (full - 1) * block, 5, 5), Ok(vec![4; 5]));
    truncate(fs, ino, 0).expect("less");
    writable(fs).sync().expect("a sound device");
    write(fs, ino, 0, &bytes).expect("freed space can be written");
    Ok(())
}

/// `create`: `NoSpace`. Each call takes effect completely or not at all.
pub fn inodes_run_out_before_a_name_is_created(fs: &dyn FileSystem) -> Outcome {
    let inodes = fs.statfs().expect("use").free_inodes;
    // A format that creates inodes when needed does not count them.
    if inodes == 0 {
        return Err(Lacks("no limit of inodes"));
    }
    if inodes > 10_000 {
        return Err(Lacks("no limit of inodes that a case reaches"));
    }
    let kind = if has(fs, FileKind::Fifo) { FileKind::Fifo } else { FileKind::Regular };
    let create = |n: u64| {
        let node = new_node(fs, kind);
        writable(fs).create(fs.root(), name(&n.to_string()), &node).map(|attr| attr.ino)
    };
    let made: Vec<_> = (0..inodes).map(|n| create(n).expect("there are free ones")).collect();
    let last = *made.last().expect("at least one");
    let count = names_in(fs, fs.root()).len();
    assert_eq!(create(inodes), Err(Error::NoSpace));
    assert_eq!((names_in(fs, fs.root()).len(), fs.statfs().expect("use").free_inodes), (count, 0));
    writable(fs).unlink(fs.root(), name(&(inodes - 1).to_string())).expect("a name");
    fs.forget(last);
    create(inodes).expect("the one that was freed");
    Ok(())
}

/// `sync` returns after every earlier change is on stable storage.
pub fn sync_succeeds_on_a_sound_device(fs: &dyn FileSystem) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    write(fs, ino, 0, &vec![1; block(fs) as usize]).expect("space");
    assert_eq!((writable(fs).sync_file(ino), writable(fs).sync()), (Ok(()), Ok(())));
    Ok(())
}
