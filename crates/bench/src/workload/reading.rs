//! Workloads that only read a tree of files, so that they also measure existing images, directories and servers.
//!
//! | name | work | cache |
//! |---|---|---|
//! | `read-walk` | lists each directory with the attributes of its files, as `ls -lR` does | both |
//! | `read-stat` | looks up files by their paths, in random order | warm |
//! | `read-files` | reads all files from start to end, in the order of their paths | both |
//! | `read-small` | opens, reads and closes files of at most 64 KiB, in random order | both |
//! | `read-rand_4k` | reads blocks of 4 KiB at random offsets in the files over 64 KiB | warm |
//!
//! A run with a cold cache (`-cold`) uses each file once, because the file is in the cache afterwards. With a warm
//! cache, the preparation uses each file once, and the run repeats this until the time is over. Lookups and random reads
//! have no cold variant: soon after its start, a run finds most blocks in the cache, so that the figure would depend on
//! the run time.
//!
//! On a new file system, the preparation creates a tree, which depends only on the settings. On a target that has
//! files, the preparation lists them and creates nothing. The order of the files depends only on their paths and the
//! seed, so it is the same for all targets that contain the same tree. `read-rand_4k` uses the largest files up to a
//! total of `--file-size`, so that a warm cache can contain them, and at most 256 files, which are all open during the
//! run.

use std::cmp::Reverse;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use obento::text::escaped;

use crate::error::IoContext as _;
use crate::files::{Files, OpenFile, OpenMode, TreeFile, TreeFileKind, create_dirs, read_whole, write_span};
use crate::workload::file_set::{FileSet, FileSetPlan, Sizes};
use crate::workload::{Cache, Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};
use crate::{BenchError, Result};

/// The tree that a new file system gets, beside the large files.
const TREE: FileSetPlan = FileSetPlan {
    name: "tree",
    entries: 10_000,
    width: 20,
    sizes: Sizes::Gamma(14 << 10),
    preallocated: 100,
};
/// The directory of the large files, and their number. Their total size is `--file-size`.
const LARGE: &str = "large";
const LARGE_FILES: u64 = 4;
/// The length of the longest small file.
const SMALL: u64 = 64 << 10;
/// The greatest number of files that are open at the same time.
const OPEN_FILES: usize = 256;
/// The number of bytes of a random read.
const BLOCK: usize = 4096;
/// The number of bytes of a sequential read.
const CALL: usize = 128 << 10;

/// An operation on the files of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Lists directories with attributes.
    Walk,
    /// Looks up files.
    Stat,
    /// Reads all files.
    Files,
    /// Opens, reads and closes small files.
    Small,
    /// Reads blocks of large files.
    Random,
}

/// A workload that reads a tree.
#[derive(Debug)]
pub struct Reading {
    operation: Operation,
    cache: Cache,
    threads: usize,
    /// The files to use, in their order.
    chosen: OnceLock<Vec<TreeFile>>,
}

impl Reading {
    /// Returns the workload that does `operation` with this number of threads.
    pub fn new(operation: Operation, cache: Cache, threads: usize) -> Self {
        Self { operation, cache, threads, chosen: OnceLock::new() }
    }
}

impl Workload for Reading {
    fn cache(&self) -> Cache {
        self.cache
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        FileSet::plan(&plan(&context.settings), context).make(context)?;
        let write = || -> io::Result<()> {
            create_dirs(&*context.files, LARGE)?;
            for number in 0..LARGE_FILES {
                let file = context.files.open(&format!("{LARGE}/{number}"), OpenMode::Create)?;
                write_span(&*file, 0, context.settings.file_size / LARGE_FILES, &vec![0x55; 1 << 20])?;
            }
            Ok(())
        };
        write().during("write", LARGE)
    }

    fn survey(&self, context: &WorkloadContext) -> Result<()> {
        let mut found = Vec::new();
        context.files.visit(&mut |file| found.push(file)).during("list", "/")?;
        let chosen = self.operation.choose(found, context);
        if chosen.is_empty() {
            return Err(BenchError::Absent(format!("the tree has no {}", self.operation.object())));
        }
        if self.cache == Cache::Warm {
            let mut buf = vec![0; CALL];
            for file in &chosen {
                self.operation.perform(&*context.files, file, &mut buf).during("read", "/")?;
            }
        }
        // A workload is used for one run.
        let _ = self.chosen.set(chosen);
        Ok(())
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let chosen = self.chosen.get().filter(|chosen| !chosen.is_empty());
        let chosen = chosen.ok_or_else(|| BenchError::Absent("no files were chosen".to_owned()))?;
        let phase = match self.operation {
            Operation::Random => self.random(context, chosen),
            _ => self.each(context, chosen),
        };
        Ok(vec![phase?])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        plan(settings).entries * (18 << 10) * 2 + settings.file_size
    }
}

