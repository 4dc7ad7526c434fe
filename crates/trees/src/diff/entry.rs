//! Compares two entries without their contents.

use obento_base::FileKind;
use obento_host::Xattr;

use super::content;
use super::side::SideEntry;
use super::{Change, DiffOptions};
use crate::copy::Problem;

/// Reports the differences of `left` and `right`.
pub fn compare(
    left: &SideEntry,
    right: &SideEntry,
    options: &DiffOptions,
    emit: &mut dyn FnMut(Result<Change, Problem>),
) {
    let (a, b) = (left.attr(), right.attr());
    if a.kind != b.kind {
        return emit(Ok(Change::Kind(a.kind, b.kind)));
    }
    // The permission bits of a symbolic link have no effect and differ between systems.
    if options.mode && a.mode != b.mode && a.kind != FileKind::Symlink {
        emit(Ok(Change::Mode(a.mode, b.mode)));
    }
    if options.owner && (a.uid, a.gid) != (b.uid, b.gid) {
        emit(Ok(Change::Owner((a.uid, a.gid), (b.uid, b.gid))));
    }
    if options.times && a.mtime != b.mtime && a.kind != FileKind::Directory {
        emit(Ok(Change::Modified(a.mtime, b.mtime)));
    }
    match a.kind {
        FileKind::Regular if a.size != b.size => emit(Ok(Change::Size(a.size, b.size))),
        FileKind::Regular if options.content => {
            if let Some(found) = content::first_difference(left, right).transpose() {
                emit(found.map(Change::Content));
            }
        }
        FileKind::Symlink => compare_targets(left, right, emit),
        kind if kind.is_device() && a.rdev != b.rdev => emit(Ok(Change::Device(a.rdev, b.rdev))),
        _ => {}
    }
    if options.xattrs {
        compare_xattrs(left, right, emit);
    }
}

fn compare_targets(left: &SideEntry, right: &SideEntry, emit: &mut dyn FnMut(Result<Change, Problem>)) {
    match (left.read_link(), right.read_link()) {
        (Ok(left), Ok(right)) if left == right => {}
        (Ok(left), Ok(right)) => emit(Ok(Change::Target(left, right))),
        (left, right) => {
            [left.err(), right.err()].into_iter().flatten().for_each(|problem| emit(Err(problem)))
        }
    }
}

/// Both lists are sorted by name, without duplicate names.
fn compare_xattrs(left: &SideEntry, right: &SideEntry, emit: &mut dyn FnMut(Result<Change, Problem>)) {
    let (left, right) = match (left.xattrs(), right.xattrs()) {
        (Ok(left), Ok(right)) => (left, right),
        (left, right) => {
            return [left.err(), right.err()].into_iter().flatten().for_each(|problem| emit(Err(problem)));
        }
    };
    let value = |xattrs: &[Xattr], name: &[u8]| {
        let found = xattrs.iter().find(|xattr| xattr.name == name);
        found.map(|xattr| xattr.value.clone())
    };
    for xattr in &left {
        let other = value(&right, &xattr.name);
        if other.as_ref() != Some(&xattr.value) {
            emit(Ok(Change::Xattr(xattr.name.clone(), Some(xattr.value.clone()), other)));
        }
    }
    for xattr in right {
        if value(&left, &xattr.name).is_none() {
            emit(Ok(Change::Xattr(xattr.name, None, Some(xattr.value))));
        }
    }
}
