//! compilebench: trees of kernel sources are created, compiled and read.
//!
//! Source: C. Mason's compilebench 0.6 with the parameters of Phoronix (`-i 10 --makej`; three figures: initial create,
//! compile, read compiled tree). Its file lists are those of Linux 2.6.20. Here the tree depends only on the seed of
//! the settings. It has about the same size: 21,000 files with a mean of 11 KiB in 1,250 directories. Four of ten files
//! are C sources, which are compiled to objects.

use crate::Result;
use crate::error::IoContext as _;
use crate::files::{OpenMode, create_dirs, read_whole, write_span};
use crate::random::gamma;
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const TREES: u64 = 10;
const FILES: u64 = 21_000;
const DIRECTORIES: u64 = 1250;
const MEAN: f64 = 11_264.0;
/// The factor between the lengths of an object and its source.
const OBJECT: u64 = 2;
/// The number of bytes per call.
const CALL: usize = 256 << 10;

/// Trees of sources.
#[derive(Clone, Copy, Debug)]
pub struct CompileBench;

struct File {
    path: String,
    size: u64,
    is_source: bool,
}

/// Returns the files of a tree, directory by directory in the order of creation.
fn plan(context: &WorkloadContext) -> Vec<File> {
    let mut rng = context.rng(0);
    let count = context.settings.scaled(FILES);
    let directories = context.settings.scaled(DIRECTORIES);
    (0..count)
        .map(|number| {
            let directory = number * directories / count;
            let size = gamma(&mut rng, 1.0, MEAN) as u64;
            let is_source = rng.u8(0..10) < 4;
            let end = if is_source { "c" } else { "h" };
            let path = format!("dir{}/sub{}/file{number}.{end}", directory / 25, directory % 25);
            File { path, size, is_source }
        })
        .collect()
}

impl CompileBench {
    fn trees(context: &WorkloadContext) -> u64 {
        context.settings.scaled(TREES)
    }

    /// Runs one phase over all trees, one after another.
    fn each(
        context: &WorkloadContext,
        name: &str,
        work: impl Fn(u64) -> std::io::Result<(u64, u64)> + Sync,
    ) -> Result<Phase> {
        ThreadGroup::new(name, Measure::Throughput, 1).run(context, |member| {
            for tree in 0..Self::trees(context) {
                let (files, bytes) = work(tree)?;
                member.count(files, bytes);
            }
            Ok(())
        })
    }
}

impl Workload for CompileBench {
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let (files, data, plan) = (&context.files, vec![0x55; CALL], plan(context));
        let write = |path: &str, size| write_span(&*files.open(path, OpenMode::Create)?, 0, size, &data);
        let create = Self::each(context, "initial create", |tree| {
            let mut last = String::new();
            for file in &plan {
                let path = format!("kernel-{tree}/{}", file.path);
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                if parent != last {
                    create_dirs(&**files, parent)?;
                    parent.clone_into(&mut last);
                }
                write(&path, file.size)?;
            }
            Ok((plan.len() as u64, plan.iter().map(|file| file.size).sum()))
        })?;
        let objects = || plan.iter().filter(|file| file.is_source);
        let compile = Self::each(context, "compile", |tree| {
            let (mut count, mut bytes) = (0, 0);
            for file in objects() {
                write(&format!("kernel-{tree}/{}.o", file.path), file.size * OBJECT)?;
                (count, bytes) = (count + 1, bytes + file.size * OBJECT);
            }
            Ok((count, bytes))
        })?;
        files.sync().during("sync", "kernel-0")?;
        let read = Self::each(context, "read compiled tree", |tree| {
            let (mut count, mut bytes, mut buf) = (0, 0, vec![0; CALL]);
            for file in &plan {
                let path = format!("kernel-{tree}/{}", file.path);
                let object = file.is_source.then(|| format!("{path}.o"));
                for path in [Some(path), object].into_iter().flatten() {
                    bytes += read_whole(&*files.open(&path, OpenMode::Read)?, &mut buf)?;
                    count += 1;
                }
            }
            Ok((count, bytes))
        })?;
        Ok(vec![create, compile, read])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.scaled(TREES) * settings.scaled(FILES) * (MEAN as u64 + 4096) * 2
    }
}
