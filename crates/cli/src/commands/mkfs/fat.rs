//! `obento mkfs.fat`: `obento mkfs -t vfat` with the options of mkfs.fat(8).

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::args::Args as Common;
use crate::context::Context;
use crate::help::page::{EPOCH, Page};
use crate::input;
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `mkfs.fat`.
pub const PAGE: Page =
    Page::new(&[("obento mkfs.fat -C -F 32 -n BOOT esp.img 524288", "Create a FAT32 volume of 512 MiB")])
        .environment(&[EPOCH])
        .see_also(&["mkfs.fat(8)"]);

/// Create an empty FAT volume (options of mkfs.fat)
///
/// This is 'obento mkfs -t vfat' with the options of mkfs.fat(8). It overwrites existing contents only with -I.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// The file, device or partition; a missing file is created
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Size in blocks of 1024 bytes
    #[arg(value_name = "BLOCKS")]
    blocks: Option<u64>,
    /// Do not align structures to clusters
    #[arg(short = 'a')]
    no_align: bool,
    /// Sector of the copy of the boot sector; 0 for none
    #[arg(short = 'b', value_name = "SECTOR")]
    backup_boot_sector: Option<String>,
    /// Create the file, which must not exist
    #[arg(short = 'C', requires = "blocks")]
    create: bool,
    /// BIOS drive number
    #[arg(short = 'D', value_name = "NUMBER")]
    drive_number: Option<String>,
    /// Number of FATs
    #[arg(short = 'f', value_name = "COUNT")]
    fats: Option<String>,
    /// Bits per FAT entry: 12, 16 or 32
    #[arg(short = 'F', value_name = "SIZE")]
    fat: Option<String>,
    /// Heads, and sectors per track
    #[arg(short = 'g', value_name = "HEADS/SECTORS")]
    geometry: Option<String>,
    /// Number of hidden sectors before the volume
    #[arg(short = 'h', value_name = "NUMBER")]
    hidden_sectors: Option<String>,
    /// Volume ID, in hexadecimal
    #[arg(short = 'i', value_name = "ID")]
    volume_id: Option<String>,
    /// Overwrite existing contents
    #[arg(short = 'I')]
    force: bool,
    /// Media type: 0xf0, or 0xf8 to 0xff
    #[arg(short = 'M', value_name = "TYPE")]
    media: Option<String>,
    /// Label
    #[arg(short = 'n', value_name = "LABEL")]
    label: Option<OsString>,
    /// Code page of the label: 437, 850, 1252
    #[arg(long, value_name = "N")]
    codepage: Option<String>,
    /// Minimum number of root directory entries
    #[arg(short = 'r', value_name = "COUNT")]
    root_entries: Option<String>,
    /// Minimum number of reserved sectors
    #[arg(short = 'R', value_name = "COUNT")]
    reserved_sectors: Option<String>,
    /// Sectors per cluster
    #[arg(short = 's', value_name = "COUNT")]
    sectors_per_cluster: Option<String>,
    /// Sector size in bytes
    #[arg(short = 'S', value_name = "SIZE")]
    sector_size: Option<String>,
    /// Sector of the image at which the volume starts
    #[arg(long, value_name = "SECTOR")]
    offset: Option<u64>,
    /// Write the same bytes each time: time and volume ID are constants
    #[arg(long)]
    invariant: bool,
    /// Ignored, for compatibility
    #[arg(short = 'v', hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Read all clusters first, and mark unreadable ones as bad
    #[arg(short = 'c')]
    check_blocks: bool,
    /// A file with the numbers of bad blocks of 1024 bytes, one per line, as badblocks(8) writes it
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<PathBuf>,
    /// A file with the message that the boot sector prints; - for standard input
    #[arg(short = 'm', value_name = "FILE")]
    message: Option<PathBuf>,
    /// Write a partition table with one entry for the volume to the boot sector: y or n; a (auto) has the same effect as n
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true, default_missing_value = "y")]
    #[arg(value_parser = ["y", "yes", "n", "no", "a", "auto"])]
    mbr: Option<String>,
    /// Variant; only 'standard' is supported
    #[arg(long, value_name = "TYPE")]
    variant: Option<String>,
    /// An option of mkfs.fat that obento rejects with an explanation.
    #[arg(short = 'A', hide = true)]
    atari: bool,
}

/// The time in seconds and the volume ID of `--invariant`. Source: dosfstools 4.2, src/mkfs.fat.c.
const INVARIANT: (i64, &str) = (1_426_325_213, "1234abcd");

