//! `obento types`: lists the types of file systems, which engine opens each, and what this machine lacks to use it.

use std::io::Write;

use obento::driver::{Access, Driver};
use obento::engine::tools::Tool;
use obento::engine::types::Type;
use obento::engine::types::needs::Need;
use obento::engine::{Config, INSTALL, Kernel, kernel_of};
use rustix::fs::{Access as FileAccess, access};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::context::Context;
use crate::help::page::Page;
use crate::json::Line;
use crate::output::{Outcome, Output};

/// The page of `types`.
pub const PAGE: Page =
    Page::new(&[("obento types", "List the types of file systems")]).see_also(&["filesystems(5)"]);

/// List the supported types of file systems
///
/// BY is the engine: native for obento's own drivers, linux for the kernel engine (user-mode Linux), server
/// for the files of a server (fuse:COMMAND:/PATH, nfs://HOST/EXPORT:/PATH). WRITE shows whether files can be
/// changed. If a type requires a program, MAKE and CHECK name it. The columns assume that all programs are
/// installed. A line that starts with 'missing' names a program that is not installed and the command that
/// installs it, or a build option that the kernel of the kernel engine lacks.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// The kernel of the kernel engine.
const KERNEL: &str = "linux.uml";
/// The device with which the host's kernel mounts.
const FUSE: &str = "/dev/fuse";
/// The program that mounts for users other than root.
const HELPER: Tool = Tool { program: "fusermount3", package: "fuse3" };

/// The kinds of file servers, and whether their files can be changed.
const SERVERS: [(&str, bool); 2] = [("fuse", true), ("nfs", true)];

/// Returns whether `name` is a kind of file servers.
pub(super) fn is_server(name: &str) -> bool {
    SERVERS.iter().any(|(server, _)| *server == name)
}

/// The facts of a type.
struct Row {
    names: Vec<&'static str>,
    engine: &'static str,
    /// Whether files can be changed.
    write: bool,
    make: Support,
    check: Support,
    /// The option that the engine's kernel lacks, if a kernel exists.
    unknown: Option<&'static str>,
    /// The features of the type that the engine's kernel does not show.
    lacks: Vec<Need>,
}

/// How an operation is done.
#[derive(Clone, Copy)]
enum Support {
    No,
    Native,
    By(Tool),
}

impl Support {
    fn word(self) -> &'static str {
        match self {
            Self::No => "-",
            Self::Native => "yes",
            Self::By(tool) => tool.program,
        }
    }

    fn missing(self) -> Option<Tool> {
        match self {
            Self::By(tool) if tool.find().is_none() => Some(tool),
            _ => None,
        }
    }
}

/// An operation that is not possible, and what it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Missing {
    what: String,
    program: &'static str,
    install: String,
}

/// The reason why a kernel cannot open a type or show a feature.
const BUILT_WITHOUT: &str = "the kernel was built without this option";

/// Runs the subcommand.
pub fn run(_: &Args, context: &Context) -> Outcome {
    let registry = context.registry();
    let natives = registry.natives().iter().map(|driver| native(&**driver));
    let engine = registry.engine_types().iter().filter(|kind| {
        let name = kind.names.first().copied().unwrap_or_default();
        registry.engine_type(name).is_some()
    });
    let kernel = Kernel::installed();
    let config = kernel.as_ref().and_then(Kernel::config);
    let engine = engine.map(|kind| of_engine(kind, kernel.is_some(), config.as_ref()));
    let mut rows: Vec<Row> = natives.chain(engine).chain(SERVERS.map(server)).collect();
    let engines = ["native", "linux", "server"];
    let place = |row: &Row| engines.iter().position(|name| *name == row.engine);
    rows.sort_by_key(|row| (place(row), row.names.first().copied()));
    let here = MachineSupport {
        kernel: kernel.is_some(),
        mount: mounting(
            access(FUSE, FileAccess::READ_OK | FileAccess::WRITE_OK),
            geteuid().is_root(),
            HELPER,
        ),
    };
    let mut out = Output::stdout();
    if context.json() {
        rows.iter().try_for_each(|row| line(row, &here).write(&mut out))?;
    } else {
        table(&rows, &here, &mut out)?;
    }
    out.finish()
}

/// What this machine has for all types.
struct MachineSupport {
    /// Whether a kernel for the engine exists.
    kernel: bool,
    /// What is missing to mount.
    mount: Option<Missing>,
}

/// Returns what is missing to mount, given the result of opening the host's FUSE device.
fn mounting(fuse: rustix::io::Result<()>, is_root: bool, helper: Tool) -> Option<Missing> {
    let missing = |program, install| Some(Missing { what: "mount".to_owned(), program, install });
    match fuse {
        Ok(()) => {}
        Err(Errno::ACCESS) => return missing(FUSE, format!("chmod a+rw {FUSE}")),
        Err(_) => return missing(FUSE, "modprobe fuse".to_owned()),
    }
    if is_root || helper.find().is_some() { None } else { missing(helper.program, helper.install()) }
}

fn native(driver: &dyn Driver) -> Row {
    let how = |able| if able { Support::Native } else { Support::No };
    Row {
        names: driver.names().to_vec(),
        engine: "native",
        write: driver.access() == Access::ReadWrite,
        make: how(driver.format().is_some() || driver.build().is_some()),
        check: how(driver.check().is_some()),
        unknown: None,
        lacks: Vec::new(),
    }
}

