//! Verifies a finished image: runs the check of its format, and compares each file with its source.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use obento_base::{Error, Ino, Mode, Name, Result};
use obento_driver::tree::{self, Body, DataId};
use obento_driver::{
    CheckOptions, Cookie, Finding, FormatNotice, Formatted, Limits, NodeId, Severity, StoredProperties, Tree,
};
use obento_env::SystemClock;
use obento_host::HostError;
use obento_host::build::{Reader, SuppliedFile};
use obento_open::address::PartSelector;
use obento_open::check::{CheckError, check};
use obento_open::{Image, Volume};
use obento_vfs::Node;

use super::history::History;
use super::source::Read;
use super::{BuildFailure, SourceProblem};

/// Maximum number of differences that are reported.
const REPORTED: usize = 1000;
/// Bytes that are compared at once.
const CHUNK: usize = 256 << 10;
/// A directory that a volume may have in addition to its sources.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Checks the volume in `part` of `image`, and compares it with its source `read`. `made` is the result of
/// the build.
///
/// # Errors
///
/// - `NotSound`: the check reports a problem.
/// - `Differs`: files differ from the sources.
/// - `Other`: the volume does not open.
/// - `Host`: a source cannot be read.
pub(super) fn verify(
    image: &Image,
    part: Option<&PartSelector>,
    read: &Read,
    made: &Formatted,
) -> Result<(), BuildFailure> {
    expect_sound(image, part)?;
    let failed = |why: &dyn std::fmt::Display| BuildFailure::Other { why: why.to_string() };
    let volume = image.volume(part).map_err(|error| failed(&error))?;
    let problems = Comparison::new(&volume, read, made).run()?;
    if problems.is_empty() { Ok(()) } else { Err(BuildFailure::Differs(problems)) }
}

fn expect_sound(image: &Image, part: Option<&PartSelector>) -> Result<(), BuildFailure> {
    let mut findings: Vec<Finding> = Vec::new();
    match check(image, part, &CheckOptions::new(Arc::new(SystemClock)), &mut findings) {
        Ok(_) | Err(CheckError::NotSupported { .. }) => {}
        Err(error) => return Err(BuildFailure::Other { why: error.to_string() }),
    }
    findings.retain(|finding| finding.severity != Severity::Note);
    findings.truncate(REPORTED);
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    if findings.is_empty() { Ok(()) } else { Err(BuildFailure::NotSound(findings)) }
}

/// A comparison of a volume with its source tree.
struct Comparison<'a> {
    volume: &'a Volume,
    tree: &'a Tree,
    reader: Reader<'a>,
    history: Option<&'a History>,
    limits: Limits,
    /// The attributes that the format could not store for some file, as recorded by the build.
    lost: Vec<&'static str>,
    /// The inode of each node that was compared.
    inodes: HashMap<NodeId, Ino>,
    problems: Vec<SourceProblem>,
}

/// The reason why two files were not compared to the end.
enum Stop {
    /// The image cannot be read.
    Image(Error),
    /// The source cannot be read.
    Source(HostError),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

impl<'a> Comparison<'a> {
    fn new(volume: &'a Volume, read: &'a Read, made: &Formatted) -> Self {
        let lost = made.notices.iter().filter_map(|notice| match notice {
            FormatNotice::Lost { what, .. } => Some(*what),
            _ => None,
        });
        Self {
            volume,
            tree: &read.tree,
            reader: Reader::new(&read.supply),
            history: read.history.as_ref(),
            limits: volume.vfs().limits(),
            lost: lost.collect(),
            inodes: HashMap::new(),
            problems: Vec::new(),
        }
    }

    /// Compares everything. Returns the differences. Fails if a source cannot be read.
    fn run(mut self) -> Result<Vec<SourceProblem>, HostError> {
        let mut waiting = vec![(NodeId::ROOT, Vec::new(), self.volume.root())];
        while let Some((id, path, node)) = waiting.pop() {
            if self.problems.len() >= REPORTED {
                break;
            }
            match self.node(id, &path, &node) {
                Ok(true) => {
                    let below = self.below(id, &path, &node);
                    waiting.extend(below);
                }
                Ok(false) => {}
                Err(Stop::Image(error)) => {
                    self.problem(&path, format!("cannot read the file from the image: {error}"));
                }
                Err(Stop::Source(error)) => return Err(error),
            }
        }
        self.problems.sort();
        Ok(self.problems)
    }

