//! `obento tune`: changes the settings of a file system.

mod own;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use obento::Options;
use obento::base::{Corrupt, DeviceError, Feature};
use obento::driver::{Access, TuneError, TuneOptions};
use obento::env::{Random as _, SystemClock, SystemRandom};
use obento::image::ImageFile;
use obento::tune::{TuneFailure, tune};

use crate::context::Context;
use crate::help::page::Page;
use crate::open;
use crate::output::Outcome;
use crate::parse::uuid::{is_volume_id, uuid_or_volume_id};
use crate::report::{Report, shell_word, subject};

/// The page of `tune`.
pub const PAGE: Page = Page::new(&[
    ("obento tune disk.img@2 -L data", "Set the label"),
    ("obento tune root.img -U random -m 1", "Set a new UUID, and reserve one percent of the blocks"),
    ("obento tune root.img -e remount-ro -o acl,^discard", "Set the behaviour on errors and mount options"),
    ("obento tune root.img -O has_journal", "Add a journal: ext2 becomes ext3"),
    ("obento tune root.img -O quota,project", "Count the usage of users, groups and projects"),
    ("obento tune stick.img -U 1234-ABCD", "Set the serial number of a FAT or exFAT volume"),
    ("obento tune home.xfs -L home", "Set the label of an XFS volume, with xfs_db"),
])
.see_also(&["tune2fs(8)", "fatlabel(8)", "exfatlabel(8)"]);

