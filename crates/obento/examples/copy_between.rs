//! Copies a tree from one image into another: `cargo run --example copy_between -- from.img /srv to.img /srv`.

use std::error::Error;

use obento::address::FileSelector;
use obento::copy::{CopyFrom, CopyOptions, CopySource, ImageTarget, Quiet, copy_in};
use obento::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, source, to, target] = &arguments[..] else {
        return Err("usage: copy_between IMAGE PATH IMAGE PATH".into());
    };
    let from = Image::open(from)?.volume(None)?;
    let to = Image::builder().for_change().open(to)?.volume(None)?;
    let path = FileSelector::Path(source.clone().into());
    let node = from.resolve(&path, Symlinks::Follow)?;
    let source = CopyFrom::Image(CopySource { node, path: source.clone().into(), prefix: Vec::new() });
    let place = FileSelector::Path(target.clone().into());
    let target = ImageTarget { volume: to.clone(), place, prefix: Vec::new() };
    let mut problems = Quiet::default();
    copy_in(&[source], &target, &CopyOptions::archive(), &mut problems)?;
    for problem in &problems.0 {
        eprintln!("{problem}");
    }
    to.close()?;
    Ok(())
}
