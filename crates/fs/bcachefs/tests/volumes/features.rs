//! Volumes of our own writer: what the images of bcachefs-tools lack.

use std::sync::Arc;

use crate::common::{at, contents, names, open, open_with, reading};
use crate::recipe::{Recipe, pattern};
use obento_base::{DeviceNumber, Error, Feature, FileKind, Generation, Ino, Name, Timestamp};
use obento_bcachefs::BcachefsDriver;
use obento_block::MemDevice;
use obento_driver::{Access, Driver as _, FileSystem, LayoutLock, Notice, OpenOptions, Replay, Span};

fn recipes() -> Vec<Recipe> {
    let mut found = Vec::new();
    for is_big_endian in [false, true] {
        for is_dirty in [false, true] {
            found.extend([0, 1, 2, 5, 6, 7].map(|sums| Recipe {
                is_big_endian,
                sums,
                is_packed: sums % 2 == 1,
                is_dirty,
            }));
        }
    }
    found
}

fn each(f: impl Fn(&Recipe, &dyn FileSystem)) {
    for recipe in recipes() {
        println!("{recipe:?}");
        f(&recipe, &*open(recipe.write()).unwrap());
    }
}

/// The contents of `file`: a hole is in the second block, reserved space in the third.
fn expected() -> Vec<u8> {
    let mut bytes = pattern(0, 56 * 512 - 100);
    bytes[4096..24 * 512].fill(0);
    bytes
}

#[test]
fn data_of_every_coding_is_read() {
    each(|_, fs| {
        let file = at(fs, "file").unwrap();
        assert_eq!(contents(fs, file).unwrap(), expected());
        assert_eq!(at(fs, "again"), Ok(file));
        assert_eq!(at(fs, "dir/late"), Ok(file));
        assert_eq!(contents(fs, at(fs, "inline").unwrap()).unwrap(), b"inline data");
        assert_eq!(contents(fs, at(fs, "old").unwrap()).unwrap()[..4], *b"old\0");
    });
}

#[test]
fn holes_and_reserved_space_are_mapped_as_such() {
    each(|_, fs| {
        let (lock, file) = (LayoutLock::new(), at(fs, "file").unwrap());
        let layout = lock.shared();
        let span = |at: u64| fs.map(&layout, file, at..200 * 512).unwrap();
        assert_eq!((span(4096).span, span(4096).len), (Span::Hole, 4096));
        assert_eq!((span(8192 + 100).span, span(8192 + 100).len), (Span::Unwritten, 3996));
        assert_eq!(span(0).span, Span::Driver);
        assert!(matches!(span(48 * 512).span, Span::Mapped(_)));
        assert_eq!(span(100 * 512).span, Span::Hole);
    });
}

#[test]
fn shared_extents_are_followed() {
    each(|_, fs| {
        let bytes = contents(fs, at(fs, "shared").unwrap()).unwrap();
        assert_eq!(bytes[..512], [0; 512]);
        assert_eq!(bytes[512..3 * 512], pattern(512, 1024));
        assert_eq!(bytes[3 * 512..][..600], [b's'; 600]);
        assert_eq!(bytes[3 * 512 + 600..], [0; 2 * 512 - 600 + 512]);
    });
}

#[test]
fn inodes_of_all_versions_have_their_fields() {
    each(|_, fs| {
        for (path, size, links) in
            [("file", 56 * 512 - 100, 3), ("inline", 11, 1), ("oldest", 5, 1), ("old", 512, 1)]
        {
            let attr = fs.getattr(at(fs, path).unwrap()).unwrap();
            assert_eq!((attr.kind, attr.size, attr.nlink), (FileKind::Regular, size, links), "{path}");
            assert_eq!(
                (attr.uid, attr.gid, attr.generation, attr.project),
                (1000, 1001, Generation(7), 5),
                "{path}"
            );
            assert_eq!(attr.mtime, Timestamp::new(1_700_000_000, 123_456_789), "{path}");
            assert_eq!(attr.btime, Some(attr.mtime), "{path}");
            assert_eq!(attr.blocks, 8, "{path}");
        }
        assert_eq!(fs.getattr(at(fs, "oldest").unwrap()).unwrap().mode.bits(), 0o4755);
        let device = fs.getattr(at(fs, "device").unwrap()).unwrap();
        assert_eq!((device.kind, device.rdev), (FileKind::CharDevice, DeviceNumber { major: 5, minor: 300 }));
        assert_eq!(fs.read_link(at(fs, "link").unwrap()).unwrap(), b"dir/name 1");
        assert_eq!(fs.getattr(fs.root()).unwrap().nlink, 5);
        assert_eq!(fs.getattr(Ino(99_999)), Err(Error::Stale));
    });
}

#[test]
fn directories_are_listed_and_searched_through_inner_nodes() {
    each(|_, fs| {
        let dir = at(fs, "dir").unwrap();
        let found = names(fs, dir);
        assert_eq!(found.len(), 41);
        for (name, ino) in &found {
            assert_eq!(fs.lookup(dir, Name::new(name).unwrap()), Ok(*ino));
        }
        assert_eq!(at(fs, "dir/none"), Err(Error::NotFound));
        assert_eq!((fs.parent(dir), fs.parent(fs.root())), (Ok(fs.root()), Ok(fs.root())));
    });
}

