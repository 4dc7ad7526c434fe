//! `obento find`: finds the files below start points for which an expression is true.

mod host;
mod view;

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal};
use std::rc::Rc;

use obento::driver::Access;
use obento::host::FileId;
use obento::vfs::Symlinks;
use obento::volume::Owners;
use obento::walk::{Step, Walk};
use obento::{Error, Node, Volume};

use self::host::HostContext;
use self::view::View;
use crate::context::Context;
use crate::escape::NameStyle;
use crate::find::{
    DirectoryOrder, EvaluationError, Evaluator, Owner, Parsed, Runner, Sink, Verdict, VisitedEntry, parse,
    split_start_points,
};
use crate::help::page::{Page, TZ};
use crate::open::{self, Found, Location};
use crate::output::{Outcome, Output, Stop, go_on};
use crate::replaced::OutputFile;
use crate::report::{Report, subject};

/// The page of `find`.
pub const PAGE: Page = Page::new(&[
    ("obento find disk.img -name '*.conf' -size +10k", "Find configuration files of more than 10 KiB"),
    ("obento find disk.img -perm -4000 -ls", "List the set-user-ID files"),
    ("obento find disk.img -type f -exec sha256sum {} \\;", "Hash a copy of each file"),
])
.environment(&[TZ, ("OBENTO_ADDRESS", "Set for the commands of -exec: the address of the file.")])
.see_also(&["find(1)"]);

/// Find files by name, type, size, time, owner, permissions, ...
///
/// The expression is that of GNU find; -path and -regex match the path inside the image (/etc/passwd). -exec
/// passes a temporary copy of the file to the command. OBENTO_ADDRESS contains the address of the file.
#[derive(clap::Args, Debug)]
#[command(override_usage = "obento find [OPTIONS] <IMAGE[:/PATH]>... [EXPRESSION]")]
pub struct Args {
    /// Do not follow symbolic links (default)
    #[arg(short = 'P', overrides_with_all = ["follow_start", "follow"])]
    physical: bool,
    /// Follow symbolic links that are start points
    #[arg(short = 'H', overrides_with_all = ["physical", "follow"])]
    follow_start: bool,
    /// Follow all symbolic links, inside the image
    #[arg(short = 'L', overrides_with_all = ["physical", "follow_start"])]
    follow: bool,
    /// Start points (IMAGE[:/PATH]), then tests (-name -type -size -mtime -newer -perm -user -empty ...), operators
    /// (! -a -o , \( \)) and actions (-print -print0 -printf -ls -exec -execdir -ok -prune -quit)
    #[arg(
        value_name = "IMAGE[:/PATH]|EXPRESSION",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true
    )]
    words: Vec<OsString>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let (starts, expression) = split_start_points(&args.words);
    if starts.is_empty() {
        let report = Report::new("cannot search", "missing operand");
        return Err(report
            .help("name an image before the expression: obento find disk.img -name '*.conf'")
            .into());
    }
    let references = if args.follow || args.follow_start { Symlinks::Follow } else { Symlinks::Keep };
    let world = HostContext::new(context, references);
    let parsed = parse(expression, &world).map_err(|error| {
        let report = Report::new("cannot search", &error.message);
        Stop::Failed(error.help.iter().fold(report, |report, help| report.help(help)))
    })?;
    parsed.warnings.iter().for_each(|warning| context.note(b"find", warning));
    let json = context.json() || parsed.options.json;
    if json && parsed.formatted {
        let report = Report::new("cannot search", "--json does not support -printf, -print0 or -ls");
        return Err(report.help("omit --json, or the action that --json does not support").into());
    }
    let outputs = parsed.outputs.iter().map(|path| OutputFile::open(path.as_ref()));
    let outputs = outputs.collect::<Result<Vec<_>, Report>>()?;
    let images = starts.iter().filter_map(|start| open::address(start, context).ok());
    let spared: Vec<_> = images.filter_map(|address| FileId::of_path(&address.image)).collect();
    let starts = start_points(starts, args, &parsed, &outputs, &world);
    let sinks = sinks(outputs, &spared, context)?;
    let mut evaluator = Evaluator {
        expr: &parsed.expr,
        zone: world.zone.clone(),
        now: world.now,
        sinks,
        runner: Runner::new(&parsed.commands),
        json,
        columns: Default::default(),
    };
    for start in &starts {
        let symlinks = symlinks(args, &parsed);
        let mut search = Search { start, parsed: &parsed, symlinks, evaluator: &mut evaluator, context };
        if search.run()? == Quit::Yes {
            break;
        }
    }
    go_on()?;
    match evaluator.finish() {
        Err(EvaluationError::Output(error)) => return Err(error.into()),
        Err(EvaluationError::Command(why)) => context.warn(&Report::new("cannot run a command", why)),
        Err(EvaluationError::File(error)) => context.warn(&Report::new("cannot finish", error)),
        Ok(()) => {}
    }
    if evaluator.runner.failed() {
        context.raise(1);
    }
    Ok(())
}

