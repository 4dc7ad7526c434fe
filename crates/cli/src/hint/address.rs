//! The hints for errors of addresses.

use obento::address::AddressError;

use super::Hint;

impl Hint for AddressError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Empty => "write a path, or IMAGE:/PATH",
            Self::EmptyHostPath => "write a path such as host:./name",
            Self::MissingImage { .. } => {
                "check the name, or write 'host:' before a host path that contains ':/'"
            }
            Self::MissingFile { .. } => "check the name",
            Self::Inode { image, path } => {
                return Some(format!(
                    "write an address such as '{image}:#12', or '{image}:/{path}' for a file with this name"
                ));
            }
            Self::RelativePath { image, path } => {
                return Some(format!("write '{image}:/{path}', or 'host:' before a host path"));
            }
            Self::HostDirectory { .. } => "name a file or device",
            Self::ServerOrFile { .. } => "write './' before the file, or rename it to start the server",
            Self::ServerWithoutPath { .. } => "add ':/' for the root directory",
            Self::ImageFromStdin => "save the image to a file",
            Self::Part { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
