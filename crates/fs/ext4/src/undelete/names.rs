//! The names of deleted files: entries in older versions of directory blocks, and in the unused space of directories.
//!
//! A removed entry becomes a part of the entry before it. Linux before 5.13 leaves its bytes there; newer kernels fill
//! them with zeros, so that only the log still contains the name.
//! Source: Linux `fs/ext4/namei.c` `ext4_generic_delete_entry`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use obento_base::wire::FromBytes as _;
use obento_base::{FileKind, Ino, Name};

use super::Search;
use super::inodes::{OldInode, Origin};
use super::old::{Age, OldBlocks};
use crate::feature::Incompat;
use crate::inode::{Inode, InodeFlags};
use crate::map::Blocks;
use crate::raw::RawDirEntry;
use crate::super_block::ROOT_INO;
use crate::unit::FileBlock;

/// The most names of an inode, and of all inodes together.
const MAX_NAMES: usize = 16;
const MAX_ALL_NAMES: usize = 1 << 19;
/// The most directories above a file.
const MAX_DEPTH: usize = 64;
/// The longest path (`PATH_MAX` of Linux).
const PATH_MAX: usize = 4096;
/// The size of an entry without its name.
const HEADER: usize = 8;
/// The codes in `file_type` of a directory, and of all files on a volume without the feature `filetype`.
const DIRECTORY: u8 = 2;
const UNKNOWN: u8 = 0;

/// A name that an inode had.
struct OldName {
    dir: u32,
    name: Vec<u8>,
    /// The ages of the newest and the oldest version of the directory with this name; `None` for unused space.
    ages: Option<(Age, Age)>,
}

/// The names of directories and of deleted files.
#[derive(Default)]
pub(super) struct Names {
    /// The directory and the name of each directory in use.
    parents: BTreeMap<u32, (u32, Vec<u8>)>,
    deleted: BTreeMap<u32, Vec<OldName>>,
    /// The directories and names of files in use whose inodes belonged to deleted files before.
    present: BTreeMap<u32, Vec<(u32, Vec<u8>)>>,
    count: usize,
}

/// An entry with the inode that it refers to.
struct Entry<'b> {
    ino: u32,
    file_type: u8,
    name: &'b [u8],
}

impl Search<'_> {
    /// Returns the names of `files`, and those of all directories.
    pub(super) fn names(&mut self, old: &OldBlocks, files: &[OldInode], directories: &[u32]) -> Names {
        let wanted: BTreeSet<u32> = files.iter().map(|file| file.ino).collect();
        let mut names = Names::default();
        let mut owners = BTreeMap::new();
        for &dir in directories {
            // An unreadable part of a directory has no entries.
            let Ok(inode) = self.volume.inode(Ino(dir.into())) else { continue };
            self.present(dir, &inode, &wanted, &mut names);
            self.directory(dir, &inode, &mut owners, |entry| names.add(dir, entry, None, &wanted));
        }
        old.each(|block, age, bytes| {
            if let Some(dir) = own_number(bytes).or_else(|| owners.get(&block).copied()) {
                self.scan(bytes, |entry| names.add(dir, entry, Some(age), &wanted));
            }
        });
        names
    }

    /// Adds the directories in `inode`, which is in use, and the names there of inodes in `wanted`.
    fn present(&self, dir: u32, inode: &Inode, wanted: &BTreeSet<u32>, names: &mut Names) {
        let _ = self.volume.read_dir(inode, obento_driver::Cookie::START, &mut |entry| {
            if let Ok(entry) = entry
                && let Ok(ino) = u32::try_from(entry.ino.0)
            {
                let place = || (dir, entry.name.as_bytes().to_vec());
                if entry.kind.is_none_or(|kind| kind == FileKind::Directory) {
                    names.parents.entry(ino).or_insert_with(place);
                }
                if wanted.contains(&ino) {
                    let present = names.present.entry(ino).or_default();
                    if present.len() < MAX_NAMES {
                        present.push(place());
                    }
                }
            }
            core::ops::ControlFlow::Continue(())
        });
    }

    /// Passes the entries in the blocks of a directory to `visit`, also those in its unused space. A block is read once.
    fn directory(
        &mut self,
        dir: u32,
        inode: &Inode,
        owners: &mut BTreeMap<u64, u32>,
        mut visit: impl FnMut(&Entry<'_>),
    ) {
        if inode.has(InodeFlags::INLINE_DATA) {
            return;
        }
        let blocks = inode.size().checked_div(self.volume.block_size().into()).unwrap_or(0);
        let (mut at, end) = (0_u32, u32::try_from(blocks).unwrap_or(u32::MAX));
        while at < end && self.step() {
            let Ok(run) = self.volume.map_run(inode, FileBlock(at)) else { return };
            if let Blocks::Mapped(start) = run.place {
                let len = u64::from(run.len.min(end.saturating_sub(at)));
                for block in start.0..start.0.saturating_add(len) {
                    if owners.insert(block, dir).is_some() {
                        return;
                    }
                    if let Ok(bytes) = self.volume.cache().get(block) {
                        self.scan(&bytes, &mut visit);
                    }
                }
            }
            at = at.saturating_add(run.len.max(1));
        }
    }

    /// Passes everything in a directory block that may be an entry to `visit`.
    fn scan(&self, bytes: &[u8], mut visit: impl FnMut(&Entry<'_>)) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = bytes.get(at..).unwrap_or_default();
            let step = match self.entry(rest) {
                Some(entry) => {
                    visit(&entry);
                    HEADER.saturating_add(entry.name.len()).next_multiple_of(4)
                }
                None => 4,
            };
            at = at.saturating_add(step);
        }
    }

    /// Returns the entry at the start of `rest`, the rest of a block, if its fields are plausible.
    fn entry<'b>(&self, rest: &'b [u8]) -> Option<Entry<'b>> {
        let sb = self.volume.super_block();
        let (raw, after) = RawDirEntry::ref_from_prefix(rest).ok()?;
        let (ino, len) = (raw.inode.get(), usize::from(raw.rec_len.get()));
        let name = after.get(..usize::from(raw.name_len))?;
        let needed = HEADER.saturating_add(name.len());
        let has_types = sb.incompat.contains(Incompat::FILETYPE);
        let is_length = len.is_multiple_of(4) && len >= needed && len <= rest.len();
        let is_type = if has_types { (1..=7).contains(&raw.file_type) } else { raw.file_type == 0 };
        let is_inode = ino >= sb.first_ino && ino <= sb.inodes_count;
        let is_valid = is_length && is_type && is_inode && Name::new(name).is_ok();
        is_valid.then_some(Entry { ino, file_type: raw.file_type, name })
    }
}

