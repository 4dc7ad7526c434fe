//! `part DISK create`: writes an empty partition table.

use std::io::Write as _;

use obento::Image;
use obento::image::{ImageNotice, PartitionContents};
use obento::partition::{CreateError, NewTable, Scheme};

use super::{Disk, list};
use crate::commands::mkfs::contents_to_destroy;
use crate::output::{Outcome, Output};
use crate::report::{Report, subject};

/// Create an empty partition table
///
/// The first MiB of the disk is overwritten, and for a GPT the last 17 KiB.
#[derive(clap::Args, Debug)]
pub struct Create {
    /// The kind of table
    #[arg(value_enum)]
    table: Kind,
    /// The UUID of the disk, or random; for an MBR, 8 hexadecimal digits
    #[arg(long, default_value = "random")]
    uuid: String,
    /// Overwrite a partition table, a file system or other data
    #[arg(short, long)]
    force: bool,
}

/// A kind of table by name.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// GUID partition table
    Gpt,
    /// Master boot record, for disks of at most 2 TiB
    #[value(aliases = ["dos", "msdos"])]
    Mbr,
}

/// Writes the table. Errors: the disk contains known data, and `--force` is not given.
pub fn create(disk: &Disk<'_>, image: &Image, args: &Create) -> Outcome {
    let scheme = match args.table {
        Kind::Gpt => Scheme::Gpt,
        Kind::Mbr => Scheme::Mbr,
    };
    let cannot =
        |cause: &dyn std::fmt::Display| Report::on("cannot create a partition table on", disk.shown, cause);
    let id = disk.disk_id(scheme, &args.uuid)?;
    if let Some(what) = to_destroy(image).filter(|_| !args.force) {
        return Err(cannot(&what).help("use --force to overwrite it").into());
    }
    NewTable::replace(&**image.device(), id).map_err(|error| match error {
        CreateError::TooSmall { .. } => cannot(&error).help("use a larger disk: truncate -s 1G disk.img"),
        CreateError::SectorSize { .. } => cannot(&error).help("use sfdisk or sgdisk for this disk"),
        CreateError::Device(_) => cannot(&error),
    })?;
    let mut out = Output::stdout();
    let size = image.device().len();
    match disk.context.json() {
        true => {
            list::table_line(disk, scheme, id, size, image.device().sector_size(), true).write(&mut out)?
        }
        false => writeln!(out, "{}: empty {scheme} {id}", subject(disk.shown))?,
    }
    out.finish()
}

/// Returns the description of the contents of an image, if they are known.
pub(super) fn contents(image: &Image) -> Option<String> {
    contents_to_destroy(image, &image.probe_all(), None)
}

/// Returns the description of the data that a new table destroys.
fn to_destroy(image: &Image) -> Option<String> {
    let is_table =
        |notice: &&ImageNotice| matches!(notice, ImageNotice::NoTable(_) | ImageNotice::IgnoredGpt);
    if image.notices().iter().any(|notice| is_table(&notice)) {
        return Some("it contains a partition table with errors".into());
    }
    let found = image.probe_all();
    // What cannot be read may be anything.
    if image.table().is_none()
        && found.iter().any(|content| matches!(content.holds, PartitionContents::Unreadable(_)))
    {
        return Some("its contents cannot be read".into());
    }
    contents_to_destroy(image, &found, None).map(|what| format!("it contains {what}"))
}
