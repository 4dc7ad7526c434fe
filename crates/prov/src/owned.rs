//! The inodes of the log, which users may not reach.
//!
//! Each operation on a file first asks whether the file belongs to the log. A filter answers this for nearly all files
//! without a lock.
//!
//! Invariant: each inode of the log has its bit in the filter, at every moment. An inode without its bit is not of the log.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashSet;
use obento_base::Ino;
use obento_base::wire::to_usize;
use obento_env::sync::Mutex;

/// Number of words of the filter. The log has at most 16 segments, their indexes and some other files by default, so a
/// file of a user rarely has the bit of a file of the log.
const WORDS: usize = 16;

/// The inodes of the log. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedInodes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    filter: [AtomicU64; WORDS],
    all: Mutex<HashSet<Ino>>,
}

impl OwnedInodes {
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        let (word, bit) = place(ino);
        let may_contain = self.0.filter.get(word).is_none_or(|word| word.load(Ordering::Acquire) & bit != 0);
        may_contain && self.0.all.lock().contains(&ino)
    }

    pub(crate) fn insert(&self, ino: Ino) {
        let mut all = self.0.all.lock();
        all.insert(ino);
        self.write_filter(&all);
    }

    pub(crate) fn remove(&self, ino: Ino) {
        let mut all = self.0.all.lock();
        all.remove(&ino);
        self.write_filter(&all);
    }

    /// Stores the filter of `all`. A bit that is set before and after is set at every moment between.
    fn write_filter(&self, all: &HashSet<Ino>) {
        let mut words = [0; WORDS];
        for &ino in all {
            let (at, bit) = place(ino);
            words.iter_mut().skip(at).take(1).for_each(|word| *word |= bit);
        }
        self.0.filter.iter().zip(words).for_each(|(word, new)| word.store(new, Ordering::Release));
    }
}

/// Returns the word and the bit of an inode.
fn place(ino: Ino) -> (usize, u64) {
    let bits = u64::from(u64::BITS);
    let word = to_usize(ino.0.checked_div(bits).unwrap_or(0)).checked_rem(WORDS).unwrap_or(0);
    let bit = u32::try_from(ino.0.checked_rem(bits).unwrap_or(0)).unwrap_or(0);
    (word, 1_u64.rotate_left(bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_rejects_no_inode_of_the_log() {
        let owned = OwnedInodes::default();
        let own = |number: u64| number.is_multiple_of(37);
        (0..4000).filter(|&number| own(number)).for_each(|number| owned.insert(Ino(number)));
        assert!((0..4000).all(|number| owned.contains(Ino(number)) == own(number)));
        (0..2000).for_each(|number| owned.remove(Ino(number)));
        assert!((0..4000).all(|number| owned.contains(Ino(number)) == (number >= 2000 && own(number))));
    }

    #[test]
    fn most_files_of_users_need_no_lock() {
        let owned = OwnedInodes::default();
        (12..46).for_each(|number| owned.insert(Ino(number)));
        let locked = owned.0.all.lock();
        // This would wait for the lock otherwise.
        assert!((46..1024).all(|number| !owned.contains(Ino(number))));
        drop(locked);
    }
}
