//! `obento recover`: copies everything that can be read out of a damaged volume, and lists what cannot.

mod bad;
mod list;
mod report;
mod search;
mod shared;
mod verify;

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::address::{Address, FileSelector};
use obento::copy::{
    CopyError, CopyOptions, CopySource, Existing, HostTarget, TargetIs, TreeOptions, Trust, copy_out_to,
};
use obento::driver::Checksums;
use obento::host::HostError;
use obento::host::sandbox::Rights;
use obento::image::ImageFile;
use obento::vfs::Symlinks;
use obento::{Image, Options};

use self::bad::{BadRanges, Map};
use self::report::{Recovery, UnnamedPlace};
use self::search::{ReadableVolume, RepairedCopy, VolumeSearch};
use crate::commands::cp;
use crate::context::Context;
use crate::help::page::Page;
use crate::input;
use crate::limit::DataLimit;
use crate::open;
use crate::output::Outcome;
use crate::replaced::OutputFile;
use crate::report::Report;

/// The page of `recover`.
pub const PAGE: Page = Page::new(&[
    ("obento recover disk.img saved", "Copy all files that can be read out of a damaged volume"),
    (
        "obento recover --map rescue.map rescue.img saved --report list",
        "Recover files from a copy of ddrescue, and list the damaged ones",
    ),
    ("obento recover --list --map rescue.map rescue.img", "List the damaged files, and copy nothing"),
])
.exit(&[
    ("0", "All files are complete."),
    ("1", "The report lists damaged or lost files, or a note names files without a name."),
    ("2", "Wrong usage, nothing could be recovered, or the report could not be written."),
])
.unwritten(2)
.see_also(&["ddrescue(1)", "testdisk(8)"]);

/// Copy everything that can be read out of a damaged volume
///
/// Errors do not end the copy, and wrong checksums of metadata are ignored. The command also
/// copies the files of a whole volume that have lost their names and that 'obento check -y' would store in
/// lost+found; on FAT, they get names that start with FSCK, as many as the root directory has room for. A file
/// with a wrong checksum is copied and reported as damaged; if the checksum of its inode is wrong, its owner,
/// permissions and times are not applied. Files that use the same blocks are reported. The image is not changed.
/// Bytes that cannot be read are zeros in the copy. The command prints a line for each incomplete file or directory,
/// with four fields separated by tabs: the state (lost, damaged, attributes or unwritten), the first byte and
/// the byte after the last one or -, the path, and the reason.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or a directory in it
    #[arg(value_name = "IMAGE[:/PATH]")]
    source: OsString,
    /// The directory into which the files are copied; it must be empty, or not exist yet
    #[arg(value_name = "DIR", required_unless_present = "list")]
    target: Option<PathBuf>,
    /// Copy nothing: read all files, and list those that are damaged. Files that have lost their names are not read
    #[arg(long, conflicts_with_all = ["target", "untrusted"])]
    list: bool,
    /// Read only the ranges that FILE, a map file of ddrescue, lists as finished
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Write the list to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Do not trust the image: copy no set-user-ID bits, capabilities or device nodes
    #[arg(long)]
    untrusted: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let Some(target_path) = &args.target else { return list::run(args, context) };
    let address = open::address(&args.source, context)?;
    let map = args.map.as_deref().map(read_map).transpose()?;
    expect_empty(target_path)?;
    let options = Options { checksums: Checksums::IgnoreIfSupported, ..context.options().image_options() };
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    let target = HostTarget::open(target_path).map_err(Report::plain)?;
    let spared: Vec<_> = file.host_files().collect();
    let report_file = args.report.as_deref().map(OutputFile::open).transpose()?;
    let mut copy = CopyOptions {
        target: TargetIs::Copy,
        tree: TreeOptions {
            trust: if args.untrusted { Trust::Untrusted } else { Trust::Full },
            ..TreeOptions::default()
        },
        spared,
        ..CopyOptions::archive()
    };
    // The kernel engine and backing files need rights, as for other commands.
    if open::prepare([&args.source], open::BareOperand::Image, obento::driver::Access::ReadOnly, context)
        && let Some(base) = target.write_root(copy.target)
    {
        context.confine(Rights::WriteBeneath(&[base.as_fd()]));
    }
    let out = report::Out::new(report_file, &copy.spared, context)?;
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    open::report_notices(args.source.as_bytes(), &image, context.messages());
    let bad = map.map(|map| with_map(&image, map)).transpose()?;
    let search = VolumeSearch { address: &address, options: &options, bad, context };
    let opened = search.open(image)?;
    note_notices(&opened, &address, context);
    let mut recovery = Recovery::new(out, search.bad.is_some(), true, context);
    recovery.verify(search.verifier(&opened), root_path(&address), unnamed_place(&opened, &address));
    recovery.find_shared_blocks(&opened.volume);
    let opened = search.with_root(opened, &mut recovery)?;
    let sources = [source(&opened, &address)?];
    copy.tree.max_bytes = DataLimit::of(&opened.volume, context.options().unpack()).bytes();
    context.stop_between_steps();
    let copied = copy_out_to(&sources, &target, &copy, &mut recovery).and_then(|report| {
        copy_unnamed((&opened, &search), (&target, &copy), &mut recovery, context)?;
        Ok(report)
    });
    let shown = target_path.as_os_str().as_bytes();
    sources.iter().for_each(|source| recovery.report_first_owners(source));
    recovery.write_lost();
    match copied {
        Ok(report) => {
            cp::report_losses(&report.written, shown, args.untrusted, context);
            recovery.finish(&report, shown)
        }
        Err(CopyError::Host(error @ HostError::Limit { .. })) => {
            let report = Report::new("the copy is incomplete", error);
            Err(report
                .help("--max-unpacked sets this limit; the files that were copied before remain")
                .into())
        }
        Err(CopyError::Host(HostError::Stopped)) => Err(crate::output::Stop::Interrupted),
        Err(error) => Err(error.into()),
    }
}

