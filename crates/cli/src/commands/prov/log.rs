//! The records of a volume, segment by segment, and the damage among them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use obento::Volume;
use obento::provenance::{DIRECTORY, Damage, Entries, Entry, Graph, IndexedLog, Segments};

use super::tree::{MountedTree, Tree};
use crate::cause::Cause;
use crate::commands::mount::history::History;
use crate::context::Context;
use crate::open::Location;
use crate::output::go_on;
use crate::output::{Outcome, Stop};
use crate::report::Report;

/// The log of a volume.
pub struct Log {
    pub tree: Rc<Tree>,
    segments: Rc<Segments>,
    /// The address of the volume, without a path.
    shown: Vec<u8>,
    /// The segments and blocks whose damage is reported.
    reported: RefCell<BTreeSet<(u32, String)>>,
}

impl Log {
    /// Finds the log of a volume in an image.
    pub fn open(location: &Location) -> Result<Self, Report> {
        let shown = location.prefix.strip_suffix(b":").unwrap_or(&location.prefix).to_vec();
        let segments = segments(&location.volume, &shown)?;
        Ok(Self::new(Tree::Image(location.volume.clone()), segments, shown))
    }

    /// Uses the log that the server of the mount at `directory` sent.
    pub fn of_mount(directory: &Path, history: History) -> Result<Self, Report> {
        let shown = directory.as_os_str().as_bytes().to_vec();
        let failed = |error: &dyn Cause| Report::on("cannot read the history of", &shown, error);
        let History { root, volume_id, files } = history;
        let volume = Volume::in_memory();
        let at = format!("/{DIRECTORY}");
        volume.create_dir(&at).map_err(|error| failed(&error))?;
        for (name, contents) in files.into_iter().filter(|(name, _)| !name.contains('/')) {
            volume.write(format!("{at}/{name}"), contents).map_err(|error| failed(&error))?;
        }
        let segments = segments(&volume, &shown)?;
        let tree = MountedTree::new(directory, root, volume_id, segments.clone());
        let tree = tree.map_err(|error| failed(&error))?;
        Ok(Self::new(Tree::Mount(Box::new(tree)), segments, shown))
    }

    fn new(tree: Tree, segments: Rc<Segments>, shown: Vec<u8>) -> Self {
        Self { tree: Rc::new(tree), segments, shown, reported: RefCell::default() }
    }

    /// Returns the address of the volume, for messages.
    pub fn shown(&self) -> &[u8] {
        &self.shown
    }

    /// Passes all records to `visit`, the oldest first. Damage is reported, and the rest of the log is read.
    fn each(&self, context: &Context, mut visit: impl FnMut(&Entry<'_>) -> Outcome) -> Outcome {
        for &number in self.segments.numbers() {
            go_on()?;
            match self.segments.read(number) {
                Ok(bytes) => self.each_of(number, &bytes, context, &mut visit)?,
                Err(error) => self.report(number, error, context),
            }
        }
        Ok(())
    }

    /// Passes the records of a segment to `visit`.
    pub fn each_of(
        &self,
        number: u32,
        segment: &[u8],
        context: &Context,
        visit: &mut dyn FnMut(&Entry<'_>) -> Outcome,
    ) -> Outcome {
        for entry in Entries::new(segment) {
            match entry {
                Ok(entry) => visit(&entry)?,
                Err(damage) => self.report(number, damage, context),
            }
        }
        Ok(())
    }

    /// Reports why a part of a segment cannot be read, once.
    pub fn report(&self, number: u32, cause: impl Cause, context: &Context) {
        if self.reported.borrow_mut().insert((number, cause.to_string())) {
            let what = format!("cannot read all of segment {number} of the history of");
            context.warn(&Report::on(&what, &self.shown, cause));
        }
    }

    /// Reports the damage that a query found.
    pub fn report_all(&self, damage: Vec<(u32, Damage)>, context: &Context) {
        damage.into_iter().for_each(|(number, damage)| self.report(number, damage, context));
    }

    /// Returns the log with its indexes.
    pub fn indexed(&self, context: &Context) -> IndexedLog {
        let mut failed = |number, error| self.report(number, error, context);
        let mut indexed = IndexedLog::open(&self.segments, &mut failed);
        self.report_all(indexed.take_damage(), context);
        indexed
    }

    /// Returns the graph of all records.
    pub fn graph(&self, context: &Context) -> Result<Graph, Stop> {
        let mut graph = Graph::new();
        self.each(context, |entry| {
            graph.add(entry);
            Ok(())
        })?;
        Ok(graph)
    }
}

/// Finds the segments of the log of `volume`, which messages call `shown`.
fn segments(volume: &Volume, shown: &[u8]) -> Result<Rc<Segments>, Report> {
    let found = Segments::of(volume.vfs());
    let found = found.map_err(|error| Report::on("cannot read the history of", shown, error))?;
    found.map(Rc::new).ok_or_else(|| {
        let report = Report::on("cannot show the history of", shown, "the volume has no provenance log");
        report.help("mount the volume with -o provenance to record its history")
    })
}
