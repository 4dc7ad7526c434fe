//! `--check`: compares files with the checksums of lists that GNU coreutils, `b3sum` or obento wrote.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use obento::Error;
use obento::address::{FileSelector, Operand, PartSelector, is_server};
use obento::base::FileKind;
use obento::driver::Access;
use obento::vfs::Symlinks;

use super::{Algorithm, Args, Sum, each};
use crate::cause::Cause;
use crate::context::Context;
use crate::files::{Input, Said, Task};
use crate::input;
use crate::json::Line as JsonLine;
use crate::open::{self, BareOperand, Location, PartName, join};
use crate::output::{Outcome, Output};
use crate::report::{HELP, Report, printable, shell_word};

/// A line of a list.
struct Item {
    name: Vec<u8>,
    /// The checksum in lower case.
    sum: String,
}

/// The sums of the output.
#[derive(Default)]
struct Tally {
    items: usize,
    malformed: usize,
    unread: usize,
    different: usize,
    verified: usize,
}

pub fn run(algorithm: Algorithm, args: &Args, context: &Context) -> Outcome {
    let mut tally = Tally::default();
    let mut items = Vec::new();
    let mut without = Vec::new();
    for path in &args.paths {
        let bytes = input::read("cannot read", path).map_err(|report| match open::operand(path, context) {
            Ok(Operand::Image(_)) => report.help(format!(
                "a list is a file of the host; to read one from an image, use 'obento cat {} | obento {} -c -'",
                shell_word(path.as_bytes()),
                algorithm.command()
            )),
            _ => report,
        })?;
        let before = items.len();
        for (index, line) in bytes.split(|&byte| byte == if args.zero { 0 } else { b'\n' }).enumerate() {
            match parse(algorithm, line, args.zero) {
                Some(item) => items.push(item),
                None if line.is_empty() || line.starts_with(b"#") => {}
                None => {
                    tally.malformed += 1;
                    if args.warn {
                        let what = format!("line {} is not a {} checksum", index + 1, algorithm.title());
                        context.note(path.as_bytes(), what);
                    }
                }
            }
        }
        if items.len() == before {
            let cause = format!("the list contains no {} checksum", algorithm.title());
            without.push(Report::on("cannot check", path.as_bytes(), cause));
        }
    }
    tally.items = items.len();
    let last = if items.is_empty() { without.pop() } else { None };
    // The files of these lists are not verified, and those of the others are.
    without.iter().for_each(|report| context.warn(report));
    if let Some(report) = last {
        return Err(report.into());
    }
    let places = open_items(&items, args.root.as_deref(), context)?;
    let tasks = places.into_iter().enumerate().filter_map(|(index, place)| task(index, place, args));
    let mut checker = Checker { algorithm, args, context, items: &items, tally, out: Output::stdout() };
    each(algorithm, tasks, |said| checker.take(said))?;
    checker.finish()
}

/// Parses `SUM  NAME`, `SUM *NAME` or `ALGORITHM (NAME) = SUM`. A backslash at the start means that the name is escaped.
fn parse(algorithm: Algorithm, line: &[u8], is_literal: bool) -> Option<Item> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) if !is_literal => (rest, true),
        _ => (line, false),
    };
    let tagged = line.strip_prefix(algorithm.name().as_bytes()).and_then(|rest| rest.strip_prefix(b" ("));
    let (name, sum) = match tagged {
        Some(rest) => {
            let at = rest.windows(4).rposition(|window| window == b") = ")?;
            (&rest[..at], &rest[at + 4..])
        }
        None => {
            let (sum, rest) = line.split_at_checked(algorithm.len() * 2)?;
            let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
            (name, sum)
        }
    };
    let is_sum = sum.len() == algorithm.len() * 2 && sum.iter().all(u8::is_ascii_hexdigit);
    if !is_sum || name.is_empty() {
        return None;
    }
    let name = if is_escaped { unescaped(name)? } else { name.to_vec() };
    Some(Item { name, sum: String::from_utf8_lossy(sum).to_ascii_lowercase() })
}

/// Returns a name with its backslashes and line ends escaped.
pub fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for &byte in name {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            byte => out.push(byte),
        }
    }
    out
}

fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(out)
}

/// The place of a file, or the reason why its image cannot be opened.
type Opened = Result<Location, Report>;

