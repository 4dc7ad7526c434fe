//! Damaged volumes: every operation ends with a result or an error, in bounded time, and reads no bytes outside of
//! the volume.

mod common;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use common::FORMAT;
use obento_base::{Corrupt, Error};
use obento_block::MemDevice;
use obento_driver::{Cookie, FileSystem, LayoutLock};

fn mutants(shape: &str, seeds: std::ops::Range<u64>) {
    if let Some(sound) = FORMAT.filled(shape) {
        FORMAT.mutants(shape, &sound, seeds);
    }
}

#[test]
fn mutants_of_fat12_end_with_an_answer_or_an_error() {
    mutants("fat12", 0..200);
}

#[test]
fn mutants_of_fat16_end_with_an_answer_or_an_error() {
    mutants("fat16", 1000..1030);
}

#[test]
fn mutants_of_fat32_end_with_an_answer_or_an_error() {
    mutants("fat32", 2000..2010);
}

/// Returns the offset of `needle`.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|window| window == needle).expect("it exists")
}

/// Returns a volume with the directory `D`, in it the directory `E` and the file `F` of three clusters, and the
/// offset of the FAT.
fn small(folder: &Path) -> (Vec<u8>, usize) {
    let image = common::shape("fat16").make(folder);
    let source = folder.join("D");
    std::fs::create_dir_all(source.join("E")).unwrap();
    std::fs::write(source.join("F"), [7; 1500]).unwrap();
    common::mcopy(&image, &source, "::/");
    let bytes = std::fs::read(image).unwrap();
    let reserved = usize::from(u16::from_le_bytes([bytes[14], bytes[15]]));
    (bytes, reserved * 512)
}

/// Returns the first cluster in the entry that starts with `name`.
fn first_cluster(bytes: &[u8], name: &[u8]) -> u16 {
    let at = find(bytes, name);
    u16::from_le_bytes([bytes[at + 26], bytes[at + 27]])
}

fn open(bytes: Vec<u8>) -> Arc<dyn FileSystem> {
    common::open(Arc::new(MemDevice::read_only(bytes))).unwrap()
}

fn read(fs: &dyn FileSystem, path: &str) -> Result<Vec<u8>, Error> {
    let ino = common::resolve(fs, path)?;
    common::read(fs, ino, fs.getattr(ino)?.size)
}

#[test]
fn a_directory_below_itself_loses_that_entry() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut bytes, _) = small(folder.path());
    let d = first_cluster(&bytes, b"D          \x10");
    let e = find(&bytes, b"E          \x10");
    bytes[e + 26..e + 28].copy_from_slice(&d.to_le_bytes());
    let fs = open(bytes);
    assert_eq!(read(&*fs, "/D/F").unwrap(), [7; 1500]);
    let e = common::resolve(&*fs, "/D/E").unwrap();
    let refused = fs.read_dir(e, Cookie::START, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(Error::Corrupt(Corrupt::Chain { .. }))), "{refused:?}");
}

#[test]
fn a_chain_that_ends_early_or_leaves_the_volume_or_is_free_costs_the_rest_of_the_file() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (sound, fat) = small(folder.path());
    let entry = fat + usize::from(first_cluster(&sound, b"F          \x20")) * 2;
    for value in [0_u16, 1, 0xfff6, 0xfff7, 0xffff] {
        let mut bytes = sound.clone();
        bytes[entry..entry + 2].copy_from_slice(&value.to_le_bytes());
        let fs = open(bytes);
        let ino = common::resolve(&*fs, "/D/F").unwrap();
        assert_eq!(common::read(&*fs, ino, 512).unwrap(), [7; 512], "{value:#x}");
        let refused = common::read(&*fs, ino, 1500);
        assert!(matches!(refused, Err(Error::Corrupt(Corrupt::Chain { .. }))), "{value:#x}: {refused:?}");
    }
}

#[test]
fn a_chain_in_a_circle_ends() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut bytes, fat) = small(folder.path());
    let first = first_cluster(&bytes, b"F          \x20");
    let d = first_cluster(&bytes, b"D          \x10");
    for cluster in [first, d] {
        let entry = fat + usize::from(cluster) * 2;
        bytes[entry..entry + 2].copy_from_slice(&cluster.to_le_bytes());
    }
    let size = find(&bytes, b"F          \x20") + 28;
    bytes[size..size + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let fs = open(bytes);
    let ino = common::resolve(&*fs, "/D/F").unwrap();
    let refused = fs.map(&LayoutLock::new().shared(), ino, 1 << 31..1 << 32);
    assert!(matches!(refused, Err(Error::Corrupt(Corrupt::Chain { .. }))), "{refused:?}");
    let dir = common::resolve(&*fs, "/D").unwrap();
    let (mut entries, mut errors) = (0, 0);
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        *(if entry.is_ok() { &mut entries } else { &mut errors }) += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(entries >= 2, "{entries} entries, {errors} errors");
}

#[test]
fn invalid_names_are_reported_and_the_rest_is_listed() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut bytes, _) = small(folder.path());
    let e = find(&bytes, b"E          \x10");
    bytes[e] = b'/';
    let fs = open(bytes);
    let dir = common::resolve(&*fs, "/D").unwrap();
    let mut found = Vec::new();
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        found.push(entry.map(|entry| entry.name.to_buf().to_string()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(
        matches!(&found[..], [Err(Error::Corrupt(Corrupt::EntryName { .. })), Ok(f)] if f == "F"),
        "{found:?}"
    );
}
