//! Attributes on real volumes, checked with e2fsck and the kernel.

use std::collections::BTreeMap;
use std::format;
use std::path::Path;
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use obento_base::{Error, Ino, Name, Timestamp};
use obento_block::BlockDevice;
use obento_driver::{OpenOptions, SetAttr, TimeChange, XattrMode};
use obento_env::FixedClock;
use obento_host::FileDevice;
use obento_testkit::oracle::{LoopMount, Oracle, call};
use obento_testkit::require;
use rustix::fs::XattrFlags;

use crate::super_block::ROOT_INO;
use crate::writer::{Writer, cost, open_writer};

const FILES: usize = 24;

/// All attributes of all files.
type Model = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Returns a volume of 64 MiB with `files` empty files `f0` and so on.
fn image(folder: &Path, arguments: &[&str], files: usize) -> std::path::PathBuf {
    let (source, image) = (folder.join("source"), folder.join("image"));
    std::fs::create_dir(&source).unwrap();
    (0..files).for_each(|n| std::fs::write(source.join(format!("f{n}")), "").unwrap());
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let fixed = ["-q", "-F", "-t", "ext4", "-d", source.to_str().unwrap()];
    call("mke2fs", fixed.iter().chain(arguments).chain(&[image.to_str().unwrap()])).unwrap();
    image
}

fn writer(image: &Path) -> Writer {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(image).unwrap());
    let clock = Arc::new(FixedClock(Timestamp::new(1_800_000_000, 0)));
    open_writer(device, &OpenOptions::new(clock)).unwrap()
}

fn find(writer: &Writer, file: &str) -> Ino {
    let root = writer.volume().inode(ROOT_INO).unwrap();
    writer.volume().current_lookup(&root, Name::new(file.as_bytes()).unwrap()).unwrap()
}

fn close(writer: Writer, image: &Path) {
    writer.close().unwrap();
    call("e2fsck", ["-fn", image.to_str().unwrap()]).unwrap();
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

fn acl(uid: u8) -> Vec<u8> {
    let entry = |tag: u8, perm: u8, id: [u8; 4]| [&[tag, 0, perm, 0][..], &id].concat();
    let all = [255; 4];
    let (user, group) = (entry(1, 6, all), entry(4, 4, all));
    [vec![2, 0, 0, 0], user, entry(2, 4, [uid, 0, 0, 0]), group, entry(16, 4, all), entry(32, 4, all)]
        .concat()
}

/// Returns a name and a value for it, from few of each, so that some blocks are equal.
fn pick(random: &mut Random, longest: usize) -> (Vec<u8>, Vec<u8>) {
    match random.below(9) {
        0 => (b"system.posix_acl_access".to_vec(), acl(u8::try_from(random.below(2)).unwrap())),
        n => {
            let name = ["user.a", "user.bc", "trusted.t", "security.s", "user.a_longer_name"][n % 5];
            let len = [0, 3, 40, 200, longest][random.below(5)];
            (name.as_bytes().to_vec(), vec![u8::try_from(random.below(3)).unwrap() + b'x'; len])
        }
    }
}

/// Changes attributes at random, and `model` in the same way.
fn change_some(writer: &Writer, model: &mut Model, random: &mut Random, longest: usize, steps: usize) {
    for _ in 0..steps {
        let file = format!("f{}", random.below(FILES));
        let (name, value) = pick(random, longest);
        let (ino, key) = (find(writer, &file), (file, name));
        if random.below(4) == 0 {
            let expected = model.remove(&key).map(drop).ok_or(Error::NoData);
            assert_eq!(writer.remove_xattr(ino, &key.1), expected, "{key:?}");
            continue;
        }
        match writer.set_xattr(ino, &key.1, &value, XattrMode::Set) {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => assert_eq!(error, Error::NoSpace),
        }
    }
}

fn read_all(writer: &Writer) -> Model {
    let mut all = Model::new();
    for file in (0..FILES).map(|n| format!("f{n}")) {
        let inode = writer.volume().inode(find(writer, &file)).unwrap();
        let mut names = vec![];
        writer.volume().list_xattrs(&inode, &mut |name| names.push(name.to_vec())).unwrap();
        for name in names {
            let value = writer.volume().get_xattr(&inode, &name).unwrap();
            all.insert((file.clone(), name), value);
        }
    }
    all
}

fn kernel_reads(image: &Path) -> Model {
    let mount = LoopMount::new(image, "ro").unwrap();
    let mut all = Model::new();
    for file in (0..FILES).map(|n| format!("f{n}")) {
        let path = mount.path().join(&file);
        let mut names = vec![0; 65_536];
        let len = rustix::fs::listxattr(&path, &mut names).unwrap();
        for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 65_536];
            let len = rustix::fs::getxattr(&path, name, &mut value).unwrap();
            all.insert((file.clone(), name.to_vec()), value[..len].to_vec());
        }
    }
    mount.unmount().unwrap();
    all
}

