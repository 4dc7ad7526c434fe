//! Known files by number.

use alloc::collections::VecDeque;
use core::mem;

use hashbrown::HashMap;
use obento_base::{Error, FileKind, Ino, Result};

use crate::ListedCount;

/// Files that are known at most. If only an eighth of the table is free, all idle files are forgotten.
pub const COUNT_MAX: usize = 1 << 20;
/// Idle files that are known at most, except during one part of a listing. The first files of a longer listing may be
/// forgotten before its end.
pub const IDLE_MAX: usize = 3 << 15;
/// Files that one part of a listing adds at most, before idle files are forgotten.
const PART_MAX: usize = 1 << 13;
/// The queue is compacted only if it is longer than twice this number.
const QUEUE_MIN: usize = 1 << 10;
/// The most memory for idle files, in bytes.
pub const IDLE_BYTES: usize = 64 << 20;

/// A file that the server returned. `T` contains the properties that only this driver stores.
#[derive(Clone, Copy, Debug)]
pub struct KnownFile<T> {
    /// The directory in which the file was found.
    pub parent: u64,
    /// The kind of the file.
    pub kind: FileKind,
    /// The entries of the current listing of a directory. Two listings of one directory share this count.
    pub listed: ListedCount,
    /// The properties that only this driver stores.
    pub own: T,
    is_removed: bool,
    is_used: bool,
    /// The value of [`KnownFiles::clock`] when the file became idle.
    stamp: u64,
}

impl<T> KnownFile<T> {
    /// Returns whether the last name of the file was removed while the caller used the file.
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }
}

/// How the caller of the driver got the number of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// By the name. The file is in use until the caller releases the file.
    Lookup,
    /// From a listing, or not at all: the driver looked up the name for itself. The caller may use the file later,
    /// after [`KnownFiles::acquire`].
    Listing,
}

/// An idle file, while its stamp is that of the known file.
#[derive(Clone, Copy, Debug)]
pub struct IdleFile {
    /// Its number.
    pub number: u64,
    stamp: u64,
}

/// The known files of a server.
#[derive(Debug)]
pub struct KnownFiles<T> {
    known: HashMap<u64, KnownFile<T>>,
    /// Idle files, the oldest one first. Entries with an old stamp are void.
    queue: VecDeque<IdleFile>,
    idle_count: usize,
    /// Increases whenever a file becomes idle, and whenever an idle file is listed.
    clock: u64,
    count_max: usize,
    idle_max: usize,
}

/// Returns the memory in bytes of a table with the maximum number of idle files. Each file has `heap` bytes outside of
/// the table.
pub const fn idle_bytes<T>(heap: usize) -> usize {
    let count = IDLE_MAX + PART_MAX;
    // `hashbrown` uses at most seven eighths of the buckets. It doubles the table instead of reusing the buckets of
    // removed files if more than half of these are in use. A bucket has one more byte than its contents.
    let buckets = (count * 16 / 7).next_power_of_two();
    let queue = (2 * count).next_power_of_two() * size_of::<IdleFile>();
    buckets * (size_of::<(u64, KnownFile<T>)>() + 1) + queue + count * heap
}

impl<T> KnownFiles<T> {
    /// Creates a table with the root directory, which is its own parent.
    pub fn new(root: u64, own: T) -> Self {
        Self::with_limits(root, own, COUNT_MAX, IDLE_MAX)
    }

    /// As [`new`](Self::new), with other limits than the default: of all files, and of idle files. The root always has
    /// room.
    pub fn with_limits(root: u64, own: T, count_max: usize, idle_max: usize) -> Self {
        let (known, queue) = (HashMap::new(), VecDeque::new());
        let mut files = Self { known, queue, idle_count: 0, clock: 0, count_max: count_max.max(1), idle_max };
        files.insert(Ino(root), root, FileKind::Directory, own, FoundBy::Lookup);
        files
    }

    /// Returns a file.
    ///
    /// # Errors
    ///
    /// - `Stale`: the server never returned the file, or the file was forgotten.
    pub fn get(&self, ino: Ino) -> Result<&KnownFile<T>> {
        self.known.get(&ino.0).ok_or(Error::Stale)
    }

    /// Returns a file to be changed, if it is known.
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut KnownFile<T>> {
        self.known.get_mut(&ino.0)
    }

    /// Adds a file that is not known. Returns whether the table had room.
    pub fn insert(&mut self, ino: Ino, parent: u64, kind: FileKind, own: T, by: FoundBy) -> bool {
        if self.known.len() >= self.count_max {
            return false;
        }
        let listed = ListedCount::default();
        let file = KnownFile { parent, kind, listed, own, is_removed: false, is_used: true, stamp: 0 };
        self.known.insert(ino.0, file);
        if by == FoundBy::Listing {
            self.queue(ino);
        }
        true
    }

