//! The server of a mount: opens the volume, mounts it, serves requests, and writes everything to stable storage at the end.
//!
//! Order: signals are blocked before any thread starts. The volume is opened before anything is mounted, so that its errors are reported
//! at no cost. The kernel has answered before the caller learns that the mount exists. Rights are given up before the first request is
//! served.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::sandbox::Rights;
use obento::{Access, Address, Atime, Error, Feature, Image, OpenError, Options, Replay, Volume};
use obento_fuse::options::{AccessTimes, MountOptions, ReadWrite};
use obento_fuse::{
    Attended, Farewell, KernelClock, Mounted, Server, ServerOptions, Session, SessionOptions, find_mount,
    mount, open_session, signals,
};

use super::janitor::Janitor;
use super::{Args, log, start};
use crate::context::Context;
use crate::open::{cannot_open, options};
use crate::report::{Report, notice};
use crate::shown::{WORDS, in_vain};

/// Mounts and serves until the end.
pub fn serve(
    args: &Args,
    address: &Address,
    mut options: MountOptions,
    context: &Context,
) -> Result<(), Report> {
    let failed = |error: io::Error| Report::on("cannot serve", args.image.as_bytes(), error);
    signals::hold().map_err(failed)?;
    if let Err(error) = log::start(args.log.as_deref()) {
        let path = args.log.as_deref().unwrap_or(Path::new("")).as_os_str();
        return Err(Report::on("cannot write the log", path.as_bytes(), error));
    }
    let volume = open(args, address, &mut options, context)?;
    let Greeted { path, session, server } = greet(args, &volume, &options)?;
    let mut janitor = Janitor::start(&path).map_err(failed)?;
    let farewell = match find_mount(&path).map(|mount| Farewell::listen(&mount)).transpose() {
        Ok(farewell) => farewell,
        Err(error) => {
            context.note(args.image.as_bytes(), format!("umount cannot wait for its end: {error}"));
            None
        }
    };
    if args.detached {
        start::detach().and_then(|()| start::say_ready()).map_err(failed)?;
    }
    // From here on, the input is from the image and from the users of the mount.
    context.confine(Rights::Serve);
    let farewell = farewell.map(Farewell::attend).transpose().map_err(failed)?;
    let for_signals = volume.clone();
    std::thread::spawn(move || {
        signals::wait();
        let _ = janitor.unmount();
        // A second signal does not wait for the users.
        signals::wait();
        let code = i32::from(for_signals.sync().is_err());
        std::process::exit(code);
    });
    let served = session.serve();
    end(&volume, &server, farewell, served).map_err(|error| {
        let advice = crate::report::to_close(&error);
        Report::on("cannot write the changes to stable storage in", args.image.as_bytes(), error).help(advice)
    })
}

/// Ends the changes, and reports the result to waiting processes.
fn end(
    volume: &Volume,
    server: &Server,
    farewell: Option<Attended>,
    served: io::Result<()>,
) -> Result<(), String> {
    // The next process that opens the image sees this, and waits.
    let _ = rustix::thread::set_name(obento::ENDING);
    server.end();
    let closed = match (volume.close(), served) {
        (Err(error), _) => Err(error.to_string()),
        (Ok(()), Err(error)) => Err(format!("the connection to the kernel failed: {error}")),
        (Ok(()), Ok(())) => Ok(()),
    };
    if let Some(farewell) = farewell {
        farewell.say(closed.as_ref().err().map(String::as_str));
    }
    closed
}

/// Opens the volume: for change if requested, or if possible and not forbidden. Records the choice in `options`.
fn open(
    args: &Args,
    address: &Address,
    options: &mut MountOptions,
    context: &Context,
) -> Result<Volume, Report> {
    let shown = args.image.as_bytes();
    let allowed = context.expect_changes_allowed(shown);
    let ignores_checksums = context.options().ignore_checksums;
    let access = match options.access {
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
    };
    let is_free = options.access.is_none();
    let opened = match volume(address, access, options, context) {
        Err(error) if is_free && can_only_be_read(&error) => {
            volume(address, Access::ReadOnly, options, context)
        }
        opened => opened,
    };
    let (image, volume) = opened.map_err(cannot_open)?;
    let access = image.access();
    image.notices().iter().for_each(|notice| context.note(shown, notice));
    volume.info().notices.iter().for_each(|found| context.note(shown, notice(found, access, &image)));
    if let Some(why) = in_vain(options.shown, &volume) {
        return Err(Report::on("cannot mount", shown, why).help(format!("omit {WORDS}")));
    }
    if access == Access::ReadOnly && is_free && !args.detached {
        context.note(shown, "this type is read-only; mounted read-only");
    }
    options.access = Some(match access {
        Access::ReadOnly => ReadWrite::Read,
        Access::ReadWrite => ReadWrite::Write,
    });
    Ok(volume)
}

