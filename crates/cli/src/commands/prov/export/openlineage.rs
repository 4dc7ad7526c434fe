//! OpenLineage events: one run event for each process that wrote a file. Source: the OpenLineage specification 2-0-2,
//! <https://openlineage.io/spec/2-0-2/OpenLineage.json>.

use std::io::{self, Write};

use obento::provenance::{Activity, Edge};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{View, text};
use crate::commands::prov::lineage::id;
use crate::json::escaped;
use crate::output::Output;

const SCHEMA: &str = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";
const VERSION_SCHEMA: &str = "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet";
const PRODUCER: &str = env!("CARGO_PKG_REPOSITORY");

pub(super) fn write(view: &mut View<'_>, out: &mut Output) -> io::Result<()> {
    let namespace = view.namespace();
    let writers = view.activities.iter().filter(|(_, process)| !process.generated.is_empty());
    let mut order: Vec<(u64, Activity)> =
        writers.map(|(&name, process)| (last(&process.generated).0, name)).collect();
    order.sort_unstable();
    for (_, name) in order {
        let Some(process) = view.activities.get(&name) else { continue };
        let (used, generated) = (process.used.clone(), process.generated.clone());
        let job = text(process.actor.comm());
        let time = last(&generated).1;
        // A process may have used many files: each data set is written at once.
        write!(out, "{{\"eventTime\":{},\"eventType\":\"COMPLETE\"", json!(view.time(time)))?;
        datasets("inputs", &used, &namespace, view, out)?;
        let job = json!({ "namespace": namespace, "name": job });
        write!(out, ",\"job\":{}", escaped(&job.to_string()))?;
        datasets("outputs", &generated, &namespace, view, out)?;
        let run = json!({ "runId": run_id(&namespace, name) });
        let (producer, schema) = (json!(PRODUCER), json!(SCHEMA));
        writeln!(out, ",\"producer\":{producer},\"run\":{run},\"schemaURL\":{schema}}}")?;
    }
    Ok(())
}

/// Returns the sequence number and the time of the last generation.
fn last(generated: &[&Edge]) -> (u64, i64) {
    let sequence = generated.iter().map(|edge| edge.last).max();
    let time = generated.iter().map(|edge| edge.time).max();
    (sequence.unwrap_or(0), time.unwrap_or(0))
}

/// Writes the field `name` with the versions of `edges`.
fn datasets(
    name: &str,
    edges: &[&Edge],
    namespace: &str,
    view: &mut View<'_>,
    out: &mut Output,
) -> io::Result<()> {
    write!(out, ",\"{name}\":[")?;
    for (index, edge) in edges.iter().enumerate() {
        let version = json!({
            "_producer": PRODUCER,
            "_schemaURL": VERSION_SCHEMA,
            "datasetVersion": id(edge.version),
        });
        let path = text(&view.path(edge.version));
        let value = json!({ "namespace": namespace, "name": path, "facets": { "version": version } });
        write!(out, "{}{}", if index > 0 { "," } else { "" }, escaped(&value.to_string()))?;
    }
    out.write_all(b"]")
}

/// Returns a UUID of version 8 (RFC 9562, section 5.8), which is the same in each export.
fn run_id(namespace: &str, activity: Activity) -> String {
    let digest = Sha256::digest(format!("{namespace} {} {}", activity.pid, activity.start));
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    obento::text::uuid_text(bytes)
}
