//! Sets of files as Filebench creates them.
//!
//! A set is a tree of directories with random width and depth. Both have gamma distributions of shape 1.5: the width
//! around the given mean, and the depth around ln(entries) / ln(width). The leaves contain the files. All names have
//! the form `%08d`. Files are selected in rotation by number. Source: Filebench 1.5, fileset.c
//! (`fileset_populate_subdir`, `fileset_pick`).

use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::WorkloadContext;
use crate::Result;
use crate::error::IoContext as _;
use crate::files::{OpenMode, create_dirs, write_span};
use crate::random::{Rng, gamma};

/// The shape of the distributions of sizes, widths and depths (`FILESET_DEFAULTGAMMA`).
const GAMMA: f64 = 1.5;
/// The number of bytes per call when Filebench preallocates.
const PREALLOCATION: usize = 1 << 20;

/// The sizes of the files of a set.
#[derive(Clone, Copy, Debug)]
pub enum Sizes {
    /// All files have this size.
    Fixed(u64),
    /// A gamma distribution with this mean.
    Gamma(u64),
}

/// The parameters of a set.
#[derive(Clone, Copy, Debug)]
pub struct FileSetPlan {
    /// The name of the directory of the set.
    pub name: &'static str,
    /// The greatest number of files.
    pub entries: u64,
    /// The mean number of names in a directory.
    pub width: u64,
    /// The sizes of the files.
    pub sizes: Sizes,
    /// The percentage of the files that exist at the start.
    pub preallocated: u64,
}

/// A file of a set.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The path.
    pub path: String,
    /// The size after the file is written completely.
    pub size: u64,
}

/// A set of files, some of which exist.
pub struct FileSet {
    entries: Vec<Entry>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    existing: Rotation,
    missing: Rotation,
    /// The number of open handles of each file. Open files are not deleted.
    open: Vec<u32>,
}

#[derive(Default)]
struct Rotation {
    numbers: BTreeSet<usize>,
    next: usize,
}

impl Rotation {
    /// Returns the next file in rotation for which `fits` returns `true`.
    fn pick(&mut self, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let after = self.numbers.range(self.next..);
        let before = self.numbers.range((Bound::Unbounded, Bound::Excluded(self.next)));
        let found = after.chain(before).copied().find(|number| fits(*number))?;
        self.next = found + 1;
        Some(found)
    }
}

impl FileSet {
    /// Plans a set. The plan depends only on the settings.
    pub fn plan(plan: &FileSetPlan, context: &WorkloadContext) -> Self {
        let mut rng = context.rng(usize::MAX);
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

    /// Creates the directories, and the files that exist at the start.
    pub fn make(&self, context: &WorkloadContext) -> Result<()> {
        let files = &*context.files;
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
                let file = files.open(&entry.path, OpenMode::Create)?;
                write_span(&*file, 0, entry.size, &data)
            };
            write(entry).during("create", &entry.path)?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a file by its number.
    pub fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    /// Returns the next file that does not exist, and reserves it for the caller to create.
    pub fn pick_missing(&self) -> Option<usize> {
        let mut state = self.state();
        let number = state.missing.pick(|_| true)?;
        state.missing.numbers.remove(&number);
        state.open[number] += 1;
        Some(number)
    }

    /// Returns the next file that exists. It counts as open until [`done`](Self::done).
    pub fn pick_existing(&self) -> Option<usize> {
        let mut state = self.state();
        let number = state.existing.pick(|_| true)?;
        state.open[number] += 1;
        Some(number)
    }

    /// Returns the next file that exists and is not open, and reserves it for the caller to delete.
    pub fn pick_to_delete(&self) -> Option<usize> {
        let mut guard = self.state();
        let State { existing, open, .. } = &mut *guard;
        let number = existing.pick(|number| open[number] == 0)?;
        existing.numbers.remove(&number);
        Some(number)
    }

    /// Records that the caller has created a file.
    pub fn made(&self, number: usize) {
        self.state().existing.numbers.insert(number);
    }

    /// Records that the caller has deleted a file.
    pub fn deleted(&self, number: usize) {
        self.state().missing.numbers.insert(number);
    }

    /// Records that the caller has closed a file.
    pub fn done(&self, number: usize) {
        let mut state = self.state();
        state.open[number] = state.open[number].saturating_sub(1);
    }

    /// Returns the number of existing files.
    pub fn existing(&self) -> usize {
        self.state().existing.numbers.len()
    }
}

struct Tree<'p> {
    plan: &'p FileSetPlan,
    rng: &'p mut Rng,
    entries: Vec<Entry>,
}

impl Tree<'_> {
    fn is_full(&self) -> bool {
        self.entries.len() as u64 >= self.plan.entries
    }

    /// Plans the tree. The root is directory 1 of the set, and contains as many directories as necessary.
    fn grow(&mut self) {
        let mut serial = 1;
        while !self.is_full() {
            self.directory(format!("{}/00000001/{serial:08}", self.plan.name), 2);
            serial += 1;
        }
    }

    fn directory(&mut self, path: String, depth: u32) {
        // Typical depths are about ten. Larger values of the distribution are cut.
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

    fn context() -> WorkloadContext {
        let files = Arc::new(ImageFiles::new(obento::Volume::in_memory()));
        WorkloadContext { files, path: None, settings: Settings::default() }
    }

    const SMALL: FileSetPlan =
        FileSetPlan { name: "set", entries: 1000, width: 20, sizes: Sizes::Gamma(16_384), preallocated: 80 };

    #[test]
    fn a_file_set_has_the_requested_sizes_and_share() {
        let plan = FileSetPlan { entries: 20_000, ..SMALL };
        let set = FileSet::plan(&plan, &context());
        let size = set.entries.iter().map(|entry| entry.size as f64).sum::<f64>() / 20_000.0;
        assert_eq!(set.entries.len(), 20_000);
        assert!((size / 16_384.0 - 1.0).abs() < 0.05, "{size}");
        assert!((set.existing() as f64 / 16_000.0 - 1.0).abs() < 0.03, "{}", set.existing());
    }

    #[test]
    fn files_are_in_leaf_directories_only_and_the_width_is_that_of_the_plan() {
        let set = FileSet::plan(&FileSetPlan { entries: 20_000, ..SMALL }, &context());
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
    fn a_width_above_the_number_of_files_creates_few_directories() {
        let set = FileSet::plan(&FileSetPlan { width: 1_000_000, ..SMALL }, &context());
        let directories: BTreeSet<_> =
            set.entries.iter().filter_map(|entry| entry.path.rsplit_once('/')).map(|(to, _)| to).collect();
        assert!(directories.len() <= 3, "{directories:?}");
    }

    #[test]
    fn files_are_used_in_rotation_and_open_files_are_not_deleted() {
        let set = FileSet::plan(&FileSetPlan { entries: 4, preallocated: 100, ..SMALL }, &context());
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
    fn files_of_the_plan_exist_in_the_file_system() {
        let context = context();
        let set = FileSet::plan(&FileSetPlan { entries: 50, ..SMALL }, &context);
        set.make(&context).unwrap();
        for (number, entry) in set.entries.iter().enumerate() {
            let there = set.state().existing.numbers.contains(&number);
            assert_eq!(context.files.stat(&entry.path).ok(), there.then_some(entry.size), "{}", entry.path);
        }
    }
}
