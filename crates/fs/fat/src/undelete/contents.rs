//! The first bytes of types of files, by the extension of the name.
//!
//! Source: the specifications of the formats, and magic(5).

/// The extensions of a type, the offset of its mark in the file, and the values of the mark.
type Type = (&'static [&'static str], usize, &'static [&'static [u8]]);

/// Types of files that are often deleted from cards and sticks.
const TYPES: &[Type] = &[
    (&["jpg", "jpeg", "jpe", "thm"], 0, &[b"\xff\xd8\xff"]),
    (&["png"], 0, &[b"\x89PNG\r\n\x1a\n"]),
    (&["gif"], 0, &[b"GIF8"]),
    (&["bmp"], 0, &[b"BM"]),
    (&["tif", "tiff", "nef", "cr2", "dng", "arw", "pef"], 0, &[b"II*\0", b"MM\0*"]),
    (&["webp", "avi", "wav"], 0, &[b"RIFF"]),
    (&["heic", "heif", "avif", "mp4", "m4a", "m4v", "3gp", "cr3"], 4, &[b"ftyp"]),
    (&["mov"], 4, &[b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"]),
    (&["mkv", "webm"], 0, &[b"\x1a\x45\xdf\xa3"]),
    (&["flac"], 0, &[b"fLaC", b"ID3"]),
    (&["ogg", "oga", "ogv", "opus"], 0, &[b"OggS"]),
    (&["pdf"], 0, &[b"%PDF-"]),
    (
        &["zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", "jar", "apk"],
        0,
        &[b"PK\x03\x04", b"PK\x05\x06"],
    ),
    (&["doc", "xls", "ppt", "msi"], 0, &[b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"]),
    (&["rtf"], 0, &[b"{\\rtf"]),
    (&["gz", "tgz"], 0, &[b"\x1f\x8b"]),
    (&["7z"], 0, &[b"7z\xbc\xaf\x27\x1c"]),
    (&["rar"], 0, &[b"Rar!\x1a\x07"]),
    (&["exe", "dll", "sys"], 0, &[b"MZ"]),
];

/// Returns whether a file of this name can begin with `bytes`. Returns `None` if the extension is in no type.
pub fn fits(name: &[u8], bytes: &[u8]) -> Option<bool> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let extension = name.get(dot.saturating_add(1)..)?;
    let is_type =
        |(names, ..): &&Type| names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(extension));
    let (_, offset, marks) = TYPES.iter().find(is_type)?;
    let start = bytes.get(*offset..).unwrap_or_default();
    Some(marks.iter().any(|mark| start.starts_with(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_selects_the_first_bytes() {
        assert_eq!(fits(b"a/b.c/_MG.JPG", b"\xff\xd8\xff\xe0"), Some(true));
        assert_eq!(fits(b"photo.jpeg", b"\xff\xd8"), Some(false));
        assert_eq!(fits(b"film.mp4", b"\0\0\0\x18ftypisom"), Some(true));
        assert_eq!(fits(b"film.mp4", b"\0\0"), Some(false));
        assert_eq!(fits(b"notes.txt", b"text"), None);
        assert_eq!(fits(b"notes", b"text"), None);
    }
}
