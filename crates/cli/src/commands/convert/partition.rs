//! OUT is a partition of an existing disk: its bytes are overwritten.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use obento::address::{Address, HostEntry, PartSelector, snapshot_of};
use obento::base::DeviceError;
use obento::convert::{OverwriteFailure, OverwriteOptions, PartitionState, overwrite};
use obento::driver::Access;
use obento::host::{AccessLimit, FileId};
use obento::image::{ImageFile, PartitionChoice, PartitionContents};
use obento::text::human_size;
use obento::{Error, Image, Options};
use rustix::fs::{major, minor};
use sha2::{Digest as _, Sha256};

use super::{Args, Written};
use crate::cause::Cause;
use crate::commands::mkfs::{contents_to_destroy, neighbours};
use crate::context::Context;
use crate::json::hex;
use crate::open;
use crate::output::{Outcome, Stop};
use crate::parse::image_format::ImageFormat;
use crate::report::{Report, printable, shell_word, subject};

/// The least number of unused bytes behind a volume that are reported.
const FREE_TO_REPORT: u64 = 1 << 20;

/// Returns the partition of an existing image that OUT names, or `None` if OUT names a file.
pub fn target(args: &Args, context: &Context) -> Option<Address> {
    let look_up = |path: &Path| context.look_up(path);
    if look_up(&args.out) != HostEntry::Missing {
        return None;
    }
    let address = Address::parse_with(args.out.as_os_str(), &look_up).ok()?;
    let Address { image, part: Some(part), place: None } = &address else { return None };
    let is_snapshot = snapshot_of(image, &look_up).is_some();
    // `disk@monday.img` is the usual name of a file.
    let is_file = !matches!(part, PartSelector::Number(_)) && ImageFormat::of_name(&args.out).is_some();
    (!is_file && !is_snapshot).then_some(address)
}

/// Writes IN over the partition `target`.
pub fn run(args: &Args, target: &Address, context: &Context) -> Outcome {
    let shown = args.out.as_os_str().as_bytes();
    expect_raw(args)?;
    context.expect_changes_allowed(shown)?;
    let readers = AccessLimit::of([&*target.image]);
    let stored = args.stored(context).filter(|_| !context.options().allow_backing);
    let start = Instant::now();
    let options = Options { access: Access::ReadWrite, ..context.options().image_options() };
    let file = ImageFile::open(&target.image, &options).map_err(open::cannot_open)?;
    // The files of the open disk, even if another file has its path by now.
    let files: Vec<FileId> = file.host_files().flat_map(files_of).collect();
    expect_another_disk(args, &files, context)?;
    let is_early = open::prepare([&args.source], open::BareOperand::Image, Access::ReadOnly, context);
    if is_early && !file.opens_others() {
        context.seal();
    }
    let disk = args.disk(context)?;
    expect_other_files(args, &files, context)?;
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    context.seal();
    open::report_notices(shown, &image, context.messages());
    let part = target.part.as_ref();
    let (partition, found) = image.part_to_overwrite(part).map_err(open::cannot_open)?;
    expect_partition(args, target, &image, &found)?;
    let sizes = (disk.len(), partition.len());
    if sizes.0 > sizes.1 {
        let failure = OverwriteFailure::TooSmall { disk: sizes.0, partition: sizes.1 };
        return Err(failed(args, target, context, (failure, PartitionState::Unchanged)));
    }
    if let Some(what) = contents_to_destroy(&image, &found, part).filter(|_| !args.force) {
        let report = Report::on("cannot convert to", shown, format!("it contains {what}"));
        return Err(report.help("use --force (-f) to overwrite it").into());
    }
    note_readers(args, target, readers, context)?;
    let mut sha = Sha256::new();
    let options = OverwriteOptions {
        verify: args.verify,
        limit: stored.map(|len| context.options().unpack().bytes_for(len)),
        hash: args.checksum.then(|| Box::new(|bytes: &[u8]| sha.update(bytes)) as Box<_>),
    };
    context.stop_between_steps();
    let mut watch = super::watch(disk.len(), shown, context);
    let written = overwrite(&disk, &partition, options, &mut watch);
    drop(watch);
    written.map_err(|failure| failed(args, target, context, failure))?;
    note_unused_space(args, &image, part, sizes, context);
    let digest = args.checksum.then(|| hex(&sha.finalize()));
    let (disk, len) = sizes;
    let written = Written { disk, len, field: "partition_size", words: "in a partition of" };
    super::report(args, &written, digest.as_deref(), start.elapsed(), context)
}

