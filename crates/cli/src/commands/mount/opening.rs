//! Opening the volume of a mount.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use obento::address::{Address, FileSelector};
use obento::base::Feature;
use obento::block::RedoLog;
use obento::driver::{Access, Replay, StoredProperties};
use obento::host::IoBackend;
use obento::image::{ImageFile, Recording};
use obento::provenance::{LogOptions, WriteSource};
use obento::vfs::Atime;
use obento::{Error, OpenError, Options, Volume};
use obento_fuse::options::{AccessTimes, MountOptions, ReadWrite};
use obento_fuse::{KernelClock, Ledger, Processes};

use super::args::Args;
use super::control::volume_obstacle;
use super::limits::expect_limits;
use super::opened::{MountedImage, OpenedMount, SharedDisk};
use crate::context::Context;
use crate::open::{NotedVolume, cannot_open, expect_undamaged, option_refused, report_notices};
use crate::report::Report;
use crate::shown::{GivenNames as _, in_vain};

/// Opens the volume: for change if requested, or if possible and not forbidden. Records the choice in `options`.
pub fn open(
    args: &Args,
    address: &Address,
    options: &mut MountOptions,
    ledger: Option<Arc<Ledger>>,
    context: &Context,
) -> Result<OpenedMount, Report> {
    let shown = args.image().as_bytes();
    if address.server().is_some() {
        let volume = context.volume(address)?;
        expect_limits(options, &volume, shown, context)?;
        options.access = Some(ReadWrite::Read);
        let (processes, ledger, disk) = (None, None, SharedDisk::No);
        return Ok(OpenedMount { image: None, volume: (*volume).clone(), processes, ledger, disk });
    }
    let access = access(args, address, options, context)?;
    // A read-only mount has no failover.
    let is_free = options.access.is_none() && ledger.is_none();
    let processes = processes(options);
    let processes = processes.map_err(|error| Report::on("cannot record the history of", shown, error))?;
    let opened = match volume(address, access, options, processes.clone(), ledger, context) {
        Err(error) if is_free && can_only_be_read(&error) => {
            let opened = volume(address, Access::ReadOnly, options, processes, None, context);
            if opened.is_ok() {
                note_feature(shown, &error, context);
            }
            opened
        }
        opened => opened,
    };
    let opened = opened.map_err(|error| {
        let is_for_reading = options.access == Some(ReadWrite::Write) && can_only_be_read(&error);
        let report = option_refused(&error, options.shown).unwrap_or_else(|| cannot_open(error));
        if is_for_reading { report.help("omit rw to mount the volume read-only") } else { report }
    })?;
    expect_failover(&opened, shown, context)?;
    let access = opened.image.as_ref().map_or(Access::ReadOnly, |mounted| mounted.image.access());
    if options.provenance && access == Access::ReadOnly {
        let report = Report::on("cannot record the history of", shown, "the mount is read-only");
        let name = options.provenance_name();
        return Err(report.help(format!("omit the option {name}; 'obento prov' shows a recorded history")));
    }
    if let Some(MountedImage { image, .. }) = &opened.image {
        expect_undamaged("cannot mount", shown, image)?;
        report_notices(shown, image, context.messages());
        let noted = NotedVolume { volume: &opened.volume, image, access };
        noted.texts(&opened.volume.info().notices).iter().for_each(|text| context.note(shown, text));
    }
    expect_limits(options, &opened.volume, shown, context)?;
    if let Some((given, why)) = in_vain(options.shown, &opened.volume) {
        let given = given.names().join(", ");
        return Err(Report::on("cannot mount", shown, why).help(format!("omit {given}")));
    }
    if access == Access::ReadOnly && is_free && !args.detached {
        context.note(shown, "this type is read-only; mounted read-only");
    }
    if access == Access::ReadWrite && !options.fakeroot {
        note_owner(&opened.volume, shown, context);
    }
    options.access = Some(match access {
        Access::ReadOnly => ReadWrite::Read,
        Access::ReadWrite => ReadWrite::Write,
    });
    Ok(opened)
}

/// Prints that the user who mounts the volume cannot create files in its root directory.
fn note_owner(volume: &Volume, shown: &[u8], context: &Context) {
    let Ok(root) = volume.vfs().root().attr() else { return };
    let user = rustix::process::geteuid().as_raw();
    if !may_write((root.uid, root.mode.bits()), user) {
        let owner = root.uid;
        // On a volume without owners, options select the owner of all files.
        let option = match volume.vfs().limits().keeps.contains(StoredProperties::OWNERS) {
            true => "fakeroot".to_owned(),
            false => format!("uid={user}"),
        };
        context.note(
            shown,
            format!(
                "the root directory belongs to user {owner}; to create files in it, mount with -o {option}"
            ),
        );
    }
}

