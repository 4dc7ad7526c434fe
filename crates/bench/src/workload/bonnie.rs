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
pub struct Bonnie;

impl Load for Bonnie {
    fn cache(&self) -> Cache {
        Cache::Kept
    }

    fn prepare(&self, _: &Scene) -> Result<()> {
        Ok(())
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Phase>> {
        let size = scene.settings.file_size / CHUNK as u64 * CHUNK as u64;
        let alone = |name, work: &(dyn Fn() -> io::Result<()> + Sync)| {
            Team::new(name, Measure::Throughput, 1).run(scene, |member| {
                work()?;
                member.count(size / CHUNK as u64, size);
                Ok(())
            })
        };
        let open = |how| scene.files.open(FILE, how);
        // Each output phase ends with close(2), and Bonnie syncs nothing in between.
        let phases = vec![
            alone("output per char", &|| put_chars(open(How::Create)?, size))?,
            alone("rewrite", &|| rewrite(&*open(How::Change)?, size))?,
            alone("output block", &|| write_span(&*open(How::Create)?, 0, size, &[0x55; CHUNK]))?,
            alone("input per char", &|| get_chars(open(How::Read)?, size))?,
            alone("input block", &|| read_whole(&*open(How::Read)?, &mut [0; CHUNK]).map(drop))?,
            seeks(scene, size)?,
        ];
        Ok(phases)
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.file_size
    }
}

/// An open file as a stream.
struct Stream {
    file: Box<dyn OpenFile>,
    at: u64,
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buf, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write_at(buf, self.at)?;
        self.at += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn put_chars(file: Box<dyn OpenFile>, size: u64) -> io::Result<()> {
    let mut stream = BufWriter::with_capacity(STDIO, Stream { file, at: 0 });
    for at in 0..size {
        stream.write_all(&[(at & 0x7f) as u8])?;
    }
    stream.flush()
}

fn get_chars(file: Box<dyn OpenFile>, size: u64) -> io::Result<()> {
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
    Ok(())
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
