//! Copies a tree into an image: `cargo run --example insert -- disk.img folder /srv`.

use std::error::Error;

use obento::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, source, path] = &arguments[..] else { return Err("usage: insert IMAGE SOURCE PATH".into()) };
    let volume = Image::builder().for_change().open(image)?.volume(None)?;
    let report = volume.insert(source, path)?;
    volume.close()?;
    println!("{} files", report.written.files);
    Ok(())
}
