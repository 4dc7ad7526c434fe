//! `obento stat`: shows the attributes of a file, or with `-f` of the file system, as GNU `stat` does.
//!
//! Intended differences from GNU: the default output shows the file's flags in place of the device number. `-f` prints
//! the name of the type (`ext4`, not `ext2/ext3`).

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use obento::base::{Attr, FileKind, Timestamp};
use obento::driver::StatFs;
use obento::vfs::Symlinks;
use obento::volume::Owners;

use crate::context::Context;
use crate::escape::shell_always;
use crate::format::directives::{Directive, DirectiveFormat, Escapes, Value};
use crate::format::mode::{kind_name, mode_string};
use crate::format::time::{Clock, TimeStyle};
use crate::help::page::{Page, TZ};
use crate::json::Line;
use crate::open::{Found, find_all};
use crate::output::{Outcome, Output};
use crate::report::Report;

const FILE: &str = "  File: %N\n  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\n\
                    Inode: %-11i Links: %-5h Flags: %E\n";
const DEVICE: &str = "Device type: %Hr,%Lr\n";
const REST: &str = "Access: (%04a/%10.10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\n\
                    Access: %x\nModify: %y\nChange: %z\n Birth: %w\n";
const TERSE: &str = "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o\n";
const FILE_SYSTEM: &str = "  File: \"%n\"\n    ID: %-8i Namelen: %-7l Type: %T\n\
                           Block size: %-10s Fundamental block size: %S\n\
                           Blocks: Total: %-10b Free: %-10f Available: %a\n\
                           Inodes: Total: %-10c Free: %d\n";
const FILE_SYSTEM_TERSE: &str = "%n %i %l %t %s %S %b %f %a %c %d\n";

const DIRECTIVES: &str = "\
Directives for files: %a octal mode, %A mode as text, %b blocks, %B size of these blocks (512), %C security context, \
%E flags (only in obento), %f mode in hexadecimal, %F type, %g %G group, %h links, %i inode, %m root of the volume, \
%n name, %N name with target, %o optimal I/O size, %r %R %t %T %Hr %Lr device type, %s size, %u %U owner, \
%w %x %y %z times of birth, access, modification and change, %W %X %Y %Z the same times in seconds.
Directives with -f: %a free blocks for users, %b blocks, %c inodes, %d free inodes, %f free blocks, %i ID, \
%l longest name, %n name, %s %S block size, %t %T type.";

/// The page of `stat`.
pub const PAGE: Page = Page::new(&[
    ("obento stat disk.img:/etc/passwd", "Show all attributes of a file"),
    ("obento stat -c '%a %U %n' disk.img:/etc/passwd", "Print the mode, the owner and the name"),
    ("obento stat -f disk.img", "Show the use of the file system"),
])
.environment(&[TZ])
.see_also(&["stat(1)"]);

/// Show the attributes of files or file systems
#[derive(clap::Args, Debug)]
#[command(after_help = DIRECTIVES)]
pub struct Args {
    /// Images, and files and directories in them
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
    /// Follow symbolic links: show the attributes of their targets
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Show the file system instead of the file
    #[arg(short, long)]
    file_system: bool,
    /// Print FORMAT and a newline for each file
    #[arg(short = 'c', long, value_name = "FORMAT", overrides_with_all = ["printf", "terse"])]
    format: Option<OsString>,
    /// Print FORMAT for each file, interpreting backslash escapes, without a newline
    #[arg(long, value_name = "FORMAT", overrides_with_all = ["format", "terse"])]
    printf: Option<OsString>,
    /// Print all attributes on one line
    #[arg(short, long, overrides_with_all = ["format", "printf"])]
    terse: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if context.json() && (args.format.is_some() || args.printf.is_some() || args.terse) {
        let option = match (&args.format, &args.printf) {
            (Some(_), _) => "-c",
            (_, Some(_)) => "--printf",
            _ => "-t",
        };
        let what = format!("cannot combine --json and {option}");
        return Err(Report::new(what, "each sets the output format")
            .help(format!("omit --json or {option}"))
            .into());
    }
    let formats = Formats::new(args)?;
    let known = if args.file_system { FILE_SYSTEM_DIRECTIVES } else { FILE_DIRECTIVES };
    for letter in formats.file.unknown(known) {
        context.note(b"stat", format!("unknown directive '%{letter}' in the format"));
    }
    let mut clock = Clock::system();
    let symlinks = if args.dereference { Symlinks::Follow } else { Symlinks::Keep };
    let found = find_all(&args.paths, symlinks, context, |report| context.warn(report));
    let mut out = Output::stdout();
    for file in found {
        let shown = file.shown();
        let written = if args.file_system {
            file.location.volume.statfs().map(|use_| volume(&file, &use_, &formats, &mut out, context))
        } else {
            file.node.attr().map(|attr| inode(&file, &attr, &formats, &mut clock, &mut out, context))
        };
        match written {
            Ok(outcome) => outcome?,
            Err(error) => context.warn(&Report::on("cannot stat", shown, error)),
        }
    }
    out.finish()
}

