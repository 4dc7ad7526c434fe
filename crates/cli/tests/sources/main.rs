//! Commands on the sources that obento only reads, on FUSE servers and on NFS exports.

mod changes;
mod confined;
#[allow(dead_code, reason = "the tests of the client use all of it")]
#[path = "../../../nfs-source/tests/exports/fake/mod.rs"]
mod fake;
mod fuse;
mod hostile;
mod nfs;
mod ntfs;
mod table;
