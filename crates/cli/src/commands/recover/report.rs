//! The list of the files that could not be recovered.

mod lost;
mod out;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write as _};
use std::ops::Range;

use obento::Volume;
use obento::base::{Attr, Error, FileKind, Ino, Quantity};
use obento::copy::{Admission, CopyReport, Observer, Problem, ProblemReason};
use obento::host::interrupt;

use self::lost::{LostEntry, NOT_APPLIED, replace_attributes};
pub use self::out::Out;
use super::bad::reason;
use super::shared::SharedBlocks;
use super::verify::{Verifier, damaged_inode, has_entries};
use crate::context::Context;
use crate::json::Line;
use crate::output::Outcome;
use crate::progress::Progress;
use crate::report::{printable, sentence};

/// The volume that is copied.
enum Stage {
    /// The damaged volume.
    Damaged,
    /// A repaired copy. The repair may have kept an inode of arbitrary bytes.
    Repaired(Volume),
}

/// The place of the files that a repair finds without a name.
#[derive(Clone, Debug)]
pub struct UnnamedPlace {
    /// The start of their paths in messages.
    pub prefix: Vec<u8>,
    /// The description of the place.
    pub shown: &'static str,
}

/// Reports on a recovery while it runs.
pub struct Recovery<'c> {
    context: &'c Context,
    /// Whether a map says which ranges can be read.
    has_map: bool,
    progress: Progress<'c>,
    out: Out,
    /// The first failure of writing the list.
    failed: io::Result<()>,
    damaged: u64,
    /// The entries that could not be read, by path. They are printed at the end, since a repair may restore some of them.
    lost_entries: BTreeMap<Vec<u8>, LostEntry>,
    lost: u64,
    /// Directories of which only a part could be read.
    directories: u64,
    others: u64,
    /// Whether the volume has errors, although all that it contains could be read.
    has_errors: bool,
    /// The number of files without a name.
    unnamed: u64,
    unnamed_files: HashSet<Ino>,
    /// The number of symbolic links without a name.
    unnamed_others: u64,
    unnamed_place: Option<UnnamedPlace>,
    /// Regular and other files that were copied from a repaired copy after the others.
    late_files: u64,
    late_others: u64,
    stage: Stage,
    verifier: Option<Verifier>,
    shared: Option<SharedBlocks>,
    /// Doubtful and damaged entries that are reported.
    doubtful: HashSet<Vec<u8>>,
    /// The path of the root, and whether the attributes of its inode are those that the volume had.
    root: Option<Vec<u8>>,
    is_root_believable: bool,
    /// Whether files are copied, and not only read.
    is_copy: bool,
    /// Device nodes, FIFOs, sockets, and files at the place of unnamed files, on the damaged volume.
    seen: HashSet<Vec<u8>>,
}

impl<'c> Recovery<'c> {
    /// Creates the report of a copy, or of a list.
    pub fn new(out: Out, has_map: bool, is_copy: bool, context: &'c Context) -> Self {
        let progress = Progress::new(context.messages(), "recovering");
        Self {
            context,
            has_map,
            progress,
            out,
            failed: Ok(()),
            damaged: 0,
            lost_entries: BTreeMap::new(),
            lost: 0,
            directories: 0,
            others: 0,
            has_errors: false,
            unnamed: 0,
            unnamed_files: HashSet::new(),
            unnamed_others: 0,
            unnamed_place: None,
            late_files: 0,
            late_others: 0,
            stage: Stage::Damaged,
            verifier: None,
            shared: None,
            doubtful: HashSet::new(),
            root: None,
            is_root_believable: true,
            is_copy,
            seen: HashSet::new(),
        }
    }

    /// Reports entries with wrong checksums as damaged. `root` is the path of the root, and `place` is the place of the
    /// files that a repair finds.
    pub fn verify(&mut self, verifier: Option<Verifier>, root: Vec<u8>, place: UnnamedPlace) {
        self.verifier = verifier;
        self.seen.insert(root.clone());
        self.root = Some(root);
        self.unnamed_place = Some(place);
    }

    /// Reports that the inode of the root is not usable. The attributes of the root that a repair creates are not applied.
    pub fn lose_root(&mut self, error: Error) {
        let reason = error.to_string();
        let reason = if self.is_copy { reason + NOT_APPLIED } else { reason };
        self.is_root_believable = false;
        let root = self.root.clone().unwrap_or_default();
        let ino = damaged_inode(&error);
        self.lost_entries.entry(root).or_insert(LostEntry { reason, ino, restored: None });
    }

    /// Reports an inode that cannot be read, unless it was reported with a name.
    pub fn lose_inode(&mut self, ino: Ino, path: Vec<u8>, error: Error) {
        if self.lost_entries.values().all(|entry| entry.ino != Some(ino)) {
            let reason = error.to_string();
            self.lost_entries.insert(path, LostEntry { reason, ino: Some(ino), restored: None });
        }
    }

