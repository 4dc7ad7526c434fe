//! `obento mount`: mounts a volume at a directory of the host.
//!
//! The caller starts a server, which is this program with the same arguments. It waits until the server reports that
//! the mount exists, or ends with an error. `--foreground` is the server itself.

mod all;
mod args;
mod control;
mod failover;
pub mod history;
mod janitor;
mod keeper;
mod limits;
mod log;
mod opened;
mod opening;
pub mod own;
mod recipient;
mod remount;
mod server;
mod service;
mod serving;
mod start;
mod status;
mod stored;
mod upgrade;

use std::os::unix::ffi::OsStrExt;

use obento::address::Address;
use obento_fuse::options::Restarter;

pub use args::Args;

use crate::context::Context;
use crate::help::page::Page;
use crate::output::Outcome;
use crate::report::Report;

/// The page of `mount`.
pub const PAGE: Page = Page::new(&[
    ("obento mount disk.img@2 mnt", "Mount partition 2"),
    ("obento mount -r disk.img mnt", "Mount a volume read-only"),
    ("obento mount --all disk.img mnt", "Mount partition 1 at mnt/1, partition 2 at mnt/2, and so on"),
    (
        "obento mount -o fakeroot root.img mnt",
        "Let the user who mounts the volume see and set owners and modes as root can",
    ),
])
.environment(&[("OBENTO_LOG", "The level of the log: error, warn (the default), info or debug.")])
.see_also(&["mount(8)", "fusermount3(1)"]);

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if let Some(directory) = &args.status {
        // Another option may be between --status and DIR, which is then the first operand.
        let operand = args.operand();
        if let (Some(directory), Some(_)) = (directory, operand) {
            let report = Report::on(
                "cannot read the state of the mount at",
                directory.as_os_str().as_bytes(),
                "--status accepts one directory",
            );
            return Err(report.into());
        }
        return status::run(directory.as_deref().or(operand), context);
    }
    if context.json() {
        let report = Report::new("cannot print JSON", "only 'mount --status' has JSON output");
        return Err(report.help("omit --json").into());
    }
    if let Some(directory) = &args.upgrade {
        let done = match (args.dry_run, args.foreground || args.detached) {
            (true, _) => upgrade::try_out(directory, context),
            (false, true) => upgrade::take(args, directory, context),
            (false, false) => start::start(args, context),
        };
        if let Err(report) = done {
            context.warn(&report);
        }
        return Ok(());
    }
    if args.revived {
        if let Err(report) = failover::revive(context) {
            context.warn(&report);
        }
        return Ok(());
    }
    let options = args.mount_options(context.options().shown())?;
    if options.remount {
        return remount::run(args).map_err(Into::into);
    }
    let address = Address::parse(args.image())?;
    if address.server().is_some() {
        opening::expect_servable(args, &address, &options)?;
    } else if address.place.is_some() {
        let report = Report::on("cannot mount", args.image().as_bytes(), "this is a path inside an image");
        return Err(report.help("name the image, or a partition: IMAGE@PART").into());
    }
    let done = match (args.foreground || args.detached, options.failover) {
        (true, _) if args.all => all::serve(args, &address, &options, context),
        (true, Some(Restarter::Keeper(most))) if !args.kept => keeper::run(args, most, context),
        (_, Some(Restarter::Systemd)) => service::serve(args, &address, options, context),
        (true, _) => server::serve(args, &address, options, context),
        (false, _) => start::start(args, context),
    };
    if let Err(report) = done {
        context.warn(&report);
    }
    Ok(())
}
