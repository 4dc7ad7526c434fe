//! Names, sizes, times, streams and contents are those that the mount of `ntfs-3g` shows and `7zz` extracts.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use common::{Mount, SHAPES, Seen, Tree, compare, host_tree, open_image, oracles, tree_of};
use obento_base::{Error, FileKind, Ino, Timestamp};
use obento_testkit::changes::resolve;
use obento_testkit::oracle::program;

fn same_as_ntfs_3g(name: &str) {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = common::shape_of(name).filled(folder.path());
    let found = tree_of(&*open_image(&image));
    let mount = Mount::new(&image, folder.path(), "ro,");
    let expected = host_tree(&mount.0);
    drop(mount);
    assert!(expected.len() > 450);
    compare(&found, &expected);
    // 7zz 26.02 opens no volume with longer sectors.
    if common::shape_of(name).mkntfs.starts_with(&["-s", "512"]) {
        compare_with_7zz(&found, &image, folder.path());
    }
}

/// Files of which `7zz` 26.02 cannot read all data: they have holes between written clusters.
const HOLES: [&str; 2] = ["sparse/holes", "packed/holes"];

/// Compares names, kinds, the times of changes, streams and contents with the files that `7zz` extracts. It extracts the
/// structures of the volume to `[SYSTEM]`, each stream to a file `FILE:STREAM`, and links and devices as regular files.
fn compare_with_7zz(found: &Tree, image: &Path, folder: &Path) {
    let out = folder.join("extracted");
    let mut extract = program("7zz");
    extract.args(["x", "-y", "-bso0", "-bsp0"]).arg(format!("-o{}", out.display())).arg(image);
    let said = String::from_utf8(extract.output().unwrap().stderr).unwrap();
    let mut errors = said.lines().filter(|line| !line.is_empty());
    let is_known = |error: &str| HOLES.iter().any(|path| error == format!("ERROR: Data Error : {path}"));
    assert!(errors.all(is_known), "{said}");
    fs::remove_dir_all(out.join("[SYSTEM]")).unwrap();
    let (mut streams, mut files) = (BTreeMap::new(), BTreeMap::new());
    for (path, seen) in host_tree(&out) {
        match path.iter().position(|&byte| byte == b':') {
            Some(at) => drop(streams.insert(path, (at, seen.bytes))),
            None => drop(files.insert(path, seen)),
        }
    }
    let own = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let names = |tree: &Tree| tree.keys().map(|path| own(path)).collect::<Vec<_>>();
    assert_eq!(names(found), names(&files));
    let is_plain = |seen: &Seen| matches!(seen.kind, FileKind::Regular | FileKind::Directory);
    let mut with_streams = Vec::new();
    for (path, seen) in found {
        let theirs = &files[path];
        if is_plain(seen) && !HOLES.iter().any(|holes| holes.as_bytes() == path) {
            let brief = |seen: &Seen| (seen.kind, seen.size, seen.times[1]);
            assert_eq!(brief(seen), brief(theirs), "{}", own(path));
            assert!(seen.bytes == theirs.bytes, "the contents of {}", own(path));
        }
        for (name, value) in &seen.xattrs {
            let name = name.strip_prefix(b"user.").unwrap();
            with_streams.push(([path, &b":"[..], name].concat(), (path.len(), value.clone())));
        }
    }
    assert!(streams == with_streams.into_iter().collect(), "{:?}", streams.keys().map(|path| own(path)));
    assert!(found.values().all(|seen| seen.times[1] > Timestamp::default()));
}