fn server((name, write): (&'static str, bool)) -> Row {
    Row {
        names: vec![name],
        engine: "server",
        write,
        make: Support::No,
        check: Support::No,
        unknown: None,
        lacks: Vec::new(),
    }
}

fn of_engine(kind: &Type, kernel: bool, config: Option<&Config>) -> Row {
    let name = kind.names.first().copied();
    Row {
        names: kind.names.to_vec(),
        engine: "linux",
        write: kind.writes,
        make: kind.maker.map_or(Support::No, |maker| Support::By(maker.tool)),
        check: kind.checker.map_or(Support::No, |checker| Support::By(checker.tool)),
        unknown: name.filter(|_| kernel && kernel_of(kind).is_err()),
        lacks: config.into_iter().flat_map(|config| config.lacks(kind)).collect(),
    }
}

/// Returns what is missing for a type, besides what is missing for all types.
fn missing(row: &Row, here: &MachineSupport) -> Vec<Missing> {
    let lack = |what: &str, program, install: &str| Missing {
        what: what.to_owned(),
        program,
        install: install.to_owned(),
    };
    let opening = match row.unknown {
        Some(name) => Some(lack("open", name, BUILT_WITHOUT)),
        None if row.engine == "linux" && !here.kernel => Some(lack("open", KERNEL, INSTALL)),
        None => None,
    };
    let tools = [("make", row.make), ("check", row.check)].into_iter().filter_map(|(what, how)| {
        let tool = how.missing()?;
        Some(lack(what, tool.program, &tool.install()))
    });
    let hidden = row
        .lacks
        .iter()
        .map(|need| lack(&format!("show the {} of", need.part.name()), need.option, BUILT_WITHOUT));
    opening.into_iter().chain(tools).chain(hidden).collect()
}

fn table(rows: &[Row], here: &MachineSupport, out: &mut Output) -> std::io::Result<()> {
    writeln!(out, "{:<18}{:<8}{:<6}{:<7}{:<15}{:<13}MOUNT", "TYPE", "BY", "READ", "WRITE", "MAKE", "CHECK")?;
    for row in rows {
        let write = if row.write { "yes" } else { "-" };
        writeln!(
            out,
            "{:<18}{:<8}{:<6}{write:<7}{:<15}{:<13}yes",
            row.names.join(" "),
            row.engine,
            "yes",
            row.make.word(),
            row.check.word(),
        )?;
    }
    if let Some(lack) = &here.mount {
        writeln!(out, "missing {} to mount volumes: {}", lack.program, lack.install)?;
    }
    let lacking: Vec<_> = rows.iter().map(|row| (row, missing(row, here))).collect();
    let is_kernel = |lack: &Missing| lack.program == KERNEL;
    if lacking.iter().any(|(_, lacks)| lacks.iter().any(is_kernel)) {
        writeln!(out, "missing {KERNEL} to open the types of the engine linux: {INSTALL}")?;
    }
    for (row, lacks) in &lacking {
        for lack in lacks.iter().filter(|lack| !is_kernel(lack)) {
            let name = row.names.first().copied().unwrap_or_default();
            writeln!(out, "missing {} to {} {name}: {}", lack.program, lack.what, lack.install)?;
        }
    }
    Ok(())
}

fn line(row: &Row, here: &MachineSupport) -> Line {
    let program = |how: Support| match how {
        Support::By(tool) => Some(tool.program),
        Support::No | Support::Native => None,
    };
    let lacks: Vec<_> = missing(row, here)
        .into_iter()
        .chain(here.mount.clone())
        .map(|lack| {
            let fields =
                [("for", lack.what), ("program", lack.program.to_owned()), ("install", lack.install)];
            std::collections::BTreeMap::from(fields)
        })
        .collect();
    Line::new("type")
        .field("type", row.names.first())
        .field("names", &row.names)
        .field("engine", row.engine)
        .field("read", true)
        .field("write", row.write)
        .field("make", !matches!(row.make, Support::No))
        .field("make_program", program(row.make))
        .field("check", !matches!(row.check, Support::No))
        .field("check_program", program(row.check))
        .field("mount", true)
        .field("missing", lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_requirement_of_mount_is_reported_with_the_command_that_installs_it() {
        let (there, nowhere) = (
            Tool { program: "sh", package: "any" },
            Tool { program: "obento-has-no-such-program", ..HELPER },
        );
        let reported = |missing: Option<Missing>| missing.map(|lack| (lack.program, lack.install));
        assert_eq!(mounting(Ok(()), true, nowhere), None, "root mounts by itself");
        assert_eq!(mounting(Ok(()), false, there), None);
        let install = "apt-get install fuse3".to_owned();
        assert_eq!(reported(mounting(Ok(()), false, nowhere)), Some((nowhere.program, install)));
        for is_root in [false, true] {
            let load = "modprobe fuse".to_owned();
            assert_eq!(reported(mounting(Err(Errno::NOENT), is_root, there)), Some((FUSE, load)));
            let allow = "chmod a+rw /dev/fuse".to_owned();
            assert_eq!(reported(mounting(Err(Errno::ACCESS), is_root, there)), Some((FUSE, allow)));
        }
    }
}
