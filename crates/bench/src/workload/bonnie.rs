//! Bonnie: one large file is written and read by the byte and by the block, rewritten, and read at random offsets.
//! bonnie++: files are created, looked up and removed.
//!
//! Source: T. Bray's Bonnie 2.0.6 (`Bonnie.c`: chunks of 16 KiB; 3 processes that seek 4,000 times in total and write
//! back a tenth of the chunks) and R. Coker's bonnie++ (names of seven digits and up to twelve letters). In the phases
//! by the byte, a modern processor spends its time in calls of `putc`. These phases therefore measure the buffer of the
//! standard library.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::error::IoContext as _;
use crate::files::{OpenFile, OpenMode, read_whole, write_span};
use crate::random::Rng;
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const FILE: &str = "Bonnie.scratch";
const CHUNK: usize = 16 << 10;
/// The buffer size of `putc` and `getc`.
const STDIO: usize = 4096;
const SEEKERS: usize = 3;
const SEEKS: u64 = 4000;

/// Bonnie's large file. It measures the disk only if it is larger than the memory; Bray recommends twice the memory.
#[derive(Clone, Copy, Debug)]
pub struct Bonnie {
    /// Whether to write and read also by the byte. `bonnie++ -f` omits these phases.
    pub by_char: bool,
}

impl Workload for Bonnie {
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let size = context.settings.file_size / CHUNK as u64 * CHUNK as u64;
        let alone = |name, how, work: fn(&dyn OpenFile, u64) -> io::Result<()>| {
            // Bonnie's clock runs from the first call on the open file: earlier files are removed before that call.
            let file = open(context, how).during("open", FILE)?;
            ThreadGroup::new(name, Measure::Throughput, 1).run(context, |member| {
                work(&*file, size)?;
                member.count(size / CHUNK as u64, size);
                Ok(())
            })
        };
        // The order follows bonnie++, which rewrites the file that was written by the block, and times an fsync(2)
        // before each close(2). Bray's Bonnie rewrites first, and leaves the written data in the cache.
        let mut phases = Vec::new();
        if self.by_char {
            phases.push(alone("output per char", OpenMode::Create, put_chars)?);
        }
        phases.push(alone("output block", OpenMode::Create, put_blocks)?);
        phases.push(alone("rewrite", OpenMode::Change, rewrite)?);
        if self.by_char {
            phases.push(alone("input per char", OpenMode::Read, get_chars)?);
        }
        phases.push(alone("input block", OpenMode::Read, |file, _| {
            read_whole(file, &mut [0; CHUNK]).map(drop)
        })?);
        phases.push(seeks(context, size)?);
        Ok(phases)
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

/// Opens the file. In the mode `Create`, an existing file is removed first.
fn open(context: &WorkloadContext, how: OpenMode) -> io::Result<Box<dyn OpenFile>> {
    if how == OpenMode::Create {
        match context.files.remove_file(FILE) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    context.files.open(FILE, how)
}

/// A stream over an open file.
struct Stream<'f> {
    file: &'f dyn OpenFile,
    at: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buf, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write_at(buf, self.at)?;
        self.at += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn put_chars(file: &dyn OpenFile, size: u64) -> io::Result<()> {
    let mut stream = BufWriter::with_capacity(STDIO, Stream { file, at: 0 });
    for at in 0..size {
        stream.write_all(&[(at & 0x7f) as u8])?;
    }
    stream.flush()?;
    file.sync()
}

fn put_blocks(file: &dyn OpenFile, size: u64) -> io::Result<()> {
    write_span(file, 0, size, &[0x55; CHUNK])?;
    file.sync()
}

fn get_chars(file: &dyn OpenFile, size: u64) -> io::Result<()> {
    let mut counts = [0_u64; 256];
    for byte in BufReader::with_capacity(STDIO, Stream { file, at: 0 }).bytes() {
        counts[usize::from(byte?)] += 1;
    }
    // The sum is compared, as in Bonnie, so that the compiler cannot remove the loop.
    match counts.iter().sum::<u64>() == size {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn rewrite(file: &dyn OpenFile, size: u64) -> io::Result<()> {
    let mut chunk = [0; CHUNK];
    for at in (0..size).step_by(CHUNK) {
        touch(file, at, &mut chunk)?;
    }
    file.sync()
}

/// Reads a chunk, changes a byte, and writes the chunk back.
fn touch(file: &dyn OpenFile, at: u64, chunk: &mut [u8; CHUNK]) -> io::Result<()> {
    file.read_at(chunk, at)?;
    chunk[0] ^= 1;
    file.write_at(chunk, at)
}

fn seeks(context: &WorkloadContext, size: u64) -> Result<Phase> {
    let (begun, chunks) = (AtomicU64::new(0), (size / CHUNK as u64).max(1));
    let most = context.settings.scaled(SEEKS);
    ThreadGroup::new("random seeks", Measure::Rate, SEEKERS).run(context, |member| {
        let file = context.files.open(FILE, OpenMode::Change)?;
        let mut chunk = [0; CHUNK];
        while begun.fetch_add(1, Ordering::Relaxed) < most && !member.is_over() {
            let at = member.rng.u64(0..chunks) * CHUNK as u64;
            if member.rng.u8(0..10) == 0 {
                touch(&*file, at, &mut chunk)?;
            } else {
                file.read_at(&mut chunk, at)?;
            }
            member.count(1, CHUNK as u64);
        }
        Ok(())
    })
}

/// bonnie++'s empty files: created, looked up and removed, in the order of their names and in random order.
#[derive(Clone, Copy, Debug)]
pub struct EmptyFiles;

const FILES: u64 = 16 << 10;

impl Workload for EmptyFiles {
    fn prepare(&self, context: &WorkloadContext) -> Result<()> {
        context.files.create_dir("Bonnie").during("create", "Bonnie")
    }

    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let mut rng = context.rng(0);
        let mut phases = Vec::new();
        for order in ["sequential", "random"] {
            let mut names: Vec<String> =
                (0..context.settings.scaled(FILES)).map(|at| name(at, order, &mut rng)).collect();
            let files = &context.files;
            phases.push(each(context, format!("{order} create"), &names, |name| {
                files.open(name, OpenMode::Create).map(drop)
            })?);
            if order == "random" {
                rng.shuffle(&mut names);
            }
            phases.push(each(context, format!("{order} stat"), &names, |name| files.stat(name).map(drop))?);
            if order == "random" {
                rng.shuffle(&mut names);
            }
            phases.push(each(context, format!("{order} delete"), &names, |name| files.remove_file(name))?);
        }
        Ok(phases)
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.scaled(FILES) * 1024
    }
}

fn name(at: u64, order: &str, rng: &mut Rng) -> String {
    let letters: String = (0..rng.usize(0..=12)).map(|_| rng.alphanumeric()).collect();
    match order {
        "sequential" => format!("Bonnie/{at:07}{letters}"),
        _ => format!("Bonnie/{letters}{at:07}"),
    }
}

fn each(
    context: &WorkloadContext,
    phase: String,
    names: &[String],
    work: impl Fn(&str) -> io::Result<()> + Sync,
) -> Result<Phase> {
    ThreadGroup::new(phase, Measure::Rate, 1).run(context, |member| {
        for name in names {
            work(name)?;
        }
        member.count(names.len() as u64, 0);
        Ok(())
    })
}