/// Returns the number of the directory whose first block this is: that of its entry `.`, which `..` follows.
fn own_number(bytes: &[u8]) -> Option<u32> {
    let (dot, _) = RawDirEntry::ref_from_prefix(bytes).ok()?;
    let rest = bytes.get(12..)?;
    let (dots, _) = RawDirEntry::ref_from_prefix(rest).ok()?;
    let is_first = dot.name_len == 1 && dot.rec_len.get() == 12 && bytes.get(HEADER) == Some(&b'.');
    let is_second = dots.name_len == 2 && rest.get(HEADER..10) == Some(b"..");
    (is_first && is_second && dot.inode.get() != 0).then(|| dot.inode.get())
}

impl Names {
    /// Adds a name of a file in `wanted`, or of a directory.
    fn add(&mut self, dir: u32, entry: &Entry<'_>, age: Option<Age>, wanted: &BTreeSet<u32>) {
        let is_needed = matches!(entry.file_type, UNKNOWN | DIRECTORY) || wanted.contains(&entry.ino);
        if !is_needed || self.count >= MAX_ALL_NAMES {
            return;
        }
        let known = self.deleted.entry(entry.ino).or_default();
        let is_full = known.len() >= MAX_NAMES;
        match known.iter_mut().find(|old| old.dir == dir && old.name == entry.name) {
            Some(old) => {
                old.ages = match (old.ages, age) {
                    (Some((newest, oldest)), Some(age)) => Some((newest.min(age), oldest.max(age))),
                    (ages, age) => ages.or(age.map(|age| (age, age))),
                };
            }
            None if !is_full => {
                known.push(OldName { dir, name: entry.name.to_vec(), ages: age.map(|age| (age, age)) });
                self.count = self.count.saturating_add(1);
            }
            None => {}
        }
    }

    /// Returns the path of a deleted file. A name that was not found is `#` and the number of the inode.
    pub(super) fn path(&self, file: &OldInode) -> Vec<u8> {
        let age = match file.origin {
            Origin::Journal(age) => age,
            Origin::Orphan | Origin::Table => 0,
        };
        let number = |ino: u32| format!("#{ino}").into_bytes();
        let Some(own) = self.name(file.ino, age) else { return number(file.ino) };
        let mut parts = Vec::from([own.name.clone()]);
        let mut dir = own.dir;
        while u64::from(dir) != ROOT_INO.0 {
            let above = match (self.parents.get(&dir), self.name(dir, age)) {
                (Some((above, name)), _) => Some((*above, name)),
                (None, Some(old)) => Some((old.dir, &old.name)),
                (None, None) => None,
            };
            match above.filter(|_| parts.len() < MAX_DEPTH) {
                Some((above, name)) => {
                    parts.push(name.clone());
                    dir = above;
                }
                None => {
                    parts.push(number(dir));
                    break;
                }
            }
        }
        parts.reverse();
        let path = parts.join(&b'/');
        if path.len() <= PATH_MAX { path } else { number(file.ino) }
    }

    /// Returns the name of an inode whose version has the given age: the newest name that is not newer, or else the one
    /// that came next. A newer name is not returned if it is that of a present file, which uses the inode again.
    fn name(&self, ino: u32, age: Age) -> Option<&OldName> {
        let present = self.present.get(&ino).map_or(&[][..], Vec::as_slice);
        let is_present =
            |old: &OldName| present.iter().any(|(dir, name)| *dir == old.dir && *name == old.name);
        let is_old = |old: &OldName| old.ages.is_some_and(|(_, oldest)| oldest >= age);
        // The inodes of age 0 are not in use.
        let names = self.deleted.get(&ino)?.iter().filter(|old| age == 0 || is_old(old) || !is_present(old));
        names.min_by_key(|old| match old.ages {
            Some((newest, oldest)) if oldest >= age => (0, newest.max(age)),
            Some((_, oldest)) => (1, Age::MAX.saturating_sub(oldest)),
            None => (2, 0),
        })
    }
}
