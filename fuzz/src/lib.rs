//! What the fuzz targets share: a small real volume, the places of its structures, and a walk that reads all of it.
//!
//! A target puts the fuzzer's bytes over one kind of structure and reads the volume to its end. Each decoder thus runs
//! where it runs in earnest, and the rest of the volume is sound, so that the damage is reached.

use std::io::Read as _;
use std::sync::{Arc, LazyLock};

use obento_base::{DeviceNumber, FileKind, Ino, Mode, Name};
use obento_block::{BlockDevice as _, MemDevice, Overlay};
use obento_driver::{Access, Check, CheckOptions, Driver as _, Format, FormatOptions, LayoutLock, NewNode, OpenOptions};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_exfat::ExFatDriver;
use obento_ext4::{Ext4Driver, FileBlock, Volume, open_volume};
use obento_fat::FatDriver;
use obento_testkit::walk::open_and_walk;
use obento_xv6::Xv6Driver;

/// A volume of 1 KiB blocks without checksums (a fuzzer cannot guess them): a deep extent tree, indirect blocks, an
/// index of two levels, inline data, attributes in inodes, blocks and inodes of their own, and a dirty journal.
static SEED: &[u8] = include_bytes!("../seed/volume.img.zst");

/// A FAT12 of few clusters, whose decoders are those of FAT16 and FAT32 but for the width of an entry.
static FAT_SEED: &[u8] = include_bytes!("../seed/fat.img.zst");

static BASE: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(SEED));
static FAT: LazyLock<Arc<MemDevice>> = LazyLock::new(|| unpack(FAT_SEED));

fn unpack(seed: &[u8]) -> Arc<MemDevice> {
    let mut image = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(seed).expect("a zstd file").read_to_end(&mut image).expect("a whole one");
    Arc::new(MemDevice::read_only(image))
}

/// The sound volume.
pub static SOUND: LazyLock<Volume> =
    LazyLock::new(|| open_volume(BASE.clone(), &options()).expect("the seed volume opens"));

fn options() -> OpenOptions {
    OpenOptions { access: Access::ReadOnly, cache: 256 << 10, ..OpenOptions::new(Arc::new(NO_CLOCK)) }
}

/// Byte ranges of the volume that hold one kind of structure.
pub type Places = Vec<(u64, usize)>;

/// The inodes of the sound volume.
pub fn inodes() -> impl Iterator<Item = obento_ext4::Inode> {
    (1..=SOUND.super_block().inodes_count.into()).filter_map(|ino| SOUND.inode(Ino(ino)).ok())
}

/// The bytes of block `block`.
pub fn block_place(block: u64) -> (u64, usize) {
    let size = SOUND.block_size();
    (block * u64::from(size), size as usize)
}

/// The blocks of every directory that `wanted` accepts.
pub fn directory_blocks(wanted: impl Fn(&obento_ext4::Inode, u32) -> bool) -> Places {
    let mut places = Places::new();
    for inode in inodes().filter(|inode| inode.is_dir()) {
        let blocks = u32::try_from(inode.size() / u64::from(SOUND.block_size())).unwrap_or(0);
        for at in (0..blocks).filter(|&at| wanted(&inode, at)) {
            if let Ok(Some(block)) = SOUND.map_block(&inode, FileBlock(at)) {
                places.push(block_place(block.0));
            }
        }
    }
    places
}

/// Puts `data` over one of `places`, which its first byte chooses, and reads the whole volume.
pub fn damage(places: &Places, data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let (offset, len) = places[usize::from(choice) % places.len()];
    let device = Overlay::new(BASE.clone());
    device.write_at(offset, &bytes[..bytes.len().min(len)]).expect("the place is on the volume");
    read_everything(device);
}

/// Changes single bytes: each four bytes of `data` are a place (24 bits) and a value.
pub fn scatter(data: &[u8]) {
    read_everything(scattered(&BASE, data));
}

/// [`scatter`] on a FAT, which is checked besides.
pub fn scatter_fat(data: &[u8]) {
    let device = scattered(&FAT, data);
    let _ = obento_fat::check::issues(Arc::new(MemDevice::read_only(bytes_of(&device))));
    open_and_walk(&FatDriver::default(), Arc::new(device));
}

fn bytes_of(device: &Overlay<Arc<MemDevice>>) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory does not fail");
    bytes
}