/// Lets the kernel set equal attributes on half of the files.
fn kernel_writes(image: &Path, model: &mut Model) {
    let mount = LoopMount::new(image, "").unwrap();
    for n in (0..FILES).step_by(2) {
        let (file, name, value) = (format!("f{n}"), "user.by_the_kernel", [b'k'; 300]);
        match rustix::fs::setxattr(mount.path().join(&file), name, &value, XattrFlags::empty()) {
            Ok(()) => drop(model.insert((file, name.into()), value.to_vec())),
            Err(errno) => assert_eq!(errno, rustix::io::Errno::NOSPC),
        }
    }
    mount.unmount().unwrap();
}

fn round_trip(arguments: &[&str], longest: usize, seed: u64) {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::LoopMount]) {
        return;
    }
    std::eprintln!("mke2fs {arguments:?}, seed {seed:#x}");
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), arguments, FILES);
    let (mut model, mut random) = (Model::new(), Random(seed));
    for _ in 0..3 {
        let writer = writer(&image);
        change_some(&writer, &mut model, &mut random, longest, 150);
        assert_eq!(read_all(&writer), model);
        close(writer, &image);
        assert_eq!(kernel_reads(&image), model);
        kernel_writes(&image, &mut model);
    }
    let writer = writer(&image);
    for (file, name) in model.keys() {
        writer.remove_xattr(find(&writer, file), name).unwrap();
    }
    close(writer, &image);
    assert_eq!(kernel_reads(&image), Model::new());
}

#[test]
fn the_kernel_reads_attributes_set_in_inodes_and_blocks() {
    round_trip(&["-b", "4096"], 3000, 0x1111);
}

#[test]
fn the_kernel_reads_attributes_set_with_small_blocks_and_inodes() {
    round_trip(&["-b", "1024", "-I", "128", "-O", "^metadata_csum,^64bit"], 700, 0x2222);
}

#[test]
fn the_kernel_reads_attributes_set_beside_inline_data_and_in_clusters() {
    round_trip(&["-b", "4096", "-O", "inline_data,bigalloc", "-C", "16384"], 3000, 0x3333);
}

/// Not with inodes of 128 bytes: there Linux 6 truncates the hashes that it writes to 31 bits, and then refuses the
/// values.
#[test]
fn the_kernel_reads_attributes_set_in_value_inodes() {
    round_trip(&["-b", "4096", "-O", "ea_inode"], 30_000, 0x4444);
    round_trip(&["-b", "1024", "-O", "ea_inode,^extent,^64bit"], 65_536, 0x5555);
    round_trip(&["-b", "1024", "-O", "ea_inode,bigalloc,inline_data", "-C", "8192"], 5_000, 0x6666);
}

#[test]
fn a_value_is_kept_once_however_many_name_it_and_freed_with_the_last() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), &["-b", "4096", "-O", "ea_inode"], FILES);
    let writer = writer(&image);
    let inodes: Vec<_> = (0..FILES).map(|n| find(&writer, &format!("f{n}"))).collect();
    let before = writer.allocator().totals();
    let set = |ino, name: &[u8], byte| writer.set_xattr(ino, name, &[byte; 20_000], XattrMode::Set).unwrap();
    for &ino in &inodes {
        set(ino, b"user.a", 1);
        set(ino, b"user.b", 1);
    }
    assert_eq!(before.free_inodes - writer.allocator().totals().free_inodes, 1);
    set(inodes[0], b"user.a", 2);
    set(inodes[0], b"user.a", 2);
    assert_eq!(before.free_inodes - writer.allocator().totals().free_inodes, 2);
    for &ino in &inodes {
        writer.remove_xattr(ino, b"user.a").unwrap();
        writer.remove_xattr(ino, b"user.b").unwrap();
    }
    writer.txns().sync().unwrap();
    assert_eq!(writer.allocator().totals(), before);
    close(writer, &image);
}