    /// Reports files of `volume` that use the same blocks.
    pub fn find_shared_blocks(&mut self, volume: &Volume) {
        self.shared = SharedBlocks::new(volume);
    }

    /// Begins the copy of a repaired volume.
    pub fn begin_repaired(&mut self, volume: Volume) {
        self.stage = Stage::Repaired(volume);
    }

    /// Returns whether the copy of a repaired volume has begun.
    pub fn is_repaired(&self) -> bool {
        matches!(self.stage, Stage::Repaired(_))
    }

    /// Records that a check has found errors on the volume.
    pub fn add_errors(&mut self) {
        self.has_errors = true;
    }

    /// Adds the files that were copied from a repaired copy after the others.
    pub fn add_late(&mut self, written: &CopyReport) {
        self.late_files += written.written.files;
        self.late_others += written.written.others;
    }

    fn is_at_unnamed_place(&self, path: &[u8]) -> bool {
        self.unnamed_place.as_ref().is_some_and(|place| path.starts_with(&place.prefix))
    }

    /// Decides on an entry of a repaired copy.
    fn admit_repaired(&mut self, path: &[u8], attr: &mut Attr) -> Admission {
        if self.root.as_deref() == Some(path) && !self.is_root_believable {
            replace_attributes(attr);
            return Admission::ContentsOnly;
        }
        if self.seen.contains(path) {
            return Admission::Full;
        }
        let is_special = is_special(attr.kind);
        // A repair may have restored the checksum of arbitrary bytes.
        let admission = match self.doubt(path, attr) {
            Admission::Full => Admission::Distrusted,
            admission => admission,
        };
        self.claim(path, attr, admission);
        // A new directory lost+found replaces one whose inode is lost.
        let is_same = |entry: &LostEntry| entry.ino.is_none_or(|ino| ino == attr.ino);
        if let Some(entry) = self.lost_entries.get_mut(path).filter(|entry| is_same(entry)) {
            // Arbitrary bytes become an empty file or directory, a device node or a FIFO.
            let has_contents = match (attr.kind, &self.stage) {
                (FileKind::Regular, _) => attr.size > 0 && attr.blocks > 0,
                (FileKind::Directory, Stage::Repaired(volume)) => has_entries(volume, attr.ino),
                _ => !is_special,
            };
            if !has_contents {
                return Admission::Omitted;
            }
            entry.restored = Some(attr.kind);
            return admission;
        }
        if is_special {
            self.problem(&Problem { path: path.to_vec(), trouble: ProblemReason::SpecialOmitted(attr.kind) });
            return Admission::Omitted;
        }
        if self.is_at_unnamed_place(path) {
            match attr.kind {
                // A file with several names is one file.
                FileKind::Regular => self.unnamed += u64::from(self.unnamed_files.insert(attr.ino)),
                FileKind::Directory => {}
                _ => self.unnamed_others += 1,
            }
        }
        admission
    }

    /// Prints the summary, and sets the exit code.
    pub fn finish(mut self, copied: &CopyReport, target: &[u8]) -> Outcome {
        let tree = &copied.written;
        let files = tree.files + self.late_files;
        let late = self.late_files + self.late_others;
        let recovered = tree.files + late + tree.directories + tree.others;
        self.write_lost();
        drop(self.progress);
        self.failed?;
        let Self { damaged, lost, directories, others, unnamed, unnamed_others, .. } = self;
        if self.context.json() {
            let line = Line::new("recovered").bytes("path", target).field("files", files);
            line.field("damaged", damaged)
                .field("unnamed", unnamed)
                .field("lost", lost)
                .field("damaged_directories", directories)
                .field("others", others)
                .write(&mut self.out)?;
        } else {
            let also = |count: u64, noun, state| match count {
                0 => String::new(),
                count => format!("; {}{state}", Quantity::new(count, noun)),
            };
            let (recovered, lost) = (Quantity::new(files, "file"), Quantity::new(lost, "entry"));
            let directories = also(directories, "directory", " damaged");
            let others = also(others, "other problem", "");
            self.context.note(
                target,
                format!("{recovered} recovered, {damaged} of them damaged; {lost} lost{directories}{others}"),
            );
            if self.has_errors && files == 0 {
                let note = "the volume has errors, and a repair of a copy found no files";
                self.context.note(target, note);
            }
            if unnamed + unnamed_others > 0 {
                let place = self.unnamed_place.map_or("", |place| place.shown);
                let counts = [(unnamed, "file"), (unnamed_others, "symbolic link")];
                let counts = counts.into_iter().filter(|(count, _)| *count > 0);
                let counts: Vec<_> =
                    counts.map(|(count, noun)| Quantity::new(count, noun).to_string()).collect();
                let verb = if unnamed + unnamed_others == 1 { "is" } else { "are" };
                let counts = counts.join(" and ");
                self.context.note(target, format!("{counts} without a name {verb} stored {place}"));
            }
        }
        let is_incomplete = damaged + lost + directories + others + unnamed + unnamed_others > 0;
        if is_incomplete || self.has_errors && tree.files + late == 0 {
            self.context.raise(if recovered == 0 { 2 } else { 1 });
        }
        Ok(self.out.flush()?)
    }