/// Returns standard output and the files of `-fprint` and similar actions. As in GNU find, names on a terminal contain no
/// control characters, whichever action prints them. Fails for a disk image, which would be emptied. `spared` are the
/// images of the start points.
fn sinks(
    outputs: Vec<OutputFile>,
    spared: &[FileId],
    context: &Context,
) -> Result<Vec<Sink<'static>>, Report> {
    let style = style_on(&io::stdout());
    let mut sinks = vec![Sink { out: Box::new(Output::stdout()), style }];
    for output in outputs {
        let file = output.emptied(spared, context)?;
        let style = style_on(&file);
        sinks.push(Sink { out: Box::new(BufWriter::new(file)), style });
    }
    Ok(sinks)
}

fn style_on(output: &impl IsTerminal) -> NameStyle {
    if output.is_terminal() { NameStyle::Question } else { NameStyle::Literal }
}

/// A start point whose image is open.
struct Start {
    /// The address.
    shown: Vec<u8>,
    /// The part of the address before the path.
    prefix: Rc<[u8]>,
    /// The path inside the image.
    path: Vec<u8>,
    volume: Rc<Volume>,
    number: usize,
    fs_type: &'static str,
    node: Node,
}

/// Opens the images that `arguments` name, gives up rights unless commands will run, and finds the start points.
fn start_points(
    arguments: &[OsString],
    args: &Args,
    parsed: &Parsed,
    outputs: &[OutputFile],
    world: &HostContext<'_>,
) -> Vec<Start> {
    let context = world.context;
    let runs_commands = !parsed.commands.is_empty();
    if !runs_commands && open::prepare(arguments, open::BareOperand::Image, Access::ReadOnly, context) {
        OutputFile::seal(outputs, context);
    }
    let opened: Vec<_> = arguments.iter().flat_map(|argument| open::open_each(argument, context)).collect();
    if runs_commands {
        // The copies for commands are removed before the process ends.
        context.stop_between_steps();
    } else {
        OutputFile::seal(outputs, context);
    }
    let mut starts = Vec::new();
    for location in opened {
        let found = location.and_then(|location| {
            knows_owners(&location, parsed)?;
            find_start(location, args, symlinks(args, parsed))
        });
        match found {
            Ok(found) => starts.extend(found.into_iter().map(|found| Start::new(found, world))),
            Err(report) => context.warn(&report),
        }
    }
    starts
}

/// Fails if a test names a user or group that the image does not have, so that the search could only fail.
fn knows_owners(location: &Location, parsed: &Parsed) -> Result<(), Report> {
    let owners = location.volume.owners();
    let unknown = parsed.owners.iter().find(|(owner, name)| owner_id(owners, *owner, name).is_none());
    let Some((owner, name)) = unknown else { return Ok(()) };
    let (word, file, test) = match owner {
        Owner::User => ("user", "passwd", "-uid"),
        Owner::Group => ("group", "group", "-gid"),
    };
    let cause = format!("unknown {word} {}: not in /etc/{file} of the image", subject(name));
    Err(Report::on("cannot search", location.shown(), cause).help(format!("use {test} with a number")))
}

fn owner_id(owners: &Owners, owner: Owner, name: &[u8]) -> Option<u32> {
    match owner {
        Owner::User => owners.uid(name),
        Owner::Group => owners.gid(name),
    }
}

