//! Single corruptions, and exactly their errors: an intact image is damaged at one place, and only data there is
//! lost.

mod common;

use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use obento_base::{
    Corrupt, DeviceError, DeviceNumber, Error, Feature, FileKind, Ino, Mode, Name, Result, Structure,
};
use obento_block::MemDevice;
use obento_driver::{
    Access, Driver as _, FileSystem, LayoutLock, NewNode, Notice, OpenOptions, RenameFlags, SetAttr, Size,
    Span, VolumeInfo, WritableFileSystem, XattrMode,
};
use obento_ext4::raw::{RawExtent, RawExtentHeader, RawGroup32, RawInode, RawSuperBlock};
use obento_ext4::{Ext4, Ext4Driver, open_volume};
use obento_testkit::oracle::program;
use obento_testkit::{Oracle, require};

/// An image in memory that is damaged and opened.
#[derive(Clone)]
struct Image {
    bytes: Vec<u8>,
    block_size: usize,
}

const FEATURES: &[&str] = &["-O", "^metadata_csum,^has_journal,^resize_inode", "-b", "1024", "-N", "64"];
const CHECKED: &[&str] = &["-O", "metadata_csum,^has_journal,^resize_inode", "-b", "1024", "-N", "64"];

impl Image {
    fn make(args: &[&str], len: u64) -> Option<Self> {
        if !require(&[Oracle::Program("mke2fs")]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
        plant(&tree);
        fs::File::create(&image).unwrap().set_len(len).unwrap();
        let mut mke2fs = program("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4"]).args(args).arg("-d").arg(&tree).arg(&image);
        obento_testkit::oracle::run(&mut mke2fs).unwrap();
        let block_size =
            args.iter().skip_while(|&&arg| arg != "-b").nth(1).map_or(4096, |n| n.parse().unwrap());
        Some(Self { bytes: fs::read(&image).unwrap(), block_size })
    }

    fn open(&self) -> Result<Ext4> {
        open_volume(Arc::new(MemDevice::read_only(self.bytes.clone())), &common::options()).map(Ext4::new)
    }

    fn info(&self) -> VolumeInfo {
        self.open().unwrap().info()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the byte offset of an inode's record.
    fn inode(&self, path: &str) -> (Ino, usize) {
        let fs = self.open().unwrap();
        let ino = find(&fs, path).unwrap();
        let place = fs.volume().inode(ino).unwrap().place();
        (ino, place.block.0 as usize * self.block_size + place.offset as usize)
    }

    /// Changes a field of the inode at `path`. Returns its number and its block, for the expected error.
    fn damage_inode(&mut self, path: &str, offset: usize, bytes: &[u8]) -> (Ino, u64) {
        let (ino, place) = self.inode(path);
        self.put(place + offset, bytes);
        (ino, (place / self.block_size) as u64)
    }

    fn map(&self, ino: Ino, at: u64) -> Result<Span> {
        let lock = obento_driver::LayoutLock::new();
        self.open()?.map(&lock.shared(), ino, at..at + 1).map(|extent| extent.span)
    }
}

/// Creates `file` with three blocks, `pieces` with six extents, `link`, and `folder/inner`.
fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("folder")).unwrap();
    fs::write(tree.join("file"), [7; 3000]).unwrap();
    fs::write(tree.join("folder/inner"), "inner").unwrap();
    std::os::unix::fs::symlink("target", tree.join("link")).unwrap();
    let pieces = fs::File::create(tree.join("pieces")).unwrap();
    for n in 0..6 {
        pieces.write_all_at(&[1; 4096], n * 65536).unwrap();
    }
}

fn find(fs: &Ext4, path: &str) -> Result<Ino> {
    path.split('/').try_fold(fs.root(), |dir, name| fs.lookup(dir, Name::new(name.as_bytes()).unwrap()))
}

fn field(structure: Structure, field: &'static str, block: u64, offset: usize, found: u64) -> Error {
    Corrupt::Field { structure, field, block, offset: offset as u32, found }.into()
}

