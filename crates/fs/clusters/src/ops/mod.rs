//! The operations on names and attributes. Each is looked up, then tested, then done.

mod attributes;
mod names;
mod rename;

pub use self::attributes::{set_attr, stamp_data, stamp_dir};
pub use self::names::{create, directory, remove_name};
pub use self::rename::rename;
