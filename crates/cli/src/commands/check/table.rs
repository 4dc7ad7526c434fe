//! Checking the partition table of an image.

use std::io::Write as _;

use obento::image::ImageNotice;
use obento::partition::{TableNotice, check_table};

use super::{Args, FindingPrinter, Opened, state, status_of};
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Stop};
use crate::report::{printable, shell_word};

/// Returns whether the check reports the notice as a finding of the table.
pub fn is_finding(notice: &ImageNotice) -> bool {
    matches!(notice, ImageNotice::Table(notice) if notice.is_damage())
}

/// Checks the partition table, if the image has one, and sets the exit code. Prints a summary only if there are
/// findings.
pub fn check(args: &Args, opened: &Opened, context: &Context) -> Outcome {
    let mut printer = FindingPrinter::new(args, context);
    let report = check_table(&opened.image, &mut printer);
    let FindingPrinter { mut out, bar, failed, .. } = printer;
    drop(bar);
    context.set_status(status_of(&report));
    if let Some(error) = failed {
        return Err(Stop::Output(error));
    }
    let table = opened.image.table().filter(|_| report.found > 0);
    if let Some(table) = table.filter(|_| context.json()) {
        Line::new("checked")
            .bytes("path", disk(opened))
            .field("table", table.scheme.to_string().to_lowercase())
            .field("clean", report.is_clean())
            .field("found", report.found)
            .field("mended", report.repaired)
            .field("left", report.left())
            .write(&mut out)?;
    } else if table.is_some() && !args.quiet {
        let state = state(&report, opened.repair_mode);
        writeln!(out, "{}: partition table: {state}", printable(disk(opened)))?;
    }
    out.finish()?;
    let is_backup = |notice: &TableNotice| matches!(notice, TableNotice::Backup(_));
    if table.is_some_and(|table| table.notices.iter().any(is_backup)) && !args.quiet {
        let command = format!("obento part {} repair-backup", shell_word(disk(opened)));
        context.note(disk(opened), format!("'{command}' writes both copies of the GPT again"));
    }
    Ok(())
}

/// Returns the name of the disk in messages.
fn disk(opened: &Opened) -> &[u8] {
    use std::os::unix::ffi::OsStrExt as _;
    opened.image.path().as_os_str().as_bytes()
}