#[test]
fn a_damaged_field_of_the_only_super_block_is_named() {
    let Some(sound) = Image::make(FEATURES, 2 << 20) else { return };
    assert_eq!(sound.info().notices, []);
    macro_rules! refused {
        ($field:ident, $bytes:expr, $found:expr) => {
            let mut image = sound.clone();
            let offset = offset_of!(RawSuperBlock, $field);
            image.put(1024 + offset, &$bytes);
            let expected = field(Structure::SuperBlock, stringify!($field), 1, offset, $found);
            assert_eq!(image.open().err(), Some(expected), stringify!($field));
        };
    }
    refused!(s_log_cluster_size, [1], 1);
    refused!(s_blocks_per_group, [0, 0, 0, 0], 0);
    refused!(s_blocks_per_group, [1, 0x20], 0x2001);
    refused!(s_inodes_per_group, [0, 0, 0, 0], 0);
    refused!(s_inodes_per_group, [1, 0x20], 0x2001);
    refused!(s_inodes_count, [0xff], 0xff);
    refused!(s_blocks_count_lo, [0, 0, 1], 0x1_0000);
    refused!(s_first_data_block, [0], 0);
    refused!(s_first_data_block, [0xff; 4], 0xffff_ffff);
    refused!(s_first_ino, [10], 10);
    refused!(s_inode_size, [0xff, 0], 255);
    refused!(s_inode_size, [0, 8], 2048);
    refused!(s_inode_size, [64, 0], 64);
    refused!(s_desc_size, [32], 32);
    refused!(s_reserved_gdt_blocks, [1, 1], 257);
}

#[test]
fn a_super_block_with_a_wrong_magic_number_or_block_size_is_refused() {
    let Some(sound) = Image::make(FEATURES, 2 << 20) else { return };
    let mut image = sound.clone();
    image.put(1024 + offset_of!(RawSuperBlock, s_log_block_size), &[7]);
    let offset = offset_of!(RawSuperBlock, s_log_block_size);
    assert_eq!(image.open().err(), Some(field(Structure::SuperBlock, "s_log_block_size", 1, offset, 7)));
    let mut image = sound;
    image.put(1024 + offset_of!(RawSuperBlock, s_magic), &[0, 0]);
    let magic = Corrupt::Magic { structure: Structure::SuperBlock, block: 1, found: 0, expected: 0xef53 };
    assert_eq!(image.open().err(), Some(magic.into()));
}

#[test]
fn an_unknown_incompatible_feature_is_refused_by_name_or_bits() {
    let Some(sound) = Image::make(FEATURES, 2 << 20) else { return };
    let offset = 1024 + offset_of!(RawSuperBlock, s_feature_incompat);
    let features = u32::from_le_bytes(sound.bytes[offset..offset + 4].try_into().unwrap());
    for (bit, feature) in [
        (0x1000, Feature::Named("dirdata")),
        (0x8000_0000, Feature::Bits { set: "incompatible", bits: 0x8000_0000 }),
    ] {
        let mut image = sound.clone();
        image.put(offset, &(features | bit).to_le_bytes());
        assert_eq!(image.open().err(), Some(Error::Unsupported(feature)));
    }
}

#[test]
fn a_super_block_with_only_its_checksum_wrong_is_used_with_a_notice() {
    let Some(mut image) = Image::make(CHECKED, 2 << 20) else { return };
    image.put(1024 + offset_of!(RawSuperBlock, s_volume_name), b"changed");
    let fs = image.open().unwrap();
    assert!(matches!(
        fs.info().notices[..],
        [Notice::Damaged(Error::Corrupt(Corrupt::Checksum {
            structure: Structure::SuperBlock,
            block: 1,
            ..
        }))]
    ));
    assert!(find(&fs, "folder/inner").is_ok());
}

#[test]
fn a_copy_replaces_a_wiped_super_block_with_a_notice() {
    for (args, block, mib) in [
        (&["-b", "1024"][..], 8193, 20),
        (&["-b", "2048"], 16384, 40),
        (&["-b", "4096"], 32768, 140),
        (&["-b", "1024", "-g", "2048"], 2049, 20),
        (&["-b", "1024", "-O", "sparse_super2,^resize_inode"], 8193, 20),
        (&["-b", "1024", "-O", "bigalloc", "-C", "2048"], 16384, 40),
    ] {
        let Some(mut image) = Image::make(args, mib << 20) else { return };
        // A group size other than the default can be known only from the rest of the primary super block.
        let wiped = if args.contains(&"-g") { 1024 + 0x38..1024 + 0x3a } else { 1024..2048 };
        image.bytes[wiped].fill(0);
        let fs = image.open().unwrap();
        assert!(fs.info().notices.contains(&Notice::BackupSuperBlock { block }), "{args:?}: {:?}", fs.info());
        assert!(find(&fs, "folder/inner").is_ok());
        let device = MemDevice::read_only(image.bytes.clone());
        assert_eq!(Ext4Driver.probe(&device).unwrap().map(|probe| probe.fs_type), Some("ext4"));
        let options = obento_driver::OpenOptions { super_block: Some(block), ..common::options() };
        assert!(Ext4Driver.open(Arc::new(device), &options).is_ok());
    }
}

