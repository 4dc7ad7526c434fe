//! Measures reads of 4 KiB at random places of a file in an image, in one thread or several.
//!
//! `cargo run --release -p obento --example reads -- disk.img /file [COUNT] [THREADS]`

use std::error::Error;
use std::time::Instant;

use obento::address::FileSelector;
use obento::prelude::*;

const BLOCK: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, path, rest @ ..] = &arguments[..] else { return Err("usage: reads IMAGE PATH".into()) };
    let number = |at: usize, default| rest.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    let (count, threads) = (number(0, 1_000_000)?, number(1, 1)?);
    let volume = Image::open(image)?.volume(None)?;
    let node = volume.resolve(&FileSelector::Path(path.clone().into()), Symlinks::Follow)?;
    let blocks = (node.attr()?.size / BLOCK as u64).max(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for mut random in 1..=threads {
            let (node, mut block) = (&node, [0; BLOCK]);
            scope.spawn(move || {
                for _ in 0..count {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    node.read_at((random >> 33) % blocks * BLOCK as u64, &mut block).expect("readable");
                }
            });
        }
    });
    let nanoseconds = start.elapsed().as_nanos() / u128::from(count.max(1));
    println!("{nanoseconds} ns for one read in each of {threads} threads");
    Ok(())
}
