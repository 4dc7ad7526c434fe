//! `obento convert`: writes a disk image in another format.

mod overlay;
mod partition;

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use obento::Image;
use obento::base::Quantity;
use obento::block::BlockDevice;
use obento::convert::{
    ConvertFailure, ConvertFormat, ConvertOptions, ConvertStep, Converted, Qcow2Version, convert,
    convert_target, publish_unpacked,
};
use obento::driver::Access;
use obento::env::{SystemClock, SystemRandom};
use obento::host::sandbox::Rights;
use obento::host::{AccessLimit, FileId, FreshFile, HostError, Publish, interrupt};
use obento::image::{DataDescription, ImageNotice};
use obento::text::human_size;
use sha2::{Digest as _, Sha256};

use crate::cause::image::advice_on_data;
use crate::context::Context;
use crate::help::page::Page;
use crate::json::{Line, hex};
use crate::open;
use crate::output::{Outcome, Output, Stop, not_created, of_output};
use crate::parse::image_format::{ImageFormat, unknown_format};
use crate::progress::Progress;
use crate::replaced::{expect_replaceable, refuse_standard_output};
use crate::report::{Report, shell_word};

/// The page of `convert`.
pub const PAGE: Page = Page::new(&[
    ("obento convert disk.vmdk disk.qcow2", "Convert a VMware disk for QEMU"),
    ("obento convert -c --verify disk.img disk.qcow2", "Compress a disk, and compare the result"),
    ("obento convert disk.qcow2 azure.vhd", "Create a fixed VHD in whole MiB for Azure"),
    ("obento convert disk.img@2 -O android-sparse system.simg", "Convert one partition for fastboot"),
    ("obento convert rootfs.ext4 disk.img@2", "Write a file system to a partition of an existing disk"),
    (
        "obento convert --backing base.qcow2 test.qcow2",
        "Create an image that stores only changes of base.qcow2",
    ),
    (
        "obento convert --checksum disk.vdi disk.img.zst",
        "Compress a disk, and print the checksum of its contents",
    ),
])
.see_also(&["qemu-img(1)", "img2simg(1)"]);

/// Convert a disk image to another format
///
/// IN is an image in any supported format, or one of its partitions. Holes stay holes. OUT appears only when it is complete.
/// If OUT is a partition of an existing disk, IN is written to the start of this partition. The disk must have a format
/// that obento writes. A partition that is too small is refused. A partition that contains known data requires --force.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or a partition
    #[arg(value_name = "IN[@PART]")]
    source: OsString,
    /// The new image, or a partition of an existing disk
    #[arg(value_name = "OUT[@PART]")]
    out: PathBuf,
    /// Format of OUT; by default, the extension of OUT selects the format
    #[arg(short = 'O', long, value_name = "FORMAT", value_enum)]
    format: Option<ImageFormat>,
    /// Compress the clusters of a qcow2 image
    #[arg(short, long)]
    compress: bool,
    /// Version of a qcow2 image: 2 for qemu before 1.1, or 3
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=3))]
    qcow2_version: u8,
    /// Make IN the backing file of OUT, a new qcow2 image that stores only changes
    ///
    /// OUT stores the name of IN as given. Do not change IN while OUT exists. Commands open OUT only with --allow-backing.
    #[arg(long, conflicts_with_all = ["compress", "verify", "checksum"])]
    backing: bool,
    /// Overwrite OUT if it exists, or the known data in the partition
    #[arg(short, long)]
    force: bool,
    /// Compare OUT with IN before OUT gets its name; compare a partition after it was written
    #[arg(long)]
    verify: bool,
    /// Print the SHA-256 checksum of the contents of the disk
    #[arg(long)]
    checksum: bool,
    /// Do not print a summary
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let shown = args.out.as_os_str().as_bytes();
    if let Some(target) = partition::target(args, context) {
        return partition::run(args, &target, context);
    }
    refuse_standard_output("cannot convert to", &args.out)?;
    let format = args.format()?;
    context.expect_changes_allowed(shown)?;
    let out_file = FileId::of_path(&args.out);
    if !args.backing {
        args.expect_other(out_file, &args.source_file(context)?)?;
    }
    let _replaced = expect_replaceable("cannot convert to", &args.out, args.force)?;
    if args.backing {
        return overlay::run(args, format, context);
    }
    let stored = args.stored(context);
    let start = Instant::now();
    let is_early = open::prepare([&args.source], open::BareOperand::Image, Access::ReadOnly, context);
    let publish = if args.force { Publish::Replace } else { Publish::Keep };
    let unpacked = args.unpacked(format, context)?;
    let early = if is_early { Some(create(args, context)?) } else { None };
    let disk = args.disk(context)?;
    args.expect_other(out_file, &context.host_files())?;
    if let Some(unpacked) = unpacked.filter(|unpacked| unpacked.is_disk(&*disk)) {
        let converted =
            publish_unpacked(&*disk, unpacked, publish).map_err(|failure| args.failed(failure))?;
        return report(args, &(&converted).into(), None, start.elapsed(), context);
    }
    let target = match early {
        Some(target) => target,
        None => create(args, context)?,
    };
    let mut sha = Sha256::new();
    let options = ConvertOptions {
        format,
        publish,
        verify: args.verify,
        // A backing file has data that the image does not contain.
        limit: stored
            .filter(|_| !context.options().allow_backing)
            .map(|len| context.options().unpack().bytes_for(len)),
        hash: args.checksum.then(|| Box::new(|bytes: &[u8]| sha.update(bytes)) as Box<_>),
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    let mut watch = watch(disk.len(), shown, context);
    let converted = convert(&disk, target, &args.out, options, &mut watch);
    drop(watch);
    let converted = converted.map_err(|failure| args.failed(failure))?;
    if !args.quiet {
        note_padding(format, disk.len(), shown, context);
    }
    let digest = args.checksum.then(|| hex(&sha.finalize()));
    report(args, &(&converted).into(), digest.as_deref(), start.elapsed(), context)
}

