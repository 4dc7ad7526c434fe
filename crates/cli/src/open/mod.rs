//! From arguments to inodes. Addresses are parsed, each image is opened once, and rights are given up. Only then are
//! the contents of an image read.

pub mod inside;
mod location;
mod notes;
pub mod opener;
mod reports;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use obento::address::{Address, HostEntry, Operand, PartSelector};
use obento::driver::Access;
use obento::engine;
use obento::image::{ImageFile, PartitionChoice, PartitionContents};
use obento::vfs::Symlinks;
use obento::{Image, Options, Volume};

use crate::context::Context;
use crate::options::EngineChoice;
use crate::report::Report;

pub use location::{DANGLING, Found, Location, PartName, components, join};
pub use notes::{NotedVolume, grouped_notes};
pub use reports::{
    cannot_open, damaged, expect_undamaged, image_note, needs_image, of_short_volume, of_unknown_data,
    option_refused, report_notices, report_notices_but,
};

/// What an argument names, with its image opened.
pub enum Opened {
    /// `-`: standard input.
    Stdio,
    /// A path or inode in an image.
    Image(Location),
}

/// Returns what an argument names.
pub fn operand(argument: &OsStr, context: &Context) -> Result<Operand, Report> {
    match context.inside() {
        Some(inside) => inside.operand(argument),
        None => Ok(Operand::parse_with(argument, &|path| context.look_up(path))?),
    }
}

/// Opens the image at `path`, written as `shown`, gives up the rights to open other files, and prints its notices.
pub fn open_sealed(path: &Path, options: &Options, shown: &[u8], context: &Context) -> Result<Image, Report> {
    let image = open_sealed_quietly(path, options, context)?;
    report_notices(shown, &image, context.messages());
    Ok(image)
}

/// Opens an image like [`open_sealed`], without printing its notices.
pub fn open_sealed_quietly(path: &Path, options: &Options, context: &Context) -> Result<Image, Report> {
    let file = ImageFile::open(path, options).map_err(cannot_open)?;
    if !file.opens_others() {
        context.seal();
    }
    let image = file.decode(context.registry()).map_err(cannot_open)?;
    context.seal();
    Ok(image)
}

/// Returns the place in an image that an argument names; a host file is an error.
pub fn address(argument: &OsStr, context: &Context) -> Result<Address, Report> {
    match context.inside().map(|inside| inside.operand(argument)).transpose()? {
        Some(Operand::Image(address)) => Ok(address),
        Some(_) => Err(Report::on("cannot open", argument.as_bytes(), "not a path inside the image")),
        None => Ok(Address::parse_with(argument, &|path| context.look_up(path))?),
    }
}

/// Returns the address like [`address`], for a command that needs an image: a file server is an error.
pub fn image_address(argument: &OsStr, context: &Context) -> Result<Address, Report> {
    let address = address(argument, context)?;
    match address.server() {
        Some(_) => Err(needs_image(&address.image)),
        None => Ok(address),
    }
}

/// Opens the file in an image that `argument` names; a bare image is its root.
pub fn open(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    let address = address(argument, context)?;
    open_address(address, context)
}

/// Opens the file in an image that `argument` names, as [`open`] does, or the roots of all file systems of a disk that has
/// several. Prints a note about each partition of the disk that may contain files and has no supported file system.
pub fn open_each(argument: &OsStr, context: &Context) -> Vec<Result<Location, Report>> {
    let address = match address(argument, context) {
        Ok(address) => address,
        Err(report) => return vec![Err(report)],
    };
    let contents = partition_contents(&address, context);
    let volumes = contents.iter().filter(|content| claims(content)).count();
    if volumes > 0 {
        contents.iter().for_each(|content| note_skipped(&address, content, context));
    }
    if volumes <= 1 {
        return vec![open_address(address, context)];
    }
    let numbers = contents.iter().filter(|content| content.probe().is_some()).filter_map(number);
    let addresses = numbers.map(|number| part_address(&address, PartSelector::Number(number)));
    addresses.map(|address| open_address(address, context)).collect()
}

/// Returns the address of a partition of the disk at `address`.
pub fn part_address(address: &Address, part: PartSelector) -> Address {
    Address { part: Some(part), ..address.clone() }
}

/// Returns whether `address` names a disk with several file systems, and selects none of them.
pub fn is_of_several_volumes(address: &Address, context: &Context) -> bool {
    partition_contents(address, context).iter().filter(|content| claims(content)).count() > 1
}

