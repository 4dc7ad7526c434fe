//! The kernel host: drivers behind the VFS of Linux, as a loadable module.
//!
//! Linux does the work of `obento-vfs`: names, permissions, the page cache and the life of inodes. So this host
//! uses the contract itself. `c/` implements the operations of the VFS and the hypercalls; this crate converts
//! their arguments and calls the driver. `cargo xtask kernel build` builds both into `obento.ko`
//! (`docs/kernel.md`).
//!
//! The drivers forbid `unsafe` as everywhere. Here it is at the border to C only: pointers that C passes, and
//! hypercalls.
//!
//! Locking: the VFS takes `s_umount`, then `i_rwsem`, then `invalidate_lock`, then a folio lock, then reads the
//! gate of the volume (`c/super.c`). Locks of the driver come after those.
#![no_std]

extern crate alloc;

mod abi;
mod checksum;
mod data;
mod device;
mod history;
#[cfg(obento_env = "kernel")]
mod memory;
mod names;
mod report;
mod upgrade;
mod volume;
mod xattr;

use alloc::sync::Arc;
use core::ffi::CStr;

use obento_base::Result;
use obento_block::BlockDevice;
#[doc(hidden)]
pub use obento_driver::Driver;
use obento_driver::{FileSystem, OpenOptions};

/// A file system type that the module registers. Of a driver it contains only what a mount needs: checking and
/// formatting are not linked.
pub struct Type {
    /// Name of the type for mount(8).
    pub name: &'static CStr,
    /// Opens a volume of the type.
    pub open: Open,
    /// The path of the data of all files.
    pub data: Data,
}

/// The path of the data of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// The page cache reads and writes the device, as far as the driver maps files to it.
    Mapped,
    /// The driver moves each page: it maps parts of a file and keeps others to itself.
    Through,
}

/// A function as [`Driver::open`].
pub type Open = fn(Arc<dyn BlockDevice>, &OpenOptions) -> Result<Arc<dyn FileSystem>>;

/// Defines the file system types of a module. A module contains exactly one such table.
#[macro_export]
macro_rules! types {
    ($($name:literal => $driver:expr, $data:ident);* $(;)?) => {
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        pub fn ob_types() -> &'static [$crate::Type] {
            const TYPES: &[$crate::Type] =
                &[$($crate::Type {
                    name: $name,
                    open: |device, options| $crate::Driver::open(&$driver, device, options),
                    data: $crate::Data::$data,
                }),*];
            TYPES
        }
    };
}

#[cfg(feature = "types")]
types! {
    c"obento-ext4" => obento_ext4::Ext4Driver, Mapped;
    c"obento-fat" => obento_fat::FatDriver::default(), Mapped;
    // The block that contains the end of the valid data belongs to the driver.
    c"obento-exfat" => obento_exfat::ExFatDriver::default(), Through;
    // The driver fills holes itself.
    c"obento-xv6" => obento_xv6::Xv6Driver, Through;
}
