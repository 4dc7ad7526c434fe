//! `obento df`: shows how full the file systems of an image are.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use obento::Volume;
use obento::address::{Address, PartSelector};
use obento::driver::StatFs;
use obento::vfs::Symlinks;

use crate::context::Context;
use crate::escape::width;
use crate::format::size::Unit;
use crate::format::{push_left, push_right};
use crate::help::page::Page;
use crate::json::Line;
use crate::open::{Location, open};
use crate::output::{Outcome, Output};
use crate::parse::size::positive_size;
use crate::report::{Report, printable};

/// The page of `df`.
pub const PAGE: Page =
    Page::new(&[("obento df -h disk.img", "Show the used and free space of all file systems of a disk")])
        .see_also(&["df(1)"]);

/// Show the used and free space of file systems
///
/// An image without @PART is shown with all its partitions.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Images; IMAGE@PART is one partition
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<OsString>,
    /// Print sizes such as 1K, 234M or 2G
    #[arg(short = 'h', long, overrides_with_all = ["si", "kibibytes", "block_size"])]
    human_readable: bool,
    /// Print sizes with powers of 1000
    #[arg(short = 'H', long, overrides_with_all = ["human_readable", "kibibytes", "block_size"])]
    si: bool,
    /// Print sizes in blocks of 1024 bytes (default)
    #[arg(short, long, overrides_with_all = ["human_readable", "si", "block_size"])]
    kibibytes: bool,
    /// Print sizes in blocks of SIZE bytes, such as 512 or 1M
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = positive_size)]
    block_size: Option<u64>,
    /// Show inodes instead of space
    #[arg(short, long)]
    inodes: bool,
    /// Show the type of each file system
    #[arg(short = 'T', long)]
    print_type: bool,
}

/// A file system and its address.
struct Row {
    name: Vec<u8>,
    volume: Rc<Volume>,
    /// The file that is the operand, which must exist.
    file: Option<Location>,
}

impl Row {
    fn new(address: &Address, context: &Context) -> Result<Self, Report> {
        let volume = context.volume(address)?;
        Ok(Self { name: name(address), volume, file: None })
    }
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    crate::open::seal_before_decoding(
        &args.images,
        crate::open::BareOperand::Image,
        obento::driver::Access::ReadOnly,
        context,
    );
    let mut rows = Vec::new();
    for image in &args.images {
        match volumes(image, context) {
            Ok(found) => rows.extend(found),
            Err(report) => context.warn(&report),
        }
    }
    context.seal();
    let mut out = Output::stdout();
    let mut table = Table::new(args);
    for row in &rows {
        let file = row.file.clone().map(|file| file.find(Symlinks::Follow, "cannot access"));
        if let Some(Err(report)) = file {
            context.warn(&report);
            continue;
        }
        let usage = match row.volume.statfs() {
            Ok(usage) => usage,
            Err(error) => {
                context.warn(&Report::on("cannot read the usage of", &row.name, error));
                continue;
            }
        };
        if context.json() {
            Line::new("file_system").bytes("path", &row.name).volume(&row.volume, &usage).write(&mut out)?;
        } else {
            table.add(args, row, &usage);
        }
    }
    if !context.json() && table.rows.len() > 1 {
        out.write_all(&table.text())?;
    }
    out.finish()
}

/// Returns the file systems that an operand names: that of a partition or file, or all file systems of an image.
fn volumes(operand: &OsStr, context: &Context) -> Result<Vec<Row>, Report> {
    let address = crate::open::address(operand, context)?;
    let image = context.image(&address.image)?;
    if address.place.is_some() {
        let file = open(operand, context)?;
        return Ok(vec![Row { name: name(&address), volume: file.volume.clone(), file: Some(file) }]);
    }
    if address.part.is_some() || image.partitions().is_empty() {
        return Ok(vec![Row::new(&address, context)?]);
    }
    let contents = image.probe_all();
    let mut rows = Vec::new();
    for content in contents.iter().filter(|content| content.probe().is_some()) {
        let part = content.partition.as_ref().map(|partition| PartSelector::Number(partition.number));
        let address = Address { image: address.image.clone(), part, place: None };
        match Row::new(&address, context) {
            Ok(row) => rows.push(row),
            Err(report) => context.warn(&report),
        }
    }
    if rows.is_empty() {
        // The message lists the contents of the partitions.
        rows.push(Row::new(&address, context)?);
    }
    Ok(rows)
}

