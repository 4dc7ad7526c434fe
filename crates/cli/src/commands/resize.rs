//! `obento resize`: changes the size of a file system.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use obento::{
    Access, Error, Image, ImageFile, NewSize, Options, ResizeError, ResizeFailure, ResizePlan, ResizeRefusal,
    SystemClock, human_size, plan_resize,
};

use crate::context::Context;
use crate::json::Line;
use crate::open;
use crate::output::{Outcome, Output};
use crate::parse::size::positive_size;
use crate::progress::Progress;
use crate::report::{Report, printable, subject};

/// Grow a file system
///
/// Supported are ext2, ext3 and ext4. If SIZE exceeds the image file, the file grows first. If SIZE exceeds the partition, its entry in
/// the partition table grows first, into the free space after it. An interruption leaves a volume of the old or the new size;
/// 'obento check -y' repairs structures that still describe the other one.
#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("new_size").required(true))]
pub struct Args {
    /// The image, or a partition
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// The new size, such as 20G, or +SIZE to add
    #[arg(value_parser = new_size, group = "new_size")]
    size: Option<NewSize>,
    /// Fill the image or the partition
    #[arg(long, group = "new_size")]
    maximum: bool,
    /// Shrink to the minimum; not supported yet
    #[arg(long, group = "new_size", hide = true)]
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
    let address = open::address(&args.image, context)?;
    if address.place.is_some() {
        let report = Report::on("cannot resize", shown, "this is a path inside an image");
        return Err(report.help("name the image, or a partition: IMAGE@PART").into());
    }
    if !args.dry_run {
        context.expect_changes_allowed(shown)?;
    }
    let size = args.size(shown)?;
    let access = if args.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let options = Options { access, ..open::options(context.options()) };
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    if !file.opens_others() {
        context.seal();
    }
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    context.seal();
    image.notices().iter().for_each(|notice| context.note(shown, notice));
    let refused = |failure| failed(shown, &image, &failure);
    let planned = plan_resize(&image, address.part.as_ref(), size).map_err(refused)?;
    let fs_type = planned.fs_type();
    let partition_len = planned.partition_len();
    let plan = if args.dry_run {
        planned.plan().clone()
    } else {
        let mut bar = Progress::new(context, "resizing");
        let mut watch = |done, total| bar.update(done, Some(total), shown);
        let plan = planned.run(Arc::new(SystemClock), &mut watch);
        drop(bar);
        plan.map_err(refused)?
    };
    if args.dry_run || plan.len != plan.old_len {
        plan.notes.iter().for_each(|note| context.note(shown, note));
    }
    args.report(context, fs_type, &plan, partition_len)
}

impl Args {
    fn size(&self, shown: &[u8]) -> Result<NewSize, Report> {
        if self.minimum {
            let report = Report::on("cannot resize", shown, "shrinking is not supported yet");
            return Err(report.help(SHRINK));
        }
        Ok(self.size.unwrap_or(NewSize::Maximum))
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
            let shown = subject(self.image.as_bytes());
            let size = human_size(*len);
            match (len == old_len, self.dry_run) {
                (true, _) => {
                    writeln!(out, "{shown}: {fs_type} already has {size} ({len} bytes)")?;
                }
                (false, true) => {
                    writeln!(
                        out,
                        "{shown}: {fs_type} would grow from {} to {size} ({len} bytes)",
                        human_size(*old_len)
                    )?;
                }
                (false, false) => {
                    writeln!(
                        out,
                        "{shown}: {fs_type} grew from {} to {size} ({len} bytes)",
                        human_size(*old_len)
                    )?;
                }
            }
        }
        out.finish()
    }
}

const SHRINK: &str = "'resize2fs' shrinks ext2, ext3 and ext4 volumes";

fn failed(shown: &[u8], image: &Image, failure: &ResizeFailure) -> Report {
    let report = Report::on("cannot resize", shown, failure);
    match failure {
        ResizeFailure::NotSupported { fs_type } => match program(fs_type) {
            Some(program) => report.help(format!("{program} resizes volumes of this type")),
            None => report.help("supported are ext2, ext3 and ext4"),
        },
        ResizeFailure::Partition { .. } => {
            let disk = printable(image.path().as_os_str().as_bytes());
            report.help(format!("run 'obento part {disk}' to list the free space"))
        }
        ResizeFailure::Image { format: Some(_), .. } => {
            report.help("'qemu-img resize' makes the disk longer; then use --maximum")
        }
        ResizeFailure::Image { format: None, .. } => report.help("use --maximum to fill it"),
        ResizeFailure::Resize(ResizeError::Refused(ResizeRefusal::Shrink { .. })) => report.help(SHRINK),
        ResizeFailure::Resize(
            ResizeError::Refused(ResizeRefusal::NeedsCheck(_))
            | ResizeError::Failed(Error::Invalid | Error::Corrupt(_)),
        ) => report.help(format!("run 'obento check -y {}' first", printable(shown))),
        _ => report,
    }
}

/// Returns the program that resizes volumes of a type.
fn program(fs_type: &str) -> Option<&'static str> {
    Some(match fs_type {
        "xfs" => "'xfs_growfs', on a mounted volume,",
        "btrfs" => "'btrfs filesystem resize', on a mounted volume,",
        "f2fs" => "'resize.f2fs'",
        "ntfs" => "'ntfsresize'",
        "nilfs2" => "'nilfs-resize', on a mounted volume,",
        "reiserfs" => "'resize_reiserfs'",
        "ocfs2" => "'tunefs.ocfs2'",
        "vfat" => "'fatresize'",
        _ => return None,
    })
}
