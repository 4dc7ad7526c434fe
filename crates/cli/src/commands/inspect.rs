//! `obento inspect`: shows the structures on disk, field by field with their byte offsets.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Subcommand;
use obento::Error;
use obento::address::FileSelector;
use obento::base::Ino;
use obento::driver::{Field, FieldValue, Record, Target};
use obento::text::uuid_text;
use obento::vfs::Symlinks;
use serde::Serialize;

use crate::cause::Cause;
use crate::context::Context;
use crate::escape::{NameStyle, escape};
use crate::help::page::{Page, Terms};
use crate::json::{Line, hex};
use crate::open::{self, Location};
use crate::output::{Outcome, Output};
use crate::report::Report;

/// The page of `inspect`.
pub const PAGE: Page = Page::new(&[
    ("obento inspect super disk.img", "Show the super block"),
    ("obento inspect inode disk.img:/etc/passwd", "Show the inode of a file and its mapping"),
])
.see_also(&["debugfs(8)"])
.subcommands(&[
    ("super", page(&[("obento inspect super --copy 1 disk.img", "Show the first copy of the super block")])),
    (
        "group",
        page(&[("obento inspect group disk.img 0 1", "Show the descriptors of the first two block groups")]),
    ),
    (
        "inode",
        page(&[
            ("obento inspect inode disk.img:/etc/passwd", "Show the inode of a file and its mapping"),
            ("obento inspect inode 'disk.img:#12'", "Show the inode with number 12"),
        ]),
    ),
    (
        "dir",
        page(&[("obento inspect dir disk.img:/etc", "Show the entries of a directory with their offsets")]),
    ),
    ("block", page(&[("obento inspect block disk.img 1", "Show the owner of a block, and its bytes")])),
    ("journal", page(&[("obento inspect journal disk.img", "List the transactions in the journal")])),
]);

/// Returns the page of a subcommand.
const fn page(examples: Terms) -> Page {
    Page::new(examples).see_also(&["obento-inspect(1)", "debugfs(8)"])
}

/// Show structures on disk, field by field with their offsets
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    structure: Structure,
}

#[derive(Subcommand, Debug)]
enum Structure {
    /// Show the super block
    Super {
        /// The image
        image: OsString,
        /// Show the copy with this index; 0 is the primary super block
        #[arg(long, value_name = "N", default_value_t = 0)]
        copy: u32,
    },
    /// Show descriptors of block groups
    Group {
        /// The image
        image: OsString,
        /// Numbers of block groups
        #[arg(value_name = "GROUP", required = true)]
        numbers: Vec<u64>,
    },
    /// Show inodes and their mappings
    Inode {
        /// Files: IMAGE:/PATH or IMAGE:#NUMBER
        #[arg(value_name = "IMAGE:/PATH", required = true)]
        files: Vec<OsString>,
    },
    /// Show the blocks of directories, entry by entry
    Dir {
        /// Directories: IMAGE:/PATH or IMAGE:#NUMBER
        #[arg(value_name = "IMAGE:/PATH", required = true)]
        files: Vec<OsString>,
    },
    /// Show the use of blocks and their bytes
    Block {
        /// The image
        image: OsString,
        /// Numbers of blocks
        #[arg(value_name = "BLOCK", required = true)]
        numbers: Vec<u64>,
    },
    /// Show the journal: its super block and transactions
    Journal {
        /// The image
        image: OsString,
    },
}

/// A structure to show, with the text that names it in messages.
struct Wanted {
    shown: Vec<u8>,
    location: Location,
    target: Target,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let wanted = wanted(&args.structure, context)?;
    let mut out = Output::stdout();
    let heading = match args.structure {
        Structure::Inode { .. } | Structure::Dir { .. } => Heading::Each,
        _ => Heading::First,
    };
    let mut shown = 0;
    for wanted in &wanted {
        shown += usize::from(show(wanted, (heading, shown), context, &mut out)?);
    }
    out.finish()
}

