//! `obento file`: prints what files are: the type of the inode, and of regular files the type of the contents.

mod elf;

pub use elf::machine_of;

use std::ffi::OsString;
use std::io::Write as _;
use std::ops::ControlFlow;

use obento::Node;
use obento::base::FileKind;
use obento::vfs::Symlinks;

use crate::context::Context;
use crate::files::{
    Below, Input, Piece, Results, Said, Stream, StreamError, Task, Tasks, in_order, open_all,
};
use crate::help::page::Page;
use crate::json::Line;
use crate::output::{Outcome, Output};
use crate::report::{Report, printable};

/// The bytes from the start that the contents are recognised by. The signature of tar is at byte 257, and that of ISO 9660 at 32769.
const HEAD: usize = 64 << 10;

/// The page of `file`.
pub const PAGE: Page = Page::new(&[
    ("obento file 'disk.img:/usr/bin/*'", "Print the types of the files in a directory"),
    ("obento file -bi disk.img:/srv/upload", "Print the MIME type of a file"),
])
.see_also(&["file(1)"]);

/// Print the types of files
///
/// The first bytes of a file determine its type. file(1) recognises more types.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images; - is standard input
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Do not print names
    #[arg(short, long)]
    brief: bool,
    /// Print MIME types
    #[arg(short = 'i', long)]
    mime: bool,
    /// Follow symbolic links that are operands
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Examine all files below directories
    #[arg(short, long)]
    recursive: bool,
    /// Print NUL after names
    #[arg(short = '0', long)]
    print0: bool,
}

/// What a file is, in words and as a MIME type.
struct Kind {
    words: String,
    mime: String,
}

