//! Disks in compressed memory, so that the speed of a real disk does not affect the figures.
//!
//! Source: Linux, Documentation/admin-guide/blockdev/zram.rst and Documentation/ABI/testing/sysfs-class-zram.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::IoContext as _;
use crate::{BenchError, Result};

const CONTROL: &str = "/sys/class/zram-control";

/// A zram disk. It is removed on drop.
pub struct Zram {
    number: u32,
}

impl Zram {
    /// Creates a disk of `size` bytes. The file `note` contains its name while it exists. Fails with `Absent` without
    /// the permission or the kernel module.
    pub fn new(size: u64, note: &Path) -> Result<Self> {
        let absent = |error: std::io::Error| {
            BenchError::Absent(format!("cannot create a zram disk, which requires root: {error}"))
        };
        let added = fs::read_to_string(format!("{CONTROL}/hot_add")).map_err(absent)?;
        let number =
            added.trim().parse().map_err(|_| BenchError::Absent("zram returned no disk number".into()))?;
        let zram = Self { number };
        fs::write(note, added.trim()).during("write", note)?;
        let setting = zram.setting("disksize");
        fs::write(&setting, size.to_string()).during("write", &setting)?;
        Ok(zram)
    }

    /// Returns the path of the device.
    pub fn path(&self) -> PathBuf {
        format!("/dev/zram{}", self.number).into()
    }

    fn setting(&self, name: &str) -> PathBuf {
        format!("/sys/block/zram{}/{name}", self.number).into()
    }

    /// Removes the disk that `note` names, which a killed run left.
    pub fn clear(note: &Path) {
        let number = fs::read_to_string(note).ok().and_then(|text| text.trim().parse().ok());
        drop(number.map(|number| Self { number }));
        let _ = fs::remove_file(note);
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = fs::write(self.setting("reset"), "1");
        let _ = fs::write(format!("{CONTROL}/hot_remove"), self.number.to_string());
    }
}
