//! `obento setfattr`: sets and removes extended attributes as setfattr(1) of the package attr does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use obento::address::FileSelector;
use obento::base::FileKind;
use obento::copy::Shortage;
use obento::driver::XattrMode;
use obento::host::base64;
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use crate::change::{Done, each_file, each_place, immutable};
use crate::context::Context;
use crate::help::page::Page;
use crate::input;
use crate::open::{Location, PartName, join};
use crate::output::Outcome;
use crate::parse::escape::digits;
use crate::report::{Report, subject};

/// The page of `setfattr`.
pub const PAGE: Page =
    Page::new(&[("obento setfattr -n user.origin -v build-42 disk.img:/app", "Set an extended attribute")])
        .see_also(&["setfattr(1)", "xattr(7)"]);

/// Set and remove extended attributes
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "obento setfattr [OPTIONS] --name <NAME> <IMAGE:PATH>...\n       obento setfattr [OPTIONS] --remove <NAME> <IMAGE:PATH>...\n       obento setfattr [OPTIONS] --restore <FILE> <IMAGE:PATH>...",
    group = clap::ArgGroup::new("action").required(true).args(["name", "remove", "restore"])
)]
pub struct Args {
    /// Files and directories in images
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Set the attribute NAME
    #[arg(short, long)]
    name: Option<OsString>,
    /// The value: text, "text" with \" \\ and \ooo, 0xHEX or 0sBASE64
    #[arg(short, long, requires = "name", allow_hyphen_values = true)]
    value: Option<OsString>,
    /// Remove the attribute NAME
    #[arg(short = 'x', long, value_name = "NAME")]
    remove: Option<OsString>,
    /// Change symbolic links instead of their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Restore the attributes from FILE, which getfattr -d wrote; - is standard input. The operand is the directory
    /// to which the paths are relative
    #[arg(long, value_name = "FILE")]
    restore: Option<OsString>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if let Some(file) = &args.restore {
        return restore(args, file, context);
    }
    let value = args.value.as_deref().unwrap_or_default().as_bytes();
    let value = decode(value).ok_or_else(|| {
        let wanted = match value.get(1) {
            Some(b'x' | b'X') => "0x must be followed by pairs of hexadecimal digits",
            _ => "0s must be followed by base64",
        };
        Report::on("invalid value", value, wanted)
            .help("put a text that starts with 0x or 0s in double quotes")
    })?;
    let symlinks = if args.no_dereference { Symlinks::Keep } else { Symlinks::Follow };
    each_file(&args.paths, symlinks, "cannot access", context, |found| match (&args.name, &args.remove) {
        (Some(name), _) => set(&found.node, name.as_bytes(), &value, &found.shown()),
        (None, Some(name)) => {
            let removed = found.node.vfs().remove_xattr(&Caller::Owner, &found.node, name.as_bytes());
            let what = format!("cannot remove attribute {} of", subject(name.as_bytes()));
            removed.map_err(|error| immutable(Report::on(&what, found.shown(), error), error, found.shown()))
        }
        (None, None) => Ok(()),
    });
    Ok(())
}

fn set(node: &Node, name: &[u8], value: &[u8], shown: &[u8]) -> Done {
    let done = node.vfs().set_xattr(&Caller::Owner, node, name, value, XattrMode::Set);
    done.map_err(|error| {
        let action = format!("cannot set attribute {} of", subject(name));
        if let Some(shortage) = Shortage::of_attribute(node.vfs(), error, value.len()) {
            return Report::on(&action, shown, shortage);
        }
        let report = Report::on(&action, shown, error);
        let kind = node.kind();
        match error {
            Error::NotSupported if node.get_xattr(b"user.any") == Err(Error::NotSupported) => {
                Report::on(&action, shown, "the file system does not support extended attributes")
            }
            Error::NotPermitted
                if name.starts_with(b"user.")
                    && !matches!(kind, Ok(FileKind::Regular | FileKind::Directory)) =>
            {
                let cause = "only regular files and directories have attributes with the prefix user.";
                Report::on(&action, shown, cause)
            }
            Error::Invalid | Error::NotSupported if name.ends_with(b".") => {
                report.help("a name follows the full stop, such as user.origin")
            }
            Error::NotSupported => {
                report.help("the name of an attribute starts with user., trusted., security. or system.")
            }
            Error::OutOfRange => {
                report.help("use a name of at most 255 bytes, and a value of at most 64 KiB")
            }
            error => immutable(report, error, shown),
        }
    })
}

/// Returns the bytes that a value stands for.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => bytes_of_hex(digits),
        [b'0', b's' | b'S', digits @ ..] => base64::decode(digits),
        [b'"', inner @ .., b'"'] => Some(unescape(inner)),
        text => Some(text.to_vec()),
    }
}

/// Replaces `\"`, `\\` and `\ooo`.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            out.push(first);
            continue;
        }
        let byte = digits(&mut rest, 3, 8).or_else(|| rest.split_off_first().copied());
        out.push(byte.unwrap_or(b'\\'));
    }
    out
}

