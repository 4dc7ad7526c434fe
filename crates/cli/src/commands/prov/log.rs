//! The records of a volume, segment by segment, and the damage among them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use obento::Volume;
use obento::provenance::{Damage, Entries, Entry, Graph, IndexedLog, Segments};

use crate::context::Context;
use crate::open::Location;
use crate::output::go_on;
use crate::output::{Outcome, Stop};
use crate::report::Report;

/// The log of a volume.
pub struct Log {
    pub volume: Rc<Volume>,
    segments: Segments,
    /// The address of the volume, without a path.
    shown: Vec<u8>,
    /// The segments and blocks whose damage is reported.
    reported: RefCell<BTreeSet<(u32, String)>>,
}

impl Log {
    /// Finds the log of a volume.
    pub fn open(location: &Location, _: &Context) -> Result<Self, Report> {
        let shown = location.prefix.strip_suffix(b":").unwrap_or(&location.prefix).to_vec();
        let failed = |error| Report::on("cannot read the history of", &shown, error);
        let found = Segments::of(location.volume.vfs()).map_err(failed)?;
        let segments = found.ok_or_else(|| {
            let report = Report::on("cannot show the history of", &shown, "the volume has no provenance log");
            report.help("mount the volume with -o provenance to record its history")
        })?;
        Ok(Self { volume: location.volume.clone(), segments, shown, reported: RefCell::default() })
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
    pub fn report(&self, number: u32, cause: impl std::fmt::Display, context: &Context) {
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
