//! `obento types`: every type of file system, who opens it, what can be done with it, and what is missing here for that.

use std::io::Write;

use obento::driver::Driver;
use obento::engine::tools::Tool;
use obento::engine::types::Type;
use obento::engine::{INSTALL, Kernel};

use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output};

/// List the types of file systems: who opens each, what can be done with it, and what is missing here
///
/// native: by obento's own driver; linux: by the kernel engine (user-mode-linux). What is made or checked by a program of the
/// type's own names it. A line that begins with `missing` says what cannot be done on this machine, and what installs it.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// What is known of a type.
struct Row {
    names: Vec<&'static str>,
    engine: &'static str,
    /// Nothing where only opening one tells.
    write: Option<bool>,
    make: How,
    check: How,
}

/// How something is done.
#[derive(Clone, Copy)]
enum How {
    No,
    Native,
    By(Tool),
}

impl How {
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

/// What cannot be done for the lack of what.
struct Missing {
    what: &'static str,
    program: &'static str,
    install: String,
}

/// Runs the subcommand.
pub fn run(_: &Args, context: &Context) -> Outcome {
    let registry = context.registry();
    let natives = registry.natives().iter().map(|driver| native(&**driver));
    let engine = registry.engine_types().iter().filter(|kind| {
        let name = kind.names.first().copied().unwrap_or_default();
        registry.engine_type(name).is_some()
    });
    let mut rows: Vec<Row> = natives.chain(engine.map(of_engine)).collect();
    rows.sort_by_key(|row| (row.engine != "native", row.names.first().copied()));
    let kernel = Kernel::installed().is_some();
    let mut out = Output::stdout();
    if context.json() {
        rows.iter().try_for_each(|row| line(row, kernel).write(&mut out))?;
    } else {
        table(&rows, kernel, &mut out)?;
    }
    out.finish()
}

fn native(driver: &dyn Driver) -> Row {
    let how = |able| if able { How::Native } else { How::No };
    Row {
        names: driver.names().to_vec(),
        engine: "native",
        // A driver that makes volumes fills them, too.
        write: driver.format().map(|_| true),
        make: how(driver.format().is_some()),
        check: how(driver.check().is_some()),
    }
}

fn of_engine(kind: &Type) -> Row {
    Row {
        names: kind.names.to_vec(),
        engine: "linux",
        write: Some(kind.writes),
        make: kind.maker.map_or(How::No, |maker| How::By(maker.tool)),
        check: kind.checker.map_or(How::No, |checker| How::By(checker.tool)),
    }
}

/// What is missing for a type.
fn missing(row: &Row, kernel: bool) -> Vec<Missing> {
    let opening = (row.engine == "linux" && !kernel).then(|| Missing {
        what: "open",
        program: "linux.uml",
        install: INSTALL.to_owned(),
    });
    let tools = [("make", row.make), ("check", row.check)].into_iter().filter_map(|(what, how)| {
        let tool = how.missing()?;
        Some(Missing { what, program: tool.program, install: tool.install() })
    });
    opening.into_iter().chain(tools).collect()
}

fn table(rows: &[Row], kernel: bool, out: &mut Output) -> std::io::Result<()> {
    writeln!(out, "{:<18}{:<8}{:<6}{:<7}{:<15}{:<13}MOUNT", "TYPE", "BY", "READ", "WRITE", "MAKE", "CHECK")?;
    for row in rows {
        let write = row.write.map_or("?", |writes| if writes { "yes" } else { "-" });
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
    let lacking: Vec<_> = rows.iter().map(|row| (row, missing(row, kernel))).collect();
    let is_open = |lack: &Missing| lack.what == "open";
    if lacking.iter().any(|(_, lacks)| lacks.iter().any(is_open)) {
        writeln!(out, "missing linux.uml to open all that is by linux: {INSTALL}")?;
    }
    for (row, lacks) in &lacking {
        for lack in lacks.iter().filter(|lack| !is_open(lack)) {
            let name = row.names.first().copied().unwrap_or_default();
            writeln!(out, "missing {} to {} {name}: {}", lack.program, lack.what, lack.install)?;
        }
    }
    Ok(())
}

fn line(row: &Row, kernel: bool) -> Line {
    let program = |how: How| match how {
        How::By(tool) => Some(tool.program),
        How::No | How::Native => None,
    };
    let lacks: Vec<_> = missing(row, kernel)
        .into_iter()
        .map(|lack| {
            let fields = [
                ("for", lack.what.to_owned()),
                ("program", lack.program.to_owned()),
                ("install", lack.install),
            ];
            std::collections::BTreeMap::from(fields)
        })
        .collect();
    Line::new("type")
        .field("type", row.names.first())
        .field("names", &row.names)
        .field("engine", row.engine)
        .field("read", true)
        .field("write", row.write)
        .field("make", !matches!(row.make, How::No))
        .field("make_program", program(row.make))
        .field("check", !matches!(row.check, How::No))
        .field("check_program", program(row.check))
        .field("mount", true)
        .field("missing", lacks)
}