#[test]
fn copies_left_behind_a_boot_record_are_not_taken_for_a_volume() {
    let Some(mut image) = Image::make(&["-b", "1024"], 20 << 20) else { return };
    image.bytes[1024..2048].fill(0);
    image.put(510, &[0x55, 0xaa]);
    assert_eq!(Ext4Driver.probe(&MemDevice::read_only(image.bytes)).unwrap(), None);
}

#[test]
fn a_damaged_descriptor_is_replaced_by_a_copy_or_costs_its_group() {
    let Some(sound) = Image::make(&["-O", "metadata_csum", "-b", "1024", "-g", "1024"], 8 << 20) else {
        return;
    };
    let table = 2 * 1024 + offset_of!(RawGroup32, bg_inode_table_lo);
    let mut image = sound.clone();
    image.put(table, &[0xff; 4]);
    let fs = image.open().unwrap();
    assert!(matches!(
        fs.info().notices[..],
        [Notice::Damaged(Error::Corrupt(Corrupt::Checksum { structure: Structure::GroupDescriptor(0), .. }))]
    ));
    assert!(find(&fs, "folder/inner").is_ok());
    // Now no backup is intact.
    let Some(mut alone) = Image::make(FEATURES, 2 << 20) else { return };
    alone.put(table, &[0xff; 4]);
    let expected =
        Corrupt::BlockRange { structure: Structure::GroupDescriptor(0), at: 0, start: 0xffff_ffff, len: 16 };
    assert_eq!(alone.open().unwrap().getattr(Ino(2)), Err(expected.into()));
}

#[test]
fn inodes_that_are_not_the_users_are_stale() {
    let Some(image) = Image::make(FEATURES, 2 << 20) else { return };
    let fs = image.open().unwrap();
    assert!(fs.getattr(Ino(2)).is_ok());
    for ino in [0, 1, 7, 8, 10, 60, 65, u64::MAX] {
        assert_eq!(fs.getattr(Ino(ino)), Err(Error::Stale), "{ino}");
    }
}

#[test]
fn a_name_of_an_unused_inode_is_reported_as_such() {
    let Some(mut image) = Image::make(FEATURES, 2 << 20) else { return };
    let (ino, _) = image.damage_inode("file", offset_of!(RawInode, i_links_count), &[0, 0]);
    let fs = image.open().unwrap();
    assert_eq!(find(&fs, "file"), Err(Corrupt::UnusedInode { ino }.into()));
    assert!(find(&fs, "pieces").is_ok());
}

#[test]
fn a_damaged_inode_costs_its_file_alone() {
    let Some(mut image) = Image::make(CHECKED, 2 << 20) else { return };
    let (ino, block) = image.damage_inode("file", offset_of!(RawInode, i_uid), &[1]);
    let fs = image.open().unwrap();
    let error = fs.getattr(ino).unwrap_err();
    assert!(
        matches!(error, Error::Corrupt(Corrupt::Checksum { structure: Structure::Inode(n), block: b, .. })
            if n == ino && b == block)
    );
    assert_eq!(common::read_everything(&fs).errors.len(), 1);
}

/// A regular file to create.
const FILE: NewNode<'_> = NewNode {
    kind: FileKind::Regular,
    mode: Mode::new(0o644),
    uid: 0,
    gid: 0,
    rdev: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

fn changes(fs: &dyn FileSystem) -> &dyn WritableFileSystem {
    fs.writable().unwrap()
}

/// A change of a file in the root.
type FileChange = fn(&dyn FileSystem, Ino, &Name) -> Result<()>;

