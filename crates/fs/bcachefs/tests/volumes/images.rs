//! Volumes of bcachefs-tools are read as the tree that they were made from.

use std::collections::BTreeMap;

use crate::common::{PLAIN, TREE, ZSTD, at, contents, open, paths, unpacked};
use obento_base::{Corrupt, Error, FileKind};
use obento_driver::FileSystem;

/// Compares a volume with the list. Returns the files whose contents are damaged.
fn compare(fs: &dyn FileSystem) -> Vec<String> {
    let found = paths(fs);
    let mut damaged = Vec::new();
    let mut listed = BTreeMap::new();
    for line in TREE.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [path, kind, mode, uid, gid, size, time, sum, target] = fields[..] else { panic!("{line}") };
        listed.insert(path.to_string(), ());
        let ino = *found.get(path).unwrap_or_else(|| panic!("{path} is missing"));
        let attr = fs.getattr(ino).unwrap();
        let kinds = [("f", FileKind::Regular), ("h", FileKind::Regular), ("l", FileKind::Symlink)];
        let kinds: BTreeMap<_, _> =
            kinds.into_iter().chain([("d", FileKind::Directory), ("p", FileKind::Fifo)]).collect();
        assert_eq!(attr.kind, kinds[kind], "{path}");
        if !path.is_empty() {
            assert_eq!(format!("{:o}", attr.mode.bits()), mode, "{path}");
            assert_eq!((attr.uid.to_string().as_str(), attr.gid.to_string().as_str()), (uid, gid), "{path}");
        }
        if kind != "d" {
            let (secs, nanos) = time.split_once('.').unwrap();
            let held = (attr.mtime.secs().to_string(), format!("{:09}", attr.mtime.nanos()));
            assert_eq!((held.0.as_str(), held.1.as_str()), (secs, format!("{nanos:0<9}").as_str()), "{path}");
        }
        match kind {
            "f" => {
                assert_eq!(attr.size.to_string(), size, "{path}");
                match contents(fs, ino) {
                    Ok(bytes) => {
                        assert_eq!(format!("{:08x}", obento_base::crc::crc32(&bytes)), sum, "{path}")
                    }
                    Err(Error::Corrupt(Corrupt::Checksum { .. })) => damaged.push(path.to_string()),
                    Err(error) => panic!("{path}: {error}"),
                }
            }
            "h" => assert_eq!((at(fs, target), attr.nlink), (Ok(ino), 2), "{path}"),
            "l" => assert_eq!(fs.read_link(ino).unwrap(), target.as_bytes(), "{path}"),
            _ => {}
        }
    }
    let extra: Vec<_> = found.keys().filter(|path| !listed.contains_key(*path)).collect();
    assert!(extra.is_empty(), "{extra:?}");
    let xattrs = fs.xattrs().unwrap();
    let big = at(fs, "big.bin").unwrap();
    let mut names = Vec::new();
    xattrs.list_xattrs(big, &mut |name| names.push(name.to_vec())).unwrap();
    assert_eq!(names, [b"user.hello"]);
    assert_eq!(xattrs.get_xattr(big, b"user.hello").unwrap(), b"world");
    assert_eq!(xattrs.get_xattr(big, b"user.other"), Err(Error::NoData));
    assert_eq!(at(fs, "none"), Err(Error::NotFound));
    assert_eq!(at(fs, "dir/f999"), Err(Error::NotFound));
    damaged
}

#[test]
fn a_volume_without_compression_has_the_tree_it_was_made_from() {
    let fs = open(unpacked(PLAIN)).unwrap();
    assert_eq!(compare(&*fs), ["big.bin"]);
    let info = fs.info();
    assert_eq!((info.probe.fs_type, info.state.as_str()), ("bcachefs", "clean"));
    assert_eq!(info.probe.len, 96 << 20);
    assert!(info.notices.is_empty(), "{:?}", info.notices);
    let stat = fs.statfs().unwrap();
    assert_eq!(stat.blocks * u64::from(stat.block_size), 96 << 20);
    assert!((1 << 20..96 << 20).contains(&(stat.free * u64::from(stat.block_size))), "{stat:?}");
}

#[test]
fn a_volume_with_zstandard_has_the_tree_it_was_made_from() {
    let fs = open(unpacked(ZSTD)).unwrap();
    assert_eq!(compare(&*fs), ["big.bin"]);
    assert!(fs.info().features.iter().any(|name| name == "zstd"));
}

#[test]
fn a_sparse_file_is_a_hole() {
    let fs = open(unpacked(PLAIN)).unwrap();
    let attr = fs.getattr(at(&*fs, "sparse").unwrap()).unwrap();
    assert!(attr.blocks * 512 < attr.size / 100, "{attr:?}");
}

#[test]
fn the_complete_images_have_no_damage() {
    let Some(folder) = std::env::var_os("OBENTO_IMAGES") else {
        println!("skipped: no OBENTO_IMAGES");
        return;
    };
    for name in ["plain.img", "zstd.img"] {
        let bytes = std::fs::read(std::path::Path::new(&folder).join("bcachefs").join(name)).unwrap();
        assert_eq!(compare(&*open(bytes).unwrap()), Vec::<String>::new(), "{name}");
    }
}