/// Returns the bytes of pairs of hexadecimal digits.
pub fn bytes_of_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

/// Reads a host file, or standard input.
pub fn read_dump(file: &OsStr) -> Result<Vec<u8>, Report> {
    input::read("cannot read", file)
}

/// Returns the place of a path of a dump below `base`, or `None` if the path is in another partition: the dump of a disk
/// with several file systems has names such as `disk.img@2:/path`.
pub fn place_below(base: &Location, name: &[u8]) -> Option<Location> {
    let below = |name: &[u8]| {
        let name = name.strip_prefix(b"/").unwrap_or(name);
        let path = match &base.place {
            FileSelector::Path(path) => join(path, name),
            FileSelector::Inode(_) => name.to_vec(),
        };
        Location { place: FileSelector::Path(path), ..base.clone() }
    };
    let place = below(name);
    let exists = || base.volume.resolve(&place.place, Symlinks::Keep).is_ok();
    match PartName::split(name) {
        Some(PartName { part, path, .. }) if base.prefix.contains(&b'@') && !exists() => {
            base.prefix.ends_with(&[b"@", part, b":"].concat()).then(|| below(path))
        }
        _ => Some(place),
    }
}

/// The start of the line that names the file of the following attributes.
const FILE: &[u8] = b"# file: ";

/// # Errors
///
/// The text of `file` names no file before its first attribute, so getfattr did not write it. An empty text is valid:
/// getfattr prints nothing for files without attributes.
fn expect_dump(dump: &[u8], file: &OsStr) -> Done {
    let mut lines =
        dump.split(|&b| b == b'\n').zip(1_u64..).filter(|(line, _)| !line.trim_ascii().is_empty());
    let is_comment = |line: &[u8]| line.starts_with(b"#") && !line.starts_with(FILE);
    let first = lines.clone().find(|(line, _)| !is_comment(line)).or_else(|| lines.next());
    match first {
        Some((line, number)) if !line.starts_with(FILE) => {
            let cause = format!("line {number} is not preceded by a line '# file: PATH'");
            let report = Report::on("cannot restore attributes from", file.as_bytes(), cause);
            Err(report.help("name a file that 'obento getfattr -d' or getfattr(1) wrote"))
        }
        _ => Ok(()),
    }
}

/// `--restore`.
fn restore(args: &Args, file: &OsString, context: &Context) -> Outcome {
    let dump = read_dump(file)?;
    expect_dump(&dump, file)?;
    let symlinks = if args.no_dereference { Symlinks::Keep } else { Symlinks::Follow };
    each_place(&args.paths, context, |base| {
        let mut at = None;
        for line in dump.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let done = match line.strip_prefix(FILE) {
                Some(name) => find(base, name, symlinks).map(|found| at = found),
                None if line.starts_with(b"#") => Ok(()),
                None => at.as_ref().map_or(Ok(()), |(node, shown)| restore_line(node, shown, line)),
            };
            if let Err(report) = done {
                if line.starts_with(FILE) {
                    at = None;
                }
                context.warn(&report);
            }
        }
        Ok(())
    });
    Ok(())
}

/// Finds the file of a path of a dump.
fn find(base: &Location, name: &[u8], symlinks: Symlinks) -> Result<Option<(Node, Vec<u8>)>, Report> {
    let Some(place) = place_below(base, &unescape(name)) else { return Ok(None) };
    let shown = place.shown();
    let node = place.volume.resolve(&place.place, symlinks);
    node.map(|node| Some((node, shown))).map_err(|error| place.not_found("cannot access", error))
}

fn restore_line(node: &Node, shown: &[u8], line: &[u8]) -> Done {
    let failed =
        || Report::on("cannot restore an attribute of", shown, format!("invalid line {}", subject(line)));
    let at = line.iter().position(|&b| b == b'=').ok_or_else(failed)?;
    let value = decode(&line[at + 1..]).ok_or_else(failed)?;
    set(node, &unescape(&line[..at]), &value, shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_parse_as_in_setfattr() {
        let value = |text: &str| decode(text.as_bytes());
        assert_eq!(value("plain\\n"), Some(b"plain\\n".to_vec()));
        assert_eq!(value("\"a\\\"b\\\\c\\001\\0\""), Some(b"a\"b\\c\x01\0".to_vec()));
        assert_eq!(value("0x00ff 1A"), Some(vec![0, 255, 26]));
        assert_eq!(value("0sZm9vYmFy"), Some(b"foobar".to_vec()));
        assert_eq!((value("0sZg=="), value("0sZg")), (Some(b"f".to_vec()), Some(b"f".to_vec())));
        assert_eq!(value(""), Some(vec![]));
        for bad in ["0x1", "0xgg", "0sZ", "0s*", "0sZg=x"] {
            assert_eq!(value(bad), None, "{bad:?}");
        }
    }
}
