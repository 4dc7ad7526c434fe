//! The target of mkfs: its address, its device, and the data that it contains.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::address::{Address, HostEntry, PartSelector, snapshot_of};
use obento::base::Quantity;
use obento::block::{BlockDevice, Slice};
use obento::driver::Contents;
use obento::host::HostError;
use obento::image::{FormatTarget, ImageNotice, PartitionChoice, PartitionContents};
use obento::text::human_size;
use obento::{Image, OpenError, Options};

use super::args::{Args, HostOptions};
use super::{needs_size, neighbours, partition_type};
use crate::context::Context;
use crate::open::{cannot_open, needs_image};
use crate::output::not_created;
use crate::report::{Report, printable, shell_word, subject};

/// The target of mkfs.
pub struct Target {
    pub path: PathBuf,
    pub part: Option<PartSelector>,
    pub shown: Vec<u8>,
}

impl Target {
    pub fn parse(args: &Args) -> Result<Self, Report> {
        let shown = args.image.as_bytes().to_vec();
        let (path, part) = match Address::parse(&args.image) {
            Ok(Address { image, .. }) if snapshot_of(&image, &HostEntry::look_up).is_some() => {
                return Err(OpenError::ReadOnlySnapshot { image }.into());
            }
            Ok(address) if address.server().is_some() => return Err(needs_image(&address.image)),
            Ok(Address { image, part, place: None }) => (image, part),
            Ok(_) => {
                let report =
                    Report::on("cannot create a file system at", &shown, "this is a path inside an image");
                return Err(report.help("name the image, or a partition: IMAGE@PART"));
            }
            // The file does not exist yet. A name that looks like a part of an image is not created.
            Err(error) => match shown.strip_prefix(b"host:") {
                Some(path) => (Path::new(std::ffi::OsStr::from_bytes(path)).to_owned(), None),
                None if is_new_file(&args.image) => (PathBuf::from(&args.image), None),
                None => return Err(error.into()),
            },
        };
        Ok(Self { path, part, shown })
    }
}

impl Target {
    /// Returns the noun for the bytes that the file system fills.
    pub fn kind(&self) -> &'static str {
        let is_device = |meta: std::fs::Metadata| meta.file_type().is_block_device();
        match &self.part {
            Some(_) => "the partition",
            None if std::fs::metadata(&self.path).is_ok_and(is_device) => "the device",
            None => "the disk in the image file",
        }
    }
}

fn is_new_file(argument: &std::ffi::OsStr) -> bool {
    let bytes = argument.as_bytes();
    let is_plain = !bytes.is_empty() && bytes != b"-" && !bytes.contains(&b'@') && !bytes.contains(&b':');
    is_plain && std::fs::symlink_metadata(argument).is_err()
}

/// Returns the report of a target that cannot be opened or created.
pub fn cannot_create(path: &Path, error: OpenError) -> Report {
    match error {
        OpenError::Host(error @ HostError::System { .. }) => not_created(path, error),
        error => cannot_open(error),
    }
}

/// Returns the target device and its description. Fails if it contains known data, and `--force` is not given.
pub fn place(
    format_target: &FormatTarget,
    target: &Target,
    host: &HostOptions,
    args: &Args,
    context: &Context,
) -> Result<(Arc<dyn BlockDevice>, Contents), Report> {
    if target.part.is_some() && host.offset > 0 {
        let report =
            Report::on("cannot set an offset in", &target.shown, "an offset applies only to a whole image");
        return Err(report.help("omit -E offset"));
    }
    let part = if host.offset > 0 { Some(PartSelector::Offset(host.offset)) } else { target.part.clone() };
    if format_target.contents() == Contents::Zeros && part.is_none() {
        return Ok((format_target.device(), Contents::Zeros));
    }
    let image = match format_target.image(context.registry(), &Options::default()) {
        Ok(image) => image,
        Err(OpenError::Empty { .. }) => return Err(needs_size(&target.shown)),
        Err(error) => return Err(cannot_open(error)),
    };
    let (mut device, found) = image.part_to_overwrite(part.as_ref()).map_err(cannot_open)?;
    if let Some(PartSelector::Offset(offset)) = part {
        device = up_to_size(&image, device, args)?;
        let range = offset..offset.saturating_add(device.len());
        if !args.force && !args.dry_run {
            refuse_neighbours(&image, &range, (&target.shown, args))?;
        }
    }
    if !args.force && !args.dry_run {
        refuse_to_destroy(&image, &found, part.as_ref(), (&target.shown, args))?;
        refuse_old_contents(format_target, (&target.shown, args), context)?;
    }
    partition_type::note(&image, &found, &args.fs_type, &target.shown, context);
    Ok((device, format_target.contents()))
}

