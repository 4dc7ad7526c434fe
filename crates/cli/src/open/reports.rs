//! The reports of images and volumes that cannot be opened or are damaged.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use obento::address::PartSelector;
use obento::base::{DeviceError, Feature};
use obento::driver::{Access, VolumeOptions};
use obento::host::{HostError, Purpose};
use obento::image::ImageNotice;
use obento::partition::TableNotice;
use obento::{Error, Image, OpenError, Registry, Volume};

use crate::messages::Messages;
use crate::options::GlobalOptions;
use crate::report::{HELP, Report};

/// The environment variable that names the kernel of the kernel engine.
const KERNEL: &str = "OBENTO_LINUX";

/// Prints the notices about `image`, which a command opened itself, and reports its damage.
pub fn report_notices(shown: &[u8], image: &Image, messages: &Messages) {
    report_notices_but(shown, image, messages, |_| false);
}

/// Like [`report_notices`], but without the notices for which `is_reported` returns true.
pub fn report_notices_but(
    shown: &[u8],
    image: &Image,
    messages: &Messages,
    is_reported: impl Fn(&ImageNotice) -> bool,
) {
    let notes = image.notices().iter().filter(|notice| !notice.is_damage() && !is_reported(notice));
    notes.for_each(|notice| messages.note(shown, image_note(notice, image)));
    damage(shown, image).for_each(|report| messages.warn(&report));
}

/// Returns the text of a notice about `image`, with the command that repairs its partition table. An image that cannot be
/// changed has no such command.
pub fn image_note(notice: &ImageNotice, image: &Image) -> String {
    match notice {
        ImageNotice::Table(TableNotice::Backup(_)) if image.can_be_changed() => {
            let disk = crate::report::shell_word(image.path().as_os_str().as_bytes());
            format!("{notice}{HELP}run 'obento part {disk} repair-backup' to repair the GPT")
        }
        notice => notice.to_string(),
    }
}

/// Returns the report of data in which no driver recognises a volume. The error of opening describes the data better
/// than `report`. If a damaged volume opens, the hint is the command that repairs the volume, or the hint says that the
/// command does not support the type.
pub fn of_unknown_data(report: Report, image: &Image, part: Option<&PartSelector>) -> Report {
    let volume = match image.volume_to_read(part) {
        Ok(volume) => volume,
        Err(error) => return error.into(),
    };
    let fs_type = volume.info().probe.fs_type;
    if !can_be_repaired(&volume, image.registry()) {
        return report
            .help(format!("the data is a damaged {fs_type} volume, which this command does not support"));
    }
    let part = part.map_or_else(String::new, |part| format!("@{part}"));
    let shown = crate::report::shell_word([image.path().as_os_str().as_bytes(), part.as_bytes()].concat());
    report.help(format!("repair the volume first: obento --fs-type {fs_type} check -y {shown}"))
}

/// Returns the reports of damaged compressed streams.
pub fn damage<'a>(shown: &'a [u8], image: &'a Image) -> impl Iterator<Item = Report> + 'a {
    let damage = image.notices().iter().filter(|notice| notice.is_damage());
    damage.map(move |notice| {
        Report::on("found damage in", shown, notice).help("get a complete and undamaged copy of the file")
    })
}

/// # Errors
///
/// A compressed stream is damaged, so that `action`, such as `cannot mount`, could later return wrong data silently.
pub fn expect_undamaged(action: &str, shown: &[u8], image: &Image) -> Result<(), Report> {
    match image.notices().iter().find(|notice| notice.is_damage()) {
        None => Ok(()),
        Some(notice) => Err(Report::on(action, shown, notice).help(
            "get a complete and undamaged copy of the file; 'obento recover' copies the files that it contains",
        )),
    }
}

/// Returns `report` of `error`, which occurred when a directory or an inode was read, with a hint if the volume is
/// damaged or incomplete.
pub fn damaged(report: Report, error: Error) -> Report {
    match error {
        Error::Corrupt(_) => report.help("'obento recover' copies the readable files of a damaged volume"),
        Error::Device(DeviceError::OutOfBounds { .. }) => report
            .help("get a complete copy of the image; 'obento recover' copies the files that are present"),
        _ => report,
    }
}

/// Returns whether `obento check -y` may repair the volume. A driver that changes no volumes repairs none.
pub fn can_be_repaired(volume: &Volume, registry: &Registry) -> bool {
    let driver = registry.find(volume.info().probe.fs_type);
    driver.is_some_and(|driver| driver.check().is_some() && driver.access() == Access::ReadWrite)
}

/// Returns the report that the command needs an image, and `server` is a FUSE server or an NFS export.
pub fn needs_image(server: &Path) -> Report {
    Report::on(
        "cannot use",
        server.as_os_str().as_bytes(),
        "this command needs an image, not a file server",
    )
    .help(
        "commands that read files accept such addresses: ls, tree, cat, stat, find, du, cp, export, diff, \
         grep, mount",
    )
}

