//! `obento getfattr`: extended attributes, as getfattr(1) of the package attr prints them; `setfattr --restore` reads it.
//!
//! A file is named by its path in the image without the leading slash.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use obento::address::FileSelector;
use obento::base::Feature;
use obento::vfs::Symlinks;
use obento::walk::{Step, Walk};
use obento::{Error, Node};
use regex::bytes::Regex;

use crate::context::Context;
use crate::help::page::Page;
use crate::json::{Line, hex};
use crate::open::{Found, find_all, join};
use crate::output::{Outcome, Output, go_on};
use crate::report::Report;

/// The most bytes of names and values of one file, so that a hostile file cannot exhaust memory.
const MOST: usize = 64 << 20;
const TOO_MANY: Feature = Feature::Named("a file with so many bytes of extended attributes");

/// The page of `getfattr`.
pub const PAGE: Page = Page::new(&[(
    "obento getfattr -d -m - disk.img:/usr/bin/ping",
    "Show all extended attributes of a file",
)])
.see_also(&["getfattr(1)", "xattr(7)"]);

/// Show extended attributes
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images, and files and directories in them
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
    /// Also show the values
    #[arg(short, long)]
    dump: bool,
    /// Show only the attribute NAME
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Show attributes whose name matches REGEX; - matches all
    #[arg(
        short = 'm',
        long = "match",
        value_name = "REGEX",
        default_value = "^user\\.",
        allow_hyphen_values = true
    )]
    pattern: String,
    /// Set the encoding of values. By default values are text, or base64 if they are mostly unprintable
    #[arg(short, long, value_enum, value_name = "ENCODING")]
    encoding: Option<Encoding>,
    /// Show the attributes of symbolic links, not those of their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Also show the files below directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Keep the leading slash of paths
    #[arg(long)]
    absolute_names: bool,
    /// Print only the values, unchanged
    #[arg(long)]
    only_values: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    /// Text in double quotes
    Text,
    /// Hexadecimal digits
    Hex,
    /// Base64
    Base64,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let pattern = if args.pattern == "-" { "" } else { &args.pattern };
    let pattern = Regex::new(pattern).map_err(|_| {
        Report::on("cannot use the pattern", pattern, "not a regular expression")
            .help("use - to show all attributes")
    })?;
    let symlinks = if args.no_dereference { Symlinks::Keep } else { Symlinks::Follow };
    let found = find_all(&args.paths, symlinks, context, |report| context.warn(report));
    let mut reader = Reader { args, pattern, context, out: Output::stdout() };
    for file in found {
        reader.operand(&file)?;
    }
    reader.out.finish()
}

struct Reader<'a> {
    args: &'a Args,
    pattern: Regex,
    context: &'a Context,
    out: Output,
}

impl Reader<'_> {
    fn operand(&mut self, found: &Found) -> Outcome {
        let path = match &found.location.place {
            // The names of all file systems of a disk are distinct.
            _ if found.location.is_of_whole_disk(&self.args.paths) => found.shown(),
            FileSelector::Path(path) => path.clone(),
            FileSelector::Inode(ino) => format!("#{ino}").into_bytes(),
        };
        if !self.args.recursive {
            return self.file(&found.node, &path, &found.shown());
        }
        for step in Walk::new(found.node.clone()) {
            go_on()?;
            match step {
                Ok(entry) if entry.step == Step::Leave => {}
                Ok(entry) if entry.path.is_empty() => self.file(&entry.node, &path, &found.shown())?,
                Ok(entry) => {
                    self.file(&entry.node, &join(&path, &entry.path), &join(&found.shown(), &entry.path))?;
                }
                Err(damage) => {
                    let path = join(&found.shown(), &damage.path);
                    self.context.warn(&Report::on("cannot read", path, damage.error));
                }
            }
        }
        Ok(())
    }

    /// Prints the attributes of one file. A file without attributes is omitted.
    fn file(&mut self, node: &Node, path: &[u8], shown: &[u8]) -> Outcome {
        let attributes = self.read(node, |name, error| {
            let action = match name {
                Some(name) => format!("cannot read attribute {} of", crate::report::subject(name)),
                None => "cannot read the attributes of".to_owned(),
            };
            let report = Report::on(&action, shown, error);
            let has_prefix = name.is_none_or(|name| name.contains(&b'.'));
            self.context.warn(&match error {
                Error::NotSupported if !has_prefix => {
                    report.help("the name of an attribute has a prefix, such as user.origin")
                }
                _ => report,
            });
        });
        if attributes.is_empty() {
            return Ok(());
        }
        if self.context.json() {
            for (name, value) in &attributes {
                let line = Line::new("xattr").bytes("path", shown).bytes("name", name);
                line.field("value_hex", hex(value)).write(&mut self.out)?;
            }
            return Ok(());
        }
        if self.args.only_values {
            for (_, value) in &attributes {
                self.out.write_all(value)?;
            }
            return Ok(());
        }
        let terminal = self.out.is_terminal();
        let path = quoted_path(path, self.args.absolute_names, terminal);
        self.out.write_all(&[b"# file: ", path.as_slice(), b"\n"].concat())?;
        for (name, value) in &attributes {
            self.out.write_all(&quote(name, b"=\n\r", terminal))?;
            if self.args.dump || self.args.name.is_some() {
                self.out.write_all(b"=")?;
                self.out.write_all(&encode(value, self.args.encoding, terminal))?;
            }
            self.out.write_all(b"\n")?;
        }
        Ok(self.out.write_all(b"\n")?)
    }

    /// Returns names and values, sorted by name. A value that is not printed is empty. Passes each error to `failed`, with
    /// the name of the attribute if it is known.
    fn read(&self, node: &Node, failed: impl Fn(Option<&[u8]>, Error)) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut names = match &self.args.name {
            Some(name) => vec![name.as_bytes().to_vec()],
            None => node.list_xattrs().unwrap_or_else(|error| {
                failed(None, error);
                Vec::new()
            }),
        };
        if self.args.name.is_none() {
            names.retain(|name| self.pattern.is_match(name));
        }
        names.sort();
        let has_values =
            self.args.dump || self.args.name.is_some() || self.args.only_values || self.context.json();
        let (mut attributes, mut left) = (Vec::with_capacity(names.len()), MOST);
        for name in names {
            let value = if has_values { node.get_xattr(&name) } else { Ok(Vec::new()) };
            match value {
                Ok(value) => {
                    let Some(rest) = left.checked_sub(name.len() + value.len()) else {
                        failed(None, Error::Unsupported(TOO_MANY));
                        break;
                    };
                    left = rest;
                    attributes.push((name, value));
                }
                Err(error) => failed(Some(&name), error),
            }
        }
        attributes
    }
}

