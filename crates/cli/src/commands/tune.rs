//! `obento tune`: changes the settings of a file system.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use obento::{
    Access, ImageFile, Options, Random as _, SystemClock, SystemRandom, TuneError, TuneFailure, TuneOptions,
    tune,
};

use crate::context::Context;
use crate::open;
use crate::output::Outcome;
use crate::parse::uuid::{is_volume_id, uuid_or_volume_id};
use crate::report::{Report, printable};

/// Change the settings of a file system
///
/// Supported are ext2, ext3, ext4, FAT and exFAT. With a journal, all settings of one command change together. The letters are those
/// of tune2fs.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or a partition
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Label; empty removes it
    #[arg(short = 'L', long, value_name = "TEXT")]
    label: Option<OsString>,
    /// UUID, random, time or clear; for FAT and exFAT a volume ID such as 1234-ABCD, or random
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// Percentage of blocks that are reserved for the super user (ext)
    #[arg(short = 'm', long, value_name = "PERCENT")]
    reserved_percent: Option<String>,
    /// Number of reserved blocks (ext)
    #[arg(short = 'r', long, value_name = "N", conflicts_with = "reserved_percent")]
    reserved_blocks: Option<String>,
    /// User who may use reserved blocks: a number (ext)
    #[arg(short = 'u', long, value_name = "UID")]
    reserved_user: Option<String>,
    /// Group that may use reserved blocks: a number (ext)
    #[arg(short = 'g', long, value_name = "GID")]
    reserved_group: Option<String>,
    /// Number of mounts after which to check; 0 or -1 disables this (ext)
    #[arg(short = 'c', long, value_name = "N", allow_hyphen_values = true)]
    max_mount_count: Option<String>,
    /// Number of mounts since the last check (ext)
    #[arg(short = 'C', long, value_name = "N")]
    mount_count: Option<String>,
    /// Time after which to check, in days, or with d, w or m; 0 disables this (ext)
    #[arg(short = 'i', long, value_name = "TIME")]
    check_interval: Option<String>,
    /// Behaviour on errors: continue, remount-ro or panic (ext)
    #[arg(short = 'e', long, value_name = "BEHAVIOUR")]
    errors: Option<String>,
    /// Default mount options to set, or with ^ to clear, separated by commas (ext)
    #[arg(short = 'o', long, value_name = "[^]OPTION,...")]
    default_mount_options: Option<String>,
    /// Features to enable, or with ^ to disable: dir_index, ext_attr, large_file, huge_file, dir_nlink, metadata_csum_seed, [^]read-only
    /// (ext)
    #[arg(short = 'O', long, value_name = "[^]FEATURE,...")]
    features: Option<String>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let shown = args.image.as_bytes();
    let address = open::address(&args.image, context)?;
    if address.place.is_some() {
        let report = Report::on("cannot change", shown, "this is a path inside an image");
        return Err(report.help("name the image, or a partition: IMAGE@PART").into());
    }
    context.expect_changes_allowed(shown)?;
    let wanted = args.options()?;
    let options = Options { access: Access::ReadWrite, ..open::options(context.options()) };
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    if !file.opens_others() {
        context.seal();
    }
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    context.seal();
    image.notices().iter().for_each(|notice| context.note(shown, notice));
    let wanted = match image.volume_bytes(address.part.as_ref()) {
        Ok((_, choice)) => wanted.of(choice.probe().map_or("", |probe| probe.fs_type)),
        Err(error) => return Err(Report::plain(error).into()),
    };
    let notes = tune(&image, address.part.as_ref(), &wanted).map_err(|failure| failed(shown, &failure))?;
    notes.iter().for_each(|note| context.note(shown, note));
    Ok(())
}

fn failed(shown: &[u8], failure: &TuneFailure) -> Report {
    let report = Report::on("cannot change the settings of", shown, failure);
    match failure {
        TuneFailure::NotSupported { fs_type } => match program(fs_type) {
            Some(program) => report.help(format!("{program} changes settings of this type")),
            None => report.help("supported are ext2, ext3, ext4, FAT and exFAT"),
        },
        TuneFailure::Tune(TuneError::Failed(obento::Error::Invalid | obento::Error::Corrupt(_))) => {
            report.help(format!("run 'obento check -y {}' first", printable(shown)))
        }
        _ => report,
    }
}