/// The directives of a file, and with --file-system.
const FILE_DIRECTIVES: &[u8] = b"aAbBCdDEfFgGhimnNorRstTuUwWxXyYzZ";
const FILE_SYSTEM_DIRECTIVES: &[u8] = b"abcdfilnsStT";

/// The formats for a file and for a device node.
struct Formats {
    file: DirectiveFormat,
    device: DirectiveFormat,
    newline: bool,
    /// Whether `%N` always quotes names.
    own: bool,
}

impl Formats {
    fn new(args: &Args) -> Result<Self, Report> {
        let parse = |text: &[u8], escapes| {
            DirectiveFormat::parse(text, escapes).map_err(|error| Report::on("invalid format", text, error))
        };
        if let Some(format) = &args.format {
            let format = parse(format.as_bytes(), Escapes::Keep)?;
            return Ok(Self { file: format.clone(), device: format, newline: true, own: true });
        }
        if let Some(format) = &args.printf {
            let format = parse(format.as_bytes(), Escapes::Interpret)?;
            return Ok(Self { file: format.clone(), device: format, newline: false, own: true });
        }
        let (file, device) = match (args.file_system, args.terse) {
            (true, true) => (FILE_SYSTEM_TERSE.to_owned(), String::new()),
            (true, false) => (FILE_SYSTEM.to_owned(), String::new()),
            (false, true) => (TERSE.to_owned(), TERSE.to_owned()),
            (false, false) => ([FILE, REST].concat(), [FILE, DEVICE, REST].concat()),
        };
        let file = parse(file.as_bytes(), Escapes::Keep)?;
        let device = parse(device.as_bytes(), Escapes::Keep)?;
        Ok(Self { file, device, newline: false, own: args.terse })
    }

    fn write(
        &self,
        format: &DirectiveFormat,
        out: &mut Output,
        value: impl FnMut(&Directive) -> Option<Value>,
    ) -> std::io::Result<()> {
        let mut text = Vec::with_capacity(512);
        format.write(&mut text, value);
        if self.newline {
            text.push(b'\n');
        }
        out.write_all(&text)
    }
}

fn inode(
    file: &Found,
    attr: &Attr,
    formats: &Formats,
    clock: &mut Clock,
    out: &mut Output,
    context: &Context,
) -> Outcome {
    let owners = file.location.volume.owners();
    let target = match attr.kind {
        FileKind::Symlink => file.node.read_link().ok(),
        _ => None,
    };
    if context.json() {
        let line = Line::new("file").bytes("path", &file.shown()).attr(attr, owners);
        let line = match &target {
            Some(target) => line.bytes("target", target),
            None => line,
        };
        let line = line.field("block_size", attr.block_size).field("project", attr.project);
        return Ok(line.field("change", attr.change).write(out)?);
    }
    let format = if attr.kind.is_device() { &formats.device } else { &formats.file };
    let terminal = out.is_terminal();
    formats.write(format, out, |directive| {
        let value = Inode { file, attr, target: target.as_deref(), owners, always_quote: formats.own };
        let text = value.get(directive, clock)?;
        Some(match text {
            Value::Text(text) if terminal && !matches!(directive.letter, b'N') => {
                Value::Text(crate::escape::escape(&text, crate::escape::NameStyle::Backslash).into_owned())
            }
            value => value,
        })
    })?;
    Ok(())
}

/// The source of the values of directives for a file.
struct Inode<'a> {
    file: &'a Found,
    attr: &'a Attr,
    target: Option<&'a [u8]>,
    owners: &'a Owners,
    always_quote: bool,
}

