//! One damage, exactly its findings.
//!
//! A case is a name, the findings that are expected - a code and some of its fields, where `<dir/inner>` stands for the
//! number of that inode - and what is changed in a sound image of [`lab::bases`]:
//!
//! ```text
//! a_link_count_that_is_too_high(EXT4, ["link-count ino=<file> stored=9 counted=1"], |disk| {
//!     disk.edit_inode("file", |inode| inode.i_links_count = 9.into());
//! });
//! ```
//!
//! Each is judged by `e2fsck -fn` too, which must not call it clean. After a repair e2fsck and a second check find
//! nothing, and no file that could be read is lost, save those that e2fsck loses too.

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
mod sound;
mod super_block;
mod values;
mod volume;
