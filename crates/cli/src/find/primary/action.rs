//! Actions: what is done to one file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::{Answer, argument};
use crate::find::expression::{Action, Consent, ExecCommand, Expr, OutputIndex, RunIn};
use crate::find::format::PrintfFormat;
use crate::find::parse::{Parser, Result, SyntaxError};

/// The action `name`, if it is one.
pub(super) fn parse(parser: &mut Parser<'_>, name: &str) -> Answer {
    prints(parser, name).or_else(|| actions(parser, name))
}

/// Actions that write. Those whose name begins with `-f` take a host file first.
fn prints(parser: &mut Parser<'_>, name: &str) -> Answer {
    let plain = match name {
        "-fprint" => "-print",
        "-fprint0" => "-print0",
        "-fprintf" => "-printf",
        "-fls" => "-ls",
        other => other,
    };
    if !["-print", "-print0", "-printf", "-ls"].contains(&plain) {
        return None;
    }
    parser.has_action = true;
    Some(output(parser, name, plain != name).and_then(|output| {
        parser.formatted |= output == OutputIndex(0) && plain != "-print";
        Ok(Expr::Act(match plain {
            "-print" => Action::Print(output),
            "-print0" => Action::Print0(output),
            "-ls" => Action::Ls(output),
            _ => {
                let text = argument(parser, name)?;
                let format = PrintfFormat::parse(text.as_bytes(), &mut parser.warnings)
                    .map_err(|error| SyntaxError::new(format!("{name}: {error}")))?;
                Action::Printf(output, format)
            }
        }))
    }))
}

/// Standard output, or the host file that is the next argument; the same name is the same file.
fn output(parser: &mut Parser<'_>, name: &str, to_file: bool) -> Result<OutputIndex> {
    if !to_file {
        return Ok(OutputIndex(0));
    }
    let path = argument(parser, name)?;
    let known = parser.outputs.iter().position(|known| known == path);
    let index = known.unwrap_or_else(|| {
        parser.outputs.push(path.to_owned());
        parser.outputs.len() - 1
    });
    Ok(OutputIndex(index + 1))
}

/// Actions that do something else.
fn actions(parser: &mut Parser<'_>, name: &str) -> Answer {
    Some(match name {
        "-prune" => Ok(Expr::Act(Action::Prune)),
        "-quit" => Ok(Expr::Act(Action::Quit)),
        "-exec" | "-execdir" | "-ok" | "-okdir" => {
            parser.has_action = true;
            exec(parser, name)
        }
        "-delete" => {
            let error = SyntaxError::new("-delete is not supported: find does not change the image");
            Err(error.help("use 'obento rm' to remove files"))
        }
        _ => return None,
    })
}

/// `-exec words ;` or `-exec words {} +`, and the same with a question first, or in a directory of the file's own.
fn exec(parser: &mut Parser<'_>, name: &str) -> Result<Expr> {
    let consent = if name.starts_with("-ok") { Consent::Asked } else { Consent::Given };
    let place = if name.ends_with("dir") { RunIn::Directory } else { RunIn::Here };
    let mut words: Vec<OsString> = Vec::new();
    let batched = loop {
        let word = parser.next().ok_or_else(|| {
            SyntaxError::new(format!("the command of {name} has no end"))
                .help("end the command with ';' (in most shells \\;) or with {} +")
        })?;
        match word.as_bytes() {
            b";" => break false,
            b"+" if consent == Consent::Given && words.last().is_some_and(|last| last == "{}") => break true,
            _ => words.push(word.to_owned()),
        }
    };
    let places = words.iter().filter(|word| word.as_bytes().windows(2).any(|pair| pair == b"{}")).count();
    if words.is_empty() || (batched && words.len() == 1) {
        return Err(SyntaxError::new(format!("{name} requires a command")));
    }
    if batched && places != 1 {
        return Err(SyntaxError::new(format!("{name} ... + requires {{}} exactly once, as the last word")));
    }
    if place == RunIn::Directory {
        safe_path(name, parser.world.search_path().as_deref())?;
    }
    parser.commands.push(ExecCommand { words, batched, consent, place });
    Ok(Expr::Act(Action::Exec(parser.commands.len() - 1)))
}

/// A program that is searched for where the command runs would be a file of the image.
fn safe_path(name: &str, path: Option<&OsStr>) -> Result<()> {
    let mut folders = path.into_iter().flat_map(|path| path.as_bytes().split(|&byte| byte == b':'));
    match folders.find(|folder| !folder.starts_with(b"/")) {
        Some(folder) => {
            let shown = String::from_utf8_lossy(folder);
            Err(SyntaxError::new(format!(
                "PATH contains '{shown}', and {name} would run programs of the image"
            ))
            .help("remove this directory, and any ':' at the start or end, from PATH"))
        }
        None => Ok(()),
    }
}
