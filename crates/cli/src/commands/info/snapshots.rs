//! The snapshots of a qcow2 image.

use std::io::{self, Write};

use obento::base::Timestamp;
use obento::host::Snapshot;
use obento::text::human_size;

use super::fact;
use crate::format::time::{Clock, TimeStyle};
use crate::json::Line;
use crate::report::printable;

/// Writes one line per snapshot. Times have the zone of `clock`.
pub fn write_text(out: &mut impl Write, snapshots: &[Snapshot], clock: &mut Clock) -> io::Result<()> {
    for snapshot in snapshots {
        let mut text = format!("\"{}\"", printable(snapshot.name.as_bytes()));
        text = format!("{text}, {}", clock.text(&TimeStyle::LongIso, time(snapshot)));
        if let Some(len) = snapshot.disk_len {
            text = format!("{text}, disk of {}", human_size(len));
        }
        if snapshot.vm_len > 0 {
            text = format!("{text}, with {} of virtual machine state", human_size(snapshot.vm_len));
        }
        fact(out, 2, &format!("snapshot {}", printable(snapshot.id.as_bytes())), &text)?;
    }
    Ok(())
}

/// Writes one object per snapshot.
pub fn write_json(out: &mut impl Write, shown: &[u8], snapshots: &[Snapshot]) -> io::Result<()> {
    for snapshot in snapshots {
        Line::new("snapshot")
            .bytes("path", shown)
            .bytes("id", snapshot.id.as_bytes())
            .bytes("name", snapshot.name.as_bytes())
            .time("time", time(snapshot))
            .field("size", snapshot.disk_len)
            .field("vm_state_size", snapshot.vm_len)
            .write(out)?;
    }
    Ok(())
}

fn time(snapshot: &Snapshot) -> Timestamp {
    Timestamp::new(snapshot.seconds.into(), snapshot.nanoseconds.min(999_999_999))
}