/// # Errors
///
/// An option selects another format than raw.
fn expect_raw(args: &Args) -> Result<(), Report> {
    let option = match () {
        () if args.backing => "--backing",
        () if args.compress => "--compress",
        () if args.qcow2_version != 3 => "--qcow2-version",
        () if args.format.is_some_and(|format| format != ImageFormat::Raw) => "--format",
        () => return Ok(()),
    };
    let cause = format!("a partition contains raw bytes, so that {option} is not available");
    Err(Report::on("cannot convert to", args.out.as_os_str().as_bytes(), cause)
        .help(format!("omit {option}")))
}

/// Returns `disk`, and the identity of the file behind a loop device.
/// Source: Linux `drivers/block/loop.c`, `loop_attr_backing_file_show`.
fn files_of(disk: FileId) -> Vec<FileId> {
    let device = format!("/sys/dev/block/{}:{}", major(disk.dev), minor(disk.dev));
    // The second name is that of a partition of a loop device.
    let names = ["loop/backing_file", "../loop/backing_file"].iter().filter(|_| disk.ino == 0);
    let read = names.filter_map(|name| std::fs::read(Path::new(&device).join(name)).ok());
    let below = read.filter_map(|name| {
        FileId::of_path(Path::new(OsStr::from_bytes(name.strip_suffix(b"\n").unwrap_or(&name))))
    });
    below.chain([disk]).collect()
}

/// # Errors
///
/// IN is a part of the same disk, which is opened only once.
fn expect_another_disk(args: &Args, files: &[FileId], context: &Context) -> Result<(), Report> {
    let source = open::address(&args.source, context)?;
    let is_same = source.server().is_none()
        && FileId::of_path(&source.image).is_some_and(|source| files.contains(&source));
    match is_same {
        true => Err(same_disk(args, "the source is on the same disk")),
        false => Ok(()),
    }
}

/// # Errors
///
/// The disk is a backing file of IN, which is open.
fn expect_other_files(args: &Args, files: &[FileId], context: &Context) -> Result<(), Report> {
    let is_same = context.host_files().iter().any(|source| files.contains(source));
    match is_same {
        true => Err(same_disk(args, "the source reads this disk as a backing file")),
        false => Ok(()),
    }
}

fn same_disk(args: &Args, what: &str) -> Report {
    let cause = format!("{what}, which cannot be read and changed at the same time");
    Report::on("cannot convert to", args.out.as_os_str().as_bytes(), cause)
        .help("convert IN to a new file first")
}

/// # Errors
///
/// OUT is an offset. Its bytes end at the end of the disk, behind later partitions and the backup of a GPT.
fn expect_partition(
    args: &Args,
    target: &Address,
    image: &Image,
    found: &[PartitionChoice],
) -> Result<(), Report> {
    if found.iter().any(|found| found.partition.is_some()) {
        return Ok(());
    }
    let number = match target.part {
        Some(PartSelector::Offset(offset)) => neighbours::starting_at(image, offset),
        _ => None,
    };
    let number = number.map_or_else(|| "PART".to_owned(), |number| number.to_string());
    let disk = printable(target.image.as_os_str().as_bytes());
    let cause = "an offset selects all bytes up to the end of the disk, and not a partition";
    Err(Report::on("cannot convert to", args.out.as_os_str().as_bytes(), cause)
        .help(format!("name a partition by its number: {disk}@{number}")))
}

