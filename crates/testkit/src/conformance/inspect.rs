//! The structures on disk, as far as a driver shows them. Cases that leave a volume as it is.

use obento_base::{Error, FileKind, Ino, Result};
use obento_driver::{Extent, FileSystem, Inspect, LayoutLock, Record, Span, Spot, Target};

use super::reading::{files, inodes, some};
use crate::outcome::{Lacks, Outcome};

/// How many inodes and places of a large volume are looked at.
const MAX: usize = 200;

fn view(fs: &dyn FileSystem) -> std::result::Result<&dyn Inspect, Lacks> {
    fs.inspect().ok_or(Lacks("no view of its structures"))
}

fn records(inspect: &dyn Inspect, target: Target) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let shown = inspect.inspect(target, &mut |record| records.push(record.expect("no damage")));
    shown.map(|()| records)
}

/// "0 for a whole structure, more for its parts"; "Its fields in the order of their offsets."
pub fn structures_are_told_with_their_parts_and_places(fs: &dyn FileSystem) -> Outcome {
    let inspect = view(fs)?;
    let len = fs.device().expect("structures are on a device").len();
    let inodes = inodes(fs).into_iter().take(MAX);
    let dirs = inodes.clone().filter(|(_, kind)| *kind == FileKind::Directory);
    let targets = [Target::SuperBlock(0), Target::Group(0), Target::Journal].into_iter();
    let targets = targets.chain(inodes.map(|(ino, _)| Target::Inode(ino)));
    for target in targets.chain(dirs.map(|(ino, _)| Target::Directory(ino))) {
        let shown = match records(inspect, target) {
            Err(Error::NotSupported) if matches!(target, Target::Group(_) | Target::Journal) => continue,
            // A directory that nobody wrote to may have nothing on disk yet, and an encrypted one says nothing.
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

/// `inspect`: "NotFound for a number that the volume does not have; Invalid for an inode that is no directory;
/// NotSupported for a structure that the format lacks."
pub fn what_is_not_there_is_not_shown(fs: &dyn FileSystem) -> Outcome {
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

/// `locate`: "What lies at byte `offset` of the device. Errors: NotFound past the end of the volume".
pub fn every_byte_has_a_place_and_what_shows_it_is_shown(fs: &dyn FileSystem) -> Outcome {
    let inspect = view(fs)?;
    if inspect.locate(0) == Err(Error::NotSupported) {
        return Err(Lacks("no telling what lies at a byte"));
    }
    assert_eq!(inspect.locate(u64::MAX), Err(Error::NotFound));
    let len = fs.device().expect("structures are on a device").len();
    // The beginning, where the structures of most formats are, and the rest more roughly.
    let places = (0..64).map(|n| n * 512).chain((0..MAX as u64).map(|n| len / MAX as u64 * n));
    for place in places.filter(|&place| place < len) {
        let spot = match inspect.locate(place) {
            // The device may be longer than the volume.
            Err(Error::NotFound) => continue,
            spot => spot.expect("no damage"),
        };
        if let Spot::Structure { name, target } = spot {
            assert!(!name.is_empty(), "at {place}");
            let shown = target.map_or(Ok(Vec::new()), |target| records(inspect, target));
            assert!(shown.is_ok(), "at {place}, {name}: {shown:?}");
        }
    }
    Ok(())
}

/// `Spot::OfFiles`: "A part of a file".
pub fn the_bytes_of_a_file_are_located_as_such(fs: &dyn FileSystem) -> Outcome {
    let (inspect, lock) = (view(fs)?, LayoutLock::new());
    let mapped = |(ino, size): (Ino, u64)| match fs.map(&lock.shared(), ino, 0..size.max(1)) {
        Ok(Extent { span: Span::Mapped(at), len }) => Some((ino, at, len)),
        mapped => {
            mapped.expect("a sound file is mapped");
            None
        }
    };
    let found = some(files(fs)?.into_iter().filter_map(mapped).take(MAX), "no data that is mapped")?;
    for (ino, at, len) in found {
        for place in [at, at + len / 2, at + len - 1] {
            match inspect.locate(place) {
                Err(Error::NotSupported) => return Err(Lacks("no telling what lies at a byte")),
                spot => assert_eq!(spot, Ok(Spot::OfFiles), "inode {ino}, byte {place} of the device"),
            }
        }
    }
    Ok(())
}