    /// Fails if the list cannot be written.
    pub fn expect_written(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.failed, Ok(()))
    }

    /// Prints the summary of a list of `files` files that were read and not copied, and sets the exit code.
    pub fn finish_list(mut self, files: u64, source: &[u8]) -> Outcome {
        self.write_lost();
        drop(self.progress);
        self.failed?;
        let Self { damaged, lost, directories, others, .. } = self;
        if self.context.json() {
            let line = Line::new("listed").bytes("path", source).field("files", files);
            line.field("damaged", damaged)
                .field("lost", lost)
                .field("damaged_directories", directories)
                .field("others", others)
                .write(&mut self.out)?;
        } else {
            let (files, damaged) = (Quantity::new(files, "file"), Quantity::new(damaged, "damaged file"));
            let lost = Quantity::new(lost, "unreadable entry");
            let directories = match directories {
                0 => String::new(),
                count => format!(", {}", Quantity::new(count, "damaged directory")),
            };
            self.context
                .note(source, format!("{files} read, and nothing copied: {damaged}, {lost}{directories}"));
        }
        if damaged + lost + directories + others > 0 {
            self.context.raise(1);
        }
        Ok(self.out.flush()?)
    }

    fn line(&mut self, problem: &Problem) {
        let reason = match &problem.trouble {
            ProblemReason::Unread(unread) if self.has_map => reason(&unread.error),
            ProblemReason::Volume(error) | ProblemReason::Listing(error) if self.has_map => reason(error),
            ProblemReason::Unread(unread) => unread.error.to_string(),
            trouble => trouble.to_string(),
        };
        let (state, range) = match &problem.trouble {
            ProblemReason::Unread(unread) => {
                // A file may have several bad ranges.
                self.damaged += u64::from(self.doubtful.insert(problem.path.clone()));
                ("damaged", Some(unread.range.clone()))
            }
            ProblemReason::Listing(_) => {
                self.directories += u64::from(self.doubtful.insert(problem.path.clone()));
                ("damaged", None)
            }
            ProblemReason::Volume(error) => {
                let lost = LostEntry { reason, ino: damaged_inode(error), restored: None };
                self.lost_entries.entry(problem.path.clone()).or_insert(lost);
                return;
            }
            ProblemReason::Xattrs(_) | ProblemReason::Xattr { .. } => {
                self.others += 1;
                ("attributes", None)
            }
            _ => {
                self.others += 1;
                ("unwritten", None)
            }
        };
        self.write_line(state, range, &problem.path, &reason);
    }

    /// Prints a line of the list, unless an earlier one could not be written.
    fn write_line(&mut self, state: &str, range: Option<Range<u64>>, path: &[u8], reason: &str) {
        if self.failed.is_ok() {
            self.failed = self.try_line(state, range, path, reason);
        }
    }

    fn try_line(
        &mut self,
        state: &str,
        range: Option<Range<u64>>,
        path: &[u8],
        reason: &str,
    ) -> io::Result<()> {
        if self.context.json() {
            let line = Line::new("unrecovered").bytes("path", path).field("state", state);
            let line = match &range {
                Some(range) => line.field("start", range.start).field("end", range.end),
                None => line,
            };
            return line.field("reason", reason).write(&mut self.out);
        }
        let range = range.map_or_else(|| "-".to_owned(), |range| format!("{}-{}", range.start, range.end));
        writeln!(self.out, "{state}\t{range}\t{}\t{}", printable(path), sentence(reason))
    }
}

fn is_special(kind: FileKind) -> bool {
    kind.is_device() || matches!(kind, FileKind::Fifo | FileKind::Socket)
}

impl Observer for Recovery<'_> {
    fn progress(&mut self, progress: &obento::copy::Progress<'_>) {
        self.progress.update(progress.bytes, None, progress.path);
    }

    fn is_stopped(&self) -> bool {
        interrupt::is_requested()
    }

    fn admit(&mut self, path: &[u8], attr: &mut Attr) -> Admission {
        if self.is_repaired() {
            return self.admit_repaired(path, attr);
        }
        let is_special = is_special(attr.kind);
        if is_special || self.is_at_unnamed_place(path) {
            self.seen.insert(path.to_vec());
        }
        let admission = self.doubt(path, attr);
        self.claim(path, attr, admission);
        if self.root.as_deref() == Some(path) {
            self.is_root_believable = admission != Admission::ContentsOnly;
        }
        match admission {
            Admission::Full => Admission::Full,
            _ if is_special => Admission::Omitted,
            admission => admission,
        }
    }

    fn problem(&mut self, problem: &Problem) {
        self.line(problem);
    }
}
