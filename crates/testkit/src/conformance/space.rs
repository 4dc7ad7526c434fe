//! What happens when the volume is full.

use obento_base::{Error, FileKind};
use obento_driver::FileSystem;

use super::{attr, block, file, has, name, names_in, new_node, read, truncate, writable, write};
use crate::outcome::{Lacks, Outcome};

/// `map_for_write`: "NoSpace if not even the first block can be had."
pub fn a_full_volume_answers_no_space_and_takes_again_what_was_freed(fs: &dyn FileSystem) -> Outcome {
    let (ino, block) = (file(fs, fs.root(), "f"), block(fs));
    let bytes = vec![4; block as usize];
    let blocks = fs.statfs().expect("use").blocks;
    let full = (0..=blocks).find(|n| write(fs, ino, n * block, &bytes) == Err(Error::NoSpace));
    let full = full.expect("a volume holds no more than its blocks");
    assert_eq!(attr(fs, ino).size, full * block, "a refused write leaves the size");
    assert_eq!(read(fs, ino, (full - 1) * block, 5, 5), Ok(vec![4; 5]));
    truncate(fs, ino, 0).expect("less");
    writable(fs).sync().expect("a sound device");
    write(fs, ino, 0, &bytes).expect("what was freed");
    Ok(())
}

/// `create`: "NoSpace"; "Each call is one change: it is there wholly or not at all".
pub fn inodes_run_out_before_anything_was_named(fs: &dyn FileSystem) -> Outcome {
    let inodes = fs.statfs().expect("use").free_inodes;
    // None are counted where they are made as needed.
    if inodes == 0 {
        return Err(Lacks("no number of inodes"));
    }
    if inodes > 10_000 {
        return Err(Lacks("no number of inodes that a case reaches"));
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

/// "Returns once every change so far is on stable storage."
pub fn sync_succeeds_on_a_sound_device(fs: &dyn FileSystem) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    write(fs, ino, 0, &vec![1; block(fs) as usize]).expect("space");
    assert_eq!((writable(fs).sync_file(ino), writable(fs).sync()), (Ok(()), Ok(())));
    Ok(())
}