/// Prints a note if users who may not read IN may read the disk, whose permissions are `disk`.
fn note_readers(args: &Args, target: &Address, disk: AccessLimit, context: &Context) -> Result<(), Report> {
    let source = open::address(&args.source, context)?;
    if source.server().is_none() && disk.and(context.access_limit(&source.image)) != disk && !args.quiet {
        let text = format!(
            "more users may read this disk than {}: remove permissions with chmod(1)",
            subject(source.image.as_os_str().as_bytes())
        );
        context.note(target.image.as_os_str().as_bytes(), text);
    }
    Ok(())
}

/// Names the command that makes a new volume as long as its partition.
fn note_unused_space(
    args: &Args,
    image: &Image,
    part: Option<&PartSelector>,
    (disk, partition): (u64, u64),
    context: &Context,
) {
    let unused = partition.saturating_sub(disk);
    if unused < FREE_TO_REPORT || args.quiet {
        return;
    }
    let Ok((_, found)) = image.part_to_overwrite(part) else { return };
    let grows = |contents: &PartitionContents| match contents {
        PartitionContents::FileSystem(probe) => {
            context.registry().find(probe.fs_type).is_some_and(|driver| driver.resize().is_some())
        }
        _ => false,
    };
    if found.iter().any(|found| grows(&found.holds)) {
        let shown = args.out.as_os_str().as_bytes();
        let (unused, name) = (human_size(unused), shell_word(shown));
        context
            .note(shown, format!("{unused} are unused; 'obento resize {name} --maximum' grows the volume"));
    }
}

fn failed(
    args: &Args,
    target: &Address,
    context: &Context,
    (failure, state): (OverwriteFailure, PartitionState),
) -> Stop {
    let shown = args.out.as_os_str().as_bytes();
    let state = match state {
        PartitionState::Unchanged => "the partition was not changed",
        PartitionState::Incomplete => "the partition is incomplete: run the command again",
        PartitionState::StartsWithZeros => {
            "the partition is incomplete, and its first MiB is zeros: run the command again"
        }
        PartitionState::Written => "the partition was written completely, but not compared with the source",
    };
    let report = |cause: &dyn Cause| Report::on("cannot convert to", shown, cause);
    match failure {
        OverwriteFailure::TooSmall { disk, partition } => {
            let cause = format!(
                "the source has {} ({disk} bytes), and the partition only {} ({partition} bytes)",
                human_size(disk),
                human_size(partition)
            );
            let (name, image) = (printable(shown), shell_word(target.image.as_os_str().as_bytes()));
            let grow = match &target.part {
                Some(PartSelector::Number(number)) => format!("'obento part {image} grow {number}'"),
                _ => format!("'obento part {image} grow N'"),
            };
            let source = shell_word(args.source.as_bytes());
            report(&cause)
                .help(format!(
                    "grow the partition with {grow}, or shrink a file system in the source with 'obento resize {source} \
                     --minimum', before it is written to {name}"
                ))
                .into()
        }
        OverwriteFailure::Stopped => {
            context.note(shown, state);
            Stop::Interrupted
        }
        OverwriteFailure::Read(error) => {
            Report::on("cannot read", args.source.as_bytes(), error).help(state).into()
        }
        OverwriteFailure::Partition(Error::Device(DeviceError::ReadOnly)) => {
            report(&"the image cannot be changed").into()
        }
        OverwriteFailure::Unpack(error) => {
            Report::on("cannot convert", args.source.as_bytes(), error).also(state).into()
        }
        OverwriteFailure::Differs => report(&failure)
            .help("check the disk of the partition, and report a bug in obento if the disk is sound")
            .into(),
        OverwriteFailure::Partition(error) => report(&error).help(state).into(),
    }
}
