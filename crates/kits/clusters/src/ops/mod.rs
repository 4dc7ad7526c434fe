//! Operations on names and attributes. Each operation gets what its caller found in the locked volume, then
//! checks for errors, then makes its changes.

mod attributes;
mod names;
mod rename;

pub(crate) use self::attributes::set_attr;
pub use self::attributes::stamp_data;
pub(crate) use self::names::{create, forget, remove_name};
pub(crate) use self::rename::rename;

use self::attributes::stamp_dir;