/// Opens the images of all items, and gives up rights.
fn open_items(items: &[Item], root: Option<&OsStr>, context: &Context) -> Result<Vec<Opened>, Report> {
    if let Some(root) = root {
        open::seal_before_decoding([&root.to_owned()], BareOperand::Image, Access::ReadOnly, context);
        if let Some(opened) = open_in_partitions(items, root, context)? {
            return Ok(opened);
        }
        let top = open::open(root, context)?;
        context.seal();
        let FileSelector::Path(base) = top.place.clone() else {
            return Err(Report::on("cannot check", root.as_bytes(), "not a path of a directory"));
        };
        // The list of another image: its name is replaced, unless a directory has this name.
        let image = common_image(items).filter(|image| {
            let first = join(&base, image.strip_suffix(b"/").unwrap_or(image));
            top.volume.resolve(&FileSelector::Path(first), Symlinks::Keep).is_err()
        });
        let place = |item: &Item| {
            let name = image.and_then(|image| item.name.strip_prefix(image)).unwrap_or(&item.name);
            let name = name.strip_prefix(b"./").unwrap_or(name);
            let name = name.strip_prefix(b"/").unwrap_or(name);
            Ok(Location { place: FileSelector::Path(join(&base, name)), ..top.clone() })
        };
        return Ok(items.iter().map(place).collect());
    }
    let names: Vec<OsString> = items.iter().map(|item| OsString::from_vec(item.name.clone())).collect();
    // A list is data: it must not start programs or connect to hosts.
    let images = names.iter().filter(|name| !names_server(name, context));
    open::seal_before_decoding(images, BareOperand::HostFile, Access::ReadOnly, context);
    let is_image = |name: &OsString| matches!(open::operand(name, context), Ok(Operand::Image(_)) | Err(_));
    if items.len() > 1 && !names.iter().any(is_image) {
        let cause = format!("none of the {} names is a path inside an image", items.len());
        let report = Report::new("cannot check the list", cause);
        return Err(report.help("name the directory that the list describes with --root IMAGE:/DIR"));
    }
    let open = |name: &OsString| match open::operand(name, context)? {
        Operand::Image(_) if names_server(name, context) => {
            let report = Report::on("cannot check", name.as_bytes(), "a list cannot name a server");
            Err(report.help("name the directory that the list describes with --root 'SERVER:/DIR'"))
        }
        Operand::Image(_) => open::open(name, context),
        _ => {
            let report = Report::on("cannot check", name.as_bytes(), "not a path inside an image");
            Err(report.help("name the directory that the list describes with --root IMAGE:/DIR"))
        }
    };
    let opened = names.iter().map(open).collect();
    context.seal();
    Ok(opened)
}

/// Opens the partitions of the disk `root` that the items name, and gives up rights. Returns `None` if `root` names one
/// volume, or if an item names no partition of the disk that the others name.
fn open_in_partitions(
    items: &[Item],
    root: &OsStr,
    context: &Context,
) -> Result<Option<Vec<Opened>>, Report> {
    let mut disk = open::address(root, context)?;
    // The root directory of a disk is that of all partitions.
    disk.place = disk.place.filter(|place| *place != FileSelector::Path(b"/".to_vec()));
    let names: Option<Vec<_>> = items.iter().map(|item| PartName::split(&item.name)).collect();
    let Some(names) = names.filter(|_| open::is_of_several_volumes(&disk, context)) else { return Ok(None) };
    if names.windows(2).any(|two| two[0].image != two[1].image) {
        return Ok(None);
    }
    let mut volumes: HashMap<&[u8], Opened> = HashMap::new();
    let mut opened = Vec::new();
    for PartName { part, path, .. } in names {
        let volume = volumes.entry(part).or_insert_with(|| {
            let part = PartSelector::parse(part).map_err(Report::plain)?;
            open::open_address(open::part_address(&disk, part), context)
        });
        let place = FileSelector::Path(path.to_vec());
        opened.push(volume.clone().map(|top| Location { place, ..top }));
    }
    context.seal();
    Ok(Some(opened))
}

/// Returns the image of `root` if the names of all items start with the directory that `root` names, so that each
/// name would contain it twice.
fn image_of_names<'r>(root: &'r [u8], items: &[Item]) -> Option<&'r [u8]> {
    let end = root.windows(2).rposition(|two| two == b":/")?;
    let directory = &root[end + 1..];
    let prefix = [directory.strip_suffix(b"/").unwrap_or(directory), &b"/"[..]].concat();
    let below = |item: &Item| {
        let name = common_image(std::slice::from_ref(item)).map_or(0, |image| image.len() - 1);
        let name = item.name[name..].strip_prefix(b"./").unwrap_or(&item.name[name..]);
        [&b"/"[..], name.strip_prefix(b"/").unwrap_or(name)].concat().starts_with(&prefix)
    };
    (prefix != b"/" && items.iter().all(below)).then_some(&root[..end])
}

/// Returns the image with which all names start, as `obento` prints it: `disk.img:/` or `disk.img@2:/`.
fn common_image(items: &[Item]) -> Option<&[u8]> {
    let first = &items.first()?.name;
    let end = first.windows(2).position(|two| two == b":/")? + 2;
    let image = &first[..end];
    items.iter().all(|item| item.name.starts_with(image)).then_some(image)
}

