//! Replaces a word in a file of an image atomically: `cargo run --example edit -- disk.img /etc/hostname old
//! new`.

use std::error::Error;
use std::io::Write;

use obento::fs::OpenOptions;
use obento::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, path, from, to] = &arguments[..] else { return Err("usage: edit IMAGE PATH FROM TO".into()) };
    // Locks the image, and replays its journal if it was not closed cleanly.
    let volume = Image::builder().for_change().open(image)?.volume(None)?;
    let text = volume.read_to_string(path)?;
    let old = volume.metadata(path)?;
    let new = format!("{path}.new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(old.permissions()).open(&volume, &new)?;
    file.write_all(text.replace(from, to).as_bytes())?;
    volume.chown(&new, Some(old.uid()), Some(old.gid()))?;
    // Syncs the bytes before the rename: a power failure leaves the old file or the new one.
    file.sync_all()?;
    volume.rename(&new, path)?;
    // After this call, everything is on stable storage and the volume is clean.
    volume.close()?;
    Ok(())
}
