//! `mount --all`: mounts every file system of a disk, each at a directory of its own.
//!
//! One process serves all mounts: a disk that is changed is locked and decoded by one process only. Each mount has its own connection to
//! the kernel, its own sockets and its own thread.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use obento::sandbox::Rights;
use obento::{Access, Address, Handoff, Image, ImageFile, OpenError, PartSelector, Volume};
use obento_fuse::options::{MountOptions, ReadWrite};
use obento_fuse::{MountPoint, Unmounter, mounts_of_type, unmount};

use super::server::{self, OpenedMount, Service, SharedDisk, Site};
use super::{Args, FS_TYPE, start};
use crate::context::Context;
use crate::open::cannot_open;
use crate::report::{Report, notice};

/// Mounts all file systems of the disk below the directory, and serves them until the end of the last one.
pub fn serve(
    args: &Args,
    address: &Address,
    options: &MountOptions,
    context: &Context,
) -> Result<(), Report> {
    expect_possible(args, address, options)?;
    server::begin(args)?;
    let shown = args.image().as_bytes();
    let access = server::access(args, address, options, context)?;
    let is_free = options.access.is_none();
    let (image, handoff) = match disk(address, access, options, context) {
        Err(error) if is_free && server::can_only_be_read(&error) => {
            disk(address, Access::ReadOnly, options, context)
        }
        opened => opened,
    }
    .map_err(cannot_open)?;
    image.notices().iter().for_each(|notice| context.note(shown, notice));
    let volumes = volumes(&image, is_free, shown, context);
    if volumes.is_empty() {
        let report = Report::on("cannot mount", shown, "no partition has a file system that can be opened");
        return Err(report.help("run 'obento info' to see what the disk contains"));
    }
    let mut services = Vec::new();
    for (number, volume) in volumes {
        match service(args, options, (&image, &handoff), (number, volume), context) {
            Ok(service) => services.push(service),
            Err(report) => {
                give_up(services);
                return Err(report);
            }
        }
    }
    if args.detached {
        start::detach()
            .and_then(|()| start::say_ready())
            .map_err(|error| Report::on("cannot serve", args.image().as_bytes(), error))?;
    }
    // From here on, the input is from the image and from the users of the mounts.
    context.confine(Rights::Serve);
    server::run(services).map_err(|error| server::lost(args.image(), error))
}

/// # Errors
///
/// The operand is not a whole disk, or an option is for a single mount.
fn expect_possible(args: &Args, address: &Address, options: &MountOptions) -> Result<(), Report> {
    let wrong = |why: &str| Report::on("cannot mount", args.image().as_bytes(), why);
    if address.part.is_some() {
        return Err(
            wrong("--all mounts all partitions, and this is one").help("omit --all, or the partition")
        );
    }
    for (is_given, option) in [
        (options.provenance || options.show_provenance, "provenance"),
        (options.failover.is_some(), "failover"),
        (options.fs_name.is_some(), "fsname"),
        (options.super_block.is_some(), "sb"),
    ] {
        if is_given {
            let report = wrong(&format!("the option {option} is for a single volume"));
            return Err(report.help("mount the partitions one by one: IMAGE@PART"));
        }
    }
    Ok(())
}

fn disk(
    address: &Address,
    access: Access,
    options: &MountOptions,
    context: &Context,
) -> Result<(Image, Arc<Handoff>), OpenError> {
    let options = server::volume_options(access, options, context);
    let (file, handoff) = ImageFile::open(&address.image, &options)?.for_handoff();
    Ok((file.decode(context.registry())?, handoff))
}

/// Opens the file systems of all partitions. Reports those that cannot be opened.
fn volumes(image: &Image, is_free: bool, shown: &[u8], context: &Context) -> Vec<(u32, Volume)> {
    let found = image.probe_all().into_iter().filter(|content| content.probe().is_some());
    let numbers = found.filter_map(|content| content.partition.map(|partition| partition.number));
    let opened = numbers.filter_map(|number| {
        let part = PartSelector::Number(number);
        let volume = match image.volume(Some(&part)) {
            Err(error) if is_free && server::can_only_be_read(&error) => image.volume_to_read(Some(&part)),
            opened => opened,
        };
        let name = [shown, format!("@{number}").as_bytes()].concat();
        match volume {
            Ok(volume) => {
                let notices = volume.info().notices;
                let access = if volume.is_writable() { Access::ReadWrite } else { Access::ReadOnly };
                notices.iter().for_each(|found| context.note(&name, notice(found, access, image)));
                Some((number, volume))
            }
            Err(error) => {
                context.note(&name, format!("not mounted: {error}"));
                None
            }
        }
    });
    opened.collect()
}

/// Mounts one volume at `DIR/NUMBER`, which is created if it does not exist.
fn service(
    args: &Args,
    options: &MountOptions,
    (image, handoff): (&Image, &Arc<Handoff>),
    (number, volume): (u32, Volume),
    context: &Context,
) -> Result<Service, Report> {
    let directory = args.directory().join(number.to_string());
    let made = fs::create_dir(&directory);
    if let Err(error) = &made
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(Report::on("cannot create the directory", directory.as_os_str().as_bytes(), error));
    }
    let mut source = OsString::from(args.image());
    source.push(format!("@{number}"));
    let access = if volume.is_writable() { ReadWrite::Write } else { ReadWrite::Read };
    let options = MountOptions { access: Some(access), ..options.clone() };
    let opened = OpenedMount {
        image: image.clone(),
        volume,
        handoff: Arc::clone(handoff),
        processes: None,
        ledger: None,
        disk: SharedDisk::Yes,
    };
    let site = Site { image: &source, directory: &directory };
    let service = server::service(args, &site, opened, &options, context);
    if service.is_err() && made.is_ok() {
        // The directory is empty: the mount failed.
        let _ = fs::remove_dir(&directory);
    }
    service
}

/// Unmounts the mounts that exist when another one fails.
fn give_up(services: Vec<Service>) {
    for service in services {
        let path = service.path.clone();
        // Without a server, the kernel waits for no answer.
        drop(service);
        let _ = unmount(&path, Unmounter { lazy: true, force: false });
    }
}

/// Returns the mounts that `mount --all` created below `directory`, which is an absolute path without symbolic links: those of
/// `IMAGE@N` at the folder `N`.
pub fn mounts_below(directory: &Path) -> Vec<MountPoint> {
    let mut mounts = mounts_of_type(FS_TYPE);
    mounts.retain(|mount| {
        let name = mount.path.file_name().unwrap_or_default();
        let end = [b"@", name.as_bytes()].concat();
        mount.path.parent() == Some(directory)
            && name.as_bytes().iter().all(u8::is_ascii_digit)
            && mount.source.as_os_str().as_bytes().ends_with(&end)
    });
    mounts.sort_by_key(|mount| mount.path.clone());
    mounts
}