/// Opens the images that the arguments name, gives up rights, and finds the files.
fn wanted(structure: &Structure, context: &Context) -> Result<Vec<Wanted>, crate::output::Stop> {
    let (images, files): (Vec<_>, &[OsString]) = match structure {
        Structure::Super { image, .. }
        | Structure::Group { image, .. }
        | Structure::Block { image, .. }
        | Structure::Journal { image } => (vec![image], &[]),
        Structure::Inode { files } | Structure::Dir { files } => (Vec::new(), files),
    };
    for operand in images.iter().copied().chain(files) {
        open::image_address(operand, context)?;
    }
    open::seal_before_decoding(
        images.iter().copied().chain(files),
        open::BareOperand::Image,
        obento::driver::Access::ReadOnly,
        context,
    );
    let images = images.into_iter().map(|image| open::open(image, context)).collect::<Result<Vec<_>, _>>()?;
    if let Some(location) = images.into_iter().next() {
        context.seal();
        let targets: Vec<_> = match structure {
            Structure::Super { copy, .. } => vec![Target::SuperBlock(*copy)],
            Structure::Group { numbers, .. } => numbers.iter().copied().map(Target::Group).collect(),
            Structure::Block { numbers, .. } => numbers.iter().copied().map(Target::Block).collect(),
            _ => vec![Target::Journal],
        };
        let shown = location.prefix.strip_suffix(b":").unwrap_or(&location.prefix).to_vec();
        let want = |target| Wanted { shown: shown.clone(), location: location.clone(), target };
        return Ok(targets.into_iter().map(want).collect());
    }
    let opened: Vec<_> = files.iter().map(|file| open::open(file, context)).collect();
    context.seal();
    let mut wanted = Vec::new();
    for location in opened {
        // Inodes without a name, such as that of the journal, are found by number.
        if let Ok(Location { place: FileSelector::Inode(ino), .. }) = location {
            let location = location?;
            wanted.push(Wanted { shown: location.shown(), target: target(structure, ino), location });
            continue;
        }
        match location.and_then(|location| location.find(Symlinks::Keep, "cannot inspect")) {
            Ok(found) => wanted.extend(found.into_iter().map(|found| Wanted {
                shown: found.shown(),
                target: target(structure, found.node.ino()),
                location: found.location,
            })),
            Err(report) => context.warn(&report),
        }
    }
    Ok(wanted)
}

fn target(structure: &Structure, ino: Ino) -> Target {
    match structure {
        Structure::Dir { .. } => Target::Directory(ino),
        _ => Target::Inode(ino),
    }
}

/// The structures that have a heading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heading {
    First,
    Each,
}

/// Shows a structure, after `before` others. A structure without records has no heading. Returns whether records were
/// shown.
fn show(
    wanted: &Wanted,
    (heading, before): (Heading, usize),
    context: &Context,
    out: &mut Output,
) -> Result<bool, crate::output::Stop> {
    let failed = |error: &dyn Cause| {
        context.warn(&Report::on("cannot inspect", &wanted.shown, error));
    };
    let file_system = wanted.location.volume.flushed_file_system().clone();
    let Some(inspect) = file_system.inspect() else {
        let fs_type = wanted.location.volume.info().probe.fs_type;
        failed(&format!("obento does not inspect {fs_type} volumes"));
        return Ok(false);
    };
    let (mut written, mut has_records) = (Ok(()), false);
    let inspected = inspect.inspect(wanted.target, &mut |record| match record {
        Ok(record) if written.is_ok() => {
            let is_first = !std::mem::replace(&mut has_records, true);
            written = match context.json() {
                true => write_json(out, &record),
                false if is_first => begin(out, heading, before).and_then(|()| write_record(out, &record)),
                false => write_record(out, &record),
            };
        }
        Ok(_) => {}
        Err(error) => failed(&error),
    });
    match (inspected, wanted.target) {
        (Err(Error::NotFound), Target::Group(number)) => {
            failed(&format!("the volume has no block group {number}"))
        }
        (Err(Error::NotFound), Target::Block(number)) => failed(&format!("the volume has no block {number}")),
        (Err(Error::NotFound), Target::SuperBlock(number)) => {
            failed(&format!("the volume has no copy {number} of the super block"));
        }
        (Err(Error::NotFound), Target::Inode(ino) | Target::Directory(ino)) => {
            failed(&format!("the volume has no inode {ino}"));
        }
        (Err(Error::NotSupported), Target::Group(_)) => failed(&"the file system has no block groups"),
        (Err(Error::NotSupported), Target::Journal) => failed(&"the file system has no journal"),
        (Err(Error::Invalid), Target::Directory(_)) => failed(&Error::NotDirectory),
        (Err(error), _) => failed(&error),
        (Ok(()), _) => {}
    }
    written?;
    Ok(has_records)
}

/// The widths of the columns for most fields: byte offset, length, name.
const OFFSET: usize = 13;
const LENGTH: usize = 6;
const NAME: usize = 26;

/// The number of bytes on a line of a dump.
const DUMP: usize = 16;

/// Writes the empty line and the heading before a structure that follows `before` others.
fn begin(out: &mut impl Write, heading: Heading, before: usize) -> io::Result<()> {
    if before > 0 {
        writeln!(out)?;
    }
    if before > 0 && heading == Heading::First {
        return Ok(());
    }
    writeln!(out, "{:>OFFSET$} {:>LENGTH$}  {:<NAME$}  value", "offset", "length", "name")
}

