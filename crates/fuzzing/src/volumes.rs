//! The sound volumes that targets damage.

use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use obento_base::{DeviceNumber, FileKind, Mode, Name, NameBuf};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{
    Access, Driver, Format, FormatOptions, LayoutLock, NewNode, OpenOptions, TimeChange, XattrMode,
};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_exfat::ExFatDriver;
use obento_ext4::Ext4Driver;
use obento_fat::FatDriver;
use obento_testkit::snapshot::Snapshot;
use obento_vfs::Vfs;
use obento_xv6::Xv6Driver;

/// A volume of 1 KiB blocks without checksums (a fuzzer cannot guess them): a deep extent tree, indirect blocks, an
/// index of two levels, inline data, attributes in inodes, blocks and inodes of their own, and a dirty journal.
static SEED: &[u8] = include_bytes!("../seed/volume.img.zst");

/// A FAT12 of few clusters.
static FAT_SEED: &[u8] = include_bytes!("../seed/fat.img.zst");
/// An ext4 that Linux did not unmount, with six fast commits behind its log, and an orphan file with an orphan in it.
static FAST_SEED: &[u8] = include_bytes!("../seed/fast.img.zst");
/// An ext4 whose journal is on another device, and that device; Linux unmounted neither.
static OUTSIDE_SEED: &[u8] = include_bytes!("../seed/outside.img.zst");
/// An NTFS of ntfs-3g: a directory of many names, compressed and sparse files, streams, links.
static NTFS_SEED: &[u8] = include_bytes!("../seed/ntfs.img.zst");
/// Where its up-case table is.
const NTFS_UP_CASE: usize = 0x86e00;
static LOG_SEED: &[u8] = include_bytes!("../seed/log.img.zst");

/// The ext4.
pub static EXT4: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(SEED));
/// The FAT.
pub static FAT: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(FAT_SEED));
/// The NTFS. Its up-case table, which does not compress, is not in the repository.
pub static NTFS: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    let mut bytes = unpacked(NTFS_SEED);
    let table = bytes[NTFS_UP_CASE..].chunks_exact_mut(2);
    for (unit, place) in (0..=u16::MAX).zip(table) {
        let upper = u8::try_from(unit).map_or(unit, |byte| byte.to_ascii_uppercase().into());
        place.copy_from_slice(&upper.to_le_bytes());
    }
    Arc::new(MemDevice::read_only(bytes))
});

/// The ext4 with fast commits.
pub static FAST: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(FAST_SEED));
/// The ext4 with its journal elsewhere, and the journal.
pub static OUTSIDE: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(OUTSIDE_SEED));
pub static LOG: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(LOG_SEED));

fn unpack(seed: &[u8]) -> Arc<MemDevice> {
    Arc::new(MemDevice::read_only(unpacked(seed)))
}

/// The bytes of a zstd file.
pub fn unpacked(seed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(seed).expect("a zstd file");
    decoder.read_to_end(&mut bytes).expect("a whole one");
    bytes
}

/// A FAT16 with files of each kind, made by the driver itself.
pub static FAT16: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    filled(&FatDriver::default(), 4 << 20, "vfat", &[("fat", "16"), ("sectors_per_cluster", "1")])
});

/// The same as a FAT32.
pub static FAT32: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    filled(&FatDriver::default(), 36 << 20, "vfat", &[("fat", "32"), ("sectors_per_cluster", "1")])
});

/// The same as an exFAT.
pub static EXFAT: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    filled(
        &ExFatDriver::default(),
        256 << 10,
        "exfat",
        &[("cluster_size", "512"), ("boundary_align", "4096")],
    )
});

/// An ext4 of 1 KiB blocks as it is made by default, so with checksums, 64-bit numbers and a journal of the newest kind: an index, a tree of
/// extents, attributes in a block. Before it was closed, when all was only in its log, and after.
static OPEN_AND_CLOSED: LazyLock<[Arc<MemDevice>; 2]> = LazyLock::new(|| {
    let device = Arc::new(MemDevice::new(vec![0; 4 << 20]));
    let clock = Arc::new(NO_CLOCK);
    let made = FormatOptions {
        block_size: Some(1024),
        settings: vec![("inodes".into(), "128".into()), ("journal_size".into(), "1M".into())],
        ..FormatOptions::new("ext4", clock.clone(), Arc::new(FixedRandom(1)))
    };
    Format::format(&Ext4Driver, &*device, &made).expect("room for a volume");
    let open = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = Ext4Driver.open(device.clone(), &open).expect("a sound volume");
    let (writable, lock) = (fs.writable().expect("open for changes"), LayoutLock::new());
    let name = |text: &str| NameBuf::new(text.as_bytes().to_vec()).expect("a name");
    let dir = writable.create(fs.root(), &name("dir"), &node(FileKind::Directory, b"")).expect("room").ino;
    let file = writable.create(dir, &name("file"), &node(FileKind::Regular, b"")).expect("room").ino;
    for n in 0..60 {
        writable.link(file, dir, &name(&format!("another name of the file {n}"))).expect("room");
        // What the blocks hold is left to whoever asked where to write.
        let block = n * 2048..n * 2048 + 1024;
        writable.map_for_write(&lock.shared(), file, block.clone()).expect("room");
        writable.end_write(&lock.shared(), file, block, TimeChange::Now).expect("room");
        if n % 20 == 0 {
            writable.sync().expect("memory does not fail");
        }
    }
    let attributes = fs.xattrs().expect("attributes");
    for n in 0..3 {
        let named = format!("user.number-{n}");
        attributes.set_xattr(file, named.as_bytes(), &[b'v'; 200], XattrMode::Set).expect("room");
    }
    writable.create(dir, &name("link"), &node(FileKind::Symlink, &[b't'; 100])).expect("room");
    writable.unlink(dir, &name("another name of the file 3")).expect("it is there");
    writable.sync().expect("memory does not fail");
    let copy = |device: &MemDevice| {
        let mut bytes = vec![0; 4 << 20];
        device.read_at(0, &mut bytes).expect("memory does not fail");
        Arc::new(MemDevice::read_only(bytes))
    };
    let before = copy(&device);
    writable.close().expect("memory does not fail");
    [before, copy(&device)]
});

