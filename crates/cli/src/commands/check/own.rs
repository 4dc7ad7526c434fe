//! Checking types that only the kernel engine opens: by their own programs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use obento::block::BlockDevice;
use obento::driver::{Probe, RepairMode};
use obento::engine::first_bytes;
use obento::engine::tools::{Checker, Verdict};
use obento::engine::types::Type;
use obento::host::path_of_open;
use obento::image::ImageFile;
use rustix::fs::FileType;

use super::{Args, FAILED, LEFT, Opened, REPAIRED, USAGE};
use crate::cause::Cause;
use crate::context::Context;
use crate::json::Line;
use crate::output::{Outcome, Output, Stop};
use crate::own::{Program, UnnamedFile, print_line};
use crate::report::{Report, printable, shell_word};

/// The maximum number of runs of a program that may need several runs to repair.
const REPAIR_RUNS: u32 = 3;

/// Returns whether the check may start a program: the type is not given, and a program that checks one of the engine's types is
/// installed. The type is known only when the image is decoded.
pub fn may_start(context: &Context) -> bool {
    let registry = context.registry();
    let of = |kind: &Type| kind.checker.is_some_and(|checker| checker.tool.find().is_some());
    match context.options().fs_type.as_deref() {
        Some(name) => registry.engine_type(name).is_some_and(of),
        None => registry.engine_types().iter().any(of),
    }
}

/// A volume of a type that has its own program.
pub struct Subject {
    kind: &'static Type,
    probe: Option<Probe>,
    device: Arc<dyn BlockDevice>,
    /// Whether it is a complete host file.
    is_whole: bool,
}

impl Subject {
    /// The file system of `opened`, if obento has no own driver that checks it.
    pub fn of(opened: &Opened, context: &Context) -> Option<Self> {
        let image = &opened.image;
        let (device, content) = image.volume_bytes(opened.part.as_ref()).ok()?;
        let is_whole = device.len() == image.device().len() && image.layers().is_empty();
        let probe = content.probe().cloned();
        let forced = context.options().fs_type.as_deref();
        let name = forced.or(probe.as_ref().map(|probe| probe.fs_type))?;
        let kind = context.registry().engine_type(name)?;
        Some(Self { kind, probe, device, is_whole })
    }

    /// Checks the volume. Fails with the message and the exit code.
    pub fn check(self, args: &Args, opened: &Opened, context: &Context) -> Result<Outcome, (Report, u8)> {
        let (shown, repair_mode) = (&*opened.shown, opened.repair_mode);
        let name = self.kind.names.first().copied().unwrap_or_default();
        let cannot = |cause: &dyn Cause| Report::on("cannot check", shown, cause);
        let lacking = || (cannot(&format!("obento supports no program that checks {name} volumes")), FAILED);
        let checker = self.kind.checker.ok_or_else(lacking)?;
        refuse(args, &checker).map_err(|report| (report, USAGE))?;
        let arguments = match repair_mode {
            RepairMode::Nothing => Some(checker.look),
            RepairMode::Safe => checker.safe,
            RepairMode::All => checker.all,
        };
        let refused = || {
            let cause = format!("{} {}", checker.tool.program, checker.lacks);
            let report = Report::on("cannot repair", shown, cause);
            let has_all = repair_mode == RepairMode::Safe && checker.all.is_some();
            (if has_all { report.help("use -y") } else { report }, USAGE)
        };
        let program =
            Program::find(checker.tool, "cannot check", shown).map_err(|report| (report, FAILED))?;
        let failed = |error: std::io::Error| (cannot(&error), FAILED);
        let start = first_bytes(&*self.device).map_err(|error| (cannot(&error), FAILED))?;
        let arguments = arguments.ok_or_else(refused)?.iter().chain((checker.of_volume)(&start));
        let program = program.with(arguments.copied());
        // The path of the image can lead to another file by now.
        let is_on_copy = !self.is_whole || repair_mode == RepairMode::Nothing && checker.replays;
        let file = if is_on_copy { None } else { ImageFile::file_of(&*self.device).ok() };
        let is_device = file.as_ref().is_some_and(is_block_device);
        if is_device && checker.is_exclusive && repair_mode != RepairMode::Nothing {
            let help = format!(
                "run `{}` yourself: it must be the only user of the device",
                program.line(&args.image)
            );
            return Err((cannot(&"obento has the device open").help(help), FAILED));
        }
        let copy = match &file {
            Some(_) => None,
            None => Some(UnnamedFile::copy_of(&*self.device).map_err(failed)?),
        };
        let path = copy.as_ref().map(UnnamedFile::path).or_else(|| file.as_ref().map(path_of_open));
        let path = path.unwrap_or_default();
        let of_a_copy = if copy.is_some() { ", on a copy of it" } else { "" };
        context.note(shown, format!("running '{}'{of_a_copy}", program.line(&args.image)));
        let mut printer = OutputPrinter { out: Output::stdout(), lines: Vec::new(), failed: None };
        let mut run = || {
            let code = program.run(&path, |line| printer.line(line, args, context)).map_err(failed)?;
            Ok((code, code.map_or(Verdict::Failed, checker.verdict)))
        };
        let runs = if checker.again && repair_mode != RepairMode::Nothing { REPAIR_RUNS } else { 1 };
        let (code, verdict) = last_word(runs, &mut run)?;
        if let Some(copy) = copy.filter(|_| repair_mode != RepairMode::Nothing && verdict != Verdict::Failed)
        {
            copy.put_back(&*self.device).map_err(failed)?;
        }
        if verdict == Verdict::Failed {
            let end = code
                .map_or("was ended by a signal".to_owned(), |code| format!("failed with exit status {code}"));
            let report = cannot(&format!("{} {end}", program.name()));
            let help = format!("run 'obento sync {}' first if its log must be replayed", shell_word(shown));
            return Err((if checker.needs_replay { report.help(help) } else { report }, FAILED));
        }
        Ok(self.reported(printer, verdict, (shown, &program), context, args))
    }

