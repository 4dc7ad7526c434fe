//! `obento rmdir`: removes empty directories.

use std::ffi::OsString;

use obento::Error;
use obento::address::FileSelector;
use obento::vfs::{Caller, Symlinks};

use crate::change::place::{last_component, trimmed};
use crate::change::{Done, Verbose, each_file};
use crate::context::Context;
use crate::help::page::Page;
use crate::open::Location;
use crate::output::Outcome;
use crate::report::{Report, subject};

/// The page of `rmdir`.
pub const PAGE: Page =
    Page::new(&[("obento rmdir disk.img:/lost", "Remove an empty directory")]).see_also(&["rmdir(1)"]);

/// Remove empty directories
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directories in images
    #[arg(required = true, value_name = "IMAGE:PATH")]
    paths: Vec<OsString>,
    /// Remove the parent directories in the path too
    #[arg(short, long)]
    parents: bool,
    /// Do not report directories that are not empty
    #[arg(long)]
    ignore_fail_on_non_empty: bool,
    /// Print each directory
    #[arg(short, long)]
    verbose: bool,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut verbose = Verbose::new(args.verbose);
    each_file(&args.paths, Symlinks::Keep, "cannot remove directory", context, |found| {
        let mut at = found.location.clone();
        remove(&at, args, &mut verbose)?;
        while let Some(above) = above(&at).filter(|_| args.parents) {
            remove(&above, args, &mut verbose)?;
            at = above;
        }
        Ok(())
    });
    verbose.finish()
}

fn remove(location: &Location, args: &Args, verbose: &mut Verbose) -> Done {
    verbose.say(|| format!("rmdir: removing directory, {}", subject(location.shown())));
    if matches!(&location.place, FileSelector::Path(path) if trimmed(path).is_empty()) {
        let cause = "the root directory of the volume cannot be removed";
        return Err(Report::on("cannot remove directory", location.shown(), cause));
    }
    if let FileSelector::Path(path) = &location.place
        && matches!(last_component(path), b"." | b"..")
    {
        let cause = "the last component of the path is '.' or '..'";
        let report = Report::on("cannot remove directory", location.shown(), cause);
        return Err(report.help("name the directory itself"));
    }
    let removed =
        location.spot().and_then(|spot| spot.dir.vfs().rmdir(&Caller::Owner, &spot.dir, &spot.name));
    match removed {
        Err(error) if error == Error::NotEmpty && args.ignore_fail_on_non_empty => Ok(()),
        Err(error) => {
            let report = Report::on("cannot remove directory", location.shown(), error);
            Err(if error == Error::NotEmpty {
                report.help("use 'obento rm -r' to remove it with its contents")
            } else {
                report
            })
        }
        Ok(()) => Ok(()),
    }
}

/// Returns the parent directory, if the path names one that is not the root.
fn above(location: &Location) -> Option<Location> {
    let FileSelector::Path(path) = &location.place else { return None };
    let path = trimmed(path);
    let path = trimmed(&path[..path.len() - last_component(path).len()]);
    (!path.is_empty()).then(|| Location { place: FileSelector::Path(path.to_vec()), ..location.clone() })
}
