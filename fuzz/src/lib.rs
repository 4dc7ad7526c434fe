//! What the fuzz targets share: small real volumes, the places of their structures, and a look that reads all of one.
//!
//! A target puts the fuzzer's bytes over one kind of structure and reads the volume to its end. Each decoder thus runs
//! where it runs in earnest, and the rest of the volume is sound, so that the damage is reached.

pub mod places;
pub mod seeds;
mod volumes;

use std::sync::{Arc, LazyLock};

use obento_block::{BlockDevice as _, MemDevice, Overlay};
use obento_driver::Driver;
use obento_exfat::ExFatDriver;
use obento_ext4::Ext4Driver;
use obento_fat::FatDriver;
use obento_testkit::plan::{Limits, random_over};
use obento_testkit::snapshot::Snapshot;
use obento_testkit::walk::{open_and_change, open_and_walk};
use obento_xv6::Xv6Driver;

use places::Places;
use volumes::{EXFAT, EXT4, FAT, XV6, tree};

/// Puts `data` over one of `places`, which its first byte chooses, and reads the whole volume.
pub fn damage(places: &Places, data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let (offset, len) = places[usize::from(choice) % places.len()];
    let device = Overlay::new(EXT4.clone());
    device.write_at(offset, &bytes[..bytes.len().min(len)]).expect("the place is on the volume");
    read_everything(device);
}

/// Changes single bytes: each four bytes of `data` are a place (24 bits) and a value.
pub fn scatter(data: &[u8]) {
    read_everything(scattered(&EXT4, data));
}

/// [`scatter`] on a FAT.
pub fn scatter_fat(data: &[u8]) {
    open_and_walk(&FatDriver::default(), Arc::new(scattered(&FAT, data)));
}

fn bytes_of(device: &Overlay<Arc<MemDevice>>) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory does not fail");
    bytes
}

/// [`scatter`] on an exFAT.
pub fn scatter_exfat(data: &[u8]) {
    open_and_walk(&ExFatDriver::default(), Arc::new(scattered_exfat(data)));
}

/// The checksums of sets are made right again: a fuzzer cannot guess them.
fn scattered_exfat(data: &[u8]) -> Overlay<Arc<MemDevice>> {
    let device = scattered(&EXFAT, data);
    let bytes = bytes_of(&device);
    for at in (16 << 10..bytes.len() - 32 * 19).step_by(32).filter(|&at| bytes[at] == 0x85) {
        let set = &bytes[at..at + 32 * (usize::from(bytes[at + 1] % 19) + 1)];
        let summed = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = summed.fold(0, |sum: u16, (_, &byte)| sum.rotate_right(1).wrapping_add(byte.into()));
        device.write_at(at as u64 + 2, &sum.to_le_bytes()).expect("the place is on the volume");
    }
    device
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

/// [`scatter`] on an xv6 volume.
pub fn scatter_xv6(data: &[u8]) {
    open_and_walk(&Xv6Driver, Arc::new(scattered_xv6(data)));
}

/// The checksum of the super block, the last field of what stands at the start of block 1, is made right again.
fn scattered_xv6(data: &[u8]) -> Overlay<Arc<MemDevice>> {
    let device = scattered(&XV6, data);
    let mut summed = [0; 88];
    device.read_at(4096, &mut summed).expect("the place is on the volume");
    let sum = obento_base::crc::crc32c(u32::MAX, &summed).to_le_bytes();
    device.write_at(4096 + 88, &sum).expect("the place is on the volume");
    device
}

/// Changes a volume that was damaged: the first byte chooses its format, the next three the operations, and the rest is
/// scattered over it. What is left is looked at.
pub fn change(data: &[u8]) {
    let Some((&[format, ref seed @ ..], data)) = data.split_first_chunk::<4>() else { return };
    let seed = seed.iter().fold(0, |seed, &byte| seed << 8 | u64::from(byte));
    let formats: [(&dyn Driver, fn(&[u8]) -> Overlay<Arc<MemDevice>>); 4] = [
        (&Ext4Driver, |data| scattered(&EXT4, data)),
        (&FatDriver::default(), |data| scattered(&FAT, data)),
        (&ExFatDriver::default(), scattered_exfat),
        (&Xv6Driver, scattered_xv6),
    ];
    let which = usize::from(format) % formats.len();
    let (driver, scattered) = formats[which];
    let plan = random_over(seed, &Limits::SMALL, &TREES[which]);
    open_and_change(driver, Arc::new(scattered(data)), &plan);
}

/// What is in the volumes of [`change`].
static TREES: LazyLock<[Snapshot; 4]> = LazyLock::new(|| {
    [
        tree(&Ext4Driver, &EXT4),
        tree(&FatDriver::default(), &FAT),
        tree(&ExFatDriver::default(), &EXFAT),
        tree(&Xv6Driver, &XV6),
    ]
});
