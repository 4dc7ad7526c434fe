//! `-exec`: host commands on temporary copies of files.
//!
//! Invariant: a command never gets a symbolic link from the image, only contents: a link's target would be a name on
//! the host. For a link the copy is of the file that it leads to inside the image.
//!
//! Invariant: copies go as soon as their command has ended, so the space they take is that of one file, or of a batch.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process;

use obento::{Error, FileKind};

use super::evaluate::{Entry, Trouble};
use super::expression::Command;

/// A batch runs when it has this many files,
const BATCH_FILES: usize = 1024;
/// this many bytes of arguments (Linux promises 128 KiB for one, and some MiB for all),
const BATCH_ARGUMENTS: usize = 96 << 10;
/// or this many bytes of contents.
const BATCH_BYTES: u64 = 64 << 20;

/// Why a file could not be copied for a command.
#[derive(Debug)]
pub enum CopyFailure {
    /// Reading it failed.
    Source(Error),
    /// Writing the copy failed.
    Target(io::Error),
    /// It has no contents; `None` is a link that leads nowhere.
    NoContents(Option<FileKind>),
}

/// Runs commands.
pub struct Runner<'a> {
    commands: &'a [Command],
    batches: Vec<Batch>,
    directory: Option<tempfile::TempDir>,
    copies: u64,
    failed: bool,
}

/// The files that wait for one `-exec ... +`.
#[derive(Default)]
struct Batch {
    files: Vec<PathBuf>,
    arguments: usize,
    bytes: u64,
}

impl<'a> Runner<'a> {
    /// A runner of `commands`.
    pub fn new(commands: &'a [Command]) -> Self {
        let batches = commands.iter().map(|_| Batch::default()).collect();
        Self { commands, batches, directory: None, copies: 0, failed: false }
    }

    /// Whether a batched command has ended with something else than 0.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Runs command `index` on `entry` and answers whether it ended with 0; a batched one waits and answers true.
    pub fn run(&mut self, index: usize, entry: &Entry<'_>) -> Result<bool, Trouble> {
        let Some(command) = self.commands.get(index) else { return Ok(false) };
        if !command.words.iter().any(|word| word.as_bytes().windows(2).any(|pair| pair == b"{}")) {
            return spawn(&command.words, Some(&entry.address()));
        }
        let (path, bytes) = self.copy(entry)?;
        if !command.batched {
            let words: Vec<_> = command.words.iter().map(|word| fill(word, path.as_os_str())).collect();
            let ran = spawn(&words, Some(&entry.address()));
            remove(&path);
            return ran;
        }
        let batch = &mut self.batches[index];
        batch.arguments += path.as_os_str().len() + 1;
        batch.bytes += bytes;
        batch.files.push(path);
        let full = batch.files.len() >= BATCH_FILES
            || batch.arguments >= BATCH_ARGUMENTS
            || batch.bytes >= BATCH_BYTES;
        if full {
            self.run_batch(index)?;
        }
        Ok(true)
    }

    /// Runs what waits.
    pub fn finish(&mut self) -> Result<(), Trouble> {
        (0..self.batches.len()).try_for_each(|index| self.run_batch(index))
    }

    fn run_batch(&mut self, index: usize) -> Result<(), Trouble> {
        let batch = std::mem::take(&mut self.batches[index]);
        if batch.files.is_empty() {
            return Ok(());
        }
        let fixed = self.commands[index].words.split_last().map_or(&[][..], |(_, fixed)| fixed);
        let files = batch.files.iter().map(|path| path.as_os_str().to_owned());
        let words: Vec<_> = fixed.iter().cloned().chain(files).collect();
        let ran = spawn(&words, None);
        batch.files.iter().for_each(|path| remove(path));
        self.failed |= !matches!(ran, Ok(true));
        ran.map(drop)
    }

    /// Copies the contents of `entry` to a file of the same name in a directory of its own.
    fn copy(&mut self, entry: &Entry<'_>) -> Result<(PathBuf, u64), Trouble> {
        let kind = entry.file.target_kind()?;
        if kind != Some(FileKind::Regular) {
            return Err(failure(&CopyFailure::NoContents(kind)));
        }
        let own = self.own_directory().map_err(|error| failure(&CopyFailure::Target(error)))?;
        let path = own.join(OsStr::from_bytes(entry.name()));
        let copied = entry.file.copy_out(&path);
        if copied.is_err() {
            remove(&path);
        }
        Ok((path, copied.map_err(|error| failure(&error))?))
    }

    /// A new directory below the temporary one, which is made when first needed and nobody else may enter.
    fn own_directory(&mut self) -> io::Result<PathBuf> {
        let parent = match self.directory.take() {
            Some(directory) => directory,
            None => tempfile::Builder::new().prefix("obento-find-").tempdir()?,
        };
        let own = parent.path().join(self.copies.to_string());
        self.directory = Some(parent);
        self.copies += 1;
        std::fs::create_dir(&own)?;
        Ok(own)
    }
}

fn failure(failure: &CopyFailure) -> Trouble {
    Trouble::Command(match failure {
        CopyFailure::Source(error) => error.to_string(),
        CopyFailure::Target(error) => format!("the temporary copy: {error}"),
        CopyFailure::NoContents(None) => "the symbolic link leads nowhere".into(),
        CopyFailure::NoContents(Some(FileKind::Directory)) => {
            "-exec hands on files, and this is a directory; add -type f".into()
        }
        CopyFailure::NoContents(Some(_)) => "-exec hands on files, and this is none; add -type f".into(),
    })
}

/// Removes a copy and its directory. What cannot be removed goes with the temporary directory at the end.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    if let Some(own) = path.parent() {
        let _ = std::fs::remove_dir(own);
    }
}

/// `word` with `path` for every `{}`.
fn fill(word: &OsStr, path: &OsStr) -> OsString {
    let mut out = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(path.as_bytes());
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// Runs `words`, and answers whether they ended with 0. The command finds the address of its file in
/// `OBENTO_ADDRESS`.
fn spawn(words: &[OsString], address: Option<&[u8]>) -> Result<bool, Trouble> {
    let Some((program, arguments)) = words.split_first() else { return Ok(false) };
    let mut command = process::Command::new(program);
    command.args(arguments);
    if let Some(address) = address {
        command.env("OBENTO_ADDRESS", OsStr::from_bytes(address));
    }
    command
        .status()
        .map(|status| status.success())
        .map_err(|error| Trouble::Command(format!("cannot run {}: {error}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_filled_wherever_they_stand() {
        let fill = |word: &str| fill(OsStr::new(word), OsStr::new("/t/x"));
        assert_eq!(fill("{}"), "/t/x");
        assert_eq!(fill("a{}b{}"), "a/t/xb/t/x");
        assert_eq!(fill("{ }"), "{ }");
    }
}
