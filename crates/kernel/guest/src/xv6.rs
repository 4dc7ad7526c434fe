//! Volumes of xv6, which no other program creates or checks: this one does it with the library.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use obento_block::MemDevice;
use obento_driver::{Check as _, CheckOptions, Format as _, FormatOptions};
use obento_env::{SystemClock, SystemRandom};
use obento_xv6::Xv6Driver;

use crate::machine::disk;

/// Creates a volume on disk 0.
pub fn format() -> Result<()> {
    let len = fs::read(disk(0))?.len();
    let device = MemDevice::new(vec![0; len]);
    let options = FormatOptions::new("xv6", Arc::new(SystemClock), Arc::new(SystemRandom));
    Xv6Driver.format(&device, &options).context("formatting")?;
    fs::write(disk(0), device.snapshot())?;
    rustix::fs::sync();
    Ok(())
}

/// Fails if the check of the volume on disk 0 finds anything.
pub fn check() -> Result<()> {
    let device = Arc::new(MemDevice::read_only(fs::read(disk(0))?));
    let mut found = Vec::new();
    let report = Xv6Driver.check(device, &CheckOptions::new(Arc::new(SystemClock)), &mut found)?;
    println!("xv6: {} inodes and {} blocks in use", report.inodes.0, report.blocks.0);
    let first = found.first().map(|finding| finding.text.as_str()).unwrap_or_default();
    ensure!(found.is_empty(), "the check found {} errors: {first}", found.len());
    Ok(())
}
