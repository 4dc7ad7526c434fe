//! The passes over inodes and names.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_driver::CheckProgress;

use super::{Findings, Issue};
use crate::inode::{DIRECT, Inode};
use crate::volume::{ROOT, Volume};

/// What the check counted.
#[derive(Default)]
pub struct Counts {
    pub inodes: u64,
    pub directories: u64,
}

/// An inode in use.
struct Known {
    kind: FileKind,
    links: u16,
    /// Names that refer to it, with `.` and `..`.
    names: u32,
    /// The directory that contains a directory.
    parent: Option<u64>,
}

/// Units in use, 64 in a word.
#[derive(Default)]
struct Used(BTreeMap<u64, u64>);

impl Used {
    /// Marks units, and returns whether one of them was marked.
    fn take(&mut self, start: u64, len: u64) -> bool {
        let mut taken = false;
        for unit in start..start.saturating_add(len) {
            let word = self.0.entry(unit / 64).or_default();
            let bit = 1_u64.checked_shl(u32::try_from(unit % 64).unwrap_or(0)).unwrap_or(0);
            taken |= *word & bit != 0;
            *word |= bit;
        }
        taken
    }
}

/// Reads all inodes, then all names.
///
/// # Errors
///
/// Those of the device.
pub fn run(volume: &Volume, findings: &mut Findings<'_>) -> Result<Counts> {
    let mut known = BTreeMap::new();
    let mut used = Used::default();
    let end = volume.inode_end();
    let rolled: Vec<u64> = volume.rolled.inodes.keys().copied().filter(|&ino| ino >= end).collect();
    for number in (1..end).chain(rolled) {
        if number % 4096 == 0 {
            findings.observer.progress(CheckProgress { pass: "inodes", done: number, total: end });
        }
        let ino = Ino(number);
        match volume.inode(ino) {
            Err(Error::Refused(_)) => {}
            Err(error) => findings.add_error(error, |why| Issue::Inode { ino: number, why })?,
            Ok(inode) => match inode.kind() {
                None => findings.add(&Issue::Mode { ino: number, mode: inode.mode }),
                Some(kind) => {
                    check_blocks(volume, ino, (&inode, kind), &mut used, findings)?;
                    known.insert(number, Known { kind, links: inode.links, names: 0, parent: None });
                }
            },
        }
    }
    let directories: Vec<u64> =
        known.iter().filter(|(_, known)| known.kind == FileKind::Directory).map(|(&ino, _)| ino).collect();
    for &dir in &directories {
        check_directory(volume, dir, &mut known, findings)?;
    }
    check_links(volume, &known, findings);
    Ok(Counts { inodes: to_u64(known.len()), directories: to_u64(directories.len()) })
}

/// Checks the blocks of an inode.
fn check_blocks(
    volume: &Volume,
    ino: Ino,
    (inode, kind): (&Inode, FileKind),
    used: &mut Used,
    findings: &mut Findings<'_>,
) -> Result<()> {
    let is_short = kind == FileKind::Symlink && inode.size < volume.super_block.inline_max;
    if kind == FileKind::Symlink
        && let Err(error) = volume.target(ino, inode)
    {
        findings.add_error(error, |_| Issue::Target { ino: ino.0 })?;
    }
    if kind.is_device() || is_short || matches!(kind, FileKind::Fifo | FileKind::Socket) {
        return Ok(());
    }
    let fan = volume.fan();
    let most = fan.saturating_mul(fan).saturating_mul(fan.saturating_add(1)).saturating_add(to_u64(DIRECT));
    if inode.size > most.saturating_mul(volume.super_block.block.into()) {
        findings.add(&Issue::Size { ino: ino.0, size: inode.size });
    }
    let mut walk = Walk { volume, ino, inode, used, units: 0 };
    let mut first = 0;
    let mut span = 1;
    for (index, &address) in inode.addresses.iter().enumerate() {
        let level = index.saturating_sub(DIRECT.saturating_sub(1));
        if level > 0 {
            span = if level == 1 { fan } else { span.saturating_mul(fan) };
        }
        walk.visit(address, first, (level, span), findings)?;
        first = first.saturating_add(span);
    }
    let blocks = volume.rolled.blocks.range((ino.0, 0)..=(ino.0, u64::MAX));
    for (&(_, number), &address) in blocks {
        walk.claim(address, number, volume.block_len(inode, number), findings)?;
    }
    let (found, expected) = (inode.blocks, walk.units);
    // The count of an inode after the checkpoint includes indirect blocks that are not read.
    if found != expected && !volume.rolled.inodes.contains_key(&ino.0) {
        findings.add(&Issue::Blocks { ino: ino.0, found, expected });
    }
    Ok(())
}

/// A walk over the addresses of an inode.
struct Walk<'a> {
    volume: &'a Volume,
    ino: Ino,
    inode: &'a Inode,
    used: &'a mut Used,
    units: u64,
}

