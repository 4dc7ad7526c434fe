//! The records of a volume, segment by segment, and the damage among them.

use std::cell::Cell;
use std::rc::Rc;

use obento::Volume;
use obento::provenance::{Damage, Entries, Entry, Graph, Header, Segments};

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
    is_damage_reported: Cell<bool>,
}

impl Log {
    /// Finds the log of a volume.
    pub fn open(location: &Location, _: &Context) -> Result<Self, Report> {
        let shown = location.prefix.strip_suffix(b":").unwrap_or(&location.prefix).to_vec();
        let failed = |error| Report::on("cannot read the history of", &shown, error);
        let found = Segments::of(location.volume.vfs()).map_err(failed)?;
        let segments = found.ok_or_else(|| {
            let report = Report::on("cannot show the history of", &shown, "the volume has no log");
            report.help("mount the volume with -o provenance to record its history")
        })?;
        Ok(Self { volume: location.volume.clone(), segments, shown, is_damage_reported: Cell::new(false) })
    }

    /// Returns the address of the volume, for messages.
    pub fn shown(&self) -> &[u8] {
        &self.shown
    }

    /// Passes all records to `visit`, the oldest first. Damage is reported, and the rest of the log is read.
    pub fn each(&self, context: &Context, mut visit: impl FnMut(&Entry<'_>) -> Outcome) -> Outcome {
        for &number in self.segments.numbers() {
            go_on()?;
            let bytes = match self.segments.read(number) {
                Ok(bytes) => bytes,
                Err(error) => {
                    context.warn(&self.damage(number, error));
                    continue;
                }
            };
            for entry in Entries::new(&bytes) {
                match entry {
                    Ok(entry) => visit(&entry)?,
                    Err(damage) => self.report(number, damage, context),
                }
            }
        }
        self.is_damage_reported.set(true);
        Ok(())
    }

    fn report(&self, number: u32, damage: Damage, context: &Context) {
        if !self.is_damage_reported.get() {
            context.warn(&self.damage(number, damage));
        }
    }

    fn damage(&self, number: u32, cause: impl std::fmt::Display) -> Report {
        let what = format!("cannot read all of segment {number} of the history of");
        Report::on(&what, &self.shown, cause)
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

    /// Returns the sequence number of the oldest record that is not compacted.
    pub fn first_sequence(&self) -> u64 {
        let oldest = self.segments.numbers().iter().find(|&&number| number != 0);
        let header = oldest.and_then(|&number| Header::decode(&self.segments.read(number).ok()?).ok());
        header.map_or(1, |header| header.first)
    }
}
