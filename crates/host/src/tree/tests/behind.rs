//! Small files, which are written later.

use super::*;

#[test]
fn two_cursors_write_one_tree() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    tree.enter(name("d"), &plain(0o755)).unwrap();
    let forks: Vec<TreeWriter> = (0..2).map(|_| tree.fork().unwrap()).collect();
    std::thread::scope(|scope| {
        for (index, mut fork) in forks.into_iter().enumerate() {
            scope.spawn(move || {
                fork.enter(name(["x", "y"][index]), &plain(0o755)).unwrap();
                for file in 0..100 {
                    fork.file(name(&file.to_string()), &plain(0o644), content(b"1")).unwrap();
                }
                fork.finish().unwrap();
            });
        }
    });
    tree.leave().unwrap();
    let report = tree.finish().unwrap();
    assert_eq!((report.files, report.directories, report.bytes), (200, 3, 200));
    assert_eq!(fs::metadata(root.path().join("d")).unwrap().mtime(), -5);
}

#[test]
fn small_files_are_written_behind_with_all_that_belongs_to_them() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
    for file in 0..200_usize {
        let bytes = &bytes[..file * 200];
        let fill = |sink: &mut dyn DataSink| {
            sink.bytes(bytes)?;
            sink.hole(4096)?;
            // More than is written later.
            if file % 50 == 7 { sink.bytes(&vec![9; 70_000]) } else { sink.bytes(b"end") }
        };
        tree.file(name(&format!("{file:03}")), &plain(0o640), fill).unwrap();
    }
    let report = tree.finish().unwrap();
    assert_eq!(report.files, 200);
    for file in 0..200_usize {
        let path = root.path().join(format!("{file:03}"));
        let mut expected = bytes[..file * 200].to_vec();
        expected.extend([0; 4096]);
        if file % 50 == 7 {
            expected.extend([9; 70_000])
        } else {
            expected.extend(b"end")
        }
        assert!(fs::read(&path).unwrap() == expected, "{file}");
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()), (0o640, -5, 999_999_999));
    }
}

#[test]
fn a_file_that_a_later_write_cannot_complete_is_reported_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    for file in ["a", "b", "c"] {
        tree.file(name(file), &plain(0o600), content(b"bytes")).unwrap();
    }
    tree.break_last();
    tree.file(name("d"), &plain(0o600), content(b"more")).unwrap();
    tree.settle();
    let errors = tree.late_errors();
    assert_eq!(errors.iter().map(|error| error.path().unwrap()).collect::<Vec<_>>(), [root.path().join("c")]);
    assert_eq!(tree.finish().unwrap().files, 3);
    let mut left: Vec<_> =
        fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a", "b", "d"]);
}

#[test]
fn small_files_with_bytes_in_a_host_file_are_written_behind_too() {
    let root = tempfile::tempdir().unwrap();
    let source: Vec<u8> = (0..200_000_u32).map(|at| (at / 7 % 251) as u8).collect();
    let image = root.path().join("image");
    fs::write(&image, &source).unwrap();
    let device = FileDevice::open(&image).unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    for file in 0..200_usize {
        let fill = |sink: &mut dyn DataSink| {
            sink.bytes(b"begin")?;
            sink.device(&device, file as u64 * 3, file as u64 * 111)?;
            sink.hole(4096)?;
            // The last files are longer than those that are written later.
            sink.device(&device, 100_000, if file < 190 { 30_000 } else { 60_000 })?;
            sink.device(&device, 7, 4096)
        };
        tree.file::<SinkError>(name(&format!("{file:03}")), &plain(0o640), fill).unwrap();
    }
    assert_eq!(tree.finish().unwrap().files, 200);
    for file in 0..200_usize {
        let mut expected = b"begin".to_vec();
        expected.extend(&source[file * 3..file * 114]);
        expected.extend([0; 4096]);
        expected.extend(&source[100_000..if file < 190 { 130_000 } else { 160_000 }]);
        expected.extend(&source[7..7 + 4096]);
        assert!(fs::read(root.path().join(format!("{file:03}"))).unwrap() == expected, "{file}");
    }
}

#[test]
fn bytes_that_a_later_read_cannot_get_are_zeros_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let image = root.path().join("image");
    fs::write(&image, [7; 20_000]).unwrap();
    let device = FileDevice::open(&image).unwrap();
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(10_000).unwrap();
    let mut tree = writer(&root, TreeOptions::default());
    let fill = |sink: &mut dyn DataSink| {
        sink.device(&device, 0, 20_000)?;
        sink.device(&device, 0, 5000)
    };
    tree.file::<SinkError>(name("file"), &plain(0o640), fill).unwrap();
    tree.settle();
    let errors = tree.late_errors();
    assert_eq!(
        errors.iter().map(|error| error.path().unwrap()).collect::<Vec<_>>(),
        [root.path().join("file")]
    );
    assert_eq!(tree.finish().unwrap().files, 1);
    let expected = [&[7; 10_000][..], &[0; 10_000], &[7; 5000]].concat();
    assert!(fs::read(root.path().join("file")).unwrap() == expected);
}
