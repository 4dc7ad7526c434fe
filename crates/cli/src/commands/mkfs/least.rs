//! The least size of a new volume, for the report of a size that is too small.

use obento::driver::{Format, FormatOptions};
use obento::text::human_size;

use super::Args;
use crate::report::Report;

/// The largest least size that is searched, in KiB.
const MOST: u64 = 1 << 20;

/// Adds the least size with these options to `report`, and the unit of a number without a unit.
pub fn with_least(report: Report, format: &dyn Format, options: &FormatOptions, args: &Args) -> Report {
    let report = match least(format, options) {
        Some(kib) => report.also(&format!("the least size with these options is {}", human_size(kib << 10))),
        None => report,
    };
    let is_number = args.size.as_ref().is_some_and(|size| size.bytes().all(|byte| byte.is_ascii_digit()));
    match (&args.size, &args.block_size) {
        (Some(size), None) if is_number => report.also(&format!("{size} counts KiB; write {size}M for MiB")),
        _ => report,
    }
}

/// Returns the least number of KiB that `format` accepts with these options. The device may be of any length.
fn least(format: &dyn Format, options: &FormatOptions) -> Option<u64> {
    let options = FormatOptions { len: None, ..options.clone() };
    let fits = |kib: u64| format.plan(kib << 10, &options).is_ok();
    let (mut below, mut least) = (0, 1);
    while !fits(least) {
        (below, least) = (least, least * 2);
        if least > MOST {
            return None;
        }
    }
    while least - below > 1 {
        let middle = below + (least - below) / 2;
        if fits(middle) { least = middle } else { below = middle }
    }
    Some(least)
}
