//! Requests about attributes, of inodes and of the volume.

use obento::{Attr, Errno};

use super::abi::{
    GetxattrIn, InHeader, IoctlIn, IoctlOut, SETXATTR_ACL_KILL_SGID, SetattrIn, SetxattrExtra, SetxattrIn,
    SizeOut, StatfsOut, fattr,
};
use super::encode::{attr_out, statx_out, timestamp};
use super::reply::ONLY_ATTRIBUTES;
use super::{Place, Wire, reply, request};
use crate::server::{Change, NamedValue, Reply, Time, ioctl_changes, ioctl_is_short};

fn tell(wire: &Wire, attr: &Attr, out: &mut reply::Body) {
    out.push(&attr_out(attr, wire.attr_validity(attr, attr.ino.0)));
}

pub(super) fn getattr(
    wire: &Wire,
    header: &InHeader,
    _: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    tell(wire, &wire.server.getattr(header.nodeid)?, out);
    Ok(())
}

/// As GETATTR, with the time of birth.
pub(super) fn statx(
    wire: &Wire,
    header: &InHeader,
    _: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let attr = wire.server.getattr(header.nodeid)?;
    out.push(&statx_out(&attr, wire.attr_validity(&attr, attr.ino.0)));
    Ok(())
}

pub(super) fn setattr(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let change = change(&body.take()?);
    tell(wire, &wire.server.setattr(header.nodeid, &change)?, out);
    Ok(())
}

fn change(asked: &SetattrIn) -> Change {
    let has = |bit| asked.valid & bit != 0;
    let time = |bit, now, secs, nanos| match (has(bit), has(now)) {
        (false, _) => None,
        (true, true) => Some(Time::Now),
        (true, false) => Some(Time::At(timestamp(secs, nanos))),
    };
    Change {
        mode: has(fattr::MODE).then_some(asked.mode),
        uid: has(fattr::UID).then_some(asked.uid),
        gid: has(fattr::GID).then_some(asked.gid),
        size: has(fattr::SIZE).then_some(asked.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtimensec),
        ctime: time(fattr::CTIME, 0, asked.ctime, asked.ctimensec),
        kill_privileges: has(fattr::KILL_SUIDGID),
    }
}

pub(super) fn statfs(wire: &Wire, _: &InHeader, _: request::Body<'_>, out: &mut reply::Body) -> Reply<()> {
    let (stat, namelen) = wire.server.statfs()?;
    out.push(&StatfsOut {
        blocks: stat.blocks,
        bfree: stat.free,
        bavail: stat.available,
        files: stat.inodes,
        ffree: stat.free_inodes,
        bsize: stat.block_size,
        namelen,
        frsize: stat.block_size,
        ..StatfsOut::default()
    });
    Ok(())
}

pub(super) fn setxattr(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    _: &mut reply::Body,
) -> Reply<()> {
    let SetxattrIn { size, flags } = body.take()?;
    let extra = if wire.setxattr_flags { body.take::<SetxattrExtra>()?.setxattr_flags } else { 0 };
    let name = body.name()?;
    let kill_set_gid = extra & SETXATTR_ACL_KILL_SGID != 0;
    wire.server.set_xattr(header.nodeid, &NamedValue { name, value: body.bytes(size)?, flags, kill_set_gid })
}

pub(super) fn getxattr(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let GetxattrIn { size, .. } = body.take()?;
    sized(&wire.server.get_xattr(header.nodeid, body.name()?)?, size, out)
}

pub(super) fn listxattr(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let GetxattrIn { size, .. } = body.take()?;
    sized(&wire.server.list_xattrs(header.nodeid)?, size, out)
}

/// Tells `value` to who has room for `size` bytes, or how long it is to who has room for none.
fn sized(value: &[u8], size: u32, out: &mut reply::Body) -> Reply<()> {
    match usize::try_from(size) {
        Ok(0) => out.push(&SizeOut { size: value.len().try_into().unwrap_or(u32::MAX), padding: 0 }),
        Ok(room) if value.len() > room => return Err(Errno(libc::ERANGE)),
        _ => out.extend(value),
    }
    Ok(())
}

pub(super) fn removexattr(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    _: &mut reply::Body,
) -> Reply<()> {
    wire.server.remove_xattr(header.nodeid, body.name()?)
}

/// What changes attributes makes the kernel forget them, for which it may need answers; and what is not about the flags
/// of a file may take long.
pub(super) fn place_of_ioctl(mut body: request::Body<'_>) -> Place {
    match body.take::<IoctlIn>() {
        Ok(asked) if ioctl_is_short(asked.cmd) => Place::Here,
        _ => Place::Pool,
    }
}

pub(super) fn ioctl(
    wire: &Wire,
    header: &InHeader,
    mut body: request::Body<'_>,
    out: &mut reply::Body,
) -> Reply<()> {
    let IoctlIn { cmd, in_size, out_size, .. } = body.take()?;
    let answer = wire.server.ioctl(header.nodeid, header.uid, cmd, body.bytes(in_size)?)?;
    if ioctl_changes(cmd) {
        wire.channel.make_old(header.nodeid, ONLY_ATTRIBUTES);
    }
    out.push(&IoctlOut::default());
    out.extend(answer.get(..out_size as usize).unwrap_or(&answer));
    Ok(())
}
