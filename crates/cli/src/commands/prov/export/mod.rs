//! The whole graph in formats of other programs.

mod dot;
mod openlineage;
mod prov_json;

use std::collections::{BTreeMap, BTreeSet};

use obento::base::Timestamp;
use obento::provenance::{Activity, Actor, Edge, Graph, Version};

use super::args::ExportFormat;
use super::log::Log;
use super::paths::Paths;
use super::select::timestamp;
use crate::context::Context;
use crate::format::time::{Clock, TimeStyle};
use crate::output::{Outcome, Output};

/// Writes the graph.
pub fn run(format: ExportFormat, log: &Log, context: &Context) -> Outcome {
    let graph = log.graph(context)?;
    let mut view = View::new(&graph, log);
    let mut out = Output::stdout();
    match format {
        ExportFormat::ProvJson => prov_json::write(&mut view, &mut out)?,
        ExportFormat::Openlineage => openlineage::write(&mut view, &mut out)?,
        ExportFormat::Dot => dot::write(&mut view, &mut out)?,
    }
    out.finish()
}

/// The graph by versions and activities.
struct View<'a> {
    graph: &'a Graph,
    log: &'a Log,
    paths: Paths,
    versions: BTreeSet<Version>,
    activities: BTreeMap<Activity, Process<'a>>,
    clock: Clock,
}

/// An activity with its uses and generations.
struct Process<'a> {
    /// The process, with the last name of its program.
    actor: Actor,
    used: Vec<&'a Edge>,
    generated: Vec<&'a Edge>,
}

impl<'a> View<'a> {
    fn new(graph: &'a Graph, log: &'a Log) -> Self {
        let mut activities: BTreeMap<Activity, Process<'a>> = BTreeMap::new();
        let mut versions = BTreeSet::new();
        let edges = graph.used().iter().map(|edge| (edge, false));
        for (edge, is_generation) in edges.chain(graph.generated().into_iter().map(|edge| (edge, true))) {
            versions.insert(edge.version);
            let process = activities.entry(edge.actor.into()).or_insert_with(|| Process {
                actor: edge.actor,
                used: Vec::new(),
                generated: Vec::new(),
            });
            let list = if is_generation { &mut process.generated } else { &mut process.used };
            list.push(edge);
            process.actor = edge.actor;
        }
        let clock = Clock::new(jiff::tz::TimeZone::UTC, Timestamp::EPOCH);
        Self { graph, log, paths: Paths::new(&log.tree), versions, activities, clock }
    }

    fn path(&mut self, version: Version) -> Vec<u8> {
        self.paths.of_file(&mut self.graph, version.file)
    }

    /// Returns a time as XML Schema and RFC 3339 write it.
    fn time(&mut self, micros: i64) -> String {
        let text = self.clock.text(&TimeStyle::FullIso, timestamp(micros));
        // Six digits after the second: readers in Python accept no more.
        text.replacen(' ', "T", 1).chars().take(26).chain(['Z']).collect()
    }

    /// Returns the namespace of the volume: its UUID.
    fn namespace(&self) -> String {
        format!("obento:{}", self.log.tree.id().unwrap_or_else(|| "volume".into()))
    }
}

/// Returns a path as text, with a replacement for bytes that are not UTF-8.
fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
