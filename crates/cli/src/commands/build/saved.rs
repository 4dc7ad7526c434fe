//! Recognises a tar archive that contains the layers of a container image and not its files: the output of
//! `docker save`, or an OCI layout.
//!
//! Invariant: at most [`MAX_MEMBERS`] headers are read, and no member is.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::context::Context;
use crate::report::shell_word;

/// The most headers that are read.
const MAX_MEMBERS: usize = 10_000;
const BLOCK: u64 = 512;

/// Prints a note for each archive in `from` whose files are stored although they are the layers of an image. A prefix
/// such as `tar:` selects the type, and needs no note. A compressed archive is not recognised.
pub fn note_saved_images(from: &[OsString], context: &Context) {
    for source in from.iter().filter(|source| is_saved_image(Path::new(source)).unwrap_or(false)) {
        let name = source.as_bytes();
        let help = format!("use {} to store the files of the image", shell_word([b"oci:", name].concat()));
        context.note(name, format!("this container image is stored as an archive of layers; {help}"));
    }
}

fn is_saved_image(path: &Path) -> std::io::Result<bool> {
    // Reading a pipe would lose its bytes.
    if !path.metadata()?.is_file() {
        return Ok(false);
    }
    let mut file = File::open(path)?;
    let (mut has_index, mut has_layout, mut has_manifest, mut has_tag) = (false, false, false, false);
    for _ in 0..MAX_MEMBERS {
        let mut header = [0; BLOCK as usize];
        file.read_exact(&mut header)?;
        let Some(len) = member_len(&header) else { break };
        let name = header[..100].split(|&byte| byte == 0).next().unwrap_or_default();
        match name.strip_prefix(b"./").unwrap_or(name) {
            b"index.json" => has_index = true,
            b"oci-layout" => has_layout = true,
            b"manifest.json" => has_manifest = true,
            b"repositories" => has_tag = true,
            name if name.ends_with(b"/layer.tar") => has_tag = true,
            _ => {}
        }
        if has_index && has_layout || has_manifest && has_tag {
            return Ok(true);
        }
        let Some(next) = len.checked_next_multiple_of(BLOCK).and_then(|len| i64::try_from(len).ok()) else {
            break;
        };
        file.seek(SeekFrom::Current(next))?;
    }
    Ok(false)
}

/// Returns the length of the member with this header, or `None` if this is not a header of a tar archive.
fn member_len(header: &[u8]) -> Option<u64> {
    header.get(257..262).filter(|magic| magic == b"ustar")?;
    let digits = std::str::from_utf8(header.get(124..136)?).ok()?;
    u64::from_str_radix(digits.trim_matches(['\0', ' ']), 8).ok()
}
