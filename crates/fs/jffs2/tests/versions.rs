//! What is left of a log: versions, deletions, damage. The images are made node by node.

mod common;

use common::{DIR, FILE, Flash, paths, tree_of};
use obento_base::{FileKind, Ino, Name, Timestamp};
use obento_driver::FileSystem;
use obento_jffs2::Order;

const ORDERS: [Order; 2] = [Order::Little, Order::Big];
const REGULAR: u8 = 8;
const DIRECTORY: u8 = 4;

fn names(volume: &dyn FileSystem) -> Vec<String> {
    paths(volume).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn the_newest_version_of_a_name_counts() {
    for order in ORDERS {
        let mut flash = Flash::new(order);
        flash.inode(1, 1, DIR, 0, 0, (0, 0, &[]));
        flash.entry(1, 5, 0, REGULAR, "removed");
        flash.entry(1, 2, 2, REGULAR, "removed");
        flash.entry(1, 3, 2, REGULAR, "old");
        flash.entry(1, 4, 3, REGULAR, "old");
        flash.entry(1, 6, 2, REGULAR, "kept");
        flash.data(2, 1, 3, 0, b"two");
        flash.data(3, 1, 5, 0, b"three");
        let volume = flash.open();
        let expected = [("kept", "two"), ("old", "three")].map(|(path, bytes)| (path.into(), bytes.into()));
        assert_eq!(paths(&*volume), expected);
        let root = volume.getattr(volume.root()).unwrap();
        // A change of a name is a change of its directory.
        assert_eq!(
            (root.mtime, root.ctime, root.nlink),
            (Timestamp::new(1006, 0), Timestamp::new(1006, 0), 2)
        );
    }
}

#[test]
fn newer_data_hides_older_data_in_any_order_of_the_nodes() {
    for order in ORDERS {
        let mut flash = Flash::new(order);
        flash.entry(1, 1, 2, REGULAR, "file");
        flash.data(2, 3, 10, 2, b"XY");
        flash.data(2, 1, 10, 0, b"0123456789");
        flash.data(2, 4, 6, 4, b"Z");
        flash.data(2, 2, 10, 1, b"abcd");
        let volume = flash.open();
        assert_eq!(paths(&*volume), [("file".into(), "0aXYZ5".into())]);
        let file = volume.getattr(Ino(2)).unwrap();
        assert_eq!((file.uid, file.gid, file.nlink, file.mtime), (7, 8, 1, Timestamp::new(204, 0)));
        // The root has no node of its own.
        assert_eq!(volume.getattr(volume.root()).unwrap().mode.bits(), 0o755);
    }
}

#[test]
fn a_copy_with_the_same_version_changes_nothing() {
    let mut flash = Flash::new(Order::Little);
    flash.entry(1, 1, 2, REGULAR, "file");
    flash.data(2, 1, 3, 0, b"abc");
    flash.data(2, 1, 3, 0, b"abc");
    assert_eq!(paths(&*flash.open()), [("file".into(), "abc".into())]);
}

#[test]
fn holes_take_no_data_and_read_as_zeros() {
    for order in ORDERS {
        let mut flash = Flash::new(order);
        flash.entry(1, 1, 2, REGULAR, "file");
        flash.data(2, 1, 2, 0, b"ab");
        // A file that was extended, and one byte written far behind.
        flash.inode(2, 2, FILE, 100_000, 2, (1, 99_998, &[]));
        flash.data(2, 3, 200_001, 200_000, b"c");
        let volume = flash.open();
        let file = &tree_of(&*volume)[&b"file"[..]];
        let mut expected = vec![0; 200_001];
        (expected[0], expected[1], expected[200_000]) = (b'a', b'b', b'c');
        assert!(file.bytes == expected);
    }
}

#[test]
fn damaged_nodes_do_not_count_and_older_ones_do() {
    let mut flash = Flash::new(Order::Little);
    flash.entry(1, 1, 2, REGULAR, "file");
    flash.data(2, 1, 3, 0, b"old");
    let data = flash.data(2, 2, 3, 0, b"new");
    flash.bytes[data + 68] ^= 1;
    let head = flash.data(2, 3, 3, 0, b"bad");
    flash.bytes[head + 30] ^= 1;
    let name = flash.entry(1, 2, 2, REGULAR, "other");
    flash.bytes[name + 40] ^= 1;
    let volume = flash.open();
    assert_eq!(paths(&*volume), [("file".into(), "old".into())]);
    let info = volume.info();
    assert_eq!((info.state.as_str(), info.notices.len()), ("has damaged nodes", 3));
}

#[test]
fn obsolete_nodes_and_garbage_are_skipped() {
    let mut flash = Flash::new(Order::Big);
    flash.entry(1, 1, 2, REGULAR, "file");
    let gone = flash.entry(1, 2, 0, REGULAR, "file");
    // The bit that Linux clears on NOR flash.
    flash.bytes[gone + 2] &= !0x20;
    flash.bytes.extend([0x12; 40]);
    flash.bytes.extend([0; 8]);
    flash.bytes.extend([0xff; 5000]);
    flash.data(2, 1, 1, 0, b"x");
    let volume = flash.open();
    assert_eq!(paths(&*volume), [("file".into(), "x".into())]);
    let obsolete = volume.info().facts.into_iter().find(|fact| fact.name == "obsolete nodes").unwrap();
    assert_eq!(obsolete.value, "1");
}

#[test]
fn a_directory_has_one_name_and_is_below_the_root() {
    let mut flash = Flash::new(Order::Little);
    for (ino, dir, name) in [(2, 1, "a"), (3, 2, "b"), (2, 3, "cycle"), (3, 1, "second"), (1, 2, "root")] {
        flash.entry(dir, ino * 10 + dir, ino, DIRECTORY, name);
    }
    [2, 3, 5, 6].into_iter().for_each(|ino| {
        flash.inode(ino, 1, DIR, 0, 0, (0, 0, &[]));
    });
    // Two directories that only contain each other.
    flash.entry(5, 1, 6, DIRECTORY, "six");
    flash.entry(6, 1, 5, DIRECTORY, "five");
    flash.entry(1, 90, 77, REGULAR, "dangling");
    flash.entry(1, 91, 2, DIRECTORY, "slash/ed");
    let volume = flash.open();
    assert_eq!(names(&*volume), ["a", "second"]);
    assert_eq!(volume.parent(Ino(3)), Ok(Ino(1)));
    assert_eq!(volume.getattr(Ino(5)), Err(obento_base::Error::Stale));
    assert_eq!(volume.lookup(Ino(1), Name::new(b"dangling").unwrap()), Err(obento_base::Error::NotFound));
}

#[test]
fn attributes_follow_their_references() {
    for order in ORDERS {
        let mut flash = Flash::new(order);
        flash.entry(1, 1, 2, REGULAR, "file");
        flash.data(2, 1, 0, 0, b"");
        flash.xattr(1, 1, "a", b"first");
        flash.xattr(2, 1, "b", b"gone");
        flash.xattr(3, 1, "a", b"second value");
        flash.xattr(3, 2, "a", b"newer version");
        [(1, 2), (2, 4), (3, 6), (2, 9), (9, 8)]
            .into_iter()
            .for_each(|(id, sequence)| flash.xref(2, id, sequence));
        let tree = tree_of(&*flash.open());
        let found: Vec<_> = tree[&b"file"[..]].xattrs.iter().collect();
        assert_eq!(found, [(&b"user.a".to_vec(), &b"newer version".to_vec())]);
    }
}

#[test]
fn device_numbers_have_two_or_four_bytes() {
    for order in ORDERS {
        let mut flash = Flash::new(order);
        let (old, new) = match order {
            Order::Little => ([0x03, 0x01], [0x11, 0x59, 0x11, 0x00]),
            Order::Big => ([0x01, 0x03], [0x00, 0x11, 0x59, 0x11]),
        };
        flash.entry(1, 1, 2, 2, "old");
        flash.inode(2, 1, 0o020_600, 0, 0, (0, 2, &old));
        flash.entry(1, 2, 3, 6, "new");
        flash.inode(3, 1, 0o060_600, 0, 0, (0, 4, &new));
        let tree = tree_of(&*flash.open());
        assert_eq!((tree[&b"old"[..]].kind, tree[&b"old"[..]].rdev), (FileKind::CharDevice, (1, 3)));
        assert_eq!((tree[&b"new"[..]].kind, tree[&b"new"[..]].rdev), (FileKind::BlockDevice, (0x159, 0x111)));
    }
}

#[test]
fn impossible_data_costs_its_file_alone() {
    let mut flash = Flash::new(Order::Little);
    flash.entry(1, 1, 2, REGULAR, "bomb");
    flash.inode(2, 1, FILE, u32::MAX, 0, (6, u32::MAX, &[0x78, 0x9c, 1]));
    flash.entry(1, 2, 3, REGULAR, "lzma");
    flash.inode(3, 1, FILE, 9, 0, (8, 9, &[1, 2, 3]));
    flash.entry(1, 3, 4, REGULAR, "zlib");
    flash.inode(4, 1, FILE, 9, 0, (6, 9, &[1, 2, 3]));
    flash.entry(1, 4, 5, REGULAR, "sound");
    flash.data(5, 1, 4, 0, b"data");
    flash.entry(1, 5, 6, 10, "link");
    flash.inode(6, 1, 0o120_777, 5000, 0, (0, 5000, &[b'x'; 5000]));
    let volume = flash.open();
    let read =
        |ino, len| obento_testkit::changes::read(&*volume, Ino(ino), len).map_err(|error| error.to_string());
    assert!(read(2, 10).unwrap_err().contains("dsize is 4294967295"));
    assert!(read(3, 9).unwrap_err().contains("LZMA compression is not supported"));
    assert!(read(4, 9).unwrap_err().contains("data is 6"));
    assert_eq!(read(5, 4), Ok(b"data".to_vec()));
    assert!(volume.read_link(Ino(6)).unwrap_err().to_string().contains("dsize is 5000"));
}

#[test]
fn a_volume_with_an_incompatible_node_is_refused() {
    use obento_driver::Driver as _;
    let mut flash = Flash::new(Order::Little);
    flash.node(0x2abc, &[]);
    assert!(names(&*flash.open()).is_empty(), "a reader may ignore this type");
    flash.node(0xeabc, &[]);
    let device = std::sync::Arc::new(obento_block::MemDevice::read_only(flash.bytes));
    let options = obento_driver::OpenOptions::new(std::sync::Arc::new(obento_env::NO_CLOCK));
    let error = obento_jffs2::Jffs2Driver.open(device, &options).err().expect("it must not be opened");
    assert_eq!(error.to_string(), "a volume with the unknown node type feature bits 0xeabc is not supported");
}
