//! Compares checking an image with e2fsck: `cargo bench -p obento-cli --bench check`.
//!
//! Each line is a ratio of whole commands, `obento check -n` to `e2fsck -fn` on the same image file. It shows the
//! median of paired rounds, and the peak memory of each (`VmHWM`, read every few milliseconds). All data is in the page
//! cache on both sides. Arguments select lines by name. `OBENTO_BENCH_DIR` sets the folder, which needs 8 GiB, and
//! `OBENTO_BENCH_ROUNDS` the number of rounds.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use obento_testkit::oracle::{Oracle, call, program};
use obento_testkit::require;

/// Files in each directory of a tree.
const WIDTH: u64 = 1_000;

/// An image to be checked.
struct Line {
    name: &'static str,
    what: &'static str,
    len: u64,
    files: u64,
}

const LINES: &[Line] = &[
    Line { name: "hundred", what: "100,000 files", len: 2 << 30, files: 100_000 },
    Line { name: "million", what: "1,000,000 files", len: 8 << 30, files: 1_000_000 },
    Line { name: "sparse", what: "1 TiB, empty", len: 1 << 40, files: 0 },
];

fn main() -> Result<()> {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    println!("{} rounds each; ratio below 1: obento is faster\n", rounds());
    println!(
        "{:<20} {:>9} {:>9} {:>7} {:>7} {:>7} {:>11} {:>11}",
        "", "obento", "e2fsck", "ratio", "least", "most", "obento MiB", "e2fsck MiB"
    );
    for line in LINES.iter().filter(|line| chosen(line.name)) {
        let image = make(folder.path(), line)?;
        compare(line.what, &image)?;
        fs::remove_file(&image)?;
    }
    Ok(())
}

/// Returns whether a line is selected: without arguments, all lines are.
fn chosen(line: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|name| name == line)
}

fn rounds() -> usize {
    std::env::var("OBENTO_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(7)
}

fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Creates the image, and fills it by `obento import`.
fn make(folder: &Path, line: &Line) -> Result<PathBuf> {
    let image = folder.join(line.name);
    File::create(&image)?.set_len(line.len)?;
    let inodes = format!("{}", line.files + line.files / WIDTH + 1_000);
    let mut mke2fs = program("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4"]);
    if line.files > 0 {
        mke2fs.args(["-N", &inodes]);
    }
    ensure!(mke2fs.arg(&image).status()?.success(), "mke2fs fails");
    if line.files > 0 {
        let mut to = image.clone().into_os_string();
        to.push(":/");
        let mut import = obento().arg("import").arg(to).stdin(Stdio::piped()).spawn()?;
        let mut pipe = BufWriter::new(import.stdin.take().context("a pipe")?);
        write_tar(&mut pipe, line.files)?;
        drop(pipe);
        ensure!(import.wait()?.success(), "obento import fails");
    }
    call("e2fsck", ["-fn".as_ref(), image.as_os_str()])?;
    Ok(image)
}

/// Returns an archive of `files` files of one byte, [`WIDTH`] in a directory.
fn write_tar(out: &mut impl std::io::Write, files: u64) -> Result<()> {
    for number in 0..files {
        let directory = number / WIDTH;
        if number.is_multiple_of(WIDTH) {
            out.write_all(&header(&format!("d{directory:04}/"), b'5', 0))?;
        }
        out.write_all(&header(&format!("d{directory:04}/file-{number:07}"), b'0', 1))?;
        let mut data = [0; 512];
        data[0] = b'x';
        out.write_all(&data)?;
    }
    out.write_all(&[0; 1024])?;
    Ok(out.flush()?)
}

/// Returns a header of POSIX ustar.
fn header(name: &str, kind: u8, len: u64) -> [u8; 512] {
    let mut block = [0; 512];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, if kind == b'5' { b"0000755\0" } else { b"0000644\0" });
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{len:011o}\0").as_bytes());
    put(136, b"07346545000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// The cost of one run.
struct Run {
    time: Duration,
    /// Peak memory in KiB.
    memory: u64,
}

/// Runs both in turn, once to warm up, and prints the medians and the ratio of each pair.
fn compare(what: &str, image: &Path) -> Result<()> {
    let ours = || run(obento().args(["check", "-n", "-q"]).arg(image));
    let theirs = || run(program("e2fsck").arg("-fn").arg(image));
    ours()?;
    theirs()?;
    let pairs = (0..rounds()).map(|_| Ok((ours()?, theirs()?))).collect::<Result<Vec<_>>>()?;
    let sorted = |pick: fn(&(Run, Run)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let middle = pairs.len() / 2;
    let seconds = |pick: fn(&(Run, Run)) -> f64| sorted(pick)[middle];
    let ratios = sorted(|(a, b)| a.time.as_secs_f64() / b.time.as_secs_f64());
    let most = |pick: fn(&(Run, Run)) -> u64| pairs.iter().map(pick).max().unwrap_or(0).div_ceil(1024);
    println!(
        "{what:<20} {:>8.3}s {:>8.3}s {:>7.2} {:>7.2} {:>7.2} {:>11} {:>11}",
        seconds(|pair| pair.0.time.as_secs_f64()),
        seconds(|pair| pair.1.time.as_secs_f64()),
        ratios[middle],
        ratios[0],
        ratios[pairs.len() - 1],
        most(|pair| pair.0.memory),
        most(|pair| pair.1.memory),
    );
    Ok(())
}

fn obento() -> Command {
    Command::new(std::env::var_os("OBENTO_BENCH_COMMAND").unwrap_or(env!("CARGO_BIN_EXE_obento").into()))
}

/// Runs a command to its end and discards its output.
fn run(command: &mut Command) -> Result<Run> {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut memory = 0;
    let ended = loop {
        memory = memory.max(peak(&status).unwrap_or(0));
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let time = started.elapsed();
    ensure!(ended.success(), "{command:?}: {ended}");
    Ok(Run { time, memory })
}

fn peak(status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}
