//! `obento resize`: changes the size of a file system.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;

use obento::address::PartSelector;
use obento::base::DeviceError;
use obento::driver::{Access, ResizeError, ResizePlan, ResizeRefusal};
use obento::engine::kernel_of;
use obento::engine::starter::{self, Job};
use obento::engine::types::Type;
use obento::env::SystemClock;
use obento::host::IoBackend;
use obento::partition::{Scheme, TableEditor};
use obento::resize::{NewSize, ResizeFailure, Resized, plan_resize};
use obento::text::human_size;
use obento::{Error, Image, Options};

use crate::context::Context;
use crate::format::size::exact_size;
use crate::help::page::Page;
use crate::json::Line;
use crate::open;
use crate::options::EngineChoice;
use crate::output::{Outcome, Output};
use crate::parse::size::positive_size;
use crate::progress::Progress;
use crate::report::{Report, printable, shell_word};

/// The page of `resize`.
pub const PAGE: Page = Page::new(&[
    ("obento resize root.img 20G", "Grow the image file, and the volume in it, to 20 GiB"),
    ("obento resize disk.img@2 +4G", "Grow a partition and its volume by 4 GiB"),
    ("obento resize /dev/sdb1 --maximum", "Grow a volume to the end of its device"),
    ("obento resize root.img --minimum", "Shrink a volume and its image file as far as possible"),
    ("obento resize root.img 1T --dry-run", "Print the size that the volume would have"),
])
.see_also(&["resize2fs(8)", "growpart(1)", "qemu-img(1)"]);

/// The least number of free bytes after a partition that are reported: the usual alignment of partitions.
const FREE_TO_REPORT: u64 = 1 << 20;

/// Grow or shrink a file system
///
/// ext2, ext3, ext4, FAT and exFAT are supported. XFS and Btrfs volumes grow, if the kernel engine is installed.
/// Shrinking a volume preserves all files. The image file, or the entry of the partition, shrinks after the volume. If
/// the files do not fit, nothing is changed, and the error names a size that is large enough. An ext2, ext3 or ext4
/// volume without a journal keeps its block groups up to the last one that has a used inode.
///
/// If SIZE exceeds an image file without partitions, the file grows first. If SIZE exceeds the partition, its entry in
/// the partition table grows first, into the free space after it. The file of a disk with partitions never grows:
/// extend it before with truncate(1), or with 'qemu-img resize' in qcow2; a block device cannot be extended. An
/// interruption loses no file; 'obento check -y' repairs structures that still describe the old size.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento resize [OPTIONS] <IMAGE[@PART]> <SIZE|--maximum|--minimum>",
    group = clap::ArgGroup::new("new_size").required(true)
)]
pub struct Args {
    /// The image, or a partition
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// The new size, such as 20G, or +SIZE to add
    #[arg(value_parser = new_size, group = "new_size")]
    size: Option<NewSize>,
    /// Fill the image, or the partition up to the end of its entry in the partition table
    #[arg(long, group = "new_size")]
    maximum: bool,
    /// Shrink to the smallest size that has room for all files
    #[arg(long, group = "new_size")]
    minimum: bool,
    /// Print the size that the volume would have, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not print a summary
    #[arg(short, long)]
    quiet: bool,
}