    fn reported(
        &self,
        printer: OutputPrinter,
        verdict: Verdict,
        (shown, program): (&[u8], &Program),
        context: &Context,
        args: &Args,
    ) -> Outcome {
        let OutputPrinter { mut out, lines, failed } = printer;
        let (state, status) = match verdict {
            Verdict::Clean => ("no problems", 0),
            Verdict::Repaired => ("all problems were repaired", REPAIRED),
            Verdict::Left | Verdict::Failed => ("problems were found", LEFT),
        };
        context.set_status(status);
        if let Some(error) = failed {
            return Err(Stop::Output(error));
        }
        if context.json() {
            let label = self.probe.as_ref().map_or(&[][..], |probe| &probe.label);
            Line::new("checked")
                .bytes("path", shown)
                .bytes("label", label)
                .field("clean", matches!(verdict, Verdict::Clean | Verdict::Repaired))
                .field("file_system", self.kind.names.first())
                .field("program", program.name())
                .field("output", lines)
                .write(&mut out)?;
        } else if !args.quiet {
            use std::io::Write as _;
            writeln!(out, "{}: {state} (checked by {})", printable(shown), program.name())?;
        }
        // Without its log, an undamaged volume looks damaged.
        if verdict == Verdict::Left && self.kind.checker.is_some_and(|checker| checker.needs_replay) {
            let image = shell_word(shown);
            context.note(
                shown,
                format!("if the volume was not closed, run 'obento sync {image}' first to replay its log"),
            );
        }
        out.finish()
    }
}

/// Returns the final message after the last run. If there were fewer runs than allowed, the last one
/// found nothing.
fn last_word<E>(
    runs: u32,
    run: &mut impl FnMut() -> Result<(Option<i32>, Verdict), E>,
) -> Result<(Option<i32>, Verdict), E> {
    let mut said = run()?;
    for _ in 1..runs {
        if !matches!(said.1, Verdict::Repaired | Verdict::Left) {
            break;
        }
        match run()? {
            (code, Verdict::Clean) => return Ok((code, Verdict::Repaired)),
            then => said = then,
        }
    }
    Ok(said)
}

fn is_block_device(file: &OwnedFd) -> bool {
    let kind = rustix::fs::fstat(file).map(|stat| FileType::from_raw_mode(stat.st_mode));
    kind == Ok(FileType::BlockDevice)
}

/// Fails for an option that the program does not support.
fn refuse(args: &Args, checker: &Checker) -> Result<(), Report> {
    let options = [(args.rescue, "-s"), (args.backup.is_some(), "-b")];
    match options.iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(Report::new(
            format!("{option} is not supported"),
            format!("{} checks this type", checker.tool.program),
        )),
        None => Ok(()),
    }
}

/// Prints the output of a program.
struct OutputPrinter {
    out: Output,
    lines: Vec<String>,
    failed: Option<std::io::Error>,
}

impl OutputPrinter {
    fn line(&mut self, line: &[u8], args: &Args, context: &Context) {
        if context.json() {
            self.lines.push(String::from_utf8_lossy(line).into_owned());
        } else if !args.quiet
            && let Err(error) = print_line(&mut self.out, line)
        {
            self.failed.get_or_insert(error);
        }
    }
}