#[test]
fn deleted_entries_are_left_out() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = common::shape_of("4k").make(folder.path());
    let mount = Mount::new(&image, folder.path(), "");
    let at = |path: &str| mount.0.join(path);
    ["few", "many", "gone", "gone/deep"].iter().for_each(|dir| fs::create_dir(at(dir)).unwrap());
    // The entries of a small directory are in its record, and those of a large one in blocks.
    for (dir, count) in [("few", 4), ("many", 400), ("gone/deep", 20)] {
        for number in 0..count {
            let word = if number % 2 == 0 { "deleted" } else { "kept" };
            fs::write(at(&format!("{dir}/{word} {number}")), vec![1; number % 3 * 900]).unwrap();
        }
    }
    fs::write(at("old name"), "contents").unwrap();
    let inos =
        ["few/deleted 2", "many/deleted 398", "gone/deep"].map(|path| fs::metadata(at(path)).unwrap().ino());
    (0..4).step_by(2).for_each(|number| fs::remove_file(at(&format!("few/deleted {number}"))).unwrap());
    (0..400).step_by(2).for_each(|number| fs::remove_file(at(&format!("many/deleted {number}"))).unwrap());
    fs::remove_dir_all(at("gone")).unwrap();
    fs::rename(at("old name"), at("new name")).unwrap();
    drop(mount);

    let bytes = fs::read(&image).unwrap();
    for name in ["deleted 2", "deleted 398", "gone"] {
        let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(bytes.windows(units.len()).any(|window| window == units), "no trace of '{name}' is left");
    }
    let volume = open_image(&image);
    let found = tree_of(&*volume);
    assert_eq!(found.len(), 2 + 2 + 200 + 1);
    let mount = Mount::new(&image, folder.path(), "ro,");
    let expected = host_tree(&mount.0);
    drop(mount);
    compare(&found, &expected);
    compare_with_7zz(&found, &image, folder.path());
    for path in ["/few/deleted 2", "/many/deleted 398", "/gone", "/old name"] {
        assert_eq!(resolve(&*volume, path), Err(Error::NotFound), "{path}");
    }
    for ino in inos {
        assert_eq!(volume.getattr(Ino(ino)).err(), Some(Error::Stale));
    }
}

macro_rules! shapes {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            same_as_ntfs_3g($name);
        })*

        #[test]
        fn every_shape_is_compared() {
            assert_eq!(SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>(), [$($name),*]);
        }
    };
}
shapes! {
    clusters_of_a_sector_read_as_ntfs_3g_reads_them "512"
    clusters_of_1_kib_read_as_ntfs_3g_reads_them "1k"
    clusters_of_2_kib_read_as_ntfs_3g_reads_them "2k"
    clusters_of_4_kib_read_as_ntfs_3g_reads_them "4k"
    sectors_of_4_kib_read_as_ntfs_3g_reads_them "4kn"
    clusters_of_8_kib_read_as_ntfs_3g_reads_them "8k"
    sectors_of_4_kib_in_clusters_of_64_kib_read_as_ntfs_3g_reads_them "4kn-64k"
    clusters_of_64_kib_read_as_ntfs_3g_reads_them "64k"
    clusters_of_256_kib_read_as_ntfs_3g_reads_them "256k"
    clusters_of_2_mib_read_as_ntfs_3g_reads_them "2m"
    sectors_of_1_kib_read_as_ntfs_3g_reads_them "1k-1k"
    sectors_of_1_kib_in_clusters_of_4_kib_read_as_ntfs_3g_reads_them "1k-4k"
    sectors_of_2_kib_read_as_ntfs_3g_reads_them "2k-2k"
    sectors_of_2_kib_in_clusters_of_4_kib_read_as_ntfs_3g_reads_them "2k-4k"
    a_volume_with_an_identifier_and_compression_reads_as_ntfs_3g_reads_it "4k-uuid"
    clusters_of_16_kib_read_as_ntfs_3g_reads_them "16k"
    clusters_of_32_kib_read_as_ntfs_3g_reads_them "32k"
    sectors_of_4_kib_in_clusters_of_16_kib_read_as_ntfs_3g_reads_them "4kn-16k"
    clusters_of_128_kib_read_as_ntfs_3g_reads_them "128k"
    clusters_of_1_mib_read_as_ntfs_3g_reads_them "1m"
}
