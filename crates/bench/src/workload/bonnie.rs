//! Bonnie: one large file written and read by the byte and by the block, rewritten, and sought in; and bonnie++'s files that
//! are made, looked at and removed.
//!
//! Source: T. Bray's Bonnie 2.0.6 (`Bonnie.c`: chunks of 16 KiB, 3 processes that seek 4,000 times in all, a tenth of what they
//! read is written back) and R. Coker's bonnie++ (names of seven digits and up to twelve letters). A processor of today does
//! nothing else than call `putc` in the phases by the byte, then as now: they measure the buffer of the standard library.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::error::During as _;
use crate::files::{How, OpenFile, read_whole, write_span};
use crate::random::Rng;
use crate::workload::{Cache, Load, Measure, Phase, Scene, Settings, Team};

const FILE: &str = "Bonnie.scratch";
const CHUNK: usize = 16 << 10;
/// The buffer of `putc` and `getc`.
const STDIO: usize = 4096;
const SEEKERS: usize = 3;
const SEEKS: u64 = 4000;

/// Bonnie's large file. It tells of the disk only if it is larger than the memory; Bray's advice is twice as large.
#[derive(Clone, Copy, Debug)]
pub struct Bonnie {
    /// Whether it writes and reads by the byte too, or leaves that out, as `bonnie++ -f`.
    pub by_char: bool,
}

impl Load for Bonnie {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, _: &Scene) -> Result<()> {
        Ok(())
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let size = scene.settings.file_size / CHUNK as u64 * CHUNK as u64;
        let alone = |name, how, work: fn(&dyn OpenFile, u64) -> io::Result<()>| {
            // Bonnie's clock runs from the first call on the open file: what was there before is removed ahead of it.
            let file = open(scene, how).during("open", FILE)?;
            Team::new(name, Measure::Throughput, 1).run(scene, |member| {
                work(&*file, size)?;
                member.count(size / CHUNK as u64, size);
                Ok(())
            })
        };
        // As bonnie++, which rewrites what was written by the block, and counts an fsync(2) before each close(2): Bray's Bonnie rewrites
        // first, and leaves what it wrote to the cache.
        let mut phases = Vec::new();
        if self.by_char {
            phases.push(alone("output per char", How::Create, put_chars)?);
        }
        phases.push(alone("output block", How::Create, put_blocks)?);
        phases.push(alone("rewrite", How::Change, rewrite)?);
        if self.by_char {
            phases.push(alone("input per char", How::Read, get_chars)?);
        }
        phases.push(alone("input block", How::Read, |file, _| read_whole(file, &mut [0; CHUNK]).map(drop))?);
        phases.push(seeks(scene, size)?);
        Ok(phases)
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

/// A file that is made is a new one.
fn open(scene: &Scene, how: How) -> io::Result<Box<dyn OpenFile>> {
    if how == How::Create {
        match scene.files.remove_file(FILE) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    scene.files.open(FILE, how)
}

/// An open file as a stream.
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
    // As Bonnie does, so that no compiler leaves the reading out.
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

/// Reads a chunk, changes a byte of it and writes it back.
fn touch(file: &dyn OpenFile, at: u64, chunk: &mut [u8; CHUNK]) -> io::Result<()> {
    file.read_at(chunk, at)?;
    chunk[0] ^= 1;
    file.write_at(chunk, at)
}

fn seeks(scene: &Scene, size: u64) -> Result<Phase> {
    let (begun, chunks) = (AtomicU64::new(0), (size / CHUNK as u64).max(1));
    let most = scene.settings.scaled(SEEKS);
    Team::new("random seeks", Measure::Rate, SEEKERS).run(scene, |member| {
        let file = scene.files.open(FILE, How::Change)?;
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

/// bonnie++'s empty files: made, looked at and removed, in the order of their names and in none.
#[derive(Clone, Copy, Debug)]
pub struct Files;

const FILES: u64 = 16 << 10;

impl Load for Files {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, scene: &Scene) -> Result<()> {
        scene.files.create_dir("Bonnie").during("create", "Bonnie")
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let mut rng = scene.rng(0);
        let mut phases = Vec::new();
        for order in ["sequential", "random"] {
            let mut names: Vec<String> =
                (0..scene.settings.scaled(FILES)).map(|at| name(at, order, &mut rng)).collect();
            let files = &scene.files;
            phases.push(each(scene, format!("{order} create"), &names, |name| {
                files.open(name, How::Create).map(drop)
            })?);
            if order == "random" {
                rng.shuffle(&mut names);
            }
            phases.push(each(scene, format!("{order} stat"), &names, |name| files.stat(name).map(drop))?);
            if order == "random" {
                rng.shuffle(&mut names);
            }
            phases.push(each(scene, format!("{order} delete"), &names, |name| files.remove_file(name))?);
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
    scene: &Scene,
    phase: String,
    names: &[String],
    work: impl Fn(&str) -> io::Result<()> + Sync,
) -> Result<Phase> {
    Team::new(phase, Measure::Rate, 1).run(scene, |member| {
        for name in names {
            work(name)?;
        }
        member.count(names.len() as u64, 0);
        Ok(())
    })
}
