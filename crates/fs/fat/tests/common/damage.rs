//! A volume that a test damages, and queries about it.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::Path;
use std::sync::Arc;

use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{CheckOptions, RepairMode};
use obento_env::FixedClock;
use obento_fat::check::{Issue, check_volume, issues};
use obento_testkit::oracle::program;

use super::common;
use super::common::{judge, shape};

/// A volume with the directory `D`, in it `E`, the file `F` of three clusters and `a long name.txt`, and the places
/// of its parts.
#[derive(Clone)]
pub struct Volume {
    pub bytes: Vec<u8>,
    pub fat: usize,
    pub fat_len: usize,
    pub width: u32,
    pub root: usize,
    pub data: usize,
    pub cluster: usize,
}

impl Volume {
    pub fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = shape(name).make(folder.path());
        let source = folder.path().join("D");
        std::fs::create_dir_all(source.join("E")).unwrap();
        let cluster = {
            let bytes = std::fs::read(&image).unwrap();
            usize::from(bytes[13]) * usize::from(u16::from_le_bytes([bytes[11], bytes[12]]))
        };
        std::fs::write(source.join("F"), vec![7; 3 * cluster - 100]).unwrap();
        std::fs::write(source.join("a long name.txt"), vec![8; cluster]).unwrap();
        common::mcopy(&image, &source, "::/");
        judge(&image);
        Self::of(std::fs::read(image).unwrap())
    }

    pub fn of(bytes: Vec<u8>) -> Self {
        let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let sector = word(11);
        let fat32 = word(22) == 0;
        let fat_len = if fat32 { word(36) + (word(38) << 16) } else { word(22) } * sector;
        let fat = word(14) * sector;
        let root = fat + usize::from(bytes[16]) * fat_len;
        let data = root + word(17) * 32;
        let cluster = usize::from(bytes[13]) * sector;
        let total = if word(19) > 0 { word(19) } else { word(32) + (word(34) << 16) };
        let clusters = (total * sector - data) / cluster;
        let width = if fat32 {
            32
        } else if clusters > 4084 {
            16
        } else {
            12
        };
        Self { bytes, fat, fat_len, width, root, data, cluster }
    }

    /// Returns the offset of the entry that starts with `name`.
    pub fn entry(&self, name: &[u8]) -> usize {
        let at = self.bytes[self.root..].chunks(32).position(|entry| entry.starts_with(name));
        self.root + 32 * at.unwrap_or_else(|| panic!("{}", name.escape_ascii()))
    }

    pub fn ino(&self, name: &[u8]) -> u64 {
        self.entry(name) as u64 / 32
    }

    pub fn first(&self, name: &[u8]) -> u32 {
        let at = self.entry(name);
        let low = u16::from_le_bytes([self.bytes[at + 26], self.bytes[at + 27]]);
        let high = u16::from_le_bytes([self.bytes[at + 20], self.bytes[at + 21]]);
        u32::from(low) | u32::from(high) << 16
    }

    pub fn set_first(&mut self, name: &[u8], cluster: u32) {
        let at = self.entry(name);
        self.bytes[at + 26..at + 28].copy_from_slice(&cluster.to_le_bytes()[..2]);
        self.bytes[at + 20..at + 22].copy_from_slice(&cluster.to_le_bytes()[2..]);
    }

    pub fn link_in(&mut self, copy: usize, cluster: u32, value: u32) {
        let start = self.fat + copy * self.fat_len;
        let at = start + cluster as usize * self.width as usize / 8;
        match self.width {
            12 => {
                let old = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
                let new = if cluster & 1 == 1 {
                    old & 0xf | (value as u16) << 4
                } else {
                    old & 0xf000 | value as u16 & 0xfff
                };
                self.bytes[at..at + 2].copy_from_slice(&new.to_le_bytes());
            }
            16 => self.bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes()),
            _ => self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        }
    }

    /// Sets a FAT entry in all FATs.
    pub fn link(&mut self, cluster: u32, value: u32) {
        for copy in 0..usize::from(self.bytes[16]) {
            self.link_in(copy, cluster, value);
        }
    }

    /// Frees a cluster in all FATs, and in the count of FSInfo.
    pub fn free(&mut self, cluster: u32) {
        self.link(cluster, 0);
        if self.width == 32 {
            let at = 512 + 0x1e8;
            let count = u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap()) + 1;
            self.bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
        }
    }

    /// Returns the offset of `cluster`.
    pub fn offset(&self, cluster: u32) -> usize {
        self.data + (cluster as usize - 2) * self.cluster
    }

    pub fn set_size(&mut self, name: &[u8], size: u32) {
        let at = self.entry(name) + 28;
        self.bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
    }
}

pub const D: &[u8] = b"D          \x10";
pub const E: &[u8] = b"E          \x10";
pub const F: &[u8] = b"F          \x20";
pub const LONG: &[u8] = b"ALONGN~1TXT";

pub fn found(bytes: &[u8]) -> Vec<Issue> {
    issues(Arc::new(MemDevice::read_only(bytes.to_vec()))).unwrap()
}

pub fn options(repair_mode: RepairMode) -> CheckOptions {
    CheckOptions { repair_mode, ..CheckOptions::new(Arc::new(FixedClock(common::FORMAT.now))) }
}

/// Repairs the volume, and returns the bytes.
pub fn repair_copy(bytes: &[u8], repair_mode: RepairMode) -> (Vec<u8>, u64) {
    let device = Arc::new(MemDevice::new(bytes.to_vec()));
    let report = check_volume(device.clone(), &options(repair_mode), &mut |_| ()).unwrap();
    let mut bytes = bytes.to_vec();
    device.read_at(0, &mut bytes).unwrap();
    (bytes, report.left())
}

pub fn clean_to_fsck(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let image = folder.join("judged.img");
    std::fs::write(&image, bytes).unwrap();
    let output = program("fsck.fat").arg("-n").arg(&image).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // A banner and a summary. All other output is a finding, even if it would not be repaired.
    let quiet = said.lines().count() == 2;
    if output.status.success() && quiet { Ok(()) } else { Err(said) }
}
