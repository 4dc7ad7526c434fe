//! Many threads at the same time. Directories move only between three fixed directories, so that no cycle can occur;
//! preventing cycles is the task of `vfs`.

use std::collections::HashMap;

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_driver::{FileSystem, RenameFlags};

use super::{attr, dir, list, name, needs, new_node, read, writable, write};
use crate::outcome::{DIRECTORIES, Outcome};

const THREADS: usize = 4;
const STEPS: usize = 1200;

/// Every method may be called from any thread at any time. Names and counts are consistent afterwards.
pub fn every_method_may_be_called_from_any_thread_at_any_time(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let dirs = ["a", "b", "c"].map(|text| dir(fs, fs.root(), text));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (0..STEPS).for_each(|step| act(fs, dirs, thread, step)));
        }
    });
    let mut names: HashMap<Ino, u32> = HashMap::new();
    for dir in dirs {
        let listed = list(fs, dir);
        let subdirs = listed.iter().filter(|entry| entry.kind == Some(FileKind::Directory)).count();
        assert_eq!(attr(fs, dir).nlink, super::links(fs, subdirs as u32));
        for entry in listed {
            *names.entry(entry.ino).or_default() += 1;
            if attr(fs, entry.ino).is_dir() {
                assert_eq!(fs.parent(entry.ino), Ok(dir));
            }
        }
    }
    for (ino, count) in names {
        let attr = attr(fs, ino);
        assert_eq!(attr.nlink, if attr.is_dir() { super::links(fs, 0) } else { count }, "{attr:?}");
    }
    Ok(())
}

fn act(fs: &dyn FileSystem, dirs: [Ino; 3], thread: usize, step: usize) {
    let pick = |salt: usize| (step * 31 + thread * 17 + step / 7 * salt) % 997;
    let (from, to) = (dirs[pick(1) % 3], dirs[pick(2) % 3]);
    let texts = ["p", "q", "r", "s"];
    let (old, new) = (name(texts[pick(3) % 4]), name(texts[pick(4) % 4]));
    let writable = writable(fs);
    let done: Result<()> = match pick(5) % 8 {
        0 => writable.create(from, old, &new_node(fs, FileKind::Regular)).map(drop),
        1 => writable.create(from, old, &new_node(fs, FileKind::Directory)).map(drop),
        2 => fs.lookup(from, old).and_then(|ino| writable.link(ino, to, new)).map(drop),
        3 => remove(fs, from, old, |dir, name| writable.unlink(dir, name)),
        4 => remove(fs, from, old, |dir, name| writable.rmdir(dir, name)),
        5 => writable.rename(from, old, to, new, RenameFlags::EXCHANGE),
        6 => writable.rename(from, old, to, new, RenameFlags::empty()),
        _ => fs.lookup(from, old).and_then(|ino| {
            write(fs, ino, 0, &[7; 100])?;
            read(fs, ino, 0, 100, 30).map(drop)
        }),
    };
    // Another thread may have been faster; but errors of the volume itself must not occur.
    assert!(!matches!(done, Err(Error::Corrupt(_) | Error::Device(_) | Error::Unsupported(_))), "{done:?}");
}

/// Looks up, removes and forgets an inode, as a caller of `remove` must.
fn remove(
    fs: &dyn FileSystem,
    dir: Ino,
    name: &Name,
    remove: impl FnOnce(Ino, &Name) -> Result<()>,
) -> Result<()> {
    let ino = fs.lookup(dir, name)?;
    remove(dir, name)?;
    fs.forget(ino);
    Ok(())
}