fn name(address: &Address) -> Vec<u8> {
    let mut name = address.image.as_os_str().as_bytes().to_vec();
    if let Some(part) = &address.part {
        name.extend_from_slice(format!("@{part}").as_bytes());
    }
    name
}

/// Cells in rows; the first row is the header.
struct Table {
    rows: Vec<Vec<Vec<u8>>>,
    left: Vec<bool>,
    unit: Unit,
}

impl Table {
    fn new(args: &Args) -> Self {
        let unit = match (args.human_readable, args.si) {
            (true, _) => Unit::Human,
            (_, true) => Unit::Si,
            _ => Unit::Blocks(args.block_size.unwrap_or(1024)),
        };
        let mut header = vec![b"Filesystem".to_vec()];
        let mut left = vec![true];
        if args.print_type {
            header.push(b"Type".to_vec());
            left.push(true);
        }
        let size = match unit {
            Unit::Blocks(size) if size % 1024 == 0 => Unit::Human.text(size).replace(".0", "") + "-blocks",
            Unit::Blocks(size) => format!("{size}-blocks"),
            _ => "Size".to_owned(),
        };
        let size = size.as_str();
        let columns = match (args.inodes, unit) {
            (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
            (false, Unit::Blocks(_)) => [size, "Used", "Available", "Use%"],
            (false, _) => ["Size", "Used", "Avail", "Use%"],
        };
        header.extend(columns.map(|text| text.as_bytes().to_vec()));
        header.push(b"Label".to_vec());
        left.extend([false, false, false, false, true]);
        Self { rows: vec![header], left, unit }
    }

    fn add(&mut self, args: &Args, row: &Row, usage: &StatFs) {
        let probe = row.volume.info().probe;
        let mut cells = vec![printable(&row.name).into_bytes()];
        if args.print_type {
            cells.push(probe.fs_type.as_bytes().to_vec());
        }
        let (unit, size) = (self.unit, u64::from(usage.block_size));
        let text = |count: u64| match (args.inodes, unit) {
            (true, Unit::Blocks(_)) => count.to_string(),
            (true, unit) => unit.text(count),
            (false, unit) => unit.text(count.saturating_mul(size)),
        };
        let (all, free, available) = match args.inodes {
            true => (usage.inodes, usage.free_inodes, usage.free_inodes),
            false => (usage.blocks, usage.free, usage.available),
        };
        let used = all.saturating_sub(free);
        for cell in [text(all), text(used), text(available), percent(used, available)] {
            cells.push(cell.into_bytes());
        }
        cells.push(if probe.label.is_empty() { b"-".to_vec() } else { printable(&probe.label).into_bytes() });
        self.rows.push(cells);
    }

    /// Formats as df.c: columns are as wide as their widest cell; the name has at least 14 columns and a number at least 5.
    fn text(&self) -> Vec<u8> {
        let widths: Vec<usize> = (0..self.left.len())
            .map(|column| {
                let least = match (column, self.left[column]) {
                    (0, _) => 14,
                    (_, true) => 4,
                    // The percentage is the last number.
                    _ if column + 2 == self.left.len() => 4,
                    _ => 5,
                };
                self.rows.iter().map(|row| width(&row[column])).max().unwrap_or(0).max(least)
            })
            .collect();
        let mut out = Vec::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                if column > 0 {
                    out.push(b' ');
                }
                match (self.left[column], column + 1 == row.len()) {
                    (true, true) => out.extend_from_slice(cell),
                    (true, false) => push_left(&mut out, cell, width(cell), widths[column]),
                    (false, _) => push_right(&mut out, cell, widths[column]),
                }
            }
            out.push(b'\n');
        }
        out
    }
}

/// Returns the percentage that is used of the space that users can have, rounded up.
fn percent(used: u64, available: u64) -> String {
    let all = u128::from(used) + u128::from(available);
    if all == 0 { "-".to_owned() } else { format!("{}%", (u128::from(used) * 100).div_ceil(all)) }
}