/// Returns a path as it follows `# file: `, without its leading slash unless `absolute`.
pub fn quoted_path(path: &[u8], absolute: bool, terminal: bool) -> Vec<u8> {
    let path = match path.strip_prefix(b"/").filter(|_| !absolute) {
        Some(b"") => b".",
        Some(relative) => relative,
        None => path,
    };
    quote(path, b"\n\r", terminal)
}

/// Escapes backslashes and the bytes of `special` in octal; on a terminal all unprintable bytes.
fn quote(text: &[u8], special: &[u8], terminal: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &b in text {
        if b == b'\\' || special.contains(&b) || (terminal && is_unsafe(b)) {
            octal(&mut out, b);
        } else {
            out.push(b);
        }
    }
    out
}

/// Returns whether a byte is escaped on a terminal: a value has no known encoding, so all bytes beyond ASCII are.
fn is_unsafe(b: u8) -> bool {
    !(b' '..=b'~').contains(&b)
}

fn octal(out: &mut Vec<u8>, b: u8) {
    out.extend_from_slice(format!("\\{b:03o}").as_bytes());
}

fn encode(value: &[u8], encoding: Option<Encoding>, terminal: bool) -> Vec<u8> {
    let encoding =
        encoding.unwrap_or_else(|| if is_mostly_text(value) { Encoding::Text } else { Encoding::Base64 });
    match encoding {
        Encoding::Text => {
            let mut out = vec![b'"'];
            // A final NUL is part of a C string, not of the text.
            for &b in value.strip_suffix(b"\0").unwrap_or(value) {
                match b {
                    b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
                    0 | b'\n' | b'\r' => octal(&mut out, b),
                    b if terminal && is_unsafe(b) => octal(&mut out, b),
                    b => out.push(b),
                }
            }
            out.push(b'"');
            out
        }
        Encoding::Hex => [b"0x", hex(value).as_bytes()].concat(),
        Encoding::Base64 => [b"0s", base64(value).as_bytes()].concat(),
    }
}

/// Returns whether at most an eighth of the bytes is unprintable (well_enough_printable in getfattr.c).
fn is_mostly_text(value: &[u8]) -> bool {
    let text = value.strip_suffix(b"\0").unwrap_or(value);
    text.len() >= text.iter().filter(|b| is_unsafe(**b)).count() * 8
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (word >> (18 - 6 * digit) & 63) as usize;
            out.push(if digit <= group.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_look_like_those_of_getfattr() {
        let text = |value: &[u8]| String::from_utf8(encode(value, None, false)).unwrap();
        assert_eq!(text(b"hello"), "\"hello\"");
        assert_eq!(text(b"a\"b\\c"), "\"a\\\"b\\\\c\"");
        assert_eq!(text(b"a\0"), "\"a\"");
        assert_eq!(text(b""), "\"\"");
        assert_eq!(text(b"\0\x01\xff\x02"), "0sAAH/Ag==");
        assert_eq!(text(b"hello world hello\x01"), "\"hello world hello\x01\"");
        assert_eq!(encode(b"hello world hello\x01", None, true), b"\"hello world hello\\001\"");
    }

    #[test]
    fn base64_is_padded() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
    }
}
