//! The check: every node with its checksums, every name, and every file decompressed. It repairs nothing.
//!
//! A node that was being written when the power failed has a wrong checksum. That is normal for flash memory, and Linux
//! ignores such nodes; the check reports them, since it cannot know the reason.

mod issue;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Feature, FileKind, Ino, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Check, CheckObserver, CheckOptions, CheckProgress, CheckReport, FileSystem as _, RepairMode, Severity,
};

pub use self::issue::Issue;
use crate::catalogue::{Catalogue, File, Place, Problem};
use crate::codec::{self, CodecError, number};
use crate::content;
use crate::nodes::Inode;
use crate::open::{Jffs2Driver, order_of};
use crate::order::Order;
use crate::raw::{Header, kind};
use crate::scan::{Event, Fault, scan};
use crate::volume::{Counts, Volume};

/// Memory for the caches of the volume.
const CACHE: usize = 1 << 20;

/// Receives issues and counts them.
struct Findings<'a> {
    observer: &'a mut dyn CheckObserver,
    found: u64,
}

impl Findings<'_> {
    fn add(&mut self, issue: &Issue) {
        if issue.severity() != Severity::Note {
            self.found = self.found.saturating_add(1);
        }
        self.observer.found(issue.finding(false));
    }
}

impl Check for Jffs2Driver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport, Error> {
        let order = order_of(&*device, options.probe.as_ref())?;
        if options.repair_mode != RepairMode::Nothing {
            return Err(Error::Unsupported(Feature::Repairing));
        }
        let mut findings = Findings { observer, found: 0 };
        let volume = nodes(device, order, &mut findings)?;
        let files: Vec<&File> = volume.catalogue.files().collect();
        let total = to_u64(files.len());
        let mut directories = 0_u64;
        for (done, file) in (0_u64..).zip(&files) {
            if volume.catalogue.kind(file) == Ok(FileKind::Directory) {
                directories = directories.saturating_add(1);
            }
            check_file(&volume, file, &mut findings)?;
            if done.is_multiple_of(1024) {
                findings.observer.progress(CheckProgress { pass: "files", done, total });
            }
        }
        for (ino, id) in volume.catalogue.dangling_xattrs() {
            findings.add(&Issue::DanglingXattr { ino, id });
        }
        let usage = volume.statfs()?;
        Ok(CheckReport {
            checked: true,
            inodes: (total, total),
            blocks: (usage.blocks.saturating_sub(usage.free), usage.blocks),
            directories,
            block_size: usage.block_size,
            found: findings.found,
            ..CheckReport::default()
        })
    }
}

/// Reads all nodes, reports damaged ones and contradictions between the others.
fn nodes(device: Arc<dyn BlockDevice>, order: Order, findings: &mut Findings<'_>) -> Result<Volume> {
    let mut collector = crate::catalogue::Collector::default();
    let mut counts = Counts::default();
    scan(&*device, order, &mut |at, event| {
        match event {
            Event::Node(node) => {
                if let crate::nodes::Node::Inode(inode) = &node {
                    counts.bytes = counts.bytes.saturating_add(inode.stored.into());
                }
                collector.add(node);
            }
            other => {
                if let Some(issue) = issue_of(at, &other) {
                    findings.add(&issue);
                }
            }
        }
        Ok(())
    })?;
    let catalogue: Catalogue = collector.finish(&mut |problem| findings.add(&of_problem(problem)));
    Ok(Volume::with(device, order, catalogue, counts, CACHE))
}

fn node_name(header: &Header) -> &'static str {
    match header.kind {
        kind::INODE => "inode",
        kind::DIRENT => "entry",
        kind::XATTR => "attribute",
        kind::XREF => "attribute reference",
        kind::SUMMARY => "summary",
        _ => "unknown",
    }
}

fn issue_of(offset: u32, event: &Event) -> Option<Issue> {
    Some(match event {
        Event::NoNode { found, expected } => Issue::Header { offset, found: *found, expected: *expected },
        Event::Damaged(header, fault) => {
            let node = node_name(header);
            match *fault {
                Fault::Checksum { what, found, expected } => {
                    Issue::Checksum { offset, node, part: what, found, expected }
                }
                Fault::Field { field, found } => Issue::Field { offset, node, field, found },
                Fault::Truncated => Issue::Truncated { offset, len: header.len },
            }
        }
        Event::Unknown(header) => Issue::UnknownNode { offset, kind: header.kind },
        Event::Incompatible(header) => Issue::IncompatibleNode { offset, kind: header.kind },
        Event::Garbage(len) => Issue::Garbage { offset, len: *len },
        Event::Node(_) | Event::Obsolete(_) | Event::Other(_) => return None,
    })
}

fn of_problem(problem: Problem) -> Issue {
    match problem {
        Problem::Dangling(Place { at, parent, name, ino }) => {
            Issue::Dangling { offset: at, ino, dir: parent, name }
        }
        Problem::MissingParent(Place { at, parent, name, ino }) => {
            Issue::MissingParent { offset: at, ino, dir: parent, name }
        }
        Problem::SecondName(Place { at, parent, name, ino }) => {
            Issue::SecondName { offset: at, ino, dir: parent, name }
        }
        Problem::BadName(Place { at, parent, name, ino }) => {
            Issue::BadName { offset: at, ino, dir: parent, name }
        }
        Problem::WrongType(Place { at, parent, name, ino }, found) => {
            Issue::WrongType { offset: at, ino, dir: parent, name, found }
        }
        Problem::NoInode(ino) => Issue::NoInode { ino },
        Problem::UnknownType(ino, mode) => Issue::UnknownType { ino, mode },
    }
}

/// Checks the value or the data of a file.
fn check_file(volume: &Volume, file: &File, findings: &mut Findings<'_>) -> Result<()> {
    let nodes = volume.catalogue.nodes(file);
    match volume.catalogue.kind(file) {
        Ok(FileKind::Regular) => {
            let (found, expected) = (content::size(nodes), nodes.last().map_or(0, |node| node.size));
            if found < expected.into() {
                findings.add(&Issue::Short { ino: file.ino, found, expected });
            }
            nodes.iter().try_for_each(|node| check_data(volume, node, findings))
        }
        Ok(_) => match volume.getattr(Ino(file.ino.into())) {
            Err(error @ Error::Device(_)) => Err(error),
            Err(_) => {
                findings.add(&Issue::Value { ino: file.ino });
                Ok(())
            }
            Ok(_) => Ok(()),
        },
        Err(_) => Ok(()),
    }
}

fn check_data(volume: &Volume, node: &Inode, findings: &mut Findings<'_>) -> Result<()> {
    if node.len == 0 || node.codec == number::ZERO || (node.codec == number::NONE && node.stored >= node.len)
    {
        return Ok(());
    }
    let why = if node.len > codec::OUTPUT_MAX {
        "is too long for a node"
    } else {
        let stored = volume.stored(node)?;
        let mut output = alloc::vec![0; to_usize(node.len.into())];
        match codec::decompress(node.codec, &stored, &mut output) {
            Ok(()) => return Ok(()),
            Err(CodecError::Damaged) => "is damaged",
            Err(CodecError::Unknown) => "has an unknown codec",
            Err(CodecError::Unsupported(_)) => "cannot be verified",
        }
    };
    findings.add(&Issue::Data { ino: node.ino, offset: node.at, codec: node.codec, why });
    Ok(())
}