/// Returns whether a type of file systems claims the partition.
fn claims(content: &PartitionChoice) -> bool {
    matches!(content.holds, PartitionContents::FileSystem(_) | PartitionContents::Ambiguous(_))
}

/// Returns the contents of the partitions, if `address` names a disk with several partitions and selects none.
fn partition_contents(address: &Address, context: &Context) -> Vec<PartitionChoice> {
    if address.part.is_some() || address.place.is_some() || address.server().is_some() {
        return Vec::new();
    }
    let image = context.image(&address.image).ok().filter(|image| image.partitions().len() > 1);
    // A volume may claim all bytes of the disk.
    let image = image.filter(|image| image.ambiguity().is_none() && !image.is_claimed());
    image.map_or_else(Vec::new, |image| image.probe_all())
}

fn number(content: &PartitionChoice) -> Option<u32> {
    content.partition.as_ref().map(|partition| partition.number)
}

/// Prints a note about a partition that is not read, if it may contain files.
fn note_skipped(address: &Address, content: &PartitionChoice, context: &Context) {
    let Some(partition) = &content.partition else { return };
    let reason = match &content.holds {
        PartitionContents::Other(looks) if looks.may_contain_files(partition.kind) => {
            format!("no supported file system; the data looks like {looks}")
        }
        PartitionContents::Ambiguous(names) => format!("the data looks like {}", names.join(" and ")),
        PartitionContents::Unreadable(error) => error.to_string(),
        _ => return,
    };
    let shown = format!("@{}", partition.number);
    let shown = [address.image.as_os_str().as_bytes(), shown.as_bytes()].concat();
    context.note(&shown, format!("this partition was skipped: {reason}"));
}

/// Opens the file that `argument` names, or standard input. A bare image is an error.
pub fn open_file(argument: &OsStr, context: &Context) -> Result<Opened, Report> {
    match operand(argument, context)? {
        Operand::Stdio => Ok(Opened::Stdio),
        Operand::Image(address) => open_address(address, context).map(Opened::Image),
        Operand::Host(path) => Err(no_file("cannot open", argument, &path, context)),
    }
}

/// Opens the file that `argument` names, for change. An argument without a path inside an image is rejected, so that a forgotten `:/`
/// never changes a host file. [`Context::close`] ends the changes.
pub fn open_for_change(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    let operand = operand(argument, context)?;
    match operand {
        Operand::Image(address) if address.place.is_some() => {
            open_address_for_change(address, argument, context)
        }
        Operand::Stdio => Err(Report::new("cannot change standard input", "not a path inside an image")),
        Operand::Image(address) => Err(no_file("cannot change", argument, &address.image, context)),
        Operand::Host(path) => Err(no_file("cannot change", argument, &path, context)),
    }
}

/// Opens the volume that `argument` names, for an operation on the whole volume: a forgotten `:/` does no harm.
pub fn open_volume_for_change(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    open_address_for_change(address(argument, context)?, argument, context)
}

fn open_address_for_change(
    address: Address,
    argument: &OsStr,
    context: &Context,
) -> Result<Location, Report> {
    let volume = volume_for_change(&address, argument.as_bytes(), context)?;
    Ok(Location::of(volume, &address))
}

/// Returns the volume that `address`, written as `shown`, names, for change. From now on, a signal stops the command
/// between two steps, so that the volume is closed.
pub fn volume_for_change(address: &Address, shown: &[u8], context: &Context) -> Result<Rc<Volume>, Report> {
    context.expect_open_for_change(address, shown)?;
    // Opening may write already: it replays a journal, and marks the volume as being in use.
    context.stop_between_steps();
    context.volume_for_change(address)
}

/// Returns the hint for an operand without a path that names a partition, such as `disk.img@1`, or lacks the colon after
/// it, as in `disk.img@1/etc/fstab`. The part before the `@` must be a file of the host, and the operand must not exist.
pub fn partition_hint(operand: &[u8]) -> Option<String> {
    let exists = |path: &[u8]| Path::new(OsStr::from_bytes(path)).exists();
    let at = operand.iter().position(|&byte| byte == b'@')?;
    if !exists(&operand[..at]) || exists(operand) {
        return None;
    }
    let slash = operand[at..].iter().position(|&byte| byte == b'/').map(|slash| at + slash);
    Some(match slash {
        Some(slash) => {
            let place = crate::report::shell_word([&operand[..slash], b":", &operand[slash..]].concat());
            format!("a colon precedes the path: {place}")
        }
        None => {
            let place = crate::report::shell_word(operand);
            format!(
                "the bytes of a partition are not an operand here; copy them to a file: \
                 obento convert {place} part.img"
            )
        }
    })
}

