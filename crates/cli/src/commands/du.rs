//! `obento du`: sums up disk usage as GNU `du` does. A file with several names counts once.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::rc::Rc;

use obento::Volume;
use obento::base::{Attr, Ino};
use obento::vfs::Symlinks;
use obento::walk::{Step, Walk};

use crate::context::Context;
use crate::format::size::Unit;
use crate::help::page::Page;
use crate::json::Line;
use crate::open::{Found, find_all, join};
use crate::output::{Outcome, Output, go_on};
use crate::parse::size::positive_size;
use crate::report::Report;

/// The page of `du`.
pub const PAGE: Page =
    Page::new(&[("obento du -sh disk.img:/usr", "Print the space that /usr uses")]).see_also(&["du(1)"]);

/// Sum up the disk usage of files and directories
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images, and files and directories in them
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
    /// Show files too, not only directories
    #[arg(short, long)]
    all: bool,
    /// Show only a total for each operand
    #[arg(short, long)]
    summarize: bool,
    /// Show a grand total at the end
    #[arg(short = 'c', long)]
    total: bool,
    /// Show only entries that are at most N levels below an operand
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Print sizes such as 1K, 234M or 2G
    #[arg(short = 'h', long, overrides_with_all = ["si", "bytes", "kibibytes", "mebibytes", "block_size"])]
    human_readable: bool,
    /// Print sizes with powers of 1000
    #[arg(long, overrides_with_all = ["human_readable", "bytes", "kibibytes", "mebibytes", "block_size"])]
    si: bool,
    /// Print apparent sizes in bytes
    #[arg(short, long)]
    bytes: bool,
    /// Print sizes in blocks of 1024 bytes (default)
    #[arg(short, long, overrides_with_all = ["human_readable", "si", "mebibytes", "block_size"])]
    kibibytes: bool,
    /// Print sizes in blocks of 1048576 bytes
    #[arg(short, long, overrides_with_all = ["human_readable", "si", "kibibytes", "block_size"])]
    mebibytes: bool,
    /// Print sizes in blocks of SIZE bytes, such as 512 or 1M
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = positive_size)]
    block_size: Option<u64>,
    /// Print apparent sizes instead of disk usage
    #[arg(long)]
    apparent_size: bool,
    /// Count inodes instead of space
    #[arg(long)]
    inodes: bool,
    /// Count a file once for each of its names
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Exclude subdirectories from the size of a directory
    #[arg(short = 'S', long)]
    separate_dirs: bool,
    /// Follow symbolic links that are operands
    #[arg(short = 'D', long, visible_short_alias = 'H')]
    dereference_args: bool,
    /// End each line with NUL instead of a newline
    #[arg(short = '0', long)]
    null: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    if args.summarize && args.all {
        let help = "use -a to show every file, or -s to show only totals";
        return Err(Report::new("cannot combine -a and -s", "they contradict each other").help(help).into());
    }
    if args.summarize && args.max_depth.is_some_and(|depth| depth > 0) {
        let help = "use -d to show N levels, or -s to show only totals";
        return Err(Report::new("cannot combine -d and -s", "they contradict each other").help(help).into());
    }
    let symlinks = if args.dereference_args { Symlinks::Follow } else { Symlinks::Keep };
    let found = find_all(&args.paths, symlinks, context, |report| context.warn(report));
    let mut counter =
        Counter { args, context, out: Output::stdout(), counted: HashSet::new(), volumes: Vec::new() };
    let mut total = 0_u64;
    for operand in found {
        total = total.saturating_add(counter.operand(&operand)?);
    }
    if args.total {
        counter.write(total, b"total", true)?;
    }
    counter.out.finish()
}

struct Counter<'a> {
    args: &'a Args,
    context: &'a Context,
    out: Output,
    /// The files with several names that were counted, by the index of their volume.
    counted: HashSet<(usize, Ino)>,
    volumes: Vec<Rc<Volume>>,
}

