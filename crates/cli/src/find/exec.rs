//! `-exec`, `-execdir`, `-ok`, `-okdir`: host commands on temporary copies of files.
//!
//! A command that runs in a directory of its own finds only the copy in that directory. With `+`, it finds the copies
//! of the files of one directory of the image.
//!
//! Invariant: a command gets contents, never a symbolic link of the image, because the target of the link
//! would be a name on the host. For a link, the copy has the contents of its target inside the image.
//!
//! Invariant: copies are removed as soon as their command has ended, so they take the space of one file
//! or of a batch.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process;

use obento::Error;
use obento::base::{FileKind, Name, NameBuf};
use obento::host::interrupt::read_line;
use obento::host::{HostDir, UnpackError};
use rustix::fs::AtFlags;

use super::evaluate::{EvaluationError, VisitedEntry};
use super::expression::{Consent, ExecCommand, RunIn};
use crate::format::mode::not_regular;
use crate::messages::print_error;
use crate::private::PrivateFolder;
use crate::report::{Report, printable};

/// The maximum number of files in a batch.
const BATCH_FILES: usize = 1024;
/// The maximum number of bytes of its arguments. Linux accepts 128 KiB for one argument, and some MiB for
/// all.
const BATCH_ARGUMENTS: usize = 96 << 10;
/// The maximum number of bytes of contents of its files.
const BATCH_BYTES: u64 = 64 << 20;

/// The reason why a file could not be copied for a command.
#[derive(Debug)]
pub enum CopyFailure {
    /// The file could not be read.
    Source(Error),
    /// The copy could not be written.
    Target(io::Error),
    /// The file has more data than the limit.
    Limit(UnpackError),
    /// The file has no contents; `None` for a link whose target does not exist.
    NoContents(Option<FileKind>),
}

/// Runs commands on copies.
pub struct Runner<'a> {
    commands: &'a [ExecCommand],
    batches: Vec<Batch>,
    directory: Option<PrivateFolder>,
    copies: u64,
    failed: bool,
}

/// The files that wait for one `-exec ... +`.
#[derive(Default)]
struct Batch {
    files: Vec<FileCopy>,
    arguments: usize,
    bytes: u64,
    /// For `-execdir`: the directory of the files in the image, and the directory of the copies.
    directory: Option<(Vec<u8>, CopyDirectory)>,
}

/// A directory for copies.
#[derive(Clone)]
struct CopyDirectory {
    parent: HostDir,
    name: NameBuf,
    dir: HostDir,
    /// For programs.
    path: PathBuf,
}

impl CopyDirectory {
    /// Removes the directory if it is empty. Otherwise, it is removed with the private folder at the end.
    fn remove(&self) {
        let _ = rustix::fs::unlinkat(self.parent.as_fd(), self.name.as_bytes(), AtFlags::REMOVEDIR);
    }
}

/// The copy of a file.
struct FileCopy {
    own: CopyDirectory,
    name: NameBuf,
    /// For programs.
    path: PathBuf,
    bytes: u64,
}

impl FileCopy {
    /// Removes the copy and its directory. If that fails, they are removed with the private folder at the end.
    fn remove(&self) {
        let _ = rustix::fs::unlinkat(self.own.dir.as_fd(), self.name.as_bytes(), AtFlags::empty());
        self.own.remove();
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.files.len() >= BATCH_FILES || self.arguments >= BATCH_ARGUMENTS || self.bytes >= BATCH_BYTES
    }
}

impl<'a> Runner<'a> {
    /// Creates a runner of `commands`.
    pub fn new(commands: &'a [ExecCommand]) -> Self {
        let batches = commands.iter().map(|_| Batch::default()).collect();
        Self { commands, batches, directory: None, copies: 0, failed: false }
    }

