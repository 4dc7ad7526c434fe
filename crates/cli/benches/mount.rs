//! Compares a mount of obento with the kernel's ext4 and with fuse2fs: `cargo bench -p obento-cli --bench mount` (as
//! root).
//!
//! Each line is a load. The kernel prepares its files once. Every run begins with a copy of that image in one folder of
//! the host, so that all sides have the same start. The sides take turns, in reverse order every second time. Each load
//! states what is measured, and ends when all changes are durable. The table, in Markdown, contains medians in seconds,
//! the spread of both compared sides, the ratios, and the missed targets. A disturbed round is marked, for example if
//! cached pages were dropped before they were read. `OBENTO_BENCH_DIR` sets the folder, which needs 8 GiB of space, and
//! `OBENTO_BENCH_ROUNDS` the number of rounds (fuse2fs runs once). Arguments select lines by name.

#[path = "mount/loads.rs"]
mod loads;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;

use loads::{LOADS, Load, Start};

/// The server of a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ordered,
    Journal,
    Fuse2fs,
    Obento,
}

const SIDES: [Side; 4] = [Side::Ordered, Side::Journal, Side::Fuse2fs, Side::Obento];

fn main() -> Result<()> {
    let needed = [Oracle::LoopMount, Oracle::Fuse, Oracle::Program("mke2fs"), Oracle::Program("fuse2fs")];
    if !require(&needed) {
        return Ok(());
    }
    let names: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    let begin = Instant::now();
    println!("{}\n", circumstances()?);
    println!(
        "| seconds | ordered | journal | fuse2fs | obento | to ordered | to journal | times fuse2fs | spread of ordered, obento | aim |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    for load in LOADS.iter().filter(|load| names.is_empty() || names.iter().any(|name| name == load.name)) {
        let times = measured(folder.path(), load).with_context(|| load.name)?;
        if !report(load, times) {
            missed.push(load.name);
        }
    }
    println!("\n{:.0} s in all; {}", begin.elapsed().as_secs_f64(), circumstances()?);
    println!("missed: {}", if missed.is_empty() { "none".into() } else { missed.join(", ") });
    Ok(())
}

/// The folder, and the sides to compare.
fn circumstances() -> Result<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    let processors = std::thread::available_parallelism()?;
    Ok(format!("Linux {}, {processors} processors, load average {load}, {} rounds", kernel.trim(), rounds()))
}

