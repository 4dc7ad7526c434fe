//! Commands on the sources that obento only reads, on FUSE servers and on NFS exports.

mod changes;
mod confined;
mod fuse;
mod hostile;
mod nfs;
mod ntfs;
mod table;