/// Returns whether a name of a list would start a server or connect to one. In a shell, `fuse:x` is a path in its image,
/// and `image:` precedes an address.
fn names_server(name: &OsStr, context: &Context) -> bool {
    match context.inside() {
        Some(_) => name.as_bytes().strip_prefix(b"image:").map(OsStr::from_bytes).is_some_and(is_server),
        None => is_server(name),
    }
}

/// Returns the task of a place. With `--ignore-missing`, a file that does not exist has none.
fn task(index: usize, place: Opened, args: &Args) -> Option<Result<Task, Report>> {
    let location = match place {
        Ok(location) => location,
        Err(report) => return Some(Err(report)),
    };
    let shown = location.shown();
    let failed = |cause: &dyn Cause| Some(Err(Report::on("cannot read", &shown, cause)));
    let node = match location.volume.resolve(&location.place, Symlinks::Follow) {
        Ok(node) => node,
        Err(Error::NotFound) if args.ignore_missing => return None,
        Err(error) => return Some(Err(location.not_found("cannot read", error))),
    };
    match node.attr() {
        Ok(attr) if attr.kind == FileKind::Regular => {
            let size = attr.size;
            Some(Ok(Task { shown, input: Input::Image(node), size, index, is_alone: true }))
        }
        Ok(attr) if attr.is_dir() => failed(&"is a directory"),
        Ok(attr) => failed(&crate::format::mode::not_regular(attr.kind)),
        Err(error) => failed(&error),
    }
}

struct Checker<'a> {
    algorithm: Algorithm,
    args: &'a Args,
    context: &'a Context,
    items: &'a [Item],
    tally: Tally,
    out: Output,
}

impl Checker<'_> {
    fn take(&mut self, said: Said<Sum>) -> Outcome {
        match said {
            Said::Done(Sum { index, sum: Ok(sum), .. }) => {
                let is_same = self.items.get(index).is_some_and(|item| item.sum == sum);
                match is_same {
                    true => self.tally.verified += 1,
                    false => self.tally.different += 1,
                }
                self.line(index, if is_same { "OK" } else { "FAILED" })?;
            }
            Said::Done(Sum { index, shown, sum: Err(error) }) => {
                self.context.warn(&Report::on("cannot read", shown, error));
                self.tally.unread += 1;
                self.line(index, "FAILED open or read")?;
            }
            Said::Fault(report) => {
                self.context.warn(&report);
                self.tally.unread += 1;
            }
            Said::Bytes(_) => {}
        }
        Ok(())
    }

    fn line(&mut self, index: usize, result: &str) -> Outcome {
        let is_silent = self.args.status || self.args.quiet && result == "OK";
        let Some(item) = self.items.get(index).filter(|_| !is_silent) else { return Ok(()) };
        if self.context.json() {
            let line = JsonLine::new("verified").bytes("path", &item.name).field("result", result);
            return Ok(line.field("algorithm", self.algorithm.name()).write(&mut self.out)?);
        }
        let needs_escape = item.name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
        match needs_escape {
            true => {
                self.out.write_all(b"\\")?;
                let name = escaped(&item.name);
                let name = self.out.shown_escaped(&name).into_owned();
                self.out.write_all(&name)?;
            }
            false => self.out.write_name(&item.name)?,
        }
        Ok(writeln!(self.out, ": {result}")?)
    }

    fn finish(self) -> Outcome {
        let Tally { items, malformed, unread, different, verified } = self.tally;
        let is_silent = self.args.status;
        // The counts of several lists are added.
        let list = match &self.args.paths[..] {
            [list] => format!("{}: ", printable(list.as_bytes())),
            _ => String::new(),
        };
        let report = |count: usize, one: &str, several: &str| {
            if count > 0 && !is_silent {
                let what = if count == 1 { one } else { several };
                self.context.messages().print_line(&format!("{list}{count} {what}"));
            }
        };
        report(malformed, "line is malformed", "lines are malformed");
        report(unread, "file could not be read", "files could not be read");
        let root = self.args.root.as_deref().filter(|_| unread == self.items.len() && !is_silent);
        if let Some(image) = root.and_then(|root| image_of_names(root.as_bytes(), self.items)) {
            let image = shell_word(image);
            let help = format!("the names in the list start at the root directory: use --root {image}");
            self.context.messages().print_line(&format!("{list}no file was found{HELP}{help}"));
        }
        report(different, "checksum does not match", "checksums do not match");
        let is_nothing_verified = self.args.ignore_missing && verified == 0 && different == 0;
        if is_nothing_verified && unread == 0 && !is_silent {
            let text = match items {
                1 => format!("{list}the listed file does not exist"),
                _ => format!("{list}none of the {items} listed files exists"),
            };
            self.context.messages().print_line(&text);
        }
        if different > 0 || unread > 0 || is_nothing_verified || self.args.strict && malformed > 0 {
            self.context.raise(1);
        }
        self.out.finish()
    }
}
