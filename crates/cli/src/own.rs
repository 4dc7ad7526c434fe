//! Programs of a type's own, which make and check what only the kernel engine opens.
//!
//! No shell is between: arguments are what they are. What a program writes may come from the image, and is told line by line as
//! names are. A program gets a file of the host; a partition, or what lies packed, is copied into one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use obento::engine::tools::Tool;
use obento::source::{Run, SourceFile};
use obento::{BlockDevice, path_of_open};

use crate::private::{PrivateFolder, no_room};
use crate::report::{Report, printable};

/// What is copied at once.
const CHUNK: usize = 1 << 20;

/// A program that is installed, and what it is called with before the image.
pub struct Program {
    tool: Tool,
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Errors: it is not installed, and what installs it; `action` begins the message.
    pub fn find(tool: Tool, action: &str, shown: &[u8]) -> Result<Self, Report> {
        let lacking = || {
            let report =
                Report::on(action, shown, format!("{} does it, which is not installed", tool.program));
            report.help(tool.install())
        };
        let path = tool.find().ok_or_else(lacking)?;
        Ok(Self { tool, path, arguments: Vec::new() })
    }

    /// Adds arguments.
    #[must_use]
    pub fn with(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.tool.program
    }

    /// How it is called, for a person.
    pub fn line(&self, image: &OsStr) -> String {
        let words = self.arguments.iter().map(OsString::as_os_str).chain([image]);
        let words = words.map(|word| printable(word.as_encoded_bytes()));
        words.fold(self.name().to_owned(), |line, word| format!("{line} {word}"))
    }

    /// Runs it on `image`, and hands over each line that it writes. Answers its exit code; `None` if a signal ended it.
    pub fn run(&self, image: &Path, mut told: impl FnMut(&[u8])) -> io::Result<Option<i32>> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.path);
        // Absolute, so that no name is taken for an option.
        command.args(&self.arguments).arg(std::path::absolute(image)?).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // With it goes our end of the pipe, so that the program's is the last.
        drop(command);
        BufReader::new(reader).split(b'\n').try_for_each(|line| line.map(|line| told(&line)))?;
        Ok(child.wait()?.code())
    }
}

/// A file of the host without a name: whatever ends this process, nothing of it is left.
pub struct Nameless(File);

impl Nameless {
    /// A file of zeros.
    pub fn blank(len: u64) -> io::Result<Self> {
        let file = tempfile::tempfile().map_err(no_room)?;
        file.set_len(len)?;
        Ok(Self(file))
    }

    /// The bytes of `device`; zeros take no room.
    pub fn copy_of(device: &dyn BlockDevice) -> io::Result<Self> {
        let copy = Self::blank(device.len())?;
        each_chunk(device, |offset, bytes| {
            if bytes.iter().any(|byte| *byte != 0) {
                copy.0.write_all_at(bytes, offset)?;
            }
            Ok(())
        })?;
        Ok(copy)
    }

    /// What `make` makes of a file of zeros that has a name until then.
    pub fn made_by(len: u64, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<Self, String> {
        let folder = PrivateFolder::new().map_err(|error| error.to_string())?;
        let (file, path) = folder.create("volume").map_err(|error| no_room(error).to_string())?;
        file.set_len(len).map_err(|error| error.to_string())?;
        make(&path)?;
        Ok(Self(file))
    }

    /// A path by which a program that is started reaches it.
    pub fn path(&self) -> PathBuf {
        path_of_open(&self.0)
    }

    /// Writes to `device` what differs here.
    pub fn put_back(&self, device: &dyn BlockDevice) -> io::Result<()> {
        let mut wanted = Vec::new();
        each_chunk(device, |offset, bytes| {
            wanted.resize(bytes.len(), 0);
            self.0.read_exact_at(&mut wanted, offset)?;
            if wanted != bytes {
                device.write_at(offset, &wanted).map_err(io::Error::other)?;
            }
            Ok(())
        })?;
        device.flush().map_err(io::Error::other)
    }

    /// Gives `device` these bytes, whatever it has: only what is no zeros is looked at where it can be made zeros at once.
    pub fn put_whole(self, device: &dyn BlockDevice) -> io::Result<()> {
        if !device.punch(0..device.len()).map_err(io::Error::other)? {
            return self.put_back(device);
        }
        self.put_over_zeros(|at, bytes| device.write_at(at, bytes).map_err(io::Error::other))?;
        device.flush().map_err(io::Error::other)
    }

    /// Hands over its bytes, but zeros that were never written.
    pub fn put_over_zeros(self, mut write: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let path = self.path();
        let file = SourceFile::new(self.0, &path).map_err(io::Error::other)?;
        let mut bytes = vec![0; CHUNK];
        for run in file.runs() {
            let Run::Data(range) = run.map_err(io::Error::other)? else { continue };
            for at in range.clone().step_by(CHUNK) {
                let len = usize::try_from(range.end - at).map_or(CHUNK, |left| left.min(CHUNK));
                file.device().read_at(at, &mut bytes[..len]).map_err(io::Error::other)?;
                write(at, &bytes[..len])?;
            }
        }
        Ok(())
    }
}

fn each_chunk(
    device: &dyn BlockDevice,
    mut work: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut offset = 0;
    while offset < device.len() {
        let len = usize::try_from(device.len() - offset).map_or(CHUNK, |left| left.min(CHUNK));
        let mut bytes = vec![0; len];
        device.read_at(offset, &mut bytes).map_err(io::Error::other)?;
        work(offset, &bytes)?;
        offset += len as u64;
    }
    Ok(())
}

/// Writes a line that a program wrote.
pub fn tell(out: &mut impl io::Write, line: &[u8]) -> io::Result<()> {
    writeln!(out, "{}", printable(line.strip_suffix(b"\r").unwrap_or(line)))
}
