//! The kinds of volumes that are built, and the comparison of a volume with its source files.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use obento::address::{FileSelector, PartSelector};
use obento::build::BuildSettings;
use obento::check::check;
use obento::driver::{CheckOptions, Finding};
use obento::env::SystemClock;
use obento::vfs::Symlinks;
use obento::{Error, Image, Node};
use obento_testkit::oracle::{Oracle, call, require};

use crate::files::merged;
use crate::sources::Expected;

/// A type and its options.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub fs_type: &'static str,
    block_size: Option<u32>,
    features: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
    /// The allocation unit in bytes.
    pub unit: u64,
    has_holes: bool,
    judge: Option<(&'static str, &'static str)>,
}

const E2FSCK: Option<(&str, &str)> = Some(("e2fsck", "-fn"));

const fn ext(fs_type: &'static str, block_size: u32, features: &'static [&'static str]) -> Shape {
    let block_size_64 = block_size as u64;
    Shape {
        fs_type,
        block_size: Some(block_size),
        features,
        settings: &[],
        unit: block_size_64,
        has_holes: true,
        judge: E2FSCK,
    }
}

const fn clusters(unit: u64, settings: &'static [(&'static str, &'static str)]) -> Shape {
    Shape { settings, unit, ..ext("ext4", 4096, &["bigalloc"]) }
}

const fn fat(
    fs_type: &'static str,
    unit: u64,
    settings: &'static [(&'static str, &'static str)],
    judge: (&'static str, &'static str),
) -> Shape {
    Shape { fs_type, block_size: None, features: &[], settings, unit, has_holes: false, judge: Some(judge) }
}

const FSCK_FAT: (&str, &str) = ("fsck.fat", "-n");
const FSCK_EXFAT: (&str, &str) = ("fsck.exfat", "-n");

pub const SHAPES: &[Shape] = &[
    ext("ext4", 4096, &[]),
    ext("ext4", 1024, &["^has_journal"]),
    ext("ext4", 2048, &["inline_data"]),
    ext("ext4", 4096, &["inline_data", "^metadata_csum"]),
    ext("ext4", 8192, &["^has_journal"]),
    ext("ext4", 65536, &["^has_journal"]),
    ext("ext4", 1024, &["^extent", "^64bit"]),
    ext("ext4", 1024, &["^flex_bg", "sparse_super2"]),
    ext("ext4", 4096, &["^resize_inode", "meta_bg", "quota"]),
    ext("ext3", 1024, &[]),
    ext("ext2", 1024, &[]),
    ext("ext2", 2048, &[]),
    ext("ext2", 4096, &[]),
    clusters(64 << 10, &[]),
    clusters(8 << 10, &[("cluster_size", "8192")]),
    Shape { block_size: Some(1024), ..clusters(16 << 10, &[]) },
    fat("vfat", 4096, &[], FSCK_FAT),
    fat("vfat", 512, &[("sectors_per_cluster", "1"), ("fat", "16")], FSCK_FAT),
    fat("vfat", 32 << 10, &[("sectors_per_cluster", "64")], FSCK_FAT),
    fat("exfat", 4096, &[], FSCK_EXFAT),
    fat("exfat", 512, &[("cluster_size", "512")], FSCK_EXFAT),
    fat("exfat", 128 << 10, &[("cluster_size", "131072")], FSCK_EXFAT),
    Shape {
        fs_type: "xv6",
        block_size: None,
        features: &[],
        settings: &[],
        unit: 4096,
        has_holes: true,
        judge: None,
    },
];

impl Shape {
    pub fn settings(&self) -> BuildSettings {
        let pair = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        BuildSettings {
            block_size: self.block_size,
            features: self.features.iter().map(ToString::to_string).collect(),
            settings: self.settings.iter().map(pair).collect(),
            ..BuildSettings::new(self.fs_type)
        }
    }

    /// Returns the ranges that a volume stores for a file of `size` bytes with data in `ranges`.
    fn stored(&self, ranges: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
        let whole = |range: &Range<u64>| {
            let end = range.end.next_multiple_of(self.unit).min(size);
            range.start / self.unit * self.unit..end
        };
        merged(ranges.iter().map(whole))
    }

    /// Panics unless the volume contains the files with their holes, and its check finds nothing.
    pub fn expect(&self, image: &Path, part: Option<&PartSelector>, expected: &[Expected], what: &str) {
        let image = Image::open(image).unwrap();
        let volume = image.volume(part).unwrap_or_else(|error| panic!("{what}: {error}"));
        for file in expected {
            let path = &file.path;
            let place = FileSelector::Path(path.clone().into_bytes());
            let node = volume.resolve(&place, Symlinks::Keep);
            let node = node.unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
            let content = content(&node).unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
            let same = content.iter().zip(&file.content).take_while(|(a, b)| a == b).count();
            let lens = (content.len(), file.content.len());
            assert!(content == file.content, "{what}: {path} differs from byte {same} on, of {lens:?}");
            if let Some(data) = file.data.as_ref().filter(|_| self.has_holes) {
                assert_eq!(
                    data_of(&node),
                    self.stored(data, file.content.len() as u64),
                    "{what}: the data of {path}, which has it in {data:?}"
                );
            }
        }
        let mut findings: Vec<Finding> = Vec::new();
        let report = check(&image, part, &CheckOptions::new(Arc::new(SystemClock)), &mut findings).unwrap();
        let words: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(report.is_clean() && words.is_empty(), "{what}: {words:?}");
    }

    /// Panics if the format's own check finds a problem.
    pub fn judge(&self, image: &Path, what: &str) {
        let Some((program, option)) = self.judge.filter(|(name, _)| require(&[Oracle::Program(name)])) else {
            return;
        };
        call(program, [option.as_ref(), image.as_os_str()]).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

fn content(node: &Node) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0xaa; node.attr()?.size as usize];
    let mut done = 0;
    while done < bytes.len() {
        match node.read_at(done as u64, &mut bytes[done..])? {
            0 => break,
            len => done += len,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Returns the data ranges of a file.
fn data_of(node: &Node) -> Vec<Range<u64>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Ok(start) = node.seek_data(at) {
        at = node.seek_hole(start).unwrap();
        ranges.push(start..at);
    }
    merged(ranges.into_iter())
}