/// Returns whether the container or the driver does not support writing.
fn can_only_be_read(error: &OpenError) -> bool {
    match error {
        OpenError::Packed { .. } => true,
        OpenError::Volume { error, .. } => {
            matches!(**error, Error::ReadOnly | Error::Unsupported(Feature::Writing))
        }
        _ => false,
    }
}

fn volume(
    address: &Address,
    access: Access,
    mount: &MountOptions,
    context: &Context,
) -> Result<(Image, Volume), OpenError> {
    let general = options(context.options());
    let options = Options {
        access,
        journalling: mount.journalling,
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
    };
    let image = Image::open(&address.image, context.registry(), &options)?;
    let volume = image.volume(address.part.as_ref())?;
    Ok((image, volume))
}

/// Returns whether the file of the image is writable.
fn is_writable(address: &Address) -> bool {
    rustix::fs::access(&address.image, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A mount whose requests wait to be served.
struct Greeted {
    path: PathBuf,
    session: Box<dyn Session>,
    server: Arc<Server>,
}

/// Mounts, and negotiates the protocol with the kernel.
fn greet(args: &Args, volume: &Volume, options: &MountOptions) -> Result<Greeted, Report> {
    let failed = |error: &dyn std::fmt::Display| {
        let what = crate::report::subject(args.directory.as_os_str().as_bytes());
        Report::new(
            format!("cannot mount {} at {what}", crate::report::subject(args.image.as_bytes())),
            error,
        )
    };
    let read_only = options.access == Some(ReadWrite::Read);
    let server = Server::new(volume, ServerOptions { read_only, sync: options.sync });
    let server = Arc::new(server);
    let image = std::path::absolute(&args.image).unwrap_or_else(|_| args.image.clone().into());
    let source = options.fs_name.clone().unwrap_or_else(|| image.into_os_string());
    let mounted = mount(&args.directory, &source, options).map_err(|error| failed(&error))?;
    let defaults = SessionOptions::default();
    let session = SessionOptions {
        threads: options.threads.unwrap_or(defaults.threads),
        writeback: options.writeback && !read_only,
    };
    let Mounted { device, path } = mounted;
    let session = open_session(device, Arc::clone(&server), session).map_err(|error| {
        let _ = obento_fuse::unmount(&path, obento_fuse::Unmounter { lazy: true, force: false });
        failed(&error)
    })?;
    Ok(Greeted { path, session, server })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use obento::driver::{Driver, FileSystem, OpenOptions, Probe};
    use obento::{BlockDevice, Registry};
    use obento_testkit::null::{MAGIC, NullDriver};

    use super::*;
    use crate::cli::GlobalOptions;

    /// A driver that does not write.
    struct Reader;

    impl Driver for Reader {
        fn names(&self) -> &'static [&'static str] {
            NullDriver.names()
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
    fn a_type_without_writing_is_opened_read_only_unless_changes_are_requested() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("null.img");
        std::fs::write(&image, MAGIC).unwrap();
        let context = Context::new(GlobalOptions::default(), Registry::empty().with(Reader));
        let opened = |access| {
            let mut options = MountOptions { access, ..MountOptions::default() };
            let Mount { args } = Mount::parse_from(["mount".as_ref(), image.as_os_str(), "mnt".as_ref()]);
            let volume = open(&args, &Address::parse(image.as_os_str()).unwrap(), &mut options, &context);
            volume.map(|_| options.access).map_err(|report| report.to_string())
        };
        assert_eq!(opened(None), Ok(Some(ReadWrite::Read)));
        assert_eq!(opened(Some(ReadWrite::Read)), Ok(Some(ReadWrite::Read)));
        let refused = opened(Some(ReadWrite::Write)).unwrap_err();
        assert!(refused.contains("read-only"), "{refused}");
    }
}
