//! Replaces a file, and preserves the old file as a backup if requested.

use std::ops::ControlFlow;

use obento_base::{Error, FileKind, Name, NameBuf, Result};
use obento_driver::{Cookie, RenameFlags};
use obento_host::tree::Backup;
use obento_vfs::{Caller, Node};

use crate::unfinished::free_name;

/// Renames `from` to `to`. Each of the two arguments consists of a directory and a name in that directory. If
/// `to` exists, `backup` decides whether the old file of `to` is preserved under another name, as a backup. If the name
/// of the backup exists, the backup replaces the file with this name. Returns the name of the backup, or `None` if
/// the call has created no backup.
///
/// If `to` exists before the call, the name exists at every moment during the call, with two exceptions:
///
/// - One of the two files is a directory.
/// - A backup is made, and the file at `to` cannot have another link. This applies to every file of a format
///   without hard links.
///
/// # Errors
///
/// - `Exists`: `is_own` returns `true` for the name of the backup.
/// - `NameTooLong`: the name of the backup is too long.
/// - The errors of creating a link and of renaming. The call then undoes its changes if possible.
pub fn take_place(
    from: (&Node, &Name),
    to: (&Node, &Name),
    backup: &Backup,
    is_own: impl Fn(&Name) -> bool,
) -> Result<Option<NameBuf>> {
    let (vfs, (dir, name)) = (to.0.vfs(), to);
    let kept = match backup {
        Backup::None => None,
        _ => keep(dir, name, backup, is_own)?,
    };
    if kept.is_some() && from.0.lookup(from.1)?.kind()? == FileKind::Directory {
        // A directory can only replace a directory.
        match vfs.unlink(&Caller::Owner, dir, name) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    vfs.rename(&Caller::Owner, from, to, RenameFlags::empty()).inspect_err(|_| {
        if let (Some(kept), Err(Error::NotFound)) = (&kept, dir.lookup(name)) {
            // The first error is returned.
            let _ = vfs.rename(&Caller::Owner, (dir, kept), to, RenameFlags::empty());
        }
    })?;
    Ok(kept)
}

/// Gives the file `name` of `dir` the name of its backup, and returns this name. Returns `None` if the file does not
/// exist, or if `backup` requests no backup for it. The file also keeps its old name. Exception: a directory, and a
/// file that cannot have another link, lose the old name.
fn keep(dir: &Node, name: &Name, backup: &Backup, is_own: impl Fn(&Name) -> bool) -> Result<Option<NameBuf>> {
    let node = match dir.lookup(name) {
        Err(Error::NotFound) => return Ok(None),
        found => found?,
    };
    let Some(kept) = backup.name_for(name.as_bytes(), || names(dir))? else { return Ok(None) };
    let kept = Name::new(&kept).map_err(|_| Error::NameTooLong)?.to_buf();
    if is_own(&kept) {
        return Err(Error::Exists);
    }
    let vfs = dir.vfs();
    if dir.lookup(&kept).as_ref() == Ok(&node) {
        // The backup name is already a link to the same file, and a rename would do nothing.
        return Ok(Some(kept));
    }
    let rename = |from: &Name| vfs.rename(&Caller::Owner, (dir, from), (dir, &kept), RenameFlags::empty());
    if node.kind()? != FileKind::Directory {
        let free = free_name(dir, &kept, |_| false)?;
        match vfs.link(&Caller::Owner, &node, dir, &free) {
            Ok(()) => {
                return rename(&free).map(|()| Some(kept)).inspect_err(|_| {
                    // The first error is returned.
                    let _ = vfs.unlink(&Caller::Owner, dir, &free);
                });
            }
            Err(Error::TooManyLinks | Error::NotPermitted | Error::NotSupported) => {}
            Err(error) => return Err(error),
        }
    }
    rename(name).map(|()| Some(kept))
}

fn names(dir: &Node) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    dir.read_dir(Cookie::START, &mut |entry| {
        // An unreadable entry has no number either.
        found.extend(entry.ok().map(|entry| entry.name.as_bytes().to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