impl Inode<'_> {
    fn get(&self, directive: &Directive, clock: &mut Clock) -> Option<Value> {
        let attr = self.attr;
        let text = |text: &[u8]| Value::Text(text.to_vec());
        let owner = |name: Option<&[u8]>| text(name.unwrap_or(b"UNKNOWN"));
        let mut time = |time: Timestamp| Value::Text(clock.text(&TimeStyle::FullIso, time).into_bytes());
        let device = u64::from(attr.rdev.major) << 8 | u64::from(attr.rdev.minor);
        Some(match (directive.half, directive.letter) {
            (Some(b'H'), b'r') => Value::Number(attr.rdev.major.into()),
            (Some(_), b'r') => Value::Number(attr.rdev.minor.into()),
            (Some(_), _) | (_, b'd') => Value::Number(0),
            (_, b'D') => Value::Hex(0),
            (_, b'a') => Value::Octal(attr.mode.bits().into()),
            (_, b'A') => text(&mode_string(attr.kind, attr.mode)),
            (_, b'b') => Value::Number(attr.blocks),
            (_, b'B') => Value::Number(512),
            (_, b'C') => self.security_context(),
            (_, b'E') => text(flags(attr).as_bytes()),
            (_, b'f') => Value::Hex(attr.st_mode().into()),
            (_, b'F') => text(kind_name(attr.kind, attr.size).as_bytes()),
            (_, b'g') => Value::Number(attr.gid.into()),
            (_, b'G') => owner(self.owners.group(attr.gid)),
            (_, b'h') => Value::Number(attr.nlink.into()),
            (_, b'i') => Value::Number(attr.ino.0),
            (_, b'm') => Value::Text([&self.file.location.prefix, &b"/"[..]].concat()),
            (_, b'n') => Value::Text(self.file.shown()),
            (_, b'N') => Value::Text(self.quoted_name()),
            (_, b'o') => Value::Number(attr.block_size.into()),
            (_, b'r') => Value::Number(device),
            (_, b'R') => Value::Hex(device),
            (_, b's') => Value::Number(attr.size),
            (_, b't') => Value::Hex(attr.rdev.major.into()),
            (_, b'T') => Value::Hex(attr.rdev.minor.into()),
            (_, b'u') => Value::Number(attr.uid.into()),
            (_, b'U') => owner(self.owners.user(attr.uid)),
            (_, b'w') => attr.btime.map_or_else(|| text(b"-"), time),
            (_, b'x') => time(attr.atime),
            (_, b'y') => time(attr.mtime),
            (_, b'z') => time(attr.ctime),
            (_, b'W') => attr.btime.map_or(Value::Number(0), Value::Seconds),
            (_, b'X') => Value::Seconds(attr.atime),
            (_, b'Y') => Value::Seconds(attr.mtime),
            (_, b'Z') => Value::Seconds(attr.ctime),
            _ => return None,
        })
    }

    fn quoted_name(&self) -> Vec<u8> {
        let quote = |name: &[u8]| match self.always_quote {
            true => shell_always(name),
            false => crate::escape::escape(name, crate::escape::NameStyle::Shell).into_owned(),
        };
        let name = quote(&self.file.shown());
        match self.target {
            Some(target) => [&name, &b" -> "[..], &quote(target)].concat(),
            None => name,
        }
    }

    fn security_context(&self) -> Value {
        let context = self.file.node.get_xattr(b"security.selinux").unwrap_or_else(|_| b"?".to_vec());
        Value::Text(context.strip_suffix(b"\0").map_or_else(|| context.clone(), <[u8]>::to_vec))
    }
}

/// Returns the names of the flags that are set.
fn flags(attr: &Attr) -> String {
    let names: Vec<String> = attr.flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

fn volume(file: &Found, usage: &StatFs, formats: &Formats, out: &mut Output, context: &Context) -> Outcome {
    let volume = &file.location.volume;
    let probe = volume.info().probe;
    if context.json() {
        return Ok(Line::new("file_system").bytes("path", &file.shown()).volume(volume, usage).write(out)?);
    }
    let terminal = out.is_terminal();
    formats.write(&formats.file, out, |directive| {
        Some(match directive.letter {
            b'a' => Value::Number(usage.available),
            b'b' => Value::Number(usage.blocks),
            b'c' => Value::Number(usage.inodes),
            b'd' => Value::Number(usage.free_inodes),
            b'f' => Value::Number(usage.free),
            b'i' => Value::Hex(probe.uuid.map(file_system_id).or(probe.serial.map(u64::from)).unwrap_or(0)),
            b'l' => Value::Number(volume.vfs().limits().name_max.into()),
            b'n' if terminal => Value::Text(crate::report::printable(&file.shown()).into_bytes()),
            b'n' => Value::Text(file.shown()),
            b's' | b'S' => Value::Number(usage.block_size.into()),
            // include/uapi/linux/magic.h
            b't' => Value::Hex(if probe.fs_type.starts_with("ext") { 0xef53 } else { 0 }),
            b'T' => Value::Text(probe.fs_type.as_bytes().to_vec()),
            _ => return None,
        })
    })?;
    Ok(())
}

/// Returns `f_fsid` as the kernel derives it from a UUID (uuid_to_fsid in include/linux/statfs.h), with the halves in the order of stat(1).
fn file_system_id(uuid: [u8; 16]) -> u64 {
    let word = |at: usize| uuid[at..at + 8].iter().rev().fold(0_u64, |word, b| word << 8 | u64::from(*b));
    let id = word(0) ^ word(8);
    id.rotate_left(32)
}
