//! Sets of files as Filebench makes them.
//!
//! A tree of directories with random width and depth (gamma distributions of shape 1.5 around the width that is wished for
//! and ln(entries) / ln(width)) whose leaves hold the files, all named `%08d`. Files are taken in rotation by their number.
//! Source: Filebench 1.5, fileset.c (`fileset_populate_subdir`, `fileset_pick`).

use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Scene;
use crate::Result;
use crate::error::During as _;
use crate::files::{How, create_dirs, write_span};
use crate::random::{Rng, gamma};

/// The shape of the distributions of sizes, widths and depths (`FILESET_DEFAULTGAMMA`).
const GAMMA: f64 = 1.5;
/// Filebench preallocates in calls of this many bytes.
const PREALLOCATION: usize = 1 << 20;

/// How large the files of a set are.
#[derive(Clone, Copy, Debug)]
pub enum Sizes {
    /// All alike.
    Fixed(u64),
    /// By the gamma distribution, with this mean.
    Gamma(u64),
}

/// What a set is like.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The directory that holds it.
    pub name: &'static str,
    /// How many files it has room for.
    pub entries: u64,
    /// The mean number of names in a directory.
    pub width: u64,
    /// How large the files are.
    pub sizes: Sizes,
    /// How many of a hundred files are there in the beginning.
    pub preallocated: u64,
}

/// A file of a set.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path.
    pub path: String,
    /// The size that it has when it is written whole.
    pub size: u64,
}

/// A set of files, of which some exist.
pub struct FileSet {
    entries: Vec<Entry>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    existing: Rotation,
    missing: Rotation,
    /// How often each is open; what is open is not deleted.
    open: Vec<u32>,
}

#[derive(Default)]
struct Rotation {
    numbers: BTreeSet<usize>,
    next: usize,
}

impl Rotation {
    /// The next in turn that `fits`.
    fn pick(&mut self, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let after = self.numbers.range(self.next..);
        let before = self.numbers.range((Bound::Unbounded, Bound::Excluded(self.next)));
        let found = after.chain(before).copied().find(|number| fits(*number))?;
        self.next = found + 1;
        Some(found)
    }
}

impl FileSet {
    /// Plans a set; the same settings give the same set.
    pub fn plan(plan: &Plan, scene: &Scene) -> Self {
        let mut rng = scene.rng(usize::MAX);
        let mut tree = Tree { plan, rng: &mut rng, entries: Vec::new() };
        tree.grow();
        let mut entries = tree.entries;
        entries.truncate(usize::try_from(plan.entries).unwrap_or(usize::MAX));
        let mut state = State { open: vec![0; entries.len()], ..State::default() };
        for number in 0..entries.len() {
            let there = rng.u64(0..100) < plan.preallocated;
            let side = if there { &mut state.existing } else { &mut state.missing };
            side.numbers.insert(number);
        }
        Self { entries, state: Mutex::new(state) }
    }

    /// Makes the directories, and the files that are there in the beginning.
    pub fn make(&self, scene: &Scene) -> Result<()> {
        let files = &*scene.files;
        let mut last = "";
        for entry in &self.entries {
            let directory = entry.path.rsplit_once('/').map_or("", |(directory, _)| directory);
            if directory != last {
                create_dirs(files, directory).during("create", directory)?;
                last = directory;
            }
        }
        let data = vec![0x55; PREALLOCATION];
        for number in self.state().existing.numbers.clone() {
            let entry = &self.entries[number];
            let write = |entry: &Entry| -> io::Result<()> {
                let file = files.open(&entry.path, How::Create)?;
                write_span(&*file, 0, entry.size, &data)
            };
            write(entry).during("create", &entry.path)?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file by its number.
    pub fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// The next that does not exist, which is the caller's to make.
    pub fn pick_missing(&self) -> Option<usize> {
        let mut state = self.state();
        let number = state.missing.pick(|_| true)?;
        state.missing.numbers.remove(&number);
        state.open[number] += 1;
        Some(number)
    }

    /// The next that exists; it counts as open until [`done`](Self::done).
    pub fn pick_existing(&self) -> Option<usize> {
        let mut state = self.state();
        let number = state.existing.pick(|_| true)?;
        state.open[number] += 1;
        Some(number)
    }

    /// The next that exists and is not open, which is the caller's to delete.
    pub fn pick_to_delete(&self) -> Option<usize> {
        let mut guard = self.state();
        let State { existing, open, .. } = &mut *guard;
        let number = existing.pick(|number| open[number] == 0)?;
        existing.numbers.remove(&number);
        Some(number)
    }

    /// A file that was picked has been made.
    pub fn made(&self, number: usize) {
        self.state().existing.numbers.insert(number);
    }

    /// A file that was picked to be deleted is gone.
    pub fn deleted(&self, number: usize) {
        self.state().missing.numbers.insert(number);
    }

    /// A file that was picked is closed.
    pub fn done(&self, number: usize) {
        let mut state = self.state();
        state.open[number] = state.open[number].saturating_sub(1);
    }

    /// How many exist.
    pub fn existing(&self) -> usize {
        self.state().existing.numbers.len()
    }
}

struct Tree<'p> {
    plan: &'p Plan,
    rng: &'p mut Rng,
    entries: Vec<Entry>,
}

impl Tree<'_> {
    fn is_full(&self) -> bool {
        self.entries.len() as u64 >= self.plan.entries
    }

