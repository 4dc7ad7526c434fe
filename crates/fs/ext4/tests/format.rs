//! Volumes that obento makes, beside those that `mke2fs` makes of the same options: byte for byte.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use common::formats::{self, Made};
use obento_driver::{Contents, Driver as _, Formatted};
use obento_ext4::Ext4Driver;
use obento_host::FileDevice;
use obento_testkit::oracle::{self, Oracle, require};
use rustix::fs::{SeekFrom, seek};

const PIECE: u64 = 4096;

fn make_ours(made: &Made, folder: &Path) -> Result<(PathBuf, Formatted)> {
    let image = folder.join("ours.img");
    File::create(&image)?.set_len(made.len)?;
    let device = FileDevice::open_writable(&image)?;
    let mut options = formats::options(made);
    options.contents = Contents::Zeros;
    let formatted = Ext4Driver.format().context("ext4 can be made")?.format(&device, &options)?;
    Ok((image, formatted))
}

fn make_theirs(made: &Made, folder: &Path) -> Result<PathBuf> {
    let image = folder.join("theirs.img");
    File::create(&image)?.set_len(made.len)?;
    let mut mke2fs = oracle::program("mke2fs");
    mke2fs.env("E2FSPROGS_FAKE_TIME", formats::NOW.to_string());
    oracle::run(mke2fs.args(formats::arguments(made)).arg(&image))?;
    Ok(image)
}

/// The pieces of a file that are not in a hole.
fn pieces(file: &File) -> Vec<u64> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start)).unwrap();
        all.extend((start / PIECE..end.div_ceil(PIECE)).map(|piece| piece * PIECE));
        at = end;
    }
    all
}

fn read(file: &File, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; PIECE as usize];
    let mut done = 0;
    while let Ok(len) = file.read_at(&mut bytes[done..], at + done as u64) {
        if len == 0 {
            break;
        }
        done += len;
    }
    bytes
}

/// Takes out what differs by right: how much was written, and with it the checksum; of the multiple mount protection
/// the host's name and the time of day.
fn mask(bytes: &mut [u8]) {
    for chunk in bytes.chunks_exact_mut(1024) {
        if chunk[0x38..0x3a] == [0x53, 0xef] {
            chunk[0x178..0x180].fill(0);
            chunk[0x3fc..].fill(0);
        }
        if chunk[..4] == *b"PMM\0" {
            chunk[8..0x70].fill(0);
            chunk[0x3fc..].fill(0);
        }
    }
}

fn compare(ours: &Path, theirs: &Path) -> Result<()> {
    let (ours, theirs) = (File::open(ours)?, File::open(theirs)?);
    let mut all = pieces(&ours);
    all.extend(pieces(&theirs));
    all.sort_unstable();
    all.dedup();
    let mut differences = Vec::new();
    for at in all {
        let (mut one, mut other) = (read(&ours, at), read(&theirs, at));
        mask(&mut one);
        mask(&mut other);
        if one != other {
            let byte = one.iter().zip(&other).position(|(a, b)| a != b).unwrap_or(0);
            differences.push(format!("{:#x}: {:02x} for {:02x}", at + byte as u64, one[byte], other[byte]));
        }
    }
    let shown = differences.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    ensure!(differences.is_empty(), "{} pieces differ: {shown}", differences.len());
    Ok(())
}

/// Whether all lengths are to be tried.
fn is_full() -> bool {
    std::env::var_os("OBENTO_MATRIX").is_some_and(|value| value == "full")
}

/// Runs `check` on each volume and lists all that fail.
fn for_each(check: impl Fn(&Made, &Path) -> Result<()>) {
    let only = std::env::var("OBENTO_MATRIX_ONLY").ok();
    let chosen = formats::ALL.iter().filter(|made| only.as_deref().is_none_or(|name| name == made.name));
    let failures: Vec<String> = chosen
        .filter(|made| only.is_some() || is_full() || made.len <= 1 << 30)
        .filter_map(|made| {
            let folder = tempfile::tempdir().unwrap();
            let result = check(made, folder.path());
            result.err().map(|error| format!("{} ({}): {error:#}", made.name, made.args))
        })
        .collect();
    assert!(failures.is_empty(), "{} volumes:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_volume_has_the_bytes_that_mke2fs_writes() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    for_each(|made, folder| {
        let (ours, _) = make_ours(made, folder)?;
        let checked = oracle::call("e2fsck", ["-fn".as_ref(), ours.as_os_str()]).map(drop);
        if formats::OTHERS.contains(&made.name) {
            return checked;
        }
        let theirs = make_theirs(made, folder)?;
        compare(&ours, &theirs).and(checked)
    });
}
