//! Writes a tree of an image as a tar archive.
//!
//! Entries are sorted by name ([`Order::Name`]), so that the same tree gives the same archive. Exception: the entries
//! of a very large directory are sorted in portions, which depend on the order of the format. The first name of a file
//! with several names contains its bytes, and the other names are hard links to it. Holes are kept.
//!
//! Invariant: at most `MAX_RANGES` data ranges of one file are stored in memory. A file with more ranges is written
//! without holes.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

use obento_base::{Attr, FileKind, Ino};
use obento_host::tar::PaxWriter;
use obento_host::{DataSink, HostError, Metadata};
use obento_open::walk::{Entry, Order, Step, Walk};
use obento_vfs::Node;

use crate::copy::{Observer, Problem, ProblemReason, Progress, expect_wanted, join};
use crate::data::{self, Losses};
use crate::xattrs;

/// The ranges take 16 MiB.
const MAX_RANGES: usize = 1 << 20;
/// Ranges begin and end at multiples of this, as required by tar.
const ALIGN: u64 = 512;
/// Minimum length of a hole that is kept. The map of the archive needs more space for a shorter hole than the hole
/// saves.
const MIN_HOLE: u64 = 4096;

/// Maximum number of bytes of paths that are held for files with several names, for any link counts of a hostile
/// image.
const MAX_ORIGINALS: usize = 48 << 20;
/// Bytes that an entry takes in addition to its path.
const ORIGINAL: usize = 64;

/// The options of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// The name of the start of the tree in the archive: `.`, as with `tar -C DIR .`, or the name of a file.
    pub name: Vec<u8>,
    /// Whether extended attributes are stored.
    pub xattrs: bool,
    /// The name of the output in messages.
    pub output: PathBuf,
}

impl Default for ExportOptions {
    /// Returns the options to write `.` with extended attributes to standard output.
    fn default() -> Self {
        Self { name: b".".to_vec(), xattrs: true, output: "standard output".into() }
    }
}

/// The result of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExportReport {
    /// The number of entries in the archive.
    pub entries: u64,
    /// The number of bytes of files, without holes.
    pub bytes: u64,
    /// The number of skipped sockets, which tar cannot store.
    pub sockets: u64,
    /// The number of names that became separate files instead of hard links. This occurs if the tree contains
    /// more files with several names than the export can store at a time.
    pub unlinked: u64,
    /// The number of problems that the observer received.
    pub problems: u64,
}

/// Writes the tree below `start` to `output` as a pax archive. Returns `output` and a report. Passes
/// unreadable parts to `observer`, and continues.
///
/// # Errors
///
/// The errors of writing to `output`, and [`HostError::Stopped`] if the observer ends the export.
///
/// ```no_run
/// use obento::Image;
/// use obento::copy::Quiet;
/// use obento::export::ExportOptions;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Image::open("disk.img")?.volume(None)?;
/// let file = std::fs::File::create("disk.tar")?;
/// let (_, report) = obento::export::export(&volume.root(), file, &ExportOptions::default(), &mut Quiet::default())?;
/// println!("{} entries", report.entries);
/// # Ok(())
/// # }
/// ```
pub fn export<W: Write>(
    start: &Node,
    output: W,
    options: &ExportOptions,
    observer: &mut dyn Observer,
) -> Result<(W, ExportReport), HostError> {
    let archive = PaxWriter::new(output, &options.output);
    let report = ExportReport::default();
    let mut export = Export { archive, options, observer, report, originals: HashMap::new(), held: 0 };
    for entry in Walk::new(start.clone()).order(Order::Name) {
        match entry {
            Ok(Entry { step: Step::Leave, .. }) => {}
            Ok(entry) => export.entry(&entry)?,
            Err(damage) => {
                let Problem { path, trouble } = damage.into();
                export.problem(join(&export.options.name, &path), trouble)
            }
        }
    }
    Ok((export.archive.finish()?, export.report))
}

struct Export<'a, W: Write> {
    archive: PaxWriter<W>,
    options: &'a ExportOptions,
    observer: &'a mut dyn Observer,
    report: ExportReport,
    /// Files with several names, and the paths of their bytes in the archive.
    originals: HashMap<Ino, Original>,
    /// The bytes that they take.
    held: usize,
}

struct Original {
    path: Vec<u8>,
    /// The number of names that may follow. The entry is removed with the last name, so that only files with further
    /// names use memory.
    left: u32,
}

