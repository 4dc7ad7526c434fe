//! Changing a volume in this process, compared with the same calls to the kernel's ext4 on a loop mount of an identical
//! image. Run `cargo bench -p obento-ext4 --bench writing` as root, with 10 GiB in `OBENTO_BENCH_DIR`.
//!
//! Both image files are in one folder of the host, so both sides use its page cache and its disk. Both sides run in
//! turns, directly one after the other, so that other load of the machine affects both. A table follows criterion's
//! lines. It contains the medians, the median of the paired ratios of obento to the kernel, and the flushes of each
//! operation. A second table shows how costs grow with a directory of up to `OBENTO_BENCH_FILES` files (1,000,000; 0
//! omits it). A filter for criterion selects lines; `OBENTO_BENCH_ALONE=unlink:2:10000` runs one operation of obento
//! alone.

mod alone;
mod growth;
mod operations;
mod sides;

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use criterion::{Criterion, SamplingMode};
use obento_driver::DataMode;
use obento_testkit::oracle::{Oracle, call};
use obento_testkit::require;

use operations::Operation;
use sides::{Kernel, Ours, Side};

/// Measurements in pairs, first obento.
#[derive(Default)]
struct Samples {
    nanoseconds: [Vec<f64>; 2],
    ratios: Vec<f64>,
    flushes: [u64; 2],
    count: u64,
}

fn main() -> Result<()> {
    if !require(&[Oracle::LoopMount, Oracle::Program("mke2fs")]) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("obento-bench-").tempdir_in(scratch())?;
    if let Ok(wish) = std::env::var("OBENTO_BENCH_ALONE") {
        return alone::run(folder.path(), &wish);
    }
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(11)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut table = Vec::new();
    for mode in [DataMode::Ordered, DataMode::Journal] {
        let images = ["obento", "kernel"].map(|name| format(folder.path(), name, 4 << 30, &["-N", "100000"]));
        let [ours, kernel] = images;
        let sides: [Box<dyn Side>; 2] =
            [Box::new(Ours::open(&ours?, mode)?), Box::new(Kernel::open(&kernel?, mode)?)];
        for operation in Operation::ALL {
            for threads in [1, 2] {
                table.push((mode, operation, threads, measure(&mut criterion, &sides, operation, threads)?));
            }
        }
        sides.into_iter().try_for_each(Side::close)?;
    }
    criterion.final_summary();
    println!(
        "\n{:<12} {:<22} {:>7} {:>10} {:>10} {:>6} {:>17}",
        "", "", "threads", "obento ns", "kernel ns", "ratio", "flushes each"
    );
    for (mode, operation, threads, samples) in &mut table {
        let Some(ratio) = median(&mut samples.ratios) else { continue };
        let [ours, kernel] = samples.nanoseconds.each_mut().map(|side| median(side).unwrap_or(f64::NAN));
        let [our_flushes, kernel_flushes] =
            samples.flushes.map(|flushes| flushes as f64 / samples.count as f64);
        println!(
            "{:<12} {:<22} {threads:>7} {ours:>10.0} {kernel:>10.0} {ratio:>6.2} {our_flushes:>8.3} {kernel_flushes:>8.3}",
            format!("{mode:?}"),
            operation.name(),
        );
    }
    match std::env::var("OBENTO_BENCH_FILES").map_or(Ok(1_000_000), |files| files.parse())? {
        0 => Ok(()),
        files => growth::compare(folder.path(), files),
    }
}

/// Prints two lines of criterion, or none if the command line filters them out.
fn measure(
    criterion: &mut Criterion,
    sides: &[Box<dyn Side>; 2],
    operation: Operation,
    threads: u64,
) -> Result<Samples> {
    for side in sides {
        operation.prepare(&**side, threads)?;
    }
    let samples = RefCell::new(Samples::default());
    let mut group = criterion.benchmark_group(format!("{}, {threads} threads", operation.name()));
    group.sampling_mode(SamplingMode::Flat);
    for (reported, side) in sides.iter().enumerate() {
        group.bench_function(side.name(), |bencher| {
            bencher.iter_custom(|count| {
                let pair = run_pair(sides, operation, threads, count, &mut samples.borrow_mut());
                pair.expect("the volumes are sound and have room")[reported]
            });
        });
    }
    group.finish();
    Ok(samples.into_inner())
}

/// Runs both sides, starting with each in turn.
fn run_pair(
    sides: &[Box<dyn Side>; 2],
    operation: Operation,
    threads: u64,
    count: u64,
    samples: &mut Samples,
) -> Result<[Duration; 2]> {
    let mut times = [Duration::ZERO; 2];
    let order = if samples.ratios.len().is_multiple_of(2) { [0, 1] } else { [1, 0] };
    for n in order {
        let side = &*sides[n];
        side.sync()?;
        let before = side.flushes();
        times[n] = operation.run(side, threads, count)?;
        samples.flushes[n] += side.flushes() - before;
        samples.nanoseconds[n].push(times[n].as_nanos() as f64 / count as f64);
    }
    samples.count += count;
    samples.ratios.push(times[0].as_secs_f64() / times[1].as_secs_f64());
    Ok(times)
}

fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

/// Returns the folder for images.
fn scratch() -> PathBuf {
    std::env::var_os("OBENTO_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Returns an empty volume of `len` bytes, with blocks of 4 KiB.
fn format(folder: &Path, name: &str, len: u64, arguments: &[&str]) -> Result<PathBuf> {
    let image = folder.join(format!("{name}.img"));
    File::create(&image)?.set_len(len)?;
    let common = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    let arguments = common.iter().chain(arguments).map(|argument| (*argument).into());
    call("mke2fs", arguments.chain([image.clone().into_os_string()]))?;
    Ok(image)
}
