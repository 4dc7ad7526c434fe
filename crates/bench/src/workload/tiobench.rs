//! tiobench: 1, 2, 4 and 8 threads, each with a file of its own that is its part of the size, written and read by 4 KiB in order and
//! at random.
//!
//! Source: M. Kuoppala's and R. Hron's tiobench 1.3 (`tiobench.pl`: threads 1 2 4 8, blocks of 4,096 bytes, 4,000 random operations
//! shared by the threads; `tiotest.c`: write, random write, read, random read, each file synced within what is timed).

use crate::Result;
use crate::files::{How, OpenFile, write_span};
use crate::workload::team::Member;
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings, Team};

const BLOCK: usize = 4096;
const OPERATIONS: u64 = 4000;
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Threads with files of their own.
#[derive(Clone, Copy, Debug)]
pub struct TioBench;

impl Load for TioBench {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, _: &Scene) -> Result<()> {
        Ok(())
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let mut phases = Vec::new();
        for threads in THREADS {
            let each = (scene.settings.file_size / threads as u64 / BLOCK as u64).max(1);
            let random = (scene.settings.scaled(OPERATIONS) / threads as u64).max(1);
            let mut phase = |name: &str, how, work: &(dyn Fn(&mut Member<'_>, &dyn OpenFile) -> _ + Sync)| {
                let team = Team::new(format!("{threads}/{name}"), Measure::Throughput, threads);
                phases.push(team.run(scene, |member| {
                    let file = scene.files.open(&format!("tiotest.{}", member.index), how)?;
                    let blocks = work(member, &*file)?;
                    if how != How::Read {
                        file.sync()?;
                    }
                    member.count(blocks, blocks * BLOCK as u64);
                    Ok(())
                })?);
                Result::Ok(())
            };
            phase("write", How::Create, &|_, file| {
                write_span(file, 0, each * BLOCK as u64, &[0x55; BLOCK]).map(|()| each)
            })?;
            phase("random write", How::Change, &|member, file| {
                (0..random)
                    .try_for_each(|_| file.write_at(&[0xaa; BLOCK], member.rng.u64(0..each) * BLOCK as u64))
                    .map(|()| random)
            })?;
            phase("read", How::Read, &|_, file| {
                crate::files::read_whole(file, &mut [0; BLOCK]).map(|bytes| bytes / BLOCK as u64)
            })?;
            phase("random read", How::Read, &|member, file| {
                (0..random)
                    .try_for_each(|_| {
                        file.read_at(&mut [0; BLOCK], member.rng.u64(0..each) * BLOCK as u64).map(drop)
                    })
                    .map(|()| random)
            })?;
        }
        Ok(phases)
    }

    fn needs(&self, settings: &Settings) -> u64 {
        // The larger files of fewer threads stay.
        settings.file_size * 2
    }
}
