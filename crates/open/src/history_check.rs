//! Checks the log of the provenance layer: its segments, and the indexes of the segments.
//!
//! The log concerns no other file of the volume, so damage of a segment is a note. An index is derived from
//! its segment. Removing an index that no reader uses, or that hides records, therefore loses nothing.

use std::fmt;

use obento_base::Error;
use obento_driver::{CheckObserver, CheckReport, FieldValue, Finding, RepairMode, Severity};
use obento_prov::{Damage, Entries, Header, IndexDefect, Segments};

use crate::address::PartSelector;
use crate::{Image, Volume};

/// Checks the log of a volume without other findings. A part that cannot be read was reported by the driver's check.
pub(crate) fn check_history(
    image: &Image,
    part: Option<&PartSelector>,
    repair_mode: RepairMode,
    observer: &mut dyn CheckObserver,
    report: &mut CheckReport,
) {
    let open = || image.volume_to_read(part).ok();
    let Some(defects) = open().and_then(|volume| check_log(&volume, observer)) else { return };
    // The volume that was read is closed, since the repair opens it again.
    let removable = defects.iter().filter(|(_, defect)| is_removable(*defect)).map(|(number, _)| *number);
    let removable: Vec<u32> = removable.collect();
    let repaired = match repair_mode {
        RepairMode::Nothing => Vec::new(),
        RepairMode::Safe | RepairMode::All => remove(image, part, &removable).unwrap_or_default(),
    };
    for (number, defect) in defects {
        let repaired = repaired.contains(&number);
        if is_removable(defect) {
            report.found = report.found.saturating_add(1);
            report.repaired = report.repaired.saturating_add(repaired.into());
        }
        observer.found(index_finding(number, defect, repaired));
    }
}

/// Returns whether the repair removes an index with this defect. A newer version of obento may use an index that this
/// version does not support.
fn is_removable(defect: IndexDefect) -> bool {
    !matches!(defect, IndexDefect::Version(_))
}

fn index_finding(number: u32, defect: IndexDefect, repaired: bool) -> Finding {
    let severity = if is_removable(defect) { Severity::Safe } else { Severity::Note };
    let fields = vec![("segment", FieldValue::Number(number.into()))];
    let text = format!("index of segment {number} of the provenance log: {defect}");
    Finding { code: "provenance-index", severity, fields, text, repaired }
}

/// Reports the damage of the segments, and returns the defects of the indexes. Returns `None` if the volume has no log.
fn check_log(volume: &Volume, observer: &mut dyn CheckObserver) -> Option<Vec<(u32, IndexDefect)>> {
    let segments = Segments::of(volume.vfs()).ok()??;
    let mut defects = Vec::new();
    let mut check_index = |number, segment: Option<&[u8]>| {
        if segments.indexes().binary_search(&number).is_ok()
            && let Ok(Some(defect)) = segments.index_defect(number, segment)
        {
            defects.push((number, defect));
        }
    };
    for &number in segments.numbers() {
        match segments.read(number) {
            Ok(bytes) => {
                let is_intact = check_segment(number, &bytes, observer);
                // The index of a damaged segment may contain more than the readable records.
                check_index(number, Some(&*bytes).filter(|_| is_intact));
            }
            Err(error) => observer.found(segment_finding(number, None, &error)),
        }
    }
    let orphans =
        segments.indexes().iter().filter(|number| segments.numbers().binary_search(number).is_err());
    orphans.for_each(|&number| check_index(number, None));
    Some(defects)
}

/// Reports the damage of a segment. Returns whether the segment is intact.
fn check_segment(number: u32, segment: &[u8], observer: &mut dyn CheckObserver) -> bool {
    let mut is_intact = true;
    let mut report = |block, damage: Damage| {
        is_intact = false;
        observer.found(segment_finding(number, Some(block), &damage));
    };
    if let Err(damage) = Header::decode(segment).and_then(|header| header.expect_number(number)) {
        report(0, damage);
    }
    for damage in Entries::new(segment).filter_map(Result::err) {
        if let Damage::Checksum { block } | Damage::Record { block } = damage {
            report(block, damage);
        }
    }
    is_intact
}

fn segment_finding(number: u32, block: Option<u64>, cause: &dyn fmt::Display) -> Finding {
    let mut fields = vec![("segment", FieldValue::Number(number.into()))];
    fields.extend(block.map(|block| ("block", FieldValue::Number(block))));
    let text = format!("segment {number} of the provenance log: {cause}");
    Finding { code: "provenance-segment", severity: Severity::Note, fields, text, repaired: false }
}

/// Removes the indexes of these segments. Returns the numbers of the segments whose index was removed, once
/// the removal is on stable storage.
fn remove(image: &Image, part: Option<&PartSelector>, numbers: &[u32]) -> Result<Vec<u32>, Error> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let Ok(volume) = image.volume(part) else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    if let Some(segments) = Segments::of(volume.vfs())? {
        let remove = |&number: &u32| segments.remove_index(volume.vfs(), number).is_ok();
        removed = numbers.iter().copied().filter(remove).collect();
    }
    volume.close()?;
    Ok(removed)
}
