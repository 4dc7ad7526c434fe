//! The structures that a driver shows. These cases do not change the volume.

use obento_base::{Error, FileKind, Ino, Result};
use obento_driver::{ByteUse, Extent, FileSystem, Inspect, LayoutLock, Record, Span, Target};

use super::reading::{files, inodes, some};
use crate::outcome::{Lacks, Outcome};

/// The number of inodes and positions that a test examines on a large volume.
const MAX: usize = 200;

fn view(fs: &dyn FileSystem) -> std::result::Result<&dyn Inspect, Lacks> {
    fs.inspect().ok_or(Lacks("no inspection of structures"))
}

fn records(inspect: &dyn Inspect, target: Target) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let shown = inspect.inspect(target, &mut |record| records.push(record.expect("no damage")));
    shown.map(|()| records)
}

/// A structure has level 0 and its parts higher levels; fields are in the order of their offsets.
pub fn structures_are_shown_with_their_parts_and_locations(fs: &dyn FileSystem) -> Outcome {
    let inspect = view(fs)?;
    let len = fs.device().expect("structures are on a device").len();
    let inodes = inodes(fs).into_iter().take(MAX);
    let dirs = inodes.clone().filter(|(_, kind)| *kind == FileKind::Directory);
    let targets = [Target::SuperBlock(0), Target::Group(0), Target::Journal].into_iter();
    let targets = targets.chain(inodes.map(|(ino, _)| Target::Inode(ino)));
    for target in targets.chain(dirs.map(|(ino, _)| Target::Directory(ino))) {
        let shown = match records(inspect, target) {
            Err(Error::NotSupported) if matches!(target, Target::Group(_) | Target::Journal) => continue,
            // A new directory may have nothing on disk yet, and an encrypted one is not shown.
            Err(Error::Unsupported(_)) => continue,
            shown => shown.expect("a sound structure"),
        };
        assert!(shown.first().is_none_or(|record| record.depth == 0), "{target:?}");
        assert!(!shown.is_empty() || matches!(target, Target::Directory(_)), "{target:?} shows nothing");
        for record in &shown {
            let places: Vec<u64> = record.fields.iter().map(|field| field.offset).collect();
            assert!(places.is_sorted(), "{target:?}: {record:?}");
            let end = record.fields.iter().map(|field| field.offset + u64::from(field.len)).max();
            assert!(end.is_none_or(|end| end <= len), "{target:?}: {record:?}");
        }
    }
    Ok(())
}

/// `inspect`: `NotFound` for a number that does not exist; `Invalid` for an inode that is not a directory;
/// `NotSupported` for a structure that the format does not have.
pub fn missing_structures_are_not_shown(fs: &dyn FileSystem) -> Outcome {
    let inspect = view(fs)?;
    for target in [Target::SuperBlock(u32::MAX), Target::Inode(Ino(u64::MAX)), Target::Block(u64::MAX)] {
        assert_eq!(records(inspect, target).err(), Some(Error::NotFound), "{target:?}");
    }
    assert_eq!(records(inspect, Target::Directory(Ino(u64::MAX))).err(), Some(Error::NotFound));
    let group = records(inspect, Target::Group(u64::MAX)).err();
    assert!(matches!(group, Some(Error::NotFound | Error::NotSupported)), "{group:?}");
    for (ino, _) in inodes(fs).into_iter().filter(|(_, kind)| *kind != FileKind::Directory).take(MAX) {
        assert_eq!(records(inspect, Target::Directory(ino)).err(), Some(Error::Invalid), "inode {ino}");
    }
    Ok(())
}

/// `locate` returns the structure at a byte of the device, or `NotFound` past the end of the volume.
pub fn every_byte_has_a_location_and_a_command_that_shows_it(fs: &dyn FileSystem) -> Outcome {
    let inspect = view(fs)?;
    if inspect.locate(0) == Err(Error::NotSupported) {
        return Err(Lacks("no inspection by byte"));
    }
    assert_eq!(inspect.locate(u64::MAX), Err(Error::NotFound));
    let len = fs.device().expect("structures are on a device").len();
    // The start, where most formats have their structures, and samples of the rest.
    let places = (0..64).map(|n| n * 512).chain((0..MAX as u64).map(|n| len / MAX as u64 * n));
    for place in places.filter(|&place| place < len) {
        let spot = match inspect.locate(place) {
            // The device may be longer than the volume.
            Err(Error::NotFound) => continue,
            spot => spot.expect("no damage"),
        };
        if let ByteUse::Structure { name, target } = spot {
            assert!(!name.is_empty(), "at {place}");
            let shown = target.map_or(Ok(Vec::new()), |target| records(inspect, target));
            assert!(shown.is_ok(), "at {place}, {name}: {shown:?}");
        }
    }
    Ok(())
}

/// `ByteUse::OfFiles`: the byte is a part of a file.
pub fn the_bytes_of_a_file_are_located_in_the_file(fs: &dyn FileSystem) -> Outcome {
    let (inspect, lock) = (view(fs)?, LayoutLock::new());
    let mapped = |(ino, size): (Ino, u64)| match fs.map(&lock.shared(), ino, 0..size.max(1)) {
        Ok(Extent { span: Span::Mapped(at), len }) => Some((ino, at, len)),
        mapped => {
            mapped.expect("a sound file is mapped");
            None
        }
    };
    let found = some(files(fs)?.into_iter().filter_map(mapped).take(MAX), "no mapped data")?;
    for (ino, at, len) in found {
        for place in [at, at + len / 2, at + len - 1] {
            match inspect.locate(place) {
                Err(Error::NotSupported) => return Err(Lacks("no inspection by byte")),
                spot => assert_eq!(spot, Ok(ByteUse::OfFiles), "inode {ino}, byte {place} of the device"),
            }
        }
    }
    Ok(())
}