#[test]
fn a_block_is_shared_by_equals_and_freed_with_the_last() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), &["-b", "1024", "-I", "128"], FILES);
    let writer = writer(&image);
    let inodes: Vec<_> = (0..FILES).map(|n| find(&writer, &format!("f{n}"))).collect();
    let block = |ino: Ino| writer.volume().inode(ino).unwrap().xattr_block();
    let free = || writer.allocator().totals().free_blocks;
    let before = free();
    for &ino in &inodes {
        writer.set_xattr(ino, b"user.a", b"the same", XattrMode::Set).unwrap();
    }
    assert_eq!(before - free(), 1);
    writer.set_xattr(inodes[0], b"user.a", b"another", XattrMode::Set).unwrap();
    assert_ne!(block(inodes[0]), block(inodes[1]));
    writer.set_xattr(inodes[0], b"user.a", b"the same", XattrMode::Set).unwrap();
    assert_eq!(block(inodes[0]), block(inodes[1]));
    for &ino in &inodes {
        writer.remove_xattr(ino, b"user.a").unwrap();
    }
    assert_eq!((block(inodes[5]), free()), (None, before));
    assert_eq!(writer.remove_xattr(inodes[5], b"user.a"), Err(Error::NoData));
    close(writer, &image);
}

#[test]
fn only_another_value_sets_the_change_time() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), &[], 1);
    let writer = writer(&image);
    let ino = find(&writer, "f0");
    let set = |value: &[u8]| {
        let past = Some(TimeChange::At(Timestamp::new(5, 0)));
        writer.set_attr(ino, &SetAttr { ctime: past, ..SetAttr::default() }).unwrap();
        writer.set_xattr(ino, b"user.a", value, XattrMode::Set).unwrap();
        let inode = writer.volume().inode(ino).unwrap();
        inode.attr(writer.volume().super_block()).ctime.secs()
    };
    assert_eq!([set(b"one"), set(b"one"), set(b"two")], [1_800_000_000, 5, 1_800_000_000]);
    for name in [&b"system.a"[..], b"other.a", b"a"] {
        assert_eq!(writer.remove_xattr(ino, name), Err(Error::NotSupported));
    }
    close(writer, &image);
}

/// Removes the link counts of an inode but not its name: the volume is not consistent afterwards.
fn make_nameless(writer: &Writer, ino: Ino) {
    let inode = writer.lock_inode(ino).unwrap();
    let mut txn = writer.begin(cost::INODE + cost::ORPHAN).unwrap();
    let mut edit = writer.edit_inode(&mut txn, inode.view()).unwrap();
    writer.add_orphan(ino).unwrap();
    edit.set_links(0);
    writer.store_inode(&mut txn, &edit);
    txn.commit();
}

#[test]
fn a_freed_inode_releases_its_attribute_block_and_no_other_one() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), &["-b", "1024", "-I", "128"], 3);
    let writer = writer(&image);
    let inodes: Vec<_> = (0..3).map(|n| find(&writer, &format!("f{n}"))).collect();
    let before = writer.allocator().totals();
    for &ino in &inodes {
        writer.set_xattr(ino, b"user.a", b"the same", XattrMode::Set).unwrap();
    }
    for (n, &ino) in inodes.iter().enumerate() {
        make_nameless(&writer, ino);
        writer.forget(ino);
        let left = writer.allocator().totals();
        assert_eq!(left.free_inodes - before.free_inodes, n as u64 + 1);
        assert_eq!(before.free_blocks - left.free_blocks, u64::from(n < 2));
    }
}

#[test]
fn a_block_has_at_most_1024_users() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), &["-b", "1024", "-I", "128"], 1030);
    let writer = writer(&image);
    let inodes: Vec<_> = (0..1030).map(|n| find(&writer, &format!("f{n}"))).collect();
    for &ino in &inodes {
        writer.set_xattr(ino, b"user.a", b"the same", XattrMode::Set).unwrap();
    }
    let block = |n: usize| writer.volume().inode(inodes[n]).unwrap().xattr_block();
    assert!(block(0) == block(1023) && block(1024) == block(1029) && block(0) != block(1024));
    // With one user fewer, the next one joins again.
    writer.remove_xattr(inodes[5], b"user.a").unwrap();
    writer.remove_xattr(inodes[1029], b"user.a").unwrap();
    (0..2).for_each(|_| writer.set_xattr(inodes[5], b"user.a", b"the same", XattrMode::Set).unwrap());
    assert!(block(5).is_some());
    close(writer, &image);
}
