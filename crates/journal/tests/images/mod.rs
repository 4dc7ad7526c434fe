//! Images of ext3 and ext4 with their journals, and the result of e2fsck for them: the whole device, block by
//! block.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_block::{BlockDevice, MemDevice, Remap};
use obento_journal::{Journal, Replayed, Run, Runs};
use obento_testkit::oracle::{Oracle, call, program, require};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;

/// An image whose journal is dirty or is to become dirty.
pub struct Sample {
    pub folder: TempDir,
    pub image: PathBuf,
}

impl Sample {
    pub fn new(mke2fs: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(32 * MIB).unwrap();
        let image_arg = image.to_str().unwrap();
        call("mke2fs", ["-q", "-F"].iter().chain(mke2fs).copied().chain([image_arg])).unwrap();
        Self { folder, image }
    }

    /// Copies the image in its present state: for a mounted image, the state after a power cut.
    pub fn snapshot(&self, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        fs::copy(&self.image, &copy).unwrap();
        copy
    }

    pub fn debugfs(&self, commands: &[&str]) {
        let script = self.folder.path().join("script");
        fs::write(&script, commands.join("\n")).unwrap();
        let args = ["-w", "-f", script.to_str().unwrap(), self.image.to_str().unwrap()];
        let output = program("debugfs").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

pub fn dumped(image: &Path, field: &str) -> String {
    let output = call("dumpe2fs", ["-h", image.to_str().unwrap()]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

pub fn block_size(image: &Path) -> u32 {
    dumped(image, "Block size:").parse().unwrap()
}

/// The blocks of the journal inode, as debugfs lists them: `(0-3):100-103, (4):200`.
pub fn journal_runs(image: &Path) -> Runs {
    let output = call("debugfs", ["-R", "stat <8>", image.to_str().unwrap()]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let list = text.split_once("EXTENTS:\n").or_else(|| text.split_once("BLOCKS:\n")).unwrap().1;
    let span = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        (first.parse::<u64>().unwrap(), last.parse::<u64>().unwrap())
    };
    let mut runs = Runs::new();
    for item in list.lines().next().unwrap().split(", ").filter(|item| item.starts_with('(')) {
        let (at, block) = item[1..].split_once("):").unwrap();
        if at.starts_with(|c: char| c.is_ascii_digit()) {
            let (first, last) = span(at);
            let (at, len) = (u32::try_from(first).unwrap(), u32::try_from(last - first + 1).unwrap());
            runs.push(Run { at, block: span(block).0, len }).unwrap();
        }
    }
    runs
}

pub fn open(image: &Path) -> Journal {
    let device = Arc::new(MemDevice::read_only(fs::read(image).unwrap()));
    Journal::open(device, block_size(image), journal_runs(image)).unwrap()
}

/// Returns the replay of the journal of `image`, and the volume after it.
fn replay(image: &Path, journal: &Journal) -> (Replayed, Remap<Arc<dyn BlockDevice>>) {
    let below: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(fs::read(image).unwrap()));
    let volume: u64 = dumped(image, "Block count:").parse().unwrap();
    let replayed = journal.replay_index(volume).unwrap();
    assert_eq!(replayed.damage, None);
    let remap = Remap::from_other(below, journal.device().clone(), block_size(image), replayed.index.clone());
    (replayed, remap)
}

/// Returns whether a commit fell between the removal of a file's name and of the file (`s_last_orphan` of the
/// super block).
pub fn has_orphans(image: &Path, journal: &Journal) -> bool {
    let mut first = [0; 4];
    replay(image, journal).1.read_at(1024 + 0xe8, &mut first).unwrap();
    first != [0; 4]
}

/// Replays the journal of `image` in memory, and compares the volume with the result of `e2fsck`. For an image without
/// orphans, debugfs with `-j` is used instead.
pub fn compare(image: &Path, journal: &Journal, e2fsck: &[&str]) -> Replayed {
    let size = block_size(image);
    let (replayed, remap) = replay(image, journal);
    let judged = image.with_extension("e2fsck");
    fs::copy(image, &judged).unwrap();
    if has_orphans(image, journal) {
        // e2fsck also frees orphans; debugfs only replays, but does not support `-j`.
        assert!(e2fsck.is_empty(), "{} has orphans", image.display());
        let jr = ["-w", "-R", "jr"].map(std::ffi::OsStr::new);
        call("debugfs", jr.into_iter().chain([judged.as_os_str()])).unwrap();
    } else {
        let args = ["-y", "-E", "journal_only"].iter().chain(e2fsck).copied();
        let output = program("e2fsck").args(args).arg(&judged).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code <= 1), "{output:?}");
    }

    let (len, after) = (usize::try_from(size).unwrap(), fs::read(&judged).unwrap());
    let journal_super_block = e2fsck.is_empty().then(|| journal.locate(0).unwrap());
    for (number, expected) in (0_u64..).zip(after.chunks(len)) {
        let mut found = vec![0; len];
        remap.read_at(number * u64::from(size), &mut found).unwrap();
        let mut expected = expected.to_vec();
        // e2fsck clears flags and updates counters in the super block, and empties the journal.
        if number * u64::from(size) <= 1024 && 1024 < (number + 1) * u64::from(size) {
            let at = usize::try_from(1024 - number * u64::from(size)).unwrap();
            found[at..at + 1024].fill(0);
            expected[at..at + 1024].fill(0);
        }
        if Some(number) != journal_super_block {
            let differs = found.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
            assert_eq!(differs, None, "a byte of block {number} of {}", image.display());
        }
    }
    replayed
}

pub fn kernel_oracles() -> bool {
    require(&[
        Oracle::LoopMount,
        Oracle::Program("mke2fs"),
        Oracle::Program("e2fsck"),
        Oracle::Program("debugfs"),
        Oracle::Program("dumpe2fs"),
    ])
}

/// A file as a loop device, for programs that insist on block devices.
pub struct Loop(pub String);

impl Loop {
    pub fn new(file: &Path) -> Self {
        let output = call("losetup", ["-f", "--show", file.to_str().unwrap()]).unwrap();
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = program("losetup").args(["-d", &self.0]).output();
    }
}