    fn problem(&mut self, path: &[u8], why: String) {
        let path = if path.is_empty() { b"/".to_vec() } else { path.to_vec() };
        self.problems.push(SourceProblem { path, why: why.into() });
    }

    /// Returns the files in a directory after checking that it has exactly the names of its source.
    fn below(&mut self, id: NodeId, path: &[u8], dir: &Node) -> Vec<(NodeId, Vec<u8>, Node)> {
        let mut found = Vec::new();
        let mut extra = Vec::new();
        let tree = self.tree;
        let listed = dir.read_dir(Cookie::START, &mut |entry| {
            match entry {
                Ok(entry) if tree.child(id, entry.name).is_some() => {}
                Ok(entry) => extra.push(entry.name.as_bytes().to_vec()),
                // The lookup of the entry's name reports the damage.
                Err(_) => {}
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = listed {
            self.problem(path, format!("cannot list the directory in the image: {error}"));
        }
        extra.retain(|name| id != NodeId::ROOT || name != LOST_AND_FOUND);
        for name in extra {
            self.problem(&joined(path, &name), "the file is in the image, but not in the sources".into());
        }
        for (name, child) in tree.children(id) {
            let path = joined(path, name);
            match Name::new(name).map_err(|_| Error::Invalid).and_then(|name| dir.lookup(name)) {
                Ok(node) => found.push((child, path, node)),
                Err(error) => self.problem(&path, format!("the file is missing in the image: {error}")),
            }
        }
        found
    }

    /// Compares one file. Returns whether the file is a directory whose files must be compared.
    fn node(&mut self, id: NodeId, path: &[u8], node: &Node) -> Result<bool, Stop> {
        let Some(wanted) = self.tree.node(id).copied() else { return Ok(false) };
        let attr = node.attr()?;
        if attr.kind != wanted.body.kind() {
            self.problem(path, "the file has another type in the image".into());
            return Ok(false);
        }
        if let Some(first) = self.inodes.insert(id, attr.ino)
            && self.limits.link_max > 1
        {
            if first != attr.ino {
                self.problem(path, "the name is not a hard link in the image".into());
            }
            return Ok(false);
        }
        let mut differences = self.attributes(id, &wanted, &attr);
        match wanted.body {
            Body::File { size, .. } if size != attr.size => {
                differences.push(format!("the size is {size} in the source, and {} in the image", attr.size));
            }
            Body::File { size, data } => differences.extend(self.content(id, size, data, node)?),
            Body::Symlink if node.read_link()? != self.tree.target(&wanted) => {
                differences.push("the target of the link differs in the image".into());
            }
            Body::CharDevice(number) | Body::BlockDevice(number) if number != attr.rdev => {
                differences.push("the device number differs in the image".into());
            }
            _ => {}
        }
        differences.extend(self.xattrs(&wanted, node)?);
        differences.into_iter().for_each(|why| self.problem(path, why));
        Ok(wanted.body == Body::Directory)
    }

    fn is_kept(&self, what: &str) -> bool {
        !self.lost.contains(&what)
    }

    /// Returns the attributes that differ, among those that the format stores.
    fn attributes(&self, id: NodeId, wanted: &tree::Node, held: &obento_base::Attr) -> Vec<String> {
        let mut differences = Vec::new();
        let keeps = self.limits.keeps;
        // A format without owners has no inode for the root directory.
        if id == NodeId::ROOT && !keeps.contains(StoredProperties::OWNERS) {
            return differences;
        }
        let attr = &wanted.attr;
        let octal = |mode: Mode| format!("{:04o}", mode.bits());
        if keeps.contains(StoredProperties::MODES)
            && self.is_kept("modes")
            && wanted.body != Body::Symlink
            && held.mode != attr.mode
        {
            let modes = (octal(attr.mode), octal(held.mode));
            differences.push(format!("the mode is {} in the source, and {} in the image", modes.0, modes.1));
        }
        if keeps.contains(StoredProperties::OWNERS)
            && self.is_kept("owners")
            && (held.uid, held.gid) != (attr.uid, attr.gid)
        {
            differences.push(format!(
                "the owner is {}:{} in the source, and {}:{} in the image",
                attr.uid, attr.gid, held.uid, held.gid
            ));
        }
        if self.is_kept("times") && !self.limits.is_same_time(held.mtime, attr.mtime) {
            differences.push("the modification time differs in the image".into());
        }
        let is_counted = self.limits.link_max > 1 && wanted.body != Body::Directory;
        if is_counted && held.nlink != wanted.links {
            differences.push(format!(
                "the link count is {} in the sources, and {} in the image",
                wanted.links, held.nlink
            ));
        }
        differences
    }

    fn xattrs(&self, wanted: &tree::Node, node: &Node) -> Result<Option<String>, Stop> {
        if !self.is_kept("extended attributes") {
            return Ok(None);
        }
        let set = wanted.attr.xattrs.and_then(|set| self.tree.xattr_sets().get(set.index()));
        let set = set.map_or(&[][..], |set| &**set);
        let mut names = match node.list_xattrs() {
            Ok(names) => names,
            Err(Error::NotSupported) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        names.sort();
        if !names.iter().map(Vec::as_slice).eq(set.iter().map(|(name, _)| &**name)) {
            return Ok(Some("the extended attributes differ in the image".into()));
        }
        for (name, value) in set {
            if *node.get_xattr(name)? != **value {
                let name = obento_open::text::escaped(name);
                return Ok(Some(format!("the extended attribute {name} differs in the image")));
            }
        }
        Ok(None)
    }

    /// Returns where the bytes of a file differ from those of its source, if they differ.
    fn content(
        &mut self,
        id: NodeId,
        size: u64,
        data: Option<DataId>,
        node: &Node,
    ) -> Result<Option<String>, Stop> {
        if let Some(segment) = self.history.and_then(|history| history.segment(id)) {
            let mut found = vec![0; segment.len()];
            read_exact(node, 0, &mut found)?;
            let byte = found.iter().zip(segment).position(|(a, b)| a != b);
            return Ok(byte.map(|byte| differs(byte as u64)));
        }
        let whole = 0..size;
        let ranges = match data {
            Some(_) => self.tree.data_ranges(id).unwrap_or(std::slice::from_ref(&whole)),
            None => &[],
        };
        let source = match data {
            Some(data) => Some(self.reader.open(data.0, size).map_err(Stop::Source)?),
            None => None,
        };
        let mut at = 0;
        for range in ranges {
            let found = match not_zero(node, at..range.start)? {
                None => differing(node, source.as_ref(), range.clone())?,
                found => found,
            };
            if let Some(byte) = found {
                return Ok(Some(differs(byte)));
            }
            at = range.end;
        }
        Ok(not_zero(node, at..size)?.map(differs))
    }
}

fn differs(byte: u64) -> String {
    format!("the contents differ in the image, first in byte {byte}")
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}

/// Reads `buffer.len()` bytes of a file of the image.
fn read_exact(node: &Node, at: u64, buffer: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match node.read_at(at + done as u64, &mut buffer[done..])? {
            0 => return Err(Error::Invalid),
            len => done += len,
        }
    }
    Ok(())
}

/// Splits `range` into parts of at most [`CHUNK`] bytes: the start and the length of each.
fn chunks(range: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
    let end = range.end;
    range.step_by(CHUNK).map(move |at| (at, usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK)))
}

/// Returns the first byte of `range` in which a file of the image differs from its source.
fn differing(node: &Node, source: Option<&SuppliedFile<'_>>, range: Range<u64>) -> Result<Option<u64>, Stop> {
    let Some(source) = source else { return Ok(None) };
    let (mut found, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
    for (at, len) in chunks(range) {
        let (found, expected) = (&mut found[..len], &mut expected[..len]);
        read_exact(node, at, found)?;
        source.read_exact_at(expected, at).map_err(Stop::Source)?;
        if let Some(inside) = found.iter().zip(&*expected).position(|(a, b)| a != b) {
            return Ok(Some(at + inside as u64));
        }
    }
    Ok(None)
}

/// Returns the first byte of `range` of a file of the image that is not zero. Holes are not read.
fn not_zero(node: &Node, range: Range<u64>) -> Result<Option<u64>> {
    let mut buffer = vec![0; CHUNK];
    let mut at = range.start;
    while at < range.end {
        let start = match node.seek_data(at) {
            Ok(start) if start < range.end => start,
            Ok(_) | Err(Error::NoSuchOffset) => break,
            Err(error) => return Err(error),
        };
        let end = node.seek_hole(start)?.min(range.end);
        for (at, len) in chunks(start..end) {
            let bytes = &mut buffer[..len];
            read_exact(node, at, bytes)?;
            if let Some(inside) = bytes.iter().position(|&byte| byte != 0) {
                return Ok(Some(at + inside as u64));
            }
        }
        at = end;
    }
    Ok(None)
}