    /// Whether a batched command has ended with a status other than 0.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Runs command `index` on `entry`. Returns whether its status was 0. A batched command waits and
    /// returns true.
    pub fn run(&mut self, index: usize, entry: &VisitedEntry<'_>) -> Result<bool, EvaluationError> {
        let Some(command) = self.commands.get(index) else { return Ok(false) };
        if command.consent == Consent::Asked && !agrees(command, &entry.address()) {
            return Ok(false);
        }
        if command.batched {
            return self.add(index, entry).map(|()| true);
        }
        let names_file =
            command.words.iter().any(|word| word.as_bytes().windows(2).any(|pair| pair == b"{}"));
        let address = entry.address();
        if !names_file && command.place == RunIn::Here {
            return spawn(command, &command.words, None, Some(&address));
        }
        let own = self.own_directory()?;
        // A file without contents is accepted if no argument names it.
        let copied = copy(entry, &own);
        let ran = match &copied {
            Ok(copy) => {
                let named = named(command, &copy.path);
                let words: Vec<_> = command.words.iter().map(|word| fill(word, &named)).collect();
                spawn(command, &words, Some(&own.path), Some(&address))
            }
            Err(_) if !names_file => spawn(command, &command.words, Some(&own.path), Some(&address)),
            Err(_) => Ok(false),
        };
        copied.iter().for_each(FileCopy::remove);
        own.remove();
        if names_file { copied.and(ran) } else { ran }
    }

    /// Adds `entry` to the files that wait for a batched command.
    fn add(&mut self, index: usize, entry: &VisitedEntry<'_>) -> Result<(), EvaluationError> {
        let own = match self.commands[index].place {
            RunIn::Here => self.own_directory()?,
            RunIn::Directory => self.shared_directory(index, entry)?,
        };
        let copied = copy(entry, &own);
        if copied.is_err() {
            own.remove();
            if self.batches[index].files.is_empty() {
                self.batches[index].directory = None;
            }
        }
        let copy = copied?;
        let batch = &mut self.batches[index];
        batch.arguments += copy.path.as_os_str().len() + 1;
        batch.bytes += copy.bytes;
        batch.files.push(copy);
        if batch.is_full() {
            self.run_batch(index)?;
        }
        Ok(())
    }

    /// Returns the directory for the copies of files of the same directory. Runs the batch of another
    /// directory first.
    fn shared_directory(
        &mut self,
        index: usize,
        entry: &VisitedEntry<'_>,
    ) -> Result<CopyDirectory, EvaluationError> {
        let directory = entry.directory();
        if let Some((_, own)) =
            self.batches[index].directory.as_ref().filter(|(known, _)| *known == directory)
        {
            return Ok(own.clone());
        }
        self.run_batch(index)?;
        let own = self.own_directory()?;
        self.batches[index].directory = Some((directory, own.clone()));
        Ok(own)
    }

    /// Runs the batch.
    pub fn finish(&mut self) -> Result<(), EvaluationError> {
        (0..self.batches.len()).try_for_each(|index| self.run_batch(index))
    }

    fn run_batch(&mut self, index: usize) -> Result<(), EvaluationError> {
        let batch = std::mem::take(&mut self.batches[index]);
        if batch.files.is_empty() {
            return Ok(());
        }
        let command = &self.commands[index];
        let fixed = command.words.split_last().map_or(&[][..], |(_, fixed)| fixed);
        let files = batch.files.iter().map(|copy| named(command, &copy.path));
        let words: Vec<_> = fixed.iter().cloned().chain(files).collect();
        let own = batch.directory.as_ref().map(|(_, own)| own.path.as_path());
        let ran = spawn(command, &words, own, None);
        batch.files.iter().for_each(FileCopy::remove);
        self.failed |= !matches!(ran, Ok(true));
        ran.map(drop)
    }

    /// Creates a directory in the private folder, which is created when first needed.
    fn own_directory(&mut self) -> Result<CopyDirectory, EvaluationError> {
        let mut made = || {
            let folder = match self.directory.take() {
                Some(folder) => folder,
                None => PrivateFolder::new()?,
            };
            let folder = self.directory.insert(folder);
            let name = Name::new(self.copies.to_string().as_bytes()).map_err(io::Error::other)?.to_buf();
            self.copies += 1;
            let dir = folder.dir().make_private(&name)?;
            let path = folder.path().join(OsStr::from_bytes(name.as_bytes()));
            Ok(CopyDirectory { parent: folder.dir().clone(), name, dir, path })
        };
        made().map_err(|error| failure(CopyFailure::Target(error)))
    }
}

