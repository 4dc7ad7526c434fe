//! The graph language of Graphviz: boxes are versions of files, ellipses are processes.

use std::io::{self, Write};

use obento::provenance::Activity;

use super::View;
use crate::commands::prov::lineage::id;
use crate::output::Output;
use crate::report::printable;

pub(super) fn write(view: &mut View<'_>, out: &mut Output) -> io::Result<()> {
    out.write_all(b"digraph provenance {\n  rankdir=LR;\n  node [shape=box];\n")?;
    for version in view.versions.clone() {
        let label = format!("{} ({})", printable(&view.path(version)), version.number);
        writeln!(out, "  \"{}\" [label={}];", id(version), quoted(&label))?;
    }
    for (&activity, process) in &view.activities {
        let label = format!("{}[{}]", printable(process.actor.comm()), activity.pid);
        writeln!(out, "  \"{}\" [shape=ellipse, label={}];", name(activity), quoted(&label))?;
    }
    for edge in view.graph.used() {
        writeln!(out, "  \"{}\" -> \"{}\";", id(edge.version), name(edge.actor.into()))?;
    }
    for edge in view.graph.generated() {
        writeln!(out, "  \"{}\" -> \"{}\";", name(edge.actor.into()), id(edge.version))?;
    }
    out.write_all(b"}\n")
}

fn name(activity: Activity) -> String {
    format!("p{}.{}", activity.pid, activity.start)
}

/// Returns a quoted string, in which a backslash escapes a quotation mark and nothing else is special.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