/// The settings of the driver, and the options that select them.
const NAMED: &[(&str, &str)] = &[
    ("backup_boot_sector", "-b"),
    ("drive_number", "-D"),
    ("fats", "-f"),
    ("fat", "-F"),
    ("geometry", "-g"),
    ("hidden_sectors", "-h"),
    ("volume_id", "-i"),
    ("media", "-M"),
    ("label", "-n"),
    ("codepage", "--codepage"),
    ("root_entries", "-r"),
    ("reserved_sectors", "-R"),
    ("sectors_per_cluster", "-s"),
    ("sector_size", "-S"),
];

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    super::run(&args.common()?, context)
}

impl Args {
    /// Returns the corresponding options of `obento mkfs`.
    fn common(&self) -> Result<Common, Report> {
        self.refuse()?;
        let values = [
            ("backup_boot_sector", &self.backup_boot_sector),
            ("drive_number", &self.drive_number),
            ("fats", &self.fats),
            ("fat", &self.fat),
            ("geometry", &self.geometry),
            ("hidden_sectors", &self.hidden_sectors),
            ("volume_id", &self.volume_id),
            ("media", &self.media),
            ("codepage", &self.codepage),
            ("root_entries", &self.root_entries),
            ("reserved_sectors", &self.reserved_sectors),
            ("sectors_per_cluster", &self.sectors_per_cluster),
            ("sector_size", &self.sector_size),
        ];
        let given = values.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
        let mut extended: Vec<String> = given.collect();
        if self.invariant && self.volume_id.is_none() {
            extended.push(format!("volume_id={}", INVARIANT.1));
        }
        if self.no_align {
            extended.push("no_align".into());
        }
        if let Some(sector) = self.offset {
            let size: u64 = self.sector_size.as_ref().and_then(|size| size.parse().ok()).unwrap_or(512);
            extended.push(format!("offset={}", sector.saturating_mul(size)));
        }
        if self.check_blocks {
            extended.push("check_blocks".into());
        }
        if self.mbr.as_ref().is_some_and(|whether| whether.starts_with('y')) {
            extended.push("mbr".into());
        }
        let mut settings = Vec::new();
        for (name, path) in [("bad_blocks", &self.bad_blocks), ("message", &self.message)] {
            let Some(path) = path else { continue };
            let text = text(path)?;
            if name == "bad_blocks" {
                expect_numbers(path, &text)?;
            }
            settings.push((name.to_owned(), text));
        }
        Ok(Common {
            image: self.image.clone(),
            size: self.blocks.map(|blocks| format!("{blocks}k")),
            fs_type: "vfat".into(),
            extended,
            settings,
            label: self.label.clone(),
            force: self.force,
            force_option: Some("-I"),
            named: NAMED,
            epoch: self.invariant.then_some(INVARIANT.0),
            ..Common::default()
        })
    }

    /// Rejects the options of `mkfs.fat` that obento does not support, by name.
    fn refuse(&self) -> Result<(), Report> {
        if self.create && std::path::Path::new(&self.image).exists() {
            let shown = self.image.as_bytes();
            return Err(
                Report::on("cannot create", shown, "file exists").help("omit -C to use the existing file")
            );
        }
        if let Some(name) = self.variant.as_ref().filter(|name| !name.eq_ignore_ascii_case("standard")) {
            let report = Report::plain(format!("invalid value {} for --variant", subject(name)));
            return Err(report.help("use 'standard', or omit --variant"));
        }
        let lacking = [(self.atari, "-A", "only Atari systems read this variant")];
        match lacking.iter().find(|(given, ..)| *given) {
            Some((_, letter, help)) => {
                Err(Report::plain(format!("option {letter} of mkfs.fat is not supported")).help(*help))
            }
            None => Ok(()),
        }
    }
}

/// The maximum length of a list or a message, in bytes.
const TEXT_MAX: u64 = 1 << 20;

/// Fails with the first line of a list of bad blocks that is not a number.
fn expect_numbers(path: &Path, text: &str) -> Result<(), Report> {
    let is_number = |word: &str| word.parse::<u64>().is_ok();
    match text.lines().position(|line| !line.split_ascii_whitespace().all(is_number)) {
        None => Ok(()),
        Some(at) => {
            let cause = format!("line {} is not a number", at + 1);
            Err(Report::on("cannot read the bad blocks in", path.as_os_str().as_bytes(), cause)
                .help("write the number of one block of 1024 bytes on each line"))
        }
    }
}

/// Returns the bytes of a file or of standard input as Latin-1 text: one character for each byte.
fn text(path: &Path) -> Result<String, Report> {
    let report = |error: io::Error| Report::on("cannot read", path.as_os_str().as_bytes(), error.to_string());
    let source: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(input::open("cannot read", path)?)
    };
    let mut bytes = Vec::new();
    source.take(TEXT_MAX).read_to_end(&mut bytes).map_err(report)?;
    Ok(bytes.into_iter().map(char::from).collect())
}
