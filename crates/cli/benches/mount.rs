//! A mount of obento's beside the kernel's ext4 and fuse2fs: `cargo bench -p obento-cli --bench mount` (as root).
//!
//! Each line is a load, run on fresh images of one folder of the host in turn; what is counted is said per line, and the
//! median of the rounds is shown in seconds, with the ratio to the kernel's `data=ordered`. `OBENTO_BENCH_DIR` chooses the
//! folder, which needs 8 GiB; `OBENTO_BENCH_ROUNDS` the rounds; names of lines choose among them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;

/// Who mounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ordered,
    Journal,
    Fuse2fs,
    Obento,
}

const SIDES: [Side; 4] = [Side::Ordered, Side::Journal, Side::Fuse2fs, Side::Obento];

/// A load: its name, what is done before, and what is counted.
type Load = (&'static str, fn(&Path) -> Result<()>, fn(&Path) -> Result<()>);

const LOADS: [Load; 8] = [
    ("create", nothing, create),
    ("list-cold", create, list),
    ("remove", create, remove),
    ("write-4k", nothing, |folder| write(folder, 4 << 10)),
    ("write-1m", nothing, |folder| write(folder, 1 << 20)),
    ("random-4k", |folder| write(folder, 1 << 20), random),
    ("read-cached", |folder| write(folder, 1 << 20), read_twice),
    ("varmail", nothing, varmail),
];

const FILES: usize = 20_000;
const LARGE: usize = 256 << 20;

fn main() -> Result<()> {
    let needed = [Oracle::LoopMount, Oracle::Fuse, Oracle::Program("mke2fs"), Oracle::Program("fuse2fs")];
    if !require(&needed) {
        return Ok(());
    }
    let names: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    println!(
        "{:<14} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "seconds", "ordered", "journal", "fuse2fs", "obento", "ratio"
    );
    for load in LOADS.iter().filter(|load| names.is_empty() || names.iter().any(|name| name == load.0)) {
        let mut times = SIDES.map(|_| Vec::new());
        for _ in 0..rounds() {
            for (side, times) in SIDES.iter().zip(&mut times) {
                times.push(one(folder.path(), *side, load).with_context(|| load.0)?);
            }
        }
        let median = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        let [ordered, journal, fuse2fs, obento] = median;
        let ratio = obento / ordered;
        println!("{:<14} {ordered:>9.3} {journal:>9.3} {fuse2fs:>9.3} {obento:>9.3} {ratio:>7.2}", load.0);
    }
    Ok(())
}

fn rounds() -> usize {
    std::env::var("OBENTO_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// One round of one side: seconds of the load, and of bringing it to the host's file.
fn one(folder: &Path, side: Side, (name, before, load): &Load) -> Result<f64> {
    let (image, at) = (folder.join("disk.img"), folder.join("mnt"));
    fs::create_dir_all(&at)?;
    let _ = fs::remove_file(&image);
    run(program("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("2G"))?;
    mount(side, &image, &at)?;
    before(&at)?;
    if *name == "list-cold" {
        umount(side, &at)?;
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        mount(side, &image, &at)?;
    }
    let begin = Instant::now();
    load(&at)?;
    rustix::fs::syncfs(File::open(&at)?)?;
    let time = begin.elapsed().as_secs_f64();
    umount(side, &at)?;
    Ok(time)
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
    run(command.arg(at)).map(drop)
}

fn nothing(_: &Path) -> Result<()> {
    Ok(())
}

/// 20,000 files of 1 KiB in 20 directories.
fn create(folder: &Path) -> Result<()> {
    for directory in 0..20 {
        let directory = folder.join(format!("d{directory}"));
        fs::create_dir(&directory)?;
        for number in 0..FILES / 20 {
            fs::write(directory.join(format!("{number:08}")), [b'x'; 1024])?;
        }
    }
    Ok(())
}

fn list(folder: &Path) -> Result<()> {
    let output = run(program("find").arg(folder).arg("-ls"))?;
    let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
    ensure!(lines > FILES, "{lines} lines");
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    for directory in 0..20 {
        fs::remove_dir_all(folder.join(format!("d{directory}")))?;
    }
    Ok(())
}

/// 256 MiB in sequence, and durable.
fn write(folder: &Path, size: usize) -> Result<()> {
    let file = File::create(folder.join("large"))?;
    let bytes = vec![b'x'; size];
    (0..LARGE).step_by(size).try_for_each(|place| file.write_all_at(&bytes, place as u64))?;
    Ok(file.sync_all()?)
}

/// 16,384 writes of 4 KiB at places that look random, and durable.
fn random(folder: &Path) -> Result<()> {
    let file = File::options().write(true).open(folder.join("large"))?;
    let mut place = 1_usize;
    for _ in 0..16_384 {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.write_all_at(&[b'y'; 4096], ((place >> 33) % (LARGE / 4096) * 4096) as u64)?;
    }
    Ok(file.sync_all()?)
}

/// 256 MiB ten times, from the page cache but for the first.
fn read_twice(folder: &Path) -> Result<()> {
    let file = File::open(folder.join("large"))?;
    let mut bytes = vec![0; 1 << 20];
    for _ in 0..10 {
        (0..LARGE).step_by(bytes.len()).try_for_each(|place| file.read_exact_at(&mut bytes, place as u64))?;
    }
    Ok(())
}

/// 16 threads, each 100 times: a file of 16 KiB, durable, read again, every second one removed.
fn varmail(folder: &Path) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|thread| {
                scope.spawn(move || -> Result<()> {
                    for round in 0..100 {
                        let path = folder.join(format!("{thread}-{round}"));
                        fs::write(&path, [b'm'; 16 << 10])?;
                        File::open(&path)?.sync_all()?;
                        ensure!(fs::read(&path)?.len() == 16 << 10);
                        if round % 2 == 0 {
                            fs::remove_file(&path)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}