    /// The root, which is directory 1 of the set, holds directories, as many as it takes.
    fn grow(&mut self) {
        let mut serial = 1;
        while !self.is_full() {
            self.directory(format!("{}/00000001/{serial:08}", self.plan.name), 2);
            serial += 1;
        }
    }

    fn directory(&mut self, path: String, depth: u32) {
        // Depths are of the order of ten; what the distribution says beyond that is cut.
        const DEEPEST: u32 = 40;
        let mean_depth = (self.plan.entries as f64).ln() / (self.plan.width as f64).ln();
        let deepest = gamma(self.rng, GAMMA, mean_depth).floor().max(1.0);
        let width = gamma(self.rng, GAMMA, self.plan.width as f64).max(1.0);
        let is_leaf = f64::from(depth) >= deepest || depth >= DEEPEST;
        let mut serial = 1_u64;
        while (serial as f64) < width + 1.0 && !self.is_full() {
            let name = format!("{path}/{serial:08}");
            if is_leaf {
                let size = match self.plan.sizes {
                    Sizes::Fixed(size) => size,
                    Sizes::Gamma(mean) => gamma(self.rng, GAMMA, mean as f64) as u64,
                };
                self.entries.push(Entry { path: name, size });
            } else {
                self.directory(name, depth + 1);
            }
            serial += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::files::ImageFiles;
    use crate::workload::Settings;

    fn scene() -> Scene {
        let files = Arc::new(ImageFiles::new(obento::Volume::in_memory()));
        Scene { files, path: None, settings: Settings::default() }
    }

    const SMALL: Plan =
        Plan { name: "set", entries: 1000, width: 20, sizes: Sizes::Gamma(16_384), preallocated: 80 };

    #[test]
    fn a_set_has_the_sizes_and_the_share_that_were_asked_for() {
        let plan = Plan { entries: 20_000, ..SMALL };
        let set = FileSet::plan(&plan, &scene());
        let size = set.entries.iter().map(|entry| entry.size as f64).sum::<f64>() / 20_000.0;
        assert_eq!(set.entries.len(), 20_000);
        assert!((size / 16_384.0 - 1.0).abs() < 0.05, "{size}");
        assert!((set.existing() as f64 / 16_000.0 - 1.0).abs() < 0.03, "{}", set.existing());
    }

    #[test]
    fn files_lie_in_leaves_only_whose_width_is_that_of_the_plan() {
        let set = FileSet::plan(&Plan { entries: 20_000, ..SMALL }, &scene());
        let mut leaves: BTreeMap<&str, u64> = BTreeMap::new();
        for (leaf, _) in set.entries.iter().filter_map(|entry| entry.path.rsplit_once('/')) {
            *leaves.entry(leaf).or_default() += 1;
        }
        for leaf in leaves.keys() {
            let above = leaf.match_indices('/').map(|(at, _)| &leaf[..at]);
            assert!(above.into_iter().all(|directory| !leaves.contains_key(directory)), "{leaf}");
        }
        let width = 20_000.0 / leaves.len() as f64;
        assert!((18.0..23.0).contains(&width), "{width}");
    }

    #[test]
    fn a_width_above_the_number_of_files_makes_few_directories() {
        let set = FileSet::plan(&Plan { width: 1_000_000, ..SMALL }, &scene());
        let directories: BTreeSet<_> =
            set.entries.iter().filter_map(|entry| entry.path.rsplit_once('/')).map(|(to, _)| to).collect();
        assert!(directories.len() <= 3, "{directories:?}");
    }

    #[test]
    fn files_are_taken_in_rotation_and_what_is_open_is_not_deleted() {
        let set = FileSet::plan(&Plan { entries: 4, preallocated: 100, ..SMALL }, &scene());
        let first = set.pick_existing().unwrap();
        assert_eq!((first, set.pick_existing()), (0, Some(1)));
        let rest: Vec<_> = std::iter::from_fn(|| set.pick_to_delete()).collect();
        assert_eq!(rest, [2, 3]);
        set.done(first);
        assert_eq!(set.pick_to_delete(), Some(0));
        set.deleted(0);
        assert_eq!(set.pick_missing(), Some(0));
    }

    #[test]
    fn what_exists_in_the_plan_exists_in_the_file_system() {
        let scene = scene();
        let set = FileSet::plan(&Plan { entries: 50, ..SMALL }, &scene);
        set.make(&scene).unwrap();
        for (number, entry) in set.entries.iter().enumerate() {
            let there = set.state().existing.numbers.contains(&number);
            assert_eq!(scene.files.stat(&entry.path).ok(), there.then_some(entry.size), "{}", entry.path);
        }
    }
}
