//! `obento touch`: sets the times of files, and creates missing files.

use std::ffi::OsString;

use clap::ValueEnum;
use jiff::tz::TimeZone;
use obento::base::{Attr, Timestamp};
use obento::driver::{SetAttr, TimeChange};
use obento::env::{Clock, SystemClock};
use obento::vfs::{Caller, Symlinks};
use obento::{Error, Node};

use crate::change::{Done, each_place_by};
use crate::context::Context;
use crate::format::date;
use crate::help::page::{Page, TZ};
use crate::open::{Location, open};
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `touch`.
pub const PAGE: Page = Page::new(&[
    ("obento touch disk.img:/forcefsck", "Create an empty file, or set its times to now"),
    ("obento touch -d '2026-11-21 13:48' disk.img:/a", "Set the times of a file"),
])
.environment(&[TZ])
.see_also(&["touch(1)"]);

/// Set the times of files to now, and create missing files
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Set only the time of the last access
    #[arg(short)]
    access: bool,
    /// Set only the time of the last modification
    #[arg(short)]
    modification: bool,
    /// Select the time
    #[arg(long, value_name = "WORD")]
    time: Option<TimeChoice>,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Set the times to DATE: '2026-11-21 13:48', @1795268933, '3 days ago'; with --reference, '3 days ago' counts from the times of FILE
    #[arg(short, long, allow_hyphen_values = true)]
    date: Option<String>,
    #[arg(short = 't', help = "Set the time [[CC]YY]MMDDhhmm[.ss]", value_name = "STAMP", conflicts_with_all = ["date", "reference"])]
    stamp: Option<String>,
    /// Use the times of FILE instead of the current time
    #[arg(short, long, value_name = "IMAGE:FILE")]
    reference: Option<OsString>,
    /// Set the times of symbolic links instead of their targets; implies --no-create
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Ignored, for compatibility
    #[arg(short = 'f', hide = true)]
    ignored: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum TimeChoice {
    #[value(alias = "access", alias = "use")]
    Atime,
    #[value(alias = "modify")]
    Mtime,
}

/// The new times.
#[derive(Clone, Copy)]
struct Times {
    atime: TimeChange,
    mtime: TimeChange,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    // Reads the file of the time zone too, which is possible only now.
    let zone = TimeZone::system();
    let mut times = match args.reference {
        None => Some(spoken_times(args, SystemClock.now(), &zone)?),
        Some(_) => None,
    };
    each_place_by(&args.paths, args.reference.as_ref(), context, |location| {
        let times = match times {
            Some(times) => times,
            None => *times.insert(referred_times(args, &zone, context)?),
        };
        touch(location, args, times)
    });
    Ok(())
}

/// Returns the times of `-d`, `-t`, or now.
fn spoken_times(args: &Args, now: Timestamp, zone: &TimeZone) -> Result<Times, Report> {
    let time = match (&args.date, &args.stamp) {
        (Some(date), _) => TimeChange::At(parse_date(date, now, zone)?),
        (None, Some(stamp)) => {
            let time = date::parse_stamp(stamp, now, zone);
            let help = "write [[CC]YY]MMDDhhmm[.ss], such as 202611211348.53";
            TimeChange::At(
                time.ok_or_else(|| Report::plain(format!("invalid time {}", subject(stamp))).help(help))?,
            )
        }
        (None, None) => TimeChange::Now,
    };
    Ok(Times { atime: time, mtime: time })
}

fn parse_date(text: &str, from: Timestamp, zone: &TimeZone) -> Result<Timestamp, Report> {
    date::parse(text, from, zone).ok_or_else(|| {
        Report::plain(format!("invalid date {}", subject(text)))
            .help("write a date such as '2026-11-21 13:48:53', or '2026-11-21 13:48:53 +02:00' for another time zone")
    })
}

/// Returns the times of the reference, changed by `-d`.
fn referred_times(args: &Args, zone: &TimeZone, context: &Context) -> Result<Times, Report> {
    let location = open(args.reference.as_deref().unwrap_or_default(), context)?;
    let symlinks = if args.no_dereference { Symlinks::Keep } else { Symlinks::Follow };
    let attr = location.volume.resolve(&location.place, symlinks).and_then(|node| node.attr());
    let Attr { atime, mtime, .. } = attr.map_err(|error| location.not_found("cannot access", error))?;
    let moved = |time| match &args.date {
        Some(date) => parse_date(date, time, zone),
        None => Ok(time),
    };
    Ok(Times { atime: TimeChange::At(moved(atime)?), mtime: TimeChange::At(moved(mtime)?) })
}

fn touch(location: &Location, args: &Args, times: Times) -> Done {
    let failed = |error: Error| match error {
        Error::OutOfRange => {
            Report::on("cannot touch", location.shown(), "the volume cannot store this time").help(
                "FAT and exFAT store the years 1980 to 2107, and ext4 the years 1901 to 2446, or \
                 to 2038 with inodes of 128 bytes",
            )
        }
        error => location.failed("cannot touch", error),
    };
    let symlinks = if args.no_dereference { Symlinks::Keep } else { Symlinks::Follow };
    let (node, is_new) = match location.volume.resolve(&location.place, symlinks) {
        Err(error) if error == Error::NotFound && args.no_create => return Ok(()),
        Err(error) if error == Error::NotFound && !args.no_dereference => {
            location.open_or_create(0o666).map_err(failed)?
        }
        found => (found.map_err(failed)?, false),
    };
    set(&node, args, times).map_err(|error| {
        if is_new {
            // The first error is the one to report.
            let _ = location.end().and_then(|it| it.dir.vfs().unlink(&Caller::Owner, &it.dir, &it.name));
        }
        failed(error)
    })
}

fn set(node: &Node, args: &Args, times: Times) -> Result<(), Error> {
    let access = args.access || args.time == Some(TimeChoice::Atime);
    let modification = args.modification || args.time == Some(TimeChoice::Mtime);
    let both = access == modification;
    let change = SetAttr {
        atime: (access || both).then_some(times.atime),
        mtime: (modification || both).then_some(times.mtime),
        ..SetAttr::default()
    };
    let held = node.vfs().set_attr(&Caller::Owner, node, &change)?;
    // The volume stores the nearest time that it supports.
    match change.mtime {
        Some(TimeChange::At(asked)) if !node.vfs().limits().is_same_time(held.mtime, asked) => {
            Err(Error::OutOfRange)
        }
        _ => Ok(()),
    }
}
