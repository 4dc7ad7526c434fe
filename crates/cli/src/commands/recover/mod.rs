//! `obento recover`: copies everything that can be read out of a damaged volume, and lists what cannot.

mod bad;
mod report;

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::sandbox::Rights;
use obento::{
    Address, Checksums, CopyError, CopyOptions, CopySource, FileSelector, HostError, HostTarget, Image,
    ImageFile, Options, Symlinks, TargetIs, TreeOptions, Trust, copy_out_to,
};

use self::bad::{BadRanges, Map};
use self::report::Recovery;
use crate::commands::cp;
use crate::context::Context;
use crate::open::{self, options};
use crate::output::{Outcome, Output};
use crate::report::{Report, notice};

/// Copy everything that can be read out of a damaged volume
///
/// Errors do not end the copy, and wrong checksums of metadata are ignored. Bytes that cannot be read are zeros in the
/// copy. Each incomplete file has a line with these fields, separated by tabs: state (lost, damaged, attributes or
/// unwritten), range of bytes or -, path, reason.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or a directory in it
    #[arg(value_name = "IMAGE[:/PATH]")]
    source: OsString,
    /// The directory for the files, which must be empty or not exist
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Treat a range as unreadable unless FILE, a map file of ddrescue, lists the range as finished
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Write the list to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Do not trust the image: copy no set-user-ID bits, capabilities and device nodes
    #[arg(long)]
    untrusted: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let address = open::address(&args.source, context)?;
    let map = args.map.as_deref().map(read_map).transpose()?;
    expect_empty(&args.target)?;
    let options = Options { checksums: Checksums::Ignore, ..options(context.options()) };
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    let target = HostTarget::open(&args.target).map_err(Report::plain)?;
    let out = match &args.report {
        Some(path) => report::Out::File(crate::output::empty_output(path)?),
        None => report::Out::Standard(Output::stdout()),
    };
    let copy = CopyOptions {
        target: TargetIs::Copy,
        tree: TreeOptions {
            trust: if args.untrusted { Trust::Untrusted } else { Trust::Full },
            ..TreeOptions::default()
        },
        spared: file.host_files().collect(),
        ..CopyOptions::archive()
    };
    // The kernel engine and backing files need rights, as for other commands.
    if open::prepare([&args.source], open::BareOperand::Image, obento::Access::ReadOnly, context)
        && let Some(base) = target.write_root(copy.target)
    {
        context.confine(Rights::WriteBeneath(&[base.as_fd()]));
    }
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    let image = match map {
        Some(map) => with_map(&image, map, &options, context)?,
        None => image,
    };
    let source = source(&image, &address, context)?;
    let mut recovery = Recovery::new(out, context);
    let copied = copy_out_to(&[source], &target, &copy, &mut recovery);
    let shown = args.target.as_os_str().as_bytes();
    match copied {
        Ok(report) => {
            cp::report_losses(&report.written, shown, args.untrusted, context);
            recovery.finish(report.written.files, shown)
        }
        Err(CopyError::Host(HostError::Stopped)) => Err(crate::output::Stop::Interrupted),
        Err(error) => Err(Report::plain(error).into()),
    }
}

/// # Errors
///
/// `path` exists and is not an empty directory, so that recovered files would mix with others.
fn expect_empty(path: &Path) -> Result<(), Report> {
    let shown = path.as_os_str().as_bytes();
    let failed = |error| Report::on("cannot recover to", shown, error);
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                let report = Report::on("cannot recover to", shown, "the directory is not empty");
                Err(report.help("name a new directory"))
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn read_map(path: &Path) -> Result<Map, Report> {
    let shown = path.as_os_str().as_bytes();
    let text = fs::read_to_string(path).map_err(|error| Report::on("cannot read", shown, error))?;
    Map::parse(&text).map_err(|error| {
        let report = Report::on("cannot use the map", shown, error);
        report.help("name the map file that ddrescue wrote: ddrescue DISK IMAGE MAPFILE")
    })
}

/// Returns the image with the ranges of the map that are not finished made unreadable.
fn with_map(image: &Image, map: Map, options: &Options, context: &Context) -> Result<Image, Report> {
    let shown = image.path().as_os_str().as_bytes();
    if !image.layers().is_empty() {
        let report = Report::on("cannot use the map for", shown, "the image is compressed or in a container");
        return Err(report.help("unpack the image, so that the offsets of the map apply to it"));
    }
    let device = Arc::new(BadRanges::new(image.device().clone(), map));
    Image::on_device(image.path(), device, context.registry(), options).map_err(open::cannot_open)
}

fn source(image: &Image, address: &Address, context: &Context) -> Result<CopySource, Report> {
    let volume = image.volume_to_read(address.part.as_ref()).map_err(Report::plain)?;
    let mut shown = address.image.as_os_str().as_bytes().to_vec();
    if let Some(part) = &address.part {
        shown.extend_from_slice(format!("@{part}").as_bytes());
    }
    for each in volume.info().notices {
        context.note(&shown, notice(&each, obento::Access::ReadOnly, image));
    }
    let place = address.place.clone().unwrap_or(FileSelector::Path(b"/".to_vec()));
    let path = match &place {
        FileSelector::Path(path) => path.clone(),
        FileSelector::Inode(ino) => format!("<{ino}>").into_bytes(),
    };
    let prefix = [&shown[..], b":"].concat();
    let failed = |error| Report::on("cannot recover", [&prefix[..], &path].concat(), error);
    let node = volume.resolve(&place, Symlinks::Keep).map_err(failed)?;
    Ok(CopySource { node, path, prefix })
}
