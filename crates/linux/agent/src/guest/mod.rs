//! `init` of the guest: prepares the machine, and serves requests until the end of the kernel.
//!
//! A failure before the first request is printed on the console, whose output the host uses in its error message, and
//! ends the guest.

mod area;
mod attributes;
mod change;
mod data;
mod errno;
mod grow;
mod list;
mod numbers;
mod places;
mod proofs;
mod ring;
mod serve;
mod table;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::Mode;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit, umask};

use area::Area;
use serve::Guest;

/// The most descriptors of a process: every inode in use takes one. Source: Linux, `sysctl_nr_open`.
const DESCRIPTORS: u64 = 1 << 20;

/// Does the work of `init`. Returns only after a failure.
pub fn run() -> ExitCode {
    match prepare() {
        Ok(area) => Guest::new(area).serve(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "obento: the guest cannot start: {error}");
        }
    }
    ExitCode::FAILURE
}

fn prepare() -> io::Result<Area> {
    let none = MountFlags::empty();
    for folder in ["/dev", "/proc", "/volume"] {
        fs::create_dir_all(folder)?;
    }
    mount(c"none", c"/dev", c"devtmpfs", none, c"").or_else(already_there)?;
    mount(c"none", c"/proc", c"proc", none, c"")?;
    let many = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, Rlimit { current: many, maximum: many })?;
    // New files get the mode that the host requests.
    umask(Mode::empty());
    load_modules(Path::new("/modules"))?;
    Area::map()
}

/// The kernel may have mounted it already.
fn already_there(error: rustix::io::Errno) -> rustix::io::Result<()> {
    if error == rustix::io::Errno::BUSY { Ok(()) } else { Err(error) }
}

/// Loads all modules in the order of their file names: the host numbered them by their dependencies.
fn load_modules(folder: &Path) -> io::Result<()> {
    let mut paths: Vec<_> = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?,
        Err(_) => return Ok(()),
    };
    paths.sort();
    for path in paths {
        let module = fs::File::open(&path)?;
        rustix::system::finit_module(&module, c"", 0)
            .map_err(|errno| io::Error::new(errno.kind(), format!("{}: {errno}", path.display())))?;
    }
    Ok(())
}