impl Walk<'_> {
    /// Claims a block, and returns its address if no other file has it.
    fn claim(&mut self, address: i64, at: u64, len: u64, findings: &mut Findings<'_>) -> Result<Option<u64>> {
        match self.volume.address(self.ino, at, address, len) {
            Ok(None) => Ok(None),
            Ok(Some(found)) => {
                let units = self.volume.units(len);
                self.units = self.units.saturating_add(units);
                if self.used.take(found, units) {
                    findings.add(&Issue::Shared { ino: self.ino.0, address: found });
                    return Ok(None);
                }
                Ok(Some(found))
            }
            Err(error) => {
                let issue = Issue::Outside { ino: self.ino.0, address: address.unsigned_abs() };
                findings.add_error(error, |_| issue)?;
                Ok(None)
            }
        }
    }

    /// Visits an address of `level`, which covers `span` blocks of the file from `first` on.
    fn visit(
        &mut self,
        address: i64,
        first: u64,
        (level, span): (usize, u64),
        findings: &mut Findings<'_>,
    ) -> Result<()> {
        let volume = self.volume;
        if level == 0 {
            // A newer block replaces this one.
            if first < self.inode.cut && !volume.rolled.blocks.contains_key(&(self.ino.0, first)) {
                self.claim(address, first, volume.block_len(self.inode, first).max(1), findings)?;
            }
            return Ok(());
        }
        let block = volume.super_block.block;
        let Some(found) = self.claim(address, first, block.into(), findings)? else { return Ok(()) };
        let bytes = volume.block(found, block)?;
        let encoding = volume.super_block.encoding;
        let step = span.checked_div(volume.fan()).unwrap_or(1);
        for index in 0..volume.fan() {
            let child = encoding.address(&bytes, to_usize(index).saturating_mul(encoding.word_len()));
            if child != 0 {
                let at = first.saturating_add(index.saturating_mul(step));
                self.visit(child, at, (level.saturating_sub(1), step), findings)?;
            }
        }
        Ok(())
    }
}

/// Checks the names of a directory.
fn check_directory(
    volume: &Volume,
    dir: u64,
    known: &mut BTreeMap<u64, Known>,
    findings: &mut Findings<'_>,
) -> Result<()> {
    let Ok(inode) = volume.inode(Ino(dir)) else { return Ok(()) };
    let mut failure = Ok(());
    let mut dots = [0, 0];
    volume.entries(Ino(dir), &inode, 0, &mut |entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                failure = findings.add_error(error, |why| Issue::Directory { ino: dir, why });
                return if failure.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
        };
        let name = || entry.name.to_vec();
        let Some(child) = known.get_mut(&entry.ino) else {
            findings.add(&Issue::Dangling { ino: dir, name: name(), found: entry.ino });
            return ControlFlow::Continue(());
        };
        child.names = child.names.saturating_add(1);
        match entry.name {
            b"." => dots = [entry.ino, dots[1]],
            b".." => dots = [dots[0], entry.ino],
            bytes => {
                if Name::new(bytes).is_err() {
                    findings.add(&Issue::Name { ino: dir, name: name() });
                }
                if entry.kind.is_some_and(|kind| kind != child.kind) {
                    findings.add(&Issue::EntryType { ino: dir, name: name() });
                }
                if child.kind == FileKind::Directory && child.parent.replace(dir).is_some() {
                    findings.add(&Issue::SecondName { ino: dir, name: name(), found: entry.ino });
                }
            }
        }
        ControlFlow::Continue(())
    });
    failure?;
    let [itself, parent] = dots;
    if itself != dir {
        findings.add(&Issue::Dots { ino: dir, found: itself, expected: dir });
    }
    if dir == ROOT.0 && parent != dir {
        findings.add(&Issue::Dots { ino: dir, found: parent, expected: dir });
    }
    Ok(())
}

/// Compares link counts, and finds inodes without a name.
fn check_links(volume: &Volume, known: &BTreeMap<u64, Known>, findings: &mut Findings<'_>) {
    for (&ino, inode) in known {
        if let (FileKind::Directory, Some(parent)) = (inode.kind, inode.parent) {
            let found = volume.directory(Ino(ino)).and_then(|dir| volume.parent_of(Ino(ino), &dir));
            if let Ok(found) = found
                && found.0 != parent
            {
                findings.add(&Issue::Dots { ino, found: found.0, expected: parent });
            }
        }
        let (found, expected) = (inode.links.into(), inode.names.into());
        let has_name =
            if inode.kind == FileKind::Directory { inode.parent.is_some() } else { inode.names > 0 };
        // The index file has a name in old volumes only, and the root has its own.
        if ino == ROOT.0 || has_name {
            if found != expected {
                findings.add(&Issue::Links { ino, found, expected });
            }
        } else if ino != volume.super_block.index {
            findings.add(&Issue::Orphan { ino });
        }
    }
}
