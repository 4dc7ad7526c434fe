//! `obento cat`: prints files.

use std::ffi::OsString;
use std::io::{self, Read, Write};

use obento::Node;
use obento::base::FileKind;
use obento::driver::Access;
use obento::vfs::Symlinks;

use crate::cause::Cause;
use crate::context::Context;
use crate::files::StreamError;
use crate::help::page::Page;
use crate::open::{BareOperand, Opened, open_file, seal_before_decoding};
use crate::output::{Outcome, Output, go_on};
use crate::report::Report;

/// The number of bytes that are moved at once.
const CHUNK: usize = 1 << 20;

/// The page of `cat`.
pub const PAGE: Page =
    Page::new(&[("obento cat disk.img:/etc/os-release", "Print a file")]).see_also(&["cat(1)"]);

/// Print files to standard output
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images; - is standard input
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    seal_before_decoding(&args.paths, BareOperand::HostFile, Access::ReadOnly, context);
    let opened: Vec<_> = args.paths.iter().map(|path| open_file(path, context)).collect();
    context.seal();
    let mut out = Output::stdout();
    let mut buffer = vec![0; CHUNK];
    for opened in opened {
        match opened {
            Ok(Opened::Stdio) => copy_stdin(&mut out, &mut buffer, context)?,
            Ok(Opened::Image(location)) => match location.find(Symlinks::Follow, "cannot read") {
                Ok(found) => {
                    for file in found {
                        copy(&file.node, &file.shown(), &mut out, &mut buffer, context)?;
                    }
                }
                Err(report) => context.warn(&report),
            },
            Err(report) => context.warn(&report),
        }
    }
    out.finish()
}

fn copy(node: &Node, shown: &[u8], out: &mut Output, buffer: &mut [u8], context: &Context) -> Outcome {
    let failed = |cause: &dyn Cause| context.warn(&Report::on("cannot read", shown, cause));
    match node.kind() {
        Ok(FileKind::Regular) => {}
        Ok(FileKind::Directory) => {
            let help = format!("to list its contents: obento ls {}", crate::report::shell_word(shown));
            context.warn(&Report::on("cannot read", shown, "is a directory").help(help));
            return Ok(());
        }
        Ok(kind) => {
            failed(&crate::format::mode::not_regular(kind));
            return Ok(());
        }
        Err(error) => {
            failed(&error);
            return Ok(());
        }
    }
    let mut offset = 0;
    loop {
        match node.read_at(offset, buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                out.write_all(&buffer[..count])?;
                offset += count as u64;
            }
            Err(error) => {
                failed(&StreamError::After { error: Box::new(error.into()), bytes: offset });
                return Ok(());
            }
        }
    }
}

fn copy_stdin(out: &mut Output, buffer: &mut [u8], context: &Context) -> Outcome {
    loop {
        match io::stdin().lock().read(buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => out.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => go_on()?,
            Err(error) => {
                context.warn(&Report::new("cannot read standard input", error));
                return Ok(());
            }
        }
    }
}
