//! One operation of obento alone, without criterion and without the kernel, for a profiler.

use std::path::Path;

use anyhow::{Context as _, Result};
use obento_driver::DataMode;

use crate::operations::Operation;
use crate::sides::{Ours, Side as _};

/// Number of measured rounds.
const ROUNDS: u64 = 10;

/// Runs the operation that `wish` describes by name, threads and count per round: `unlink:2:10000`. Prints
/// nanoseconds.
pub fn run(folder: &Path, wish: &str) -> Result<()> {
    let mut words = wish.split(':');
    let name = words.next().unwrap_or_default();
    let operation = Operation::ALL.into_iter().find(|operation| operation.name() == name);
    let operation = operation.with_context(|| format!("no operation is called {name}"))?;
    let threads = words.next().map_or(Ok(1), str::parse)?;
    let count = words.next().map_or(Ok(10_000), str::parse)?;
    let image = crate::format(folder, "alone", 4 << 30, &["-N", "100000"])?;
    let ours = Ours::open(&image, DataMode::Ordered)?;
    operation.prepare(&ours, threads)?;
    let each = |time: std::time::Duration| time.as_nanos() as f64 / count as f64;
    let mut rounds = (0..ROUNDS)
        .map(|_| ours.sync().and_then(|()| operation.run(&ours, threads, count)).map(each))
        .collect::<Result<Vec<_>>>()?;
    let median = crate::median(&mut rounds).unwrap_or(f64::NAN);
    println!("{name}, {threads} threads: {median:.0} ns, at best {:.0}", rounds[0]);
    Box::new(ours).close()
}