/// Copies the files of a whole volume without a name. They are found by a repair of a copy in memory, since a damaged
/// directory can be readable: it can contain the entries of another directory. The files that were copied before stay as
/// they are, since a repair removes what is damaged.
///
/// # Errors
///
/// Those of the copy. A volume that cannot be repaired has no such files.
fn copy_unnamed(
    (opened, search): (&ReadableVolume, &VolumeSearch<'_>),
    (target, copy): (&HostTarget, &CopyOptions),
    recovery: &mut Recovery<'_>,
    context: &Context,
) -> Result<(), CopyError> {
    let address = search.address;
    let is_whole = address.place.as_ref().is_none_or(|place| *place == FileSelector::Path(b"/".to_vec()));
    let has_lost = recovery.has_lost_entries();
    if recovery.is_repaired() || !is_whole {
        return Ok(());
    }
    let repaired = search.repaired(&opened.image).map_err(|report| report.to_string());
    let repaired = repaired.and_then(|copy| copy.ok_or_else(|| "the volume cannot be repaired".to_owned()));
    let found = repaired.and_then(|repaired| {
        let source = source(&repaired.copy, address).map_err(|report| report.to_string())?;
        Ok((repaired, source))
    });
    let (RepairedCopy { copy: repaired, inodes, .. }, source) = match found {
        Ok((repaired, _)) if repaired.errors == 0 && !has_lost => return Ok(()),
        Ok(found) => {
            recovery.add_errors();
            found
        }
        // The volume may be of a type that cannot be repaired.
        Err(_) if !has_lost => return Ok(()),
        Err(reason) => {
            let note = format!("files that have lost their names were not searched: {reason}");
            context.note(&shown(address), note);
            return Ok(());
        }
    };
    recovery.begin_repaired(repaired.volume.clone());
    let tree = TreeOptions { existing: Existing::Keep, ..copy.tree.clone() };
    let report = copy_out_to(&[source], target, &CopyOptions { tree, ..copy.clone() }, recovery)?;
    search.report_lost_names(&opened.volume, &repaired.volume, recovery);
    search.report_lost_inodes(&opened.volume, inodes, recovery);
    recovery.add_late(&report);
    Ok(())
}

/// Returns the path of the root in messages.
fn root_path(address: &Address) -> Vec<u8> {
    [&shown(address)[..], b":/"].concat()
}

/// Returns the place of the files that a repair of the volume finds without a name.
fn unnamed_place(opened: &ReadableVolume, address: &Address) -> UnnamedPlace {
    let (start, place) = match opened.volume.info().probe.fs_type {
        "vfat" | "exfat" => ("FSCK", "with names that start with FSCK"),
        _ => ("lost+found/", "in lost+found"),
    };
    UnnamedPlace { prefix: [&root_path(address)[..], start.as_bytes()].concat(), shown: place }
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
                Err(report.help("name a new or an empty directory"))
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent =
                path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            match rustix::fs::access(parent, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
                Ok(()) => Ok(()),
                Err(errno) => Err(crate::output::of_output(failed(errno.into()), path, errno)),
            }
        }
        Err(error) => Err(failed(error)),
    }
}

