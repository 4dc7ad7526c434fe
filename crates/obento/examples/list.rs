//! Lists the files in an image: `cargo run --example list -- disk.img`.

use std::error::Error;

use obento::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or("usage: list IMAGE")?;
    let volume = Image::open(image)?.volume(None)?;
    for entry in volume.walk() {
        match entry {
            Ok(entry) if entry.step == Step::Leave => {}
            Ok(entry) => {
                let owner = volume.owners().user(entry.attr.uid).map(|name| escaped(name).to_string());
                let owner = owner.unwrap_or_else(|| entry.attr.uid.to_string());
                println!("{:>10} {owner:<8} /{}", entry.attr.size, escaped(&entry.path));
            }
            // Damage affects only the file that it belongs to; the walk continues.
            Err(damage) => eprintln!("/{}: {}", escaped(&damage.path), damage.error),
        }
    }
    Ok(())
}
