//! One large file, read or written in sequence or at random: `filemicro_seqread.f`, `randomread.f`,
//! `filemicro_seqwrite.f`, `randomwrite.f`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::error::IoContext as _;
use crate::files::{OpenFile, OpenMode, write_span};
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const FILE: &str = "largefile1";

/// The access pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Each thread reads from start to end, repeatedly until the time is over.
    SequentialRead,
    /// Reads at random offsets, which are multiples of the call size, until the time is over.
    RandomRead,
    /// Writes a new file to its full size, once.
    SequentialWrite,
    /// Writes at random offsets, which are multiples of the call size, until the time is over.
    RandomWrite,
}

/// A large file and its access pattern.
#[derive(Clone, Copy, Debug)]
pub struct LargeFile {
    /// The access pattern.
    pub pattern: Pattern,
    /// The number of bytes per call.
    pub io_size: usize,
    /// The number of threads.
    pub threads: usize,
}

impl Workload for LargeFile {
    /// Filebench reads the file that it has just written, so the file is in the cache if it fits.
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        let write = || -> io::Result<()> {
            let file = context.files.open(FILE, OpenMode::Create)?;
            if self.pattern != Pattern::SequentialWrite {
                write_span(&*file, 0, context.settings.file_size, &vec![0x55; 1 << 20])?;
            }
            file.sync()
        };
        write().during("create", FILE)
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let team = ThreadGroup::new("", Measure::Throughput, self.threads);
        let team = match self.pattern {
            Pattern::SequentialWrite => team,
            _ => team.for_time(context.settings.run_time),
        };
        let end = AtomicU64::new(0);
        let calls = (context.settings.file_size / self.io_size as u64).max(1);
        let phase = team.run(context, |member| {
            let how = if self.reads() { OpenMode::Read } else { OpenMode::Change };
            let file = context.files.open(FILE, how)?;
            let mut buf = vec![0xaa; self.io_size];
            let mut own = 0;
            while !member.is_over() {
                let call = match self.pattern {
                    Pattern::SequentialRead => own % calls,
                    Pattern::SequentialWrite => end.fetch_add(1, Ordering::Relaxed),
                    Pattern::RandomRead | Pattern::RandomWrite => member.rng.u64(0..calls),
                };
                if self.pattern == Pattern::SequentialWrite && call >= calls {
                    break;
                }
                own += 1;
                self.call(&*file, &mut buf, call * self.io_size as u64)?;
                member.count(1, self.io_size as u64);
            }
            Ok(())
        })?;
        Ok(vec![phase])
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

impl LargeFile {
    fn reads(&self) -> bool {
        matches!(self.pattern, Pattern::SequentialRead | Pattern::RandomRead)
    }

    fn call(&self, file: &dyn OpenFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if !self.reads() {
            return file.write_at(buf, offset);
        }
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }
}
