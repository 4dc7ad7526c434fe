//! W3C PROV-JSON: <https://www.w3.org/Submission/prov-json/>.
//!
//! An entity is a version of a file, an activity is a process, and an agent is a user.

use std::io::{self, Write};

use obento::provenance::{Activity, Version};
use serde_json::{Map, Value, json};

use super::{View, text};
use crate::commands::prov::lineage::id;
use crate::json::escaped;
use crate::json::hex;
use crate::output::Output;

/// The namespace of the names.
const NAMESPACE: &str = "urn:obento:provenance#";

fn entity(version: Version) -> String {
    format!("obento:f{}", id(version))
}

fn activity(activity: Activity) -> String {
    format!("obento:p{}.{}", activity.pid, activity.start)
}

fn agent(uid: u32) -> String {
    format!("obento:u{uid}")
}

/// A part of the document: records by their names. Each record is written when it is complete.
struct Section<'o> {
    out: &'o mut Output,
    /// The letter of names without a meaning.
    letter: char,
    count: usize,
}

impl<'o> Section<'o> {
    fn begin(out: &'o mut Output, name: &str, letter: char) -> io::Result<Self> {
        write!(out, ",\n\"{name}\":{{")?;
        Ok(Self { out, letter, count: 0 })
    }

    fn add(&mut self, name: &str, value: &Value) -> io::Result<()> {
        let comma = if self.count > 0 { "," } else { "" };
        self.count += 1;
        write!(self.out, "{comma}\n{}", escaped(&format!("{}:{value}", Value::from(name))))
    }

    /// Adds a relation, which needs no name.
    fn relate(&mut self, value: &Value) -> io::Result<()> {
        let name = format!("_:{}{}", self.letter, self.count);
        self.add(&name, value)
    }

    fn end(self) -> io::Result<()> {
        self.out.write_all(b"\n}")
    }
}

pub(super) fn write(view: &mut View<'_>, out: &mut Output) -> io::Result<()> {
    write!(out, "{{\"prefix\":{}", json!({ "obento": NAMESPACE }))?;
    nodes(view, out)?;
    edges(view, out)?;
    derivations(view, out)?;
    ends(view, out)?;
    out.write_all(b"\n}\n")
}

/// Writes entities, activities and agents.
fn nodes(view: &mut View<'_>, out: &mut Output) -> io::Result<()> {
    let mut section = Section::begin(out, "entity", 'e')?;
    for version in view.versions.clone() {
        let path = view.path(version);
        let mut fields = Map::new();
        fields.insert("prov:atLocation".into(), text(&path).into());
        if str::from_utf8(&path).is_err() {
            fields.insert("obento:locationHex".into(), hex(&path).into());
        }
        fields.insert("obento:version".into(), version.number.into());
        if let Some(source) = view.graph.origin(version) {
            fields.insert("obento:source".into(), text(source).into());
        }
        section.add(&entity(version), &fields.into())?;
    }
    section.end()?;
    let mut section = Section::begin(out, "activity", 'a')?;
    let mut users = std::collections::BTreeSet::new();
    for (&name, process) in &view.activities {
        users.insert(process.actor.uid);
        let program = text(process.actor.comm());
        section.add(&activity(name), &json!({ "prov:label": program, "obento:pid": name.pid }))?;
    }
    section.end()?;
    let mut section = Section::begin(out, "agent", 'u')?;
    for uid in users {
        let user = view.log.tree.user(uid).map_or_else(|| uid.to_string(), text);
        let kind = json!({ "$": "prov:Person", "type": "prov:QUALIFIED_NAME" });
        section.add(&agent(uid), &json!({ "prov:label": user, "prov:type": kind }))?;
    }
    section.end()
}

/// Writes uses, generations, attributions and associations.
fn edges(view: &mut View<'_>, out: &mut Output) -> io::Result<()> {
    let graph = view.graph;
    let mut section = Section::begin(out, "used", 'r')?;
    for edge in graph.used() {
        let value =
            json!({ "prov:activity": activity(edge.actor.into()), "prov:entity": entity(edge.version) });
        section.relate(&timed(value, edge.time, view))?;
    }
    section.end()?;
    let mut section = Section::begin(out, "wasGeneratedBy", 'g')?;
    for edge in graph.generated() {
        let value =
            json!({ "prov:entity": entity(edge.version), "prov:activity": activity(edge.actor.into()) });
        section.relate(&timed(value, edge.time, view))?;
    }
    section.end()?;
    let mut section = Section::begin(out, "wasAttributedTo", 't')?;
    for edge in graph.generated() {
        section
            .relate(&json!({ "prov:entity": entity(edge.version), "prov:agent": agent(edge.actor.uid) }))?;
    }
    section.end()?;
    let mut section = Section::begin(out, "wasAssociatedWith", 's')?;
    for (&name, process) in &view.activities {
        section
            .relate(&json!({ "prov:activity": activity(name), "prov:agent": agent(process.actor.uid) }))?;
    }
    section.end()
}

fn derivations(view: &View<'_>, out: &mut Output) -> io::Result<()> {
    let mut section = Section::begin(out, "wasDerivedFrom", 'd')?;
    for edge in view.graph.generated() {
        for source in view.graph.sources(edge.version) {
            section.relate(&json!({
                "prov:generatedEntity": entity(edge.version),
                "prov:usedEntity": entity(source),
                "prov:activity": activity(edge.actor.into()),
                "obento:certainty": "possible",
            }))?;
        }
    }
    section.end()
}

/// Writes the ends of files: the removals of their last names.
fn ends(view: &mut View<'_>, out: &mut Output) -> io::Result<()> {
    let mut section = Section::begin(out, "wasInvalidatedBy", 'i')?;
    for version in view.versions.clone() {
        let Some(&removal) = view.graph.removed(version.file) else { continue };
        if version != view.graph.newest(version.file) {
            continue;
        }
        let mut value = json!({ "prov:entity": entity(version) });
        // A process that only removes files is no activity of the graph.
        if view.activities.contains_key(&removal.actor.into()) {
            value["prov:activity"] = activity(removal.actor.into()).into();
        }
        section.relate(&timed(value, removal.time, view))?;
    }
    section.end()
}

/// Adds a time, unless it is unknown.
fn timed(mut value: Value, micros: i64, view: &mut View<'_>) -> Value {
    if micros != 0 {
        value["prov:time"] = view.time(micros).into();
    }
    value
}
