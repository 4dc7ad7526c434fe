//! Requests for the attributes of inodes and of the volume.

use obento_base::{Attr, Errno, FileKind};

use super::abi::{
    GETATTR_FH, GetattrIn, GetxattrIn, IoctlIn, IoctlOut, SETXATTR_ACL_KILL_SGID, SetattrIn, SetxattrExtra,
    SetxattrIn, SizeOut, StatfsOut, fattr,
};
use super::asked::{Asked, changed, what};
use super::encode::{attr_out, statx_out, timestamp};
use super::reply::ONLY_ATTRIBUTES;
use super::{Call, Place, Wire, reply, request};
use crate::server::{CAPABILITY, Change, NamedValue, Reply, Time, ioctl_changes, ioctl_is_short};

/// Names of access control lists, which the kernel itself requests.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

fn report(wire: &Wire, attr: &Attr, out: &mut reply::ReplyBody) {
    out.push(&attr_out(attr, wire.attr_validity(attr, attr.ino.0)));
}

pub(super) fn getattr(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    if body.take::<GetattrIn>()?.getattr_flags & GETATTR_FH != 0 {
        wire.space.announce(header);
    }
    report(wire, &wire.server.getattr(header.nodeid)?, out);
    Ok(())
}

/// Answers STATX: the attributes of GETATTR, and the birth time.
pub(super) fn statx(Call { wire, header, out, .. }: Call<'_>) -> Reply<()> {
    let attr = wire.server.getattr(header.nodeid)?;
    out.push(&statx_out(&attr, wire.attr_validity(&attr, attr.ino.0)));
    Ok(())
}

pub(super) fn setattr(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let asked = body.take()?;
    if let Some(error) = wire.space.refusal(header) {
        match what(&asked) {
            // The kernel hands times over first.
            Asked::Times => {}
            Asked::Other => wire.space.end_refusal(header),
            Asked::Nothing => {
                wire.space.end_refusal(header);
                wire.server.end_failure(header.nodeid);
                return Err(error);
            }
        }
    }
    let mut change = change(&asked);
    if wire.is_change_of_no_owner(header.nodeid, &asked)? {
        wire.server.clear_set_ids(header.nodeid)?;
        change.ctime = change.ctime.or(Some(Time::Now));
    }
    let attr = wire.server.setattr(header.nodeid, &change)?;
    if change.size == Some(0) {
        // No lost data is part of the file any more.
        wire.server.end_failure(header.nodeid);
    }
    report(wire, &attr, out);
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

pub(super) fn statfs(Call { wire, header, out, .. }: Call<'_>) -> Reply<()> {
    let (stat, namelen) = wire.server.statfs(header.nodeid)?;
    out.push(&StatfsOut {
        blocks: stat.blocks,
        bfree: stat.free,
        bavail: stat.available.saturating_sub(wire.space.kept().div_ceil(stat.block_size.max(1).into())),
        files: stat.inodes,
        ffree: stat.free_inodes,
        bsize: stat.block_size,
        namelen,
        frsize: stat.block_size,
        ..StatfsOut::default()
    });
    Ok(())
}

pub(super) fn setxattr(Call { wire, header, mut body, .. }: Call<'_>) -> Reply<()> {
    let SetxattrIn { size, flags } = body.take()?;
    let extra = if wire.setxattr_flags { body.take::<SetxattrExtra>()?.setxattr_flags } else { 0 };
    let name = body.name()?;
    wire.note_small();
    let kill_set_gid = extra & SETXATTR_ACL_KILL_SGID != 0;
    wire.server.set_xattr(
        header.nodeid,
        &NamedValue { name, value: body.bytes(size)?, flags: flags.cast_signed(), kill_set_gid },
    )
}

pub(super) fn getxattr(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let GetxattrIn { size, .. } = body.take()?;
    let name = body.name()?;
    sized(&wire.xattr(header.nodeid, name)?, size, out)
}

impl Wire {
    /// Returns whether a SETATTR is that of `chown(path, -1, -1)`, which clears set-user-ID and set-group-ID. It contains
    /// only the change time if the kernel sets the times of the file, and nothing otherwise. Without a write-back cache,
    /// the kernel sends the same request before a write that removes a capability.
    /// Source: Linux fs/open.c `chown_common`; fs/fuse/dir.c `fuse_setattr`, `iattr_to_fattr`.
    fn is_change_of_no_owner(&self, id: u64, asked: &SetattrIn) -> Reply<bool> {
        Ok(match changed(asked) {
            fattr::CTIME => self.options.writeback,
            0 => !self.options.writeback || self.server.getattr(id)?.kind != FileKind::Regular,
            _ => false,
        })
    }

    /// Returns the value of an extended attribute.
    pub(super) fn xattr(&self, id: u64, name: &[u8]) -> Reply<Vec<u8>> {
        self.server.get_xattr(id, name).map_err(|error| match name {
            // After ENOSYS, the kernel would not ask again, not even before a write.
            _ if error != Errno(libc::ENOSYS) || !self.options.writeback => error,
            CAPABILITY | ACCESS_LIST | DEFAULT_LIST => Errno(libc::ENODATA),
            _ => Errno(libc::EOPNOTSUPP),
        })
    }
}

pub(super) fn listxattr(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let GetxattrIn { size, .. } = body.take()?;
    sized(&wire.server.list_xattrs(header.nodeid, header.uid)?, size, out)
}

/// Returns `value`, or its length if the caller's buffer has `size` 0. Fails with ERANGE if the buffer is too small.
fn sized(value: &[u8], size: u32, out: &mut reply::ReplyBody) -> Reply<()> {
    match usize::try_from(size) {
        Ok(0) => out.push(&SizeOut { size: value.len().try_into().unwrap_or(u32::MAX), padding: 0 }),
        Ok(room) if value.len() > room => return Err(Errno(libc::ERANGE)),
        _ => out.extend(value),
    }
    Ok(())
}

pub(super) fn removexattr(Call { wire, header, mut body, .. }: Call<'_>) -> Reply<()> {
    let name = body.name()?;
    if name == CAPABILITY && wire.space.refusal(header).is_some() {
        // It does not exist: this write is being refused.
        return Ok(());
    }
    wire.server.remove_xattr(header.nodeid, name)
}

/// Returns the thread for an ioctl. An ioctl that changes attributes invalidates the kernel's cache, and the kernel may
/// need answers for that. All ioctls except those that read flags may take long.
pub(super) fn place_of_ioctl(mut body: request::RequestBody<'_>) -> Place {
    match body.take::<IoctlIn>() {
        Ok(asked) if ioctl_is_short(asked.cmd) => Place::Here,
        _ => Place::Notifier,
    }
}

pub(super) fn ioctl(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let IoctlIn { cmd, in_size, out_size, .. } = body.take()?;
    let answer = wire.server.ioctl(header.nodeid, header.uid, cmd, body.bytes(in_size)?)?;
    if ioctl_changes(cmd) {
        let (channel, id) = (wire.channel.clone(), header.nodeid);
        match wire.server.ledger() {
            None => channel.make_old(id, ONLY_ATTRIBUTES),
            // The kernel may wait for requests whose turn is after this one.
            Some(_) => wire.notifiers.run(move || channel.make_old(id, ONLY_ATTRIBUTES)),
        }
    }
    out.push(&IoctlOut::default());
    out.extend(answer.get(..out_size as usize).unwrap_or(&answer));
    Ok(())
}
