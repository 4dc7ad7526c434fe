//! The time that builds write.

use std::os::unix::ffi::OsStrExt;

use crate::report::Report;

/// The last second of the year 9999. Super blocks store at most 40 bits, or fewer.
const LAST_SECOND: i64 = 253_402_300_799;

/// Returns the value of `SOURCE_DATE_EPOCH` in seconds, if it is set.
pub fn source_date_epoch() -> Result<Option<i64>, Report> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let secs =
        text.to_str().and_then(|text| text.parse().ok()).filter(|secs| (0..=LAST_SECOND).contains(secs));
    let cause = "not a number of seconds since 1970, up to the year 9999";
    secs.map(Some).ok_or_else(|| Report::on("invalid SOURCE_DATE_EPOCH", text.as_bytes(), cause))
}
