//! Files that a command creates, and the files that they replace.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::host::ReplacedFile;

use crate::report::Report;

/// Checks that `out` can be created: it does not stand for standard output; it does not exist, or it is a regular file that no process changes, and `is_forced`
/// permits replacing it. Until the result is dropped, no process can begin to change this file. `cannot` begins the
/// report.
pub fn expect_replaceable(cannot: &str, out: &Path, is_forced: bool) -> Result<Option<ReplacedFile>, Report> {
    refuse_standard_output(cannot, out)?;
    let refused = |cause| Report::on(cannot, out.as_os_str().as_bytes(), cause);
    let Ok(there) = std::fs::symlink_metadata(out) else { return Ok(None) };
    if !is_forced {
        return Err(refused("file exists").help("use --force to overwrite it"));
    }
    if !there.is_file() && !there.is_symlink() {
        let report = refused("exists and is not a regular file");
        return Err(report.help("choose another name: --force overwrites only regular files"));
    }
    ReplacedFile::lock(out).map_err(Report::plain)
}

/// Fails if `out` stands for standard output. `cannot` begins the report.
pub fn refuse_standard_output(cannot: &str, out: &Path) -> Result<(), Report> {
    if out.as_os_str() != "-" {
        return Ok(());
    }
    let cause = "an image cannot be written to standard output, because its parts are not written in order";
    Err(Report::on(cannot, out.as_os_str().as_bytes(), cause)
        .help("name a file; './-' is a file with this name"))
}
