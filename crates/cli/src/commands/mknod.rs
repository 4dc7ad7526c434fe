//! `obento mknod` and `obento mkfifo`: create device nodes and named pipes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use obento::Error;
use obento::base::{DeviceNumber, FileKind, Mode};
use obento::driver::{NewNode, SetAttr, StoredProperties};
use obento::vfs::Caller;

use crate::change::mode::ModeChange;
use crate::change::place::{creation_mode, new_node};
use crate::change::{Done, each_place, umask};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::Location;
use crate::output::Outcome;
use crate::parse::mode::mode as parse_mode;
use crate::report::Report;

/// The page of `mknod`.
pub const PAGE: Page =
    Page::new(&[("obento mknod disk.img:/dev/null c 1 3", "Create a device node")]).see_also(&["mknod(1)"]);

/// The page of `mkfifo`.
pub const FIFO_PAGE: Page =
    Page::new(&[("obento mkfifo disk.img:/run/pipe", "Create a named pipe")]).see_also(&["mkfifo(1)"]);

/// Create device nodes and named pipes
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The path of the new file
    #[arg(value_name = "IMAGE:PATH")]
    path: OsString,
    /// b for a block device, c or u for a character device, p for a named pipe
    #[arg(value_name = "TYPE", value_parser = parse_kind)]
    kind: FileKind,
    /// The major number; 0x starts a hexadecimal and 0 an octal number
    #[arg(value_parser = parse_number)]
    major: Option<u32>,
    /// The minor number
    #[arg(value_parser = parse_number)]
    minor: Option<u32>,
    /// The mode, as in chmod
    #[arg(short, long, value_parser = parse_mode)]
    mode: Option<ModeChange>,
}

/// Create named pipes
#[derive(clap::Args, Debug)]
pub struct FifoArgs {
    /// The paths of the new files
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// The mode, as in chmod
    #[arg(short, long, value_parser = parse_mode)]
    mode: Option<ModeChange>,
}

fn parse_kind(text: &str) -> Result<FileKind, String> {
    Ok(match text {
        "b" => FileKind::BlockDevice,
        "c" | "u" => FileKind::CharDevice,
        "p" => FileKind::Fifo,
        _ => return Err("not b, c, u or p".to_owned()),
    })
}

fn parse_number(text: &str) -> Result<u32, String> {
    let parsed = match (text.strip_prefix("0x").or(text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.map_err(|_| "not a number from 0 to 4294967295".to_owned())
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let rdev = match (args.kind, args.major, args.minor) {
        (FileKind::Fifo, None, None) => DeviceNumber::default(),
        (FileKind::Fifo, ..) => {
            let cause = "a named pipe has no device number";
            let report = Report::on("cannot create", args.path.as_bytes(), cause);
            return Err(report.help("omit MAJOR and MINOR, or use the type b or c").into());
        }
        (_, Some(major), Some(minor)) => DeviceNumber { major, minor },
        _ => {
            let cause = "a device requires a major and a minor number";
            let report = Report::on("cannot create", args.path.as_bytes(), cause);
            return Err(report.help("usage: obento mknod disk.img:/dev/null c 1 3").into());
        }
    };
    each_place(std::slice::from_ref(&args.path), context, |location| {
        make(location, args.kind, rdev, args.mode.as_ref())
    });
    Ok(())
}

pub fn run_fifo(args: &FifoArgs, context: &Context) -> Outcome {
    each_place(&args.paths, context, |location| {
        make(location, FileKind::Fifo, DeviceNumber::default(), args.mode.as_ref())
    });
    Ok(())
}

fn make(location: &Location, kind: FileKind, rdev: DeviceNumber, mode: Option<&ModeChange>) -> Done {
    let made = location.spot().and_then(|spot| {
        if spot.slash {
            return Err(Error::NotFound);
        }
        let new = NewNode { rdev, ..new_node(kind, creation_mode(&spot.dir, 0o666)) };
        let node = spot.create(&new)?;
        if let Some(change) = mode {
            let mode = Some(change.apply(Mode::new(0o666), false, umask()));
            node.vfs().set_attr(&Caller::Owner, &node, &SetAttr { mode, ..SetAttr::default() })?;
        }
        Ok(())
    });
    made.map_err(|error| match error == Error::Invalid {
        true => Report::on("cannot create", location.shown(), Error::Exists),
        false => {
            let report = location.not_created("cannot create", error);
            let report = match error == Error::OutOfRange {
                true => report.help("use a MAJOR of at most 4095, and a MINOR of at most 1048575"),
                false => report,
            };
            location.without(
                StoredProperties::SPECIAL,
                report,
                "the file system supports only files and directories",
            )
        }
    })
}