fn new_size(text: &str) -> Result<NewSize, String> {
    match text.strip_prefix('+') {
        Some(more) => positive_size(more).map(NewSize::Add),
        None => positive_size(text).map(NewSize::Bytes),
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let shown = args.image.as_bytes();
    let address = open::image_address(&args.image, context)?;
    if address.place.is_some() {
        let report = Report::on("cannot resize", shown, "this is a path inside an image");
        return Err(report.help("name the image, or a partition: IMAGE@PART").into());
    }
    if !args.dry_run {
        context.expect_changes_allowed(shown)?;
    }
    let size = args.size();
    let access = if args.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let mut options = Options { access, ..context.options().image_options() };
    if options.io == IoBackend::Auto {
        // Most bytes are transferred once, so that a mapping costs more than it saves.
        options.io = IoBackend::Buffered;
    }
    prepare_kernels(context);
    // A process without rights cannot ask.
    let meta = std::fs::metadata(&address.image);
    let is_device = meta.is_ok_and(|meta| meta.file_type().is_block_device());
    let image = open::open_sealed(&address.image, &options, shown, context)?;
    let part = address.part.as_ref();
    let refused = |failure| args.failed(&image, part, &failure, is_device);
    let behind = if args.maximum { image.partition_to_grow(part) } else { None };
    let last = LastPartition::of(&image, part);
    let planned = plan_resize(&image, part, size).map_err(refused)?;
    let fs_type = planned.fs_type();
    let Resized { plan, partition_len } = if args.dry_run {
        planned.expected().map_err(refused)?
    } else {
        let mut bar = Progress::new(context.messages(), "resizing");
        let mut watch = |done, total| bar.update(done, Some(total), shown);
        let resized = planned.run(Arc::new(SystemClock), &mut watch);
        drop(bar);
        resized.map_err(refused)?
    };
    if args.dry_run || plan.len != plan.old_len {
        plan.notes.iter().for_each(|note| context.note(shown, note));
    }
    if let Some((number, free)) = behind.filter(|(_, free)| *free >= FREE_TO_REPORT) {
        let disk = shell_word(image.path().as_os_str().as_bytes());
        context.note(
            shown,
            format!(
                "{} of free space follows partition {number}; to use it, run 'obento part {disk} grow {number}', and this \
                 command again",
                human_size(free)
            ),
        );
    }
    if let Some(note) = last.filter(|_| !args.dry_run && plan.len < plan.old_len && !is_device) {
        note.print(&image, partition_len.unwrap_or(plan.len), context);
    }
    args.report(context, fs_type, &plan, partition_len)
}

/// The last partition of a disk in a raw file, which stays as long as it is when the partition shrinks.
struct LastPartition {
    start: u64,
    scheme: Scheme,
    /// The bytes that the partition table takes at the end of the disk.
    copy_len: u64,
}

impl LastPartition {
    /// Returns `None` if `part` is not the last partition, or if the image is not a raw file.
    fn of(image: &Image, part: Option<&PartSelector>) -> Option<Self> {
        let (number, _) = image.partition_to_grow(part)?;
        let table = image.table().filter(|_| image.layers().is_empty())?;
        let start = table.partitions.iter().find(|partition| partition.number == number)?.start;
        let mut others = table.partitions.iter().filter(|partition| partition.number != number);
        let copy_len = TableEditor::open(image.device().clone(), table).ok()?.copy_len();
        others.all(|other| other.end() <= start).then_some(Self { start, scheme: table.scheme, copy_len })
    }

    /// Prints how to shorten the file if the partition has `len` bytes now.
    fn print(&self, image: &Image, len: u64, context: &Context) {
        let (file, found) = (image.path().as_os_str().as_bytes(), image.device().len());
        let end = self.start.saturating_add(len).saturating_add(self.copy_len);
        let needed = end.next_multiple_of(FREE_TO_REPORT);
        if found < needed.saturating_add(FREE_TO_REPORT) {
            return;
        }
        let word = shell_word(file);
        let repair = match self.scheme {
            Scheme::Gpt => format!(", and then 'obento part {word} repair-backup'"),
            Scheme::Mbr => String::new(),
        };
        let size = human_size(found);
        let note = format!(
            "the file still has {size}; to shorten the file, run 'truncate -s {needed} {word}'{repair}"
        );
        context.note(file, note);
    }
}

/// Forks a process that starts a kernel for a type that Linux grows. This process gives up its rights before it knows the
/// type of the volume.
fn prepare_kernels(context: &Context) {
    if !context.gives_up_rights() || context.options().engine == Some(EngineChoice::Native) {
        return;
    }
    let kinds = context.registry().engine_types().iter().filter(|kind| kind.grown.is_some());
    let job = |kind: &'static Type| Job { kind, make: Arc::new(|_| Err("only mkfs creates volumes".into())) };
    let jobs: Vec<Job> = kinds.filter(|kind| kernel_of(kind).is_ok()).map(job).collect();
    if !jobs.is_empty() {
        // Without this process, opening the volume fails with the reason.
        let _ = starter::fork(jobs);
    }
}

impl Args {
    fn size(&self) -> NewSize {
        let filled = if self.minimum { NewSize::Minimum } else { NewSize::Maximum };
        self.size.unwrap_or(filled)
    }

    fn report(
        &self,
        context: &Context,
        fs_type: &str,
        plan: &ResizePlan,
        partition_len: Option<u64>,
    ) -> Outcome {
        let mut out = Output::stdout();
        let ResizePlan { old_len, len, .. } = plan;
        if context.json() {
            let mut line = Line::new("resized")
                .bytes("path", self.image.as_bytes())
                .field("type", fs_type)
                .field("old_size", old_len)
                .field("size", len)
                .field("dry_run", self.dry_run);
            if let Some(len) = partition_len {
                line = line.field("partition_size", len);
            }
            line.write(&mut out)?;
        } else if !self.quiet {
            let shown = printable(self.image.as_bytes());
            let size = exact_size(*len);
            let (would, did) = if len < old_len { ("shrink", "shrank") } else { ("grow", "grew") };
            match (len == old_len, self.dry_run) {
                (true, _) => {
                    writeln!(out, "{shown}: {fs_type} already has {size}")?;
                }
                (false, true) => {
                    // The tables of removed groups become free, so that a volume can shrink again.
                    let most = if self.minimum { "at most " } else { "" };
                    writeln!(
                        out,
                        "{shown}: {fs_type} would {would} from {} to {most}{size}",
                        human_size(*old_len)
                    )?;
                }
                (false, false) => {
                    writeln!(out, "{shown}: {fs_type} {did} from {} to {size}", human_size(*old_len))?;
                }
            }
        }
        out.finish()
    }
}

impl Args {
    /// Reports a failure, as [`failed`] does. A small number without a unit was probably not a number of bytes.
    fn failed(
        &self,
        image: &Image,
        part: Option<&PartSelector>,
        failure: &ResizeFailure,
        is_device: bool,
    ) -> Report {
        let report = failed(self.image.as_bytes(), image, part, failure, is_device);
        match self.size {
            Some(NewSize::Bytes(len)) if len < LEAST_VOLUME => {
                report.also(&format!("{len} is a size in bytes; add M for MiB"))
            }
            _ => report,
        }
    }
}

/// The least size in bytes that a user may mean.
const LEAST_VOLUME: u64 = 1 << 16;

/// Reports a failure. `is_device`: the image is a block device, whose length no command changes.
fn failed(
    shown: &[u8],
    image: &Image,
    part: Option<&PartSelector>,
    failure: &ResizeFailure,
    is_device: bool,
) -> Report {
    let report = Report::on("cannot resize", shown, failure);
    let cause = match failure {
        ResizeFailure::Longer { failure, .. } => &**failure,
        other => other,
    };
    match cause {
        ResizeFailure::Open(error) => error.into(),
        ResizeFailure::Unknown(_) => open::of_unknown_data(report, image, part),
        ResizeFailure::NotSupported { fs_type } => match program(fs_type) {
            Some(program) => report.help(format!("use {program} to resize {fs_type} volumes")),
            None => report.help("this command supports ext2, ext3, ext4, FAT, exFAT, XFS and Btrfs"),
        },
        ResizeFailure::Partition { .. } => {
            let disk = shell_word(image.path().as_os_str().as_bytes());
            let list = format!("run 'obento part {disk}' to list the free space");
            let extend = match image.layers() {
                [] if is_device => return report.help(list),
                [] => format!("truncate -s +SIZE {disk}"),
                _ => format!("qemu-img resize {disk} +SIZE"),
            };
            report.help(format!(
                "{list}; if the partition is the last one, extend the disk first, for example with '{extend}'"
            ))
        }
        ResizeFailure::Image { format: Some(_), .. } => {
            let file = shell_word(image.path().as_os_str().as_bytes());
            report.help(format!("run 'qemu-img resize {file} SIZE' first, and then use --maximum"))
        }
        ResizeFailure::Image { format: None, .. } => report.help("use --maximum to fill the device"),
        ResizeFailure::Resize(ResizeError::Refused(ResizeRefusal::TooLong { .. })) => report.help(
            "create a larger volume with 'obento mkfs', and copy the files to it with 'obento cp -a OLD:/. NEW:/'",
        ),
        ResizeFailure::Resize(ResizeError::Refused(ResizeRefusal::OfType { min })) => {
            report.help(format!("use a size of at least {}", human_size(*min)))
        }
        ResizeFailure::Resize(ResizeError::Refused(ResizeRefusal::TooShort { min })) => {
            let can_shrink = image.volume_to_read(part).is_ok_and(|volume| *min < volume.info().probe.len);
            match can_shrink {
                true => report.help("use --minimum, which may shrink the volume further"),
                false => report,
            }
        }
        ResizeFailure::Resize(ResizeError::Failed(Error::Device(DeviceError::OutOfBounds { .. }))) => {
            report.help(open::of_short_volume(image, part))
        }
        ResizeFailure::Damaged(_)
        | ResizeFailure::Resize(
            ResizeError::Refused(ResizeRefusal::NeedsCheck(_))
            | ResizeError::Failed(Error::Invalid | Error::Corrupt(_)),
        ) => report.help(format!("run 'obento check -y {}' first", shell_word(shown))),
        _ => report,
    }
}

/// Returns the program that resizes volumes of a type.
fn program(fs_type: &str) -> Option<&'static str> {
    Some(match fs_type {
        "f2fs" => "'resize.f2fs'",
        "ntfs" => "'ntfsresize'",
        "nilfs2" => "'nilfs-resize', on a mounted volume,",
        "reiserfs" => "'resize_reiserfs'",
        "ocfs2" => "'tunefs.ocfs2'",
        _ => return None,
    })
}