/// Returns a function that shows the progress of a conversion of a disk of `len` bytes, and ends it after a signal.
fn watch<'c>(
    len: u64,
    shown: &'c [u8],
    context: &'c Context,
) -> impl FnMut(ConvertStep, u64) -> ControlFlow<()> + 'c {
    let mut bar = (ConvertStep::Write, Progress::new(context.messages(), "converting"));
    move |step, done| {
        if step != bar.0 {
            bar = (step, Progress::new(context.messages(), "comparing"));
        }
        bar.1.update(done, Some(len), shown);
        if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Prints that the disk in OUT is longer than the disk that was converted, because the format has larger units.
fn note_padding(format: ConvertFormat, len: u64, shown: &[u8], context: &Context) {
    let (unit, disks) = match format {
        ConvertFormat::Vhd => (1 << 20, "a VHD disk has whole MiB"),
        ConvertFormat::AndroidSparse => (4096, "an Android sparse image has whole blocks of 4096 bytes"),
        ConvertFormat::Vmdk => (512, "a VMDK disk has whole sectors of 512 bytes"),
        ConvertFormat::Vdi => (512, "a VDI disk has whole sectors of 512 bytes"),
        ConvertFormat::Qcow2 { .. } => (512, "a qcow2 disk has whole sectors of 512 bytes"),
        _ => return,
    };
    let padded = len.next_multiple_of(unit);
    if padded != len {
        let (padding, padded) = (Quantity::new(padded - len, "byte"), human_size(padded));
        context.note(shown, format!("{padding} of zeros were added: {disks}, here {padded}"));
    }
}

/// Creates OUT and gives up all rights except completing it. IN is open.
fn create(args: &Args, context: &Context) -> Result<FreshFile, Report> {
    let limit = args.limit(context)?;
    let target = convert_target(&args.out, limit).map_err(|error| not_created(&args.out, error))?;
    context.confine(Rights::Build { read: &[], write: &[target.folder().as_fd()] });
    Ok(target)
}

impl Args {
    /// Returns the format of OUT.
    ///
    /// # Errors
    ///
    /// The extension is unknown; an option does not apply to the format.
    fn format(&self) -> Result<ConvertFormat, Report> {
        let shown = self.out.as_os_str().as_bytes();
        let format = self.format.or_else(|| ImageFormat::of_name(&self.out));
        let format = format.ok_or_else(|| unknown_format("cannot convert to", &self.out))?;
        if format != ImageFormat::Qcow2 && (self.compress || self.qcow2_version != 3) {
            let option = if self.compress { "--compress" } else { "--qcow2-version" };
            let cause = format!("{option} requires the format qcow2");
            return Err(Report::on("cannot convert to", shown, cause));
        }
        let version = if self.qcow2_version == 2 { Qcow2Version::V2 } else { Qcow2Version::V3 };
        Ok(format.with(version, self.compress))
    }

    /// Unpacks IN to a new file if this file can become OUT without another conversion. Returns `None`
    /// otherwise.
    fn unpacked(&self, format: ConvertFormat, context: &Context) -> Result<Option<FreshFile>, Report> {
        let address = open::address(&self.source, context)?;
        let is_whole = address.part.is_none() && address.place.is_none();
        // Both options read the disk, and `--verify` must not compare a file with itself.
        if format != ConvertFormat::Raw || !is_whole || self.verify || self.checksum {
            return Ok(None);
        }
        context.prepare(&address.image, Access::ReadOnly);
        let limit = self.limit(context)?;
        context
            .unpack_to(&address.image, || convert_target(&self.out, limit))
            .map_err(|error| not_created(&self.out, error))
    }

    /// Returns the limit to the permissions of OUT: only users who may read IN, which is open, and an OUT that is replaced
    /// may read it.
    fn limit(&self, context: &Context) -> Result<AccessLimit, Report> {
        let address = open::address(&self.source, context)?;
        Ok(AccessLimit::of([&*self.out]).and(context.access_limit(&address.image)))
    }

    /// Returns the file IN, if it exists.
    fn source_file(&self, context: &Context) -> Result<Vec<FileId>, Report> {
        let address = open::address(&self.source, context)?;
        Ok(FileId::of_path(&address.image).into_iter().collect())
    }

    /// # Errors
    ///
    /// The file OUT is one of `sources`, from which IN is read.
    fn expect_other(&self, out: Option<FileId>, sources: &[FileId]) -> Result<(), Report> {
        match out.is_some_and(|out| sources.contains(&out)) {
            true => Err(Report::plain(HostError::IsSource { path: self.out.clone() })),
            false => Ok(()),
        }
    }

    /// Returns the length of the file IN, or `None` for a device. A raw image has no more data than this.
    fn stored(&self, context: &Context) -> Option<u64> {
        let address = open::address(&self.source, context).ok()?;
        std::fs::metadata(&address.image).ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
    }

    /// Returns the bytes to convert.
    fn disk(&self, context: &Context) -> Result<Arc<dyn BlockDevice>, Report> {
        let address = open::image_address(&self.source, context)?;
        if address.place.is_some() {
            let report =
                Report::on("cannot convert", self.source.as_bytes(), "this is a path inside an image");
            return Err(report.help("name the image, or a partition: disk.img@2"));
        }
        let image = context.image(&address.image)?;
        self.expect_disk(&image)?;
        match &address.part {
            None => Ok(image.device().clone()),
            part => Ok(image.part_to_overwrite(part.as_ref()).map_err(open::cannot_open)?.0),
        }
    }

    /// # Errors
    ///
    /// - Only a part of a compressed image could be unpacked.
    /// - The image has a format that is not supported.
    fn expect_disk(&self, image: &Image) -> Result<(), Report> {
        let shown = self.source.as_bytes();
        if image.notices().iter().any(ImageNotice::is_damage) {
            let report = Report::on("cannot convert", shown, "the compressed data is incomplete or damaged");
            let command = format!("obento recover {} DIR", shell_word(shown));
            return Err(report.help(format!("to copy the readable files: {command}")));
        }
        let found = DataDescription::of(&**image.device());
        let found = found.map_err(|error| Report::on("cannot read", shown, error))?;
        if found.is_undecoded() {
            let cause = format!("the format is not supported: the data looks like {}", found.like);
            let advice = advice_on_data(&found, image.path(), None);
            return Err(Report::on("cannot convert", shown, cause).help(advice));
        }
        Ok(())
    }

    fn failed(&self, failure: ConvertFailure) -> Stop {
        let shown = self.out.as_os_str().as_bytes();
        match failure {
            ConvertFailure::Convert(obento::convert::ConvertError::Stopped) => Stop::Interrupted,
            ConvertFailure::Convert(obento::convert::ConvertError::Read(error)) => {
                Report::on("cannot read", self.source.as_bytes(), error).into()
            }
            ConvertFailure::Convert(obento::convert::ConvertError::Unpack(error)) => {
                Report::on("cannot convert", self.source.as_bytes(), error).into()
            }
            ConvertFailure::Convert(error @ obento::convert::ConvertError::TooLarge(_)) => {
                Report::on("cannot convert to", shown, error).into()
            }
            ConvertFailure::Host(HostError::Exists { .. }) => {
                let report = Report::on("cannot convert to", shown, "file exists");
                report.help("use --force to overwrite it").into()
            }
            ConvertFailure::Differs => Report::on("cannot convert to", shown, ConvertFailure::Differs)
                .help("check the disk that holds OUT, and report a bug in obento if the disk is sound")
                .into(),
            ConvertFailure::Host(HostError::System { path, errno, .. }) if path == self.out => {
                let report = Report::on("cannot convert to", shown, std::io::Error::from(errno));
                of_output(report, &self.out, errno).into()
            }
            other => Report::plain(other).into(),
        }
    }
}

/// What was written, for the report.
struct Written {
    /// The length of the disk, in bytes.
    disk: u64,
    /// The length of the file or of the partition that contains it, in bytes.
    len: u64,
    /// The name of `len` in JSON.
    field: &'static str,
    /// The words between the lengths.
    words: &'static str,
}

impl From<&Converted> for Written {
    fn from(converted: &Converted) -> Self {
        let &Converted { disk, file } = converted;
        Self { disk, len: file, field: "file_size", words: "disk in a file of" }
    }
}

fn report(
    args: &Args,
    written: &Written,
    digest: Option<&str>,
    time: Duration,
    context: &Context,
) -> Outcome {
    let mut out = Output::stdout();
    let shown = args.out.as_os_str().as_bytes();
    if context.json() {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let line = Line::new("converted").bytes("path", shown).field("disk_size", written.disk);
        let line = line.field(written.field, written.len).field("milliseconds", millis);
        let line = line.field("verified", args.verify).field("sha256", digest);
        line.write(&mut out)?;
        return out.finish();
    }
    if let Some(digest) = digest {
        write!(out, "{digest}  ")?;
        out.write_name(args.source.as_bytes())?;
        writeln!(out)?;
    }
    if !args.quiet {
        out.write_name(shown)?;
        let (disk, len, words) = (human_size(written.disk), human_size(written.len), written.words);
        writeln!(out, ": {disk} {words} {len}, {:.2} s", time.as_secs_f64())?;
    }
    out.finish()
}