/// The ext4 with checksums, as it is when the power goes.
pub static OPEN: LazyLock<Arc<MemDevice>> = LazyLock::new(|| OPEN_AND_CLOSED[0].clone());
/// The same, closed.
pub static CLOSED: LazyLock<Arc<MemDevice>> = LazyLock::new(|| OPEN_AND_CLOSED[1].clone());

/// A new node of anybody's.
fn node(kind: FileKind, target: &[u8]) -> NewNode<'_> {
    NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: DeviceNumber::default(), target }
}

/// A volume of so many bytes with files of each kind.
fn filled(driver: &dyn Driver, len: usize, fs_type: &str, settings: &[(&str, &str)]) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(vec![0; len]));
    let clock = Arc::new(NO_CLOCK);
    let made = FormatOptions {
        settings: settings.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
        ..FormatOptions::new(fs_type, clock.clone(), Arc::new(FixedRandom(1)))
    };
    let format = driver.format().expect("a driver that makes volumes");
    format.format(&*device, &made).expect("room for a volume");
    let open = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = driver.open(device.clone(), &open).expect("a sound volume");
    let (writable, lock) = (fs.writable().expect("open for changes"), LayoutLock::new());
    let mut dir = fs.root();
    for depth in 0..3 {
        for n in 0..6 {
            let name = format!("a name that takes some entries {n}");
            let file = Name::new(name.as_bytes()).expect("a name");
            let ino = writable.create(dir, file, &node(FileKind::Regular, b"")).expect("room").ino;
            // In turns, so that what is appended cannot stay contiguous.
            for round in 0..u64::from(n % 3) * 2 {
                writable.write(&lock.shared(), ino, round * 700, &[n; 700]).expect("room");
                let other = Name::new(b"between").expect("a name");
                let _ = writable.create(dir, other, &node(FileKind::Directory, b""));
            }
        }
        let name = format!("d{depth}");
        let below = Name::new(name.as_bytes()).expect("a name");
        dir = writable.create(dir, below, &node(FileKind::Directory, b"")).expect("room").ino;
    }
    writable.close().expect("memory does not fail");
    device
}

/// An xv6 volume with a file in each kind of block pointer, a directory of several blocks, a link, and a log that was used.
pub static XV6: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    let device = Arc::new(MemDevice::new(vec![0; 2 << 20]));
    let clock = Arc::new(NO_CLOCK);
    let made = FormatOptions {
        settings: vec![("inodes".into(), "64".into())],
        ..FormatOptions::new("xv6", clock.clone(), Arc::new(FixedRandom(1)))
    };
    Format::format(&Xv6Driver, &*device, &made).expect("room for a volume");
    let open = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = Xv6Driver.open(device.clone(), &open).expect("a sound volume");
    let (writable, lock) = (fs.writable().expect("open for changes"), LayoutLock::new());
    let name = |text: &'static [u8]| Name::new(text).expect("a name");
    let dir = writable.create(fs.root(), name(b"dir"), &node(FileKind::Directory, b"")).expect("room").ino;
    writable.create(dir, name(b"link"), &node(FileKind::Symlink, b"to")).expect("room");
    let file = writable.create(dir, name(b"file"), &node(FileKind::Regular, b"")).expect("room").ino;
    // The first block, one behind the indirect block, and one behind the double-indirect.
    for offset in [0, 200 << 10, 5 << 20] {
        writable.write(&lock.shared(), file, offset, &[7; 700]).expect("room");
    }
    for n in 0..40_u8 {
        let text = [b"another name of the file "[..].to_vec(), vec![b'A' + n]].concat();
        writable.link(file, dir, Name::new(&text).expect("a name")).expect("room");
    }
    writable.close().expect("memory does not fail");
    device
});

/// What is in the volume on `device`.
pub fn tree(driver: &dyn Driver, device: &Arc<MemDevice>) -> Snapshot {
    let options = OpenOptions { access: Access::ReadOnly, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs = driver.open(device.clone(), &options).expect("a sound volume");
    Snapshot::read(&Vfs::new(fs), None).expect("a sound volume")
}
