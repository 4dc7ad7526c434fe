//! Copies a tree out of an image: `cargo run --example extract -- disk.img /etc target`.

use std::error::Error;

use obento::{CopyOptions, CopySource, FileSelector, Image, Options, Quiet, Registry, Symlinks, copy_out};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, path, target] = &arguments[..] else { return Err("usage: extract IMAGE PATH TARGET".into()) };
    let opened = Image::open(image.as_ref(), &Registry::default(), &Options::default())?;
    let volume = opened.volume(None)?;
    let node = volume.resolve(&FileSelector::Path(path.clone().into()), Symlinks::Follow)?;
    let source = CopySource { node, path: path.clone().into(), prefix: format!("{image}:").into() };
    let options = CopyOptions { spared: opened.host_files().to_vec(), ..CopyOptions::archive() };
    let mut problems = Quiet::default();
    let report = copy_out(&[source], target.as_ref(), &options, &mut problems)?;
    for problem in &problems.0 {
        eprintln!("{problem}");
    }
    for (loss, lost) in &report.written.lost {
        eprintln!("{loss:?}: {} files", lost.count);
    }
    Ok(())
}
