//! A mount of obento's beside the kernel's ext4 and fuse2fs: `cargo bench -p obento-cli --bench mount` (as root).
//!
//! Each line is a load, run on fresh images of one folder of the host in turn; the kernel prepares what a load needs, so
//! that all find the same. What is counted is said per load, and ends when all is durable; the median of the rounds is
//! shown in seconds, with the ratios and whether they keep what is aimed at. `OBENTO_BENCH_DIR` chooses the folder, which
//! needs 8 GiB; `OBENTO_BENCH_ROUNDS` the rounds (fuse2fs runs once); names of lines choose among them.

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

/// Who mounts.
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
    println!(
        "{:<16} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8}  aim",
        "seconds", "ordered", "journal", "fuse2fs", "obento", "/ordered", "/journal", "fuse2fs/"
    );
    for load in LOADS.iter().filter(|load| names.is_empty() || names.iter().any(|name| name == load.name)) {
        let mut times = SIDES.map(|_| Vec::new());
        for round in 0..rounds() {
            for (side, times) in SIDES.iter().zip(&mut times) {
                if *side != Side::Fuse2fs || (round == 0 && load.also_fuse2fs) {
                    times.push(one(folder.path(), *side, load).with_context(|| load.name)?);
                }
            }
        }
        report(load, times.map(median));
    }
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(load: &Load, [ordered, journal, fuse2fs, obento]: [f64; 4]) {
    let ratios = [obento / ordered, obento / journal, fuse2fs / obento];
    let kept = load.aims.iter().zip(ratios).enumerate().all(|(at, (aim, ratio))| match aim {
        None => true,
        // The last is how many times faster.
        Some(aim) if at == 2 => ratio >= *aim || ratio.is_nan(),
        Some(aim) => ratio <= *aim,
    });
    let number = |value: f64| if value.is_nan() { "-".to_owned() } else { format!("{value:.3}") };
    let [to_ordered, to_journal, by_fuse2fs] = ratios.map(|ratio| match ratio.is_nan() {
        true => "-".to_owned(),
        false => format!("{ratio:.2}"),
    });
    println!(
        "{:<16} {:>9} {:>9} {:>9} {:>9} {to_ordered:>8} {to_journal:>8} {by_fuse2fs:>8}  {}{}",
        load.name,
        number(ordered),
        number(journal),
        number(fuse2fs),
        number(obento),
        load.aim(),
        if kept { "" } else { ": MISSED" },
    );
}

fn rounds() -> usize {
    std::env::var("OBENTO_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// One round of one side: seconds of the load, and of bringing it to the host's file.
fn one(folder: &Path, side: Side, load: &Load) -> Result<f64> {
    let (image, at) = (folder.join("disk.img"), folder.join("mnt"));
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
    // What the kernel gathered goes to the file system, and what that gathered to the disk.
    let root = File::open(at)?;
    rustix::fs::syncfs(&root)?;
    root.sync_all()?;
    Ok(begin.elapsed().as_secs_f64())
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