/// Change the settings of a file system
///
/// ext2, ext3, ext4, FAT and exFAT are supported. On a volume with a journal, all settings of one command
/// change together. The option letters are those of tune2fs. On XFS, Btrfs, F2FS, JFS and ReiserFS
/// volumes, obento runs the program of the type to change the label and the UUID; the program must be installed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or a partition
    #[arg(value_name = "IMAGE[@PART]")]
    image: OsString,
    /// Label; an empty TEXT removes the label
    #[arg(short = 'L', long, value_name = "TEXT")]
    label: Option<OsString>,
    /// UUID, random, time (a time-based UUID) or clear (zeros); for FAT and exFAT a volume ID such as 1234-ABCD, or random
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// Percentage of blocks that are reserved for the super user (ext2, ext3, ext4)
    #[arg(short = 'm', long, value_name = "PERCENT")]
    reserved_percent: Option<String>,
    /// Number of reserved blocks (ext2, ext3, ext4)
    #[arg(short = 'r', long, value_name = "N", conflicts_with = "reserved_percent")]
    reserved_blocks: Option<String>,
    /// User who may use reserved blocks: a number (ext2, ext3, ext4)
    #[arg(short = 'u', long, value_name = "UID")]
    reserved_user: Option<String>,
    /// Group that may use reserved blocks: a number (ext2, ext3, ext4)
    #[arg(short = 'g', long, value_name = "GID")]
    reserved_group: Option<String>,
    /// Number of mounts after which to check; 0 or -1 disables this (ext2, ext3, ext4)
    #[arg(short = 'c', long, value_name = "N", allow_hyphen_values = true)]
    max_mount_count: Option<String>,
    /// Number of mounts since the last check (ext2, ext3, ext4)
    #[arg(short = 'C', long, value_name = "N")]
    mount_count: Option<String>,
    /// Time after which to check: a number of days, or a number followed by d (days), w (weeks) or m
    /// (months); 0 disables this (ext2, ext3, ext4)
    #[arg(short = 'i', long, value_name = "TIME")]
    check_interval: Option<String>,
    /// Behaviour on errors: continue, remount-ro or panic (ext2, ext3, ext4)
    #[arg(short = 'e', long, value_name = "BEHAVIOUR")]
    errors: Option<String>,
    /// Default mount options to set, or with ^ to clear, separated by commas (ext2, ext3, ext4)
    #[arg(short = 'o', long, value_name = "[^]OPTION,...")]
    default_mount_options: Option<String>,
    /// Features to enable; those marked [^] can also be disabled, with ^: dir_index, ext_attr, large_file, huge_file,
    /// dir_nlink, metadata_csum_seed,
    /// [^]read-only, [^]has_journal, [^]quota, [^]project (ext2, ext3, ext4). A new journal has the default size of mke2fs; quota
    /// creates the quota files of users and groups, and project creates the quota file of projects
    #[arg(short = 'O', long, value_name = "[^]FEATURE,...")]
    features: Option<String>,
    /// Quota files to create, or with ^ to remove: usrquota, grpquota, prjquota (ext2, ext3, ext4). Each change of a file
    /// updates the quota files; only mounts enforce limits
    #[arg(short = 'Q', long, value_name = "[^]FILE,...")]
    quota: Option<String>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let shown = args.image.as_bytes();
    let address = open::image_address(&args.image, context)?;
    if address.place.is_some() {
        let report = Report::on("cannot change", shown, "this is a path inside an image");
        return Err(report.help("name the image, or a partition: IMAGE@PART").into());
    }
    context.expect_changes_allowed(shown)?;
    let wanted = args.options()?;
    let options = Options { access: Access::ReadWrite, ..context.options().image_options() };
    let file = ImageFile::open(&address.image, &options).map_err(open::cannot_open)?;
    let of_ext = args.settings().into_iter().filter(|(.., value)| value.is_some());
    let of_ext: Vec<_> = of_ext.map(|(_, option, _)| option).collect();
    // Only for these settings, the type can turn out to be one that another program changes.
    let may_start =
        of_ext.is_empty() && (args.label.is_some() || args.uuid.is_some()) && own::may_start(context);
    if !file.opens_others() && !may_start {
        context.seal();
    }
    let image = file.decode(context.registry()).map_err(open::cannot_open)?;
    let subject = own::TunedVolume::of(&image, address.part.as_ref(), shown, context);
    if subject.is_none() {
        context.seal();
    }
    open::report_notices(shown, &image, context.messages());
    if let Some(subject) = subject {
        return Ok(subject.tune(&wanted.of(""), &of_ext)?);
    }
    let wanted = match image.volume_bytes(address.part.as_ref()) {
        Ok((_, choice)) => wanted.of(choice.probe().map_or("", |probe| probe.fs_type)),
        Err(error) => return Err(error.into()),
    };
    let notes = tune(&image, address.part.as_ref(), &wanted).map_err(|failure| {
        let part = address.part.as_ref();
        let short = || open::of_short_volume(&image, part);
        let report = failed(shown, args, &failure, &short);
        match failure {
            TuneFailure::Open(error) => error.into(),
            TuneFailure::Unknown(_) => open::of_unknown_data(report, &image, part),
            _ => report,
        }
    })?;
    notes.iter().for_each(|note| context.note(shown, note));
    Ok(())
}

/// The values of `-U`.
const IDENTITIES: &str =
    "write a UUID, random, time or clear; for FAT and exFAT, write a volume ID such as 1234-ABCD";

/// The start of error messages.
const ACTION: &str = "cannot change the settings of";

