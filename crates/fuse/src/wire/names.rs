//! Requests about names.

use obento::{DeviceNumber, Errno, FileKind};

use super::abi::{CreateIn, InHeader, MkdirIn, MknodIn, OPEN_KEEP_CACHE, OpenOut, Rename2In};
use super::encode::{entry_out, nowhere};
use super::{LONG, Wire, reply, request};
use crate::attr::decode_device;
use crate::server::{Found, Made, Moved, Reply};

/// The bits of a mode that say what kind of inode it is.
const KIND: u32 = libc::S_IFMT;

fn tell(wire: &Wire, found: &Found, out: &mut reply::Body) {
    out.push(&entry_out(found, wire.validity(found)));
}

pub(super) fn lookup(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    match wire.server.lookup(header.nodeid, body.name()?)? {
        Some(found) => tell(wire, &found, out),
        None => out.push(&nowhere(LONG)),
    }
    Ok(())
}

pub(super) fn mknod(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let MknodIn { mode, rdev, umask, .. } = body.take()?;
    let kind = FileKind::from_mode((mode & KIND) as u16).ok_or(Errno(libc::EINVAL))?;
    let rdev = decode_device(rdev);
    make(wire, header, body.name()?, &Made { kind, mode, umask, rdev, ..of(header, &[]) }, out)
}

pub(super) fn mkdir(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let MkdirIn { mode, umask } = body.take()?;
    let made = Made { kind: FileKind::Directory, mode, umask, ..of(header, &[]) };
    make(wire, header, body.name()?, &made, out)
}

pub(super) fn symlink(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let (name, target) = (body.name()?, body.name()?);
    let made = Made { kind: FileKind::Symlink, mode: 0o777, ..of(header, target) };
    make(wire, header, name, &made, out)
}

/// Makes a file without a name, and opens it, for which there is nothing to do.
pub(super) fn tmpfile(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let CreateIn { mode, umask, .. } = body.take()?;
    let made = Made { mode, umask, ..of(header, &[]) };
    tell(wire, &wire.server.make_nameless(header.nodeid, &made)?, out);
    out.push(&OpenOut { open_flags: OPEN_KEEP_CACHE, ..OpenOut::default() });
    Ok(())
}

/// A file for whoever asks.
fn of<'t>(header: &InHeader, target: &'t [u8]) -> Made<'t> {
    let (uid, gid, rdev) = (header.uid, header.gid, DeviceNumber::default());
    Made { kind: FileKind::Regular, mode: 0, umask: 0, uid, gid, rdev, target }
}

fn make(wire: &Wire, header: &InHeader, name: &[u8], made: &Made<'_>, out: &mut reply::Body) -> Reply<()> {
    tell(wire, &wire.server.make(header.nodeid, name, made)?, out);
    Ok(())
}

pub(super) fn unlink(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    _: &mut reply::Body,
) -> Reply<()> {
    wire.server.unlink(header.nodeid, body.name()?)
}

pub(super) fn rmdir(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    _: &mut reply::Body,
) -> Reply<()> {
    wire.server.rmdir(header.nodeid, body.name()?)
}

pub(super) fn rename(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    _: &mut reply::Body,
) -> Reply<()> {
    let newdir = body.take()?;
    moved(wire, header, newdir, 0, body)
}

pub(super) fn rename2(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    _: &mut reply::Body,
) -> Reply<()> {
    let Rename2In { newdir, flags, .. } = body.take()?;
    moved(wire, header, newdir, flags, body)
}

fn moved(wire: &Wire, header: &InHeader, newdir: u64, flags: u32, mut body: request::Body<'_>) -> Reply<()> {
    let from = (header.nodeid, body.name()?);
    wire.server.rename(&Moved { from, to: (newdir, body.name()?), flags })
}

pub(super) fn link(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let linked = body.take()?;
    tell(wire, &wire.server.link(linked, header.nodeid, body.name()?)?, out);
    Ok(())
}

pub(super) fn readlink(
    wire: &Wire,
    header: &InHeader,
    _: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    out.extend(&wire.server.read_link(header.nodeid)?);
    Ok(())
}
