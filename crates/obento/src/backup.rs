//! A file takes the place of another, which may be kept.

use std::ops::ControlFlow;

use obento_base::{Error, FileKind, Name, NameBuf, Result};
use obento_driver::{Cookie, RenameFlags};
use obento_host::tree::Backup;
use obento_vfs::{Caller, Node};

use crate::unfinished::free_name;

/// Renames `from`, a directory and a name in it, to `to`; what is there is kept as `backup` says. Answers under which name;
/// what has that one goes. `to` is never missing unless one of the two is a directory. Errors: Exists if `is_own` knows
/// the backup's name; NameTooLong; those of a link and a rename, after which all is as before as far as that goes.
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
        // A directory can only take the place of a directory.
        match vfs.unlink(&Caller::Owner, dir, name) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    vfs.rename(&Caller::Owner, from, to, RenameFlags::empty()).inspect_err(|_| {
        if let (Some(kept), Err(Error::NotFound)) = (&kept, dir.lookup(name)) {
            // The first error is the one to tell.
            let _ = vfs.rename(&Caller::Owner, (dir, kept), to, RenameFlags::empty());
        }
    })?;
    Ok(kept)
}

/// Keeps what is called `name` in `dir` as `backup` says, and answers under which name; none if nothing is
/// there. A file keeps its old name too; a directory, and a file that can have no further name, lose it.
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
        // Another name of it already, which a rename would leave as it is.
        return Ok(Some(kept));
    }
    let rename = |from: &Name| vfs.rename(&Caller::Owner, (dir, from), (dir, &kept), RenameFlags::empty());
    if node.kind()? != FileKind::Directory {
        let free = free_name(dir, &kept, |_| false)?;
        match vfs.link(&Caller::Owner, &node, dir, &free) {
            Ok(()) => {
                return rename(&free).map(|()| Some(kept)).inspect_err(|_| {
                    // The first error is the one to tell.
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
        // What cannot be read has no number either.
        found.extend(entry.ok().map(|entry| entry.name.as_bytes().to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
