//! Requests for the entries of directories.

use zerocopy::IntoBytes;

use super::abi::{Dirent, EntryOut, ReadIn};
use super::encode::{self, Validity, entry_out};
use super::{Call, MAX_IO, NOT, reply};
use crate::server::{Listed, Reply};

/// The alignment of entries.
const ALIGNMENT: usize = 8;

/// Adds an entry, with its inode if `plus` is given. Returns `true` if the entry does not fit into `size` bytes.
fn add(out: &mut reply::ReplyBody, size: usize, listed: &Listed<'_>, plus: Option<&EntryOut>) -> bool {
    let plus = plus.map_or(&[][..], IntoBytes::as_bytes);
    let len = plus.len().saturating_add(size_of::<Dirent>()).saturating_add(listed.name.len());
    let padded = len.next_multiple_of(ALIGNMENT);
    if out.bytes().len().saturating_add(padded) > size {
        return true;
    }
    let namelen = listed.name.len().try_into().unwrap_or(u32::MAX);
    out.extend(plus);
    out.push(&Dirent { ino: listed.ino, off: listed.next, namelen, kind: encode::kind(listed.kind) });
    out.extend(listed.name);
    out.extend([0; ALIGNMENT].get(..padded.saturating_sub(len)).unwrap_or_default());
    false
}

pub(super) fn readdir(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let ReadIn { offset, size, .. } = body.take()?;
    let size = size.min(MAX_IO) as usize;
    wire.server.list(header.nodeid, offset, &mut |listed| add(out, size, listed, None))
}

pub(super) fn readdirplus(Call { wire, header, mut body, out }: Call<'_>) -> Reply<()> {
    let ReadIn { offset, size, .. } = body.take()?;
    let size = size.min(MAX_IO) as usize;
    wire.server.list_plus(header.nodeid, offset, &mut |listed, found| {
        let valid = match found.stays {
            true => wire.validity(found),
            false => Validity { name: NOT, attr: NOT },
        };
        add(out, size, listed, Some(&entry_out(found, valid)))
    })
}

#[cfg(test)]
mod tests {
    use obento_base::FileKind;

    use super::*;

    #[test]
    fn entries_are_padded_and_those_that_do_not_fit_are_omitted() {
        let mut out = reply::ReplyBody::default();
        let listed = |name| Listed { ino: 7, name, kind: FileKind::Regular, next: 9 };
        assert!(!add(&mut out, 64, &listed(b"abc"), None));
        assert_eq!(out.bytes().len(), 32);
        assert_eq!(&out.bytes()[24..], b"abc\0\0\0\0\0");
        assert!(!add(&mut out, 64, &listed(b"12345678"), None));
        assert_eq!(out.bytes().len(), 64);
        assert!(add(&mut out, 64, &listed(b"a"), None));
        assert_eq!(out.bytes().len(), 64);
    }
}