/// Every change that reads the inode of a file.
const FILE_CHANGES: &[(&str, FileChange)] = &[
    ("set_xattr", |fs, ino, _| fs.xattrs().unwrap().set_xattr(ino, b"user.a", b"x", XattrMode::Set)),
    ("remove_xattr", |fs, ino, _| fs.xattrs().unwrap().remove_xattr(ino, b"user.a")),
    ("set_attr", |fs, ino, _| {
        changes(fs).set_attr(ino, &SetAttr { uid: Some(1), ..SetAttr::default() }).map(drop)
    }),
    ("link", |fs, ino, _| changes(fs).link(ino, fs.root(), Name::new(b"link-2").unwrap()).map(drop)),
    ("unlink", |fs, _, name| changes(fs).unlink(fs.root(), name)),
    ("rename", |fs, _, name| {
        let to = Name::new(b"moved").unwrap();
        changes(fs).rename(fs.root(), name, fs.root(), to, RenameFlags::empty())
    }),
    ("truncate", |fs, ino, _| changes(fs).truncate(&LayoutLock::new().exclusive(), ino, 1)),
    ("begin_write", |fs, ino, _| changes(fs).begin_write(&LayoutLock::new().shared(), ino, 0..9).map(drop)),
    ("write", |fs, ino, _| changes(fs).write(&LayoutLock::new().shared(), ino, 0, b"x").map(drop)),
    ("punch", |fs, ino, _| changes(fs).punch(&LayoutLock::new().exclusive(), ino, 0..1024)),
    ("allocate", |fs, ino, _| changes(fs).allocate(&LayoutLock::new().shared(), ino, 0..9, Size::Keep)),
    ("zero_range", |fs, ino, _| {
        changes(fs).zero_range(&LayoutLock::new().exclusive(), ino, 0..1024, Size::Keep)
    }),
    ("collapse", |fs, ino, _| changes(fs).collapse(&LayoutLock::new().exclusive(), ino, 0..1024)),
    ("insert", |fs, ino, _| changes(fs).insert(&LayoutLock::new().exclusive(), ino, 0..1024)),
];

#[test]
fn opening_for_changes_tests_its_errors_in_order() {
    let Some(sound) = Image::make(FEATURES, 2 << 20) else { return };
    let open = |image: &Image, device: fn(Vec<u8>) -> MemDevice| {
        let options = OpenOptions { access: Access::ReadWrite, ..common::options() };
        Ext4Driver.open(Arc::new(device(image.bytes.clone())), &options).err().expect("an error")
    };
    let damaged = |offset: usize, byte| {
        let mut image = sound.clone();
        image.put(1024 + offset, &[byte]);
        image
    };
    let corrupt = damaged(offset_of!(RawSuperBlock, s_log_cluster_size), 1);
    assert!(matches!(open(&corrupt, MemDevice::read_only), Error::Corrupt(_)));
    let mut short = sound.clone();
    short.bytes.truncate(1 << 20);
    assert!(matches!(open(&short, MemDevice::read_only), Error::Device(DeviceError::OutOfBounds { .. })));
    let unknown = damaged(offset_of!(RawSuperBlock, s_feature_incompat) + 3, 0x80);
    assert!(matches!(open(&unknown, MemDevice::read_only), Error::Unsupported(_)));
    assert_eq!(open(&sound, MemDevice::read_only), Error::ReadOnly);
    let readable = damaged(offset_of!(RawSuperBlock, s_feature_ro_compat) + 3, 0x80);
    assert_eq!(open(&readable, MemDevice::read_only), Error::ReadOnly);
    assert!(matches!(open(&readable, MemDevice::new), Error::Unsupported(_)));
}

#[test]
fn damage_that_a_change_finds_makes_a_volume_read_only_if_the_volume_requires_it() {
    let Some(mut image) = Image::make(&[CHECKED, &["-e", "remount-ro"]].concat(), 2 << 20) else { return };
    let (ino, _) = image.damage_inode("file", offset_of!(RawInode, i_uid), &[1]);
    let [file, folder, absent] = ["file", "folder", "absent"].map(|name| Name::new(name.as_bytes()).unwrap());
    for (name, change) in FILE_CHANGES {
        let device = Arc::new(MemDevice::new(image.bytes.clone()));
        let options = OpenOptions { access: Access::ReadWrite, ..common::options() };
        let fs = Ext4Driver.open(device, &options).unwrap();
        let found = change(&*fs, ino, file);
        assert!(matches!(found, Err(Error::Corrupt(_))), "{name}: {found:?}");
        // This error comes before Exists, NotFound and NotSupported.
        let created = changes(&*fs).create(fs.root(), folder, &FILE);
        assert_eq!(created.err(), Some(Error::ReadOnly), "{name}");
        assert_eq!(changes(&*fs).unlink(fs.root(), absent), Err(Error::ReadOnly), "{name}");
        let set = fs.xattrs().unwrap().set_xattr(fs.root(), b"unknown.a", b"", XattrMode::Set);
        assert_eq!(set, Err(Error::ReadOnly), "{name}");
    }
}

