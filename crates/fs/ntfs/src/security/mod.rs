//! Owners and permissions: from the security descriptors of Windows, by a map.
//!
//! The rules, the first that applies: the options of the caller; the attributes of WSL; the map of users in
//! `.NTFS-3G/UserMapping` and the access control list; the default owner, and permissions for everyone.

pub mod descriptor;
pub mod map;
pub mod store;