/// The sums of a directory that is being walked.
#[derive(Default)]
struct Sum {
    /// The directory and its files.
    own: u64,
    /// The subdirectories.
    below: u64,
}

impl Counter<'_> {
    /// Counts an operand, prints the requested lines, and returns its size.
    fn operand(&mut self, operand: &Found) -> Result<u64, crate::output::Stop> {
        let shown = operand.shown();
        let volume = self.volume(&operand.location.volume);
        let mut sums: Vec<Sum> = Vec::new();
        let mut total = 0_u64;
        for step in Walk::new(operand.node.clone()) {
            go_on()?;
            let entry = match step {
                Ok(entry) => entry,
                Err(damage) => {
                    let path =
                        if damage.path.is_empty() { shown.clone() } else { join(&shown, &damage.path) };
                    self.context.warn(&Report::on("cannot read", path, damage.error));
                    continue;
                }
            };
            let path = || if entry.path.is_empty() { shown.clone() } else { join(&shown, &entry.path) };
            match entry.step {
                Step::Enter => sums.push(Sum { own: self.size(&entry.attr), below: 0 }),
                Step::File => {
                    if !self.is_first(volume, &entry.attr) {
                        continue;
                    }
                    let size = self.size(&entry.attr);
                    total = total.saturating_add(size);
                    if let Some(sum) = sums.last_mut() {
                        sum.own = sum.own.saturating_add(size);
                    }
                    if self.args.all || entry.depth == 0 {
                        self.show(size, entry.depth, path)?;
                    }
                }
                Step::Leave => {
                    let Some(sum) = sums.pop() else { continue };
                    let all = sum.own.saturating_add(sum.below);
                    total = if entry.depth == 0 { all } else { total };
                    if let Some(parent) = sums.last_mut() {
                        parent.below = parent.below.saturating_add(all);
                    }
                    self.show(if self.args.separate_dirs { sum.own } else { all }, entry.depth, path)?;
                }
            }
        }
        Ok(total)
    }

    fn volume(&mut self, volume: &Rc<Volume>) -> usize {
        let known = self.volumes.iter().position(|known| Rc::ptr_eq(known, volume));
        known.unwrap_or_else(|| {
            self.volumes.push(volume.clone());
            self.volumes.len() - 1
        })
    }

    fn is_first(&mut self, volume: usize, attr: &Attr) -> bool {
        self.args.count_links || attr.nlink <= 1 || self.counted.insert((volume, attr.ino))
    }

    fn size(&self, attr: &Attr) -> u64 {
        match () {
            () if self.args.inodes => 1,
            () if self.args.apparent_size || self.args.bytes => attr.size,
            () => attr.blocks.saturating_mul(512),
        }
    }

    fn show(&mut self, size: u64, depth: usize, path: impl FnOnce() -> Vec<u8>) -> Outcome {
        let most = if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(usize::MAX) };
        if depth > most { Ok(()) } else { self.write(size, &path(), false) }
    }

    fn write(&mut self, size: u64, path: &[u8], is_total: bool) -> Outcome {
        if self.context.json() {
            let line = Line::new(if is_total { "total" } else { "usage" });
            let line = if is_total { line } else { line.bytes("path", path) };
            return Ok(line
                .field(if self.args.inodes { "inodes" } else { "bytes" }, size)
                .write(&mut self.out)?);
        }
        self.out.write_all(self.unit().text(size).as_bytes())?;
        self.out.write_all(b"\t")?;
        self.out.write_name(path)?;
        Ok(self.out.write_all(if self.args.null { b"\0" } else { b"\n" })?)
    }

    fn unit(&self) -> Unit {
        let args = self.args;
        match () {
            () if args.human_readable => Unit::Human,
            () if args.si => Unit::Si,
            () if args.bytes || args.inodes => Unit::Blocks(1),
            () if args.mebibytes => Unit::Blocks(1 << 20),
            () => Unit::Blocks(args.block_size.unwrap_or(1024)),
        }
    }
}