    /// Records that the server returned a known file again.
    pub fn found(&mut self, ino: Ino, by: FoundBy) {
        if by == FoundBy::Lookup {
            self.acquire(ino);
        } else if self.known.get(&ino.0).is_some_and(|file| !file.is_used) {
            self.queue(ino);
        }
    }

    /// Records that the caller uses a file. Returns whether the file is known.
    pub fn acquire(&mut self, ino: Ino) -> bool {
        let Some(file) = self.known.get_mut(&ino.0) else { return false };
        self.idle_count -= usize::from(!mem::replace(&mut file.is_used, true));
        true
    }

    /// Records that the caller no longer uses a file. If the file has no name, forgets and returns the file.
    pub fn released(&mut self, ino: Ino) -> Option<KnownFile<T>> {
        if self.known.get(&ino.0)?.is_removed {
            return self.forget(ino);
        }
        self.queue(ino);
        None
    }

    /// Records that the last name of a file was removed. If the caller does not use the file, forgets and returns the
    /// file.
    pub fn removed(&mut self, ino: Ino, is_used: bool) -> Option<KnownFile<T>> {
        if !is_used {
            return self.forget(ino);
        }
        self.acquire(ino);
        self.known.get_mut(&ino.0)?.is_removed = true;
        None
    }

    /// Returns the oldest idle file, if there are too many idle files or the table is nearly full. The caller saves the
    /// data of the file, and then calls [`evict`](Self::evict).
    pub fn idle(&mut self) -> Option<IdleFile> {
        while self.idle_count > self.idle_max || self.known.len() > self.count_max / 8 * 7 {
            let idle = self.queue.pop_front()?;
            if is_idle(&self.known, &idle) {
                return Some(idle);
            }
        }
        None
    }

    /// Forgets and returns an idle file, unless the server returned the file again or the caller uses the file.
    pub fn evict(&mut self, idle: &IdleFile) -> Option<KnownFile<T>> {
        if is_idle(&self.known, idle) { self.forget(Ino(idle.number)) } else { None }
    }

    /// Makes a file idle, or moves an idle file to the end of the queue. A directory stays in use.
    fn queue(&mut self, ino: Ino) {
        let file = self.known.get_mut(&ino.0).filter(|file| file.kind != FileKind::Directory);
        let Some(file) = file else { return };
        self.clock += 1;
        file.stamp = self.clock;
        self.idle_count += usize::from(mem::replace(&mut file.is_used, false));
        self.queue.push_back(IdleFile { number: ino.0, stamp: self.clock });
        // At most half of the queue is void, so that the cost per call is constant on average.
        if self.queue.len() > 2 * self.idle_count.max(QUEUE_MIN) {
            self.queue.retain(|idle| is_idle(&self.known, idle));
        }
    }

    fn forget(&mut self, ino: Ino) -> Option<KnownFile<T>> {
        let file = self.known.remove(&ino.0)?;
        self.idle_count -= usize::from(!file.is_used);
        Some(file)
    }
}

