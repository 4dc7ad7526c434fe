//! Operations on names and attributes. Each operation looks up its objects, then checks for errors, then makes its
//! changes.

mod attributes;
mod names;
mod rename;

pub use self::attributes::{set_attr, stamp_data, stamp_dir};
pub use self::names::{create, directory, remove_name};
pub use self::rename::rename;