/// The seconds of each side.
fn measured(folder: &Path, load: &Load) -> Result<[Vec<f64>; 4]> {
    let prepared = prepare(folder, load)?;
    let mut times = SIDES.map(|_| Vec::new());
    for round in 0..rounds() {
        let mut sides: Vec<_> = SIDES.iter().zip(&mut times).collect();
        if round % 2 == 1 {
            sides.reverse();
        }
        for (side, times) in sides {
            if *side != Side::Fuse2fs || (round == 0 && load.also_fuse2fs) {
                times.push(one(folder, &prepared, *side, load)?);
            }
        }
    }
    fs::remove_file(prepared)?;
    Ok(times)
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(times: &[f64]) -> String {
    let (least, most) = times.iter().fold((f64::MAX, 0_f64), |(l, m), &time| (l.min(time), m.max(time)));
    format!("{least:.3} to {most:.3}")
}

/// Prints a line. Returns whether it meets the targets.
fn report(load: &Load, times: [Vec<f64>; 4]) -> bool {
    let [ordered, journal, fuse2fs, obento] = times.each_ref().map(|times| median(times));
    let ratios = [obento / ordered, obento / journal, fuse2fs / obento];
    let kept = load.aims.iter().zip(ratios).enumerate().all(|(at, (aim, ratio))| match aim {
        None => true,
        // The last ratio is that of fuse2fs: the mount of obento is this many times faster.
        Some(aim) if at == 2 => ratio >= *aim || ratio.is_nan(),
        Some(aim) => ratio <= *aim,
    });
    let number = |value: f64| if value.is_nan() { "-".to_owned() } else { format!("{value:.3}") };
    let seconds = [ordered, journal, fuse2fs, obento].map(number).join(" | ");
    let ratios = ratios.map(|ratio| match ratio.is_nan() {
        true => "-".to_owned(),
        false => format!("{ratio:.2}"),
    });
    println!(
        "| `{}` | {seconds} | {} | {}; {} | {}{} |",
        load.name,
        ratios.join(" | "),
        spread(&times[0]),
        spread(&times[3]),
        load.aim(),
        if kept { "" } else { " **missed**" },
    );
    kept
}

fn rounds() -> usize {
    std::env::var("OBENTO_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Creates an image with the files of `load`.
fn prepare(folder: &Path, load: &Load) -> Result<PathBuf> {
    let (image, at) = (folder.join("prepared.img"), folder.join("mnt"));
    fs::create_dir_all(&at)?;
    let _ = fs::remove_file(&image);
    run(program("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&image)
        .arg("4G"))?;
    if let Some(before) = load.before {
        mount(Side::Ordered, &image, &at)?;
        let prepared = before(&at);
        umount(Side::Ordered, &at)?;
        prepared?;
    }
    Ok(image)
}

/// Runs one round of one side. Returns the seconds of the load, and of writing the changes to the file of the
/// host.
fn one(folder: &Path, prepared: &Path, side: Side, load: &Load) -> Result<f64> {
    let (image, at) = (folder.join("disk.img"), folder.join("mnt"));
    let _ = fs::remove_file(&image);
    run(program("cp").arg("--sparse=always").arg(prepared).arg(&image))?;
    let file = File::open(&image)?;
    file.sync_all()?;
    if load.start == Start::Cold {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    mount(side, &image, &at)?;
    let timed = timed(load, &at);
    umount(side, &at)?;
    fs::remove_file(&image)?;
    timed
}

fn timed(load: &Load, at: &Path) -> Result<f64> {
    if let Some(warm) = load.warm {
        warm(at)?;
    }
    let begin = Instant::now();
    (load.run)(at)?;
    // The kernel writes the gathered data to the file system, and the file system to the disk.
    let root = File::open(at)?;
    rustix::fs::syncfs(&root)?;
    root.sync_all()?;
    let elapsed = begin.elapsed().as_secs_f64();
    if load.stays_cached && !is_cached(&at.join(loads::LARGE_NAME))? {
        println!("(disturbed: {} at {}: its pages were taken away)", load.name, at.display());
    }
    Ok(elapsed)
}

/// Whether all pages of a file are in memory.
fn is_cached(file: &Path) -> Result<bool> {
    let said = run(program("fincore").args(["-n", "-b", "-r", "-o", "RES,SIZE"]).arg(file))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut words = said.split_whitespace();
    Ok(words.next() == words.next())
}

fn mount(side: Side, image: &Path, at: &Path) -> Result<()> {
    let mut command = match side {
        Side::Ordered | Side::Journal => program("mount"),
        Side::Fuse2fs => program("fuse2fs"),
        Side::Obento => Command::new(env!("CARGO_BIN_EXE_obento")),
    };
    match side {
        Side::Ordered => command.args(["-t", "ext4", "-o", "loop,data=ordered"]),
        Side::Journal => command.args(["-t", "ext4", "-o", "loop,data=journal"]),
        Side::Fuse2fs => command.args(["-o", "fakeroot"]),
        Side::Obento => command.arg("mount"),
    };
    run(command.arg(image).arg(at)).map(drop)
}

fn umount(side: Side, at: &Path) -> Result<()> {
    let mut command = match side {
        Side::Obento => Command::new(env!("CARGO_BIN_EXE_obento")),
        _ => program("umount"),
    };
    command.args((side == Side::Obento).then_some("umount"));
    run(command.arg(at)).map(drop)?;
    if side == Side::Fuse2fs {
        // It ends after umount(8) has returned, and has the image until then.
        while Command::new("pidof").arg("fuse2fs").output()?.status.success() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    Ok(())
}
