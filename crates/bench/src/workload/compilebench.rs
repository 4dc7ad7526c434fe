//! compilebench: trees of a kernel's sources made, compiled and read.
//!
//! Source: C. Mason's compilebench 0.6 as the Phoronix page runs it (`-i 10 --makej`, its three figures: initial create, compile,
//! read compiled tree). Its lists of files are of Linux 2.6.20; here the tree is made of the settings' seed: 21,000 files
//! with a mean of 11 KiB in 1,250 directories, about as many as that release has, four of ten sources of C that become objects.

use crate::Result;
use crate::error::During as _;
use crate::files::{How, create_dirs, read_whole, write_span};
use crate::random::gamma;
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings, Team};

const TREES: u64 = 10;
const FILES: u64 = 21_000;
const DIRECTORIES: u64 = 1250;
const MEAN: f64 = 11_264.0;
/// What objects of the compiler are longer than their sources.
const OBJECT: u64 = 2;
/// Bytes a call.
const CALL: usize = 256 << 10;

/// Trees of sources.
#[derive(Clone, Copy, Debug)]
pub struct CompileBench;

struct File {
    path: String,
    size: u64,
    is_source: bool,
}

/// The files of a tree, directory by directory as they are made.
fn plan(scene: &Scene) -> Vec<File> {
    let mut rng = scene.rng(0);
    let count = scene.settings.scaled(FILES);
    let directories = scene.settings.scaled(DIRECTORIES);
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
    fn trees(scene: &Scene) -> u64 {
        scene.settings.scaled(TREES)
    }

    /// Does something with each tree, one after another.
    fn each(
        scene: &Scene,
        name: &str,
        work: impl Fn(u64) -> std::io::Result<(u64, u64)> + Sync,
    ) -> Result<Phase> {
        Team::new(name, Measure::Throughput, 1).run(scene, |member| {
            for tree in 0..Self::trees(scene) {
                let (files, bytes) = work(tree)?;
                member.count(files, bytes);
            }
            Ok(())
        })
    }
}

impl Load for CompileBench {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, _: &Scene) -> Result<()> {
        Ok(())
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let (files, data, plan) = (&scene.files, vec![0x55; CALL], plan(scene));
        let write = |path: &str, size| write_span(&*files.open(path, How::Create)?, 0, size, &data);
        let create = Self::each(scene, "initial create", |tree| {
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
        let compile = Self::each(scene, "compile", |tree| {
            let (mut count, mut bytes) = (0, 0);
            for file in objects() {
                write(&format!("kernel-{tree}/{}.o", file.path), file.size * OBJECT)?;
                (count, bytes) = (count + 1, bytes + file.size * OBJECT);
            }
            Ok((count, bytes))
        })?;
        files.sync().during("sync", "kernel-0")?;
        let read = Self::each(scene, "read compiled tree", |tree| {
            let (mut count, mut bytes, mut buf) = (0, 0, vec![0; CALL]);
            for file in &plan {
                let path = format!("kernel-{tree}/{}", file.path);
                let object = file.is_source.then(|| format!("{path}.o"));
                for path in [Some(path), object].into_iter().flatten() {
                    bytes += read_whole(&*files.open(&path, How::Read)?, &mut buf)?;
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
