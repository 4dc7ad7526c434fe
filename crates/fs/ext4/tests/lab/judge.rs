//! The judges of a damaged image: e2fsck, our check, and the readable contents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use obento_base::{FileKind, Ino, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    CheckOptions, CheckReport, Driver as _, FieldValue, FileSystem as _, Finding, RepairMode, Severity,
};
use obento_env::NO_CLOCK;
use obento_ext4::{Ext4, Ext4Driver, open_volume};
use obento_testkit::oracle::program;
use obento_testkit::scratch::memory_folder;

use super::Disk;
use crate::common;

/// The result of e2fsck.
#[derive(Debug)]
pub struct Verdict {
    pub code: i32,
    pub text: String,
}

impl Verdict {
    /// Exit status 0 of fsck(8): there is nothing to repair.
    pub fn is_clean(&self) -> bool {
        self.code == 0
    }

    /// Returns whether e2fsck completed: it was not killed by a signal or a timeout, and opened the image.
    pub fn is_one(&self) -> bool {
        (0..8).contains(&self.code)
    }

    /// Returns whether e2fsck printed nothing: some findings, such as a wrong checksum of a descriptor, do not affect
    /// its exit status with `-n`.
    pub fn is_silent(&self) -> bool {
        self.is_clean()
            && !self.text.lines().any(|line| line.ends_with("? no") && !line.ends_with("Optimize? no"))
    }
}

