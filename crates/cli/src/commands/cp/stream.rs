//! Copies to standard output, a device or a FIFO: the contents of files, one after another.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use obento::copy::{CopyError, CopyOptions, HostTarget, copy_to_writer};
use obento::host::{FileId, HostError, open_existing_output};
use rustix::fs::FileType;

use super::watch::CopyDisplay;
use super::{incomplete, total};
use crate::context::Context;
use crate::open::Found;
use crate::output::{Outcome, not_written};
use crate::report::Report;

/// Opens `target` if it is a device or FIFO, which is written to and not replaced, as with cp(1). The file that was
/// examined is opened, even if another user replaces it. Fails if it cannot be opened, is a FIFO of another user, or
/// is one of `spared`, from which the source is read.
pub fn open(target: &HostTarget, spared: &[FileId]) -> Result<Option<File>, Report> {
    let Some((dir, name)) = target.parent().filter(|_| !target.is_directory()) else { return Ok(None) };
    let Ok(handle) = dir.handle(name) else { return Ok(None) };
    let failed = |error| not_written(target.path(), error);
    let stat = rustix::fs::fstat(&handle);
    let stat = stat.map_err(|errno| failed(HostError::system("examine", target.path(), errno)))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::CharacterDevice | FileType::BlockDevice | FileType::Fifo) {
        return Ok(None);
    }
    let file = open_existing_output(&handle, target.path()).map_err(failed)?;
    if spared.contains(&FileId::of_file(&file, target.path()).map_err(Report::plain)?) {
        return Err(Report::plain(HostError::IsSource { path: target.path().into() }));
    }
    Ok(Some(file))
}

/// Writes the contents of `found` to standard output, or to `file`, which is its path.
pub fn write(
    found: &[Found],
    (out, file): (impl Write, Option<&Path>),
    options: &CopyOptions,
    context: &Context,
) -> Outcome {
    let failed = |error: io::Error| match file {
        Some(path) if error.kind() != io::ErrorKind::BrokenPipe => {
            context.warn(&Report::on("cannot write to", path.as_os_str().as_bytes(), error));
            Ok(())
        }
        _ => Err(error.into()),
    };
    let limit = options.tree.max_bytes;
    let mut out = Limited { out, left: limit, is_full: false };
    let mut watch = CopyDisplay::new(context, total(found), None);
    for Found { location, node } in found {
        let shown = location.shown();
        match copy_to_writer(node, &shown, &mut out, &mut watch) {
            Ok(_) => {}
            Err(CopyError::Output(_)) if out.is_full => {
                let path = OsString::from_vec(shown).into();
                context.warn(&incomplete(HostError::Limit { path, limit }));
                break;
            }
            Err(CopyError::Output(error)) => return failed(error),
            Err(error) => context.warn(&Report::on("cannot copy", shown, error)),
        }
    }
    drop(watch);
    out.flush().or_else(failed)
}

/// A writer with a limit of bytes.
struct Limited<W> {
    out: W,
    left: u64,
    /// Whether the limit was exceeded.
    is_full: bool,
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            self.is_full = true;
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let written = self.out.write(&bytes[..room])?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