/// Returns the program that changes settings of a type.
fn program(fs_type: &str) -> Option<&'static str> {
    Some(match fs_type {
        "xfs" => "xfs_admin",
        "btrfs" => "btrfs filesystem label, or btrfstune,",
        "f2fs" => "f2fslabel",
        "ntfs" => "ntfslabel",
        "nilfs2" => "nilfs-tune",
        "reiserfs" => "reiserfstune",
        "jfs" => "jfs_tune",
        "ocfs2" => "tunefs.ocfs2",
        "bcachefs" => "bcachefs set-fs-option",
        _ => return None,
    })
}

/// The requested settings, before the type of the volume is known.
struct Wanted {
    options: TuneOptions,
    /// Whether a random identity is requested: a UUID, or a serial number.
    is_random: bool,
}

impl Wanted {
    /// Returns the settings for a type.
    fn of(self, fs_type: &str) -> TuneOptions {
        let Self { mut options, is_random } = self;
        if is_random && matches!(fs_type, "vfat" | "exfat") {
            let mut serial = [0; 4];
            SystemRandom.fill(&mut serial);
            options.serial = Some(u32::from_le_bytes(serial));
        } else if is_random {
            options.uuid = Some(SystemRandom.uuid());
        }
        options
    }
}

impl Args {
    fn options(&self) -> Result<Wanted, Report> {
        let mut options = TuneOptions::new(Arc::new(SystemClock));
        let mut is_random = false;
        options.label = self.label.clone().map(OsString::into_vec);
        match self.uuid.as_deref() {
            None => {}
            Some("time") => options.uuid = Some(time_uuid()),
            Some(text) if is_volume_id(text) => {
                options.serial = u32::from_str_radix(&text.replace('-', ""), 16).ok();
            }
            Some(text) => match uuid_or_volume_id(text)? {
                Some(uuid) => options.uuid = Some(uuid),
                None => is_random = true,
            },
        }
        let settings = [
            ("reserved_percent", &self.reserved_percent),
            ("reserved_blocks", &self.reserved_blocks),
            ("reserved_uid", &self.reserved_user),
            ("reserved_gid", &self.reserved_group),
            ("max_mount_count", &self.max_mount_count),
            ("mount_count", &self.mount_count),
            ("check_interval", &self.check_interval),
            ("errors", &self.errors),
            ("mount_options", &self.default_mount_options),
            ("features", &self.features),
        ];
        let given = settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        options.settings = given.collect();
        let is_empty = options.label.is_none() && self.uuid.is_none() && options.settings.is_empty();
        match is_empty {
            true => Err(Report::new("cannot change settings", "no setting is given")
                .help("name a setting, such as -L TEXT; 'obento info' shows the current settings")),
            false => Ok(Wanted { options, is_random }),
        }
    }
}

/// Returns a UUID of the present time: version 1 with a random node (RFC 9562, 5.1).
fn time_uuid() -> [u8; 16] {
    /// Units of 100 ns from 15 October 1582 to 1970.
    const BEFORE_1970: u64 = 0x01b2_1dd2_1381_4000;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let units = since.as_secs().wrapping_mul(10_000_000).wrapping_add(u64::from(since.subsec_nanos() / 100));
    let time = units.wrapping_add(BEFORE_1970);
    let mut uuid = SystemRandom.uuid();
    let (low, middle, high) = (time as u32, (time >> 32) as u16, (time >> 48) as u16 & 0x0fff | 0x1000);
    uuid[..4].copy_from_slice(&low.to_be_bytes());
    uuid[4..6].copy_from_slice(&middle.to_be_bytes());
    uuid[6..8].copy_from_slice(&high.to_be_bytes());
    uuid[8] = uuid[8] & 0x3f | 0x80;
    // A node that is not the address of a network card has this bit.
    uuid[10] |= 1;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_of_the_time_has_version_1() {
        let uuid = time_uuid();
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6, uuid[10] & 1), (1, 2, 1));
    }
}
