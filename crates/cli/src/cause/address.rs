//! The hints for errors of addresses.

use obento::address::AddressError;

use super::{Cause, Complete};
use crate::report::shell_word;

impl Complete for AddressError {}

impl Cause for AddressError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoImage { part } => {
                return Some(format!("write IMAGE{part}, where IMAGE is the image"));
            }
            Self::Empty => "write a path, or IMAGE:/PATH",
            Self::EmptyHostPath => "write a path such as host:./name",
            Self::MissingImage { .. } => {
                "check the name, or write 'host:' before a host path that contains ':/'"
            }
            Self::MissingFile { .. } => "check the name",
            Self::Inode { image, path } => {
                let (inode, file) =
                    (shell_word(format!("{image}:#12")), shell_word(format!("{image}:/{path}")));
                return Some(format!(
                    "write an address such as {inode}, or {file} for a file with this name"
                ));
            }
            Self::RelativePath { image, path } => {
                let address = shell_word(format!("{image}:/{path}"));
                return Some(format!("write {address}, or 'host:' before a host path"));
            }
            Self::HostDirectory { .. } => "name a file or device",
            Self::ServerOrFile { .. } => "write './' before the file, or rename it to start the server",
            Self::ServerWithoutPath { .. } => "add ':/' for the root directory",
            Self::ImageFromStdin => "save the image to a file, and name this file",
            Self::Part { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
