//! `mount --all`: mounts every file system of a disk, each at a directory of its own.
//!
//! One process serves all mounts: a disk that is changed is locked and decoded by one process only. Each mount has its own connection to
//! the kernel, its own sockets and its own thread.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use obento::address::{Address, PartSelector};
use obento::base::Name;
use obento::block::Handoff;
use obento::driver::Access;
use obento::host::HostError;
use obento::image::ImageFile;
use obento::{Image, OpenError, Volume};
use obento_fuse::options::{MountOptions, ReadWrite};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::args::Args;
use super::opened::{MountedImage, OpenedMount, SharedDisk};
use super::server::{self, Site};
use super::serving::Service;
use super::{opening, serving};
use crate::context::Context;
use crate::open::{NotedVolume, cannot_open, expect_undamaged, report_notices};
use crate::report::Report;

/// Mounts all file systems of the disk below the directory, and serves them until the end of the last one.
pub fn serve(
    args: &Args,
    address: &Address,
    options: &MountOptions,
    context: &Context,
) -> Result<(), Report> {
    expect_possible(args, address, options)?;
    if context.options().superblock.is_some() {
        let report =
            Report::on("cannot mount", args.image().as_bytes(), "--superblock is for a single volume");
        return Err(report.help("mount the partitions one by one: IMAGE@PART"));
    }
    server::begin(args)?;
    // An error is reported before the disk is opened for change.
    server::open_directory(args)?;
    let shown = args.image().as_bytes();
    let access = opening::access(args, address, options, context)?;
    let is_free = options.access.is_none();
    let (image, handoff) = match disk(address, access, options, context) {
        Err(error) if is_free && opening::can_only_be_read(&error) => {
            disk(address, Access::ReadOnly, options, context)
        }
        opened => opened,
    }
    .map_err(cannot_open)?;
    expect_undamaged("cannot mount", shown, &image)?;
    report_notices(shown, &image, context.messages());
    let volumes = volumes(&image, is_free, shown, context);
    if volumes.is_empty() {
        let report = Report::on("cannot mount", shown, "no partition has a file system that can be opened");
        return Err(report.help(
            "omit --all for an image without a partition table; 'obento info' shows the contents of a disk",
        ));
    }
    let all: Vec<Volume> = volumes.iter().map(|(_, volume)| volume.clone()).collect();
    let services = mount_all(args, options, (&image, &handoff), volumes, context);
    let services = server::close_after_failure(&all, services)?;
    serving::run(services).map_err(|error| server::lost(args.image(), error))
}

/// Mounts all volumes, or none, and gives up all rights except serving them.
fn mount_all(
    args: &Args,
    options: &MountOptions,
    disk: (&Image, &Arc<Handoff>),
    volumes: Vec<(u32, Volume)>,
    context: &Context,
) -> Result<Vec<Service>, Report> {
    let mut services = Vec::new();
    for volume in volumes {
        match service(args, options, disk, volume, context) {
            Ok(service) => services.push(service),
            Err(report) => {
                services.into_iter().for_each(Service::give_up);
                return Err(report);
            }
        }
    }
    server::settle(args, services, None, context)
}

/// # Errors
///
/// The operand is not a whole disk, or an option is for a single mount.
fn expect_possible(args: &Args, address: &Address, options: &MountOptions) -> Result<(), Report> {
    let wrong = |why: &str| Report::on("cannot mount", args.image().as_bytes(), why);
    if address.part.is_some() {
        return Err(wrong("--all mounts all partitions of a disk, and the operand is one partition")
            .help("omit --all, or the partition"));
    }
    for (is_given, option) in [
        (options.provenance, options.provenance_name()),
        (options.failover.is_some(), "failover"),
        (options.fs_name.is_some(), "fsname"),
        (options.super_block.is_some(), "sb"),
        (!options.limits.is_empty() || options.old_quota.is_some(), "quota"),
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
    let options = opening::volume_options(access, options, context);
    let (file, handoff) = ImageFile::open(&address.image, &options)?.for_handoff();
    Ok((file.decode(context.registry())?, handoff))
}

/// Opens the file systems of all partitions. Reports those that cannot be opened.
fn volumes(image: &Image, is_free: bool, shown: &[u8], context: &Context) -> Vec<(u32, Volume)> {
    let found = image.probe_all().into_iter().filter(|content| content.probe().is_some());
    let numbers = found.filter_map(|content| content.partition.map(|partition| partition.number));
    let opened = numbers.filter_map(|number| {
        let part = PartSelector::Number(number);
        let name = [shown, format!("@{number}").as_bytes()].concat();
        let volume = match image.volume(Some(&part)) {
            Err(error) if is_free && opening::can_only_be_read(&error) => {
                let opened = image.volume_to_read(Some(&part));
                if opened.is_ok() {
                    opening::note_feature(&name, &error, context);
                }
                opened
            }
            opened => opened,
        };
        let volume = volume.map_err(|error| Report::plain(error).to_string()).and_then(|volume| {
            let root = volume.vfs().expect_root();
            root.map(|()| volume).map_err(|error| error.to_string())
        });
        match volume {
            Ok(volume) => {
                let access = if volume.is_writable() { Access::ReadWrite } else { Access::ReadOnly };
                let noted = NotedVolume { volume: &volume, image, access };
                noted.texts(&volume.info().notices).iter().for_each(|text| context.note(&name, text));
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
    let parent = server::open_directory(args)?;
    let name = Name::new(number.to_string().as_bytes()).expect("digits").to_buf();
    let made = parent.make_directory(&name);
    let is_new = made.is_ok();
    let directory = match made {
        // A link could lead to any directory, whose contents the mount would hide.
        Err(HostError::System { errno: Errno::EXIST, .. }) => {
            parent.enter_directory(&name).map_err(|_| {
                let child = parent.child(&name);
                let report = Report::on("cannot mount at", child.as_os_str().as_bytes(), "not a directory");
                report.help("remove this file, or name another directory")
            })?
        }
        made => made.map_err(Report::plain)?,
    };
    let mut source = OsString::from(args.image());
    source.push(format!("@{number}"));
    let access = if volume.is_writable() { ReadWrite::Write } else { ReadWrite::Read };
    let options = MountOptions { access: Some(access), ..options.clone() };
    let opened = OpenedMount {
        image: Some(MountedImage { image: image.clone(), handoff: Arc::clone(handoff) }),
        volume,
        processes: None,
        ledger: None,
        disk: SharedDisk::Yes,
    };
    let site = Site { image: &source, directory: &directory };
    let service = server::service(args, &site, opened, &options, context);
    if service.is_err() && is_new {
        // The directory is empty: the mount failed.
        let _ = rustix::fs::unlinkat(parent.as_fd(), name.as_bytes(), AtFlags::REMOVEDIR);
    }
    service
}