/// Writes one structure: its type, then one line per field.
fn write_record(out: &mut impl Write, record: &Record) -> io::Result<()> {
    let indent = usize::from(record.depth) * 2;
    writeln!(out, "{:indent$}{}", "", record.kind)?;
    for field in &record.fields {
        let Field { name, offset, len, value } = field;
        let width = NAME.saturating_sub(indent);
        let line = format!("{offset:>OFFSET$} {len:>LENGTH$}  {:indent$}{name:<width$}", "");
        match value {
            FieldValue::Bytes(bytes) if bytes.len() > DUMP && !is_text(bytes) => {
                writeln!(out, "{}", line.trim_end())?;
                dump(out, *offset, bytes)?;
            }
            value => writeln!(out, "{line}  {}", text(name, value))?,
        }
    }
    Ok(())
}

/// Returns a value as text.
fn text(name: &str, value: &FieldValue) -> String {
    match value {
        FieldValue::Number(number) => number.to_string(),
        FieldValue::Hex(number) => format!("{number:#x}"),
        FieldValue::Text(text) => {
            String::from_utf8_lossy(&escape(text.as_bytes(), NameStyle::Backslash)).into_owned()
        }
        FieldValue::Bytes(bytes) => match <[u8; 16]>::try_from(bytes.as_slice()) {
            Ok(uuid) if name.to_ascii_lowercase().contains("uuid") => uuid_text(uuid),
            _ if is_text(bytes) => {
                let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
                format!("\"{}\"", String::from_utf8_lossy(&escape(&bytes[..end], NameStyle::Backslash)))
            }
            _ => hex(bytes),
        },
    }
}

/// Returns whether bytes are a name: printable, with zeros at the end only.
fn is_text(bytes: &[u8]) -> bool {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    end > 0 && std::str::from_utf8(&bytes[..end]).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// Writes offset, hexadecimal and text, 16 bytes per line. Lines that repeat the previous line are omitted, as in `hexdump`.
fn dump(out: &mut impl Write, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut before: Option<&[u8]> = None;
    let mut skipping = false;
    let lines = bytes.chunks(DUMP).enumerate();
    let last = bytes.len().div_ceil(DUMP).saturating_sub(1);
    for (line, chunk) in lines {
        if before == Some(chunk) && line != last {
            if !skipping {
                writeln!(out, "{:>OFFSET$}", "*")?;
            }
            skipping = true;
            continue;
        }
        (before, skipping) = (Some(chunk), false);
        let at = offset + (line * DUMP) as u64;
        let digits: Vec<_> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            chunk.iter().map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '.' }).collect();
        writeln!(out, "{at:>OFFSET$}  {:<47}  {text}", digits.join(" "))?;
    }
    Ok(())
}

/// A field in JSON; its type determines the form of the value.
#[derive(Serialize)]
struct JsonField<'a> {
    name: &'a str,
    offset: u64,
    length: u32,
    #[serde(flatten)]
    value: JsonValue<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
enum JsonValue<'a> {
    Number(u64),
    Flags(u64),
    Bytes(String),
    Text(&'a str),
}

fn write_json(out: &mut impl Write, record: &Record) -> io::Result<()> {
    let fields: Vec<_> = record
        .fields
        .iter()
        .map(|field| JsonField {
            name: field.name,
            offset: field.offset,
            length: field.len,
            value: match &field.value {
                FieldValue::Number(number) => JsonValue::Number(*number),
                FieldValue::Hex(number) => JsonValue::Flags(*number),
                FieldValue::Bytes(bytes) => JsonValue::Bytes(hex(bytes)),
                FieldValue::Text(text) => JsonValue::Text(text),
            },
        })
        .collect();
    Line::new("record")
        .field("structure", record.kind)
        .field("depth", record.depth)
        .field("fields", fields)
        .write(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_table_of_offset_length_name_and_value() {
        let field = |name, offset, len, value| Field { name, offset, len, value };
        let record = Record {
            kind: "super block",
            depth: 0,
            fields: vec![
                field("s_inodes_count", 1024, 4, FieldValue::Number(16)),
                field("s_magic", 1080, 2, FieldValue::Hex(0xef53)),
                field("s_uuid", 1128, 16, FieldValue::Bytes((0..16).collect())),
                field(
                    "s_volume_name",
                    1144,
                    16,
                    FieldValue::Bytes(b"a\x1bb\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()),
                ),
                field("s_last_mounted", 1160, 64, FieldValue::Bytes([b"/mnt", &[0; 60][..]].concat())),
                field("data", 2048, 40, FieldValue::Bytes([[7; 32].as_slice(), b"abcdefgh"].concat())),
            ],
        };
        let mut out = Vec::new();
        write_record(&mut out, &record).unwrap();
        let expected = "\
super block
         1024      4  s_inodes_count              16
         1080      2  s_magic                     0xef53
         1128     16  s_uuid                      00010203-0405-0607-0809-0a0b0c0d0e0f
         1144     16  s_volume_name               611b6200000000000000000000000000
         1160     64  s_last_mounted              \"/mnt\"
         2048     40  data
         2048  07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07  ................
            *
         2080  61 62 63 64 65 66 67 68                          abcdefgh
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
