//! Copies a tree from one image into another: `cargo run --example copy_between -- from.img /srv to.img /srv`.

use std::error::Error;
use std::io;

use obento::{FileKind, Image, Options, Registry, SetAttr, Step, Symlinks, TimeChange, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, source, to, target] = &arguments[..] else {
        return Err("usage: copy_between IMAGE PATH IMAGE PATH".into());
    };
    let registry = Registry::default();
    let to = Image::open(to.as_ref(), &registry, &Options::default().for_change())?;
    let from = Image::open(from.as_ref(), &registry, &Options::default())?;
    let (from, to) = (from.volume(None)?, to.volume(None)?);
    copy(&from, source, &to, target)?;
    to.close()?;
    Ok(())
}

fn copy(from: &Volume, source: &str, to: &Volume, target: &str) -> Result<(), Box<dyn Error>> {
    for entry in from.walk(source)? {
        let entry = entry.map_err(|damage| damage.error)?;
        let slash: &[u8] = if entry.path.is_empty() { b"" } else { b"/" };
        let old = [source.as_bytes(), slash, &entry.path].concat();
        let new = [target.as_bytes(), slash, &entry.path].concat();
        match entry.attr.kind {
            // Metadata is set after the contents, which would change the times again.
            FileKind::Directory if entry.step == Step::Leave => {}
            FileKind::Directory => {
                to.create_dir_all(&new)?;
                continue;
            }
            FileKind::Regular => {
                io::copy(&mut from.open(&old)?, &mut to.create(&new)?)?;
            }
            FileKind::Symlink => to.symlink(from.read_link(&old)?, &new)?,
            kind => to.mknod(&new, kind, entry.attr.mode, entry.attr.rdev)?,
        }
        let attr = &entry.attr;
        let change = SetAttr {
            mode: (attr.kind != FileKind::Symlink).then_some(attr.mode),
            uid: Some(attr.uid),
            gid: Some(attr.gid),
            mtime: Some(TimeChange::At(attr.mtime)),
            ..SetAttr::default()
        };
        to.set_attr(&new, Symlinks::Keep, &change)?;
        for name in from.list_xattrs(&old)? {
            to.set_xattr(&new, &name, from.xattr(&old, &name)?.unwrap_or_default())?;
        }
    }
    Ok(())
}
