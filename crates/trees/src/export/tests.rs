use std::io::Read;
use std::sync::atomic::Ordering;

use obento_base::Error;

use super::*;
use crate::copy::Quiet;
use crate::toy::{Laden, Piece, Toy, VALUE, dir, text, toy};

fn archive(volume: &obento_open::Volume) -> (Vec<u8>, ExportReport, Vec<Problem>) {
    let mut problems = Quiet::default();
    let (bytes, report) =
        export(&volume.root(), Vec::new(), &ExportOptions::default(), &mut problems).unwrap();
    assert_eq!(report.problems, problems.0.len() as u64);
    (bytes, report, problems.0)
}

/// Returns the path, the type, and the link target or contents of every entry.
fn entries(bytes: &[u8]) -> Vec<(String, ::tar::EntryType, String)> {
    let mut archive = ::tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut content = entry.link_name().unwrap().map_or(String::new(), |l| l.to_str().unwrap().into());
        entry.read_to_string(&mut content).unwrap();
        (path, entry.header().entry_type(), content)
    });
    entries.collect()
}

#[test]
fn an_archive_holds_the_tree_sorted_with_hard_links_and_without_sockets() {
    let volume = toy([
        (2, dir(&[("z", 3), ("a", 4), ("m", 5), ("pipe", 6), ("sock", 7), ("b", 5)])),
        (3, text("zet")),
        (4, dir(&[("x", 5)])),
        (5, text("many")),
        (6, Toy::Node(FileKind::Fifo)),
        (7, Toy::Node(FileKind::Socket)),
    ]);
    let (bytes, report, problems) = archive(&volume);
    use ::tar::EntryType::{Directory, Fifo, Link, Regular};
    let expected = [
        ("./", Directory, ""),
        ("./a/", Directory, ""),
        ("./a/x", Regular, "many"),
        ("./b", Link, "./a/x"),
        ("./m", Link, "./a/x"),
        ("./pipe", Fifo, ""),
        ("./z", Regular, "zet"),
    ];
    let expected: Vec<_> =
        expected.map(|(path, kind, text)| (path.to_string(), kind, text.to_string())).into();
    assert_eq!(entries(&bytes), expected);
    assert_eq!((report.entries, report.sockets, problems.len()), (7, 1, 0));
    assert_eq!(archive(&volume).0, bytes, "the same tree gives the same bytes");
}

#[test]
fn holes_of_any_length_are_kept_at_the_blocks_of_tar() {
    let pieces = vec![
        Piece::Hole(10_000),
        Piece::Mapped(1, 700),
        Piece::Hole(2000),
        Piece::Mapped(2, 5),
        Piece::Hole(1 << 30),
    ];
    let volume = toy([(2, dir(&[("sparse", 3)])), (3, Toy::File(pieces))]);
    let ranges = data_ranges(&volume.vfs().node(Ino(3)).unwrap(), 12_705 + (1 << 30), &mut Losses::default());
    assert_eq!((ranges.len(), &ranges[0]), (1, &(9728..12_800)));
    let (bytes, report, _) = archive(&volume);
    assert!(bytes.len() < 20_000);
    assert_eq!(report.bytes, 3072);
}

#[test]
fn unreadable_bytes_are_zeros_and_reported_and_the_archive_continues() {
    let pieces =
        vec![Piece::Mapped(b'a', 4096), Piece::Lost(4096), Piece::Unmapped(4096), Piece::Mapped(b'b', 4096)];
    let entries_of_root = vec![Ok(("bad", 3)), Ok(("gone", 9)), Ok(("good", 4)), Err(Error::OutOfRange)];
    let volume = toy([(2, Toy::Dir(entries_of_root)), (3, Toy::File(pieces)), (4, text("good"))]);
    let (bytes, _, problems) = archive(&volume);
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert_eq!(entries(&bytes).last().unwrap().2, "good");
}

#[test]
fn attributes_beyond_64_mib_are_a_problem_of_their_file() {
    let fs = Laden::new(8000);
    let (volume, mut problems) = (obento_open::Volume::new(fs.clone()), Quiet::default());
    let (_, report) =
        export(&volume.root(), std::io::sink(), &ExportOptions::default(), &mut problems).unwrap();
    assert_eq!((report.entries, report.problems), (2, 1));
    assert_eq!(
        problems.0[0].to_string(),
        "./file: extended attributes cannot be read and are not copied: \
         a file with so many bytes of extended attributes is not supported"
    );
    let read = fs.reads.load(Ordering::Relaxed) * VALUE;
    assert!((60 << 20..65 << 20).contains(&read), "{read}");
}