/// Returns the treatment of symbolic links.
fn symlinks(args: &Args, parsed: &Parsed) -> Symlinks {
    if args.follow || parsed.options.follow { Symlinks::Follow } else { Symlinks::Keep }
}

fn find_start(location: Location, args: &Args, symlinks: Symlinks) -> Result<Vec<Found>, Report> {
    if args.follow_start || symlinks == Symlinks::Follow {
        // A symbolic link to nothing is its own start point.
        if let Ok(found) = location.clone().find(Symlinks::Follow, "cannot search") {
            return Ok(found);
        }
    }
    location.find(Symlinks::Keep, "cannot search")
}

impl Start {
    fn new(found: Found, world: &HostContext<'_>) -> Self {
        let Found { location, node } = found;
        let shown = location.shown();
        let Location { volume, prefix, .. } = location;
        let path = shown[prefix.len()..].to_vec();
        let (number, fs_type) = (world.number(&volume), volume.info().probe.fs_type);
        Self { shown, prefix, path, volume, number, fs_type, node }
    }

    /// Returns the path inside the image of the file `below` the start point.
    fn path_of(&self, below: &[u8]) -> Vec<u8> {
        if below.is_empty() { self.path.clone() } else { open::join(&self.path, below) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quit {
    Yes,
    No,
}

/// The search below one start point.
struct Search<'s, 'e> {
    start: &'s Start,
    parsed: &'s Parsed,
    symlinks: Symlinks,
    evaluator: &'s mut Evaluator<'e>,
    context: &'s Context,
}

impl Search<'_, '_> {
    fn run(&mut self) -> Result<Quit, Stop> {
        let options = &self.parsed.options;
        let walk = Walk::new(self.start.node.clone()).order(obento::walk::Order::Directory);
        let mut walk = walk.max_depth(options.max_depth).symlinks(self.symlinks);
        while let Some(met) = walk.next() {
            go_on()?;
            let entry = match met {
                Ok(entry) => entry,
                Err(damage) if damage.error == Error::Loop && self.symlinks == Symlinks::Follow => {
                    let path = [&self.start.prefix, self.start.path_of(&damage.path).as_slice()].concat();
                    let cause = "the symbolic link forms a cycle";
                    self.context.warn(&Report::on("cannot follow", path, cause));
                    continue;
                }
                Err(damage) => {
                    self.warn("cannot read", &self.start.path_of(&damage.path), damage.error);
                    continue;
                }
            };
            let turn = match entry.step {
                Step::Enter => options.order == DirectoryOrder::Pre,
                Step::Leave => options.order == DirectoryOrder::Post,
                Step::File => true,
            };
            if !turn || entry.depth < options.min_depth {
                continue;
            }
            let verdict = self.visit(&entry)?;
            if verdict.quit {
                return Ok(Quit::Yes);
            }
            if verdict.prune && entry.step == Step::Enter {
                walk.prune();
            }
        }
        Ok(Quit::No)
    }

    /// Evaluates the expression for a file.
    fn visit(&mut self, met: &obento::walk::Entry) -> Result<Verdict, Stop> {
        let path = self.start.path_of(&met.path);
        let view =
            View { met, start: self.start, symlinks: self.symlinks, limits: self.context.options().unpack() };
        let entry = VisitedEntry {
            prefix: &self.start.prefix,
            path: &path,
            start: &self.start.shown,
            start_len: self.start.path.len(),
            depth: met.depth,
            file: &view,
        };
        match self.evaluator.evaluate(&entry) {
            Ok(verdict) => return Ok(verdict),
            Err(EvaluationError::Output(error)) => return Err(error.into()),
            Err(EvaluationError::File(error)) => self.warn("cannot examine", &path, error),
            Err(EvaluationError::Command(why)) => {
                self.context.warn(&Report::on("cannot run a command on", entry.address(), why));
            }
        }
        Ok(Verdict::default())
    }

    fn warn(&self, what: &str, path: &[u8], error: Error) {
        self.context.warn(&Report::on(what, [&self.start.prefix, path].concat(), error));
    }
}