/// The longest map file, in bytes. ddrescue writes about 30 bytes for a range.
const MAX_MAP: u64 = 64 << 20;

const NAME_THE_MAP: &str = "name the map file that ddrescue wrote: ddrescue DISK IMAGE MAPFILE";

fn read_map(path: &Path) -> Result<Map, Report> {
    let shown = path.as_os_str().as_bytes();
    let mut text = String::new();
    let file = input::open("cannot read", path)?;
    let read = file.take(MAX_MAP + 1).read_to_string(&mut text);
    let len = read.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => {
            Report::on("cannot use the map", shown, "not a text file").help(NAME_THE_MAP)
        }
        _ => Report::on("cannot read", shown, error),
    })?;
    if len as u64 > MAX_MAP {
        let report = Report::on("cannot use the map", shown, "the map file is larger than 64 MiB");
        return Err(report.help(NAME_THE_MAP));
    }
    Map::parse(&text).map_err(|error| {
        let report = Report::on("cannot use the map", shown, error);
        report.help(NAME_THE_MAP)
    })
}

/// Returns the device of the image with the ranges of the map that are not finished made unreadable.
fn with_map(image: &Image, map: Map) -> Result<Arc<BadRanges>, Report> {
    let shown = image.path().as_os_str().as_bytes();
    if !image.layers().is_empty() {
        let report = Report::on("cannot use the map for", shown, "the image is compressed or in a container");
        return Err(report.help("unpack the image, so that the offsets of the map apply to it"));
    }
    Ok(Arc::new(BadRanges::new(image.device().clone(), map)))
}

/// Returns the image and the partition as messages show them.
fn shown(address: &Address) -> Vec<u8> {
    let part = address.part.as_ref().map_or_else(String::new, |part| format!("@{part}"));
    [address.image.as_os_str().as_bytes(), part.as_bytes()].concat()
}

/// Prints the notices about a volume.
fn note_notices(opened: &ReadableVolume, address: &Address, context: &Context) {
    let access = obento::driver::Access::ReadOnly;
    let noted = open::NotedVolume { volume: &opened.volume, image: &opened.image, access };
    for text in noted.texts(&opened.volume.info().notices) {
        context.note(&shown(address), text);
    }
}

fn source(opened: &ReadableVolume, address: &Address) -> Result<CopySource, Report> {
    let volume = &opened.volume;
    let shown = shown(address);
    let place = address.place.clone().unwrap_or(FileSelector::Path(b"/".to_vec()));
    let path = match &place {
        FileSelector::Path(path) => path.clone(),
        FileSelector::Inode(ino) => format!("#{ino}").into_bytes(),
    };
    let prefix = [&shown[..], b":"].concat();
    let failed = |error| Report::on("cannot recover", [&prefix[..], &path].concat(), error);
    let node = volume.resolve(&place, Symlinks::Keep).map_err(failed)?;
    Ok(CopySource { node, path, prefix })
}