/// Runs `e2fsck ARGUMENTS` on a file for at most 20 seconds, plus the time until it ends. A run that restarts
/// repeatedly may ignore the first signal.
pub fn e2fsck_file(image: &Path, arguments: &[&str]) -> Verdict {
    let mut command = program("timeout");
    let output =
        command.args(["-k", "5", "20", "e2fsck"]).args(arguments).arg(image).output().expect("e2fsck starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Verdict { code: output.status.code().unwrap_or(-1), text }
}

/// Runs `e2fsck ARGUMENTS` on bytes. Returns its result and the resulting bytes.
pub fn e2fsck(bytes: &[u8], arguments: &[&str]) -> (Verdict, Vec<u8>) {
    let image = tempfile::Builder::new().prefix("obento-judge-").tempfile_in(memory_folder()).unwrap();
    fs::write(image.path(), bytes).unwrap();
    let verdict = e2fsck_file(image.path(), arguments);
    (verdict, fs::read(image.path()).unwrap())
}

/// Runs `e2fsck -fn`.
pub fn e2fsck_is_clean(bytes: &[u8]) -> Verdict {
    e2fsck(bytes, &["-fn"]).0
}

/// Runs our check on a device.
pub fn check(device: Arc<dyn BlockDevice>, repair_mode: RepairMode) -> Result<(CheckReport, Vec<Finding>)> {
    let mut found = Vec::new();
    let options = CheckOptions { repair_mode, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    let report = Ext4Driver.check().expect("ext4 can be checked").check(device, &options, &mut found)?;
    Ok((report, found))
}

/// Returns the findings of our check of bytes, without notes.
pub fn findings(bytes: &[u8]) -> Result<Vec<Finding>> {
    let (_, mut found) = check(Arc::new(MemDevice::read_only(bytes.to_vec())), RepairMode::Nothing)?;
    found.retain(|finding| finding.severity > Severity::Note);
    Ok(found)
}

/// Returns the bytes after our repair of everything.
pub fn repaired(bytes: &[u8]) -> Result<Vec<u8>> {
    repair_copy(bytes, RepairMode::All).map(|(_, after)| after)
}

/// Returns the report of our repair, and the resulting bytes. A repair that reaches a limit fails the test.
pub fn repair_copy(bytes: &[u8], repair_mode: RepairMode) -> Result<(CheckReport, Vec<u8>)> {
    let device = Arc::new(MemDevice::new(bytes.to_vec()));
    let (report, found) = check(device.clone(), repair_mode)?;
    assert!(found.iter().all(|finding| finding.code != "repair-unfinished"), "the repair reaches a limit");
    let mut after = vec![0; bytes.len()];
    device.read_at(0, &mut after)?;
    Ok((report, after))
}

/// Formats a finding as `link-count ino=12 stored=9 counted=1`.
pub fn line(finding: &Finding) -> String {
    finding.fields.iter().fold(finding.code.to_owned(), |line, (name, value)| match value {
        FieldValue::Number(number) | FieldValue::Hex(number) => format!("{line} {name}={number}"),
        other => format!("{line} {name}={other:?}"),
    })
}

/// Replaces `<dir/inner>` in an expected finding by the number of that inode.
fn resolve(disk: &Disk, expected: &str) -> String {
    let mut parts = expected.split('<');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| match part.split_once('>') {
        Some((path, rest)) => format!("{line}{}{rest}", disk.ino(path)),
        None => line + part,
    })
}

/// Returns whether the findings are the expected ones: as many, each with the code and the named fields.
pub fn same(sound: &Disk, expected: &[&str], found: &[Finding]) -> bool {
    let mut left: Vec<String> = found.iter().map(line).collect();
    expected.iter().all(|expected| {
        let expected = resolve(sound, expected);
        let words = |line: &String| {
            let mut words = expected.split(' ');
            words.next() == line.split(' ').next()
                && words.all(|word| line.split(' ').any(|other| other == word))
        };
        left.iter().position(words).map(|at| left.remove(at)).is_some()
    }) && left.is_empty()
}

/// The readable contents of each file that has a name.
pub type Contents = BTreeMap<Ino, std::result::Result<(FileKind, u64, u64), String>>;

/// Reads every file. Returns an empty map if the volume does not open.
pub fn contents(bytes: &[u8]) -> Contents {
    let device = Arc::new(MemDevice::read_only(bytes.to_vec()));
    let Ok(volume) = open_volume(device, &common::options()) else { return Contents::new() };
    let fs = Ext4::new(volume);
    let mut all = Contents::new();
    for (_, attr) in common::read_everything(&fs).entries {
        all.entry(attr.ino).or_insert_with(|| {
            let hash = content(&fs, attr.ino, attr.kind, attr.size);
            hash.map(|hash| (attr.kind, attr.size, hash)).map_err(|error| error.to_string())
        });
    }
    all
}

/// Returns a hash of a file's contents. Zeros are hashed like a hole.
fn content(fs: &Ext4, ino: Ino, kind: FileKind, size: u64) -> Result<u64> {
    // Every run of a file starts at a multiple of this.
    const PIECE: usize = 1024;
    // This hasher has the same keys in every run, unlike that of a map.
    let (mut hash, mut failed) = (DefaultHasher::new(), None);
    match kind {
        FileKind::Regular => common::read_pieces(fs, ino, size, &mut |at, piece| match piece {
            Ok(bytes) => {
                let pieces =
                    bytes.chunks(PIECE).enumerate().filter(|(_, piece)| piece.iter().any(|&b| b != 0));
                pieces.for_each(|(n, piece)| (at + (n * PIECE) as u64, piece).hash(&mut hash));
            }
            Err(error) => failed = Some(error),
        }),
        FileKind::Symlink => fs.read_link(ino)?.hash(&mut hash),
        _ => {}
    }
    failed.map_or(Ok(hash.finish()), Err)
}

/// Returns the files that could be read before and are now missing, unreadable or different.
pub fn lost(before: &Contents, after: &Contents) -> Vec<Ino> {
    let same =
        |ino: &Ino, was: &(FileKind, u64, u64)| after.get(ino).is_some_and(|now| now.as_ref() == Ok(was));
    let readable = before.iter().filter_map(|(ino, was)| Some((ino, was.as_ref().ok()?)));
    readable
        .filter(|(_, was)| was.0 != FileKind::Directory)
        .filter(|(ino, was)| !same(ino, was))
        .map(|(ino, _)| *ino)
        .collect()
}

/// Returns the files that our repair lost and that of e2fsck, which may need a second run, keeps.
pub fn lost_to_us_alone(damaged: &[u8], fixed: &[u8]) -> Vec<Ino> {
    let before = contents(damaged);
    let mut ours = lost(&before, &contents(fixed));
    if !ours.is_empty() {
        let once = e2fsck(damaged, &["-fy"]).1;
        let theirs = lost(&before, &contents(&e2fsck(&once, &["-fy"]).1));
        ours.retain(|ino| !theirs.contains(ino) && !has_only_grown(&before, fixed, *ino));
    }
    ours
}

/// Returns whether a file became longer and still begins with its old contents. Our repair keeps an extent after the
/// end of a file; e2fsck removes the extent.
fn has_only_grown(before: &Contents, fixed: &[u8], ino: Ino) -> bool {
    let Some(Ok((FileKind::Regular, size, hash))) = before.get(&ino) else { return false };
    let device = Arc::new(MemDevice::read_only(fixed.to_vec()));
    let Ok(volume) = open_volume(device, &common::options()) else { return false };
    let fs = Ext4::new(volume);
    let now = fs.getattr(ino).ok().filter(|attr| attr.kind == FileKind::Regular && attr.size > *size);
    now.is_some() && content(&fs, ino, FileKind::Regular, *size) == Ok(*hash)
}

/// Returns the names on the volume, without `lost+found`, which e2fsck always creates, and its entries; and the
/// errors of reading.
pub fn names(bytes: &[u8]) -> Result<(BTreeSet<Vec<u8>>, Vec<String>)> {
    let volume = open_volume(Arc::new(MemDevice::read_only(bytes.to_vec())), &common::options())?;
    let all = common::read_everything(&Ext4::new(volume));
    let names = all.entries.into_iter().map(|(path, _)| path);
    let names = names.filter(|path| !path.starts_with(b"/lost+found")).collect();
    Ok((names, all.errors.iter().map(|(path, error)| format!("{}: {error}", path.escape_ascii())).collect()))
}

/// Returns names of the intact image that `e2fsck -fy`, which may need a second run, keeps and our repair does not.
pub fn names_lost_to_us_alone(
    sound: &BTreeSet<Vec<u8>>,
    damaged: &[u8],
    ours: &BTreeSet<Vec<u8>>,
) -> Vec<String> {
    if sound.is_subset(ours) {
        return Vec::new();
    }
    let once = e2fsck(damaged, &["-fy"]).1;
    let twice = e2fsck(&once, &["-fy"]).1;
    let theirs = names(&twice).map(|(names, _)| names).unwrap_or_default();
    let lost = sound.intersection(&theirs).filter(|name| !ours.contains(*name));
    lost.map(|name| name.escape_ascii().to_string()).collect()
}
