//! The measured operations: each runs `count` times, in one thread or in several that have a file or a folder each.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::sides::{Folder, OpenFile, Side};

const BLOCK: u64 = 4096;
/// Size of a file that is overwritten.
const PREPARED: u64 = 64 << 20;
/// Number of appends after which a new file is started.
const APPENDS: u64 = 8192;

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Create,
    Stat,
    Rename,
    Unlink,
    Append,
    Overwrite,
    Fsync,
}

impl Operation {
    pub const ALL: [Self; 7] =
        [Self::Create, Self::Stat, Self::Rename, Self::Unlink, Self::Append, Self::Overwrite, Self::Fsync];

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::Append => "append 4 KiB",
            Self::Overwrite => "overwrite 4 KiB",
            Self::Fsync => "append 4 KiB, fsync",
        }
    }

    /// Prepares the files for the operation, outside of the measurement.
    pub fn prepare(self, side: &dyn Side, threads: u64) -> Result<()> {
        if self != Self::Overwrite {
            return Ok(());
        }
        (0..threads).try_for_each(|n| fill(&*side.file(&self.file_name(n))?))
    }

    fn file_name(self, n: u64) -> String {
        format!("{}{n}", if self == Self::Overwrite { "prepared" } else { "appended" })
    }

    /// Returns the time of `count` operations.
    pub fn run(self, side: &dyn Side, threads: u64, count: u64) -> Result<Duration> {
        let each = count.div_ceil(threads);
        match self {
            Self::Create | Self::Stat | Self::Rename | Self::Unlink => self.names(side, threads, each),
            Self::Append | Self::Overwrite | Self::Fsync => self.data(side, threads, each),
        }
    }

    /// Operations on names, each in a folder of 10,000 others or fewer.
    fn names(self, side: &dyn Side, threads: u64, count: u64) -> Result<Duration> {
        let folders = (0..threads).map(|n| side.folder(&format!("d{n}"))).collect::<Result<Vec<_>>>()?;
        let mut time = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let batch = left.min(10_000);
            let names: Vec<_> = (0..batch).map(|n| format!("file{n}")).collect();
            let renamed: Vec<_> = (0..batch).map(|n| format!("renamed{n}")).collect();
            let all = |names: &[String], act: &dyn Fn(&dyn Folder, &str) -> Result<()>| {
                folders.iter().try_for_each(|folder| names.iter().try_for_each(|name| act(&**folder, name)))
            };
            if self != Self::Create {
                all(&names, &|folder, name| folder.create(name))?;
            }
            time += timed(threads, |thread| {
                let folder = &*folders[thread];
                match self {
                    Self::Create => names.iter().try_for_each(|name| folder.create(name)),
                    Self::Stat => names.iter().try_for_each(|name| folder.stat(name).map(drop)),
                    Self::Rename => {
                        names.iter().zip(&renamed).try_for_each(|(from, to)| folder.rename(from, to))
                    }
                    _ => names.iter().try_for_each(|name| folder.unlink(name)),
                }
            })?;
            match self {
                Self::Create | Self::Stat => all(&names, &|folder, name| folder.unlink(name))?,
                Self::Rename => all(&renamed, &|folder, name| folder.unlink(name))?,
                _ => {}
            }
            left -= batch;
        }
        Ok(time)
    }

    fn data(self, side: &dyn Side, threads: u64, count: u64) -> Result<Duration> {
        let files = (0..threads).map(|n| side.file(&self.file_name(n))).collect::<Result<Vec<_>>>()?;
        let block = vec![0x5a; BLOCK as usize];
        let mut time = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let batch = left.min(APPENDS);
            time += timed(threads, |thread| {
                let file = &*files[thread];
                let mut random = 0x2545_f491_4f6c_dd1d_u64;
                (0..batch).try_for_each(|n| match self {
                    Self::Overwrite => {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        file.write_at(random % (PREPARED / BLOCK) * BLOCK, &block)
                    }
                    Self::Append => file.write_at(n * BLOCK, &block),
                    _ => file.write_at(n * BLOCK, &block).and_then(|()| file.sync()),
                })
            })?;
            if self != Self::Overwrite {
                files.iter().try_for_each(|file| file.truncate(0))?;
            }
            left -= batch;
        }
        Ok(time)
    }
}

/// Writes the whole file once, so that its blocks are allocated.
fn fill(file: &dyn OpenFile) -> Result<()> {
    let part = vec![1; 1 << 20];
    (0..PREPARED >> 20).try_for_each(|n| file.write_at(n << 20, &part))?;
    file.sync()
}

/// Returns the time of `work` once all threads are ready: from the first start to the last end. The threads' own clocks
/// measure it, since a thread that waits for them may wake up late.
fn timed(threads: u64, work: impl Fn(usize) -> Result<()> + Sync) -> Result<Duration> {
    if threads == 1 {
        let start = Instant::now();
        work(0)?;
        return Ok(start.elapsed());
    }
    let ready = Barrier::new(threads as usize);
    let run = |thread| {
        ready.wait();
        let start = Instant::now();
        work(thread).map(|()| (start, Instant::now()))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads as usize).map(|thread| scope.spawn(move || run(thread))).collect();
        let times = running.into_iter().map(|thread| thread.join().expect("no panic"));
        let times: Vec<_> = times.collect::<Result<_>>()?;
        let start = times.iter().map(|(start, _)| *start).min();
        let end = times.iter().map(|(_, end)| *end).max();
        Ok(end.zip(start).map_or(Duration::ZERO, |(end, start)| end - start))
    })
}