fn is_idle<T>(known: &HashMap<u64, KnownFile<T>>, idle: &IdleFile) -> bool {
    known.get(&idle.number).is_some_and(|file| !file.is_used && file.stamp == idle.stamp)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A table of at most 800 files, of which 100 are idle.
    fn small_table() -> KnownFiles<()> {
        KnownFiles::with_limits(2, (), 800, 100)
    }

    fn find(files: &mut KnownFiles<()>, number: u64, kind: FileKind, by: FoundBy) -> Ino {
        let ino = Ino(number);
        match files.get(ino).is_ok() {
            true => files.found(ino, by),
            false => assert!(files.insert(ino, 2, kind, (), by)),
        }
        ino
    }

    fn look_up(files: &mut KnownFiles<()>, number: u64) -> Ino {
        find(files, number, FileKind::Regular, FoundBy::Lookup)
    }

    fn list(files: &mut KnownFiles<()>, number: u64) -> Ino {
        find(files, number, FileKind::Regular, FoundBy::Listing)
    }

    fn evict_all(files: &mut KnownFiles<()>) {
        while let Some(idle) = files.idle() {
            files.evict(&idle);
        }
    }

    /// Releases a file, and forgets the oldest ones.
    fn release(files: &mut KnownFiles<()>, ino: Ino) {
        files.released(ino);
        evict_all(files);
    }

    fn use_others(files: &mut KnownFiles<()>) {
        for number in 1000..5000 {
            let other = look_up(files, number);
            release(files, other);
        }
    }

    #[test]
    fn any_number_of_idle_files_takes_bounded_memory() {
        let mut files = small_table();
        for number in 10..30_000 {
            let ino = look_up(&mut files, number);
            release(&mut files, ino);
        }
        assert_eq!((files.known.len(), files.idle_count), (101, 100));
        for _ in 0..30_000 {
            let ino = look_up(&mut files, 10);
            release(&mut files, ino);
        }
        assert!(files.known.len() <= 101 && files.queue.len() <= 2 * QUEUE_MIN);
        for number in 10..30_000 {
            list(&mut files, number);
            evict_all(&mut files);
        }
        assert_eq!((files.known.len(), files.idle_count), (101, 100));
        assert!(files.queue.len() <= 2 * QUEUE_MIN);
    }

    #[test]
    fn a_file_that_is_found_again_stays_while_it_is_in_use() {
        let mut files = small_table();
        let ino = look_up(&mut files, 10);
        release(&mut files, ino);
        look_up(&mut files, 10);
        // A listing does not end the use.
        list(&mut files, 10);
        use_others(&mut files);
        assert!(files.get(ino).is_ok());
        release(&mut files, ino);
        use_others(&mut files);
        assert_eq!(files.get(ino).err(), Some(Error::Stale));
    }

    #[test]
    fn a_listed_file_stays_only_if_the_caller_acquires_it() {
        let mut files = small_table();
        let [acquired, left] = [10, 11].map(|number| list(&mut files, number));
        assert!(files.acquire(acquired));
        use_others(&mut files);
        assert!(files.get(acquired).is_ok());
        assert!(!files.acquire(left));
    }

    #[test]
    fn a_file_that_is_used_or_listed_again_before_its_eviction_stays() {
        let mut files = small_table();
        let again: [fn(&mut KnownFiles<()>, u64) -> Ino; 2] = [look_up, list];
        for (start, again) in [10, 200].into_iter().zip(again) {
            let inos: Vec<Ino> = (start..start + 110).map(|number| look_up(&mut files, number)).collect();
            inos.iter().for_each(|&ino| assert!(files.released(ino).is_none()));
            let idle = files.idle().unwrap();
            again(&mut files, idle.number);
            assert!(files.evict(&idle).is_none() && files.get(Ino(idle.number)).is_ok());
            evict_all(&mut files);
        }
    }

    #[test]
    fn a_directory_with_the_number_of_a_removed_file_stays() {
        let mut files = small_table();
        let ino = look_up(&mut files, 10);
        release(&mut files, ino);
        assert!(files.removed(ino, false).is_some());
        find(&mut files, 10, FileKind::Directory, FoundBy::Listing);
        release(&mut files, ino);
        use_others(&mut files);
        assert!(files.get(ino).is_ok());
    }

    #[test]
    fn a_removed_file_that_is_in_use_stays_until_its_release() {
        let mut files = small_table();
        let ino = list(&mut files, 10);
        assert!(files.removed(ino, true).is_none());
        use_others(&mut files);
        assert!(files.get(ino).unwrap().is_removed());
        assert!(files.released(ino).is_some() && files.get(ino).is_err());
    }

    #[test]
    fn a_second_walk_in_the_opposite_order_finds_the_files_that_it_listed() {
        let mut files = small_table();
        let forth: Vec<u64> = (10..5000).collect();
        let back: Vec<u64> = forth.iter().rev().copied().collect();
        for numbers in [&forth, &back, &forth] {
            for portion in numbers.chunks(90) {
                let listed: Vec<Ino> = portion.iter().map(|&number| list(&mut files, number)).collect();
                for ino in listed {
                    assert!(files.acquire(ino));
                    release(&mut files, ino);
                }
            }
        }
    }

    #[test]
    fn a_table_without_room_has_the_root() {
        let files = KnownFiles::with_limits(2, (), 0, 0);
        assert!(files.get(Ino(2)).is_ok());
    }

    #[test]
    fn more_directories_than_fit_are_refused_and_the_known_ones_stay() {
        let mut files = small_table();
        let insert = |files: &mut KnownFiles<()>, number| {
            files.insert(Ino(number), 2, FileKind::Directory, (), FoundBy::Listing)
        };
        assert!((10..809).all(|number| insert(&mut files, number)));
        assert!(!insert(&mut files, 809));
        evict_all(&mut files);
        assert!((10..809).all(|number| files.get(Ino(number)).is_ok()));
    }
}