/// Copies the contents of `entry` to a file of the same name in `own`.
fn copy(entry: &VisitedEntry<'_>, own: &CopyDirectory) -> Result<FileCopy, EvaluationError> {
    let kind = entry.file.target_kind()?;
    if kind != Some(FileKind::Regular) {
        return Err(failure(CopyFailure::NoContents(kind)));
    }
    let on_host = |error: io::Error| failure(CopyFailure::Target(error));
    let name = Name::new(entry.name()).map_err(|error| on_host(io::Error::other(error)))?.to_buf();
    let path = own.path.join(OsStr::from_bytes(name.as_bytes()));
    let mut copy = FileCopy { own: own.clone(), name, path, bytes: 0 };
    let copied = match own.dir.create_private(&copy.name) {
        Ok(file) => entry.file.copy_out(file),
        Err(error) => return Err(on_host(error.into())),
    };
    match copied {
        Ok(bytes) => copy.bytes = bytes,
        Err(error) => {
            copy.remove();
            return Err(failure(error));
        }
    }
    Ok(copy)
}

/// Returns the name of the copy as an argument of the command.
fn named(command: &ExecCommand, path: &Path) -> OsString {
    let name = path.file_name().filter(|_| command.place == RunIn::Directory);
    name.map_or_else(|| path.as_os_str().to_owned(), |name| Path::new(".").join(name).into_os_string())
}

/// Asks the user whether to run `command`, as GNU find does.
fn agrees(command: &ExecCommand, address: &[u8]) -> bool {
    let program = command.words.first().map_or(&b""[..], |word| word.as_bytes());
    print_error(format_args!("< {} ... {} > ? ", printable(program), printable(address)));
    let mut answer = Vec::new();
    // Without a terminal the answer is no.
    read_line(io::stdin().lock(), &mut answer).is_ok() && matches!(answer.first(), Some(b'y' | b'Y'))
}

fn failure(failure: CopyFailure) -> EvaluationError {
    const FILES_ONLY: &str = "add -type f before -exec, which requires regular files";
    EvaluationError::Command(match failure {
        CopyFailure::Source(error) => Report::plain(error),
        CopyFailure::Limit(error) => Report::plain(error),
        // The text of the folder names the directory, and that of the system does not.
        CopyFailure::Target(error) if error.get_ref().is_some() => Report::plain(error),
        CopyFailure::Target(error) => Report::new("the temporary copy", error),
        CopyFailure::NoContents(None) => Report::plain(crate::open::DANGLING),
        CopyFailure::NoContents(Some(FileKind::Directory)) => {
            Report::plain("is a directory").help(FILES_ONLY)
        }
        CopyFailure::NoContents(Some(kind)) => Report::plain(not_regular(kind)).help(FILES_ONLY),
    })
}

/// Returns `word` with `path` for every `{}`.
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

/// Runs `words` of `command`, in the directory `own` if the command requires it. Returns whether its
/// status was 0. The variable `OBENTO_ADDRESS` contains the address of the file.
fn spawn(
    command: &ExecCommand,
    words: &[OsString],
    own: Option<&Path>,
    address: Option<&[u8]>,
) -> Result<bool, EvaluationError> {
    let Some((program, arguments)) = words.split_first() else { return Ok(false) };
    let mut process = process::Command::new(program);
    process.args(arguments);
    if let Some(own) = own.filter(|_| command.place == RunIn::Directory) {
        process.current_dir(own);
    }
    if command.consent == Consent::Asked {
        // Standard input contains the answers of the user.
        process.stdin(std::process::Stdio::null());
    }
    if let Some(address) = address {
        process.env("OBENTO_ADDRESS", OsStr::from_bytes(address));
    }
    let ran = process.status().map(|status| status.success());
    ran.map_err(|error| EvaluationError::Command(Report::on("cannot run", program.as_bytes(), error)))
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