/// Returns whether `user` may create files in a directory with this owner and mode. A group may contain the user.
fn may_write((owner, mode): (u32, u16), user: u32) -> bool {
    user == 0 || user == owner || mode & 0o022 != 0
}

/// # Errors
///
/// An option is not for the files of a file server.
pub fn expect_servable(args: &Args, address: &Address, options: &MountOptions) -> Result<(), Report> {
    let wrong = |why: &str| Report::on("cannot mount", args.image().as_bytes(), why);
    if address.place.as_ref().is_some_and(|place| *place != FileSelector::Path(b"/".to_vec())) {
        return Err(wrong("this is a path on a server").help("mount the root of the server"));
    }
    for (is_given, option, why) in [
        (options.access == Some(ReadWrite::Write), "rw", "the files of a server are mounted read-only"),
        (args.all, "--all", "the files of a server have no partitions"),
        (options.provenance, options.provenance_name(), "the history of a server is not recorded"),
        (options.failover.is_some(), "failover", "only images support failover"),
    ] {
        if is_given {
            return Err(wrong(why).help(format!("omit the option {option}")));
        }
    }
    Ok(())
}

/// Returns the requested access: for change if requested, or if possible and not forbidden.
pub fn access(
    args: &Args,
    address: &Address,
    options: &MountOptions,
    context: &Context,
) -> Result<Access, Report> {
    let shown = args.image().as_bytes();
    let allowed = context.expect_changes_allowed(shown);
    let ignores_checksums = context.options().ignore_checksums;
    Ok(match options.access {
        Some(ReadWrite::Read) => Access::ReadOnly,
        Some(ReadWrite::Write) => {
            allowed?;
            if ignores_checksums {
                let cause = "--ignore-checksums is for reading only";
                return Err(Report::on("cannot change", shown, cause).help("omit this option"));
            }
            Access::ReadWrite
        }
        None if allowed.is_err() || ignores_checksums || !is_writable(address) => Access::ReadOnly,
        None => Access::ReadWrite,
    })
}

/// Fails if the mount must survive a failure of the server, and the volume does not support that.
fn expect_failover(opened: &OpenedMount, shown: &[u8], context: &Context) -> Result<(), Report> {
    if opened.ledger.is_none() {
        return Ok(());
    }
    let unsupported =
        (!opened.volume.vfs().has_failover()).then_some("only ext4 with a journal supports failover");
    // The kernel may perform a write of a ring after the process has ended.
    let late = (context.options().image_options().io == IoBackend::Uring)
        .then_some("with --io=uring, a write can reach the image after the server has died");
    match unsupported.or(late).or_else(|| volume_obstacle(opened)) {
        None => Ok(()),
        Some(why) => Err(Report::on("cannot mount", shown, why).help("omit the option failover")),
    }
}

/// Returns whether the container or the driver may support reading only. If the driver does not support a feature, it
/// may still support reading such a volume.
pub fn can_only_be_read(error: &OpenError) -> bool {
    match error {
        OpenError::Packed { .. } => true,
        OpenError::Volume { error, .. } => match **error {
            Error::ReadOnly | Error::Unsupported(Feature::Writing) => true,
            _ => feature(error).is_some(),
        },
        _ => false,
    }
}

/// Returns the feature of a volume that a driver does not support.
fn feature(error: &Error) -> Option<Feature> {
    match error {
        Error::Unsupported(feature @ (Feature::Named(_) | Feature::Bits { .. })) => Some(*feature),
        _ => None,
    }
}

/// Prints the feature because of which the volume was opened for reading only.
pub fn note_feature(shown: &[u8], error: &OpenError, context: &Context) {
    if let OpenError::Volume { error, .. } = error
        && let Some(feature) = feature(error)
    {
        context.note(shown, format!("{feature} is not supported; mounted read-only"));
    }
}

fn volume(
    address: &Address,
    access: Access,
    mount: &MountOptions,
    processes: Option<Arc<Processes>>,
    ledger: Option<Arc<Ledger>>,
    context: &Context,
) -> Result<OpenedMount, OpenError> {
    let recording = recording(processes.clone(), mount);
    let redo = ledger.clone().map(|ledger| -> Arc<dyn RedoLog> { ledger });
    let options = Options { recording, redo, ..volume_options(access, mount, context) };
    let (file, handoff) = ImageFile::open(&address.image, &options)?.for_handoff();
    let image = file.decode(context.registry())?;
    let volume = image.volume(address.part.as_ref())?;
    let image = Some(MountedImage { image, handoff });
    Ok(OpenedMount { image, volume, processes, ledger, disk: SharedDisk::No })
}

