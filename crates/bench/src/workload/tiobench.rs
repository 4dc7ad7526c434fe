//! tiobench: 1, 2, 4 and 8 threads. Each has a file of its own, which is its share of the total size. It writes and
//! reads 4 KiB in order and at random.
//!
//! Source: M. Kuoppala's and R. Hron's tiobench 1.3 (`tiobench.pl`: threads 1 2 4 8, blocks of 4,096 bytes, 4,000
//! random operations shared by the threads; `tiotest.c`: write, random write, read, random read; the time includes a
//! sync of each file).

use crate::Result;
use crate::files::{OpenFile, OpenMode, write_span};
use crate::workload::team::GroupMember;
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const BLOCK: usize = 4096;
const OPERATIONS: u64 = 4000;
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Threads with files of their own.
#[derive(Clone, Copy, Debug)]
pub struct TioBench;

impl Workload for TioBench {
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let mut phases = Vec::new();
        for threads in THREADS {
            let each = (context.settings.file_size / threads as u64 / BLOCK as u64).max(1);
            let random = (context.settings.scaled(OPERATIONS) / threads as u64).max(1);
            let mut phase =
                |name: &str, how, work: &(dyn Fn(&mut GroupMember<'_>, &dyn OpenFile) -> _ + Sync)| {
                    let team = ThreadGroup::new(format!("{threads}/{name}"), Measure::Throughput, threads);
                    phases.push(team.run(context, |member| {
                        let file = context.files.open(&format!("tiotest.{}", member.index), how)?;
                        let blocks = work(member, &*file)?;
                        if how != OpenMode::Read {
                            file.sync()?;
                        }
                        member.count(blocks, blocks * BLOCK as u64);
                        Ok(())
                    })?);
                    Result::Ok(())
                };
            phase("write", OpenMode::Create, &|_, file| {
                write_span(file, 0, each * BLOCK as u64, &[0x55; BLOCK]).map(|()| each)
            })?;
            phase("random write", OpenMode::Change, &|member, file| {
                (0..random)
                    .try_for_each(|_| file.write_at(&[0xaa; BLOCK], member.rng.u64(0..each) * BLOCK as u64))
                    .map(|()| random)
            })?;
            phase("read", OpenMode::Read, &|_, file| {
                crate::files::read_whole(file, &mut [0; BLOCK]).map(|bytes| bytes / BLOCK as u64)
            })?;
            phase("random read", OpenMode::Read, &|member, file| {
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
        // The larger files of the runs with fewer threads are not removed.
        settings.file_size * 2
    }
}