#[test]
fn wrong_inode_fields_are_named_with_their_place() {
    let Some(sound) = Image::make(FEATURES, 2 << 20) else { return };
    for (name, offset, bytes, found) in [
        ("i_mode", 0, &[0xff, 0xff][..], 0xffff),
        ("i_size_high", offset_of!(RawInode, i_size_high), &[0, 0, 0, 0x80], 0x8000_0000),
        ("i_flags", offset_of!(RawInode, i_flags), &[0, 0, 0x28, 0], 0x28_0000),
        ("i_extra_isize", 128, &[30, 0], 30),
        ("i_extra_isize", 128, &[0, 1], 256),
    ] {
        let mut image = sound.clone();
        let (ino, place) = image.inode("file");
        image.put(place + offset, bytes);
        let expected =
            field(Structure::Inode(ino), name, (place / 1024) as u64, place % 1024 + offset, found);
        assert_eq!(image.open().unwrap().getattr(ino), Err(expected), "{name}");
    }
    let mut image = sound;
    let (ino, place) = image.inode("link");
    image.put(place + offset_of!(RawInode, i_size_lo), &[0]);
    let offset = place % 1024 + offset_of!(RawInode, i_size_lo);
    let expected = field(Structure::Inode(ino), "i_size_lo", (place / 1024) as u64, offset, 0);
    assert_eq!(image.open().unwrap().read_link(ino), Err(expected));
}

const I_BLOCK: usize = offset_of!(RawInode, i_block);
const HEADER: usize = size_of::<RawExtentHeader>();

#[test]
fn each_wrong_field_of_an_extent_root_is_reported() {
    let Some(sound) = Image::make(FEATURES, 2 << 20) else { return };
    let (ino, _) = sound.inode("file");
    let structure = Structure::ExtentTree(ino);
    let tree = |name, offset, found| field(structure, name, 0, offset, found);
    let first = I_BLOCK + HEADER;
    let table = {
        let fs = sound.open().unwrap();
        fs.volume().group(0).unwrap().inode_table.0
    };
    let len = {
        let (_, place) = sound.inode("file");
        u64::from(sound.bytes[place + first + offset_of!(RawExtent, ee_len)])
    };
    let range = |start, len| Error::from(Corrupt::BlockRange { structure, at: 0, start, len });
    let lo = offset_of!(RawExtent, ee_start_lo);
    let cases: Vec<(usize, Vec<u8>, Error)> = vec![
        (I_BLOCK, vec![0], Corrupt::Magic { structure, block: 0, found: 0xf300, expected: 0xf30a }.into()),
        (I_BLOCK + 2, vec![5], tree("eh_entries", 2, 5)),
        (I_BLOCK + 4, vec![5], tree("eh_max", 4, 5)),
        (I_BLOCK + 6, vec![6], Corrupt::Depth { structure, block: 0, found: 6, expected: 5 }.into()),
        (first + offset_of!(RawExtent, ee_len), vec![0, 0], tree("ee_len", HEADER + 4, 0)),
        (first + lo, vec![0xff; 4], range(0xffff_ffff, len)),
        (first + lo, (table as u32).to_le_bytes().to_vec(), range(table, len)),
        (first + lo, 2_u32.to_le_bytes().to_vec(), range(2, len)),
        // A depth of 1 turns the extent into an index entry, whose first word is the block below.
        (I_BLOCK + 6, vec![1], range(3 << 32, 1)),
    ];
    for (offset, bytes, expected) in cases {
        let mut image = sound.clone();
        image.damage_inode("file", offset, &bytes);
        match (image.map(ino, 0), expected) {
            // The place to which the index entry refers depends on the image; only the refusal matters.
            (Err(Error::Corrupt(Corrupt::BlockRange { .. } | Corrupt::Magic { .. })), _)
                if offset == I_BLOCK + 6 && bytes == [1] => {}
            (found, expected) => assert_eq!(found.err(), Some(expected), "byte {offset}"),
        }
        assert_eq!(common::read_everything(&image.open().unwrap()).errors.len(), 1, "byte {offset}");
    }
}

