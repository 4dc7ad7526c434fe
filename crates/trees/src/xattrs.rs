//! The extended attributes of a file.

use obento_base::Error;
use obento_host::Xattr;
use obento_vfs::Node;

/// Returns the attributes of `node`, sorted by name. Passes the error of each unreadable attribute to `damaged`.
pub fn read(node: &Node, mut damaged: impl FnMut(Error)) -> Vec<Xattr> {
    let names = node.list_xattrs().unwrap_or_else(|error| {
        damaged(error);
        Vec::new()
    });
    let mut xattrs = Vec::with_capacity(names.len());
    for name in names {
        match node.get_xattr(&name) {
            Ok(value) => xattrs.push(Xattr { name, value }),
            Err(error) => damaged(error),
        }
    }
    xattrs.sort_unstable();
    xattrs
}
