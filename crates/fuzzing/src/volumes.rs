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

/// A volume with 1 KiB blocks and without checksums, which a fuzzer cannot guess. It has a deep extent tree, indirect
/// blocks, an index of two levels, inline data, and a dirty journal. It has attributes in inodes, in blocks and in
/// separate inodes.
static SEED: &[u8] = include_bytes!("../seed/volume.img.zst");

/// A FAT12 volume with few clusters.
static FAT_SEED: &[u8] = include_bytes!("../seed/fat.img.zst");
/// An ext4 volume that Linux did not unmount, with six fast commits after its log, and an orphan file with an orphan in
/// it.
static FAST_SEED: &[u8] = include_bytes!("../seed/fast.img.zst");
/// An ext4 volume with an external journal, and the device of that journal. Linux unmounted neither.
static OUTSIDE_SEED: &[u8] = include_bytes!("../seed/outside.img.zst");
/// An NTFS volume created by ntfs-3g: a directory with many names, compressed and sparse files, streams, links.
static NTFS_SEED: &[u8] = include_bytes!("../seed/ntfs.img.zst");
/// A JFFS2 image created by mkfs.jffs2: every kind of file, holes, attributes.
static JFFS2_SEED: &[u8] = include_bytes!("../seed/jffs2.img.zst");
/// The position of the up-case table of the NTFS volume.
const NTFS_UP_CASE: usize = 0x86e00;
static LOG_SEED: &[u8] = include_bytes!("../seed/log.img.zst");

/// The ext4 volume.
pub static EXT4: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(SEED));
/// The FAT12 volume.
pub static FAT: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(FAT_SEED));
/// The JFFS2.
pub static JFFS2: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(JFFS2_SEED));
/// The NTFS volume. Its up-case table, which does not compress, is not in the repository.
pub static NTFS: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    let mut bytes = unpacked(NTFS_SEED);
    let table = bytes[NTFS_UP_CASE..].chunks_exact_mut(2);
    for (unit, place) in (0..=u16::MAX).zip(table) {
        let upper = u8::try_from(unit).map_or(unit, |byte| byte.to_ascii_uppercase().into());
        place.copy_from_slice(&upper.to_le_bytes());
    }
    Arc::new(MemDevice::read_only(bytes))
});

/// A bcachefs volume of a writer of our own.
pub static BCACHEFS: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    let recipe = bcachefs::Recipe { sums: 0, is_dirty: true, ..bcachefs::Recipe::default() };
    Arc::new(MemDevice::read_only(recipe.write()))
});

/// The writer of the volume, which the tests of the driver share.
#[path = "../../fs/bcachefs/tests/volumes/recipe.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod bcachefs;

/// An LFS volume of a writer of our own, with changes after its checkpoint.
pub static LFS: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    let recipe = lfs::Recipe { end: lfs::End::Crash, ..lfs::Recipe::default() };
    Arc::new(MemDevice::read_only(recipe.write()))
});

/// The writer of the volume, which the tests of the driver share.
#[path = "../../fs/lfs/tests/common/recipe.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod lfs;

/// The ext4 volume with fast commits.
pub static FAST: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(FAST_SEED));
/// The ext4 volume with an external journal, and the journal.
pub static OUTSIDE: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(OUTSIDE_SEED));
pub static LOG: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(LOG_SEED));

fn unpack(seed: &[u8]) -> Arc<MemDevice> {
    Arc::new(MemDevice::read_only(unpacked(seed)))
}

/// Decompresses a zstd file.
pub fn unpacked(seed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(seed).expect("a zstd file");
    decoder.read_to_end(&mut bytes).expect("a whole one");
    bytes
}

/// A FAT16 volume with files of each kind, created by the driver.
pub static FAT16: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    filled(&FatDriver::default(), 4 << 20, "vfat", &[("fat", "16"), ("sectors_per_cluster", "1")])
});

/// A FAT32 volume with the same files.
pub static FAT32: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    filled(&FatDriver::default(), 36 << 20, "vfat", &[("fat", "32"), ("sectors_per_cluster", "1")])
});

/// An exFAT volume with the same files.
pub static EXFAT: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    filled(
        &ExFatDriver::default(),
        256 << 10,
        "exfat",
        &[("cluster_size", "512"), ("boundary_align", "4096")],
    )
});

/// An ext4 volume with 1 KiB blocks and the default features: checksums, 64-bit numbers and a journal of the newest
/// kind. It has an index, an extent tree, and attributes in a block. The first image is from before the volume was
/// closed, when all changes were only in the log; the second is from after.
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
        // The caller chooses the contents of the blocks.
        let block = n * 2048..n * 2048 + 1024;
        let layout = lock.shared();
        let ticket = writable.begin_write(&layout, file, block).expect("room");
        writable.end_write(ticket, TimeChange::Now).expect("room");
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
    writable.unlink(dir, &name("another name of the file 3")).expect("it exists");
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

/// The ext4 volume with checksums, as it is after a power failure.
pub static OPEN: LazyLock<Arc<MemDevice>> = LazyLock::new(|| OPEN_AND_CLOSED[0].clone());
/// The same volume, closed.
pub static CLOSED: LazyLock<Arc<MemDevice>> = LazyLock::new(|| OPEN_AND_CLOSED[1].clone());

/// Returns a new inode of user 0.
fn node(kind: FileKind, target: &[u8]) -> NewNode<'_> {
    NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: DeviceNumber::default(), target }
}

/// Creates a volume of `len` bytes with files of each kind.
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
            // The files are written in turns, so that their blocks are not contiguous.
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

/// An xv6 volume with a file that uses each kind of block pointer, a directory of several blocks, a link, and a used
/// log.
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
    // The first block, one through the indirect block, and one through the double-indirect block.
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

/// Returns the contents of the volume on `device`.
pub fn tree(driver: &dyn Driver, device: &Arc<MemDevice>) -> Snapshot {
    let options = OpenOptions { access: Access::ReadOnly, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let fs = driver.open(device.clone(), &options).expect("a sound volume");
    Snapshot::read(&Vfs::new(fs), None).expect("a sound volume")
}
