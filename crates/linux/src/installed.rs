//! The installed kernel that opens a type.

use std::fs;

use obento_base::{EngineObstacle, Error, Feature, Result};

use crate::engine::EngineError;
use crate::kernel::Kernel;
use crate::launch::is_of_descriptors;
use crate::types::Type;

/// Returns the kernel that opens volumes of `kind`. Fails with `Unsupported` if none is installed, or it does not
/// support the type.
pub fn kernel_of(kind: &Type) -> Result<Kernel> {
    let missing = match () {
        () if Kernel::is_chosen_wrongly() => EngineObstacle::NoSuchKernel,
        () if crate::kernel::RUNS_HERE => EngineObstacle::NotInstalled,
        () => EngineObstacle::Processor,
    };
    let kernel = Kernel::installed().ok_or_else(|| lacking(missing))?;
    let name = kind.names.first().copied().unwrap_or_default();
    if kernel.knows(kernel_name(name)) { Ok(kernel) } else { Err(lacking(EngineObstacle::NotInKernel)) }
}

/// Returns the kernel's name of a type.
pub(crate) fn kernel_name(name: &str) -> &str {
    match name {
        "ufs1" | "ufs-hp" => "ufs",
        "minix1" | "minix2" => "minix",
        name => name,
    }
}

/// Returns the error for a volume that no kernel opens.
pub(crate) fn unavailable(obstacle: EngineObstacle) -> Error {
    Error::Unsupported(Feature::Engine(obstacle))
}

/// Returns the error for a missing program or kernel, or the error that no more files can be opened.
fn lacking(obstacle: EngineObstacle) -> Error {
    match fs::File::open("/") {
        Err(error) if is_of_descriptors(&error) => EngineError::not_started(&error).into(),
        _ => unavailable(obstacle),
    }
}