fn failed(shown: &[u8], args: &Args, failure: &TuneFailure, short: &dyn Fn() -> String) -> Report {
    let report = match failure {
        TuneFailure::Tune(TuneError::Refused { setting, why, .. })
            if setting == "features" && why.starts_with("unknown feature") =>
        {
            Report::on(ACTION, shown, why).help("'obento help tune' lists the features")
        }
        TuneFailure::Tune(TuneError::Refused { setting, why, .. }) if setting == "label" => {
            let (option, value) = args.given("label");
            let cause = format!("invalid value {} for {option}: {why}", subject(value.as_encoded_bytes()));
            Report::on(ACTION, shown, cause).help("write a shorter label, without special characters")
        }
        TuneFailure::Tune(TuneError::Refused { setting, why, .. }) => {
            let (option, value) = args.given(setting);
            let value = value.as_bytes();
            Report::on(ACTION, shown, format!("invalid value {} for {option}: {why}", subject(value)))
        }
        TuneFailure::Tune(TuneError::Unavailable { setting, why, .. }) => {
            Report::on(ACTION, shown, format!("{} is not available: {why}", args.given(setting).0))
        }
        TuneFailure::Tune(TuneError::Failed(obento::Error::Invalid)) => {
            Report::on(ACTION, shown, "the super block or the journal is damaged")
        }
        _ => Report::on(ACTION, shown, failure),
    };
    match failure {
        TuneFailure::Tune(
            TuneError::Refused { step: Some(step), .. } | TuneError::Unavailable { step: Some(step), .. },
        ) => report.help(step),
        TuneFailure::NotSupported { fs_type } => match program(fs_type) {
            Some(program) => report.help(format!("use {program} to change the settings of {fs_type} volumes")),
            None => report.help(
                "this command supports ext2, ext3, ext4, FAT and exFAT, and the label or UUID of XFS, Btrfs, F2FS, JFS and \
                 ReiserFS",
            ),
        },
        TuneFailure::Tune(TuneError::Failed(
            obento::Error::Corrupt(Corrupt::Truncated { .. })
            | obento::Error::Device(DeviceError::OutOfBounds { .. }),
        )) => report.help(short()),
        TuneFailure::Tune(TuneError::Failed(obento::Error::Invalid | obento::Error::Corrupt(_))) => {
            report.help(format!("run 'obento check -y {}' first", shell_word(shown)))
        }
        TuneFailure::Tune(TuneError::Failed(obento::Error::Unsupported(Feature::ExternalJournal))) => {
            report.help("name the file or device of the journal: --journal FILE")
        }
        _ => report,
    }
}

/// Returns the program that changes settings of a type.
fn program(fs_type: &str) -> Option<&'static str> {
    Some(match fs_type {
        "ntfs" => "'ntfslabel'",
        "nilfs2" => "'nilfs-tune', on a block device,",
        "udf" => "'udflabel'",
        "gfs2" => "'tunegfs2'",
        "ocfs2" => "'tunefs.ocfs2'",
        "bcachefs" => "'bcachefs set-fs-option'",
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
    /// Returns the settings of ext volumes: the name, the option and the given value.
    fn settings(&self) -> [(&'static str, &'static str, &Option<String>); 11] {
        [
            ("reserved_percent", "-m", &self.reserved_percent),
            ("reserved_blocks", "-r", &self.reserved_blocks),
            ("reserved_uid", "-u", &self.reserved_user),
            ("reserved_gid", "-g", &self.reserved_group),
            ("max_mount_count", "-c", &self.max_mount_count),
            ("mount_count", "-C", &self.mount_count),
            ("check_interval", "-i", &self.check_interval),
            ("errors", "-e", &self.errors),
            ("mount_options", "-o", &self.default_mount_options),
            ("features", "-O", &self.features),
            ("quota", "-Q", &self.quota),
        ]
    }

    /// Returns the option for a setting, and its value.
    fn given(&self, setting: &str) -> (&'static str, OsString) {
        match self.settings().into_iter().find(|(name, ..)| *name == setting) {
            Some((_, option, value)) => (option, value.clone().unwrap_or_default().into()),
            None if setting == "label" => ("-L", self.label.clone().unwrap_or_default()),
            None => ("-U", self.uuid.clone().unwrap_or_default().into()),
        }
    }

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
            Some(text) => match uuid_or_volume_id(text).map_err(|report| report.help(IDENTITIES))? {
                Some(uuid) => options.uuid = Some(uuid),
                None => is_random = true,
            },
        }
        let given = self
            .settings()
            .into_iter()
            .filter_map(|(name, _, value)| Some((name.to_owned(), value.clone()?)));
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
