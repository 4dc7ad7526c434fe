//! Files of the host that the command line names as inputs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use obento::host::open_input;

use crate::report::Report;

/// Opens `path` for reading. A FIFO of another user is refused, because it could stop the command for ever. `action`,
/// such as `cannot read`, is for the report.
pub fn open(action: &str, path: &Path) -> Result<File, Report> {
    open_input(path).map_err(|error| match error.errno() {
        Some(errno) => {
            let shown = path.as_os_str().as_bytes();
            let report = Report::on(action, shown, io::Error::from(errno));
            match crate::open::partition_hint(shown) {
                Some(hint) => report.help(hint),
                None => report,
            }
        }
        None => Report::plain(error),
    })
}

/// Returns the bytes of the file `path`, or of standard input for `-`.
pub fn read(action: &str, path: &OsStr) -> Result<Vec<u8>, Report> {
    let mut bytes = Vec::new();
    let read = match path == "-" {
        true => io::stdin().lock().read_to_end(&mut bytes),
        false => open(action, Path::new(path))?.read_to_end(&mut bytes),
    };
    read.map(|_| bytes).map_err(|error| Report::on(action, path.as_bytes(), error))
}
