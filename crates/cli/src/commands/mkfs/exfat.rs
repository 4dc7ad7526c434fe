//! `obento mkfs.exfat`: `obento mkfs -t exfat` with the options of mkfs.exfat(8) of exfatprogs.

use std::ffi::OsString;

use super::args::Args as Common;
use crate::context::Context;
use crate::help::page::{EPOCH, Page};
use crate::output::Outcome;

/// The page of `mkfs.exfat`.
pub const PAGE: Page =
    Page::new(&[("obento mkfs.exfat -L PHOTOS -c 128K card.img 32G", "Create an exFAT volume")])
        .environment(&[EPOCH])
        .see_also(&["mkfs.exfat(8)"]);

/// Create an empty exFAT volume (options of mkfs.exfat)
///
/// This is 'obento mkfs -t exfat' with the options of mkfs.exfat(8) of exfatprogs. Unlike that program, it overwrites existing contents
/// only with --force, and creates a missing file if SIZE is given.
#[derive(clap::Args, Debug)]
#[command(version)]
pub struct Args {
    /// The file, device or partition; a missing file is created
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Size of the volume
    #[arg(value_name = "SIZE")]
    size: Option<String>,
    /// Label, at most 11 UTF-16 units
    #[arg(short = 'L', long = "volume-label", value_name = "LABEL")]
    label: Option<OsString>,
    /// Cluster size in bytes
    #[arg(short = 'c', long, value_name = "SIZE")]
    cluster_size: Option<String>,
    /// Alignment of the FAT and the clusters
    #[arg(short = 'b', long, value_name = "SIZE")]
    boundary_align: Option<String>,
    /// Sector size in bytes: 512 to 4096
    #[arg(short = 's', long, value_name = "SIZE")]
    sector_size: Option<String>,
    /// GUID; by default the volume has none
    #[arg(short = 'U', long = "volume-guid", value_name = "GUID")]
    guid: Option<String>,
    /// Serial number, in hexadecimal
    #[arg(long, value_name = "ID")]
    volume_id: Option<String>,
    /// Store the allocation bitmap after the FAT
    #[arg(long)]
    pack_bitmap: bool,
    /// Zero the whole volume
    #[arg(short = 'f', long)]
    full_format: bool,
    /// Overwrite existing contents
    #[arg(long)]
    force: bool,
    /// Ignored, for compatibility
    #[arg(short = 'v', long, hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// The settings of the driver, and the options that select them.
const NAMED: &[(&str, &str)] = &[
    ("boundary_align", "-b"),
    ("cluster_size", "-c"),
    ("label", "-L"),
    ("sector_size", "-s"),
    ("volume_id", "--volume-id"),
];

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    super::run(&args.common(), context)
}

impl Args {
    /// Returns the corresponding options of `obento mkfs`.
    fn common(&self) -> Common {
        let values = [
            ("boundary_align", &self.boundary_align),
            ("sector_size", &self.sector_size),
            ("volume_id", &self.volume_id),
        ];
        let given = values.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
        let mut extended: Vec<String> = given.collect();
        extended.extend(self.pack_bitmap.then(|| "pack_bitmap".into()));
        extended.extend(self.full_format.then(|| "full_format".into()));
        Common {
            image: self.image.clone(),
            size: self.size.clone(),
            fs_type: "exfat".into(),
            cluster_size: self.cluster_size.clone(),
            uuid: self.guid.clone(),
            extended,
            label: self.label.clone(),
            force: self.force,
            force_option: Some("--force"),
            named: NAMED,
            ..Common::default()
        }
    }
}