#[test]
fn names_without_case_are_found_in_any() {
    each(|_, fs| {
        let inline = at(fs, "inline");
        for name in ["fold/ReadMe", "fold/README", "fold/readme"] {
            assert_eq!(at(fs, name), inline, "{name}");
        }
        assert_eq!(at(fs, "FOLD"), Err(Error::NotFound));
        assert_eq!(names(fs, at(fs, "fold").unwrap()).into_keys().collect::<Vec<_>>(), [b"ReadMe"]);
    });
}

#[test]
fn attributes_are_listed_and_converted() {
    each(|_, fs| {
        let (xattrs, file) = (fs.xattrs().unwrap(), at(fs, "file").unwrap());
        let mut names = Vec::new();
        xattrs.list_xattrs(file, &mut |name| names.push(name.to_vec())).unwrap();
        assert_eq!(names, [&b"user.note"[..], b"system.posix_acl_access"]);
        assert_eq!(xattrs.get_xattr(file, b"user.note").unwrap(), b"text");
        assert_eq!(xattrs.get_xattr(file, b"system.posix_acl_access").unwrap().len(), 4 + 3 * 8);
        let inline = at(fs, "inline").unwrap();
        assert_eq!(xattrs.get_xattr(inline, b"security.capability").unwrap(), b"cap");
    });
}

#[test]
fn a_snapshot_is_a_directory_that_sees_the_old_state() {
    each(|recipe, fs| {
        assert_eq!(at(fs, "gone"), Err(Error::NotFound));
        assert_eq!(at(fs, "new").is_ok(), !recipe.is_dirty);
        let snap = at(fs, "snap").unwrap();
        assert_eq!((fs.getattr(snap).unwrap().kind, fs.parent(snap)), (FileKind::Directory, Ok(fs.root())));
        assert_ne!(snap, fs.root());
        assert!(at(fs, "snap/gone").is_ok());
        assert_eq!((at(fs, "snap/new"), at(fs, "snap/snap")), (Err(Error::NotFound), Err(Error::NotFound)));
        assert_eq!(contents(fs, at(fs, "oldest").unwrap()).unwrap(), b"2.0.0");
        assert_eq!(contents(fs, at(fs, "snap/oldest").unwrap()).unwrap(), b"1.0.0");
        assert_eq!(contents(fs, at(fs, "snap/file").unwrap()).unwrap(), expected());
    });
}

#[test]
fn a_subvolume_can_be_the_root() {
    let mut options = reading();
    options.shown.subvolume = Some(2);
    let fs = open_with(Recipe::default().write(), &options).unwrap();
    assert!(at(&*fs, "gone").is_ok() && at(&*fs, "new").is_err());
    assert_eq!(fs.parent(fs.root()), Ok(fs.root()));
    options.shown.subvolume = Some(3);
    assert_eq!(open_with(Recipe::default().write(), &options).err(), Some(Error::NotFound));
}

#[test]
fn the_journal_is_replayed_up_to_its_last_flush() {
    for recipe in recipes().into_iter().filter(|recipe| recipe.is_dirty) {
        let fs = open(recipe.write()).unwrap();
        assert_eq!(
            (at(&*fs, "added").is_ok(), at(&*fs, "lost").is_ok(), at(&*fs, "new").is_ok()),
            (true, false, false)
        );
        assert_eq!(fs.info().state, "needs recovery");
        assert_eq!(fs.info().notices, [Notice::Replayed { transactions: 3 }]);
        let skipped = open_with(recipe.write(), &OpenOptions { replay: Replay::Skip, ..reading() }).unwrap();
        assert_eq!((at(&*skipped, "added").is_ok(), at(&*skipped, "new").is_ok()), (false, true));
        assert_eq!(skipped.info().notices, [Notice::NotReplayed]);
    }
}

#[test]
fn a_damaged_super_block_is_replaced_by_its_copy() {
    let mut bytes = Recipe::default().write();
    bytes[4096 + 200] ^= 1;
    let fs = open(bytes).unwrap();
    assert!(matches!(fs.info().notices[..], [Notice::Damaged(_), Notice::BackupSuperBlock { block: 1024 }]));
    assert!(at(&*fs, "file").is_ok());
}

/// Changes a super block, and corrects its checksum (method 0 has none).
fn refused(change: impl Fn(&mut [u8])) -> Error {
    let mut bytes = Recipe { sums: 0, ..Recipe::default() }.write();
    change(&mut bytes[4096..]);
    open(bytes).err().expect("it is refused")
}

#[test]
fn features_that_are_not_supported_are_refused_by_name() {
    let named = |name| Error::Unsupported(Feature::Named(name));
    assert_eq!(refused(|sb| sb[153] |= 4), named("encryption"));
    assert_eq!(refused(|sb| sb[123] = 2), named("a bcachefs volume of several devices"));
    assert_eq!(refused(|sb| sb[208] |= 1 << 4), named("erasure coding"));
    assert_eq!(refused(|sb| sb[18..20].fill(1)), named("bcachefs metadata older than version 1.0"));
    assert_eq!(
        refused(|sb| sb[188..190].copy_from_slice(&[33, 4])),
        named("bcachefs metadata newer than version 1.28")
    );
    let bits = Error::Unsupported(Feature::Bits { set: "bcachefs", bits: 1 << 40 });
    assert_eq!(refused(|sb| sb[213] |= 1), bits);
}

#[test]
fn writing_is_refused() {
    let device = Arc::new(MemDevice::new(Recipe::default().write()));
    let options = OpenOptions { access: Access::ReadWrite, ..reading() };
    assert_eq!(BcachefsDriver.open(device, &options).err(), Some(Error::Unsupported(Feature::Writing)));
}
