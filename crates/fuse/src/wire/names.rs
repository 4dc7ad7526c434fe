//! Requests that look up, create, rename and remove names.

use obento_base::{DeviceNumber, Errno, FileKind};

use super::abi::{
    CreateIn, InHeader, MkdirIn, MknodIn, OPEN_KEEP_CACHE, OpenIn, OpenOut, ReleaseIn, Rename2In, StoreOut,
};
use super::encode::{entry_out, nowhere};
use super::{Call, LONG, Wire, reply, request};
use crate::attr::decode_device;
use crate::server::{CreateRequest, FileData, Found, Opened, RenameRequest, Reply};

/// The bits of a mode that contain the file type.
const KIND: u32 = libc::S_IFMT;

fn report(wire: &Wire, found: &Found, out: &mut reply::ReplyBody) {
    out.push(&entry_out(found, wire.validity(found)));
}

pub(super) fn lookup(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    match wire.server.lookup(header.nodeid, body.name()?)? {
        Some(found) => report(wire, &found, out),
        None => out.push(&nowhere(LONG)),
    }
    Ok(())
}

pub(super) fn mknod(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let MknodIn { mode, rdev, umask, .. } = body.take()?;
    let kind = FileKind::from_mode((mode & KIND) as u16).ok_or(Errno(libc::EINVAL))?;
    let rdev = decode_device(rdev);
    make(wire, header, body.name()?, &CreateRequest { kind, mode, umask, rdev, ..of(wire, header, &[]) }, out)
}

pub(super) fn mkdir(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let MkdirIn { mode, umask } = body.take()?;
    let made = CreateRequest { kind: FileKind::Directory, mode, umask, ..of(wire, header, &[]) };
    make(wire, header, body.name()?, &made, out)
}

pub(super) fn symlink(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let (name, target) = (body.name()?, body.name()?);
    let made = CreateRequest { kind: FileKind::Symlink, mode: 0o777, ..of(wire, header, target) };
    make(wire, header, name, &made, out)
}

/// Creates a regular file and opens it.
pub(super) fn create(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let CreateIn { flags, mode, umask, .. } = body.take()?;
    wire.note_small();
    let made = CreateRequest { mode, umask, ..of(wire, header, &[]) };
    let found = wire.server.make(header.nodeid, body.name()?, &made)?;
    report(wire, &found, out);
    out.push(&opened(wire.server.open(found.id, flags)?.fh));
    Ok(())
}

pub(super) fn open(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let OpenIn { flags, .. } = body.take()?;
    let Opened { fh, data } = wire.server.open(header.nodeid, flags)?;
    if let Some(data) = data.filter(|_| wire.stores_data) {
        send_data(wire, header.nodeid, fh, &data, out);
    }
    out.push(&opened(fh));
    Ok(())
}

pub(super) fn release(Call { wire, mut body, .. }: Call<'_>) -> Reply<()> {
    let ReleaseIn { fh, .. } = body.take()?;
    wire.server.release(fh);
    Ok(())
}

/// Sends the data of a file to the page cache of the kernel. If that fails, the kernel requests the data later.
///
/// The kernel caches no page of the file, so no page is overwritten, and none waits for a reply of this thread. The OPEN
/// uses the inode, so the kernel does not wait for its eviction either.
fn send_data(wire: &Wire, id: u64, fh: u64, data: &FileData<'_>, out: &mut reply::ReplyBody) {
    let size = data.size;
    out.push(&StoreOut { nodeid: id, offset: 0, size, padding: 0 });
    let mut len = 0;
    let read = out.fill(size as usize, |room| {
        len = wire.server.read(id, 0, room)?;
        Ok(len)
    });
    if read.is_ok() && len == size as usize && wire.channel.store(out.bytes()) {
        wire.server.note_read(fh, &(0..size.into()));
    }
    out.clear();
}

fn opened(fh: u64) -> OpenOut {
    OpenOut { fh, open_flags: OPEN_KEEP_CACHE, ..OpenOut::default() }
}

/// Creates a file without a name and opens it.
pub(super) fn tmpfile(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let CreateIn { flags, mode, umask, .. } = body.take()?;
    let made = CreateRequest { mode, umask, ..of(wire, header, &[]) };
    let found = wire.server.make_nameless(header.nodeid, &made)?;
    report(wire, &found, out);
    out.push(&opened(wire.server.open(found.id, flags)?.fh));
    Ok(())
}

/// Returns the owner of a new inode: the requesting user, or root with `fakeroot`.
fn owner(wire: &Wire, header: &InHeader) -> (u32, u32) {
    if wire.server.options().fakeroot { (0, 0) } else { (header.uid, header.gid) }
}

/// Returns a new regular file.
fn of<'t>(wire: &Wire, header: &InHeader, target: &'t [u8]) -> CreateRequest<'t> {
    let ((uid, gid), rdev) = (owner(wire, header), DeviceNumber::default());
    CreateRequest { kind: FileKind::Regular, mode: 0, umask: 0, uid, gid, rdev, target }
}

fn make(
    wire: &Wire,
    header: &InHeader,
    name: &[u8],
    made: &CreateRequest<'_>,
    out: &mut reply::ReplyBody,
) -> Reply<()> {
    wire.note_small();
    report(wire, &wire.server.make(header.nodeid, name, made)?, out);
    Ok(())
}

pub(super) fn unlink(Call { wire, header, mut body, .. }: Call<'_>) -> Reply<()> {
    wire.server.unlink(header.nodeid, body.name()?)
}

pub(super) fn rmdir(Call { wire, header, mut body, .. }: Call<'_>) -> Reply<()> {
    wire.server.rmdir(header.nodeid, body.name()?)
}

pub(super) fn rename(Call { wire, header, mut body, .. }: Call<'_>) -> Reply<()> {
    let newdir = body.take()?;
    moved(wire, header, newdir, 0, body)
}

pub(super) fn rename2(Call { wire, header, mut body, .. }: Call<'_>) -> Reply<()> {
    let Rename2In { newdir, flags, .. } = body.take()?;
    moved(wire, header, newdir, flags, body)
}

fn moved(
    wire: &Wire,
    header: &InHeader,
    newdir: u64,
    flags: u32,
    mut body: request::RequestBody<'_>,
) -> Reply<()> {
    let from = (header.nodeid, body.name()?);
    let (to, owner) = ((newdir, body.name()?), owner(wire, header));
    wire.server.rename(&RenameRequest { from, to, flags, owner })
}

pub(super) fn link(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let linked = body.take()?;
    report(wire, &wire.server.link(linked, header.nodeid, body.name()?)?, out);
    Ok(())
}

pub(super) fn readlink(Call { wire, header, out, .. }: Call<'_>) -> Reply<()> {
    out.extend(&wire.server.read_link(header.nodeid)?);
    Ok(())
}
