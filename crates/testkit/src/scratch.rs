//! Where tests keep large or many files.

use std::path::{Path, PathBuf};

/// Returns a folder in memory if the machine has one, otherwise the folder for temporary files. In memory, thousands of
/// files cost the host neither writes nor time, and a directory is listed in the same order in every run.
pub fn memory_folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}
