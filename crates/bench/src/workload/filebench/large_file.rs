//! One large file, read or written in sequence or at random: `filemicro_seqread.f`, `randomread.f`, `filemicro_seqwrite.f`,
//! `randomwrite.f`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::error::During as _;
use crate::files::{How, OpenFile, write_span};
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings, Team};

const FILE: &str = "largefile1";

/// What is done to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Each thread reads from the beginning on, and begins again at the end, until the time is over.
    SequentialRead,
    /// Offsets are uniform and whole calls, until the time is over.
    RandomRead,
    /// The file grows from nothing to its size, once.
    SequentialWrite,
    /// Offsets are uniform and whole calls, until the time is over.
    RandomWrite,
}

/// A large file and a way to use it.
#[derive(Clone, Copy, Debug)]
pub struct LargeFile {
    /// What is done.
    pub pattern: Pattern,
    /// Bytes of a call.
    pub io_size: usize,
    /// Threads.
    pub threads: usize,
}

impl Load for LargeFile {
    /// Filebench reads what it has just written: the file is in the cache, if it fits.
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, scene: &Scene) -> Result<()> {
        let write = || -> io::Result<()> {
            let file = scene.files.open(FILE, How::Create)?;
            if self.pattern != Pattern::SequentialWrite {
                write_span(&*file, 0, scene.settings.file_size, &vec![0x55; 1 << 20])?;
            }
            file.sync()
        };
        write().during("create", FILE)
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let team = Team::new("", Measure::Throughput, self.threads);
        let team = match self.pattern {
            Pattern::SequentialWrite => team,
            _ => team.for_time(scene.settings.run_time),
        };
        let end = AtomicU64::new(0);
        let calls = (scene.settings.file_size / self.io_size as u64).max(1);
        let phase = team.run(scene, |member| {
            let how = if self.reads() { How::Read } else { How::Change };
            let file = scene.files.open(FILE, how)?;
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
