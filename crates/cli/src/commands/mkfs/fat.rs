//! `obento mkfs.fat`: `obento mkfs -t vfat` with the letters of mkfs.fat(8).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::args::Args as Common;
use crate::context::Context;
use crate::output::Outcome;
use crate::report::Report;

/// Make an empty FAT file system, with the letters of mkfs.fat(8)
///
/// The same as `obento mkfs -t vfat`, which has its own letters. What is there already is destroyed only with -I.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// The file, device or partition; a file is made where there is none
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Its size in blocks of 1024 bytes
    #[arg(value_name = "BLOCKS")]
    blocks: Option<u64>,
    /// Do not align parts to clusters
    #[arg(short = 'a')]
    no_align: bool,
    /// The sector of the copy of the boot sector; 0 for none
    #[arg(short = 'b', value_name = "SECTOR")]
    backup_boot_sector: Option<String>,
    /// Make the file, which must not be there
    #[arg(short = 'C', requires = "blocks")]
    create: bool,
    /// The BIOS' number of the drive
    #[arg(short = 'D', value_name = "NUMBER")]
    drive_number: Option<String>,
    /// How many FATs
    #[arg(short = 'f', value_name = "COUNT")]
    fats: Option<String>,
    /// Bits an entry of the FAT: 12, 16 or 32
    #[arg(short = 'F', value_name = "SIZE")]
    fat: Option<String>,
    /// Heads, and sectors a track
    #[arg(short = 'g', value_name = "HEADS/SECTORS")]
    geometry: Option<String>,
    /// Sectors before the volume
    #[arg(short = 'h', value_name = "NUMBER")]
    hidden_sectors: Option<String>,
    /// The volume ID, in base 16
    #[arg(short = 'i', value_name = "ID")]
    volume_id: Option<String>,
    /// Over what is there already
    #[arg(short = 'I')]
    force: bool,
    /// The medium's kind: 0xf0, or 0xf8 to 0xff
    #[arg(short = 'M', value_name = "TYPE")]
    media: Option<String>,
    /// The label
    #[arg(short = 'n', value_name = "LABEL")]
    label: Option<OsString>,
    /// The code page of the label: 437, 850, 1252
    #[arg(long, value_name = "N")]
    codepage: Option<String>,
    /// Entries of the root directory, at least
    #[arg(short = 'r', value_name = "COUNT")]
    root_entries: Option<String>,
    /// Reserved sectors, at least
    #[arg(short = 'R', value_name = "COUNT")]
    reserved_sectors: Option<String>,
    /// Sectors a cluster
    #[arg(short = 's', value_name = "COUNT")]
    sectors_per_cluster: Option<String>,
    /// Bytes a sector
    #[arg(short = 'S', value_name = "SIZE")]
    sector_size: Option<String>,
    /// The sector of the image in which the volume begins
    #[arg(long, value_name = "SECTOR")]
    offset: Option<u64>,
    /// The same bytes each time: the time and the volume ID are constants
    #[arg(long)]
    invariant: bool,
    /// Accepted and ignored
    #[arg(short = 'v', hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Read all clusters first; those that cannot be read are not used
    #[arg(short = 'c')]
    check_blocks: bool,
    /// A file with the numbers of bad blocks of 1024 bytes, one a line, as badblocks(8) writes it
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<PathBuf>,
    /// A file with what the boot sector says when somebody starts it; - for standard input
    #[arg(short = 'm', value_name = "FILE")]
    message: Option<PathBuf>,
    /// Whether the boot sector tells of a partition that is the volume: y, n; a for n
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true, default_missing_value = "y")]
    #[arg(value_parser = ["y", "yes", "n", "no", "a", "auto"])]
    mbr: Option<String>,
    /// The variant, of which there is one: standard
    #[arg(long, value_name = "TYPE")]
    variant: Option<String>,
    /// What `mkfs.fat` has and obento does not, to be refused by name
    #[arg(short = 'A', hide = true)]
    atari: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// What `--invariant` takes for the time, in seconds, and for the volume ID. Source: dosfstools 4.2, src/mkfs.fat.c.
const INVARIANT: (i64, &str) = (1_426_325_213, "1234abcd");

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    match args.common() {
        Ok(common) => super::run(&common, context),
        Err(report) => {
            context.warn(&report);
            Ok(())
        }
    }
}

impl Args {
    /// The same in the words of `obento mkfs`.
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
            settings.extend(path.as_deref().map(|path| Ok((name.to_owned(), text(path)?))).transpose()?);
        }
        Ok(Common {
            image: self.image.clone(),
            size: self.blocks.map(|blocks| format!("{blocks}k")),
            fs_type: "vfat".into(),
            extended,
            settings,
            label: self.label.clone(),
            force: self.force,
            epoch: self.invariant.then_some(INVARIANT.0),
            ..Common::default()
        })
    }

    /// Refuses by name what `mkfs.fat` does and obento does not.
    fn refuse(&self) -> Result<(), Report> {
        if self.create && std::path::Path::new(&self.image).exists() {
            let shown = self.image.as_bytes();
            return Err(Report::on("cannot make", shown, "it is there").help("leave -C out to use it"));
        }
        let lacking = [
            (self.atari, "-A", "no system but that of the Atari reads its variant"),
            (
                self.variant.as_ref().is_some_and(|name| !name.eq_ignore_ascii_case("standard")),
                "--variant",
                "no system but that of the Atari reads its variant",
            ),
        ];
        match lacking.iter().find(|(given, ..)| *given) {
            Some((_, letter, help)) => {
                Err(Report::new(format!("cannot use {letter}"), "mkfs.fat has it and obento does not")
                    .help(*help))
            }
            None => Ok(()),
        }
    }
}

/// The most bytes of a list or a message that is taken.
const TEXT_MAX: u64 = 1 << 20;

/// The bytes of a file or of standard input, each as the character of its number.
fn text(path: &Path) -> Result<String, Report> {
    let report = |error: io::Error| Report::on("cannot read", path.as_os_str().as_bytes(), error.to_string());
    let source: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(report)?)
    };
    let mut bytes = Vec::new();
    source.take(TEXT_MAX).read_to_end(&mut bytes).map_err(report)?;
    Ok(bytes.into_iter().map(char::from).collect())
}
