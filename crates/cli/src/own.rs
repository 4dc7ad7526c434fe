//! The programs that create, check and tune the types that only the kernel engine opens.
//!
//! No shell is involved: arguments are passed unchanged. The output of a program may contain text from the image, so it is printed line
//! by line with control characters escaped. A program gets a host file; a partition or a compressed image is copied into one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use obento::block::BlockDevice;
use obento::engine::tools::Tool;
use obento::host::source::{Run, SourceFile};
use obento::host::{ReservedFile, path_of_open};

use crate::private::{PrivateFolder, no_room};
use crate::report::{Report, printable, subject};

/// The number of bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// An installed program, and its arguments before and after the image.
pub struct Program {
    tool: Tool,
    path: PathBuf,
    arguments: Vec<OsString>,
    last: Option<OsString>,
}

impl Program {
    /// Finds a program. If the program is not installed, fails with a message that starts with `action` and names the
    /// package of the program.
    pub fn find(tool: Tool, action: &str, shown: &[u8]) -> Result<Self, Report> {
        let lacking = || {
            let report = Report::on(
                action,
                shown,
                format!("this command requires {}, which is not installed", tool.program),
            );
            report.help(tool.install())
        };
        let path = tool.find().ok_or_else(lacking)?;
        Ok(Self { tool, path, arguments: Vec::new(), last: None })
    }

    /// Appends arguments.
    #[must_use]
    pub fn with(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets the argument after the image.
    #[must_use]
    pub fn followed_by(self, last: OsString) -> Self {
        Self { last: Some(last), ..self }
    }

    /// Returns the name of the program.
    pub fn name(&self) -> &'static str {
        self.tool.program
    }

    /// Returns the command line, for messages.
    pub fn line(&self, image: &OsStr) -> String {
        let words = self.arguments.iter().map(OsString::as_os_str).chain([image]).chain(self.last.as_deref());
        let words = words.map(|word| match word.as_encoded_bytes() {
            word if word.is_empty() || word.iter().any(u8::is_ascii_whitespace) => subject(word),
            word => printable(word),
        });
        words.fold(self.name().to_owned(), |line, word| format!("{line} {word}"))
    }

    /// Runs the program on `image` and passes each line of its output to `on_line`. Returns the exit code, or `None` if a signal ended it.
    pub fn run(&self, image: &Path, mut on_line: impl FnMut(&[u8])) -> io::Result<Option<i32>> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.path);
        // An absolute path is never taken for an option.
        command.args(&self.arguments).arg(std::path::absolute(image)?).args(&self.last).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // Drop our end of the pipe, so that the program has the last one.
        drop(command);
        BufReader::new(reader).split(b'\n').try_for_each(|line| line.map(|line| on_line(&line)))?;
        Ok(child.wait()?.code())
    }
}

/// A host file without a name: nothing of it is left when this process ends.
pub struct UnnamedFile(File);

impl UnnamedFile {
    /// Creates a file of zeros. Fails if another user controls the directory for temporary files.
    pub fn blank(len: u64) -> io::Result<Self> {
        let folder = std::env::temp_dir();
        let file = ReservedFile::within(&folder).map(ReservedFile::into_file);
        let file = file.map_err(|error| no_room(&folder, error.into()))?;
        file.set_len(len)?;
        Ok(Self(file))
    }

    /// Copies the bytes of `device`; zeros become holes.
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

    /// Creates a file of zeros that has a name while `make` fills it.
    pub fn made_by(len: u64, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<Self, String> {
        let folder = PrivateFolder::new().map_err(|error| error.to_string())?;
        let (file, path) =
            folder.create("volume").map_err(|error| no_room(&std::env::temp_dir(), error).to_string())?;
        file.set_len(len).map_err(|error| error.to_string())?;
        make(&path)?;
        Ok(Self(file))
    }

    /// Returns a path by which a program that is started can open the file.
    pub fn path(&self) -> PathBuf {
        path_of_open(&self.0)
    }

    /// Writes the bytes that differ to `device`.
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

    /// Replaces the contents of `device`. If the device can be zeroed at once, only the bytes that are not zero are compared.
    pub fn put_whole(self, device: &dyn BlockDevice) -> io::Result<()> {
        if !device.punch(0..device.len()).map_err(io::Error::other)? {
            return self.put_back(device);
        }
        self.put_over_zeros(|at, bytes| device.write_at(at, bytes).map_err(io::Error::other))?;
        device.flush().map_err(io::Error::other)
    }

    /// Passes the bytes to `write`, except for zeros that were never written.
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

/// Prints a line that a program wrote.
pub fn print_line(out: &mut impl io::Write, line: &[u8]) -> io::Result<()> {
    writeln!(out, "{}", printable(line.strip_suffix(b"\r").unwrap_or(line)))
}