/// Returns the report of `argument`, which is the host path `path` or an image without a path.
fn no_file(action: &str, argument: &OsStr, path: &Path, context: &Context) -> Report {
    let shown = path.as_os_str().as_bytes();
    let slash = argument.as_bytes().contains(&b'/');
    if let Some(hint) = partition_hint(argument.as_bytes()).filter(|_| slash) {
        return Report::on(action, argument.as_bytes(), "not a path inside an image").help(hint);
    }
    if !is_image_name(argument, context) {
        return match context.look_up(path) {
            HostEntry::Directory => Report::on(action, shown, "is a directory of the host, not an image")
                .help(format!("name a file in an image: {FORM}")),
            HostEntry::Missing | HostEntry::DanglingLink => {
                Report::on(action, shown, "no such file").help(format!("check the name; {FORM}"))
            }
            HostEntry::File => Report::on(action, shown, "not a path inside an image").help(FORM),
        };
    }
    let example = crate::report::shell_word([argument.as_bytes(), b":/PATH"].concat());
    Report::on(action, argument.as_bytes(), "not a path inside an image")
        .help(format!("if this is an image, add the path: {example}"))
}

/// The form of an address, for hints.
const FORM: &str = "a path in an image has the form disk.img:/PATH";

/// Returns whether `argument` can name an image or a part of it: the file exists, and is not a directory.
pub fn is_image_name(argument: &OsStr, context: &Context) -> bool {
    address(argument, context).is_ok()
}

/// Opens the volume of an address.
pub fn open_address(address: Address, context: &Context) -> Result<Location, Report> {
    let volume = context.volume(&address)?;
    Ok(Location::of(volume, &address))
}

/// The meaning of an argument without a path in an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BareOperand {
    /// The root of an image, or the whole image.
    Image,
    /// A host file.
    HostFile,
}

/// Opens the files of the images that `arguments` name, and gives up all rights before any byte of them is decoded. Does nothing if
/// decoding needs rights: images may name other files (`--allow-backing`), or the kernel engine may have to start a kernel.
pub fn seal_before_decoding<'a>(
    arguments: impl IntoIterator<Item = &'a OsString>,
    bare: BareOperand,
    access: Access,
    context: &Context,
) {
    if prepare(arguments, bare, access, context) {
        context.seal();
    }
}

/// Returns whether a kernel is installed that opens volumes of some type.
fn has_kernel() -> bool {
    engine::types::TYPES.iter().any(|kind| engine::kernel_of(kind).is_ok())
}

/// Opens the files of the images that `arguments` name. Returns whether they can be decoded without rights.
pub fn prepare<'a>(
    arguments: impl IntoIterator<Item = &'a OsString>,
    bare: BareOperand,
    access: Access,
    context: &Context,
) -> bool {
    let options = context.options();
    let needs_no_rights = context.gives_up_rights()
        && !options.allow_backing
        && (options.engine == Some(EngineChoice::Native) || !has_kernel());
    if needs_no_rights {
        for argument in arguments {
            // Parse the argument in both ways, so that both results are known when the host cannot be read any more.
            let (operand, address) = (operand(argument, context), address(argument, context));
            let image = match operand {
                Ok(Operand::Image(address)) => Some(address.image),
                _ => address.ok().map(|address| address.image).filter(|_| bare == BareOperand::Image),
            };
            if let Some(image) = image {
                context.prepare(&image, access);
            }
        }
    }
    needs_no_rights
}

/// Opens all of `arguments`, gives up rights, and finds the files. Passes each failure to `failed` and continues.
pub fn find_all(
    arguments: &[OsString],
    symlinks: Symlinks,
    context: &Context,
    failed: impl Fn(&Report),
) -> Vec<Found> {
    seal_before_decoding(arguments, BareOperand::Image, Access::ReadOnly, context);
    let opened: Vec<_> = arguments.iter().flat_map(|argument| open_each(argument, context)).collect();
    context.seal();
    let mut found = Vec::new();
    for location in opened {
        match location.and_then(|location| location.find(symlinks, "cannot access")) {
            Ok(files) => found.extend(files),
            Err(report) => failed(&report),
        }
    }
    found
}
