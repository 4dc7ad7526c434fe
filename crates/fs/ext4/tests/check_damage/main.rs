//! Single damages, and exactly their findings.
//!
//! A case is a name, the expected findings (a code and some of its fields, where `<dir/inner>` represents the number
//! of that inode), and a change of an intact image of [`lab::bases`]:
//!
//! ```text
//! a_link_count_that_is_too_high(EXT4, ["link-count ino=<file> stored=9 counted=1"], |disk| {
//!     disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
//! });
//! ```
//!
//! `e2fsck -fn` must find each damage, too. After a repair e2fsck and a second check find nothing, and no readable
//! file is lost, except files that e2fsck loses, too.

#[path = "../common/mod.rs"]
mod common;
#[path = "../lab/mod.rs"]
mod lab;

mod attributes;
mod block_map;
mod case;
mod counts;
mod directories;
mod encoding;
mod every_issue;
mod extents;
mod features;
mod groups;
mod index;
mod inodes;
mod journal;
mod many;
mod quota;
mod reserved;
mod sound;
mod super_block;
mod values;
mod volume;
