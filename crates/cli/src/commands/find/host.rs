//! The files that arguments of an expression name.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use obento::address::Operand;
use obento::base::Timestamp;
use obento::vfs::Symlinks;
use obento::{Node, Volume};

use crate::context::Context;
use crate::find::{ParseContext, Reference, TimeField, Zone, time_of};
use crate::format::time::Clock;
use crate::open::{self, Location};
use crate::report::Report;

/// The answers that the parser needs about files that arguments name.
pub struct HostContext<'a> {
    pub context: &'a Context,
    pub zone: Zone,
    pub now: Timestamp,
    /// Whether a symbolic link that is named for a comparison is followed.
    symlinks: Symlinks,
    volumes: RefCell<Vec<Rc<Volume>>>,
}

impl<'a> HostContext<'a> {
    /// Creates a view of the present state.
    pub fn new(context: &'a Context, symlinks: Symlinks) -> Self {
        let clock = Clock::system();
        Self { context, zone: Zone::system(), now: clock.now(), symlinks, volumes: RefCell::default() }
    }

    /// Returns a number that identifies `volume`.
    pub fn number(&self, volume: &Rc<Volume>) -> usize {
        let mut volumes = self.volumes.borrow_mut();
        let known = volumes.iter().position(|known| Rc::ptr_eq(known, volume));
        known.unwrap_or_else(|| {
            volumes.push(volume.clone());
            volumes.len() - 1
        })
    }

    fn node(&self, operand: &OsStr) -> Result<(Node, usize), String> {
        let Location { volume, place, .. } =
            open::open(operand, self.context).map_err(|report| report.to_string())?;
        // A symbolic link to nothing is used itself.
        let node = volume.resolve(&place, self.symlinks).or_else(|_| volume.resolve(&place, Symlinks::Keep));
        let node = node.map_err(|error| error.to_string())?;
        Ok((node, self.number(&volume)))
    }
}

impl ParseContext for HostContext<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn zone(&self) -> &Zone {
        &self.zone
    }

    fn time_of(&self, operand: &OsStr, stamp: TimeField) -> Result<Option<Timestamp>, String> {
        match Operand::parse(operand).map_err(|error| Report::plain(error).to_string())? {
            Operand::Image(_) => {
                let (node, _) = self.node(operand)?;
                Ok(time_of(&node.attr().map_err(|error| error.to_string())?, stamp))
            }
            Operand::Host(path) => host_time(&path, stamp, self.symlinks).map_err(|error| error.to_string()),
            Operand::Stdio => Err("standard input has no times".into()),
        }
    }

    fn search_path(&self) -> Option<OsString> {
        std::env::var_os("PATH")
    }

    fn file(&self, operand: &OsStr) -> Result<Reference, String> {
        self.node(operand).map(|(node, volume)| Reference { volume, ino: node.ino() })
    }
}

fn host_time(path: &Path, stamp: TimeField, symlinks: Symlinks) -> io::Result<Option<Timestamp>> {
    let target = fs::metadata(path).ok().filter(|_| symlinks == Symlinks::Follow);
    let meta = target.map_or_else(|| fs::symlink_metadata(path), Ok)?;
    let time = |secs, nanos: i64| Some(Timestamp::new(secs, u32::try_from(nanos).unwrap_or_default()));
    Ok(match stamp {
        TimeField::Access => time(meta.atime(), meta.atime_nsec()),
        TimeField::Change => time(meta.ctime(), meta.ctime_nsec()),
        TimeField::Modify => time(meta.mtime(), meta.mtime_nsec()),
        TimeField::Birth => meta.created().ok().and_then(|created| {
            let since = created.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some(Timestamp::new(i64::try_from(since.as_secs()).ok()?, since.subsec_nanos()))
        }),
    })
}
