//! Lists the files in an image: `cargo run --example list -- disk.img [/path]`.

use std::error::Error;

use obento::{Image, Options, Registry, Step, escaped};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().ok_or("usage: list IMAGE [PATH]")?;
    let path = arguments.next().unwrap_or_else(|| "/".to_owned());
    let image = Image::open(image.as_ref(), &Registry::default(), &Options::default())?;
    let volume = image.volume(None)?;
    for entry in volume.walk(&path)? {
        match entry {
            Ok(entry) if entry.step == Step::Leave => {}
            Ok(entry) => {
                let owner = volume.owners().user(entry.attr.uid).map(|name| escaped(name).to_string());
                let owner = owner.unwrap_or_else(|| entry.attr.uid.to_string());
                println!("{:>10} {owner:<8} {}", entry.attr.size, escaped(&entry.path));
            }
            // Damage affects only the file that it belongs to; the walk continues.
            Err(damage) => eprintln!("{}: {}", escaped(&damage.path), damage.error),
        }
    }
    Ok(())
}