fn plan(settings: &Settings) -> FileSetPlan {
    FileSetPlan { entries: settings.scaled(TREE.entries), ..TREE }
}

impl Reading {
    fn group(&self) -> ThreadGroup {
        ThreadGroup::new("", self.operation.measure(), self.threads)
    }

    /// Uses the files in their order. Each thread takes the next one.
    fn each(&self, context: &WorkloadContext, chosen: &[TreeFile]) -> Result<Phase> {
        let next = AtomicUsize::new(0);
        let group = match self.cache {
            Cache::Dropped => self.group(),
            Cache::Warm => self.group().for_time(context.settings.run_time),
        };
        group.run(context, |member| {
            let mut buf = vec![0; CALL];
            while !member.is_over() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if self.cache == Cache::Dropped && number >= chosen.len() {
                    break;
                }
                let file = &chosen[number % chosen.len()];
                let (files, bytes) = self.operation.perform(&*context.files, file, &mut buf)?;
                member.count(files, bytes);
            }
            Ok(())
        })
    }

    /// Reads random blocks until the time is over. Each block of all files is equally likely.
    fn random(&self, context: &WorkloadContext, chosen: &[TreeFile]) -> Result<Phase> {
        let mut blocks = 0;
        let mut open: Vec<(u64, Box<dyn OpenFile>)> = Vec::new();
        for file in chosen {
            let opened = context.files.open_file(&file.path);
            open.push((blocks, opened.map_err(|error| about(file, error)).during("read", "/")?));
            blocks += file.len.div_ceil(BLOCK as u64);
        }
        self.group().for_time(context.settings.run_time).run(context, |member| {
            let mut buf = [0; BLOCK];
            while !member.is_over() {
                let block = member.rng.u64(0..blocks);
                let at = open.partition_point(|(first, _)| *first <= block).saturating_sub(1);
                let (first, file) = &open[at];
                match file.read_at(&mut buf, (block - first) * BLOCK as u64)? {
                    0 => return Err(about(&chosen[at], io::ErrorKind::UnexpectedEof.into())),
                    count => member.count(1, count as u64),
                }
            }
            Ok(())
        })
    }
}

impl Operation {
    /// Returns the files that the operation uses, in their order.
    fn choose(self, mut found: Vec<TreeFile>, context: &WorkloadContext) -> Vec<TreeFile> {
        // Directories are listed in different orders by different drivers.
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let is_regular = |file: &TreeFile| file.kind == TreeFileKind::Regular;
        match self {
            Self::Walk => {
                let root = TreeFile { path: Vec::new(), kind: TreeFileKind::Directory, len: 0 };
                let below = found.into_iter().filter(|file| file.kind == TreeFileKind::Directory);
                return [root].into_iter().chain(below).collect();
            }
            Self::Stat => {}
            Self::Files => {
                found.retain(is_regular);
                // A speed in bytes requires contents.
                if found.iter().all(|file| file.len == 0) {
                    found.clear();
                }
                return found;
            }
            Self::Small => found.retain(|file| is_regular(file) && file.len <= SMALL),
            Self::Random => {
                found.retain(|file| is_regular(file) && file.len > SMALL);
                found.sort_by_key(|file| Reverse(file.len));
                found.truncate(within(&found, context.settings.file_size).min(OPEN_FILES));
                return found;
            }
        }
        context.rng(usize::MAX - 1).shuffle(&mut found);
        found
    }

    /// Uses a file once. Returns the number of files and of bytes.
    fn perform(self, files: &dyn Files, file: &TreeFile, buf: &mut [u8]) -> io::Result<(u64, u64)> {
        let done = match self {
            Self::Walk => files.list_attributes(&file.path).map(|count| (count, 0)),
            Self::Stat => files.look_up(&file.path).map(|()| (1, 0)),
            Self::Files | Self::Small | Self::Random => {
                files.open_file(&file.path).and_then(|open| Ok((1, read_whole(&*open, buf)?)))
            }
        };
        done.map_err(|error| about(file, error))
    }

    fn measure(self) -> Measure {
        match self {
            Self::Walk | Self::Stat | Self::Small => Measure::Rate,
            Self::Files | Self::Random => Measure::Throughput,
        }
    }

