//! Copies a tree out of an image: `cargo run --example extract -- disk.img /etc target`.

use std::error::Error;

use obento::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, path, target] = &arguments[..] else { return Err("usage: extract IMAGE PATH TARGET".into()) };
    let report = Image::open(image)?.volume(None)?.extract(path, target)?;
    for (loss, lost) in &report.written.lost {
        println!("{loss:?}: {} files", lost.count);
    }
    println!("{} files", report.written.files);
    Ok(())
}