/// An exFAT with files of each kind, made by the driver itself.
static EXFAT: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
    let device = Arc::new(MemDevice::new(vec![0; 256 << 10]));
    let (driver, clock) = (ExFatDriver::default(), Arc::new(NO_CLOCK));
    let settings = [("cluster_size", "512"), ("boundary_align", "4096")];
    let made = FormatOptions {
        settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
        ..FormatOptions::new("exfat", clock.clone(), Arc::new(FixedRandom(1)))
    };
    Format::format(&driver, &*device, &made).expect("room for a volume");
    let open = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
    let fs = driver.open(device.clone(), &open).expect("a sound volume");
    let (writable, lock) = (fs.writable().expect("open for changes"), LayoutLock::new());
    let node = |kind| NewNode {
        kind,
        mode: Mode::new(0o755),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target: b"",
    };
    let mut dir = fs.root();
    for depth in 0..3 {
        for n in 0..6 {
            let name = format!("a name that takes some entries {n}");
            let file = Name::new(name.as_bytes()).expect("a name");
            let ino = writable.create(dir, file, &node(FileKind::Regular)).expect("room").ino;
            // In turns, so that what is appended cannot stay contiguous.
            for round in 0..u64::from(n % 3) * 2 {
                writable.write(&lock.shared(), ino, round * 700, &[n; 700]).expect("room");
                let other = Name::new(b"between").expect("a name");
                let _ = writable.create(dir, other, &node(FileKind::Directory));
            }
        }
        let name = format!("d{depth}");
        let below = Name::new(name.as_bytes()).expect("a name");
        dir = writable.create(dir, below, &node(FileKind::Directory)).expect("room").ino;
    }
    writable.close().expect("memory does not fail");
    device
});

/// [`scatter`] on an exFAT. The checksums of its sets are made right again: a fuzzer cannot guess them.
pub fn scatter_exfat(data: &[u8]) {
    let device = scattered(&EXFAT, data);
    let bytes = bytes_of(&device);
    for at in (16 << 10..bytes.len() - 32 * 19).step_by(32).filter(|&at| bytes[at] == 0x85) {
        let set = &bytes[at..at + 32 * (usize::from(bytes[at + 1] % 19) + 1)];
        let summed = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = summed.fold(0, |sum: u16, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
        device.write_at(at as u64 + 2, &sum.to_le_bytes()).expect("the place is on the volume");
    }
    let _ = obento_exfat::check::issues(Arc::new(MemDevice::read_only(bytes_of(&device))));
    open_and_walk(&ExFatDriver::default(), Arc::new(device));
}

fn scattered(base: &Arc<MemDevice>, data: &[u8]) -> Overlay<Arc<MemDevice>> {
    let device = Overlay::new(base.clone());
    let len = device.len();
    for change in data.chunks_exact(4) {
        let at = u64::from(u32::from_le_bytes([change[0], change[1], change[2], 0])) % len;
        device.write_at(at, &change[3..]).expect("the place is on the volume");
    }
    device
}

/// Opens the volume and looks at all of it.
pub fn read_everything(device: Overlay<Arc<MemDevice>>) {
    open_and_walk(&Ext4Driver, Arc::new(device));
}

/// An xv6 volume with a file in each kind of block pointer, a directory of several blocks, a link, and a log that was used.
static XV6: LazyLock<Arc<MemDevice>> = LazyLock::new(|| {
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
    let node = |kind, target| NewNode {
        kind,
        mode: Mode::new(0o755),
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        target,
    };
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

/// [`scatter`] on an xv6 volume, which is checked besides. The checksum of its super block is made right again.
pub fn scatter_xv6(data: &[u8]) {
    let device = scattered(&XV6, data);
    // The super block is at the start of block 1, and its last field the checksum of the rest.
    let mut summed = [0; 88];
    device.read_at(4096, &mut summed).expect("the place is on the volume");
    let sum = obento_base::crc::crc32c(u32::MAX, &summed).to_le_bytes();
    device.write_at(4096 + 88, &sum).expect("the place is on the volume");
    let bytes = Arc::new(MemDevice::read_only(bytes_of(&device)));
    let clock = Arc::new(NO_CLOCK);
    let _ = Check::check(&Xv6Driver, bytes, &CheckOptions::new(clock), &mut Vec::new());
    open_and_walk(&Xv6Driver, Arc::new(device));
}