impl<W: Write> Export<'_, W> {
    fn entry(&mut self, entry: &Entry) -> Result<(), HostError> {
        let path = join(&self.options.name, &entry.path);
        let (files, bytes) = (self.report.entries, self.report.bytes);
        self.observer.progress(&Progress { files, bytes, path: &path });
        expect_wanted(self.observer)?;
        let Entry { node, attr, .. } = entry;
        let xattrs = match self.options.xattrs {
            true => {
                let problem = |name: Option<&[u8]>, error| {
                    self.problem(path.clone(), ProblemReason::unread_xattr(name, error));
                };
                xattrs::read(node, xattrs::MOST, |_| true, problem)
            }
            false => Vec::new(),
        };
        let meta = Metadata::new(attr, &xattrs);
        if attr.kind == FileKind::Directory {
            self.archive.directory(&path, &meta)?;
        } else if let Some(original) = self.original(attr) {
            self.archive.hard_link(&path, &meta, &original)?;
        } else if self.file(node, attr, &meta, &path)? {
            self.remember(attr, path);
        } else {
            return Ok(());
        }
        self.report.entries += 1;
        Ok(())
    }

    /// Returns the path of an earlier name of this file.
    fn original(&mut self, attr: &Attr) -> Option<Vec<u8>> {
        let original = self.originals.get_mut(&attr.ino)?;
        original.left = original.left.saturating_sub(1);
        if original.left > 0 {
            return Some(original.path.clone());
        }
        let path = self.originals.remove(&attr.ino)?.path;
        self.held = self.held.saturating_sub(ORIGINAL + path.len());
        Some(path)
    }

    fn remember(&mut self, attr: &Attr, path: Vec<u8>) {
        if attr.nlink <= 1 {
            return;
        }
        if self.held + ORIGINAL + path.len() > MAX_ORIGINALS {
            self.report.unlinked += 1;
            return;
        }
        self.held += ORIGINAL + path.len();
        self.originals.insert(attr.ino, Original { path, left: attr.nlink - 1 });
    }

    /// Adds a file that is not a directory. Returns whether it is in the archive.
    fn file(
        &mut self,
        node: &Node,
        attr: &Attr,
        meta: &Metadata<'_>,
        path: &[u8],
    ) -> Result<bool, HostError> {
        match attr.kind {
            FileKind::Regular => self.regular(node, attr.size, meta, path).map(|()| true),
            FileKind::Symlink => match node.read_link() {
                Ok(target) => self.archive.symlink(path, meta, &target).map(|()| true),
                Err(error) => {
                    self.problem(path.to_vec(), ProblemReason::Volume(error));
                    Ok(false)
                }
            },
            kind => {
                let added = self.archive.node(path, meta, kind, attr.rdev)?;
                self.report.sockets += u64::from(!added);
                Ok(added)
            }
        }
    }

    fn regular(&mut self, node: &Node, size: u64, meta: &Metadata<'_>, path: &[u8]) -> Result<(), HostError> {
        let mut losses = Losses::default();
        let ranges = data_ranges(node, size, &mut losses);
        let (observer, report) = (&mut *self.observer, &mut self.report);
        self.archive.file(path, meta, size, &ranges, |sink: &mut dyn DataSink| {
            for range in &ranges {
                data::read(node, range.clone(), &mut losses, |chunk| {
                    report.bytes += chunk.len() as u64;
                    observer.progress(&Progress { files: report.entries, bytes: report.bytes, path });
                    expect_wanted(observer)?;
                    sink.bytes(chunk)
                })?;
            }
            Ok::<(), HostError>(())
        })?;
        for unread in losses.into_ranges() {
            self.problem(path.to_vec(), ProblemReason::Unread(unread));
        }
        Ok(())
    }

    fn problem(&mut self, path: Vec<u8>, trouble: ProblemReason) {
        self.report.problems += 1;
        self.observer.problem(&Problem { path, trouble });
    }
}

/// Returns the data ranges of a file, in order and separated by holes. An unmapped range counts as a hole and
/// is recorded as a loss.
fn data_ranges(node: &Node, size: u64, losses: &mut Losses) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        let (zeros, len) = match node.run(at, size - at) {
            Ok(None) => break,
            Ok(Some(run)) => (run.span().is_zeros(), run.len()),
            Err(error) => (true, losses.skip_unmapped(node, at, size, error)),
        };
        if !zeros {
            add_range(&mut ranges, at - at % ALIGN..(at + len).next_multiple_of(ALIGN).min(size));
        }
        at += len;
    }
    ranges
}

fn add_range(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    let full = ranges.len() >= MAX_RANGES;
    match ranges.last_mut() {
        Some(last) if full || range.start.saturating_sub(last.end) < MIN_HOLE => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests;
