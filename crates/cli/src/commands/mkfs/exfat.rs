//! `obento mkfs.exfat`: `obento mkfs -t exfat` with the letters of mkfs.exfat(8) of exfatprogs.

use std::ffi::OsString;

use super::args::Args as Common;
use crate::context::Context;
use crate::output::Outcome;

/// Make an empty exFAT file system, with the letters of mkfs.exfat(8) of exfatprogs
///
/// The same as `obento mkfs -t exfat`, which has its own letters. Unlike that program it destroys what is there already
/// only with --force, and makes a file of SIZE where there is none.
#[derive(clap::Args, Debug)]
#[command(version)]
pub struct Args {
    /// The file, device or partition; a file is made where there is none
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Its size: a number with k, M, G or T
    #[arg(value_name = "SIZE")]
    size: Option<String>,
    /// The label, of at most eleven units of UTF-16
    #[arg(short = 'L', long = "volume-label", value_name = "LABEL")]
    label: Option<OsString>,
    /// Bytes a cluster, with K or M for the unit
    #[arg(short = 'c', long, value_name = "SIZE")]
    cluster_size: Option<String>,
    /// What FAT and clusters begin at a multiple of, with K or M for the unit
    #[arg(short = 'b', long, value_name = "SIZE")]
    boundary_align: Option<String>,
    /// Bytes a sector: 512 to 4096
    #[arg(short = 's', long, value_name = "SIZE")]
    sector_size: Option<String>,
    /// The GUID, or none if not given
    #[arg(short = 'U', long = "volume-guid", value_name = "GUID")]
    guid: Option<String>,
    /// The serial number, in base 16
    #[arg(long, value_name = "ID")]
    volume_id: Option<String>,
    /// Put the bitmap beside the FAT
    #[arg(long)]
    pack_bitmap: bool,
    /// Make zeros of all that is there
    #[arg(short = 'f', long)]
    full_format: bool,
    /// Over what is there already
    #[arg(long)]
    force: bool,
    /// Accepted and ignored
    #[arg(short = 'v', long, hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    super::run(&args.common(), context)
}

impl Args {
    /// The same in the words of `obento mkfs`.
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
            ..Common::default()
        }
    }
}
