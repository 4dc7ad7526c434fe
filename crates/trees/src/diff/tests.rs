use obento_open::Volume;

use super::*;
use crate::copy::{CopyOptions, CopySource, Quiet, copy_out};
use crate::toy::{Piece, Toy, dir, text, toy};

fn side(volume: &Volume) -> DiffSide {
    DiffSide::Image { node: volume.root(), path: b"/".to_vec() }
}

/// Returns the differences as text, and the problems with their paths.
fn differences(left: &DiffSide, right: &DiffSide, options: &DiffOptions) -> Vec<String> {
    let mut found = Vec::new();
    let report = diff(left, right, options, &mut |item| {
        found.push(match item {
            Ok(Difference { path, change }) => format!("{}: {change:?}", String::from_utf8(path).unwrap()),
            Err(problem) => format!("! {problem}"),
        });
        ControlFlow::Continue(())
    });
    assert_eq!(report.differences + report.problems, found.len() as u64);
    found
}

fn tree() -> Volume {
    toy([
        (2, dir(&[("d", 3), ("file", 4), ("link", 5), ("sparse", 6), ("pipe", 7)])),
        (3, dir(&[("x", 4)])),
        (4, text("text")),
        (5, Toy::Link("file")),
        (6, Toy::File(vec![Piece::Hole(1 << 40), Piece::Mapped(1, 10)])),
        (7, Toy::Node(FileKind::Fifo)),
    ])
}

#[test]
fn a_copy_on_the_host_equals_its_image_in_everything() {
    let folder = tempfile::tempdir().unwrap();
    let volume = tree();
    let root = CopySource { node: volume.root(), path: b"/".to_vec(), prefix: Vec::new() };
    copy_out(&[root], folder.path(), &CopyOptions::archive(), &mut Quiet::default()).unwrap();
    let host = DiffSide::Host(folder.path().into());
    assert_eq!(differences(&side(&volume), &host, &DiffOptions::ALL), [""; 0]);
    assert_eq!(differences(&side(&volume), &side(&volume), &DiffOptions::ALL), [""; 0]);
    std::fs::write(folder.path().join("d/x"), "tExt").unwrap();
    std::fs::remove_file(folder.path().join("link")).unwrap();
    std::fs::create_dir(folder.path().join("new")).unwrap();
    let found = differences(&side(&volume), &host, &DiffOptions::CONTENT);
    assert_eq!(
        found,
        ["d/x: Content(1)", "file: Content(1)", "link: OnlyLeft(Symlink)", "new: OnlyRight(Directory)"]
    );
}

#[test]
fn differences_are_reported_by_name_and_kind() {
    let other = toy([
        (2, dir(&[("d", 4), ("file", 14), ("link", 5), ("more", 7), ("sparse", 6)])),
        (4, text("text")),
        (14, text("longer")),
        (5, Toy::Link("elsewhere")),
        (6, Toy::File(vec![Piece::Hole(1 << 40), Piece::Mapped(2, 10)])),
        (7, Toy::Node(FileKind::Fifo)),
    ]);
    let found = differences(&side(&tree()), &side(&other), &DiffOptions::CONTENT);
    let expected = [
        "d: Kind(Directory, Regular)".to_string(),
        "file: Size(4, 6)".to_string(),
        format!("link: Target({:?}, {:?})", b"file", b"elsewhere"),
        "more: OnlyRight(Fifo)".to_string(),
        "pipe: OnlyLeft(Fifo)".to_string(),
        format!("sparse: Content({})", 1_u64 << 40),
    ];
    assert_eq!(found, expected);
    let all = differences(&side(&tree()), &side(&other), &DiffOptions::ALL);
    assert!(all.iter().any(|found| found.starts_with("file: Modified")));
    assert!(all.iter().any(|found| found.starts_with("file: Xattr")));
}

#[test]
fn damage_and_cycles_are_reported_and_the_rest_is_compared() {
    let entries = vec![Ok(("a", 3)), Err(obento_base::Error::OutOfRange), Ok(("gone", 99)), Ok(("z", 4))];
    let bad = toy([(2, Toy::Dir(entries)), (3, dir(&[("up", 2)])), (4, Toy::File(vec![Piece::Unmapped(4)]))]);
    let good =
        toy([(2, dir(&[("a", 3), ("z", 4)])), (3, dir(&[("up", 5)])), (4, text("text")), (5, dir(&[]))]);
    let found = differences(&side(&bad), &side(&good), &DiffOptions::CONTENT);
    assert_eq!(found.iter().filter(|found| found.starts_with("! ")).count(), 4, "{found:?}");
    let found = differences(&side(&bad), &side(&bad), &DiffOptions::CONTENT);
    assert!(found.iter().any(|found| found.starts_with("! /a/up: too many levels")), "{found:?}");
}

#[test]
fn directories_with_two_names_each_are_compared_once() {
    // 2^60 paths lead to the last directory.
    let tree =
        || toy((2..62).map(|ino| (ino, dir(&[("a", ino + 1), ("b", ino + 1)]))).chain([(62, dir(&[]))]));
    let found = differences(&side(&tree()), &side(&tree()), &DiffOptions::ALL);
    assert_eq!(found.len(), 60);
}

#[test]
fn a_side_that_is_missing_is_a_problem_and_single_files_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let (host, volume) = (DiffSide::Host(file), tree());
    let image =
        DiffSide::Image { node: volume.vfs().node(obento_base::Ino(4)).unwrap(), path: b"/file".to_vec() };
    assert_eq!(differences(&host, &image, &DiffOptions::CONTENT), [""; 0]);
    let missing = differences(&DiffSide::Host(folder.path().join("none")), &image, &DiffOptions::CONTENT);
    assert_eq!(missing.len(), 1);
    let stopped = diff(&side(&volume), &side(&toy([(2, dir(&[]))])), &DiffOptions::CONTENT, &mut |_| {
        ControlFlow::Break(())
    });
    assert_eq!(stopped.differences, 1);
}