    /// Returns the noun for the files that the operation uses.
    fn object(self) -> &'static str {
        match self {
            Self::Walk | Self::Stat => "file",
            Self::Files => "regular file with contents",
            Self::Small => "regular file of at most 64 KiB",
            Self::Random => "regular file over 64 KiB",
        }
    }
}

/// Returns the number of files, from the first on, until their total size reaches `size`.
fn within(files: &[TreeFile], size: u64) -> usize {
    let mut total = 0_u64;
    let fits = files.iter().take_while(|file| {
        let begins = total < size;
        total = total.saturating_add(file.len);
        begins
    });
    fits.count()
}

/// Adds the path to an error, unless the library has done so.
fn about(file: &TreeFile, error: io::Error) -> io::Error {
    match error.get_ref() {
        Some(_) => error,
        None => io::Error::new(error.kind(), format!("{}: {error}", escaped(&file.path))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use obento::Volume;

    use super::*;
    use crate::files::ImageFiles;
    use crate::workload::tests::small;

    fn tree() -> (Volume, WorkloadContext) {
        let volume = Volume::in_memory();
        volume.create_dir_all("/a/b").unwrap();
        volume.symlink("b", "/a/link").unwrap();
        for (path, len) in
            [("/a/b/large", 200_000), ("/a/larger", 300_000), ("/a/small", 65_536), ("/empty", 0)]
        {
            volume.write(path, vec![7; len]).unwrap();
        }
        let files = Arc::new(ImageFiles::new(volume.clone()));
        (volume, WorkloadContext { files, path: None, settings: small() })
    }

    fn measured(operation: Operation, cache: Cache, context: &WorkloadContext) -> Phase {
        let load = Reading::new(operation, cache, 2);
        load.survey(context).unwrap();
        load.run(context).unwrap().remove(0)
    }

    #[test]
    fn a_cold_run_uses_each_file_of_the_tree_once() {
        let (_, context) = tree();
        let counts = |operation| {
            let phase = measured(operation, Cache::Dropped, &context);
            (phase.operations, phase.bytes)
        };
        assert_eq!(counts(Operation::Walk), (7, 0));
        assert_eq!(counts(Operation::Stat), (7, 0));
        assert_eq!(counts(Operation::Files), (4, 565_536));
        assert_eq!(counts(Operation::Small), (2, 65_536));
    }

    #[test]
    fn a_warm_run_repeats_the_work_until_the_time_is_over() {
        let (_, context) = tree();
        for operation in [Operation::Walk, Operation::Files, Operation::Random] {
            let phase = measured(operation, Cache::Warm, &context);
            assert!(phase.operations > 0 && phase.seconds >= 0.02, "{operation:?}: {phase:?}");
        }
    }

    #[test]
    fn the_order_depends_only_on_the_paths_and_the_seed() {
        let (_, mut context) = tree();
        let chosen = |operation: Operation, context: &WorkloadContext, reverse: bool| {
            let mut found = Vec::new();
            context.files.visit(&mut |file| found.push(file)).unwrap();
            if reverse {
                found.reverse();
            }
            let paths = operation.choose(found, context).into_iter().map(|file| file.path);
            paths.collect::<Vec<_>>()
        };
        let first = chosen(Operation::Stat, &context, false);
        assert_eq!(first, chosen(Operation::Stat, &context, true));
        context.settings.seed = 2;
        assert_ne!(first, chosen(Operation::Stat, &context, false));
        assert_eq!(chosen(Operation::Random, &context, false), [&b"a/larger"[..], b"a/b/large"]);
        // The largest files are used until their size is that of a large file.
        context.settings.file_size = 250_000;
        assert_eq!(chosen(Operation::Random, &context, false), [b"a/larger"]);
    }

    #[test]
    fn a_tree_without_suitable_files_is_not_measured() {
        let files = Arc::new(ImageFiles::new(Volume::in_memory()));
        let context = WorkloadContext { files, path: None, settings: small() };
        for (operation, object) in [
            (Operation::Stat, "no file"),
            (Operation::Files, "with contents"),
            (Operation::Random, "over 64 KiB"),
        ] {
            let error = Reading::new(operation, Cache::Warm, 1).survey(&context).unwrap_err();
            assert!(matches!(&error, BenchError::Absent(why) if why.contains(object)), "{error}");
        }
    }

    #[test]
    fn an_error_names_the_file() {
        let (volume, context) = tree();
        let load = Reading::new(Operation::Files, Cache::Dropped, 1);
        load.survey(&context).unwrap();
        volume.remove_file("/a/small").unwrap();
        let error = load.run(&context).unwrap_err().to_string();
        assert!(error.contains("a/small"), "{error}");
    }
}