/// Returns the first bytes of `device`, up to SIZE, if the image has a partition table: the rest of the disk belongs to other
/// partitions.
fn up_to_size(
    image: &Image,
    device: Arc<dyn BlockDevice>,
    args: &Args,
) -> Result<Arc<dyn BlockDevice>, Report> {
    let len = args.len()?.filter(|len| *len < device.len());
    let Some(len) = len.filter(|_| image.table().is_some()) else { return Ok(device) };
    let slice = Slice::new(device, 0..len);
    Ok(Arc::new(slice.map_err(|error| Report::on("cannot open", args.image.as_bytes(), error))?))
}

/// Fails if `range`, which an offset selects, contains other partitions or a copy of the partition table.
fn refuse_neighbours(image: &Image, range: &Range<u64>, (shown, args): (&[u8], &Args)) -> Result<(), Report> {
    let Some(what) = neighbours::in_range(image, range) else { return Ok(()) };
    let cause = format!("the bytes from {} to {} contain {what}", range.start, range.end);
    let report = Report::on("cannot create a file system on", shown, cause);
    let option = args.force_option.unwrap_or("--force (-f)");
    let number = neighbours::starting_at(image, range.start);
    let number = number.map_or_else(|| "PART".to_owned(), |number| number.to_string());
    let disk = image.path().as_os_str().as_bytes();
    let partition = shell_word([disk, b"@", number.as_bytes()].concat());
    Err(report.help(format!(
        "name a partition by its number: {partition}; or use {option} to overwrite the whole range"
    )))
}

/// Fails if a file that was extended contained known data before. Its new end hides this data.
fn refuse_old_contents(
    format_target: &FormatTarget,
    (shown, args): (&[u8], &Args),
    context: &Context,
) -> Result<(), Report> {
    let image = format_target.old_image(context.registry(), &Options::default()).map_err(cannot_open)?;
    let Some(image) = image else { return Ok(()) };
    let (_, found) = image.part_to_overwrite(None).map_err(cannot_open)?;
    refuse_to_destroy(&image, &found, None, (shown, args))
}

/// Fails if the device contains a partition table or other known data.
fn refuse_to_destroy(
    image: &Image,
    found: &[PartitionChoice],
    part: Option<&PartSelector>,
    (shown, args): (&[u8], &Args),
) -> Result<(), Report> {
    let Some(what) = contents_to_destroy(image, found, part) else { return Ok(()) };
    let report = Report::on("cannot create a file system on", shown, format!("it contains {what}"));
    let option = args.force_option.unwrap_or("--force (-f)");
    Err(report.help(format!("use {option} to overwrite it")))
}

/// Describes the partition table or other known data in `part` of the image, whose contents are `found`.
pub fn contents_to_destroy(
    image: &Image,
    found: &[PartitionChoice],
    part: Option<&PartSelector>,
) -> Option<String> {
    if part.is_none() && image.notices().contains(&ImageNotice::IgnoredGpt) {
        return Some("a GPT whose protective MBR is missing".into());
    }
    if let (Some(table), None) = (image.table(), part) {
        let count = Quantity::new(table.partitions.len() as u64, "partition");
        let list: Vec<String> = found.iter().filter_map(partition).collect();
        let list = if list.is_empty() { String::new() } else { format!(": {}", list.join(", ")) };
        return Some(format!("a partition table ({}) with {count}{list}", table.scheme));
    }
    found.iter().find_map(|content| match &content.holds {
        PartitionContents::FileSystem(probe) => {
            let mut what = format!("{} {}", article(probe.fs_type), human_size(probe.len));
            if !probe.label.is_empty() {
                what = format!("{what} labelled '{}'", printable(&probe.label));
            }
            if let Some(mounted) = last_mounted(image, part) {
                what = format!("{what}, last mounted on {mounted}");
            }
            Some(what)
        }
        PartitionContents::Partitions => Some("a container of other partitions".into()),
        PartitionContents::Ambiguous(names) => Some(format!("the signatures of {}", names.join(" and "))),
        PartitionContents::Other(looks) if !looks.may_be_anything() => Some(looks.like.into()),
        PartitionContents::Other(_) | PartitionContents::Unreadable(_) => None,
    })
}

/// `2 (ext4 "root")`.
fn partition(content: &PartitionChoice) -> Option<String> {
    let number = content.partition.as_ref()?.number;
    Some(format!("{number} ({})", content.holds))
}

fn article(fs_type: &str) -> String {
    let an = match fs_type {
        // The names of these letters start with a vowel.
        "f2fs" | "hfs" | "hfsplus" | "hpfs" | "lfs" | "ntfs" | "ntfs3" | "xfs" | "xv6" => "an",
        _ if fs_type.starts_with(['a', 'e', 'i', 'o']) => "an",
        _ => "a",
    };
    format!("{an} {fs_type} file system of")
}

/// Returns the last mount point that the existing file system records.
fn last_mounted(image: &Image, part: Option<&PartSelector>) -> Option<String> {
    let info = image.volume_to_read(part).ok()?.info();
    let fact = info.facts.iter().find(|fact| fact.name == "last mounted on")?;
    Some(subject(fact.value.as_bytes()))
}