/// Returns the report of a volume that its driver does not open with the options `shown`, if one of them is the cause.
pub fn option_refused(error: &OpenError, shown: VolumeOptions) -> Option<Report> {
    let OpenError::Volume { fs_type, error, image, .. } = error else { return None };
    let report = |cause: String| Report::on("cannot open", image.as_os_str().as_bytes(), cause);
    match (**error, shown) {
        (Error::NotFound, VolumeOptions { subvolume: Some(number), .. }) => {
            let cause = format!("the volume has no subvolume with the number {number}");
            Some(report(cause).help("omit subvolid to open the default subvolume"))
        }
        (Error::NotSupported, VolumeOptions { keep_last_dots: true, .. }) => {
            let cause = format!("the option keep_last_dots is not available for {fs_type}");
            Some(report(cause).help("omit keep_last_dots"))
        }
        (Error::NotSupported, VolumeOptions { code_page: Some(page), .. }) => {
            let cause = format!("the code page {page} is not available for {fs_type}");
            Some(report(cause).help("omit codepage"))
        }
        _ => None,
    }
}

/// Returns the report of a volume that cannot be opened. If its driver only reads and builds volumes, the report names
/// the command that builds one.
pub fn not_opened(error: &OpenError, options: &GlobalOptions, registry: &Registry) -> Report {
    let report = Report::from(error);
    if let Some(report) = option_refused(error, options.shown()) {
        return report;
    }
    let OpenError::Volume { fs_type, error, image, .. } = error else { return report };
    let driver = registry.find(fs_type);
    let is_built =
        driver.is_some_and(|driver| driver.access() == Access::ReadOnly && driver.build().is_some());
    match **error {
        Error::Unsupported(Feature::Writing) if is_built => report.help(format!(
            "copy the files to a directory, change them there, and run 'obento build -t {fs_type} NEW --from DIR'"
        )),
        Error::Unsupported(Feature::Writing) => {
            report.help("copy the files to a directory with 'obento cp', and change the copies")
        }
        Error::Device(DeviceError::Engine(reason)) if reason.starts_with("reports damage") => {
            let image = crate::report::shell_word(image.as_os_str().as_bytes());
            report.help(format!("run 'obento check {image}' to list the damage"))
        }
        Error::Device(DeviceError::Engine(_)) => match std::env::var_os(KERNEL) {
            Some(kernel) => report.help(format!(
                "{KERNEL} selects the kernel {}; unset {KERNEL} to use the installed kernel",
                crate::report::shell_word(kernel.as_bytes())
            )),
            None => report,
        },
        _ => report,
    }
}

/// Returns what to do about a volume that is longer than the bytes that `part` of `image` selects.
pub fn of_short_volume(image: &Image, part: Option<&PartSelector>) -> String {
    match image.partition_to_grow(part) {
        Some((number, free)) if free > 0 => {
            let disk = crate::report::shell_word(image.path().as_os_str().as_bytes());
            format!("if the partition is shorter than its volume, run 'obento part {disk} grow {number}'")
        }
        _ => {
            "get a complete copy of the image; 'obento recover' copies the files that are present".to_owned()
        }
    }
}

/// Returns the report of an image that cannot be opened, with the option that opens it.
pub fn cannot_open(error: OpenError) -> Report {
    let report = Report::from(&error);
    match error {
        OpenError::Missing { image } if obento::address::server_of(&image).is_some() => needs_image(&image),
        OpenError::Host(HostError::Unsupported { format, path, feature }) => {
            let image = crate::report::shell_word(path.as_os_str().as_bytes());
            match (format, &*feature) {
                (_, "encryption") => {
                    report.help("decrypt the image first, for example with qemu-img convert")
                }
                ("qcow2" | "vhd" | "vhdx" | "vmdk" | "vdi", _) => {
                    report.help(format!("convert the image: qemu-img convert -O qcow2 {image} plain.qcow2"))
                }
                _ => report,
            }
        }
        OpenError::Host(HostError::WrongCounts { path, .. }) => {
            let image = crate::report::shell_word(path.as_os_str().as_bytes());
            report.help(format!("repair the image: qemu-img check -r all {image}"))
        }
        OpenError::Host(HostError::Damaged { .. }) => {
            report.help("get a complete and undamaged copy of the file")
        }
        OpenError::Host(HostError::Reference { .. }) => {
            report.help("use --allow-backing if you trust the image: it can name any file that you can read")
        }
        OpenError::Host(HostError::InUse { purpose: Purpose::Read, .. }) => {
            report.also("or use --no-lock to read a mixture of old and new contents")
        }
        _ => report,
    }
}