#[test]
fn extents_out_of_order_cost_their_file() {
    let Some(mut image) = Image::make(CHECKED, 2 << 20) else { return };
    let (ino, place) = image.inode("pieces");
    let child = I_BLOCK + HEADER + 4;
    let node = u32::from_le_bytes(image.bytes[place + child..][..4].try_into().unwrap());
    let leaf = node as usize * 1024;
    image.put(leaf + HEADER + 12, &[0, 0]);
    assert!(matches!(
        image.map(ino, 0),
        Err(Error::Corrupt(Corrupt::Checksum { structure: Structure::ExtentTree(n), block, .. }))
            if n == ino && block == u64::from(node)
    ));
    let Some(mut image) = Image::make(FEATURES, 2 << 20) else { return };
    let (ino, place) = image.inode("pieces");
    let node = u32::from_le_bytes(image.bytes[place + child..][..4].try_into().unwrap());
    image.put(node as usize * 1024 + HEADER + 12, &[0, 0]);
    let expected = Corrupt::ExtentOrder { ino, block: node.into(), index: 1, at: 0 };
    assert_eq!(image.map(ino, 0).err(), Some(expected.into()));
}

#[test]
fn block_maps_are_bounded_and_refuse_metadata() {
    let args = ["-O", "^extents,^metadata_csum,^has_journal,^resize_inode,^64bit", "-b", "1024", "-N", "64"];
    let Some(sound) = Image::make(&args, 2 << 20) else { return };
    let (ino, _) = sound.inode("pieces");
    let structure = Structure::IndirectBlock(ino);
    for (slot, at, number) in [(0, 0, 0xffff_fff0_u32), (12, 12, 0x7fff_ffff), (13, 268, 3), (0, 0, 3)] {
        let mut image = sound.clone();
        image.damage_inode("pieces", I_BLOCK + slot * 4, &number.to_le_bytes());
        let expected = Corrupt::BlockRange { structure, at, start: number.into(), len: 1 };
        assert_eq!(image.map(ino, at * 1024).err(), Some(expected.into()), "slot {slot}");
    }
}

#[test]
fn a_truncated_image_shows_its_contents_and_names_the_missing_ones() {
    let Some(mut image) = Image::make(FEATURES, 2 << 20) else { return };
    let fs = image.open().unwrap();
    let root = fs.volume().inode(fs.root()).unwrap();
    let last = fs.volume().map_block(&root, obento_ext4::FileBlock(0)).unwrap().unwrap();
    let table = fs.volume().group(0).unwrap().inode_table;
    let found = (last.0 + 1).max(table.0 + 16) * 1024;
    image.bytes.truncate(found as usize);
    let fs = image.open().unwrap();
    assert_eq!(fs.info().notices, [Notice::Truncated { expected: 2 << 20, found }]);
    let all = common::read_everything(&fs);
    assert!(all.errors.iter().all(|(_, error)| matches!(
        error,
        Error::Device(DeviceError::OutOfBounds { device_len, .. }) if *device_len == found
    )));
    assert!(all.entries.iter().any(|(path, _)| path == b"/link"), "{all:?}");
}

#[test]
fn a_geometry_far_larger_than_the_image_is_opened_in_bounded_time() {
    let args = ["-O", "^metadata_csum,^has_journal,^resize_inode", "-b", "4096", "-N", "64"];
    let Some(sound) = Image::make(&args, 2 << 20) else { return };
    let read = |offset: usize| u32::from_le_bytes(sound.bytes[1024 + offset..][..4].try_into().unwrap());
    let per_group = u64::from(read(offset_of!(RawSuperBlock, s_inodes_per_group)));
    // The maximum number of groups that are all examined; then a pebibyte, whose groups are examined when needed.
    for groups in [1_u64 << 17, 1 << 23] {
        let mut image = sound.clone();
        let (blocks, inodes) = (groups * 32768, groups * per_group);
        image.put(1024 + offset_of!(RawSuperBlock, s_blocks_count_lo), &(blocks as u32).to_le_bytes());
        image
            .put(1024 + offset_of!(RawSuperBlock, s_blocks_count_hi), &((blocks >> 32) as u32).to_le_bytes());
        image.put(1024 + offset_of!(RawSuperBlock, s_inodes_count), &(inodes as u32).to_le_bytes());
        let start = std::time::Instant::now();
        let fs = image.open().unwrap();
        assert!(fs.info().notices.contains(&Notice::Truncated { expected: blocks * 4096, found: 2 << 20 }));
        // The descriptors of this many groups overlap the files.
        let all = common::read_everything(&fs);
        assert!(matches!(all.errors[..], [(_, Error::Corrupt(Corrupt::BlockRange { .. }))]));
        fs.statfs().unwrap();
        println!("{groups} groups take {:?}", start.elapsed());
        assert!(start.elapsed().as_secs() < 20);
    }
}
