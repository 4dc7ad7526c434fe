//! `part DISK create`: writes an empty partition table.

use std::io::Write as _;
use std::path::Path;

use obento::Image;
use obento::block::BlockDevice;
use obento::host::{FreshFile, HostError, Publish};
use obento::image::{ImageNotice, PartitionContents};
use obento::partition::{CreateError, DiskId, NewTable, Scheme};

use super::{Disk, list};
use crate::cause::Cause;
use crate::commands::mkfs::contents_to_destroy;
use crate::output::{Outcome, Output, not_created};
use crate::parse::size::positive_size;
use crate::report::{Report, printable, shell_word};

/// The sector size of a new file.
const SECTOR: u64 = 512;

/// Create an empty partition table
///
/// The first MiB and the last 16.5 KiB of the disk are overwritten. With --size, the disk is a new file.
#[derive(clap::Args, Debug)]
pub struct Create {
    /// The kind of table
    #[arg(value_enum)]
    table: Kind,
    /// Create DISK, a sparse file of this size
    #[arg(short, long, value_name = "SIZE", value_parser = positive_size, conflicts_with = "force")]
    pub size: Option<u64>,
    /// The UUID of the disk, random or clear (zeros); for an MBR, 8 hexadecimal digits
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
    /// Master boot record, whose partitions start and end in the first 2 TiB
    #[value(aliases = ["dos", "msdos"])]
    Mbr,
}

impl Create {
    fn scheme(&self) -> Scheme {
        match self.table {
            Kind::Gpt => Scheme::Gpt,
            Kind::Mbr => Scheme::Mbr,
        }
    }
}

fn cannot(disk: &Disk<'_>, cause: impl Cause) -> Report {
    Report::on("cannot create a partition table on", disk.shown, cause)
}

/// Creates the disk `path` with an empty table. Fails if a file with the name exists.
pub fn create_disk(disk: &Disk<'_>, path: &Path, size: u64, args: &Create) -> Outcome {
    let id = disk.disk_id(args.scheme(), &args.uuid)?;
    let size = size.checked_next_multiple_of(SECTOR).unwrap_or(size);
    let fresh = FreshFile::new(path, size).map_err(|error| not_created(path, error))?;
    write(disk, fresh.device(), id)?;
    fresh.publish(Publish::Keep).map_err(|error| match error {
        HostError::Exists { .. } => cannot(disk, "file exists").help("omit --size to change the file"),
        error => Report::plain(error),
    })?;
    show(disk, args.scheme(), id, size, u32::try_from(SECTOR).unwrap_or(0))
}

/// Writes the table. Fails if the disk contains known data, and `--force` is not given.
pub fn create(disk: &Disk<'_>, image: &Image, args: &Create) -> Outcome {
    let id = disk.disk_id(args.scheme(), &args.uuid)?;
    if image.notices().contains(&ImageNotice::IgnoredGpt) && !args.force {
        let help = format!(
            "run 'obento part {} repair-backup' to write the MBR again; --force destroys the GPT",
            shell_word(disk.shown)
        );
        return Err(cannot(disk, "it contains a GPT whose protective MBR is missing").help(help).into());
    }
    if let Some(what) = to_destroy(image).filter(|_| !args.force) {
        return Err(cannot(disk, what).help("use --force to overwrite it").into());
    }
    write(disk, &**image.device(), id)?;
    show(disk, args.scheme(), id, image.device().len(), image.device().sector_size())
}

fn write(disk: &Disk<'_>, device: &dyn BlockDevice, id: DiskId) -> Result<(), Report> {
    NewTable::replace(device, id).map_err(|error| match error {
        CreateError::TooSmall { .. } => cannot(disk, error).help("use a larger disk, such as --size 1G"),
        CreateError::SectorSize { .. } => cannot(disk, error).help("use sfdisk or sgdisk for this disk"),
        CreateError::Device(_) => cannot(disk, error),
    })
}

fn show(disk: &Disk<'_>, scheme: Scheme, id: DiskId, size: u64, sector_size: u32) -> Outcome {
    let mut out = Output::stdout();
    match disk.context.json() {
        true => list::table_line(disk, scheme, id, size, sector_size, true).write(&mut out)?,
        false => writeln!(out, "{}: empty {scheme} {id}", printable(disk.shown))?,
    }
    out.finish()
}

/// Returns the description of the contents of an image, if they are known.
pub(super) fn contents(image: &Image) -> Option<String> {
    contents_to_destroy(image, &image.probe_all(), None)
}

/// Returns the description of the data that a new table destroys.
fn to_destroy(image: &Image) -> Option<String> {
    let is_table = |notice: &&ImageNotice| matches!(notice, ImageNotice::NoTable(_));
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
