//! Growth of the cost of a create, a lookup and an unlink with the size of the directory.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use obento_driver::DataMode;

use crate::sides::{Folder, Kernel, Ours, Side};

/// Number of operations of one measurement.
const SAMPLE: u64 = 5_000;
const SMALL: u64 = 10_000;

/// Nanoseconds of one create, one lookup and one unlink.
type Costs = [f64; 3];

/// Prints costs and growth on both sides. Each lookup starts with only the image's pages in memory, and nothing of
/// the directory.
pub fn compare(folder: &Path, large: u64) -> Result<()> {
    let blank =
        crate::format(folder, "growth", 4 << 30, &["-N", &(large + 100_000).to_string(), "-O", "large_dir"])?;
    let other = folder.join("growth-kernel.img");
    std::fs::copy(&blank, &other)?;
    let title = format!("{SMALL} and {large} files in one directory, ns");
    println!("\n{title:<45} {:>10} {:>10} {:>10}", "create", "lookup", "unlink");
    let ours: &Open<'_> = &|| Ok(Box::new(Ours::open(&blank, DataMode::Ordered)?));
    let kernel: &Open<'_> = &|| Ok(Box::new(Kernel::open(&other, DataMode::Ordered)?));
    for (name, open) in [("obento", ours), ("kernel", kernel)] {
        fill(open, 0..SMALL)?;
        let before = measure(open, SMALL)?;
        fill(open, SMALL..large)?;
        let after = measure(open, large)?;
        let growth: Costs = std::array::from_fn(|n| after[n] / before[n]);
        for (what, [create, lookup, unlink], digits) in
            [("small", before, 0), ("large", after, 0), ("growth", growth, 2)]
        {
            let label = format!("{name}, {what}");
            println!("{label:<45} {create:>10.digits$} {lookup:>10.digits$} {unlink:>10.digits$}");
        }
    }
    Ok(())
}

type Open<'a> = dyn Fn() -> Result<Box<dyn Side>> + 'a;

fn name(n: u64) -> String {
    format!("file{n:08}")
}

fn fill(open: &Open<'_>, range: Range<u64>) -> Result<()> {
    let side = open()?;
    let folder = side.folder("large")?;
    range.clone().try_for_each(|n| folder.create(&name(n)))?;
    drop(folder);
    side.close()
}

/// Measures with `count` existing files, which exist afterwards, too.
fn measure(open: &Open<'_>, count: u64) -> Result<Costs> {
    // Coprime to both sizes: files from the whole directory, none of them twice.
    let some: Vec<_> = (0..SAMPLE).map(|n| name((n * 7919 + 13) % count)).collect();
    let fresh: Vec<_> = (0..SAMPLE).map(|n| format!("new{n:08}")).collect();
    let lookup = time(open, &some, &|folder, name| folder.stat(name).map(drop))?;
    let create = time(open, &fresh, &|folder, name| folder.create(name))?;
    let unlink = time(open, &some, &|folder, name| folder.unlink(name))?;
    time(open, &some, &|folder, name| folder.create(name))?;
    time(open, &fresh, &|folder, name| folder.unlink(name))?;
    Ok([create, lookup, unlink])
}

fn time(open: &Open<'_>, names: &[String], act: &dyn Fn(&dyn Folder, &str) -> Result<()>) -> Result<f64> {
    let side = open()?;
    let folder = side.folder("large")?;
    let start = Instant::now();
    names.iter().try_for_each(|name| act(&*folder, name))?;
    let time = start.elapsed();
    drop(folder);
    side.close()?;
    Ok(time.as_nanos() as f64 / names.len() as f64)
}
