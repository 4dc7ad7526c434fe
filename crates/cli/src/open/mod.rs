//! From arguments to inodes. Addresses are parsed, each image is opened once, and rights are given up. Only then are
//! the contents of an image read.

pub mod inside;
mod location;
pub mod opener;
mod reports;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use obento::address::{Address, Operand};
use obento::driver::Access;
use obento::engine;
use obento::image::ImageFile;
use obento::vfs::Symlinks;
use obento::{Image, Options, Volume};

use crate::context::Context;
use crate::options::EngineChoice;
use crate::report::Report;

pub use location::{Found, Location, components, join};
pub use reports::{
    cannot_open, expect_undamaged, needs_image, of_short_volume, option_refused, report_notices,
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
    let file = ImageFile::open(path, options).map_err(cannot_open)?;
    if !file.opens_others() {
        context.seal();
    }
    let image = file.decode(context.registry()).map_err(cannot_open)?;
    context.seal();
    report_notices(shown, &image, context.messages());
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

/// Opens the file in an image that `argument` names; a bare image is its root.
pub fn open(argument: &OsStr, context: &Context) -> Result<Location, Report> {
    let address = address(argument, context)?;
    open_address(address, context)
}

/// Opens the file that `argument` names, or standard input. A bare image is an error.
pub fn open_file(argument: &OsStr, context: &Context) -> Result<Opened, Report> {
    match operand(argument, context)? {
        Operand::Stdio => Ok(Opened::Stdio),
        Operand::Image(address) => open_address(address, context).map(Opened::Image),
        Operand::Host(path) => Err(no_file("cannot open", path.as_os_str().as_bytes())),
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
        Operand::Image(_) | Operand::Host(_) => Err(no_file("cannot change", argument.as_bytes())),
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

fn no_file(action: &str, shown: &[u8]) -> Report {
    let example = crate::report::shell_word([shown, b":/PATH"].concat());
    Report::on(action, shown, "not a path inside an image")
        .help(format!("if this is an image, add the path: {example}"))
}

fn open_address(address: Address, context: &Context) -> Result<Location, Report> {
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
    let opened: Vec<_> = arguments.iter().map(|argument| open(argument, context)).collect();
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