/// Opens the list of processes, if the history of the volume is to be recorded. Fails with the errors of open(2).
pub fn processes(mount: &MountOptions) -> io::Result<Option<Arc<Processes>>> {
    Ok(mount.provenance.then(Processes::open).transpose()?.map(Arc::new))
}

/// Returns how the history of a volume is recorded that `processes` use.
pub fn recording(processes: Option<Arc<Processes>>, mount: &MountOptions) -> Option<Recording> {
    processes.map(|who| Recording { who, log: log_options(mount) })
}

/// Returns the options of the log of a mount.
fn log_options(mount: &MountOptions) -> LogOptions {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes();
    let (shown, writes) = (mount.show_provenance, WriteSource::Host);
    LogOptions { boot, shown, writes, ..LogOptions::default() }
}

/// Returns the options of opening a volume that is to be mounted.
pub fn volume_options(access: Access, mount: &MountOptions, context: &Context) -> Options {
    let general = context.options().image_options();
    // A server runs for a long time, and would keep pages of the image in its own memory.
    let io = if general.io == IoBackend::Auto { IoBackend::Buffered } else { general.io };
    Options {
        access,
        io,
        journalling: mount.journalling,
        limits: mount.limits,
        replay: if mount.no_replay { Replay::Skip } else { general.replay },
        super_block: mount.super_block.or(general.super_block),
        shown: mount.shown,
        atime: match mount.atime {
            AccessTimes::Never => Atime::Never,
            AccessTimes::Relative => Atime::Relative,
            AccessTimes::Always => Atime::Always,
        },
        clock: Arc::new(KernelClock),
        ..general
    }
}

/// Returns whether the file of the image is writable.
fn is_writable(address: &Address) -> bool {
    rustix::fs::access(&address.image, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use obento::Registry;
    use obento::block::BlockDevice;
    use obento::driver::{Driver, FileSystem, OpenOptions, Probe};
    use obento_testkit::null::{MAGIC, NullDriver};

    use super::*;
    use crate::options::GlobalOptions;

    /// A driver that does not write.
    struct Reader;

    impl Driver for Reader {
        fn names(&self) -> &'static [&'static str] {
            NullDriver.names()
        }
        fn access(&self) -> Access {
            Access::ReadOnly
        }
        fn probe(&self, device: &dyn BlockDevice) -> obento::Result<Option<Probe>> {
            NullDriver.probe(device)
        }
        fn open(
            &self,
            device: Arc<dyn BlockDevice>,
            options: &OpenOptions,
        ) -> obento::Result<Arc<dyn FileSystem>> {
            match options.access {
                Access::ReadOnly => NullDriver.open(device, options),
                Access::ReadWrite => Err(obento::Error::ReadOnly),
            }
        }
    }

    /// The arguments alone.
    #[derive(clap::Parser)]
    struct Mount {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn only_a_user_who_cannot_change_the_root_directory_is_told_about_fakeroot() {
        assert!(!may_write((0, 0o755), 1000));
        for (owner, mode, user) in [(0, 0o755, 0), (1000, 0o755, 1000), (0, 0o1777, 1000), (0, 0o775, 1000)] {
            assert!(may_write((owner, mode), user), "{owner} {mode:o} {user}");
        }
    }

    #[test]
    fn a_type_without_writing_is_opened_read_only_unless_changes_are_requested() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("null.img");
        std::fs::write(&image, MAGIC).unwrap();
        let context =
            Context::new(GlobalOptions::default(), Registry::empty().with(Reader), crate::cli::TABLE);
        let opened = |access| {
            let mut options = MountOptions { access, ..MountOptions::default() };
            let Mount { args } = Mount::parse_from(["mount".as_ref(), image.as_os_str(), "mnt".as_ref()]);
            let volume =
                open(&args, &Address::parse(image.as_os_str()).unwrap(), &mut options, None, &context);
            volume.map(|_| options.access).map_err(|report| report.to_string())
        };
        assert_eq!(opened(None), Ok(Some(ReadWrite::Read)));
        assert_eq!(opened(Some(ReadWrite::Read)), Ok(Some(ReadWrite::Read)));
        let refused = opened(Some(ReadWrite::Write)).unwrap_err();
        assert!(refused.ends_with("\n  help: omit rw to mount the volume read-only"), "{refused}");
    }
}
