//! A disk in compressed memory, so that no other disk is measured with the file system.
//!
//! Source: Linux, Documentation/admin-guide/blockdev/zram.rst and Documentation/ABI/testing/sysfs-class-zram.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::During as _;
use crate::{BenchError, Result};

const CONTROL: &str = "/sys/class/zram-control";

/// A disk of zram. It goes, with all that it holds, when this is dropped.
pub struct Zram {
    number: u32,
}

impl Zram {
    /// A disk of `size` bytes, which the file `note` names as long as it is there. Errors: Absent without the right or the driver.
    pub fn new(size: u64, note: &Path) -> Result<Self> {
        let absent =
            |error: std::io::Error| BenchError::Absent(format!("no disk of zram, which takes root: {error}"));
        let added = fs::read_to_string(format!("{CONTROL}/hot_add")).map_err(absent)?;
        let number = added.trim().parse().map_err(|_| BenchError::Absent("zram names no disk".into()))?;
        let zram = Self { number };
        fs::write(note, added.trim()).during("write", note)?;
        let setting = zram.setting("disksize");
        fs::write(&setting, size.to_string()).during("write", &setting)?;
        Ok(zram)
    }

    /// The device.
    pub fn path(&self) -> PathBuf {
        format!("/dev/zram{}", self.number).into()
    }

    fn setting(&self, name: &str) -> PathBuf {
        format!("/sys/block/zram{}/{name}", self.number).into()
    }

    /// Takes away the disk that `note` names, which a run that was killed left.
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
