//! `-exec`, `-execdir`, `-ok`, `-okdir`: host commands on temporary copies of files.
//!
//! A command that runs in a directory of its own finds nothing there but the copy, or with `+` those of one directory of
//! the image.
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
use super::expression::{Command, Consent, RunIn};
use crate::private::PrivateFolder;
use crate::report::printable;

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
    directory: Option<PrivateFolder>,
    copies: u64,
    failed: bool,
}

/// The files that wait for one `-exec ... +`.
#[derive(Default)]
struct Batch {
    files: Vec<PathBuf>,
    arguments: usize,
    bytes: u64,
    /// For `-execdir`: the directory of the image that they lie in, and that of the copies.
    directory: Option<(Vec<u8>, PathBuf)>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.files.len() >= BATCH_FILES || self.arguments >= BATCH_ARGUMENTS || self.bytes >= BATCH_BYTES
    }
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
        // Where no word names the file, it need not have contents.
        let copied = copy(entry, &own);
        let ran = match &copied {
            Ok((path, _)) => {
                let named = named(command, path);
                let words: Vec<_> = command.words.iter().map(|word| fill(word, &named)).collect();
                spawn(command, &words, Some(&own), Some(&address))
            }
            Err(_) if !names_file => spawn(command, &command.words, Some(&own), Some(&address)),
            Err(_) => Ok(false),
        };
        copied.iter().for_each(|(path, _)| remove(path));
        let _ = std::fs::remove_dir(&own);
        if names_file { copied.and(ran) } else { ran }
    }

    /// Adds `entry` to what waits for a batched command.
    fn add(&mut self, index: usize, entry: &Entry<'_>) -> Result<(), Trouble> {
        let own = match self.commands[index].place {
            RunIn::Here => self.own_directory()?,
            RunIn::Directory => self.shared_directory(index, entry)?,
        };
        let copied = copy(entry, &own);
        if copied.is_err() {
            let _ = std::fs::remove_dir(&own);
            if self.batches[index].files.is_empty() {
                self.batches[index].directory = None;
            }
        }
        let (path, bytes) = copied?;
        let batch = &mut self.batches[index];
        batch.arguments += path.as_os_str().len() + 1;
        batch.bytes += bytes;
        batch.files.push(path);
        if batch.is_full() {
            self.run_batch(index)?;
        }
        Ok(())
    }

    /// Where copies of files of the same directory wait together. What waits from another one runs.
    fn shared_directory(&mut self, index: usize, entry: &Entry<'_>) -> Result<PathBuf, Trouble> {
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

    /// Runs what waits.
    pub fn finish(&mut self) -> Result<(), Trouble> {
        (0..self.batches.len()).try_for_each(|index| self.run_batch(index))
    }

    fn run_batch(&mut self, index: usize) -> Result<(), Trouble> {
        let batch = std::mem::take(&mut self.batches[index]);
        if batch.files.is_empty() {
            return Ok(());
        }
        let command = &self.commands[index];
        let fixed = command.words.split_last().map_or(&[][..], |(_, fixed)| fixed);
        let files = batch.files.iter().map(|path| named(command, path));
        let words: Vec<_> = fixed.iter().cloned().chain(files).collect();
        let own = batch.directory.as_ref().map(|(_, own)| own.as_path());
        let ran = spawn(command, &words, own, None);
        batch.files.iter().for_each(|path| remove(path));
        self.failed |= !matches!(ran, Ok(true));
        ran.map(drop)
    }

    /// Creates a directory in the private folder, which is created when first needed.
    fn own_directory(&mut self) -> Result<PathBuf, Trouble> {
        let mut made = || {
            let parent = match self.directory.take() {
                Some(directory) => directory,
                None => PrivateFolder::new()?,
            };
            let own = parent.path().join(self.copies.to_string());
            self.directory = Some(parent);
            self.copies += 1;
            std::fs::create_dir(&own)?;
            Ok(own)
        };
        made().map_err(|error| failure(&CopyFailure::Target(error)))
    }
}

/// Copies the contents of `entry` to a file of the same name in `own`.
fn copy(entry: &Entry<'_>, own: &Path) -> Result<(PathBuf, u64), Trouble> {
    let kind = entry.file.target_kind()?;
    if kind != Some(FileKind::Regular) {
        return Err(failure(&CopyFailure::NoContents(kind)));
    }
    let path = own.join(OsStr::from_bytes(entry.name()));
    let copied = entry.file.copy_out(&path);
    if copied.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    Ok((path, copied.map_err(|error| failure(&error))?))
}

/// What the command calls the copy.
fn named(command: &Command, path: &Path) -> OsString {
    let name = path.file_name().filter(|_| command.place == RunIn::Directory);
    name.map_or_else(|| path.as_os_str().to_owned(), |name| Path::new(".").join(name).into_os_string())
}

/// Asks the person whether to run `command`, as GNU find does.
fn agrees(command: &Command, address: &[u8]) -> bool {
    let program = command.words.first().map_or(&b""[..], |word| word.as_bytes());
    eprint!("< {} ... {} > ? ", printable(program), printable(address));
    let mut answer = String::new();
    // Without a user who can answer, the answer is no.
    io::stdin().read_line(&mut answer).is_ok() && answer.starts_with(['y', 'Y'])
}

fn failure(failure: &CopyFailure) -> Trouble {
    Trouble::Command(match failure {
        CopyFailure::Source(error) => error.to_string(),
        CopyFailure::Target(error) => format!("the temporary copy: {error}"),
        CopyFailure::NoContents(None) => "the symbolic link leads nowhere".into(),
        CopyFailure::NoContents(Some(FileKind::Directory)) => {
            "-exec requires a regular file, and this is a directory; add -type f".into()
        }
        CopyFailure::NoContents(Some(_)) => "-exec requires a regular file; add -type f".into(),
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

/// Runs `words` of `command`, in the directory `own` if that is asked for, and answers whether they ended with 0. The
/// command finds the address of its file in `OBENTO_ADDRESS`.
fn spawn(
    command: &Command,
    words: &[OsString],
    own: Option<&Path>,
    address: Option<&[u8]>,
) -> Result<bool, Trouble> {
    let Some((program, arguments)) = words.split_first() else { return Ok(false) };
    let mut process = process::Command::new(program);
    process.args(arguments);
    if let Some(own) = own.filter(|_| command.place == RunIn::Directory) {
        process.current_dir(own);
    }
    if command.consent == Consent::Asked {
        // Standard input has the person's answers.
        process.stdin(std::process::Stdio::null());
    }
    if let Some(address) = address {
        process.env("OBENTO_ADDRESS", OsStr::from_bytes(address));
    }
    let ran = process.status().map(|status| status.success());
    ran.map_err(|error| Trouble::Command(format!("cannot run {}: {error}", program.display())))
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
