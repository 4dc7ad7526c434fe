//! Reads random blocks of 4 KiB of a file, in one thread or several. The file is in an image and read through the
//! library, or on the host and read through the kernel.
//!
//! `cargo run --release -p obento --example reads -- [buffered|mmap|host] FILE [PATH-IN-IMAGE] [COUNT] [THREADS]`

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use obento::{FileSelector, Image, IoBackend, Options, Registry, Symlinks};

const BLOCK: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default: &'static str| args.get(at).cloned().unwrap_or_else(|| default.into());
    let (file, count, threads) = (arg(1, ""), arg(3, "1000000").parse()?, arg(4, "1").parse()?);
    match arg(0, "buffered").as_str() {
        "host" => {
            let file = File::open(file)?;
            let len = file.metadata()?.len();
            measure(len, count, threads, |at, block| {
                file.read_exact_at(block, at).expect("the file is readable")
            });
        }
        io => {
            let io = if io == "mmap" { IoBackend::Mmap } else { IoBackend::Buffered };
            let image =
                Image::open(file.as_ref(), &Registry::default(), &Options { io, ..Options::default() })?;
            let volume = image.volume(None)?;
            let node = volume.resolve(&FileSelector::Path(arg(2, "/").into_bytes()), Symlinks::Follow)?;
            measure(node.attr()?.size, count, threads, |at, block| {
                assert_eq!(node.read_at(at, block), Ok(BLOCK));
            });
        }
    }
    Ok(())
}

/// Reads `count` blocks in each thread, and prints the time of one.
fn measure(len: u64, count: u64, threads: usize, read: impl Fn(u64, &mut [u8]) + Sync) {
    let blocks = (len / BLOCK as u64).max(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let read = &read;
            scope.spawn(move || {
                let mut random = thread as u64 + 1;
                let mut block = [0; BLOCK];
                for _ in 0..count {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    read((random >> 33) % blocks * BLOCK as u64, &mut block);
                }
            });
        }
    });
    let nanoseconds = start.elapsed().as_nanos() / u128::from(count.max(1));
    println!("{nanoseconds} ns for one read in each of {threads} threads");
}