impl Kind {
    fn new(words: impl Into<String>, mime: impl Into<String>) -> Self {
        Self { words: words.into(), mime: mime.into() }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let below = if args.recursive { Below::Read(Symlinks::Keep) } else { Below::Refuse };
    let opened = open_all(&args.paths, below, context);
    let symlinks = if args.dereference { Symlinks::Follow } else { Symlinks::Keep };
    let tasks = Tasks::new(opened, below).every_kind(symlinks);
    let mut out = Output::stdout();
    let work = |task: &Task, sink: &mut Results<'_, (Vec<u8>, Kind)>| match kind_of(task) {
        Ok(kind) => sink.done((task.shown.clone(), kind)),
        Err(error) => sink.fault(Report::on("cannot read", &task.shown, error)),
    };
    in_order(tasks, work, |said| {
        match said {
            Said::Done((shown, kind)) => print(args, &shown, &kind, context, &mut out)?,
            Said::Fault(report) => context.warn(&report),
            Said::Bytes(_) => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    out.finish()
}

fn print(args: &Args, shown: &[u8], kind: &Kind, context: &Context, out: &mut Output) -> Outcome {
    if context.json() {
        let line = Line::new("contents").bytes("path", shown);
        return Ok(line.field("description", &kind.words).field("mime", &kind.mime).write(out)?);
    }
    if !args.brief {
        out.write_name(shown)?;
        out.write_all(if args.print0 { b"\0 " } else { b": " })?;
    }
    Ok(writeln!(out, "{}", if args.mime { &kind.mime } else { &kind.words })?)
}

fn kind_of(task: &Task) -> Result<Kind, StreamError> {
    if let Input::Image(node) = &task.input {
        let attr = node.attr()?;
        let special = |words: String, mime: &str| Ok(Kind::new(words, format!("inode/{mime}")));
        match attr.kind {
            FileKind::Regular if attr.size == 0 => return special("empty".into(), "x-empty"),
            FileKind::Regular => {}
            FileKind::Directory => return special("directory".into(), "directory"),
            FileKind::Symlink => return special(link(node)?, "symlink"),
            FileKind::Fifo => return special("fifo (named pipe)".into(), "fifo"),
            FileKind::Socket => return special("socket".into(), "socket"),
            kind @ (FileKind::CharDevice | FileKind::BlockDevice) => {
                let (name, mime) = match kind {
                    FileKind::CharDevice => ("character", "chardevice"),
                    _ => ("block", "blockdevice"),
                };
                return special(format!("{name} special ({}/{})", attr.rdev.major, attr.rdev.minor), mime);
            }
        }
    }
    let (head, is_whole) = head(task)?;
    Ok(contents(&head, is_whole))
}

fn link(node: &Node) -> Result<String, obento::Error> {
    Ok(format!("symbolic link to {}", printable(&node.read_link()?)))
}

/// Returns the first bytes, and whether they are all.
fn head(task: &Task) -> Result<(Vec<u8>, bool), StreamError> {
    let mut head = vec![0; HEAD];
    let (mut stream, mut filled) = (Stream::new(&task.input), 0);
    while filled < HEAD {
        match stream.next(&mut head[filled..])? {
            Piece::Data(len) => filled += len,
            Piece::Hole(len) => {
                let end = usize::try_from(len).map_or(HEAD, |len| filled.saturating_add(len).min(HEAD));
                head[filled..end].fill(0);
                filled = end;
            }
            Piece::End => {
                head.truncate(filled);
                return Ok((head, true));
            }
        }
    }
    Ok((head, task.size == HEAD as u64))
}

/// Recognises contents by their first bytes.
fn contents(head: &[u8], is_whole: bool) -> Kind {
    if head.is_empty() {
        return Kind::new("empty", "inode/x-empty");
    }
    if let Some(kind) = elf::describe(head) {
        return kind;
    }
    let script = script(head);
    // A script is text, whatever its language.
    let known = infer::get(head).filter(|_| script.is_none());
    if let Some(kind) = known {
        return Kind::new(format!("{} ({})", kind.mime_type(), kind.extension()), kind.mime_type());
    }
    match (text(head, is_whole), script) {
        (Some(text), Some(interpreter)) => {
            let words = format!("script for {}, {}", printable(interpreter), text.words);
            Kind::new(words, text.mime.replace("text/plain", "text/x-script"))
        }
        (Some(text), None) => text,
        (None, _) if head.iter().all(|&byte| byte == 0) => Kind::new("zeros", "application/octet-stream"),
        (None, _) => Kind::new("data", "application/octet-stream"),
    }
}

/// Returns the interpreter in the first line of a script.
fn script(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    Some(line.trim_ascii()).filter(|line| !line.is_empty())
}

/// Recognises text in ASCII, UTF-8 and UTF-16, and 8-bit text without control characters.
fn text(head: &[u8], is_whole: bool) -> Option<Kind> {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 8 | 12 | 27 | b' '..=b'~' | 128..);
    let marks = [(&b"\xff\xfe"[..], "little", "utf-16le"), (b"\xfe\xff", "big", "utf-16be")];
    let utf16 = marks.iter().find(|(mark, ..)| head.starts_with(mark));
    if let Some((_, order, charset)) = utf16 {
        let words = format!("UTF-16 text, {order}-endian");
        return Some(Kind::new(words, format!("text/plain; charset={charset}")));
    }
    if !head.iter().all(is_text) {
        return None;
    }
    let (name, charset) = match str::from_utf8(head) {
        Ok(_) if head.is_ascii() => ("ASCII text", "us-ascii"),
        Ok(_) => ("UTF-8 text", "utf-8"),
        // The last character continues behind the first bytes.
        Err(error) if error.error_len().is_none() && !is_whole => ("UTF-8 text", "utf-8"),
        Err(_) => ("8-bit text", "unknown-8bit"),
    };
    let crlf = head.windows(2).filter(|pair| pair == b"\r\n").count();
    let lf = memchr::memchr_iter(b'\n', head).count();
    let ends = match (lf, crlf) {
        (0, _) if is_whole => ", with no line terminators",
        (lf, crlf) if crlf > 0 && crlf == lf => ", with CRLF line terminators",
        (_, crlf) if crlf > 0 => ", with CRLF, LF line terminators",
        _ => "",
    };
    Some(Kind::new(format!("{name}{ends}"), format!("text/plain; charset={charset}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_recognised_by_their_first_bytes() {
        for (bytes, words, mime) in [
            (&b"hello\n"[..], "ASCII text", "text/plain; charset=us-ascii"),
            (b"hello", "ASCII text, with no line terminators", "text/plain; charset=us-ascii"),
            (b"a\r\nb\r\n", "ASCII text, with CRLF line terminators", "text/plain; charset=us-ascii"),
            ("\u{e9}\n".as_bytes(), "UTF-8 text", "text/plain; charset=utf-8"),
            (b"caf\xe9\n", "8-bit text", "text/plain; charset=unknown-8bit"),
            (b"\xff\xfea\0", "UTF-16 text, little-endian", "text/plain; charset=utf-16le"),
            (b"#!/bin/sh -e\nls\n", "script for /bin/sh -e, ASCII text", "text/x-script; charset=us-ascii"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png (png)", "image/png"),
            (b"\x1f\x8b\x08\0\0\0\0\0", "application/gzip (gz)", "application/gzip"),
            (b"\0\0\0\0", "zeros", "application/octet-stream"),
            (b"\x01\x02\x03\x04", "data", "application/octet-stream"),
            (b"", "empty", "inode/x-empty"),
        ] {
            let kind = contents(bytes, true);
            assert_eq!((kind.words.as_str(), kind.mime.as_str()), (words, mime));
        }
    }
}
